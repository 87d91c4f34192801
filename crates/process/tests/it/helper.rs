//! Processes that a test starts from this binary in order to kill them, or to be alone with their children.

use std::io::Write;

use crate::fixture::{Script, run};

/// `argv[1]` of a process that owns a launcher and a container running the script `argv[2]`.
pub const OWNER: &str = "__test-owner";

/// The same, and the container's user is root.
pub const ROOT_OWNER: &str = "__test-root-owner";
/// `argv[1]` of a process that runs the body `argv[2]` of the module `tree`; `argv[3]` marks what it starts.
pub const ALONE: &str = "__test-alone";

pub fn dispatch() -> Option<i32> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next()?.as_str() {
        OWNER => Some(own(Script::new(&arguments.next()?))),
        ROOT_OWNER => {
            let mut script = Script::new(&arguments.next()?);
            script.spec.user = coregent_process::User::root();
            Some(own(script))
        }
        ALONE => {
            crate::tree::in_own_process(&arguments.next()?, &arguments.next()?);
            Some(0)
        }
        _ => None,
    }
}

/// Starts the container, prints its host pid, and waits for its end.
fn own(script: Script) -> i32 {
    run(async {
        let (container, _) = script.start().await;
        println!("{}", container.host_pid());
        std::io::stdout().flush().unwrap();
        container.wait().await.code()
    })
}
