//! Roles, their priority and the order of members (rsm.md 7.1, 7.2, 4.5).

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What clients may do with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessMode {
    /// Nothing.
    None,
    /// Read.
    Readonly,
    /// Read and write.
    ReadWrite,
}

/// A role as a set declares it. Names are compared without regard to case everywhere (rsm.md 1.2, 11.9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name as declared.
    pub name: String,
    /// What clients may do.
    pub access_mode: AccessMode,
    /// Whether it counts in a majority.
    pub can_vote: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// Whether at most one member can have it.
    pub is_exclusive: bool,
}

/// Priority of a leader, whatever else it is.
pub const LEADER: i32 = 32;
/// Priority of a voter that serves writes.
pub const READ_WRITE_VOTER: i32 = 16;
/// Priority of a voter that serves reads.
pub const READONLY_VOTER: i32 = 8;
/// Priority of a voter that serves nobody.
pub const SILENT_VOTER: i32 = 4;
/// Priority of a member that does not vote.
pub const LEARNER: i32 = 2;
/// Priority of a member without a role.
pub const NO_ROLE: i32 = 1;
/// Priority of a role that is not declared.
pub const UNKNOWN_ROLE: i32 = 0;

impl Role {
    /// Whether this is the role that `name` means.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.to_lowercase() == name.to_lowercase()
    }

    /// Its priority: members of a lower one are changed first.
    pub fn priority(&self) -> i32 {
        match self {
            Role { is_leader: true, .. } => LEADER,
            Role { can_vote: false, .. } => LEARNER,
            Role { access_mode: AccessMode::ReadWrite, .. } => READ_WRITE_VOTER,
            Role { access_mode: AccessMode::Readonly, .. } => READONLY_VOTER,
            Role { access_mode: AccessMode::None, .. } => SILENT_VOTER,
        }
    }
}

/// Priority of every declared role by lower-case name, and of the empty one.
pub fn priority_map(roles: &[Role]) -> BTreeMap<String, i32> {
    let mut map = BTreeMap::from([(String::new(), NO_ROLE)]);
    map.extend(roles.iter().map(|role| (role.name.to_lowercase(), role.priority())));
    map
}

/// Priority of the role called `name`, which may be empty or not declared.
pub fn priority_of(map: &BTreeMap<String, i32>, name: &str) -> i32 {
    map.get(&name.to_lowercase()).copied().unwrap_or(UNKNOWN_ROLE)
}

/// The declared role called `name`.
pub fn find<'a>(roles: &'a [Role], name: &str) -> Option<&'a Role> {
    if name.is_empty() { None } else { roles.iter().find(|role| role.is_called(name)) }
}

/// Parent and ordinal of a pod name: `a-b-3` is number 3 of `a-b`. A name without a number has no parent and ordinal -1
/// (rsm.md 2.6).
pub fn parent_and_ordinal(name: &str) -> (&str, i64) {
    match name.rsplit_once('-') {
        Some((parent, digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_or(("", -1), |ordinal| (parent, ordinal))
        }
        _ => ("", -1),
    }
}

/// Number of a member from the name of its pod, in either layout: `bar-3` and `bar-3-0` of the set `bar` are both 3;
/// -1 for a pod that is none of the set's.
pub fn member_number(set: &str, pod: &str, one_set_per_member: bool) -> i64 {
    let member = if one_set_per_member {
        match parent_and_ordinal(pod) {
            (member, 0) => member,
            _ => return -1,
        }
    } else {
        pod
    };
    match parent_and_ordinal(member) {
        (parent, number) if parent == set => number,
        _ => -1,
    }
}

/// Order in which members are changed: the lower priority first, then the smaller number. `reverse` turns both round,
/// which is the order in which members are listed: the leader first.
pub fn compare(a: (i32, i64), b: (i32, i64), reverse: bool) -> Ordering {
    if reverse { b.cmp(&a) } else { a.cmp(&b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, access_mode: AccessMode, can_vote: bool, is_leader: bool) -> Role {
        Role { name: name.to_owned(), access_mode, can_vote, is_leader, is_exclusive: false }
    }

    /// The fixture of rsm.md 10.1.
    fn declared() -> Vec<Role> {
        vec![
            role("leader", AccessMode::ReadWrite, true, true),
            role("follower", AccessMode::Readonly, true, false),
            role("logger", AccessMode::None, true, false),
            role("learner", AccessMode::Readonly, false, false),
        ]
    }

    #[test]
    fn priorities_of_the_upstream_fixture() {
        let map = priority_map(&declared());
        let expected = [("", 1), ("follower", 8), ("leader", 32), ("learner", 2), ("logger", 4)];
        assert_eq!(map, expected.into_iter().map(|(name, priority)| (name.to_owned(), priority)).collect());
    }

    #[test]
    fn priority_does_not_depend_on_the_case_of_a_name() {
        let map = priority_map(&[role("Leader", AccessMode::ReadWrite, true, true)]);
        assert_eq!((priority_of(&map, "LEADER"), priority_of(&map, "other"), priority_of(&map, "")), (32, 0, 1));
    }

    #[test]
    fn upstream_order_of_seven_pods() {
        let map = priority_map(&declared());
        let roles = ["follower", "logger", "", "learner", "candidate", "leader", "learner"];
        let mut pods: Vec<(i32, i64)> = (0..).zip(roles).map(|(i, role)| (priority_of(&map, role), i)).collect();
        pods.sort_by(|a, b| compare(*a, *b, false));
        assert_eq!(pods.iter().map(|pod| pod.1).collect::<Vec<_>>(), [4, 2, 3, 6, 1, 0, 5]);
        pods.sort_by(|a, b| compare(*a, *b, true));
        assert_eq!(pods.iter().map(|pod| pod.1).collect::<Vec<_>>(), [5, 0, 1, 6, 3, 2, 4]);
    }

    #[test]
    fn names_are_cut_at_the_last_dash() {
        for (name, parent, ordinal) in [
            ("pod-5", "pod", 5),
            ("foo-bar", "", -1),
            ("c-az1-instances-0", "c-az1-instances", 0),
            ("5", "", -1),
            ("a-", "", -1),
            ("a-99999999999999999999", "", -1),
        ] {
            assert_eq!(parent_and_ordinal(name), (parent, ordinal), "{name}");
        }
        assert_eq!(member_number("bar", "bar-3", false), 3);
        assert_eq!(member_number("bar", "bar-3-0", true), 3);
        assert_eq!(member_number("bar", "bar-3-1", true), -1, "a member has one pod, number 0");
        assert_eq!(member_number("bar", "bar-x-3-0", true), -1);
        assert_eq!(member_number("bar-3", "bar-3-0", false), 0);
    }
}
