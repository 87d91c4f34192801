//! What can go wrong while acting and serving.

use crate::observe::{Refusal, said};
use coregent_api::refusal;

/// A failed write or start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("{step}: cannot {doing}: {}", said(source))]
    Api {
        /// The step.
        step: &'static str,
        /// The verb and the object.
        doing: String,
        /// What it said.
        source: Box<kube::Error>,
    },
    /// No answer came in time; whether the write was carried out is not known.
    #[error("{step}: no answer within {seconds} s; looking again")]
    NoAnswer {
        /// The step.
        step: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// What the step is about has gone or is another one.
    #[error("{step}: the object that it was decided on is gone or another one; deciding again")]
    Moved {
        /// The step.
        step: &'static str,
    },
    /// The metrics endpoint could not be opened.
    #[error("the metrics address {address} cannot be opened: {source}; choose another with --metrics-address")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// No random bytes for a password.
    #[error("the machine gives no random bytes for a password: {0}")]
    Random(String),
    /// The API server has other definitions of our kinds than this operator needs.
    #[error("{0}")]
    Kinds(String),
    /// A part of the operator has ended that never should.
    #[error("{0} has ended unexpectedly; the operator stops so that it can be started anew")]
    Ended(&'static str),
}

impl Error {
    /// One CamelCase word, shared by metric labels and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Api { .. } if self.is_conflict() => "Conflict",
            Error::Api { .. } => "ApiError",
            Error::NoAnswer { .. } => "NoAnswer",
            Error::Moved { .. } => "Moved",
            Error::Metrics { .. } => "MetricsAddress",
            Error::Random(_) => "NoRandom",
            Error::Kinds(_) => "Kinds",
            Error::Ended(_) => "Ended",
        }
    }

    /// The step that failed.
    #[must_use]
    pub fn step(&self) -> Option<&'static str> {
        match self {
            Error::Api { step, .. } | Error::NoAnswer { step, .. } | Error::Moved { step } => Some(step),
            _ => None,
        }
    }

    /// What is refused, where somebody refuses; `None` where reading again puts it right, or nobody answers at all.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Error::Api { doing, source, .. } => {
                let what = format!("the operator cannot {doing}: {}", said(source));
                refusal::reason(source).map(|reason| Refusal { reason, what })
            }
            Error::NoAnswer { .. } => Some(Refusal { reason: refusal::NO_ANSWER, what: self.to_string() }),
            _ => None,
        }
    }

    /// Somebody else wrote first: look and decide again, at once.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        match self {
            Error::Api { source, .. } => is_status(source, &[404, 409]),
            Error::Moved { .. } => true,
            _ => false,
        }
    }
}

/// Whether `error` is an answer with one of these codes.
pub(crate) fn is_status(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}
