//! Everything again for a user who is not root, in a user namespace.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::fixture::is_root;
use crate::harness::Outcome;

crate::tests![containers_of_an_ordinary_user_pass_the_same_tests];

/// The uid that owns nothing.
const NOBODY: &str = "65534";

fn containers_of_an_ordinary_user_pass_the_same_tests() -> Outcome {
    if !is_root() {
        return Outcome::Skipped("this run is an ordinary user's already");
    }
    // The build folder may lie below a home that only its owner can enter.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("it");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(&program);
    command.args(["containers::", "death::", "exec::", "postgresql::"]).env("TMPDIR", "/tmp").current_dir("/");
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Outcome::Skipped("setpriv (util-linux) is not installed");
        }
        other => other.unwrap(),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    Outcome::Passed
}
