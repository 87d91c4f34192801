//! Look, decide, act, and again until there is nothing to do.

use super::{DURATION, Run};
use crate::rules::{Rule, Rules};
use crate::world::{CLUSTER, Failure, MS};
use coregent_core::failover::{Cluster, Decision, Holder, Lease, LeaseView, Member, Mode, Pod, Step, World, decide};
use coregent_core::fence::Fence;
use coregent_core::names::{MemberName, Monotonic};
use std::collections::BTreeMap;
use std::rc::Rc;

/// First and longest wait after a failure, milliseconds.
const RETRY: (u64, u64) = (50, 10_000);
/// Looks at the cluster at least so often.
const RESYNC: u64 = 300_000;
/// Rounds in one go.
const ROUNDS: usize = 64;
/// While a primary is being changed the picture is drawn at most so often.
const PICTURE_PAUSE: u64 = 250;

/// What is remembered between two looks.
#[derive(Default)]
struct Held {
    facts: BTreeMap<String, Monotonic>,
    step: Option<(String, Monotonic)>,
    picture_at: Option<u64>,
    diagnostics: Vec<String>,
}

/// What a step was decided on.
pub(super) struct View {
    pub(super) world: World,
    pub(super) cluster_version: u64,
    pub(super) lease_version: Option<u64>,
}

/// Works until its term is over.
pub(super) async fn work(run: Rc<Run>, term: u32) {
    let mut held = Held::default();
    let mut retry = RETRY.0;
    loop {
        let seen = run.wake.version();
        if run.term.get() != term {
            return;
        }
        let wait = match reconcile(&run, &mut held, term).await {
            Ok(wait) => {
                retry = RETRY.0;
                wait
            }
            Err(failure) => {
                run.world.note(&run.identity, || format!("a step failed: {failure:?}"));
                let wait = retry;
                retry = (retry * 2).min(RETRY.1);
                wait
            }
        };
        let _ = run.world.within(wait * MS, run.wake.since(seen)).await;
    }
}

async fn reconcile(run: &Rc<Run>, held: &mut Held, term: u32) -> Result<u64, Failure> {
    for _ in 0..ROUNDS {
        if run.term.get() != term {
            return Ok(RESYNC);
        }
        let Some(view) = view(run, held) else { return Ok(RESYNC) };
        let decision = decide(&view.world);
        remember_facts(held, &view.world, &decision);
        run.world.check_decision(&view.world, &decision);
        if held.diagnostics != decision.diagnostics {
            held.diagnostics.clone_from(&decision.diagnostics);
            run.world.note(&run.identity, || format!("says: {}", decision.diagnostics.join("; ")));
        }
        if decision.steps.is_empty() {
            return rest(run, held, &view, &decision).await;
        }
        match run.act(&view, &decision).await {
            Ok(()) => {
                for event in &decision.events {
                    run.world.note(&run.identity, || format!("event {}: {}", event.reason, event.note));
                }
            }
            Err(Failure::Refused(_)) => run.world.sleep(2 * MS).await,
            Err(failure) => return Err(failure),
        }
    }
    // Its cache is behind, and nothing that it may read brings it forward: production waits as well.
    run.world.note(&run.identity, || format!("{ROUNDS} decisions in a row have not come to rest"));
    Ok(RETRY.1)
}

fn remember_facts(held: &mut Held, world: &World, decision: &Decision) {
    held.facts.retain(|fact, _| decision.holding.contains(fact));
    for fact in &decision.holding {
        held.facts.entry(fact.clone()).or_insert(world.now);
    }
}

/// Nothing is urgent: the picture for people.
async fn rest(run: &Rc<Run>, held: &mut Held, view: &View, decision: &Decision) -> Result<u64, Failure> {
    let wait = decision.requeue_after.map_or(RESYNC, |again| again.min(RESYNC));
    let drawn = run.cache.borrow().cluster.as_ref().and_then(|cluster| cluster.picture.clone());
    if drawn.as_deref() == Some(&decision.picture) {
        return Ok(wait);
    }
    let busy = view.world.memory.operations.step().is_some_and(|step| step.is_change_of_primary());
    let now = run.world.now() / 1_000;
    if let Some(at) = held.picture_at.filter(|at| busy && now - at < PICTURE_PAUSE) {
        return Ok(wait.min(PICTURE_PAUSE - (now - at)));
    }
    held.picture_at = Some(now);
    let drawn = run.world.within(super::act::ANSWER, run.write_status(view, decision, "status.picture")).await;
    match drawn.unwrap_or(Err(Failure::Unavailable)) {
        Ok(()) => Ok(wait),
        Err(Failure::Refused(_)) => Ok(5),
        Err(failure) => Err(failure),
    }
}

