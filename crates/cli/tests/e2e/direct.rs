//! Clients that write to every member itself, past every Service: what a client sees that has cached an address.

use crate::writer::connect;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A client without patience gives a statement up after so long; what the server does then is its own affair.
const SHORT: Duration = Duration::from_millis(300);

/// A write that a member acknowledged.
#[derive(Debug, Clone)]
pub struct Acknowledgement {
    /// Who acknowledged it.
    pub member: String,
    /// The row.
    pub id: i64,
    /// When it was sent.
    pub sent: Instant,
    /// When the acknowledgement was received.
    pub received: Instant,
}

/// Two clients per member: one that gives up soon and connects again, and one that waits for as long as its connection
/// lives, to which a member that thaws would acknowledge what it was asked for before it froze.
pub struct DirectWriters {
    acknowledged: Arc<Mutex<Vec<Acknowledgement>>>,
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl DirectWriters {
    /// Starts to write rows from `first` on into the table `direct`, which must be there, at every member (by name, its
    /// URI).
    pub fn start(members: &BTreeMap<String, String>, first: i64) -> DirectWriters {
        let (acknowledged, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let next = Arc::new(AtomicI64::new(first));
        let clients = members.iter().flat_map(|member| [(member, SHORT), (member, Duration::MAX)]);
        let tasks = clients
            .map(|((member, uri), patience)| {
                let client = Client {
                    member: member.clone(),
                    uri: uri.clone(),
                    patience,
                    next: next.clone(),
                    acknowledged: Arc::clone(&acknowledged),
                };
                tokio::spawn(client.write_until(stop.clone()))
            })
            .collect();
        DirectWriters { acknowledged, stop, tasks }
    }

    /// The first acknowledgement of `member` since `since`; waited for.
    pub async fn first_of(&self, member: &str, since: Instant) -> Acknowledgement {
        let first = async {
            loop {
                let found = self.all().into_iter().find(|found| found.member == member && found.sent >= since);
                if let Some(found) = found {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(crate::plane::PATIENCE, first).await.expect("the member acknowledges a write")
    }

    /// What has been acknowledged so far, in the order in which that was received.
    pub fn all(&self) -> Vec<Acknowledgement> {
        self.acknowledged.lock().expect("no client panicked").clone()
    }

    /// Stops; gives everything that was acknowledged, in the order in which that was received.
    pub async fn stop(self) -> Vec<Acknowledgement> {
        self.stop.store(true, Ordering::Relaxed);
        for task in &self.tasks {
            // One that waits for ever has nothing more to tell.
            task.abort();
        }
        for task in self.tasks {
            let _ = task.await;
        }
        std::mem::take(&mut *self.acknowledged.lock().expect("no client panicked"))
    }
}

struct Client {
    member: String,
    uri: String,
    patience: Duration,
    next: Arc<AtomicI64>,
    acknowledged: Arc<Mutex<Vec<Acknowledgement>>>,
}

impl Client {
    async fn write_until(self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            if let Ok(Ok(session)) = tokio::time::timeout(SHORT, connect(&self.uri)).await {
                self.write(&session).await;
            }
            // A replica refuses every write, and nothing tells a client when that changes.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Writes until a statement fails or is given up.
    async fn write(&self, session: &tokio_postgres::Client) {
        loop {
            let (id, sent) = (self.next.fetch_add(1, Ordering::Relaxed), Instant::now());
            let row: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&id];
            let statement = session.execute("insert into direct values ($1)", &row);
            let Ok(Ok(_)) = tokio::time::timeout(self.patience, statement).await else { return };
            let mut acknowledged = self.acknowledged.lock().expect("no client panicked");
            // The instant is taken under the lock, so that the list is in the order of the instants.
            let received = Instant::now();
            acknowledged.push(Acknowledgement { member: self.member.clone(), id, sent, received });
        }
    }
}

/// Who acknowledged, one entry for each uninterrupted reign: `[a, b]` says that nothing of a came after the first of b.
pub fn reigns(acknowledged: &[Acknowledgement]) -> Vec<&str> {
    let mut reigns: Vec<&str> = acknowledged.iter().map(|one| one.member.as_str()).collect();
    reigns.dedup();
    reigns
}
