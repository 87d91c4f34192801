//! The rules that can be switched off, and by what the model does so.

/// A rule of failover.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    Cas,
    StopNewEpoch,
    Deadline,
    Observer,
    Gap,
    Candidate,
    PidNamespace,
    Sweep,
    Proof,
    KillFirst,
    Nonce,
    SameEpoch,
    Leave,
    LeaveDurable,
    Stamp,
    Newest,
    FenceCount,
    CountAttempted,
    Done,
    NamesInForce,
    EmptySet,
    RecordFirst,
    ApiWeaken,
    Adopt,
    Marker,
    DegradedEndsFence,
    Attempt,
    Ancestry,
    Allotted,
    ConnectionEpoch,
    DeleteStamp,
    RenewedOpen,
}

impl Rule {
    /// Each with its name, its place in failover.md, and how the model switches it off.
    pub(super) const ALL: [(Rule, &'static str, &'static str); 32] = [
        (Rule::Cas, "cas", "F1: a write of the Lease that was decided earlier lands on whatever stands there"),
        (Rule::StopNewEpoch, "stop_new_epoch", "F1: a holder that sees a newer epoch is shown to the core as stopped"),
        (Rule::Deadline, "kill_deadline", "F2: a holder never sees its deadline pass"),
        (Rule::Observer, "observer", "F2: observers call the Lease expired while its holder renews"),
        (
            Rule::Gap,
            "gap",
            "F2: a controller counts on through a gap, and calls the Lease expired while its holder renews",
        ),
        (Rule::Candidate, "candidate", "F2: whoever is named by an expired Lease does not count its duration itself"),
        (Rule::PidNamespace, "pidns", "F3: an agent's death leaves its backends"),
        (Rule::Sweep, "sweep", "F3: a server that ended is not swept"),
        (Rule::Proof, "proof", "F4: a node that does not answer counts as a container that ended"),
        (Rule::KillFirst, "kill_first", "F4: the old holder's node is shown to the core as not answering"),
        (Rule::Nonce, "nonce", "F5: a new agent has its predecessor's identity and takes itself for the holder"),
        (Rule::SameEpoch, "same_epoch", "F5: the epoch at the start of an agent is shown as the Lease's"),
        (Rule::Leave, "leave", "F6: a member that leaves keeps its receiver and says that it has none"),
        (Rule::LeaveDurable, "leave_durable", "F6: the epoch that a member left for is lost with its agent"),
        (Rule::Stamp, "stamp", "F6: a report of an older epoch is shown as one of this"),
        (Rule::Newest, "newest", "F6: all positions are shown as the shortest"),
        (Rule::FenceCount, "fence_count", "F7: one member fewer is enough (k is shown one greater)"),
        (Rule::CountAttempted, "attempted_sets", "F7: sets of epochs without a win are hidden"),
        (Rule::Done, "x_done", "F7: an epoch that is won is shown as complete"),
        (Rule::NamesInForce, "inforce", "F7: a promotion puts no names in force"),
        (Rule::EmptySet, "x_empty_s", "F7: an empty set is put in force as an empty setting"),
        (Rule::RecordFirst, "record_first", "F8: weaker names run before they are recorded"),
        (Rule::ApiWeaken, "api_weaken", "F8: a holder cut off from the API empties its names by itself"),
        (Rule::Adopt, "adopt", "F8: names count as proved before every backend has adopted them"),
        (Rule::Marker, "marker", "F8: names count as proved without a marker commit"),
        (Rule::DegradedEndsFence, "deg_ends_fence", "F8: a degraded record is shown as one that is not"),
        (Rule::Attempt, "attempt", "F9: the attempt in the volume is hidden"),
        (Rule::Ancestry, "ancestry", "F9: the holder's chain is shown as the member's own where the numbers agree"),
        (Rule::Allotted, "allotted", "F9: a promotion takes the next number of its own history"),
        (Rule::ConnectionEpoch, "x_conn_epoch", "F6: a stream of an older epoch is admitted"),
        (Rule::DeleteStamp, "x_del_stamp", "F4: a fencing delete carries the uid alone"),
        (Rule::RenewedOpen, "deadline_promote", "F11: every renewal counts as sent after recovery"),
    ];

    /// The rule of that name.
    pub(super) fn named(name: &str) -> Option<Rule> {
        Rule::ALL.iter().find(|(_, known, _)| *known == name).map(|(rule, ..)| *rule)
    }
}

/// Which rules are off.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Off(u64);

impl Off {
    pub(super) const fn none() -> Off {
        Off(0)
    }

    pub(super) fn with(self, rule: Rule) -> Off {
        Off(self.0 | 1 << rule as u64)
    }

    pub(super) fn on(self, rule: Rule) -> bool {
        self.0 & 1 << rule as u64 == 0
    }
}
