//! What PostgreSQL's programs say before they give up: the lines that a person needs, and whether the data folder is to
//! blame. Messages are in English: the agent starts every program with `lc_messages = C`.

/// Lines of these severities say why; `LOG` only where it says what failed.
const WHY: [&str; 10] =
    ["PANIC:", "FATAL:", "ERROR:", "WARNING:", "HINT:", "DETAIL:", " error: ", " detail: ", " hint: ", " fatal: "];
/// Said of every start of a standby or after a crash, and of attempts to connect meanwhile: nothing of why it failed.
const NOISE: [&str; 4] = [
    "the database system is ",
    "specified neither primary_conninfo nor restore_command",
    "The database server will regularly poll the pg_wal subdirectory",
    "If this has occurred more than once some data might be corrupted",
];
/// Lines that are kept.
const LINES: usize = 4;
/// Characters that are kept.
const LENGTH: usize = 500;

/// The lines that say why a program ended, in one line; `None` when none does.
pub(super) fn cause(text: &str) -> Option<String> {
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines().filter_map(meaning).filter(|line| !NOISE.iter().any(|noise| line.contains(noise))) {
        // A child of initdb says the same as initdb.
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    let from = lines.len().saturating_sub(LINES);
    let mut cause = lines.get(from..).unwrap_or_default().join("; ");
    if let Some((end, _)) = cause.char_indices().nth(LENGTH) {
        cause.truncate(end);
    }
    (!cause.is_empty()).then_some(cause)
}

/// The part of a line that means something: its severity and what follows, without time and process.
fn meaning(line: &str) -> Option<&str> {
    if let Some(at) = line.find("LOG:") {
        let said = line.get(at + 4..).unwrap_or_default().trim_start();
        return (said.starts_with("could not") || said.starts_with("invalid")).then_some(said);
    }
    let at = WHY.iter().filter_map(|severity| line.find(severity)).min()?;
    line.get(at..).map(str::trim)
}

/// What is said of a data folder that a server cannot be started from. What the machine lacks (room, a port, a right) is not
/// among it: another folder would lack it as well.
const DATA: [&str; 12] = [
    "could not locate a valid checkpoint record",
    "could not locate required checkpoint record",
    "invalid primary checkpoint record",
    "invalid checkpoint record",
    "is not a valid data directory",
    "incorrect checksum in control file",
    "could not access status of transaction",
    "could not read block",
    "invalid page in block",
    "is not a child of this server's history",
    "WAL ends before",
    "could not read from control file",
];

/// Whether it is the data folder that keeps a server from working, so that a fresh copy helps. Only what is fatal says so:
/// an `ERROR` is a session's, and a client can cause one in the best of folders.
pub(super) fn blames_data(text: &str) -> bool {
    text.lines().filter(|line| line.contains("FATAL:") || line.contains("PANIC:")).any(is_about_data)
}

/// Whether a message, its severity apart, is about the data folder.
pub(super) fn is_about_data(message: &str) -> bool {
    let opens = message.contains("could not open file \"") || message.contains("could not open directory \"");
    // Relative to the data folder: its own files.
    let own = ["\"base/", "\"global/", "\"pg_"].iter().any(|folder| message.contains(folder));
    (opens && own && message.trim_end().ends_with("No such file or directory"))
        || DATA.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: &str = "\
2026-11-30 08:18:57.123 UTC [21] LOG:  starting PostgreSQL 15.14 on x86_64
2026-11-30 08:18:57.124 UTC [21] LOG:  could not bind IPv4 address \"127.107.131.2\": Address already in use
2026-11-30 08:18:57.124 UTC [21] HINT:  Is another postmaster already running on port 5432? If not, wait a few seconds and retry.
2026-11-30 08:18:57.124 UTC [21] WARNING:  could not create listen socket for \"127.107.131.2\"
2026-11-30 08:18:57.124 UTC [21] FATAL:  could not create any TCP/IP sockets
2026-11-30 08:18:57.125 UTC [21] LOG:  database system is shut down
";
    const CHECKPOINT: &str = "\
2026-11-30 08:18:57.123 UTC [24] LOG:  invalid primary checkpoint record
2026-11-30 08:18:57.124 UTC [24] PANIC:  could not locate a valid checkpoint record
2026-11-30 08:18:57.130 UTC [30] coregent@postgres FATAL:  the database system is starting up
2026-11-30 08:18:57.131 UTC [21] LOG:  startup process (PID 24) was terminated by signal 6: Aborted
2026-11-30 08:18:57.131 UTC [21] LOG:  aborting startup due to startup process failure
";
    const FULL: &str = "\
2026-11-30 08:18:57 UTC [9] FATAL:  could not write to file \"pg_wal/xlogtemp.9\": No space left on device
child process exited with exit code 1
initdb: removing data directory \"/var/lib/postgresql/data/pgdata.new\"
";
    const COPY: &str = "\
pg_basebackup: error: could not write to file \"base/1/1255\": No space left on device
pg_basebackup: removing data directory \"/var/lib/postgresql/data/pgdata.new\"
";
    const STANDBY: &str = "\
2026-11-30 08:18:57 UTC [8] LOG:  database system was interrupted while in recovery at log time 2026-11-30 08:18:17 UTC
2026-11-30 08:18:57 UTC [8] HINT:  If this has occurred more than once some data might be corrupted and you might need to choose an earlier recovery target.
2026-11-30 08:18:57 UTC [8] WARNING:  specified neither primary_conninfo nor restore_command
2026-11-30 08:18:57 UTC [8] HINT:  The database server will regularly poll the pg_wal subdirectory to check for files placed there.
2026-11-30 08:18:57 UTC [8] FATAL:  could not write to file \"pg_wal/xlogtemp.9\": No space left on device
";
    const GONE: &str = "\
2026-11-30 08:18:57.123 UTC [21] FATAL:  could not open directory \"pg_notify\": No such file or directory
";

    #[test]
    fn the_reason_is_what_failed_and_what_to_do_and_not_how_the_end_was_gone_about() {
        let table = [
            (
                PORT,
                "could not bind IPv4 address \"127.107.131.2\": Address already in use; HINT:  Is another postmaster already \
                 running on port 5432? If not, wait a few seconds and retry.; WARNING:  could not create listen socket for \
                 \"127.107.131.2\"; FATAL:  could not create any TCP/IP sockets",
                false,
            ),
            (CHECKPOINT, "invalid primary checkpoint record; PANIC:  could not locate a valid checkpoint record", true),
            (FULL, "FATAL:  could not write to file \"pg_wal/xlogtemp.9\": No space left on device", false),
            (STANDBY, "FATAL:  could not write to file \"pg_wal/xlogtemp.9\": No space left on device", false),
            (COPY, "error: could not write to file \"base/1/1255\": No space left on device", false),
            (GONE, "FATAL:  could not open directory \"pg_notify\": No such file or directory", true),
        ];
        for (text, expected, data) in table {
            assert_eq!(cause(text).as_deref(), Some(expected));
            assert_eq!(blames_data(text), data, "{expected}");
        }
        let of_sessions = [
            // A receiver asks a primary for a history that it has not got.
            "[21] ERROR:  could not open file \"pg_wal/00000002.history\": No such file or directory",
            "[22] ERROR:  invalid page in block 3 of relation base/5/16384",
        ];
        assert!(of_sessions.into_iter().all(|line| !blames_data(line)));
        assert!(is_about_data("a statement of the agent failed: \"base/5\" is not a valid data directory"));
        assert!(!is_about_data("a statement of the agent failed: sorry, too many clients already"));
        assert_eq!(cause("LOG:  database system is ready\nnothing\n"), None);
    }
}
