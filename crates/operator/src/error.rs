//! What can go wrong while acting and serving.

/// A failed write or start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("{step}: {source}")]
    Api {
        /// The step.
        step: &'static str,
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
            Error::Ended(_) => "Ended",
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
