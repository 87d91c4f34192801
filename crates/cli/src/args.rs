//! What a person may type.

use crate::connection::Target;
use crate::failure::{Failure, Outcome};
use crate::{up, verbs};
use clap::{ArgAction, Parser, Subcommand};
use coregent_agent::probe;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Keeps stateful workloads alive whose members have roles.
#[derive(Debug, Parser)]
#[command(name = "coregent", version, about, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub target: Target,
    /// Say more on standard error (-v, -vv); COREGENT_LOG takes a tracing filter
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 refused or wrong usage, nothing was changed; 3 not yet, also where no control plane answers; 4 partly done.
Without --kubeconfig it talks to the embedded plane of --data-dir (default .coregent) when that folder holds one, else to $KUBECONFIG or ~/.kube/config.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Start or resume the embedded control plane and apply files
    Up(up::Args),
    /// Stop everything that `up` started; databases shut down cleanly, the primary last
    Down(up::DownArgs),
    /// Apply manifests
    Apply {
        /// File, folder or - for standard input
        #[arg(short, long, required = true, value_name = "FILE")]
        filename: Vec<PathBuf>,
        /// Take over fields that somebody else owns
        #[arg(long)]
        force: bool,
    },
    /// Show objects
    Get(verbs::get::Args),
    /// Show one object and what happened to it
    Describe {
        /// KIND NAME, or KIND/NAME
        #[arg(value_name = "KIND NAME", num_args = 1..=2, required = true)]
        object: Vec<String>,
    },
    /// Delete objects
    Delete(verbs::delete::Args),
    /// Show a container's log
    Logs(verbs::logs::Args),
    /// Show what happened
    Events(verbs::events::Args),
    /// Run a program in a container
    Exec(verbs::exec::Args),
    /// Wait until a condition holds
    Wait(verbs::wait::Args),
    /// The picture of a database cluster
    Status(verbs::status::Args),
    /// The address of a database cluster
    Endpoint(verbs::endpoint::Args),
    /// Open the database's own client
    Sql(verbs::sql::Args),
    /// Hand the primary over as planned; loses nothing
    Switchover(verbs::switchover::Args),
    /// Run the controllers, as they run in a cluster
    Operator(up::operator::Args),
    /// Runs beside a workload; started by its pod
    Agent(AgentArgs),
    /// Print our kinds for `kubectl apply -f -`
    Crds,
    /// Print what a cluster needs to run the controllers, for `kubectl apply --server-side -f -`
    Install(verbs::install::Args),
    /// Print the version
    Version,
    /// Print a completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Where the probe and its handlers meet.
const PROBE_FOLDER: &str = "/coregent-probe";

/// What runs beside a workload.
#[derive(Debug, clap::Args)]
pub struct AgentArgs {
    #[command(subcommand)]
    pub part: AgentPart,
}

/// The parts of the agent.
#[derive(Debug, Subcommand)]
pub enum AgentPart {
    /// Copy this binary into a folder (the init container of a database pod)
    Install {
        /// The folder
        dir: PathBuf,
    },
    /// Run a PostgreSQL member; configured by its pod's environment
    Postgresql,
    /// Find out the role of the member beside it; configured by its pod's environment
    Probe {
        /// Ask the probe that runs in this container whether the member is ready
        #[arg(long)]
        ask: bool,
    },
    /// Run a command of a custom role handler each time the probe asks for it
    Handler {
        /// Which of the set's handlers it is
        #[arg(long)]
        index: usize,
        /// Seconds that the command may take
        #[arg(long, default_value_t = 1)]
        timeout: u64,
        /// Folder that the containers of the pod share
        #[arg(long, default_value = PROBE_FOLDER)]
        folder: PathBuf,
        /// The command
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Runs a part of the agent in this process.
///
/// # Errors
/// When it cannot start or ends badly.
pub fn run_agent(args: AgentArgs) -> Outcome {
    match args.part {
        AgentPart::Install { dir } => coregent_agent::install(&dir).map(|_| ()).map_err(|error| {
            Failure::failed(
                format!("cannot install the agent into {}", dir.display()),
                error,
                "check the volume of the init container",
            )
        }),
        AgentPart::Postgresql => {
            let config = coregent_agent::Config::from_env().map_err(|error| {
                Failure::refused(
                    "cannot run the PostgreSQL agent",
                    error,
                    "it is started by the pod of a DatabaseCluster, not by hand",
                )
            })?;
            coregent_agent::postgresql::run(config).map_err(|error| {
                Failure::failed("the PostgreSQL agent ended", error, "the pod's log and `coregent status` tell more")
            })
        }
        AgentPart::Probe { ask: true } => ask_probe(),
        AgentPart::Probe { ask: false } => {
            let config = probe::ProbeConfig::from_env().map_err(|error| {
                Failure::refused(
                    "cannot run the role probe",
                    error,
                    "it is started by the pod of a ReplicatedStateMachine, not by hand",
                )
            })?;
            probe::run(config).map_err(|error| Failure::failed("the role probe ended", error, "see the pod's log"))
        }
        AgentPart::Handler { index, timeout, folder, command } => {
            let socket = probe::handler_socket(&folder, index);
            probe::serve_handler(&socket, &command, Duration::from_secs(timeout.max(1))).map_err(|error| {
                Failure::failed(
                    format!("cannot listen at {}", socket.display()),
                    error,
                    "is the probe's folder mounted there?",
                )
            })
        }
    }
}

/// Its output becomes part of an Event, so nothing is said around it.
fn ask_probe() -> Outcome {
    let folder = std::env::var_os("COREGENT_PROBE_FOLDER").map_or_else(|| PathBuf::from(PROBE_FOLDER), PathBuf::from);
    match probe::ask_readiness(&folder) {
        Ok(probe::Verdict::Ready) => Ok(()),
        Ok(probe::Verdict::Says(text)) => {
            crate::say::out(text);
            std::process::exit(1)
        }
        Err(error) => Err(Failure::failed("the role probe does not answer", error, "see its container's log")),
    }
}
