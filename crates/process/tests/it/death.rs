//! Nothing survives: the whole tree dies with its first process, and with the process that started it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use coregent_process::ExitStatus;

use crate::fixture::{Script, assert_none, is_root, launcher, mark, processes_with, run, until};
use crate::harness::Outcome;
use crate::helper;

crate::tests![
    whole_tree_is_killed_setsid_grandchildren_included,
    end_is_reported_only_when_the_namespace_is_empty,
    nothing_survives_the_sigkilled_owner,
    nothing_survives_an_owner_that_dies_right_after_the_start,
    nothing_survives_although_the_program_changed_its_user,
    nothing_survives_a_sigkilled_shim,
    a_shim_killed_with_its_program_still_ends_in_a_status,
    a_kill_is_known_to_have_succeeded_although_the_shim_is_frozen,
    nothing_survives_the_end_of_the_runtime,
    a_caller_that_stops_waiting_leaves_nothing,
];

/// A tree: pid 1 (a shell), a child, and a grandchild in a session of its own that ignores what it can.
fn tree(mark: &str) -> String {
    format!("setsid sh -c 'trap \"\" TERM HUP INT; sleep {mark}' & sleep {mark} & echo up; sleep {mark}; true")
}

fn whole_tree_is_killed_setsid_grandchildren_included() {
    run(async {
        let mark = mark();
        let (container, _) = Script::new(&tree(&mark)).start().await;
        until("the tree", || processes_with(&mark).len() >= 5).await;
        container.kill();
        assert_eq!(container.wait().await, ExitStatus::Signaled(9));
        assert_none(&mark);
    });
}

fn end_is_reported_only_when_the_namespace_is_empty() {
    run(async {
        let mark = mark();
        // The first process ends by itself and leaves a crowd.
        let script = format!("for i in 1 2 3 4 5 6 7 8 9; do setsid sh -c 'while :; do :; done' {mark} & done; exit 5");
        let (status, _) = Script::new(&script).finish().await;
        assert_eq!(status, ExitStatus::Exited(5));
        assert_none(&mark);
    });
}

/// Another process that owns a container; returns it with the container's host pid.
fn owner(script: &str) -> (Child, u32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut owner = command.args([helper::OWNER, script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (owner, line.trim().parse().unwrap())
}

fn nothing_survives_the_sigkilled_owner() {
    let mark = mark();
    let (mut owner, _) = owner(&tree(&mark));
    run(async {
        // The owner's own command line has the mark too.
        until("the tree", || processes_with(&mark).len() >= 6).await;
        owner.kill().unwrap();
        owner.wait().unwrap();
        until("nothing left", || processes_with(&mark).is_empty()).await;
    });
}

fn nothing_survives_an_owner_that_dies_right_after_the_start() {
    let mark = mark();
    for _ in 0..5 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut owner = command.args([helper::OWNER, &tree(&mark)]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(u64::from(owner.id() % 7)));
        owner.kill().unwrap();
        owner.wait().unwrap();
        run(until("nothing left", || processes_with(&mark).is_empty()));
    }
}

/// As images do whose entry point runs as root and then becomes the service's user: that clears the death signal.
fn nothing_survives_although_the_program_changed_its_user() -> Outcome {
    if !is_root() {
        return Outcome::Skipped("only root can change to another user");
    }
    let mark = mark();
    let script =
        format!("[ $(id -u) = 0 ] && exec setpriv --reuid 998 --clear-groups sh -c 'sleep {mark} & sleep {mark}'");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut owner = command.args([helper::ROOT_OWNER, &script]).stdout(Stdio::null()).spawn().unwrap();
    run(async {
        until("the other user's programs", || processes_with(&mark).len() >= 4).await;
        owner.kill().unwrap();
        owner.wait().unwrap();
        until("nothing left", || processes_with(&mark).is_empty()).await;
    });
    Outcome::Passed
}

/// The shim is the parent of the container's first process.
fn parent_of(pid: u32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn nothing_survives_a_sigkilled_shim() {
    let mark = mark();
    let (mut owner, pid) = owner(&tree(&mark));
    kill(parent_of(pid));
    assert_eq!(owner.wait().unwrap().code(), Some(137));
    assert_none(&mark);
}

fn a_shim_killed_with_its_program_still_ends_in_a_status() {
    run(async {
        let mark = mark();
        let (container, _) = Script::new(&tree(&mark)).start().await;
        kill(parent_of(container.host_pid()));
        container.kill();
        assert_eq!(container.wait().await, ExitStatus::Signaled(9));
        assert_none(&mark);
    });
}

fn a_kill_is_known_to_have_succeeded_although_the_shim_is_frozen() {
    run(async {
        let mark = mark();
        let (container, _) = Script::new(&tree(&mark)).start().await;
        let shim = rustix::process::Pid::from_raw(parent_of(container.host_pid())).unwrap();
        rustix::process::kill_process(shim, rustix::process::Signal::STOP).unwrap();
        container.kill();
        assert_eq!(container.wait().await, ExitStatus::Signaled(9));
        assert_none(&mark);
        let gone = rustix::process::test_kill_process(shim).is_err();
        assert!(gone, "the shim was killed and reaped as well");
    });
}

fn nothing_survives_the_end_of_the_runtime() {
    let mark = mark();
    let container = run(async { Script::new(&tree(&mark)).start().await.0 });
    run(until("nothing left", || processes_with(&mark).is_empty()));
    drop(container);
}

fn a_caller_that_stops_waiting_leaves_nothing() {
    run(async {
        let mark = mark();
        for polls in 0..4 {
            let (launcher, spec) = (launcher(), Script::new(&tree(&mark)).spec);
            let start = launcher.start(spec);
            let few = tokio::time::timeout(std::time::Duration::from_millis(polls), start).await;
            if let Ok(Ok(container)) = few {
                container.kill();
            }
        }
        until("nothing left", || processes_with(&mark).is_empty()).await;
    });
}
