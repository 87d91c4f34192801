//! Rules that are switched off, alone or with what stands behind them, and the day that notices.

use crate::rules::Rule;

/// Rules that are off together.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// These.
    pub off: &'static [Rule],
    /// The first seed that notices, if there is one; `docs/simulation.md` says why there is none.
    pub seed: Option<u64>,
}

/// Every rule, and some of those that stand behind others.
pub const MUTATIONS: [Mutation; 45] = [
    Mutation { off: &[Rule::F1Version], seed: None },
    Mutation { off: &[Rule::F1Target], seed: None },
    Mutation { off: &[Rule::F2Deadline], seed: None },
    Mutation { off: &[Rule::F2Margin], seed: None },
    Mutation { off: &[Rule::F2Duration], seed: None },
    Mutation { off: &[Rule::F2Gap], seed: None },
    Mutation { off: &[Rule::F3Sweep], seed: None },
    Mutation { off: &[Rule::F3Empty], seed: None },
    Mutation { off: &[Rule::F4AbsentPod], seed: None },
    Mutation { off: &[Rule::F4AfterRaise], seed: None },
    Mutation { off: &[Rule::F4KillFirst], seed: None },
    Mutation { off: &[Rule::F4DeleteVersion], seed: None },
    Mutation { off: &[Rule::F5Nonce], seed: None },
    Mutation { off: &[Rule::F5Lock], seed: None },
    Mutation { off: &[Rule::F6Left], seed: None },
    Mutation { off: &[Rule::F6Epoch], seed: None },
    Mutation { off: &[Rule::F6Newest], seed: None },
    Mutation { off: &[Rule::F7Sets], seed: None },
    Mutation { off: &[Rule::F7Count], seed: None },
    Mutation { off: &[Rule::F7Complete], seed: None },
    Mutation { off: &[Rule::F7EmptySet], seed: None },
    Mutation { off: &[Rule::F8RecordFirst], seed: None },
    Mutation { off: &[Rule::F8Prove], seed: None },
    Mutation { off: &[Rule::F8CaughtUp], seed: None },
    Mutation { off: &[Rule::F9Timeline], seed: None },
    Mutation { off: &[Rule::F9FreshCopy], seed: None },
    Mutation { off: &[Rule::F10Reach], seed: None },
    Mutation { off: &[Rule::F10End], seed: None },
    Mutation { off: &[Rule::F11Renewal], seed: None },
    Mutation { off: &[Rule::F11Unexpected], seed: None },
    Mutation { off: &[Rule::F12Rewind], seed: None },
    Mutation { off: &[Rule::F12Checkpoint], seed: None },
    Mutation { off: &[Rule::F12Aside], seed: None },
    Mutation { off: &[Rule::F14Grant], seed: None },
    Mutation { off: &[Rule::F14Restored], seed: None },
    Mutation { off: &[Rule::F15Label], seed: None },
    Mutation { off: &[Rule::F17Lossless], seed: None },
    Mutation { off: &[Rule::EffectAfterIntent], seed: None },
    Mutation { off: &[Rule::Durable], seed: None },
    Mutation { off: &[Rule::F2Deadline, Rule::F4KillFirst], seed: None },
    Mutation { off: &[Rule::F2Margin, Rule::F4KillFirst], seed: None },
    Mutation { off: &[Rule::F2Duration, Rule::F4KillFirst], seed: None },
    Mutation { off: &[Rule::F4AfterRaise, Rule::F4KillFirst], seed: None },
    Mutation { off: &[Rule::F12Rewind, Rule::F12Checkpoint], seed: None },
    Mutation { off: &[Rule::F6Newest, Rule::F12Aside], seed: None },
];
