//! A second program in a running container.

use coregent_process::{Container, ExecProcess, ExecSpec, ExitStatus, StartError, TerminalSize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Script, assert_none, mark, processes_with, run, soon, until};

crate::tests![
    exec_runs_inside_with_the_containers_user_and_environment,
    exec_reports_exit_code_and_both_streams,
    exec_reads_its_standard_input,
    exec_has_a_terminal_that_can_be_resized,
    exec_of_a_missing_program_is_a_start_error,
    exec_dies_with_its_container,
    exec_is_killed_when_its_handle_is_dropped,
    exec_in_an_ended_container_is_a_start_error,
];

async fn sleeper() -> Container {
    let mut script = Script::program(&["sleep", "1000"]);
    script.spec.env.push(("FROM".to_owned(), "container".to_owned()));
    script.start().await.0
}

fn shell(script: &str) -> ExecSpec {
    ExecSpec { argv: vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()], ..ExecSpec::default() }
}

async fn read(process: &mut ExecProcess) -> (ExitStatus, String, String) {
    let (mut output, mut errors) = (String::new(), String::new());
    soon("output", process.stdout.take().unwrap().read_to_string(&mut output)).await.unwrap();
    if let Some(mut stderr) = process.stderr.take() {
        soon("errors", stderr.read_to_string(&mut errors)).await.unwrap();
    }
    (soon("end", process.wait()).await, output, errors)
}

async fn end(container: Container) {
    container.kill();
    soon("end", container.wait()).await;
}

fn exec_runs_inside_with_the_containers_user_and_environment() {
    run(async {
        let container = sleeper().await;
        let mut spec = shell("id -un; echo $FROM $MORE; cat /proc/1/cmdline; hostname; pwd; ls /proc/$$/fd; true");
        spec.env = vec![("MORE".to_owned(), "exec".to_owned())];
        spec.working_dir = Some("/usr".into());
        let (status, output, _) = read(&mut container.exec(spec).await.unwrap()).await;
        assert_eq!(output, "postgres\ncontainer exec\nsleep\x001000\0orders-1-0\n/usr\n0\n1\n2\n");
        assert_eq!(status, ExitStatus::Exited(0));
        end(container).await;
    });
}

fn exec_reports_exit_code_and_both_streams() {
    run(async {
        let container = sleeper().await;
        let mut process = container.exec(shell("echo out; echo err >&2; exit 9")).await.unwrap();
        assert_eq!(read(&mut process).await, (ExitStatus::Exited(9), "out\n".to_owned(), "err\n".to_owned()));
        end(container).await;
    });
}

fn exec_reads_its_standard_input() {
    run(async {
        let container = sleeper().await;
        let mut process = container.exec(ExecSpec { stdin: true, ..shell("wc -c") }).await.unwrap();
        let mut stdin = process.stdin.take().unwrap();
        let write = async move { stdin.write_all(&vec![b'x'; 300_000]).await.unwrap() };
        let ((), (_, output, _)) = tokio::join!(write, read(&mut process));
        assert_eq!(output, "300000\n");
        end(container).await;
    });
}

fn exec_has_a_terminal_that_can_be_resized() {
    run(async {
        let container = sleeper().await;
        let tty = Some(TerminalSize { columns: 100, rows: 30 });
        let script = "tty > /dev/null && stty size && read line && stty size < /dev/tty && echo got $line";
        let mut process = container.exec(ExecSpec { stdin: true, tty, ..shell(script) }).await.unwrap();
        let mut stdout = process.stdout.take().unwrap();
        let mut seen = String::new();
        while !seen.contains("30 100\r\n") {
            let mut buffer = [0; 100];
            let count = soon("size", stdout.read(&mut buffer)).await.unwrap();
            assert_ne!(count, 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        process.resize(TerminalSize { columns: 132, rows: 50 }).unwrap();
        process.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
        process.stdout = Some(stdout);
        let (status, output, _) = read(&mut process).await;
        assert!(output.contains("50 132\r\ngot hello\r\n"), "{output}");
        assert_eq!(status, ExitStatus::Exited(0));
        end(container).await;
    });
}

fn exec_of_a_missing_program_is_a_start_error() {
    run(async {
        let container = sleeper().await;
        let error =
            container.exec(ExecSpec { argv: vec!["nope".to_owned()], ..ExecSpec::default() }).await.unwrap_err();
        assert!(matches!(error, StartError::Program(_)), "{error:?}");
        assert_eq!(error.to_string(), "cannot run \"nope\": not found in PATH (/usr/bin:/bin)");
        end(container).await;
    });
}

fn exec_dies_with_its_container() {
    run(async {
        let (container, mark) = (sleeper().await, mark());
        let process = container.exec(shell(&format!("sleep {mark}; true"))).await.unwrap();
        until("the program", || processes_with(&mark).len() == 2).await;
        end(container).await;
        assert_none(&mark);
        assert_eq!(soon("end", process.wait()).await, ExitStatus::Signaled(9));
    });
}

fn exec_is_killed_when_its_handle_is_dropped() {
    run(async {
        let (container, mark) = (sleeper().await, mark());
        let process = container.exec(shell(&format!("exec sleep {mark}"))).await.unwrap();
        // While the shell becomes the program it has no command line.
        until("the program", || processes_with(&mark) == [process.host_pid()]).await;
        drop(process);
        until("nothing left", || processes_with(&mark).is_empty()).await;
        end(container).await;
    });
}

fn exec_in_an_ended_container_is_a_start_error() {
    run(async {
        let container = sleeper().await;
        container.kill();
        container.wait().await;
        let error = container.exec(shell("true")).await.unwrap_err();
        assert!(error.to_string().contains("cannot enter the container"), "{error}");
    });
}
