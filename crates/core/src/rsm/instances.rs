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
}

/// Numbers to run from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// In ascending order.
    pub instances: Vec<i32>,
    /// Never less than before.
    pub last_created: i32,
}

/// Decides on the numbers: missing members get new ones, surplus ones go in the order in which they would be changed
/// (lowest priority first), the newest first among equals.
pub fn assign(members: &Members) -> Assignment {
    let mut instances = if members.decided.is_empty() { members.present.clone() } else { members.decided.clone() };
    instances.sort_unstable();
    instances.dedup();
    let seen = members.present.iter().chain(&members.decided).copied().max().unwrap_or(0);
    let mut last_created = members.last_created.max(seen);
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
        // After the last number there is none: fewer members are better than one whose volume is another's.
        let Some(next) = last_created.checked_add(1) else { break };
        last_created = next;
        instances.push(next);
    }
    Assignment { instances, last_created }
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
        assert_eq!(first, Assignment { instances: vec![1, 2, 3], last_created: 3 });
    }

    #[test]
    fn a_removed_number_is_not_given_again() {
        let fewer = assign(&Members { decided: vec![1, 2, 3], last_created: 3, wanted: 2, ..Members::default() });
        assert_eq!(fewer, Assignment { instances: vec![1, 2], last_created: 3 });
        let more = assign(&Members { decided: vec![1, 2], last_created: 3, wanted: 3, ..Members::default() });
        assert_eq!(more, Assignment { instances: vec![1, 2, 4], last_created: 4 });
    }

    #[test]
    fn after_the_last_number_there_is_none() {
        let last = assign(&Members { decided: vec![i32::MAX - 1], wanted: 4, ..Members::default() });
        assert_eq!(last, Assignment { instances: vec![i32::MAX - 1, i32::MAX], last_created: i32::MAX });
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
        assert_eq!(seen, Assignment { instances: vec![2, 4, 5, 6], last_created: 6 });
    }

    proptest! {
        #[test]
        fn numbers_only_grow_and_nothing_changes_twice(
            decided in prop::collection::btree_set(1..50i32, 0..8),
            extra in 0..20i32,
            wanted in 0..10usize,
        ) {
            let decided: Vec<i32> = decided.into_iter().collect();
            let last = decided.iter().copied().max().unwrap_or(0) + extra;
            let members = Members { decided: decided.clone(), last_created: last, wanted, ..Members::default() };
            let assigned = assign(&members);
            prop_assert_eq!(assigned.instances.len(), wanted);
            prop_assert!(assigned.last_created >= last);
            prop_assert!(assigned.instances.iter().all(|number| decided.contains(number) || *number > last));
            let again = assign(&Members {
                decided: assigned.instances.clone(), last_created: assigned.last_created, wanted, ..Members::default()
            });
            prop_assert_eq!(again, assigned);
        }
    }
}
