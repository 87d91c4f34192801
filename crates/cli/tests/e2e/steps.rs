//! kill -9 of the plane at every step of a failover, of a switchover and of a first start (traps.md, "every step"): when
//! it is up again, what was begun is finished or undone.
//!
//! Every step that the controller knows × every place within it at which a process can end. All members end with the
//! plane, so that each case is also the loss of power at that moment; where the controllers are a process of their own
//! only they end, and the next ones meet members that have gone on.

use crate::members::{
    Volumes, at_rest, fence, freeze, in_need_of_a_copy, kill_postmaster, manifest, system_id, uri_of,
};
use crate::plane::{PATIENCE, Plane, ended, primary, text, until};
use crate::writer::{Writer, connected, rows_from};
use coregent_api::{DatabaseCluster, annotations};
use coregent_core::failover::Step;
use coregent_core::failover::loss::NOT_PROMOTED;
use coregent_rsm::failpoint::{FILE_VARIABLE, Phase};
use kube::api::{Api, Patch, PatchParams};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

/// What makes the controller take a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A cluster is made.
    FirstStart,
    /// The server of the primary dies.
    PostmasterKilled,
    /// The primary is frozen: its node has to stop it.
    PrimaryFrozen,
    /// A person asks for a switchover.
    Switchover,
    /// A person asks for one that cannot be.
    ImpossibleSwitchover,
    /// The status loses what it copied from the Lease. In a failover or switchover that copy is never a write of its
    /// own, since the end of the operation is written with it.
    StatusLost,
}
use Cause::{FirstStart, ImpossibleSwitchover, PostmasterKilled, PrimaryFrozen, StatusLost, Switchover};

/// Every step, and what it is provoked by; one that can be part of both a failover and a switchover is tried in both.
/// Those of a first start stand in the order in which they come there.
const CASES: [(&str, &[Cause]); 18] = [
    ("failover.write-operation", &[FirstStart, PostmasterKilled, Switchover]),
    ("failover.deploy-base-config", &[FirstStart]),
    ("failover.complete", &[FirstStart, PostmasterKilled, Switchover]),
    ("failover.create-grant", &[FirstStart]),
    ("failover.write-index", &[FirstStart]),
    ("failover.create-lease", &[FirstStart]),
    ("failover.set-instances", &[FirstStart]),
    ("failover.name", &[FirstStart, PostmasterKilled, Switchover]),
    ("failover.label", &[FirstStart, PostmasterKilled, Switchover]),
    ("failover.enrol", &[FirstStart]),
    ("failover.prepare", &[Switchover]),
    ("failover.raise", &[PostmasterKilled, Switchover]),
    ("failover.strip-label", &[PostmasterKilled, Switchover]),
    ("failover.stamp", &[PostmasterKilled, Switchover]),
    ("failover.advance-operation", &[PostmasterKilled, Switchover]),
    ("failover.fencing-delete", &[PrimaryFrozen]),
    ("failover.answer-request", &[ImpossibleSwitchover]),
    ("failover.write-facts", &[StatusLost]),
];

/// Every (step, cause) of the causes that `wanted` names.
fn cases(wanted: impl Fn(Cause) -> bool) -> Vec<(&'static str, Cause)> {
    let all = CASES.iter().flat_map(|(step, causes)| causes.iter().map(|cause| (*step, *cause)));
    all.filter(|(_, cause)| wanted(*cause)).collect()
}

#[test]
fn every_step_of_the_controller_has_a_case_and_every_case_is_of_a_step() {
    let tried: BTreeSet<_> = cases(|_| true).into_iter().map(|(step, _)| step).collect();
    assert_eq!(tried, BTreeSet::from(Step::IDS));
}

/// What ends with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dies {
    /// Everything, every member included.
    Plane,
    /// The controllers, which are a process of their own: the members go on and meet the next controller in the middle.
    Controllers,
}

/// A plane, or its controllers, that can be told where to die.
struct Mortal {
    plane: Plane,
    client: kube::Client,
    /// Names the place at which it ends next.
    arm: PathBuf,
    /// The controllers where they are a process of their own.
    controllers: Option<Child>,
}

impl Mortal {
    async fn up(dies: Dies) -> Mortal {
        let plane = Plane::new();
        let arm = plane.dir().join("failpoint");
        let controllers = match dies {
            Dies::Plane => {
                let output = up(&plane, &arm);
                assert!(output.status.success(), "{}", text(&output.stderr));
                None
            }
            Dies::Controllers => {
                plane.must(["up", "--detach", "--no-controllers"]);
                Some(controllers(&plane, &arm))
            }
        };
        Mortal { client: plane.client().await, plane, arm, controllers }
    }

    /// From now on it ends when it comes to the place.
    fn arm(&self, step: &str, phase: Phase) {
        // In one write, and complete before it is seen.
        let written = self.plane.write("failpoint.new", &format!("{step}:{phase}"));
        std::fs::rename(written, &self.arm).expect("the file that arms the plane");
    }

