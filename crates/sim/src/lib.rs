//! Bad days in virtual time, each drawn from a seed.
//!
//! The decision functions of production (`coregent_core::failover` and `coregent_core::member`) run here over a modelled
//! API store, a modelled PostgreSQL and modelled hosts, with a fault between any two steps, and oracles that know the
//! whole world judge what comes of it. `docs/simulation.md` says what is modelled and what was found.

mod clients;
mod corpus;
mod cover;
mod data;
mod exec;
mod faults;
mod lasting;
mod member;
mod mutations;
mod net;
mod node;
mod operator;
mod oracle;
mod rng;
mod rules;
mod run;
mod server;
mod shrink;
mod solo;
mod store;
mod strike;
mod watch;
mod world;

pub use corpus::{CORPUS, Entry};
pub use cover::Coverage;
pub use mutations::{MUTATIONS, Mutation};
pub use rules::{Rule, Rules};
pub use run::{Options, Report, plan, run};
pub use shrink::shrink;
pub use solo::{Role, Seen, Solo};
