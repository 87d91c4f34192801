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

/// Every rule, and those that only another one still covers together with that.
pub const MUTATIONS: [Mutation; 43] = [
    Mutation { off: &[Rule::F1Version], seed: Some(1) },
    Mutation { off: &[Rule::F1Target], seed: Some(0) },
    Mutation { off: &[Rule::F2Deadline], seed: Some(833) },
    Mutation { off: &[Rule::F2Margin], seed: Some(833) },
    Mutation { off: &[Rule::F2Duration], seed: Some(178) },
    Mutation { off: &[Rule::F2Gap], seed: None },
    Mutation { off: &[Rule::F2Candidate], seed: None },
    Mutation { off: &[Rule::F3Sweep], seed: Some(9) },
    Mutation { off: &[Rule::F3Empty], seed: Some(718) },
    Mutation { off: &[Rule::F4AbsentPod], seed: Some(178) },
    Mutation { off: &[Rule::F4AfterRaise], seed: Some(178) },
    Mutation { off: &[Rule::F4KillFirst], seed: Some(639) },
    Mutation { off: &[Rule::F4DeleteVersion], seed: Some(5) },
    Mutation { off: &[Rule::F5Nonce], seed: Some(60) },
    Mutation { off: &[Rule::F5Lock], seed: Some(0) },
    Mutation { off: &[Rule::F6Left], seed: Some(488) },
    Mutation { off: &[Rule::F6Epoch], seed: Some(11) },
    Mutation { off: &[Rule::F6Newest], seed: Some(4) },
    Mutation { off: &[Rule::F7Sets], seed: Some(18) },
    Mutation { off: &[Rule::F7Count], seed: Some(18) },
    Mutation { off: &[Rule::F7Complete], seed: Some(25) },
    Mutation { off: &[Rule::F7EmptySet], seed: Some(0) },
    Mutation { off: &[Rule::F8RecordFirst], seed: Some(456) },
    Mutation { off: &[Rule::F8Prove], seed: Some(721) },
    Mutation { off: &[Rule::F8CaughtUp], seed: Some(60) },
    Mutation { off: &[Rule::F9Timeline], seed: Some(8) },
    Mutation { off: &[Rule::F9FreshCopy], seed: Some(544) },
    Mutation { off: &[Rule::F10Reach], seed: Some(16) },
    Mutation { off: &[Rule::F10End], seed: Some(11) },
    Mutation { off: &[Rule::F11Renewal], seed: Some(0) },
    Mutation { off: &[Rule::F11Unexpected], seed: Some(20) },
    Mutation { off: &[Rule::F12Rewind], seed: Some(7) },
    Mutation { off: &[Rule::F12Checkpoint], seed: Some(273) },
    Mutation { off: &[Rule::F12Aside], seed: Some(11) },
    Mutation { off: &[Rule::F14Grant], seed: Some(25) },
    Mutation { off: &[Rule::F14Restored], seed: Some(77) },
    Mutation { off: &[Rule::F15Label], seed: Some(1) },
    Mutation { off: &[Rule::F17Lossless], seed: Some(7) },
    Mutation { off: &[Rule::EffectAfterIntent], seed: Some(9) },
    Mutation { off: &[Rule::Durable], seed: Some(80) },
    Mutation { off: &[Rule::F2Deadline, Rule::F4KillFirst], seed: Some(639) },
    Mutation { off: &[Rule::F2Gap, Rule::F2Candidate], seed: Some(2701) },
    Mutation { off: &[Rule::F2Margin, Rule::F4KillFirst], seed: Some(639) },
];
