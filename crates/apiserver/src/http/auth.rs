//! Who is asking.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use super::Server;
use super::status::{ApiError, Outcome};

/// An authenticated user.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UserInfo {
    /// `admin`, `system:serviceaccount:<namespace>:<name>`, …
    pub name: String,
    /// Its uid, where it has one.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// The administrator: group `system:masters`, which passes every check.
    pub fn admin() -> UserInfo {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        UserInfo { name: "admin".into(), uid: String::new(), groups }
    }

    /// Whether every check passes.
    pub fn is_admin(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }
}

/// The static tokens, by their hash: a token is found without comparing secrets byte by byte.
#[derive(Default)]
pub(super) struct Tokens(RwLock<BTreeMap<[u8; 32], UserInfo>>);

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

impl Tokens {
    pub fn add(&self, token: &str, user: UserInfo) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(hash(token), user);
    }

    fn find(&self, token: &str) -> Option<UserInfo> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&hash(token)).cloned()
    }
}

/// The user of a request's bearer token.
pub(super) fn authenticate(server: &Server, headers: &HeaderMap) -> Outcome<UserInfo> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = header.strip_prefix("Bearer ").map(str::trim).filter(|token| !token.is_empty());
    let token = token.ok_or_else(ApiError::unauthorized)?;
    server.tokens.find(token).ok_or_else(ApiError::unauthorized)
}
