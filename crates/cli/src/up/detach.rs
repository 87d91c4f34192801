//! The plane in the background: started by `up --detach`, heard through a pipe.

use super::Args;
use super::note::Note;
use crate::failure::{ExitCode, Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Set in the background process: its standard input is the pipe to report to.
const REPORTS: &str = "COREGENT_REPORTS_TO_STDIN";

/// What the background process says once: that its API answers, or why not.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    Answers { notes: Vec<Note> },
    Failed { code: u8, what: String, why: String, remedy: String },
}

/// Starts the plane in a session of its own and returns once its API answers, with what a person should know.
///
/// # Errors
/// What the background process reported, or that it ended without a word.
pub async fn start(data_dir: &Path, args: &Args) -> Outcome<Vec<Note>> {
    let cannot = |why: std::io::Error| {
        Failure::failed(
            "cannot start the control plane in the background",
            why,
            "start it without --detach to see more",
        )
    };
    DirBuilder::new().recursive(true).mode(0o700).create(data_dir).map_err(|error| {
        Failure::refused(
            format!("cannot use the data folder {}", data_dir.display()),
            error,
            "make room or name another with --data-dir",
        )
    })?;
    let log_path = data_dir.join("up.log");
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path).map_err(cannot)?;
    let (reader, writer) = std::io::pipe().map_err(cannot)?;
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.arg("up").arg("--data-dir").arg(data_dir);
    if let Some(listen) = args.listen {
        command.arg("--listen").arg(listen.to_string());
    }
    if args.no_controllers {
        command.arg("--no-controllers");
    }
    command
        .env(REPORTS, "1")
        .stdin(Stdio::from(OwnedFd::from(writer)))
        .stdout(log.try_clone().map_err(cannot)?)
        .stderr(log)
        // A process group of its own: Ctrl-C at this terminal is not meant for it.
        .process_group(0);
    command.spawn().map_err(cannot)?;
    // The command keeps the write end until it is dropped; only then does a dead child read as the end of the pipe.
    drop(command);
    let heard = tokio::task::spawn_blocking(move || hear(reader)).await;
    match heard {
        Ok(Some(Report::Answers { notes })) => Ok(notes),
        Ok(Some(Report::Failed { code, what, why, remedy })) => {
            let code = if code == ExitCode::Refused as u8 { ExitCode::Refused } else { ExitCode::Failed };
            Err(Failure { code, what, why, remedy })
        }
        _ => Err(Failure::failed(
            "the control plane ended while it started",
            format!("see {}", log_path.display()),
            "correct what the log names and start it again",
        )),
    }
}

fn hear(pipe: std::io::PipeReader) -> Option<Report> {
    let mut text = String::new();
    BufReader::new(pipe).read_line(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Tells the process that started this one, if one did; says whether one did.
pub fn report(outcome: Result<&[Note], &Failure>) -> bool {
    if std::env::var_os(REPORTS).is_none() {
        return false;
    }
    let report = match outcome {
        Ok(notes) => Report::Answers { notes: notes.to_vec() },
        Err(failure) => Report::Failed {
            code: failure.code as u8,
            what: failure.what.clone(),
            why: failure.why.clone(),
            remedy: failure.remedy.clone(),
        },
    };
    let line = serde_json::to_string(&report).unwrap_or_default() + "\n";
    // Nobody may be listening any more; the log has it too.
    let _ = rustix::io::write(std::io::stdin().as_fd(), line.as_bytes());
    if let Ok(null) = File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
    }
    true
}
