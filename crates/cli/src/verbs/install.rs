//! `coregent install`, `coregent crds`: what an API server needs to know and run; printed, never applied.

use crate::connection::Target;
use crate::failure::{Failure, Outcome};
use crate::say;
use coregent_operator::install::{Install, install};
use serde::Serialize;
use std::fmt::Display;

/// Where the controllers run unless `--namespace` says otherwise.
const NAMESPACE: &str = "coregent-system";

/// What is installed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image of the controllers, which members get their agent from as well
    #[arg(long, default_value = coregent_operator::IMAGE)]
    pub image: String,
    /// Pods that run them; one leads, the others wait
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(i32).range(1..))]
    pub replicas: i32,
    /// Print a PodMonitor too, for clusters that have the Prometheus operator's kinds
    #[arg(long)]
    pub pod_monitor: bool,
}

/// Prints every object.
///
/// # Errors
/// When one cannot be rendered.
pub fn run(target: &Target, args: Args) -> Outcome {
    let namespace = target.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
    let Args { image, replicas, pod_monitor } = args;
    let objects = install(&Install { namespace, image, replicas, pod_monitor }).map_err(unprintable)?;
    objects.iter().try_for_each(print)
}

/// Prints our kinds alone.
///
/// # Errors
/// When one cannot be rendered.
pub fn crds() -> Outcome {
    coregent_api::crds().iter().try_for_each(print)
}

fn print(object: &impl Serialize) -> Outcome {
    let text = serde_saphyr::to_string(object).map_err(unprintable)?;
    say::out(format_args!("---\n{}", text.trim_end()));
    Ok(())
}

fn unprintable(error: impl Display) -> Failure {
    Failure::failed("cannot print the objects", error, "report this")
}
