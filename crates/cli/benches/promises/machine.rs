//! The machine and the versions that figures belong to.

use std::process::Command;

/// One paragraph.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
    let said = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        output.map_or_else(
            |_| format!("{program}: not found"),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
    };
    format!(
        "{cores} cores, {} GiB, Linux {}; coregent {} (release); {}",
        kib / 1_048_576,
        said("uname", "-r"),
        env!("CARGO_PKG_VERSION"),
        said("/usr/lib/postgresql/15/bin/postgres", "--version"),
    )
}
