//! F7, F8: record and names in force.

use super::*;

struct Case {
    recorded: &'static [u32],
    complete: bool,
    names: Names,
    proved: bool,
    streaming: &'static [u32],
    sync: &'static [u32],
}

fn any(indexes: &[u32]) -> Names {
    Names::Any { k: 1, members: names(indexes) }
}

fn primary(case: &Case) -> World {
    let mut fence = fence(Some(target(1, Proof::Bootstrap)));
    fence.sync_sets = vec![SyncSet {
        epoch: Epoch(1),
        k: 1,
        members: names(case.recorded),
        primary: Some(MemberName::of("orders", 1)),
        complete: case.complete,
        degraded: false,
    }];
    let mut world = holding(1, lease(1, Some(1), fence));
    let seen = |index: &u32| {
        let sync = case.sync.contains(index);
        (MemberName::of("orders", *index), StandbySeen { caught_up: true, sync, seen: NOW })
    };
    world.engine = Engine::Writable(Writable {
        since: Monotonic(10_000),
        names: case.names.clone(),
        proved: case.proved,
        slots: names(&[2, 3]),
        standbys: case.streaming.iter().map(seen).collect(),
        ..writable(100, &[])
    });
    world
}

fn recorded(world: &World) -> Option<(BTreeSet<MemberName>, bool)> {
    let write = write(world)?;
    write.fence.sync_sets.last().map(|set| (set.members.clone(), set.complete))
}

#[test]
fn f8_a_name_is_recorded_before_it_is_in_force() {
    let case =
        Case { recorded: &[], complete: false, names: Names::Placeholder, proved: false, streaming: &[2], sync: &[] };
    let world = primary(&case);
    assert_eq!(recorded(&world), Some((names(&[2]), false)));
    assert_eq!(job(&world), None);
    assert_eq!(job(&primary(&Case { recorded: &[2], ..case })), Some(Job::SetNames(any(&[2]))));
}

#[test]
fn f7_an_epoch_is_complete_only_after_a_marker_under_its_own_set() {
    let case = Case { recorded: &[2], complete: false, names: any(&[2]), proved: false, streaming: &[2], sync: &[2] };
    assert_eq!(job(&primary(&case)), Some(Job::Marker));
    assert_eq!(recorded(&primary(&Case { proved: true, ..case })), Some((names(&[2]), true)));
}

#[test]
fn f8_a_name_is_taken_out_of_the_record_only_after_its_absence_is_proved() {
    let case =
        Case { recorded: &[2, 3], complete: true, names: any(&[2, 3]), proved: false, streaming: &[2], sync: &[2] };
    let world = primary(&case);
    assert_eq!(job(&world), Some(Job::Strengthen(any(&[2]))));
    assert_eq!(recorded(&world), None);
    let unproved = primary(&Case { names: any(&[2]), ..case });
    assert_eq!(job(&unproved), Some(Job::Strengthen(any(&[2]))));
    let proved = primary(&Case {
        recorded: &[2, 3],
        complete: true,
        names: any(&[2]),
        proved: true,
        streaming: &[2],
        sync: &[2],
    });
    assert_eq!(recorded(&proved), Some((names(&[2]), true)));
}

#[test]
fn f8_a_second_name_that_was_recorded_meanwhile_is_put_in_force_not_taken_out_again() {
    for proved in [false, true] {
        let world = primary(&Case {
            recorded: &[2, 3],
            complete: false,
            names: any(&[2]),
            proved,
            streaming: &[2, 3],
            sync: &[2],
        });
        assert_eq!(job(&world), Some(Job::SetNames(any(&[2, 3]))));
        assert_eq!(recorded(&world), None);
    }
}

#[test]
fn f8_the_last_name_is_never_taken_out() {
    let world =
        primary(&Case { recorded: &[2], complete: true, names: any(&[2]), proved: true, streaming: &[], sync: &[] });
    assert_eq!(job(&world), None);
    assert_eq!(recorded(&world), None);
}

#[test]
fn f8_degrading_is_recorded_first_and_only_by_policy() {
    let case = Case { recorded: &[2], complete: true, names: any(&[2]), proved: true, streaming: &[], sync: &[] };
    let mut world = primary(&case);
    world.settings.when_too_few = WhenTooFew::Degrade;
    let write = write(&world);
    assert_eq!(write.map(|write| write.fence.sync_sets.iter().any(|set| set.degraded)), Some(true));
    assert_eq!(job(&world), None);
    let degraded = |world: &mut World| {
        if let Some(Ok(fence)) = world.lease.as_mut().map(|lease| lease.fence.as_mut()) {
            fence.sync_sets.iter_mut().for_each(|set| set.degraded = true);
        }
    };
    degraded(&mut world);
    assert_eq!(job(&world), Some(Job::SetNames(Names::Nobody)));
    // Back: in force and proved first, recorded afterwards.
    let mut back = primary(&Case { names: Names::Nobody, streaming: &[2], ..case });
    degraded(&mut back);
    assert_eq!(job(&back), Some(Job::Strengthen(any(&[2]))));
}

#[test]
fn f6_only_members_get_a_slot() {
    let mut world = primary(&Case {
        recorded: &[],
        complete: false,
        names: Names::Placeholder,
        proved: false,
        streaming: &[],
        sync: &[],
    });
    if let Engine::Writable(writable) = &mut world.engine {
        writable.slots = names(&[2, 9]);
    }
    assert_eq!(job(&world), Some(Job::Slots { epoch: Epoch(1), members: names(&[2, 3]) }));
}

#[test]
fn async_mode_waits_for_nobody_and_records_no_set() {
    let mut world = primary(&Case {
        recorded: &[],
        complete: false,
        names: Names::Nobody,
        proved: false,
        streaming: &[2],
        sync: &[],
    });
    world.settings.mode = Mode::Async;
    assert_eq!(decide(&world).actions, []);
}

/// What no program of ours writes: a wait for none of a set, and a set of nobody in force.
#[test]
fn f7_commits_never_wait_for_nobody_because_a_record_is_odd() {
    let none = Names::Any { k: 1, members: names(&[]) };
    let case = Case { recorded: &[2], complete: true, names: none, proved: true, streaming: &[], sync: &[] };
    let world = primary(&case);
    assert_eq!((job(&world), recorded(&world)), (Some(Job::SetNames(any(&[2]))), None));
    let mut world = primary(&Case { names: any(&[2]), ..case });
    if let Some(Ok(fence)) = world.lease.as_mut().map(|lease| lease.fence.as_mut()) {
        fence.sync_sets[0].k = 0;
    }
    assert_eq!((job(&world), recorded(&world)), (Some(Job::SetNames(Names::Placeholder)), None));
}
