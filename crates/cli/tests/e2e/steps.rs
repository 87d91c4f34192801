//! kill -9 of the plane at every step of a failover, of a switchover and of a first start (traps.md, "every step"): when
//! it is up again, what was begun is finished or undone.
//!
//! Every step that the controller knows × every place within it at which a process can end. All members end with the
//! plane, so that each case is also the loss of power at that moment.

use crate::members::{
    Volumes, at_rest, fence, freeze, in_need_of_a_copy, kill_postmaster, manifest, system_id, uri_of,
};
use crate::plane::{PATIENCE, Plane, ended, primary};
use crate::writer::{Writer, connected, rows_from};
use coregent_api::{DatabaseCluster, annotations};
use coregent_core::failover::Step;
use coregent_rsm::failpoint::{FILE_VARIABLE, Phase};
use kube::api::{Api, Patch, PatchParams};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

/// What makes the controller take a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A cluster of so many members is made.
    FirstStart(u32),
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

/// Every step, and what it is provoked by. One that can be part of both a failover and a switchover is tried in both.
const CASES: [(&str, &[Cause]); 17] = [
    ("failover.deploy-base-config", &[FirstStart(1)]),
    ("failover.write-operation", &[PostmasterKilled, Switchover]),
    ("failover.advance-operation", &[PostmasterKilled, Switchover]),
    ("failover.complete", &[PostmasterKilled, Switchover]),
    ("failover.write-index", &[FirstStart(1)]),
    ("failover.answer-request", &[ImpossibleSwitchover]),
    ("failover.write-facts", &[StatusLost]),
    ("failover.create-grant", &[FirstStart(1)]),
    ("failover.create-lease", &[FirstStart(1)]),
    ("failover.raise", &[PostmasterKilled, Switchover]),
    ("failover.name", &[FirstStart(1), PostmasterKilled, Switchover]),
    ("failover.enrol", &[FirstStart(2)]),
    ("failover.stamp", &[PostmasterKilled, Switchover]),
    ("failover.label", &[PostmasterKilled, Switchover]),
    ("failover.strip-label", &[PostmasterKilled, Switchover]),
    ("failover.fencing-delete", &[PrimaryFrozen]),
    ("failover.set-instances", &[FirstStart(2)]),
];

/// Every (step, phase, cause) of the causes that `wanted` names. A step without a case fails the test.
fn cases(wanted: impl Fn(Cause) -> bool) -> Vec<(&'static str, Phase, Cause)> {
    let mut found = Vec::new();
    for id in Step::IDS {
        let (_, causes) = CASES.iter().find(|(step, _)| *step == id).expect("a case for every step");
        assert!(!causes.is_empty(), "{id} is never tried");
        for cause in causes.iter().copied().filter(|cause| wanted(*cause)) {
            found.extend(Phase::ALL.map(|phase| (id, phase, cause)));
        }
    }
    found
}

#[test]
fn every_step_of_the_controller_has_a_case_and_every_case_is_of_a_step() {
    let of_cases: BTreeSet<_> = CASES.iter().map(|(step, _)| *step).collect();
    assert_eq!(of_cases, BTreeSet::from(Step::IDS));
    assert!(cases(|_| true).len() >= Step::IDS.len() * Phase::ALL.len());
}

/// A plane that can be told where to die.
struct Mortal {
    plane: Plane,
    client: kube::Client,
    /// Names the place at which the plane ends next.
    arm: PathBuf,
}

impl Mortal {
    async fn up() -> Mortal {
        let plane = Plane::new();
        let arm = plane.write("failpoint", "");
        start(&plane, &arm);
        Mortal { client: plane.client().await, plane, arm }
    }

    /// From now on the plane ends when it comes to the place; gives the means to await that.
    fn arm(&self, step: &str, phase: Phase) -> OwnedFd {
        let plane = Pid::from_raw(self.plane.pid()).expect("a process id");
        let plane = pidfd_open(plane, PidfdFlags::empty()).expect("the plane runs");
        // In one write, and complete before it is seen.
        let written = self.plane.write("failpoint.new", &format!("{step}:{phase}"));
        std::fs::rename(written, &self.arm).expect("the file that arms the plane");
        plane
    }