    /// Waits until it has ended at that place.
    async fn await_death(&mut self, case: &str) {
        let arrived = async {
            while self.arm.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let arrived = tokio::time::timeout(PATIENCE, arrived).await;
        assert!(arrived.is_ok(), "{case}: nothing came to that place\n{}", self.plane.evidence());
        if let Some(controllers) = &mut self.controllers {
            controllers.wait().expect("the controllers end");
            return;
        }
        let plane = Pid::from_raw(self.plane.pid()).expect("a process id");
        if let Ok(plane) = pidfd_open(plane, PidfdFlags::empty()) {
            assert!(ended(&plane, Some(PATIENCE)), "{case}: the plane does not end");
        }
    }

    /// Starts what has died and expects it to stay.
    fn start(&mut self) {
        if let Some(gone) = &mut self.controllers {
            *gone = controllers(&self.plane, &self.arm);
            return;
        }
        let output = up(&self.plane, &self.arm);
        assert!(output.status.success(), "{}{}", self.plane.evidence(), text(&output.stderr));
    }

    fn clusters(&self) -> Api<DatabaseCluster> {
        Api::namespaced(self.client.clone(), "default")
    }
}

/// Starts the plane. It may be told to end before it answers.
fn up(plane: &Plane, arm: &Path) -> Output {
    let mut up = plane.command(["up", "--detach"]);
    up.env(FILE_VARIABLE, arm).output().expect("the coregent binary")
}

/// Starts the controllers. Of one name, so that the next need not wait until the Lease of their leader runs out.
fn controllers(plane: &Plane, arm: &Path) -> Child {
    let log = File::options().append(true).create(true).open(plane.data_dir().join("up.log")).expect("the log");
    let mut operator = plane.command(["operator", "--identity", "the-one"]);
    operator.env(FILE_VARIABLE, arm).stderr(log).spawn().expect("the coregent binary")
}

impl Drop for Mortal {
    fn drop(&mut self) {
        if let Some(controllers) = &mut self.controllers {
            let _ = controllers.kill();
            let _ = controllers.wait();
        }
    }
}

/// A cluster of three under load that goes from death to death.
struct Journey {
    mortal: Mortal,
    uri: String,
    system_id: String,
    volumes: Volumes,
    writer: Writer,
    cluster: DatabaseCluster,
    requests: u32,
}

impl Journey {
    async fn begin(dies: Dies) -> Journey {
        let mortal = Mortal::up(dies).await;
        mortal.plane.apply(&manifest("orders", 3, "Quorum"));
        let cluster = at_rest(&mortal.plane, &mortal.client, "orders").await;
        let uri = uri_of(&mortal.plane, "orders");
        let volumes = Volumes::of(&mortal.plane, &mortal.client).await;
        let writer = Writer::start(&uri).await;
        Journey { system_id: system_id(&uri).await, mortal, uri, volumes, writer, cluster, requests: 0 }
    }

    /// One death and what comes after it.
    async fn die(&mut self, step: &str, phase: Phase, cause: Cause) {
        let (case, begun) = (format!("{step}:{phase} after {cause:?}"), Instant::now());
        self.writer.next_acknowledgement().await;
        let first = self.writer.acknowledged(0).last().copied().unwrap_or(0) + 1;
        let folders = self.volumes.folders();
        self.mortal.arm(step, phase);
        let request = self.provoke(cause).await;
        self.mortal.await_death(&case).await;
        let (died, states) = (Instant::now(), self.volumes.states());
        self.mortal.start();
        let plane = &self.mortal.plane;
        if let Some(request) = &request {
            // Until then nothing in the status tells that there is something to do.
            until(&self.mortal.client, "orders", |cluster| is_answered(cluster, request)).await;
        }
        self.cluster = at_rest(plane, &self.mortal.client, "orders").await;
        let status = self.cluster.status.clone().expect("a status");
        self.writer.next_acknowledgement().await;
        let acknowledged = self.writer.acknowledged(first);
        let missing: Vec<_> = acknowledged.difference(&rows_from(&self.uri, first).await).copied().collect();
        assert!(missing.is_empty(), "{case}: acknowledged and gone: {missing:?}");
        assert_eq!(system_id(&self.uri).await, self.system_id, "{case}");
        let operation = status.previous_blocking_operation.expect("an operation that has ended");
        assert!(operation.outcome.is_some(), "{case}: {operation:?}");
        let reason = status.last_failover.and_then(|last| last.reason);
        let stood = reason.as_deref() == Some(NOT_PROMOTED);
        assert!(!stood, "{case}: a member took the Lease and stood there\n{}", plane.evidence());
        if let Some(request) = request {
            let handled = &status.handled_request;
            assert!(is_answered(&self.cluster, &request), "{case}: {handled:?} is no answer to {request}");
        }
        let now = self.volumes.folders();
        let copied: BTreeSet<_> = now.keys().filter(|member| now.get(*member) != folders.get(*member)).collect();
        let needy = in_need_of_a_copy(&states, &fence(&self.mortal.client, "orders").await);
        let needless: Vec<_> = copied.iter().filter(|member| !needy.contains(**member)).collect();
        assert!(needless.is_empty(), "{case}: copied anew without need: {needless:?}\n{}", plane.evidence());
        eprintln!("{case}: died after {:?}, at rest {:?} later, copied {copied:?}", died - begun, died.elapsed());
    }