/// The world of the cluster as the cache has it.
fn view(run: &Rc<Run>, held: &mut Held) -> Option<View> {
    let now = run.world.clock(run.place);
    let cache = run.cache.borrow();
    if !cache.is_complete() {
        return None;
    }
    let cluster = cache.cluster.clone()?;
    let rest = cache.rest.clone().unwrap_or_default();
    let setup = &run.world.setup;
    let memory = cluster.memory.clone();
    let step = memory.operations.active.as_ref().map(|active| format!("{} {}", active.id, active.started_at));
    let step_seen = seen_since(held, step, now);
    let k = if setup.quorum && setup.members > 1 { 1 } else { 0 };
    let world = World {
        now,
        wall: run.world.wall(run.place),
        cluster: Cluster {
            name: CLUSTER.to_owned(),
            replicas: u32::try_from(setup.members).unwrap_or(1),
            mode: if k > 0 { Mode::Quorum } else { Mode::Async },
            k,
            failover_disabled: false,
            delay: setup.delay,
            max_lag: setup.max_lag,
            paused: false,
            deleting: false,
            waits_for: Vec::new(),
            base_config: cluster.base_config,
            switchover: cluster.switchover.clone(),
            lease_duration: if run.world.is_off(Rule::F2Duration) { 2_000 } else { DURATION },
        },
        memory,
        step_seen,
        lease: cache.lease.as_ref().map_or(LeaseView::Absent, lease_view),
        grant: cache.grant.clone(),
        members: members(&cache, &rest),
        instances: rest.instances.clone(),
        terminated: cache.terminated.clone(),
        held: held.facts.clone(),
    };
    let lease_version = cache.lease.as_ref().map(|tracked| tracked.lease.version);
    drop(cache);
    let world = forged(run.world.off, world);
    Some(View { world, cluster_version: cluster.version, lease_version })
}

fn seen_since(held: &mut Held, step: Option<String>, now: Monotonic) -> Monotonic {
    match (step, &held.step) {
        (Some(step), Some((known, since))) if *known == step => *since,
        (Some(step), _) => {
            held.step = Some((step, now));
            now
        }
        (None, _) => {
            held.step = None;
            now
        }
    }
}

fn lease_view(tracked: &super::cache::Tracked) -> LeaseView {
    let lease = &tracked.lease;
    let holder = match lease.holder.parse() {
        _ if lease.holder.is_empty() => Holder::Nobody,
        Ok(identity) => Holder::Member(identity),
        Err(_) => Holder::Stranger(lease.holder.clone()),
    };
    LeaseView::Present(Box::new(Lease {
        version: lease.version.to_string(),
        epoch: lease.epoch,
        holder,
        fence: Fence::clone(&lease.fence),
        unchanged_since: tracked.renewed,
        epoch_since: tracked.epoch_since,
        raised_at: tracked.epoch_version,
    }))
}

fn members(cache: &super::cache::Cache, rest: &crate::store::RestObject) -> BTreeMap<MemberName, Member> {
    let mut members: BTreeMap<MemberName, Member> = BTreeMap::new();
    for (name, pod) in &cache.pods {
        let (running, ready) = match &pod.said {
            crate::store::Said::Running { ready, .. } => (true, *ready),
            _ => (false, false),
        };
        members.entry(name.clone()).or_default().pod = Some(Pod {
            name: format!("{name}-0"),
            uid: pod.uid.clone(),
            version: pod.version.to_string(),
            host: Some(format!("host-{}", pod.host + 1)),
            node_ready: rest.nodes.get(pod.host).copied().unwrap_or(false),
            running,
            ready,
            node_leaving: false,
            deleting: pod.deleting.is_some(),
            role: pod.role.map(|role| role.as_str().to_owned()),
            stamp: pod.stamp,
            trouble: None,
        });
    }
    for (name, heard) in &cache.reports {
        let member = members.entry(name.clone()).or_default();
        (member.report_seen, member.report_moved) = (heard.seen, heard.moved);
        member.report = Some((*heard.object.report).clone());
    }
    for name in &rest.claims {
        members.entry(name.clone()).or_default().claim = true;
    }
    for index in rest.instances.iter().flatten() {
        members.entry(MemberName::of(CLUSTER, *index)).or_default();
    }
    members
}

