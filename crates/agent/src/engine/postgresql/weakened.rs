//! Settings that take away from what the mode of replication promises (failover.md F16). From most of them nobody is kept,
//! since an application may know what it does: they are shown. Those that are the agent's own are taken back.

use super::Postgres;
use super::sql::{connect, rows};
use crate::clock;
use coregent_core::member::Mode;
use coregent_core::names::Monotonic;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// How old an answer may be that is shown.
const FRESH_MILLIS: u64 = 10_000;
/// A question that is not answered by then is given up: somebody holds a lock on the catalogue.
const ANSWER: Duration = Duration::from_secs(5);

/// `synchronous_commit` where somebody set it: for a role, a database, or the whole server (the last line that counts of
/// its files, `ALTER SYSTEM` included). PostgreSQL 15 manual 53.17 and 54.7.
const SETTINGS: &str = "select coalesce('role ' || quote_ident(r.rolname), 'every role') \
        || coalesce(' in database ' || quote_ident(d.datname), ''), split_part(c, '=', 2) \
     from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole \
        left join pg_database d on d.oid = s.setdatabase, unnest(s.setconfig) c \
     where c ~* '^synchronous_commit=' \
     union all (select 'the whole server', setting from pg_file_settings \
        where name = 'synchronous_commit' and error is null order by seqno desc limit 1)";

/// For how long it is said that something was taken back.
const TOLD_MILLIS: u64 = 300_000;

/// What was found, and when.
#[derive(Debug, Default)]
pub(super) struct Weakened {
    found: BTreeSet<String>,
    looked_at: Option<Monotonic>,
    /// What a person set although only the agent may, and when that was taken back.
    taken_back: Option<(String, Monotonic)>,
    /// Why nothing can be taken back.
    unreadable: Option<String>,
}

impl Postgres {
    /// Takes back what ALTER SYSTEM has set of the agent's own settings: an empty `synchronous_standby_names` would let
    /// commits wait for nobody while the record says that they do.
    pub(super) fn take_back_own_settings(&self) {
        let cleaned = super::files::clean_auto_conf(&self.config.pgdata);
        let mut weakened = self.weakened.borrow_mut();
        weakened.unreadable = cleaned.as_ref().err().map(ToString::to_string);
        let names = cleaned.unwrap_or_default().join(", ");
        if !names.is_empty() {
            tracing::warn!(names, "ALTER SYSTEM has set what only the agent may set: taken back");
            weakened.taken_back = Some((names, clock::now()));
            self.reload();
        }
    }

    /// One line each, of the last time that the server was asked.
    pub(super) fn weakened(&self) -> BTreeSet<String> {
        self.ask_for_settings();
        let weakened = self.weakened.borrow();
        weakened.found.iter().cloned().chain(weakened.about_own_settings()).collect()
    }

    /// Asks the server again if it is time to, on a connection of its own and beside everything else: nothing that only
    /// warns may make a primary look as if it did not answer.
    fn ask_for_settings(&self) {
        let now = clock::now();
        if self.weakened.borrow().looked_at.is_some_and(|at| now.since(at) < FRESH_MILLIS) {
            return;
        }
        self.weakened.borrow_mut().looked_at = Some(now);
        let (weakened, mode) = (Rc::clone(&self.weakened), self.config.settings.mode);
        let config = self.connection("local");
        tokio::task::spawn_local(async move {
            let answer = timeout(ANSWER, async { rows(&connect(&config).await?.client, SETTINGS).await });
            match answer.await {
                Ok(Ok(settings)) => {
                    let found = settings.iter().filter_map(|row| warning(mode, row.get(0)?, row.get(1)?)).collect();
                    weakened.borrow_mut().found = found;
                }
                Ok(Err(error)) => tracing::debug!(%error, "the settings are not known; asked again later"),
                Err(_) => tracing::debug!("the settings are not known in time; asked again later"),
            }
        });
    }
}

impl Weakened {
    fn about_own_settings(&self) -> impl Iterator<Item = String> {
        let recent = self.taken_back.as_ref().filter(|(_, at)| clock::now().since(*at) < TOLD_MILLIS);
        let taken_back = recent.map(|(names, _)| {
            format!(
                "ALTER SYSTEM had set {names}, which only the agent may set: it was taken back; commits in between may \
                 have waited for nobody"
            )
        });
        let unreadable = self.unreadable.as_ref().map(|why| {
            format!("postgresql.auto.conf cannot be read or written ({why}): what ALTER SYSTEM sets is not taken back")
        });
        taken_back.into_iter().chain(unreadable)
    }
}

fn warning(mode: Mode, whose: &str, value: &str) -> Option<String> {
    let value = value.trim_matches(['\'', ' ']).to_ascii_lowercase();
    let effect = match (mode, value.as_str()) {
        (Mode::Quorum, "local") => "its commits wait for no other member: a failover may lose them",
        (Mode::Quorum, "remote_write") => {
            "its commits do not wait until another member has flushed them: the loss of two hosts may lose them"
        }
        (Mode::Quorum, value) if is_off(value) => {
            "its commits wait neither for the disk nor for another member: a crash or a failover may lose them"
        }
        (Mode::Async, value) if is_off(value) => "its commits do not wait for the disk: a crash may lose them",
        _ => return None,
    };
    Some(format!("synchronous_commit is {value} for {whose}: {effect}"))
}

/// As PostgreSQL reads a truth value: any unambiguous beginning of a word (manual 20.1).
fn is_off(value: &str) -> bool {
    value == "0" || value == "of" || value == "off" || ["false", "no"].iter().any(|word| starts(word, value))
}

fn starts(word: &str, value: &str) -> bool {
    !value.is_empty() && word.starts_with(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_weaker_than_the_mode_promises_is_warned_of() {
        let table = [
            (Mode::Quorum, "on", None),
            (Mode::Quorum, "remote_apply", None),
            (Mode::Quorum, "local", Some("wait for no other member")),
            (Mode::Quorum, "remote_write", Some("flushed")),
            (Mode::Quorum, "OFF", Some("neither")),
            (Mode::Quorum, "f", Some("neither")),
            (Mode::Quorum, "'0'", Some("neither")),
            (Mode::Async, "local", None),
            (Mode::Async, "remote_write", None),
            (Mode::Async, "no", Some("do not wait for the disk")),
        ];
        for (mode, value, expected) in table {
            let found = warning(mode, "role app", value);
            match expected {
                None => assert_eq!(found, None, "{mode:?} {value}"),
                Some(part) => {
                    let found = found.unwrap_or_default();
                    assert!(found.contains(part) && found.contains("for role app"), "{mode:?} {value}: {found}");
                }
            }
        }
    }
}
