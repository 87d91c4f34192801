//! Starting one container.

use std::{
    fs, io,
    net::Ipv4Addr,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::PathBuf,
    sync::Arc,
};

use coregent_process::{Container as Process, ContainerSpec, Mount, User};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{
    env::{self, ConfigError},
    identity,
    sandbox::{Sandbox, give},
    state::spec,
    volumes::{VolumeError, Volumes},
};
use crate::{
    image_map::{Image, ImageError, StopSignal},
    logs::{self, RunLog, Stream},
    node::Node,
};

/// A container that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// `coregent://…`, different for every run.
    pub id: String,
    pub process: Process,
    pub log: Arc<RunLog>,
    pub stop_signal: StopSignal,
}

/// Why a container did not start. The name of the variant's reason is what Kubernetes shows for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("the container's files: {0}")]
    Files(#[from] io::Error),
    #[error("image {0:?} has no program of its own: set `command`")]
    NoProgram(String),
    #[error(transparent)]
    Run(#[from] coregent_process::StartError),
}

impl StartError {
    /// The reason in the container's status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Image(_) => "ErrImagePull",
            Self::Config(_) | Self::NoProgram(_) => "CreateContainerConfigError",
            Self::Volume(_) | Self::Files(_) => "CreateContainerError",
            Self::Run(_) => "RunContainerError",
        }
    }
}

/// Where and as whom a container of a pod is started.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub node: &'a Node,
    pub pod: &'a Pod,
    pub ip: Option<Ipv4Addr>,
    pub sandbox: &'a Sandbox,
    pub volumes: &'a Volumes,
}

/// Starts `container` as its run number `restart`.
pub(crate) async fn start(place: &Place<'_>, container: &Container, restart: i32) -> Result<Running, StartError> {
    let Place { node, pod, ip, .. } = place;
    let image = node.images.resolve(container.image.as_deref().unwrap_or_default())?;
    let user = identity::user(pod, container, &image.user);
    let namespace = pod.namespace().unwrap_or_default();
    let base = base_environment(place, &image, &user);
    let vars = env::environment(container, base, &node.objects(&namespace), &node.downward(pod, *ip))?;
    let argv = env::command_line(container, &image.entrypoint, &image.default_args, &vars);
    if argv.is_empty() {
        return Err(StartError::NoProgram(image.reference));
    }
    let mounts = mounts(place, container, &image, &user, &vars)?;
    let log = RunLog::create(&logs::folder(&node.data_dir, pod), &container.name, restart)?;
    let (stdout, stderr) = (output(&log, Stream::Stdout)?, output(&log, Stream::Stderr)?);
    let id = new_id()?;
    let hostname = spec(pod).hostname.clone().unwrap_or_else(|| pod.name_any());
    let working_dir = container.working_dir.clone().map_or(image.working_dir, PathBuf::from);
    let stop_signal = image.stop_signal;
    let spec = ContainerSpec {
        id: id.clone(),
        hostname,
        mounts,
        argv,
        env: vars,
        working_dir,
        user,
        stdout,
        stderr,
        stdin: None,
    };
    let process = node.launcher.start(spec).await?;
    Ok(Running { id, process, log, stop_signal })
}

/// A pipe whose reading end goes into the log.
fn output(log: &Arc<RunLog>, stream: Stream) -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    log.pump(stream, read)?;
    Ok(write)
}

fn new_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    Ok(format!("coregent://{hex}"))
}

/// What every container gets before its own `env`.
fn base_environment(place: &Place<'_>, image: &Image, user: &User) -> Vec<(String, String)> {
    let (api_host, api_port) = host_and_port(&place.node.api_url);
    let mut vars = vec![
        ("PATH".to_owned(), image.path.clone()),
        ("HOME".to_owned(), user.home.display().to_string()),
        ("HOSTNAME".to_owned(), spec(place.pod).hostname.clone().unwrap_or_else(|| place.pod.name_any())),
        ("KUBERNETES_SERVICE_HOST".to_owned(), api_host.to_owned()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), api_port.to_owned()),
        ("KUBERNETES_SERVICE_PORT_HTTPS".to_owned(), api_port.to_owned()),
        ("KUBERNETES_PORT".to_owned(), format!("tcp://{api_host}:{api_port}")),
    ];
    if let Some(ip) = place.ip {
        // All pods of a node share one network: a program has to be told which address is its own.
        vars.push(("COREGENT_POD_IP".to_owned(), ip.to_string()));
    }
    vars.extend(image.env.iter().map(|(k, v)| (k.clone(), v.clone())));
    vars
}

fn host_and_port(url: &str) -> (&str, &str) {
    let rest = url.split("://").nth(1).unwrap_or(url).trim_end_matches('/');
    rest.rsplit_once(':').unwrap_or((rest, "443"))
}

fn mounts(
    place: &Place<'_>,
    container: &Container,
    image: &Image,
    user: &User,
    vars: &[(String, String)],
) -> Result<Vec<Mount>, StartError> {
    let owner = (user.uid, user.gid);
    let mut mounts = place.sandbox.image_mounts(&container.name, image, Some(owner))?;
    if place.ip.is_some() {
        mounts.push(Mount { source: place.sandbox.hosts(), target: "/etc/hosts".into(), read_only: true });
    }
    let volumes = place.volumes.mounts(container, vars)?;
    for mount in volumes.iter().filter(|m| !m.read_only) {
        give_if_fresh(mount, owner)?;
    }
    mounts.extend(volumes);
    Ok(mounts)
}

/// A folder that is still empty and root's is handed to the container's user: images whose entry point starts
/// as root do that by themselves, here the program starts as its own user at once.
fn give_if_fresh(mount: &Mount, owner: (u32, u32)) -> io::Result<()> {
    let metadata = fs::metadata(&mount.source)?;
    if !metadata.is_dir() || metadata.uid() != 0 || owner.0 == 0 || fs::read_dir(&mount.source)?.next().is_some() {
        return Ok(());
    }
    // A group that was given by fsGroup stays.
    let gid = if metadata.gid() == 0 { owner.1 } else { metadata.gid() };
    give(&mount.source, Some((owner.0, gid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_address_is_split_into_host_and_port() {
        for (url, expected) in [
            ("https://127.64.0.1:6443", ("127.64.0.1", "6443")),
            ("https://127.64.0.1:6443/", ("127.64.0.1", "6443")),
            ("https://api.example", ("api.example", "443")),
        ] {
            assert_eq!(host_and_port(url), expected);
        }
    }
}