    /// Makes the controller come to the step. Whatever is asked of the plane may remain without an answer.
    async fn provoke(&mut self, cause: Cause) -> Option<String> {
        let old = primary(&self.cluster).expect("a primary");
        match cause {
            PostmasterKilled => kill_postmaster(&self.mortal.plane, &old),
            PrimaryFrozen => drop(freeze(&self.mortal.plane, &old)),
            Switchover => {
                let members = self.cluster.status.iter().flat_map(|status| &status.members);
                let to = members.map(|member| member.name.clone()).find(|member| *member != old);
                return Some(self.ask(&to.expect("a replica")).await);
            }
            ImpossibleSwitchover => return Some(self.ask(&old).await),
            StatusLost => {
                let lost = json!({"status": {"primary": null}});
                let params = PatchParams::default();
                let _ = self.mortal.clusters().patch_status("orders", &params, &Patch::Merge(lost)).await;
            }
            FirstStart => {}
        }
        None
    }

    async fn ask(&mut self, to: &str) -> String {
        self.requests += 1;
        let id = format!("request-{}", self.requests);
        let request = json!({"id": id, "to": to}).to_string();
        let patch = json!({"metadata": {"annotations": {annotations::SWITCHOVER: request}}});
        let _ = self.mortal.clusters().patch("orders", &PatchParams::default(), &Patch::Merge(patch)).await;
        id
    }

    async fn end(self) {
        let acknowledged = self.writer.stop().await;
        let missing: Vec<_> = acknowledged.difference(&rows_from(&self.uri, 0).await).copied().collect();
        assert!(missing.is_empty(), "acknowledged and gone: {missing:?}");
    }
}

fn is_answered(cluster: &DatabaseCluster, request: &str) -> bool {
    let handled = cluster.status.as_ref().and_then(|status| status.handled_request.as_deref());
    handled.is_some_and(|handled| handled.starts_with(request))
}

async fn travel(dies: Dies, wanted: impl Fn(Cause) -> bool) {
    let mut journey = Journey::begin(dies).await;
    for (step, cause) in cases(wanted) {
        for phase in Phase::ALL {
            journey.die(step, phase, cause).await;
        }
    }
    journey.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_that_is_killed_at_any_step_of_a_failover_finishes_it_when_it_is_up_again() {
    travel(Dies::Plane, |cause| matches!(cause, PostmasterKilled | PrimaryFrozen)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_that_is_killed_at_any_step_of_a_switchover_finishes_or_undoes_it_when_it_is_up_again() {
    travel(Dies::Plane, |cause| matches!(cause, Switchover | ImpossibleSwitchover | StatusLost)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_that_are_killed_at_any_step_find_their_way_again_while_the_members_go_on() {
    travel(Dies::Controllers, |cause| matches!(cause, PostmasterKilled | PrimaryFrozen | Switchover)).await;
}

/// One first start that dies at each step at each of these places, one after the other: a step that was not carried out
/// is taken again by the next plane, so that one start can die before a write and then with its answer lost.
async fn first_start(mortal: &mut Mortal, name: &str, phases: &[Phase]) {
    let mut asked = false;
    for (step, _) in cases(|cause| cause == FirstStart) {
        for phase in phases {
            let case = format!("{step}:{phase} of {name}");
            mortal.arm(step, *phase);
            if asked {
                up(&mortal.plane, &mortal.arm);
            } else {
                let file = mortal.plane.write("manifest.yaml", &manifest(name, 3, "Quorum"));
                // The plane may end before it has answered.
                mortal.plane.run(["apply", "-f", &file.display().to_string()]);
                asked = true;
            }
            mortal.await_death(&case).await;
        }
    }
    mortal.start();
    let cluster = at_rest(&mortal.plane, &mortal.client, name).await;
    let (status, uri) = (cluster.status.expect("a status"), uri_of(&mortal.plane, name));
    assert_eq!(status.system_id, Some(system_id(&uri).await), "{name}");
    let session = connected(&uri).await;
    session.batch_execute("create table t (n int); insert into t values (1)").await.expect("a write");
    let fence = fence(&mortal.client, name).await;
    assert!(fence.history.is_empty(), "{name}: nobody had to be promoted: {:?}", fence.history);
    mortal.plane.must(["delete", "dbc", name]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_that_is_killed_at_every_step_of_a_first_start_finishes_it_when_it_is_up_again() {
    let mut mortal = Mortal::up(Dies::Plane).await;
    first_start(&mut mortal, "first", &[Phase::BeforeWrite, Phase::AfterWriteAnswerLost]).await;
    first_start(&mut mortal, "second", &[Phase::AfterEffect]).await;
}
