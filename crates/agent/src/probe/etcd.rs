//! etcd, by the JSON form of its own protocol (the gRPC gateway on the client port, 3.4 and later).

use coregent_core::rsm::membership::ActionKind;
use coregent_core::rsm::probe::Answer;
use coregent_core::rsm::request::{Place, Request};
use serde_json::{Value, json};
use std::time::Duration;

use super::HandlerError;
use super::config::{Kinds, ProbeConfig};
use super::http::Http;

/// Between two looks at something that etcd tells nobody of.
const AGAIN: Duration = Duration::from_millis(50);

/// One server, asked at its client port.
#[derive(Debug)]
pub(crate) struct Etcd {
    http: Http,
    number: Number,
}

/// A number that grows with everything that a server becomes: the term, and in its low bits what it became within that term.
/// A term alone would not tell a leader from the candidate that it was, nor a voter from the learner.
#[derive(Debug, Default)]
struct Number {
    term: u64,
    role: String,
    changes: u64,
}

/// Bits of the changes within one term.
const CHANGES: u32 = 16;

impl Number {
    fn of(&mut self, term: u64, role: &str) -> u64 {
        if term != self.term {
            *self = Number { term, role: role.to_owned(), changes: 0 };
        } else if role != self.role {
            self.changes = (self.changes + 1).min((1 << CHANGES) - 1);
            role.clone_into(&mut self.role);
        }
        term.saturating_mul(1 << CHANGES).saturating_add(self.changes)
    }
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    /// Itself.
    pub(crate) id: u64,
    /// Who leads, as it sees it; 0 for nobody.
    pub(crate) leader: u64,
    /// The election that it is in.
    pub(crate) term: u64,
    /// The end of its log.
    pub(crate) index: u64,
    /// How far it applied it.
    pub(crate) applied: u64,
    /// It has no vote.
    pub(crate) is_learner: bool,
}

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: u64,
    pub(crate) peers: Vec<String>,
    pub(crate) is_learner: bool,
}

impl Etcd {
    /// The server at `host:port`.
    pub(crate) fn at(address: String) -> Etcd {
        Etcd { http: Http::new(address), number: Number::default() }
    }

    /// Its role, and how new it is by etcd's own count: a deposed leader's last report never wins over its successor's.
    pub(crate) async fn role(&mut self, kinds: &Kinds) -> Result<Answer, HandlerError> {
        let status = self.status().await?;
        let role = role(&status, kinds);
        let version = Some(self.number.of(status.term, role));
        Ok(Answer::Role { role: role.to_owned(), version })
    }

    pub(crate) async fn status(&mut self) -> Result<Status, HandlerError> {
        let json = self.http.post("/v3/maintenance/status", &json!({})).await?;
        let id = number(&json["header"]["member_id"]);
        if id == 0 {
            let why = "the status names no member".to_owned();
            return Err(HandlerError::Unreadable { address: "etcd".to_owned(), why });
        }
        Ok(Status {
            id,
            leader: number(&json["leader"]),
            term: number(&json["raftTerm"]),
            index: number(&json["raftIndex"]),
            applied: number(&json["raftAppliedIndex"]),
            is_learner: json["isLearner"].as_bool().unwrap_or_default(),
        })
    }

    pub(crate) async fn members(&mut self) -> Result<Vec<Member>, HandlerError> {
        let json = self.http.post("/v3/cluster/member/list", &json!({})).await?;
        Ok(json["members"].as_array().into_iter().flatten().map(member).collect())
    }

    pub(crate) async fn add_learner(&mut self, peer: &str) -> Result<(), HandlerError> {
        let body = json!({"peerURLs": [peer], "isLearner": true});
        self.http.post("/v3/cluster/member/add", &body).await.map(drop)
    }

    pub(crate) async fn promote(&mut self, id: u64) -> Result<(), HandlerError> {
        self.http.post("/v3/cluster/member/promote", &json!({"ID": id.to_string()})).await.map(drop)
    }

    pub(crate) async fn remove(&mut self, id: u64) -> Result<(), HandlerError> {
        self.http.post("/v3/cluster/member/remove", &json!({"ID": id.to_string()})).await.map(drop)
    }

    pub(crate) async fn move_leader(&mut self, to: u64) -> Result<(), HandlerError> {
        let body = json!({"targetID": to.to_string()});
        self.http.post("/v3/maintenance/transfer-leadership", &body).await.map(drop)
    }
}

/// Does what is asked of this member's etcd. Each may be done twice: what is so already is left.
pub(super) async fn carry_out(config: &ProbeConfig, request: &Request) -> Result<(), String> {
    act(config, request).await.map_err(|error| error.to_string())
}

