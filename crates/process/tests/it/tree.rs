//! The agent's side: reaping, sweeping, the inherited lock. Each test runs in a process of its own, because a process
//! can have only one reaper.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use coregent_process::ExitStatus;
use coregent_process::tree::{
    LockError, Reaper, Selector, SpawnError, SweepError, lock_exclusive, sweep, wait_exclusive,
};
use tokio::io::AsyncReadExt;

use crate::fixture::{assert_none, mark, processes_with, run, soon, until};
use crate::helper;

crate::tests![
    child_ends_are_told_apart_while_orphans_are_reaped,
    output_is_collected_with_the_status,
    a_missing_program_is_an_error_that_names_it,
    sweep_kills_cpu_bound_orphans_of_a_killed_server,
    sweep_by_working_folder_spares_everyone_else,
    sweep_outruns_a_tree_that_forks,
    sweep_of_the_namespace_is_refused_outside_of_one,
    sweep_of_the_namespace_leaves_only_the_first_process,
    lock_is_held_until_the_last_orphan_is_dead,
    lock_is_not_inherited_by_other_programs,
];

/// Runs one of the functions of [`in_own_process`] in a new process.
fn alone(name: &str) {
    let mark = mark();
    let (me, log) = (std::env::current_exe().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let mut command = Command::new(me);
    // A file, not a pipe: a process that outlives the test would hold a pipe open for ever.
    command.args([helper::ALONE, name, &mark]).stdout(Stdio::null()).stderr(log.reopen().unwrap());
    let status = command.status().unwrap();
    assert!(status.success(), "{}", std::fs::read_to_string(log.path()).unwrap());
    assert_none(&mark);
}

/// The bodies, by name.
pub fn in_own_process(name: &str, mark: &str) {
    let body = std::panic::AssertUnwindSafe(|| run(body(name, mark)));
    let result = std::panic::catch_unwind(body);
    // A failed test must not leave its orphans to the machine.
    run(sweep(&Selector::Descendants, LIMIT)).unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

async fn body(name: &str, mark: &str) {
    match name {
        "reap" => reap().await,
        "output" => output().await,
        "missing" => missing().await,
        "orphans" => orphans(mark).await,
        "folder" => folder(mark).await,
        "forks" => forks(mark).await,
        "namespace" => namespace(mark).await,
        "lock" => lock(mark).await,
        "cloexec" => cloexec().await,
        _ => panic!("no such body"),
    }
}

const LIMIT: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn child_ends_are_told_apart_while_orphans_are_reaped() {
    alone("reap");
}

async fn reap() {
    let reaper = Reaper::start().unwrap();
    // Each leaves an orphan that ends later than itself.
    let script = |code: i32| shell(&format!("(setsid sleep 0.05 &) ; exit {code}"));
    let children: Vec<_> = (0..20).map(|code| reaper.spawn(script(code), &[]).unwrap()).collect();
    for (code, child) in (0..).zip(&children) {
        assert_eq!(soon("end", child.wait()).await, ExitStatus::Exited(code));
        child.signal(libc::SIGKILL); // harmless: it is gone
    }
    let killed = reaper.spawn(shell("exec sleep 100"), &[]).unwrap();
    assert_eq!(killed.try_wait(), None);
    killed.signal(libc::SIGTERM);
    assert_eq!(soon("end", killed.wait()).await, ExitStatus::Signaled(15));
    until("no children, dead or alive", || {
        let children = std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap();
        children.is_empty()
    })
    .await;
}

fn output_is_collected_with_the_status() {
    alone("output");
}

async fn output() {
    let reaper = Reaper::start().unwrap();
    let output = reaper.output(shell("head -c 300000 /dev/zero; echo no >&2; cat; exit 4"), &[]).await.unwrap();
    assert_eq!((output.status, output.stdout.len()), (ExitStatus::Exited(4), 300_000));
    assert_eq!(output.stderr, b"no\n");
}

fn a_missing_program_is_an_error_that_names_it() {
    alone("missing");
}

async fn missing() {
    let reaper = Reaper::start().unwrap();
    for _ in 0..20 {
        let error = reaper.spawn(Command::new("/no/such/initdb"), &[]).unwrap_err();
        assert!(matches!(error, SpawnError::Program { .. }));
        assert_eq!(error.to_string(), "cannot run \"/no/such/initdb\": No such file or directory (os error 2)");
    }
}

/// Like a database server whose backends stay on the CPU: each in a session of its own, deaf to polite signals.
fn server(mark: &str) -> Command {
    let backend = format!("setsid sh -c 'trap \"\" TERM INT HUP QUIT; while :; do :; done' {mark} &");
    shell(&format!("{backend} {backend} {backend} echo up; sleep {mark}; true"))
}

fn sweep_kills_cpu_bound_orphans_of_a_killed_server() {
    alone("orphans");
}

async fn orphans(mark: &str) {
    let reaper = Reaper::start().unwrap();
    let postmaster = reaper.spawn(server(mark), &[]).unwrap();
    // Three backends, the server and its sleep, and this process, whose arguments have the mark too.
    until("the server", || processes_with(mark).len() >= 6).await;
    postmaster.signal(libc::SIGKILL);
    assert_eq!(soon("end", postmaster.wait()).await, ExitStatus::Signaled(9));
    assert!(processes_with(mark).len() > 1, "orphans live on: the reason for the sweep");
    let report = sweep(&Selector::Descendants, LIMIT).await.unwrap();
    assert!(report.killed.len() >= 3, "{report:?}");
    until("zombies reaped", || processes_with(mark) == [std::process::id()]).await;
}

fn sweep_by_working_folder_spares_everyone_else() {
    alone("folder");
}

async fn folder(mark: &str) {
    let reaper = Reaper::start().unwrap();
    let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |folder: &Path| {
        let mut command = server(mark);
        command.current_dir(folder).stdout(Stdio::piped());
        reaper.spawn(command, &[]).unwrap()
    };
    let (engine, bystander) = (start(data.path()), start(other.path()));
    until("both", || processes_with(mark).len() >= 11).await;
    let report = sweep(&Selector::WorkingFolder(data.path().to_owned()), LIMIT).await.unwrap();
    assert!(report.killed.contains(&engine.pid()) && report.killed.len() == 5, "{report:?}");
    assert_eq!(bystander.try_wait(), None);
    // A folder that was removed meanwhile is found by its name.
    let path = other.path().to_owned();
    other.close().unwrap();
    let report = sweep(&Selector::WorkingFolder(path), LIMIT).await.unwrap();
    assert_eq!(report.killed.len(), 5, "{report:?}");
}

fn sweep_outruns_a_tree_that_forks() {
    alone("forks");
}

async fn forks(mark: &str) {
    let reaper = Reaper::start().unwrap();
    // Each generation starts the next in a new session and ends: never the same process twice.
    let script = "n=$((${1:-0}+1)); setsid sh -c \"$0\" \"$0\" $n & exit";
    let chains: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new("sh");
            command.args(["-c", script, script, "0", mark]);
            reaper.spawn(command, &[]).unwrap()
        })
        .collect();
    for chain in &chains {
        soon("first generation", chain.wait()).await;
    }
    sweep(&Selector::Descendants, LIMIT).await.unwrap();
    let again = sweep(&Selector::Descendants, LIMIT).await.unwrap();
    assert_eq!(again.killed.len(), 0);
}

