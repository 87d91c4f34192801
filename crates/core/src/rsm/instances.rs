//! Numbers of members that have a StatefulSet each. A number is never used twice: its volume may still hold the data of
//! the member that had it (architecture.md, `memberLayout`).

/// What is known of the members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Numbers decided on before (`status.instances`).
    pub decided: Vec<i32>,
    /// The greatest number ever given (`status.lastCreatedInstanceIndex`).
    pub last_created: i32,
    /// Numbers of members that are seen, whatever the status says: it may have been lost.
    pub present: Vec<i32>,
    /// Priority of each member's role by number; members that are not in it have none.
    pub priorities: Vec<(i32, i32)>,
    /// Members wanted.
    pub wanted: usize,
    /// Numbers that are to be out of service (`spec.offlineInstances`).
    pub offline: Vec<i32>,
    /// Numbers that are out of service with their volumes kept (`status.offlineInstances`).
    pub set_aside: Vec<i32>,
}

/// Numbers to run from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// In ascending order.
    pub instances: Vec<i32>,
    /// Never less than before.
    pub last_created: i32,
    /// Numbers that are out of service and may come back, in ascending order.
    pub set_aside: Vec<i32>,
}

/// Decides on the numbers: those that are to be out of service are set aside; missing members are made up for by those
/// that were set aside and may come back, then by new ones; surplus ones go in the order in which they would be changed
/// (lowest priority first), the newest first among equals.
pub fn assign(members: &Members) -> Assignment {
    let mut instances = if members.decided.is_empty() { members.present.clone() } else { members.decided.clone() };
    instances.sort_unstable();
    instances.dedup();
    let seen = members.present.iter().chain(&members.decided).copied().max().unwrap_or(0);
    let mut last_created = members.last_created.max(seen);
    let mut set_aside: Vec<i32> = members.set_aside.iter().chain(&members.offline).copied().collect();
    // A number that was never given has no volume to keep.
    set_aside.retain(|number| *number > 0 && *number <= last_created);
    set_aside.retain(|number| members.offline.contains(number) || !instances.contains(number));
    set_aside.sort_unstable();
    set_aside.dedup();
    instances.retain(|number| !members.offline.contains(number));
    while instances.len() > members.wanted {
        let surplus = (0..instances.len()).min_by_key(|at| {
            let number = instances.get(*at).copied().unwrap_or_default();
            (priority(members, number), std::cmp::Reverse(number))
        });
        match surplus {
            Some(at) => instances.remove(at),
            None => break,
        };
    }
    while instances.len() < members.wanted {
        if let Some(at) = set_aside.iter().position(|number| !members.offline.contains(number)) {
            instances.push(set_aside.remove(at));
            continue;
        }
        // After the last number there is none: fewer members are better than one whose volume is another's.
        let Some(next) = last_created.checked_add(1) else { break };
        last_created = next;
        // One that is to be left out is passed over, and remembered like those that were taken out.
        if members.offline.contains(&next) { set_aside.push(next) } else { instances.push(next) }
    }
    instances.sort_unstable();
    set_aside.sort_unstable();
    Assignment { instances, last_created, set_aside }
}

fn priority(members: &Members, number: i32) -> i32 {
    members.priorities.iter().find(|(of, _)| *of == number).map_or(0, |(_, priority)| *priority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_members_are_numbered_from_one() {
        let first = assign(&Members { wanted: 3, ..Members::default() });
        assert_eq!(first, Assignment { instances: vec![1, 2, 3], last_created: 3, set_aside: vec![] });
    }

    #[test]
    fn a_removed_number_is_not_given_again() {
        let fewer = assign(&Members { decided: vec![1, 2, 3], last_created: 3, wanted: 2, ..Members::default() });
        assert_eq!(fewer, Assignment { instances: vec![1, 2], last_created: 3, set_aside: vec![] });
        let more = assign(&Members { decided: vec![1, 2], last_created: 3, wanted: 3, ..Members::default() });
        assert_eq!(more, Assignment { instances: vec![1, 2, 4], last_created: 4, set_aside: vec![] });
    }

    #[test]
    fn after_the_last_number_there_is_none() {
        let last = assign(&Members { decided: vec![i32::MAX - 1], wanted: 4, ..Members::default() });
        assert_eq!(
            last,
            Assignment { instances: vec![i32::MAX - 1, i32::MAX], last_created: i32::MAX, set_aside: vec![] }
        );
    }

    #[test]
    fn the_leader_stays_when_members_go() {
        let members = Members {
            decided: vec![1, 2, 3],
            last_created: 3,
            priorities: vec![(1, 8), (2, 8), (3, 32)],
            wanted: 1,
            ..Members::default()
        };
        assert_eq!(assign(&members).instances, [3]);
    }

    #[test]
    fn a_lost_status_is_made_up_for_by_what_is_seen() {
        let seen = assign(&Members { present: vec![2, 5, 4], wanted: 4, ..Members::default() });
        assert_eq!(seen, Assignment { instances: vec![2, 4, 5, 6], last_created: 6, set_aside: vec![] });
    }

    #[test]
    fn a_member_out_of_service_is_replaced_and_comes_back_before_a_new_one_is_made() {
        let taken = assign(&Members {
            decided: vec![1, 2, 3],
            last_created: 3,
            wanted: 3,
            offline: vec![2],
            ..Members::default()
        });
        assert_eq!(taken, Assignment { instances: vec![1, 3, 4], last_created: 4, set_aside: vec![2] });
        let after = |wanted, offline: &[i32]| {
            assign(&Members {
                decided: taken.instances.clone(),
                last_created: taken.last_created,
                set_aside: taken.set_aside.clone(),
                offline: offline.to_vec(),
                wanted,
                ..Members::default()
            })
        };
        assert_eq!(after(3, &[2]), taken, "nothing changes twice");
        assert_eq!(after(3, &[]), taken, "there is no place for it yet, and it is remembered");
        let back = Assignment { instances: vec![1, 2, 3, 4], last_created: 4, set_aside: vec![] };
        assert_eq!(after(4, &[]), back);
        let another = Assignment { instances: vec![1, 3, 4, 5], last_created: 5, set_aside: vec![2] };
        assert_eq!(after(4, &[2]), another);
        assert_eq!(after(2, &[2, 9]).set_aside, [2], "9 was never given");
        assert_eq!(after(4, &[2, 5]).instances, [1, 3, 4, 6], "5 is asked to be left out");
    }

    proptest! {
        #[test]
        fn numbers_only_grow_and_nothing_changes_twice(
            decided in prop::collection::btree_set(1..50i32, 0..8),
            extra in 0..20i32,
            wanted in 0..10usize,
            offline in prop::collection::vec(1..60i32, 0..4),
        ) {
            let decided: Vec<i32> = decided.into_iter().collect();
            let last = decided.iter().copied().max().unwrap_or(0) + extra;
            let members = Members { decided: decided.clone(), last_created: last, wanted, offline: offline.clone(), ..Members::default() };
            let assigned = assign(&members);
            prop_assert_eq!(assigned.instances.len(), wanted);
            prop_assert!(assigned.last_created >= last);
            prop_assert!(!assigned.instances.iter().any(|number| offline.contains(number)));
            prop_assert!(assigned.instances.iter().all(|number| decided.contains(number) || *number > last));
            let again = assign(&Members {
                decided: assigned.instances.clone(),
                last_created: assigned.last_created,
                set_aside: assigned.set_aside.clone(),
                offline: offline.clone(),
                wanted,
                ..Members::default()
            });
            prop_assert_eq!(again, assigned);
        }
    }
}
