//! What a program sees in its container, and how its end is told.

use coregent_process::{ExitStatus, StartError, User, check_support};

use crate::fixture::{Script, is_root, launcher, open_folder, run};

crate::tests![
    support_is_found_where_containers_run,
    exit_code_is_reported,
    death_by_signal_is_reported,
    output_of_both_streams_is_captured,
    environment_is_exactly_what_was_given,
    working_folder_and_host_name_are_set,
    program_is_pid_1_and_sees_no_other,
    program_runs_as_the_user_given,
    passwd_and_group_name_the_user,
    mounts_are_writable_or_read_only,
    a_file_is_mounted_over_a_file_of_etc,
    a_file_is_added_to_a_folder_of_the_host,
    mounts_nest_in_any_order,
    a_mount_does_not_leave_the_container_by_a_link,
    tmp_run_and_shm_are_private,
    folders_of_the_host_cannot_be_written,
    standard_input_is_passed_on,
    no_other_descriptor_is_inherited,
    missing_program_is_a_start_error,
    forbidden_program_is_a_start_error,
    missing_mount_source_is_a_start_error,
    missing_working_folder_is_made,
    a_container_does_not_share_the_rank_of_who_starts_it,
];

fn a_container_does_not_share_the_rank_of_who_starts_it() {
    coregent_process::priority::rise();
    let rank = String::from_utf8(std::process::Command::new("nice").output().unwrap().stdout).unwrap();
    // Who gave this test a rank of its own gets no other.
    let risen = is_root() && rank.trim() != "0";
    assert!(risen || !is_root(), "root may rise: {rank}");
    assert_eq!(run(Script::program(&["nice"]).finish()).1, "0\n");
}

fn support_is_found_where_containers_run() {
    check_support().unwrap();
}

fn exit_code_is_reported() {
    run(async {
        assert_eq!(Script::new("exit 0").finish().await.0, ExitStatus::Exited(0));
        assert_eq!(Script::new("exit 7").finish().await.0, ExitStatus::Exited(7));
    });
}

fn death_by_signal_is_reported() {
    run(async {
        let (container, log) = Script::new("trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done").start().await;
        log.wait_for("up").await;
        container.signal(libc::SIGTERM);
        assert_eq!(container.wait().await, ExitStatus::Exited(3));
        let (container, _) = Script::program(&["sleep", "100"]).start().await;
        container.kill();
        assert_eq!(container.wait().await, ExitStatus::Signaled(9));
    });
}

fn output_of_both_streams_is_captured() {
    let (_, text) = run(Script::new("echo out; echo err >&2").finish());
    assert_eq!(text, "out\nerr\n");
}

fn environment_is_exactly_what_was_given() {
    let mut script = Script::program(&["env"]);
    script.spec.env.push(("A".to_owned(), "1 ü".to_owned()));
    let (_, text) = run(script.finish());
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A=1 ü", "HOME=/home/postgres", "PATH=/usr/bin:/bin"]);
}

fn working_folder_and_host_name_are_set() {
    let mut script = Script::new("pwd; uname -n; cat /etc/hostname");
    script.spec.working_dir = "/usr/share".into();
    assert_eq!(run(script.finish()).1, "/usr/share\norders-1-0\norders-1-0\n");
}

fn program_is_pid_1_and_sees_no_other() {
    let (_, text) = run(Script::new("echo $$; cd /proc; for p in [0-9]*; do echo $p; done").finish());
    assert_eq!(text, "1\n1\n");
}

fn program_runs_as_the_user_given() {
    let mut script = Script::new("id -u; id -g; id -un; grep -E 'Cap(Prm|Eff)' /proc/self/status; echo x > ~/x; ls ~");
    script.spec.user.groups = if is_root() { vec![4000] } else { vec![] };
    let (status, text) = run(script.finish());
    assert_eq!(text, "999\n999\npostgres\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nx\n");
    assert_eq!(status, ExitStatus::Exited(0));
    let mut script = Script::new("id -u; id -un; echo $HOME");
    script.spec.user = User::root();
    assert_eq!(run(script.finish()).1, "0\nroot\n/root\n");
}

fn passwd_and_group_name_the_user() {
    let (_, text) = run(Script::new("getent passwd 999 0; getent group 999").finish());
    assert_eq!(
        text,
        "postgres:x:999:999:postgres:/home/postgres:/bin/sh\nroot:x:0:0:root:/root:/bin/sh\npostgres:x:999:\n"
    );
}

fn mounts_are_writable_or_read_only() {
    let (data, config) = (open_folder(), open_folder());
    std::fs::write(config.path().join("c"), "config\n").unwrap();
    let script = Script::new("cat /etc/coregent/config/c; echo 1 > /var/lib/data/d; echo 2 > /etc/coregent/config/d")
        .mount(data.path(), "/var/lib/data", false)
        .mount(config.path(), "/etc/coregent/config", true);
    let (status, text) = run(script.finish());
    assert!(text.starts_with("config\n") && text.contains("Read-only file system"), "{text}");
    assert_ne!(status, ExitStatus::Exited(0));
    assert_eq!(std::fs::read_to_string(data.path().join("d")).unwrap(), "1\n");
    assert!(!config.path().join("d").exists());
}

