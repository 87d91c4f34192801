//! Connections: one kept open on the Unix socket (a new one costs 11 ms), others made for what must be proved on a
//! fresh one.

use super::files::AGENT_ROLE;
use super::{EngineError, Postgres};
use crate::clock;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::error::DbError;
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage, SimpleQueryRow};

/// Time after which a statement of the agent counts as failed. Its effect may come later: whoever needs certainty
/// drops the connection and asks anew.
pub(super) const STATEMENT: Duration = Duration::from_secs(10);
/// How the words of an error end when nothing came back at all.
pub(super) const SILENT: &str = "no answer in 10 s";

/// A connection that remembers whether the server warned.
pub(super) struct Connection {
    pub(super) client: Client,
    warned: Arc<AtomicBool>,
}

impl Connection {
    /// A WARNING came: an acknowledgement with one is none (F8: a cancelled wait for standbys answers like that).
    pub(super) fn warned(&self) -> bool {
        self.warned.load(Ordering::SeqCst)
    }
}

impl Postgres {
    /// The kept connection, made if it is not there.
    pub(super) async fn client(&self) -> Result<Rc<Client>, EngineError> {
        if let Some(client) = self.client.borrow().as_ref().filter(|client| !client.is_closed()) {
            return Ok(Rc::clone(client));
        }
        if !self.accepts_connections() {
            return Err(EngineError::Refused("the server does not accept connections yet".to_owned()));
        }
        if let Some(words) = self.refusal.borrow().not_again_yet(clock::now()) {
            return Err(EngineError::Refused(words.to_owned()));
        }
        match self.connect("local").await {
            Ok(connection) => {
                self.refusal.borrow_mut().over();
                let client = Rc::new(connection.client);
                *self.client.borrow_mut() = Some(Rc::clone(&client));
                Ok(client)
            }
            Err(error) => {
                self.refusal.borrow_mut().refused(error.to_string(), clock::now());
                Err(error)
            }
        }
    }

    /// What the postmaster says in the eighth line of its lock file (PostgreSQL's `utils/pidfile.h`). A connection that
    /// comes too early is a line in the server's log, and it is looked for every few milliseconds.
    fn accepts_connections(&self) -> bool {
        let text = std::fs::read_to_string(self.config.pgdata.join("postmaster.pid")).unwrap_or_default();
        text.lines().nth(7).is_some_and(|status| status.trim_end() == "ready")
    }

    /// A new connection over the socket as the agent's role.
    pub(super) async fn connect(&self, synchronous_commit: &str) -> Result<Connection, EngineError> {
        connect(&self.connection(synchronous_commit)).await
    }

    /// How such a connection is made.
    pub(super) fn connection(&self, synchronous_commit: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config
            .host_path(&self.config.run_dir)
            .port(self.config.port)
            .user(AGENT_ROLE)
            .dbname("postgres")
            .application_name("coregent")
            .connect_timeout(Duration::from_secs(5))
            .options(format!(
                "-c synchronous_commit={synchronous_commit} -c log_statement=none -c log_min_duration_statement=-1"
            ));
        config
    }

    /// Rows of a statement, as texts.
    pub(super) async fn rows(&self, sql: &str) -> Result<Vec<SimpleQueryRow>, EngineError> {
        let client = self.client().await?;
        rows(&client, sql).await
    }

    /// The first column of the first row.
    pub(super) async fn value(&self, sql: &str) -> Result<String, EngineError> {
        Ok(self.rows(sql).await?.first().and_then(|row| row.get(0)).unwrap_or_default().to_owned())
    }
}

/// Connects and drives the connection in a task of its own.
pub(super) async fn connect(config: &tokio_postgres::Config) -> Result<Connection, EngineError> {
    // A server that hangs takes connections and says nothing.
    let (client, mut connection) = tokio::time::timeout(STATEMENT, config.connect(NoTls))
        .await
        .map_err(|_| EngineError::Sql { what: "cannot connect", reason: SILENT.to_owned() })?
        .map_err(sql_error("cannot connect"))?;
    let warned = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&warned);
    tokio::spawn(async move {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notice(notice))) => flag.fetch_or(is_warning(&notice), Ordering::SeqCst),
                Some(Ok(_)) => false,
                Some(Err(_)) | None => return,
            };
        }
    });
    Ok(Connection { client, warned })
}

fn is_warning(notice: &DbError) -> bool {
    notice.severity() == "WARNING"
}

/// Rows of a statement on a given connection.
pub(super) async fn rows(client: &Client, sql: &str) -> Result<Vec<SimpleQueryRow>, EngineError> {
    let messages = tokio::time::timeout(STATEMENT, client.simple_query(sql))
        .await
        .map_err(|_| EngineError::Sql { what: "a statement of the agent", reason: SILENT.to_owned() })?
        .map_err(sql_error("a statement of the agent failed"))?;
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(row).collect())
}

/// The server's message without the statement, which may hold a secret.
pub(super) fn sql_error(what: &'static str) -> impl Fn(tokio_postgres::Error) -> EngineError {
    move |error| {
        let reason = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
        EngineError::Sql { what, reason }
    }
}

/// A text as an SQL literal.
pub(super) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!(" E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// A text as an SQL identifier.
pub(super) fn identifier(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
