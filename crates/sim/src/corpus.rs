//! Days on which something was found. They are replayed by the tests: each must be good now.

/// A day.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name: the rule that was broken and by what.
    pub name: &'static str,
    /// Its seed. A change of what the world draws makes another day of it; what it found is then kept by the table test
    /// beside the rule that `docs/simulation.md` names.
    pub seed: u64,
}

/// Every day so far.
pub const CORPUS: [Entry; 25] = [
    Entry {
        name: "an answer to the picture of a status is lost, and the operator waits five minutes for it",
        seed: 71,
    },
    Entry { name: "an operator that waits to lead loses an answer, and nobody leads for five minutes", seed: 18 },
    Entry { name: "the newest primary loses its volume, and the other waits to be rewound from it for ever", seed: 76 },
    Entry { name: "a second round loses nothing, and its word stands over the loss of the first", seed: 178 },
    Entry { name: "a rewound server waits for ever for a source that is gone", seed: 37 },
    Entry { name: "another of those", seed: 275 },
    Entry { name: "a copy of the store misses one change of primary, and its epoch is given twice", seed: 233 },
    Entry { name: "a report is lost with the store that it was published to, and nobody says it again", seed: 93 },
    Entry { name: "commits wait for nobody when a degraded set is called whole again", seed: 74 },
    Entry { name: "writes are lost below fromLSN, on a history that had gone less far", seed: 118 },
    Entry { name: "another of those, below fromLSN", seed: 127 },
    Entry { name: "an older store is put back, with pods that are long gone", seed: 45 },
    Entry { name: "an answer from before a store was put back shields the older Lease", seed: 353 },
    Entry { name: "a folder cannot be used when an older store is put back", seed: 364 },
    Entry { name: "a volume is lost and a store is put back", seed: 141 },
    Entry { name: "an older store is put back, and whoever runs is named without what the others have", seed: 2758 },
    Entry { name: "another of those, in a repair", seed: 3059 },
    Entry { name: "the deletion of an ended pod meets another write, and its name stays taken", seed: 408 },
    Entry { name: "a standby waits for ever for an address that the primary has left", seed: 3033 },
    Entry { name: "nobody looks at a Lease again that runs out while nobody could take over", seed: 3578 },
    Entry {
        name: "a member that was being rewound keeps everybody waiting after an older store was put back",
        seed: 1031,
    },
    Entry { name: "what a node said of its pods went with the store, and it does not say it again", seed: 3922 },
    Entry { name: "another of those, of a pod whose status is the same number of changes old", seed: 1643 },
    Entry {
        name: "a primary's volume is lost while others are being rewound to it, and nobody asks for a person",
        seed: 2008,
    },
    Entry { name: "an attempt in vain hides where the lost history began, and fromLSN is too high", seed: 1448 },
];