fn a_file_is_mounted_over_a_file_of_etc() {
    let folder = open_folder();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, "127.64.0.2 orders-1-0\n").unwrap();
    let script =
        Script::new("cat /etc/hosts /etc/passwd").mount(&hosts, "/etc/hosts", true).mount(&hosts, "/etc/passwd", true);
    assert_eq!(run(script.finish()).1, "127.64.0.2 orders-1-0\n127.64.0.2 orders-1-0\n");
}

fn a_file_is_added_to_a_folder_of_the_host() {
    let folder = open_folder();
    let program = folder.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    let script = Script::new("ls -d /usr/local/bin/only-in-here /usr/local/share; only-in-here && echo ran").mount(
        &program,
        "/usr/local/bin/only-in-here",
        true,
    );
    let mut script = script;
    script.spec.env = vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin".to_owned())];
    let (_, text) = run(script.finish());
    assert_eq!(text, "/usr/local/bin/only-in-here\n/usr/local/share\nran\n");
    assert!(!std::path::Path::new("/usr/local/bin/only-in-here").exists());
}

fn mounts_nest_in_any_order() {
    let (outer, inner) = (open_folder(), open_folder());
    std::fs::write(outer.path().join("o"), "").unwrap();
    std::fs::write(inner.path().join("i"), "").unwrap();
    let script =
        Script::new("ls /data /data/wal").mount(inner.path(), "/data/wal", false).mount(outer.path(), "/data", false);
    assert_eq!(run(script.finish()).1, "/data:\no\nwal\n\n/data/wal:\ni\n");
}

fn a_mount_does_not_leave_the_container_by_a_link() {
    let (outside, volume) = (open_folder(), open_folder());
    std::os::unix::fs::symlink(outside.path(), volume.path().join("link")).unwrap();
    let script =
        Script::new("ls /data").mount(volume.path(), "/data", false).mount(volume.path(), "/data/link/below", false);
    run(script.finish());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

fn tmp_run_and_shm_are_private() {
    let name = crate::fixture::mark();
    let script = Script::new(&format!("for d in /tmp /run /dev/shm /var/tmp; do ls -A $d; echo x > $d/{name}; done"));
    let (status, text) = run(script.finish());
    assert_eq!((status, text.as_str()), (ExitStatus::Exited(0), "lock\n"));
    for folder in ["/tmp", "/run", "/dev/shm", "/var/tmp"] {
        assert!(!std::path::Path::new(folder).join(&name).exists(), "{folder}");
    }
}

fn folders_of_the_host_cannot_be_written() {
    let name = crate::fixture::mark();
    let mut script =
        Script::new(&format!("for d in /usr /etc/ssl /sys /usr/bin; do touch $d/{name} && echo wrote $d; done"));
    script.spec.user = User::root();
    let (_, text) = run(script.finish());
    assert!(!text.contains("wrote"), "{text}");
}

fn standard_input_is_passed_on() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let mut script = Script::program(&["cat"]);
    script.spec.stdin = Some(read);
    rustix::io::write(&write, b"hello").unwrap();
    drop(write);
    assert_eq!(run(script.finish()).1, "hello");
    assert_eq!(run(Script::program(&["cat"]).finish()).1, "");
}

fn no_other_descriptor_is_inherited() {
    // One that is not close-on-exec, as careless libraries open them.
    let _leak = rustix::pipe::pipe().unwrap();
    let (_, text) = run(Script::new("ls /proc/$$/fd; true").finish());
    assert_eq!(text, "0\n1\n2\n");
}

fn start_error(script: Script) -> StartError {
    match run(launcher().start(script.spec)) {
        Err(error) => error,
        Ok(container) => panic!("started: {container:?}"),
    }
}

fn missing_program_is_a_start_error() {
    let error = start_error(Script::program(&["no-such-program", "-x"]));
    assert!(matches!(error, StartError::Program(_)), "{error:?}");
    assert_eq!(error.to_string(), "cannot run \"no-such-program\": not found in PATH (/usr/bin:/bin)");
    let error = start_error(Script::program(&["/no/such/program"]));
    assert_eq!(error.to_string(), "cannot run \"/no/such/program\": no such file in the container");
}

fn forbidden_program_is_a_start_error() {
    let error = start_error(Script::program(&["/etc/passwd"]));
    assert_eq!(error.to_string(), "cannot run \"/etc/passwd\": not an executable file for user 999");
}

fn missing_mount_source_is_a_start_error() {
    let error = start_error(Script::new("true").mount("/no/such/volume".as_ref(), "/data", false));
    assert!(matches!(error, StartError::Root(_)), "{error:?}");
    assert!(error.to_string().contains("mount source /no/such/volume (for /data): No such file"), "{error}");
}

fn missing_working_folder_is_made() {
    let mut script = Script::new("pwd");
    script.spec.working_dir = "/made/here".into();
    assert_eq!(run(script.finish()).1, "/made/here\n");
}