    /// Waits until the plane has ended at that place and nowhere else.
    fn await_death(&self, plane: &OwnedFd, case: &str) {
        assert!(ended(plane, Some(PATIENCE)), "{case}: the plane never came to that place\n{}", self.plane.evidence());
        assert!(!self.arm.exists(), "{case}: the plane ended elsewhere");
    }

    fn start(&self) {
        start(&self.plane, &self.arm);
    }

    fn clusters(&self) -> Api<DatabaseCluster> {
        Api::namespaced(self.client.clone(), "default")
    }
}

fn start(plane: &Plane, arm: &std::path::Path) {
    let output = plane.command(["up", "--detach"]).env(FILE_VARIABLE, arm).output().expect("the coregent binary");
    assert!(output.status.success(), "{}{}", plane.evidence(), crate::plane::text(&output.stderr));
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
    async fn begin() -> Journey {
        let mortal = Mortal::up().await;
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
        let death = self.mortal.arm(step, phase);
        let request = self.provoke(cause).await;
        self.mortal.await_death(&death, &case);
        let (died, states) = (Instant::now(), self.volumes.states());
        self.mortal.start();
        let plane = &self.mortal.plane;
        self.cluster = at_rest(plane, &self.mortal.client, "orders").await;
        let status = self.cluster.status.clone().expect("a status");
        self.writer.next_acknowledgement().await;
        let acknowledged = self.writer.acknowledged(first);
        let missing: Vec<_> = acknowledged.difference(&rows_from(&self.uri, first).await).copied().collect();
        assert!(missing.is_empty(), "{case}: acknowledged and gone: {missing:?}");
        assert_eq!(system_id(&self.uri).await, self.system_id, "{case}");
        let operation = status.previous_blocking_operation.expect("an operation that has ended");
        assert!(operation.outcome.is_some(), "{case}: {operation:?}");
        if let Some(request) = request {
            let handled = status.handled_request.unwrap_or_default();
            assert!(handled.starts_with(&request), "{case}: {handled:?} is no answer to {request}");
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
            FirstStart(_) => {}
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

async fn travel(wanted: impl Fn(Cause) -> bool) {
    let mut journey = Journey::begin().await;
    for (step, phase, cause) in cases(wanted) {
        journey.die(step, phase, cause).await;
    }
    journey.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_that_is_killed_at_any_step_of_a_failover_finishes_it_when_it_is_up_again() {
    travel(|cause| matches!(cause, PostmasterKilled | PrimaryFrozen)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_that_is_killed_at_any_step_of_a_switchover_finishes_or_undoes_it_when_it_is_up_again() {
    travel(|cause| matches!(cause, Switchover | ImpossibleSwitchover | StatusLost)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plane_that_is_killed_at_any_step_of_a_first_start_finishes_it_when_it_is_up_again() {
    let mortal = Mortal::up().await;
    for (number, (step, phase, cause)) in cases(|cause| matches!(cause, FirstStart(_))).into_iter().enumerate() {
        let FirstStart(replicas) = cause else { continue };
        let (case, name) = (format!("{step}:{phase} in {cause:?}"), format!("first-{number}"));
        let death = mortal.arm(step, phase);
        let file = mortal.plane.write("manifest.yaml", &manifest(&name, replicas, "Quorum"));
        // The plane may end before it has answered.
        mortal.plane.run(["apply", "-f", &file.display().to_string()]);
        mortal.await_death(&death, &case);
        mortal.start();
        let cluster = at_rest(&mortal.plane, &mortal.client, &name).await;
        let (status, uri) = (cluster.status.expect("a status"), uri_of(&mortal.plane, &name));
        assert_eq!(status.system_id, Some(system_id(&uri).await), "{case}");
        let session = connected(&uri).await;
        session.batch_execute("create table t (n int); insert into t values (1)").await.expect("a write");
        let fence = fence(&mortal.client, &name).await;
        assert!(fence.history.is_empty(), "{case}: nobody had to be promoted: {:?}", fence.history);
        mortal.plane.must(["delete", "dbc", &name]);
    }
}
