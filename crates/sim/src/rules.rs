//! Safety rules that a test may switch off, to see that the world's faults and oracles would notice.

use std::fmt;

/// A rule; the first word names it in failover.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// F1: writes of the Lease are conditional on the resourceVersion they were decided on.
    F1Version,
    /// F1: only the target makes itself holder.
    F1Target,
    /// F2: at its deadline a holder's engine is killed.
    F2Deadline,
    /// F2: a holder stops before its Lease can have run out.
    F2Margin,
    /// F2: a Lease has run out only when it was watched for its whole duration.
    F2Duration,
    /// F2: the count of an observer starts anew after a gap.
    F2Gap,
    /// F2: whoever is named by a Lease that has run out counts its duration by itself.
    F2Candidate,
    /// F3: a stop sweeps until every process of the engine is gone.
    F3Sweep,
    /// F3: a container is reported terminated only when it is empty.
    F3Empty,
    /// F4: an absent pod proves nothing.
    F4AbsentPod,
    /// F4: the end of a container counts only in a status written after the raise.
    F4AfterRaise,
    /// F4: whoever can be killed is killed before another is promoted.
    F4KillFirst,
    /// F4: a fencing delete carries the resourceVersion.
    F4DeleteVersion,
    /// F5: a new agent process is not the holder.
    F5Nonce,
    /// F5: the volume's lock proves the predecessor dead.
    F5Lock,
    /// F6: a report counts only when its member has left, streams from nobody and has replayed what it has.
    F6Left,
    /// F6: only reports of this very epoch are compared.
    F6Epoch,
    /// F6: the one with the newest position is named.
    F6Newest,
    /// F7: enough members of every counting set have left.
    F7Sets,
    /// F7: |S| - k + 1 of a set have left, and not one less.
    F7Count,
    /// F7: an epoch is complete only once a marker commit was acknowledged in it.
    F7Complete,
    /// F7: an empty set is the placeholder, never an empty setting.
    F7EmptySet,
    /// F8: a weaker set is recorded before it runs.
    F8RecordFirst,
    /// F8: a stronger set runs and is proved before it is recorded.
    F8Prove,
    /// F8: a standby is named only while it streams and has caught up.
    F8CaughtUp,
    /// F9: a timeline is allotted by the Lease and never used twice.
    F9Timeline,
    /// F9: a member with an unrecorded attempt follows only after a fresh copy.
    F9FreshCopy,
    /// F10: a promotion waits for the end of the log that its predecessor released.
    F10Reach,
    /// F10: a release names the very end of the log.
    F10End,
    /// F11: clients are let in only after a renewal sent after recovery ended.
    F11Renewal,
    /// F11: sessions end before a promotion, and a server that is writable without the Lease is killed.
    F11Unexpected,
    /// F12: a log beyond the fork is rewound.
    F12Rewind,
    /// F12: a rewind waits for the source's control file.
    F12Checkpoint,
    /// F12: nothing is overwritten before it is set aside.
    F12Aside,
    /// F14: initdb needs the create-only grant of a cluster without data.
    F14Grant,
    /// F14: a store that was put back is repaired before anybody is named.
    F14Restored,
    /// F15: the leader's label goes only to the pod in `holderIdentity`.
    F15Label,
    /// F17: `lossless` is said only where it is known.
    F17Lossless,
    /// An effect comes after its intent is written.
    EffectAfterIntent,
    /// What is persisted is durable before it is acted on.
    Durable,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 40] = [
        Rule::F1Version,
        Rule::F1Target,
        Rule::F2Deadline,
        Rule::F2Margin,
        Rule::F2Duration,
        Rule::F2Gap,
        Rule::F2Candidate,
        Rule::F3Sweep,
        Rule::F3Empty,
        Rule::F4AbsentPod,
        Rule::F4AfterRaise,
        Rule::F4KillFirst,
        Rule::F4DeleteVersion,
        Rule::F5Nonce,
        Rule::F5Lock,
        Rule::F6Left,
        Rule::F6Epoch,
        Rule::F6Newest,
        Rule::F7Sets,
        Rule::F7Count,
        Rule::F7Complete,
        Rule::F7EmptySet,
        Rule::F8RecordFirst,
        Rule::F8Prove,
        Rule::F8CaughtUp,
        Rule::F9Timeline,
        Rule::F9FreshCopy,
        Rule::F10Reach,
        Rule::F10End,
        Rule::F11Renewal,
        Rule::F11Unexpected,
        Rule::F12Rewind,
        Rule::F12Checkpoint,
        Rule::F12Aside,
        Rule::F14Grant,
        Rule::F14Restored,
        Rule::F15Label,
        Rule::F17Lossless,
        Rule::EffectAfterIntent,
        Rule::Durable,
    ];

    /// The rule of a name as [`fmt::Display`] prints it.
    pub fn of_name(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|rule| rule.to_string() == name)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The rules that are off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules(u64);

impl Rules {
    /// All of these are off.
    pub fn all(rules: &[Rule]) -> Rules {
        Rules(rules.iter().fold(0, |bits, rule| bits | 1 << *rule as u32))
    }

    /// Whether `rule` is off.
    pub fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}
