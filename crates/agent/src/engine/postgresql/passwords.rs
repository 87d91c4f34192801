//! The passwords of the roles are those of their Secrets, also when a Secret has changed, or was made anew for a cluster that
//! was deleted and came back over its volumes. On the primary they are set in the server, on every member what it logs in
//! with.

use super::sql::{identifier, literal, rows};
use super::{Credentials, EngineError, Postgres};
use crate::clock;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coregent_core::names::Monotonic;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// A Secret that changed is looked for this often.
const LOOK_MILLIS: u64 = 5_000;
/// A server that does not answer by then is asked at the next look.
const ANSWER: Duration = Duration::from_secs(5);

/// What was found at the last look.
#[derive(Debug, Default)]
pub(super) struct Passwords {
    looked_at: Option<Monotonic>,
    /// Digest of what the server keeps and of what the Secrets say, where both were found to be the same: telling it costs
    /// some milliseconds of hashing.
    same: Option<[u8; 32]>,
}

impl Postgres {
    /// Makes the passwords follow their Secrets. Nothing is waited for: a server that does not answer is asked again.
    pub(super) fn keep_passwords(&self) {
        let now = clock::now();
        if self.passwords.borrow().looked_at.is_some_and(|at| now.since(at) < LOOK_MILLIS) {
            return;
        }
        self.passwords.borrow_mut().looked_at = Some(now);
        let (Ok(superuser), Ok(replication)) = (self.credentials("superuser"), self.credentials("replication")) else {
            return; // whatever needs them says what is wrong with them
        };
        if let Err(error) = self.files.keep_passwords(&replication.user, &replication.password) {
            tracing::warn!(%error, "cannot write the password file");
        }
        let client = self.client.borrow().as_ref().map(Rc::clone);
        let is_primary = self.in_force.borrow().set_up && self.in_force.borrow().writable_since.is_some();
        let Some(client) = client.filter(|_| is_primary) else { return };
        let passwords = Rc::clone(&self.passwords);
        tokio::task::spawn_local(async move {
            let known = passwords.borrow().same;
            match timeout(ANSWER, follow_secrets(&client, &[superuser, replication], known)).await {
                Ok(Ok(same)) => passwords.borrow_mut().same = Some(same),
                Ok(Err(error)) => tracing::debug!(%error, "the passwords are not known; asked again later"),
                Err(_) => tracing::debug!("the passwords are not known in time; asked again later"),
            }
        });
    }
}

/// Sets what differs. Returns the digest of what is the same now.
async fn follow_secrets(
    client: &tokio_postgres::Client,
    wanted: &[Credentials],
    known: Option<[u8; 32]>,
) -> Result<[u8; 32], EngineError> {
    let users = wanted.iter().map(|role| literal(&role.user)).collect::<Vec<_>>().join(", ");
    let list = format!("select rolname, rolpassword from pg_authid where rolname in ({users}) order by 1");
    let mut kept = rows(client, &list).await?;
    if known == Some(digest(&kept, wanted)) {
        return Ok(digest(&kept, wanted));
    }
    for role in wanted {
        let Some(row) = kept.iter().find(|row| row.get(0) == Some(role.user.as_str())) else { continue };
        if is_of(row.get(1).unwrap_or_default(), &role.password) {
            continue;
        }
        // Not even a statement that fails may bring the password into the log.
        let change = format!(
            "begin; set local log_min_error_statement = panic; alter role {} password {}; commit;",
            identifier(&role.user),
            literal(&role.password)
        );
        rows(client, &change).await?;
        tracing::info!(role = role.user, "the password was made that of its Secret");
    }
    kept = rows(client, &list).await?;
    Ok(digest(&kept, wanted))
}

fn digest(kept: &[tokio_postgres::SimpleQueryRow], wanted: &[Credentials]) -> [u8; 32] {
    let kept = kept.iter().flat_map(|row| [row.get(0), row.get(1)]).map(Option::unwrap_or_default);
    let wanted = wanted.iter().flat_map(|role| [role.user.as_str(), role.password.as_str()]);
    let mut digest = Sha256::new();
    for text in kept.chain(wanted) {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}

/// Whether `kept`, as `pg_authid` has it (`SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, PostgreSQL manual
/// 53.8; RFC 5803), is of `password`. Anything else is not.
fn is_of(kept: &str, password: &str) -> bool {
    let parts = || {
        let (parameters, keys) = kept.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, _) = keys.split_once(':')?;
        let decode = |text: &str| BASE64_STANDARD.decode(text).ok();
        Some((iterations.parse::<u32>().ok()?, decode(salt)?, decode(stored_key)?))
    };
    let Some((iterations, salt, stored_key)) = parts() else { return false };
    // As the server prepares it (`pg_saslprep`): what cannot be prepared is taken as it is.
    let prepared = stringprep::saslprep(password).map_or(password.into(), |prepared| prepared);
    let client_key = salted(prepared.as_bytes(), &salt, iterations).and_then(|key| mac(&key, &[b"Client Key"]));
    client_key.is_some_and(|key| Sha256::digest(key).as_slice() == stored_key)
}

/// `SaltedPassword` of RFC 5802.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> Option<[u8; 32]> {
    let mut last = mac(password, &[salt, &[0, 0, 0, 1]])?;
    let mut all = last;
    for _ in 1..iterations {
        last = mac(password, &[&last])?;
        all.iter_mut().zip(last).for_each(|(sum, byte)| *sum ^= byte);
    }
    Some(all)
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_keeps_is_of_the_password_that_it_was_made_from_and_of_no_other() {
        // Made with Python's hashlib.
        let secret = "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$bpSY5Ze9NUH+I35LC3gVq+DpBfK46iXBxvhAKqVu9pE=:VpYlBuxyzeCI1KnctrefdljpB1mk3Gp7sBI/t11+NkQ=";
        let umlauts = "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$3fAV27j/YomKockTpuTuKl8RWKrwUX4tGo6Bmy3IHkQ=:LakBVUYurAovdTX6//mRi+yyjfF4zqUVQreGOY7pUPI=";
        let table = [
            (secret, "secret", true),
            (secret, "Secret", false),
            (umlauts, "pässwörd", true),
            // The same letters, composed of two characters each.
            (umlauts, "pa\u{308}sswo\u{308}rd", true),
            ("", "", false),
            ("md5d8578edf8458ce06fbc5bb76a58c5ca4", "secret", false),
            ("SCRAM-SHA-256$x:y$z", "secret", false),
        ];
        for (kept, password, expected) in table {
            assert_eq!(is_of(kept, password), expected, "{kept} of {password}");
        }
    }
}
