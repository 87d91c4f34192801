//! `coregent agent probe`: the sidecar that finds out the role of its member (rsm.md 3.8, 4).
//!
//! It asks a builtin handler, which speaks the engine's own protocol, or the user's own programs, and says what changed:
//! by an Event that it makes itself, or by one failed readiness probe of which the kubelet makes an Event.

mod config;
mod custom;
mod etcd;
mod event;
mod http;
mod postgresql;
mod readiness;
mod redis;
mod requests;

pub use config::{Account, Engine, Kinds, Mechanism, ProbeConfig, ProbeConfigError};
pub use custom::{serve as serve_handler, socket as handler_socket};
pub use readiness::{Verdict, ask as ask_readiness};

use coregent_core::rsm::probe::{Answer, Message, Reports, check};
use jiff::Timestamp;
use kube::Client;
use readiness::Readiness;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two questions to a server: a role that moved is to be known well within a second.
const OFTEN: Duration = Duration::from_millis(200);
/// A report that the API refused is tried again after this, and then ever less often.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Why a handler gave no role.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// Nobody listens there.
    #[error("{address} cannot be reached: {source}")]
    Unreachable {
        /// Who was asked.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// No answer.
    #[error("{address} does not answer")]
    Silent {
        /// Who was asked.
        address: String,
    },
    /// An answer that says no.
    #[error("refused: {message}")]
    Refused {
        /// Its number.
        code: u16,
        /// Its words.
        message: String,
    },
    /// An answer that is none.
    #[error("the answer of {address} is not understood: {why}")]
    Unreadable {
        /// Who was asked.
        address: String,
        /// In words.
        why: String,
    },
}

/// Why the probe could not run.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The way to the API.
    #[error("cannot find the API server: {0}")]
    Api(String),
    /// This machine.
    #[error("cannot set up the probe: {0}")]
    System(#[from] std::io::Error),
}

/// Runs until it is told to end.
///
/// # Errors
/// When it cannot begin. What goes wrong later is reported and tried again.
pub fn run(config: ProbeConfig) -> Result<(), ProbeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let ended = crate::postgresql::terminated()?;
        tokio::task::spawn_local(coregent_process::memory::give_back_regularly());
        tokio::select! {
            result = serve(config) => result,
            () = ended.cancelled() => Ok(()),
        }
    })
}

async fn serve(config: ProbeConfig) -> Result<(), ProbeError> {
    let client = match (config.mechanism, &config.requests) {
        (Mechanism::Readiness, None) => None,
        _ => Some(api().await?),
    };
    let config = Rc::new(config);
    if let (Some(client), Some(name)) = (&client, &config.requests) {
        tokio::task::spawn_local(requests::run(client.clone(), config.clone(), name.clone()));
    }
    let readiness = Rc::new(Readiness::default());
    let listener = custom::listen(&readiness::socket(&config.shared))?;
    tokio::task::spawn_local(readiness::serve(listener, readiness.clone()));
    tracing::info!(pod = %config.pod, engine = ?config.engine, mechanism = ?config.mechanism, "the role probe begins");
    Probe::new(config, client, readiness).ask_for_ever().await;
    Ok(())
}

async fn api() -> Result<Client, ProbeError> {
    crate::postgresql::client().await.map_err(|error| ProbeError::Api(error.to_string()))
}

/// Who is asked.
enum Handler {
    Etcd(etcd::Etcd),
    Redis(redis::Redis),
    Postgresql(Box<postgresql::Postgresql>),
    Custom,
}

impl Handler {
    fn of(config: &ProbeConfig) -> Handler {
        let at = |usual: u16| {
            let port = if config.port == 0 { usual } else { config.port };
            if config.pod_ip.contains(':') {
                format!("[{}]:{port}", config.pod_ip)
            } else {
                format!("{}:{port}", config.pod_ip)
            }
        };
        match config.engine {
            Engine::Etcd => Handler::Etcd(etcd::Etcd::at(at(2379))),
            Engine::Redis => Handler::Redis(redis::Redis::at(at(6379), config.account.clone())),
            Engine::Postgresql => {
                let port = if config.port == 0 { 5432 } else { config.port };
                Handler::Postgresql(Box::new(postgresql::Postgresql::at(&config.pod_ip, port, config.account.as_ref())))
            }
            Engine::Custom(_) => Handler::Custom,
        }
    }
}