fn sweep_of_the_namespace_is_refused_outside_of_one() {
    run(async {
        let error = sweep(&Selector::Namespace, LIMIT).await.unwrap_err();
        assert!(matches!(error, SweepError::NotFirst));
    });
}

fn sweep_of_the_namespace_leaves_only_the_first_process() {
    let mark = mark();
    run(async {
        let program = "/opt/it";
        let mut script = crate::fixture::Script::program(&[program, helper::ALONE, "namespace", &mark]);
        script = script.mount(&std::env::current_exe().unwrap(), program, true);
        let (status, log) = script.finish().await;
        assert_eq!(status, ExitStatus::Exited(0), "{log}");
    });
}

async fn namespace(mark: &str) {
    let reaper = Reaper::start().unwrap();
    let mut command = server(mark);
    command.stdout(Stdio::piped());
    let mut engine = reaper.spawn(command, &[]).unwrap();
    let mut up = [0; 3];
    engine.stdout.as_mut().unwrap().read_exact(&mut up).await.unwrap();
    sweep(&Selector::Namespace, LIMIT).await.unwrap();
    until("zombies reaped", || processes_with("") == [1]).await;
}

fn lock_is_held_until_the_last_orphan_is_dead() {
    alone("lock");
}

async fn lock(mark: &str) {
    let reaper = Reaper::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = lock_exclusive(&path).unwrap();
    let engine = reaper.spawn(server(mark), &[&lock]).unwrap();
    until("the server", || processes_with(mark).len() >= 6).await;
    drop(lock);
    engine.signal(libc::SIGKILL);
    engine.wait().await;
    assert!(matches!(lock_exclusive(&path), Err(LockError::Held { .. })), "orphans hold it");
    let impatient = wait_exclusive(&path, Duration::from_millis(20)).await;
    assert!(matches!(impatient, Err(LockError::Held { .. })));
    let (report, lock) = tokio::join!(sweep(&Selector::Descendants, LIMIT), wait_exclusive(&path, LIMIT));
    assert!(report.unwrap().killed.len() >= 3);
    assert_eq!(lock.unwrap().path(), path);
}

fn lock_is_not_inherited_by_other_programs() {
    alone("cloexec");
}

async fn cloexec() {
    let reaper = Reaper::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = lock_exclusive(&path).unwrap();
    let other = reaper.spawn(shell("exec sleep 100"), &[]).unwrap();
    drop(lock);
    // Soon, not at once: the kernel wakes the spawning thread shortly before it closes the child's descriptors.
    wait_exclusive(&path, LIMIT).await.unwrap();
    sweep(&Selector::Descendants, LIMIT).await.unwrap();
    assert_eq!(other.wait().await, ExitStatus::Signaled(9));
}
