//! A client that writes for as long as it is asked to, and remembers what was acknowledged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_postgres::{Client, NoTls};

/// Writes rows 1, 2, 3 … through `uri`, connecting again whenever the connection breaks. A row whose fate is not
/// known is not tried again: the next one is.
pub struct Writer {
    acknowledged: watch::Receiver<BTreeSet<i64>>,
    longest_pause: Arc<Mutex<Duration>>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

/// A connection, or why not. A client without a limit of its own waits for two minutes where its first packet met
/// kube-proxy between two endpoints: the node then goes on sending that flow nowhere.
pub async fn connect(uri: &str) -> Result<Client, tokio_postgres::Error> {
    let mut config: tokio_postgres::Config = uri.parse()?;
    // Nor does anything tell it that a cable was pulled under an open connection.
    let second = Duration::from_secs(1);
    let config = config.connect_timeout(second).tcp_user_timeout(second);
    // A cable that is pulled while a commit waits for its acknowledgement leaves nothing that TCP would send again.
    let config = config.keepalives_idle(second).keepalives_interval(second).keepalives_retries(2);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A connection, waited for: after a restart the status still says for a moment what it said before.
pub async fn connected(uri: &str) -> Client {
    let attempt = async {
        loop {
            match connect(uri).await {
                Ok(client) => return client,
                // Nothing tells a client when a database is back; it has to ask.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(crate::plane::PATIENCE, attempt).await.expect("the database accepts connections")
}

impl Writer {
    /// Makes the table and starts to write.
    pub async fn start(uri: &str) -> Writer {
        let client = connected(uri).await;
        client.batch_execute("create table if not exists acked (id bigint primary key)").await.expect("a table");
        let first: i64 =
            client.query_one("select coalesce(max(id), 0) + 1 from acked", &[]).await.expect("a row").get(0);
        let (sender, acknowledged) = watch::channel(BTreeSet::new());
        let stop = Arc::new(AtomicBool::new(false));
        let longest_pause = Arc::default();
        let record = Record { sender, last: Instant::now(), longest_pause: Arc::clone(&longest_pause) };
        let task = tokio::spawn(write(uri.to_owned(), client, first, record, stop.clone()));
        Writer { acknowledged, longest_pause, stop, task }
    }

    /// Waits until a row that was begun after this call is acknowledged.
    pub async fn next_acknowledgement(&mut self) {
        let seen = self.acknowledged.borrow_and_update().last().copied().unwrap_or(0);
        // The row under way when this is called may have been decided before; two more cannot.
        let wait = self.acknowledged.wait_for(|rows| rows.last().copied().unwrap_or(0) > seen + 1);
        tokio::time::timeout(crate::plane::PATIENCE, wait)
            .await
            .expect("a write is acknowledged")
            .expect("the writer runs");
    }

    /// The rows from `first` on that have been acknowledged so far.
    pub fn acknowledged(&self, first: i64) -> BTreeSet<i64> {
        self.acknowledged.borrow().range(first..).copied().collect()
    }

    /// The longest time between two acknowledgements so far.
    pub fn longest_pause(&self) -> Duration {
        *self.longest_pause.lock().expect("the writer did not panic")
    }

    /// Stops; gives every acknowledged row.
    pub async fn stop(self) -> BTreeSet<i64> {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.task.await;
        self.acknowledged.borrow().clone()
    }
}

/// Where a writer says what was acknowledged.
struct Record {
    sender: watch::Sender<BTreeSet<i64>>,
    last: Instant,
    longest_pause: Arc<Mutex<Duration>>,
}

impl Record {
    fn acknowledged(&mut self, id: i64) {
        let pause = std::mem::replace(&mut self.last, Instant::now()).elapsed();
        let mut longest = self.longest_pause.lock().expect("nobody panicked");
        *longest = pause.max(*longest);
        self.sender.send_modify(|rows| {
            rows.insert(id);
        });
    }
}

async fn write(uri: String, client: Client, first: i64, mut record: Record, stop: Arc<AtomicBool>) {
    let mut client = Some(client);
    let mut id = first;
    while !stop.load(Ordering::Relaxed) {
        let Some(open) = &client else {
            match connect(&uri).await {
                Ok(new) => client = Some(new),
                // Nothing tells a client when a database is back; it has to ask.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            continue;
        };
        match open.execute("insert into acked values ($1)", &[&id]).await {
            Ok(_) => record.acknowledged(id),
            Err(_) => client = None,
        }
        id += 1;
    }
}

/// Rows that the database has.
pub async fn rows(uri: &str) -> BTreeSet<i64> {
    rows_from(uri, 0).await
}

/// Rows from `first` on that the database has.
pub async fn rows_from(uri: &str, first: i64) -> BTreeSet<i64> {
    let client = connected(uri).await;
    let rows = client.query("select id from acked where id >= $1", &[&first]).await.expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}
