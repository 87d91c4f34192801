//! A cluster whose controller is the test.

use coregent_apiserver::{ApiServer, Options, UserInfo};
use coregent_core::fence::{self, Attempt, Fence, Handover, Proof, Target};
use coregent_core::lsn::Timeline;
use coregent_core::names::{Epoch, MemberName};
use coregent_core::position::Promotion;
use coregent_core::report::{self, MemberReport};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Far beyond what a step takes on a busy machine: a limit for a hang, not a measurement.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) const PASSWORD: &str = "se'cr\\et";

/// The programs of PostgreSQL that the tests use; `None` skips them by name.
pub(crate) fn programs() -> Option<PathBuf> {
    let newest = (13..=20).rev().map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")));
    let found = newest.into_iter().find(|dir| dir.join("postgres").is_file());
    if found.is_none() {
        eprintln!("skipped: PostgreSQL is not installed (apt-get install postgresql)");
    }
    found
}

/// Holds back other tests that run real servers, in this and in other test programs.
fn one_at_a_time() -> Result<File> {
    let path =
        std::env::temp_dir().join(format!("coregent-database-tests-{}.lock", rustix::process::getuid().as_raw()));
    let file = File::create(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

pub(crate) struct Member {
    pub(crate) name: MemberName,
    pub(crate) ip: Ipv4Addr,
    pub(crate) folder: PathBuf,
    uid: u64,
    agent: Option<Child>,
}

pub(crate) struct Cluster {
    pub(crate) leases: Api<Lease>,
    pub(crate) members: Vec<Member>,
    mode: &'static str,
    kubeconfig: PathBuf,
    binary: PathBuf,
    bin_dir: PathBuf,
    folder: TempDir,
    server: ApiServer,
    _turn: File,
}

impl Cluster {
    /// The API, the Leases and the folders of `count` members; no agent runs yet.
    pub(crate) async fn new(count: u32, mode: &'static str, bin_dir: PathBuf) -> Result<Cluster> {
        let turn = tokio::task::spawn_blocking(one_at_a_time).await??;
        let server = ApiServer::open(Options::default()).await?;
        let folder = tempfile::Builder::new().prefix("cg").tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = server.service_as(UserInfo::admin());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(
            &kubeconfig,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: t\nclusters: [{{name: t, cluster: {{server: \"http://{address}\"}}}}]\nusers: [{{name: t, user: {{}}}}]\ncontexts: [{{name: t, context: {{cluster: t, user: t, namespace: default}}}}]\n"
            ),
        )?;
        let binary = folder.path().join("agent");
        // The servers' user may not be able to reach the build folder.
        fs::copy(std::env::current_exe()?, &binary)?;
        let credentials = folder.path().join("credentials");
        for (role, user) in [("superuser", "postgres"), ("replication", "coregent_replication")] {
            fs::create_dir_all(credentials.join(role))?;
            fs::write(credentials.join(role).join("username"), user)?;
            fs::write(credentials.join(role).join("password"), PASSWORD)?;
        }
        let leases: Api<Lease> = Api::default_namespaced(server.client());
        let mut cluster =
            Cluster { leases, members: Vec::new(), mode, kubeconfig, binary, bin_dir, folder, server, _turn: turn };
        // A /24 of its own: other tests and data folders share 127/8.
        let seed = std::process::id();
        let subnet = (u8::try_from(128 + seed / 250 % 120)?, u8::try_from(seed % 250)?);
        for index in 1..=count {
            let name = MemberName::of("orders", index);
            let folder = cluster.folder.path().join(name.as_str());
            for part in ["volume", "run"] {
                fs::create_dir_all(folder.join(part))?;
                give(&folder.join(part))?;
            }
            let ip = Ipv4Addr::new(127, subnet.0, subnet.1, u8::try_from(10 + index)?);
            cluster.members.push(Member { name, ip, folder, uid: 0, agent: None });
        }
        let members: BTreeSet<MemberName> = cluster.members.iter().map(|member| member.name.clone()).collect();
        let fence = Fence { target: Some(cluster.target(1, Proof::Bootstrap, &[])), members, ..Fence::default() };
        cluster.create("orders-primary", fence::ANNOTATION, &fence.to_annotation(), 1).await?;
        cluster.create("orders-bootstrap-u1", "coregent.io/bootstrap", r#"{"member":"orders-1"}"#, 0).await?;
        Ok(cluster)
    }

    async fn create(&self, name: &str, annotation: &str, text: &str, epoch: u64) -> Result<()> {
        let lease: Lease = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name, "annotations": {annotation: text}},
            "spec": {"leaseTransitions": epoch, "leaseDurationSeconds": 6},
        }))?;
        self.leases.create(&PostParams::default(), &lease).await?;
        Ok(())
    }

    pub(crate) fn member(&self, index: usize) -> &Member {
        &self.members[index - 1]
    }

    pub(crate) fn target(&self, index: usize, proof: Proof, initial_sync: &[usize]) -> Target {
        let member = self.member(index);
        Target {
            member: member.name.clone(),
            address: format!("{}:5432", member.ip),
            proof,
            initial_sync: initial_sync.iter().map(|index| self.member(*index).name.clone()).collect(),
            must_reach_lsn: None,
            rest_of_log: None,
        }
    }

    /// Starts the agent of a member, as a new pod.
    pub(crate) fn start(&mut self, index: usize) -> Result<()> {
        let member = &mut self.members[index - 1];
        member.uid += 1;
        let log = File::options().create(true).append(true).open(member.folder.join("log"))?;
        let mut command = Command::new(&self.binary);
        command
            .args(["--exact", "cluster::agent_process", "--ignored", "--nocapture"])
            .env_clear()
            .envs([
                (AS_AGENT, "1".to_owned()),
                ("RUST_LOG", "coregent_agent=trace".to_owned()),
                ("PATH", "/usr/bin:/bin".to_owned()),
                ("KUBECONFIG", self.kubeconfig.display().to_string()),
                ("COREGENT_CLUSTER", "orders".to_owned()),
                ("COREGENT_MEMBER", member.name.to_string()),
                ("COREGENT_NAMESPACE", "default".to_owned()),
                ("COREGENT_REPLICATION_MODE", self.mode.to_owned()),
                ("COREGENT_BOOTSTRAP_LEASE", "orders-bootstrap-u1".to_owned()),
                ("COREGENT_BIN_DIR", self.bin_dir.display().to_string()),
                ("COREGENT_RUN_DIR", member.folder.join("run").display().to_string()),
                ("COREGENT_CONFIG_DIR", self.folder.path().join("config").display().to_string()),
                ("COREGENT_CREDENTIALS_DIR", self.folder.path().join("credentials").display().to_string()),
                ("POD_UID", format!("uid-{}-{}", member.name, member.uid)),
                ("POD_IP", member.ip.to_string()),
                ("PGDATA", member.folder.join("volume/pgdata").display().to_string()),
            ])
            .current_dir("/")
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if let Some((uid, gid)) = other_user() {
            command.uid(uid).gid(gid);
        }
        member.agent = Some(command.spawn()?);
        Ok(())
    }

    /// The agent and every process of its server are killed at once.
    pub(crate) fn kill_member(&mut self, index: usize) -> Result<()> {
        let pids = self.engine_pids(index)?;
        let member = &mut self.members[index - 1];
        if let Some(mut agent) = member.agent.take() {
            agent.kill()?;
            agent.wait()?;
        }
        for pid in pids {
            signal(pid, rustix::process::Signal::KILL);
        }
        Ok(())
    }

    pub(crate) fn agent_pid(&self, index: usize) -> Option<i32> {
        self.member(index).agent.as_ref().and_then(|agent| i32::try_from(agent.id()).ok())
    }

    /// Processes that work in the data folder.
    pub(crate) fn engine_pids(&self, index: usize) -> Result<Vec<i32>> {
        let pgdata = self.member(index).folder.join("volume/pgdata");
        let mut pids = Vec::new();
        for entry in fs::read_dir("/proc")?.flatten() {
            let cwd = fs::read_link(entry.path().join("cwd"));
            if cwd.is_ok_and(|cwd| cwd.starts_with(&pgdata))
                && let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            {
                pids.push(pid);
            }
        }
        Ok(pids)
    }

    /// SIGKILL to the postmaster alone.
    pub(crate) fn kill_postmaster(&self, index: usize) -> Result<()> {
        let text = fs::read_to_string(self.member(index).folder.join("volume/pgdata/postmaster.pid"))?;
        let pid: i32 = text.lines().next().unwrap_or_default().parse()?;
        signal(pid, rustix::process::Signal::KILL);
        Ok(())
    }

    pub(crate) async fn lease(&self) -> Result<(Lease, Epoch, Option<String>, Fence)> {
        let lease = self.leases.get("orders-primary").await?;
        let text = lease.metadata.annotations.as_ref().and_then(|all| all.get(fence::ANNOTATION)).cloned();
        let fence = Fence::parse(&text.unwrap_or_default())?;
        let spec = lease.spec.clone().unwrap_or_default();
        let epoch = Epoch(u64::try_from(spec.lease_transitions.unwrap_or(0))?);
        Ok((lease, epoch, spec.holder_identity, fence))
    }

    /// Epoch + 1 with no target, as the controller raises.
    pub(crate) async fn raise(&self, handover: Option<(usize, usize)>) -> Result<Epoch> {
        let handover = handover
            .map(|(from, to)| Handover { from: self.member(from).name.clone(), to: self.member(to).name.clone() });
        self.change(|epoch, fence| {
            fence.target = None;
            fence.handover.clone_from(&handover);
            epoch.next()
        })
        .await
    }

    pub(crate) async fn name(&self, index: usize, proof: Proof, initial_sync: &[usize]) -> Result<Epoch> {
        let target = self.target(index, proof, initial_sync);
        self.change(|epoch, fence| {
            fence.target = Some(target.clone());
            epoch
        })
        .await
    }

    /// Records that `index` was to make `timeline` in the epoch of the moment, which nothing came of.
    pub(crate) async fn attempt_in_vain(&self, index: usize, timeline: u32) -> Result<Epoch> {
        let member = self.member(index).name.clone();
        self.change(|epoch, fence| {
            let timeline = Timeline(timeline);
            let promotion = Promotion { epoch, member: member.clone(), timeline, fork_lsn: None };
            fence.history.push(Attempt { promotion, won: false });
            epoch
        })
        .await
    }

    async fn change(&self, change: impl Fn(Epoch, &mut Fence) -> Epoch) -> Result<Epoch> {
        loop {
            let (mut lease, epoch, _, mut fence) = self.lease().await?;
            let next = change(epoch, &mut fence);
            lease.spec.get_or_insert_default().lease_transitions = Some(i32::try_from(next.0)?);
            lease
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(fence::ANNOTATION.to_owned(), fence.to_annotation());
            match self.leases.replace("orders-primary", &PostParams::default(), &lease).await {
                Ok(_) => return Ok(next),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) async fn report(&self, index: usize) -> Option<MemberReport> {
        let name = format!("{}-member", self.member(index).name);
        let lease = self.leases.get_opt(&name).await.ok()??;
        MemberReport::parse(lease.metadata.annotations?.get(report::ANNOTATION)?)
    }

    /// Waits for a report.
    pub(crate) async fn await_report(
        &self,
        index: usize,
        what: &str,
        holds: impl Fn(&MemberReport) -> bool,
    ) -> Result<MemberReport> {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < PATIENCE {
            last = self.report(index).await;
            if let Some(report) = last.take_if(|report| holds(report)) {
                return Ok(report);
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let log = fs::read_to_string(self.member(index).folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains("TRACE")).collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        Err(format!("{}: {what} did not come\n{last:?}\n{:?}\n{tail}", self.member(index).name, self.lease().await?.3)
            .into())
    }

    /// Waits for a state of the Lease.
    pub(crate) async fn await_lease(
        &self,
        what: &str,
        holds: impl Fn(Epoch, Option<&str>, &Fence) -> bool,
    ) -> Result<Fence> {
        let begun = Instant::now();
        loop {
            let (_, epoch, holder, fence) = self.lease().await?;
            if holds(epoch, holder.as_deref(), &fence) {
                return Ok(fence);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{what} did not come: {epoch} {holder:?} {fence:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// A client's connection over TCP, as the superuser of the Secret.
    pub(crate) async fn connect(&self, index: usize) -> Result<tokio_postgres::Client> {
        let mut config = tokio_postgres::Config::new();
        config
            .host(self.member(index).ip.to_string())
            .user("postgres")
            .password(PASSWORD)
            .dbname("postgres")
            .connect_timeout(Duration::from_secs(2));
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    pub(crate) async fn text(&self, index: usize, sql: &str) -> Result<String> {
        let client = self.connect(index).await?;
        let rows = tokio::time::timeout(PATIENCE, client.simple_query(sql)).await??;
        let first = rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(first.unwrap_or_default())
    }

    /// Waits until a member answers so: a standby replays a moment after it has received.
    pub(crate) async fn await_text(&self, index: usize, sql: &str, expected: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let answer = self.text(index, sql).await;
            match answer {
                Ok(answer) if answer == expected => return Ok(()),
                _ if begun.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(10)).await,
                other => return Err(format!("{sql} on {index}: {other:?}, not {expected}").into()),
            }
        }
    }

    /// The last lines of a member's log.
    pub(crate) fn last_words(&self, index: usize, lines: usize) -> String {
        let log = self.log(index);
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    pub(crate) fn log(&self, index: usize) -> String {
        fs::read_to_string(self.member(index).folder.join("log")).unwrap_or_default()
    }

    /// SIGTERM, then the agent's own end.
    pub(crate) async fn stop(&mut self, index: usize) -> Result<bool> {
        let Some(mut agent) = self.members[index - 1].agent.take() else { return Ok(false) };
        signal(i32::try_from(agent.id())?, rustix::process::Signal::TERM);
        let status = tokio::task::spawn_blocking(move || agent.wait()).await??;
        Ok(status.success())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 1..=self.members.len() {
            let _ = self.kill_member(index); // the folder goes away with everything in it
        }
        let _ = &self.server;
        if std::env::var_os("COREGENT_KEEP").is_some() {
            self.folder.disable_cleanup(true);
            eprintln!("kept {}", self.folder.path().display());
        }
    }
}

/// Stops a process and waits until every thread of it stands: until one of them takes the signal the others go on.
pub(crate) async fn freeze(pid: i32) -> Result<()> {
    signal(pid, rustix::process::Signal::STOP);
    let begun = Instant::now();
    loop {
        let mut moving = false;
        for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            moving |= !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('T');
        }
        if !moving {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("the process does not stop".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal); // gone already is as good
    }
}

/// initdb refuses root: the servers run as the user `postgres`, whom the package makes.
fn other_user() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let fields: Vec<&str> = passwd.lines().find(|line| line.starts_with("postgres:"))?.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

fn give(path: &Path) -> Result<()> {
    if let Some((uid, gid)) = other_user() {
        chown(path, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Set for a process of this test program that is to be an agent.
const AS_AGENT: &str = "COREGENT_TEST_AS_AGENT";

/// Not a test of its own: the harness starts this very program again as an agent, by the name of this function.
#[test]
#[ignore = "the agents of the other tests run as this"]
fn agent_process() -> std::result::Result<(), Box<dyn std::error::Error>> {
    if std::env::var_os(AS_AGENT).is_none() {
        return Ok(());
    }
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    coregent_agent::postgresql::run(coregent_agent::Config::from_env()?)?;
    Ok(())
}
