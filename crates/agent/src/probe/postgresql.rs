//! PostgreSQL, of which only the role is asked.

use coregent_core::rsm::probe::Answer;
use tokio_postgres::{Client, Config, NoTls};

use super::HandlerError;
use super::config::{Account, Kinds};

/// One server.
pub(crate) struct Postgresql {
    address: String,
    config: Config,
    kept: Option<Client>,
}

impl Postgresql {
    pub(crate) fn at(host: &str, port: u16, account: Option<&Account>) -> Postgresql {
        let mut config = Config::new();
        config.host(host).port(port).dbname("postgres").application_name("coregent-probe");
        let username = account.map(|account| account.username.as_str()).filter(|name| !name.is_empty());
        config.user(username.unwrap_or("postgres"));
        if let Some(account) = account {
            config.password(&account.password);
        }
        Postgresql { address: format!("{host}:{port}"), config, kept: None }
    }

    /// A server that recovers follows, any other leads. Timelines are not compared: only one that writes knows its own.
    pub(crate) async fn role(&mut self, kinds: &Kinds) -> Result<Answer, HandlerError> {
        let client = match self.kept.take().filter(|kept| !kept.is_closed()) {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let row = client.query_one("select pg_catalog.pg_is_in_recovery()", &[]).await;
        let row = row.map_err(|error| self.unreachable(error))?;
        let recovers: bool = row.try_get(0).map_err(|error| self.unreachable(error))?;
        self.kept = Some(client);
        let role = if recovers { &kinds.follower } else { &kinds.leader };
        Ok(Answer::Role { role: role.clone(), version: None })
    }

    async fn connect(&self) -> Result<Client, HandlerError> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(|error| self.unreachable(error))?;
        tokio::spawn(async move {
            // What goes wrong with it is seen by the request that waits for it.
            let _ = connection.await;
        });
        Ok(client)
    }

    fn unreachable(&self, error: tokio_postgres::Error) -> HandlerError {
        HandlerError::Unreachable { address: self.address.clone(), source: std::io::Error::other(error) }
    }
}
