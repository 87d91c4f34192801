//! `coregent exec POD -- CMD…`.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, AttachedProcess};

/// Where and what to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pod
    pub pod: String,
    /// The container; the first where none is named
    #[arg(short, long)]
    pub container: Option<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Runs a program in a container; ends with the program's own exit code.
///
/// # Errors
/// When it cannot be started there.
pub async fn run(connection: &Connection, args: &Args) -> Outcome<i32> {
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let what = format!("cannot run {} in pod {}", args.command.first().map_or("", String::as_str), args.pod);
    let pod = api.get(&args.pod).await.map_err(|error| Failure::from_api(&what, error))?;
    let first = pod.spec.and_then(|spec| spec.containers.into_iter().next()).map(|container| container.name);
    let stdin = args.stdin;
    let params = AttachParams {
        container: args.container.clone().or(first),
        ..AttachParams::default().stdin(stdin).stdout(true).stderr(true)
    };
    let process =
        api.exec(&args.pod, args.command.clone(), &params).await.map_err(|error| Failure::from_api(&what, error))?;
    pump(process).await.map_err(|error| Failure::failed(&what, error, "look at `coregent describe pod` for its state"))
}

/// Connects the three standard streams and gives the exit code.
async fn pump(mut process: AttachedProcess) -> Result<i32, std::io::Error> {
    let status = process.take_status();
    if let Some(mut stdin) = process.stdin() {
        // Ends with the process: reading a terminal cannot be cancelled.
        tokio::spawn(async move { tokio::io::copy(&mut tokio::io::stdin(), &mut stdin).await });
    }
    let mut stdout = process.stdout();
    let mut stderr = process.stderr();
    let out = async {
        match stdout.as_mut() {
            Some(stream) => tokio::io::copy(stream, &mut tokio::io::stdout()).await.map(|_| ()),
            None => Ok(()),
        }
    };
    let err = async {
        match stderr.as_mut() {
            Some(stream) => tokio::io::copy(stream, &mut tokio::io::stderr()).await.map(|_| ()),
            None => Ok(()),
        }
    };
    let (out, err) = tokio::join!(out, err);
    out.and(err)?;
    let Some(status) = (match status {
        Some(status) => status.await,
        None => None,
    }) else {
        return Ok(0);
    };
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes
        .iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .and_then(|cause| cause.message.as_deref()?.parse().ok());
    code.ok_or_else(|| std::io::Error::other(status.message.unwrap_or_else(|| "the program did not end well".into())))
}
