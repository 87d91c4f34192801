//! Who is asking.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use super::status::{ApiError, Outcome};
use super::{Server, token};

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

    /// A ServiceAccount.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> UserInfo {
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        UserInfo { name: format!("system:serviceaccount:{namespace}:{name}"), uid: uid.into(), groups }
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

/// The user of a token.
pub(super) fn user_of(server: &Server, token: &str) -> Option<UserInfo> {
    server.tokens.find(token).or_else(|| token::authenticate(server, token))
}

/// The user of a request's bearer token.
pub(super) fn authenticate(server: &Server, headers: &HeaderMap) -> Outcome<UserInfo> {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let token = token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty());
    token.and_then(|token| user_of(server, token)).ok_or_else(ApiError::unauthorized)
}
