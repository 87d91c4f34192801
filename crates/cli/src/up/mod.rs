//! `coregent up` and `coregent down`: the embedded control plane.
//!
//! `up` checks everything that it can refuse before it starts anything: manifests, data folder, namespaces. With
//! `--detach` the plane is this very binary again in a session of its own, which tells through a pipe that its API
//! answers, or why it does not.

mod api;
mod data_folder;
mod detach;
mod down;
mod kinds;
mod note;
mod older_store;
pub mod operator;
mod operator_lease;
mod part;
mod plane;
mod progress;
mod reach;
mod rehearsal;
mod signals;
mod summary;

use crate::connection::{Connection, Target};
use crate::failure::{ExitCode, Failure, Outcome};
use crate::manifest::{self, Document};
use crate::say;
use crate::verbs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use down::{Args as DownArgs, run as down};

/// What to start.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Manifests to apply: file, folder or - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Also serve the API on this address
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Return once the API answers; the control plane goes on in the background
    #[arg(short, long)]
    pub detach: bool,
    /// With --detach: return once every applied database and set is Ready, or, without -f, every database there is
    #[arg(long, requires = "detach")]
    pub wait: bool,
    /// How long --wait waits: 90s, 5m
    #[arg(long, default_value = "5m", value_parser = verbs::wait::duration)]
    pub timeout: Duration,
    /// Leave our controllers out: `coregent operator` runs them as a process of its own
    #[arg(long)]
    pub no_controllers: bool,
}

/// Starts or resumes the control plane of the data folder.
///
/// # Errors
/// What it refuses is refused before anything is started.
pub async fn run(target: &Target, args: Args) -> Outcome<i32> {
    let documents = manifest::read(&args.filename)?;
    coregent_process::check_support().map_err(|error| {
        Failure::refused(
            "cannot run pods on this machine",
            crate::failure::chain(&error),
            "allow user namespaces as named above, or run as root",
        )
    })?;
    let namespace = target.namespace.as_deref().unwrap_or("default");
    rehearsal::refuse_bad(&documents, &target.data_dir(), namespace).await?;
    if args.detach {
        in_background(target, &args, &documents).await.map(|()| 0)
    } else {
        in_foreground(target, &args, &documents).await
    }
}

async fn in_background(target: &Target, args: &Args, documents: &[Document]) -> Outcome {
    for note in detach::start(&target.data_dir(), args).await? {
        say::err(note.render());
    }
    follow_up(target, args, documents).await.map_err(|failure| still_runs(failure, &target.data_dir()))
}

/// The plane was started by this very command, and goes on.
fn still_runs(failure: Failure, data_dir: &Path) -> Failure {
    let code = match failure.code {
        // It says itself that everything goes on.
        ExitCode::NotYet => return failure,
        ExitCode::Refused => ExitCode::Partly,
        other => other,
    };
    let dir = data_dir.display();
    let remedy = failure.remedy.trim_end_matches("; nothing was changed");
    Failure {
        code,
        remedy: format!(
            "{remedy}; the control plane in {dir} was started and goes on: `coregent apply -f` the rest, or `coregent down`"
        ),
        ..failure
    }
}

async fn follow_up(target: &Target, args: &Args, documents: &[Document]) -> Outcome {
    let connection = Target { kubeconfig: None, context: None, data_dir: Some(target.data_dir()), ..target.clone() }
        .connect()
        .await?;
    for line in verbs::apply::documents(&connection, documents, true).await? {
        say::out(line);
    }
    if args.wait {
        let databases = match args.filename.as_slice() {
            [] => progress::every_database(&connection).await?,
            _ => progress::databases(documents, &connection.namespace),
        };
        progress::until_ready(&connection, &databases, args.timeout).await?;
        summary::print(&connection, &databases, &target.data_dir()).await?;
        sets_ready(&connection, args, documents).await?;
    }
    Ok(())
}

/// Waits for the sets of other engines among the documents, one after another.
async fn sets_ready(connection: &Connection, args: &Args, documents: &[Document]) -> Outcome {
    for (namespace, name) in progress::named(documents, "ReplicatedStateMachine", &connection.namespace) {
        let connection = Connection { client: connection.client.clone(), namespace };
        let object = vec!["replicatedstatemachine".to_owned(), name];
        let wait = verbs::wait::Args { object, condition: "Ready".to_owned(), timeout: args.timeout };
        verbs::wait::run(&connection, &wait).await?;
    }
    Ok(())
}

async fn in_foreground(target: &Target, args: &Args, documents: &[Document]) -> Outcome<i32> {
    let plane = match plane::Plane::start(&target.data_dir(), args).await {
        Ok(plane) => plane,
        Err(failure) => {
            // Whoever started this in the background says it; the log is of a plane that runs, perhaps another.
            return if detach::report(Err(&failure)) { Ok(failure.code as i32) } else { Err(failure) };
        }
    };
    plane.notes().iter().for_each(|note| say::err(note.render()));
    let parent_waits = detach::report(Ok(plane.notes()));
    let work = async {
        let connection = plane.connection(target);
        for line in verbs::apply::documents(&connection, documents, true).await? {
            say::out(line);
        }
        let databases = progress::databases(documents, &connection.namespace);
        if !databases.is_empty() {
            progress::until_ready(&connection, &databases, args.timeout).await?;
            summary::print(&connection, &databases, plane.data_dir()).await?;
        } else if !parent_waits {
            say::out(format_args!("The control plane runs in {}; Ctrl-C stops it.", plane.data_dir().display()));
        }
        Ok::<(), Failure>(())
    };
    let outcome = tokio::select! {
        outcome = work => match outcome {
            Ok(()) => plane.until_stopped().await,
            // A refused manifest must not take running databases down when they were resumed.
            Err(failure) if plane.resumed() => { say::err(failure.render()); plane.until_stopped().await }
            Err(failure) => Err(failure),
        },
        outcome = plane.until_stopped() => outcome,
    };
    plane.stop().await;
    outcome.map(|()| 0)
}