async fn act(config: &ProbeConfig, request: &Request) -> Result<(), HandlerError> {
    let refused = |why: &str| HandlerError::Refused { code: 0, message: why.to_owned() };
    let at = |place: &Place| Etcd::at(format!("{}:{}", place.host, if config.port == 0 { 2379 } else { config.port }));
    let peer_port = if config.peer_port == 0 { 2380 } else { config.peer_port };
    let peer = |place: &Place| format!("http://{}:{peer_port}", place.host);
    let mut leader = at(request.leader.as_ref().ok_or_else(|| refused("nobody leads"))?);
    let members = leader.members().await?;
    let found = |place: &Place| members.iter().find(|member| member.peers.contains(&peer(place)));
    let known = found(&request.member);
    match request.action {
        ActionKind::MemberJoin if known.is_some() => Ok(()),
        ActionKind::MemberJoin => leader.add_learner(&peer(&request.member)).await,
        ActionKind::LogSync => {
            let end = leader.status().await?.index;
            let mut member = at(&request.member);
            // Whoever asked bounds how long this may take.
            while member.status().await.map_or(0, |status| status.applied) < end {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(())
        }
        ActionKind::Promote => {
            let known = known.ok_or_else(|| refused("it is no member"))?;
            if !known.is_learner {
                return Ok(());
            }
            loop {
                match leader.promote(known.id).await {
                    // It was a moment ago, and the leader has new writes since.
                    Err(HandlerError::Refused { message, .. }) if message.contains("in sync with leader") => {}
                    answer => return answer,
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
        ActionKind::Switchover => {
            let target = request.target.as_ref().and_then(found).ok_or_else(|| refused("the target is no member"))?;
            let old = known.map_or(0, |known| known.id);
            if leader.status().await?.leader == old {
                leader.move_leader(target.id).await?;
            }
            while leader.status().await.map_or(0, |status| status.leader) == old {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(())
        }
        ActionKind::MemberLeave => {
            let Some(known) = known else { return Ok(()) };
            if leader.status().await?.leader == known.id {
                return Err(refused("it leads, and has to hand over first"));
            }
            leader.remove(known.id).await
        }
    }
}

/// The role that follows from a status. Without a leader nobody leads, and it is one of the others.
fn role<'a>(status: &Status, kinds: &'a Kinds) -> &'a str {
    match status {
        Status { is_learner: true, .. } => &kinds.learner,
        Status { id, leader, .. } if id == leader => &kinds.leader,
        _ => &kinds.follower,
    }
}

fn member(json: &Value) -> Member {
    Member {
        id: number(&json["ID"]),
        peers: json["peerURLs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|url| Some(url.as_str()?.to_owned()))
            .collect(),
        is_learner: json["isLearner"].as_bool().unwrap_or_default(),
    }
}

/// Whole numbers of 64 bits are texts in the JSON form of protocol buffers; zero is left out.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(id: u64, leader: u64, is_learner: bool) -> Status {
        Status { id, leader, term: 7, index: 9, applied: 9, is_learner }
    }

    #[test]
    fn a_server_leads_if_it_names_itself_and_a_learner_never_does() {
        let kinds = Kinds { leader: "Leader".into(), follower: "voter".into(), learner: "learner".into() };
        for (status, expected) in [
            (status(3, 3, false), "Leader"),
            (status(3, 4, false), "voter"),
            (status(3, 0, false), "voter"),
            (status(3, 3, true), "learner"),
        ] {
            assert_eq!(role(&status, &kinds), expected, "{status:?}");
        }
    }

    /// The controller takes only what is strictly newer (rsm.md 4.4).
    #[test]
    fn whatever_a_server_becomes_within_a_term_is_newer_than_what_it_was() {
        let mut number = Number::default();
        let seen = [
            (2, "learner"),
            (2, "follower"),
            (2, "follower"),
            (3, "follower"),
            (3, "leader"),
            (3, "follower"),
            (4, "leader"),
        ];
        let numbers: Vec<u64> = seen.into_iter().map(|(term, role)| number.of(term, role)).collect();
        let expected = [2 << 16, (2 << 16) + 1, (2 << 16) + 1, 3 << 16, (3 << 16) + 1, (3 << 16) + 2, 4 << 16];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn numbers_are_read_as_etcd_writes_them() {
        assert_eq!(number(&json!("11543508957392368117")), 11_543_508_957_392_368_117);
        assert_eq!((number(&Value::Null), number(&json!(5)), number(&json!("x"))), (0, 5, 0));
    }
}