struct Probe {
    config: Rc<ProbeConfig>,
    kinds: Kinds,
    handler: Handler,
    client: Option<Client>,
    readiness: Rc<Readiness>,
    reports: Reports,
    begun: Instant,
    refused: Option<(Instant, Duration)>,
}

impl Probe {
    fn new(config: Rc<ProbeConfig>, client: Option<Client>, readiness: Rc<Readiness>) -> Probe {
        let say_again = config.say_again.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        Probe {
            kinds: Kinds::of(&config.declared),
            handler: Handler::of(&config),
            reports: Reports::new(config.failure_threshold, say_again),
            begun: Instant::now(),
            refused: None,
            config,
            client,
            readiness,
        }
    }

    async fn ask_for_ever(mut self) {
        let period = if matches!(self.handler, Handler::Custom) { self.config.period } else { OFTEN };
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = self.ask().await;
            self.report(answer, Timestamp::now()).await;
        }
    }

    async fn ask(&mut self) -> Result<Answer, String> {
        let asked = async {
            match &mut self.handler {
                Handler::Etcd(etcd) => etcd.role(&self.kinds).await,
                Handler::Redis(redis) => redis.role(&self.kinds).await,
                Handler::Postgresql(postgresql) => postgresql.role(&self.kinds).await,
                Handler::Custom => {
                    let Engine::Custom(handlers) = self.config.engine else { return Err("no handler".to_owned()) };
                    custom::role(&self.config.shared, handlers).await
                }
            }
            .map_err(|error| error.to_string())
        };
        let answer = tokio::time::timeout(self.config.timeout, asked).await;
        let answer =
            answer.unwrap_or_else(|_| Err(format!("no answer within {} s", self.config.timeout.as_secs_f32())));
        answer.and_then(|answer| check(answer, &self.config.declared).map_err(|why| why.to_string()))
    }

    async fn report(&mut self, answer: Result<Answer, String>, seen: Timestamp) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let messages = self.reports.take(&answer, now);
        let bad = answer.as_ref().err().filter(|_| self.reports.failures() >= self.config.failure_threshold);
        self.readiness.show(bad.cloned());
        let delivered = match (self.config.mechanism, messages.is_empty()) {
            (_, true) => return,
            (Mechanism::Readiness, _) => {
                self.readiness.say(messages);
                true
            }
            (Mechanism::Direct, _) => self.send(&messages, seen).await,
        };
        if let (Ok(answer), true) = (answer, delivered) {
            tracing::info!(?answer, "reported");
            self.reports.said(answer, now);
        }
    }

    /// Makes the Events; whether all of them arrived.
    async fn send(&mut self, messages: &[Message], seen: Timestamp) -> bool {
        let Some(client) = &self.client else { return false };
        if self.refused.is_some_and(|(until, _)| Instant::now() < until) {
            return false;
        }
        for message in messages {
            let sent = tokio::time::timeout(LONGEST_WAIT, event::send(client, &self.config, message, seen)).await;
            let error = match sent {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            let wait = self.refused.map_or(FIRST_WAIT, |(_, wait)| (wait * 2).min(LONGEST_WAIT));
            if self.refused.is_none() {
                tracing::warn!(error, "the role cannot be reported: may the pod's service account create events?");
            }
            self.refused = Some((Instant::now() + wait, wait));
            return false;
        }
        self.refused = None;
        true
    }
}

/// Sixteen letters that no other Event of this pod ends with.
fn random() -> String {
    let mut bytes = [0_u8; 8];
    if getrandom::fill(&mut bytes).is_err() {
        bytes = Timestamp::now().as_microsecond().to_le_bytes();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