/// What is observed where a rule is off.
fn forged(off: Rules, mut world: World) -> World {
    if off == Rules::default() {
        return world;
    }
    let begins_anew = is_empty(&world, world.grant.as_ref());
    if let LeaseView::Present(lease) = &mut world.lease {
        if off.has(Rule::F4AfterRaise) {
            lease.raised_at = 0;
            world.terminated.values_mut().for_each(|end| end.version = u64::MAX);
        }
        if off.has(Rule::F4AbsentPod)
            && let Holder::Member(holder) = &lease.holder
            && world.members.get(&holder.member).is_none_or(|member| {
                member.pod.as_ref().is_none_or(|pod| pod.uid != holder.pod_uid || pod.deleting || !pod.node_ready)
            })
        {
            let end = coregent_core::failover::Termination {
                container_id: "forged".into(),
                how: String::new(),
                version: u64::MAX,
            };
            world.terminated.insert(holder.pod_uid.clone(), end);
        }
        if off.has(Rule::F7Count) {
            for set in &mut lease.fence.sync_sets {
                // As many members are called enough as if one more acknowledgement had been waited for.
                set.k += 1;
            }
        }
        if off.has(Rule::F7Sets) {
            lease.fence.sync_sets.retain(|set| set.epoch == lease.epoch);
        }
        if off.has(Rule::F14Restored) {
            lease.fence.restored = false;
        }
        let epoch = lease.epoch;
        if off.has(Rule::F4KillFirst)
            && lease.fence.target.is_none()
            && let Holder::Member(holder) = &lease.holder
            && let Some(pod) = world.members.get_mut(&holder.member).and_then(|member| member.pod.as_mut())
        {
            // The holder's node is taken for one that does not answer.
            pod.node_ready &= pod.uid != holder.pod_uid;
        }
        if off.has(Rule::F14Grant) && lease.fence.target.is_none() && begins_anew {
            // What the cluster has is not looked at: whoever has the grant and nothing else begins anew.
            let fence = Fence { members: lease.fence.members.clone(), ..Fence::default() };
            lease.fence = fence;
            lease.holder = Holder::Nobody;
            world.memory.system_id = None;
            let reports = world.members.values_mut().filter_map(|member| member.report.as_mut());
            reports.for_each(|report| (report.position, report.system_id) = (None, None));
        }
        for member in world.members.values_mut() {
            forge_member(off, member, epoch);
        }
    }
    world
}

fn is_empty(world: &World, member: Option<&MemberName>) -> bool {
    let report = member.and_then(|member| world.members.get(member)).and_then(|member| member.report.as_ref());
    report.is_some_and(|report| report.state == coregent_core::report::MemberState::WaitingForSource)
}

fn forge_member(off: Rules, member: &mut Member, epoch: coregent_core::names::Epoch) {
    let Some(report) = &mut member.report else { return };
    if off.has(Rule::F6Epoch) && report.position.is_some() {
        report.left = Some(epoch);
    }
    if off.has(Rule::F6Newest)
        && let Some(position) = &mut report.position
    {
        position.lsn = coregent_core::lsn::Lsn(1_000);
        position.chain.clear();
    }
    if off.has(Rule::F14Restored) {
        report.epoch = report.epoch.min(epoch);
        report.left = report.left.map(|left| left.min(epoch));
        if let Some(position) = &mut report.position {
            position.chain.retain(|promotion| promotion.epoch <= epoch);
        }
    }
}

/// The steps as they are carried out where a rule is off.
pub(super) fn tampered(off: Rules, step: &Step) -> Step {
    let mut step = step.clone();
    if let Step::Name { fence, .. }
    | Step::Raise { fence, .. }
    | Step::Enrol { fence, .. }
    | Step::Prepare { fence, .. } = &mut step
    {
        if off.has(Rule::F7Count) {
            fence.sync_sets.iter_mut().for_each(|set| set.k = 1);
        }
        if let Some(target) = fence.target.as_mut().filter(|_| off.has(Rule::F10Reach)) {
            target.must_reach_lsn = None;
            target.rest_of_log = None;
        }
    }
    step
}
