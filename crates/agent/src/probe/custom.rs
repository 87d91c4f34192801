//! Handlers that a user wrote: each is a container of its own beside the member, with our binary as its first process,
//! which runs the command when the probe asks for it through a socket in a folder that only this pod has.
//!
//! The origin lets a shell's web server listen on ports of the pod. A socket needs no port that could be taken, and
//! nobody outside the pod can have the command run.

use coregent_core::rsm::probe::{Answer, LONGEST_OUTPUT, read};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;

use super::HandlerError;

/// The origin's name for the output of the handler before, and what its programs see of it.
const LAST_STDOUT: [&str; 2] = ["KB_RSM_LAST_STDOUT", "v_KB_RSM_LAST_STDOUT"];
/// First word of an answer that holds an output.
const GOOD: &[u8] = b"ok\n";
/// As much of a failed command's own words as is passed on.
const LAST_WORDS: u64 = 200;

/// The socket of a handler.
#[must_use]
pub fn socket(shared: &Path, index: usize) -> PathBuf {
    shared.join(format!("action-{index}.sock"))
}

/// Asks all handlers in order; the output of the last is the role.
pub(super) async fn role(shared: &Path, handlers: usize) -> Result<Answer, HandlerError> {
    let mut last = Vec::new();
    for index in 0..handlers {
        last = ask(&socket(shared, index), &last).await?;
    }
    read(&last).map_err(|why| HandlerError::Unreadable { address: "the last handler".to_owned(), why: why.to_string() })
}

async fn ask(socket: &Path, last: &[u8]) -> Result<Vec<u8>, HandlerError> {
    let address = || socket.display().to_string();
    let unreachable = |source| HandlerError::Unreachable { address: address(), source };
    let mut stream = UnixStream::connect(socket).await.map_err(unreachable)?;
    stream.write_all(last).await.map_err(unreachable)?;
    stream.shutdown().await.map_err(unreachable)?;
    let answer = at_most(&mut stream, LONGEST_OUTPUT + GOOD.len() + 1).await.map_err(unreachable)?;
    match answer.strip_prefix(GOOD) {
        Some(output) => Ok(output.to_vec()),
        None => Err(HandlerError::Refused { code: 0, message: String::from_utf8_lossy(&answer).trim().to_owned() }),
    }
}

/// `coregent agent handler`: serves one command on one socket until the container ends.
///
/// # Errors
/// When the socket cannot be opened.
pub fn serve(socket: &Path, command: &[OsString], timeout: Duration) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = listen(socket)?;
        let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        loop {
            let stream = tokio::select! {
                stream = listener.accept() => stream,
                _ = ended.recv() => return Ok(()),
            };
            match stream {
                // One at a time: a command that is asked for again while it runs has not answered yet.
                Ok((stream, _)) => answer(stream, command, timeout).await,
                Err(error) => tracing::warn!(%error, "nobody could be let in"),
            }
        }
    })
}

/// A socket at `path`, in place of one that a predecessor left.
pub(super) fn listen(path: &Path) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

async fn answer(mut stream: UnixStream, command: &[OsString], timeout: Duration) {
    let answer = match at_most(&mut stream, LONGEST_OUTPUT).await {
        Ok(last) => {
            // A variable cannot hold a NUL, and what is no text is no role.
            let last = String::from_utf8_lossy(&last).replace('\0', "");
            let env = LAST_STDOUT.map(|name| (name, last.trim_end().to_owned()));
            tokio::time::timeout(timeout, run(command, &env))
                .await
                .unwrap_or_else(|_| Err(format!("the command did not end within {} s", timeout.as_secs_f32())))
        }
        Err(error) => Err(error.to_string()),
    };
    let bytes = match answer {
        Ok(output) => [GOOD, &output].concat(),
        Err(why) => why.into_bytes(),
    };
    // Whoever asked may have gone.
    let _ = stream.write_all(&bytes).await;
}

/// Kills a command and everything that it started, however this ends.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs a command to its end; gives what it printed, or why that is not worth anything.
pub(super) async fn run(command: &[OsString], env: &[(&str, String)]) -> Result<Vec<u8>, String> {
    let Some((program, args)) = command.split_first() else { return Err("there is no command".to_owned()) };
    let mut process = Command::new(program)
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let _group = Group(process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let words = async {
        let mut words = Vec::new();
        if let Some(stderr) = stderr {
            // What is beyond is read by nobody, and whoever goes on to write is ended by that.
            let _ = stderr.take(LAST_WORDS).read_to_end(&mut words).await;
        }
        String::from_utf8_lossy(&words).trim().to_owned()
    };
    let output = async {
        match stdout {
            Some(mut stdout) => at_most(&mut stdout, LONGEST_OUTPUT + 1).await,
            None => Ok(Vec::new()),
        }
    };
    let (output, words) = tokio::join!(output, words);
    let output = output.map_err(|error| error.to_string())?;
    if output.len() > LONGEST_OUTPUT {
        return Err(format!("the output is longer than {LONGEST_OUTPUT} bytes"));
    }
    let status = process.wait().await.map_err(|error| error.to_string())?;
    if status.success() { Ok(output) } else { Err(format!("the command ended with {status}: {words}")) }
}

/// Everything up to a limit; what is beyond stays unread.
async fn at_most<R: AsyncRead + Unpin>(stream: &mut R, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Vec<OsString> {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    /// What the probe makes of handlers with these scripts.
    async fn asked(scripts: &[&str]) -> Result<Answer, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut servers = tokio::task::JoinSet::new();
        for (index, script) in scripts.iter().enumerate() {
            let (listener, command) = (listen(&socket(folder.path(), index)).unwrap(), shell(script));
            servers.spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                answer(stream, &command, Duration::from_secs(2)).await;
            });
        }
        role(folder.path(), scripts.len()).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn each_handler_sees_the_output_of_the_one_before_and_the_last_one_says_the_role() {
        let said = asked(&["echo lead", "echo ${KB_RSM_LAST_STDOUT}er $((3 + 4)); test $v_KB_RSM_LAST_STDOUT = lead"]);
        assert_eq!(said.await, Ok(Answer::Role { role: "leader".into(), version: Some(7) }));
    }

    #[tokio::test]
    async fn handlers_that_fail_hang_or_print_garbage_megabytes_or_no_text_are_told_of_in_words() {
        for (script, words) in [
            ("echo no such role >&2; exit 3", "exit status: 3: no such role"),
            ("sleep 60", "did not end within"),
            ("head -c 3000000 /dev/zero", "longer than"),
            ("printf 'lea\\377der'", "not UTF-8"),
            ("echo a b c", "neither a role"),
            ("yes garbage >&2", "the command ended with"),
        ] {
            let why = asked(&[script]).await.unwrap_err();
            assert!(why.contains(words), "{script}: {why}");
        }
    }

    #[tokio::test]
    async fn a_handler_that_is_not_there_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(role(folder.path(), 1).await, Err(HandlerError::Unreachable { .. })));
    }
}
