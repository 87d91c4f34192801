//! What `make test` asks of the simulator: days on which something was found stay good, fresh ones are, and a seed is a
//! seed.

use coregent_sim::{CORPUS, Options, run};

/// Fresh seeds of an ordinary run of the tests; `make sim` runs more. Bounded by the first that does not come to rest, see
/// docs/simulation.md.
const FRESH: std::ops::Range<u64> = 1_000_000..1_000_075;

#[test]
fn days_on_which_something_was_found_are_good_now() {
    for entry in CORPUS {
        let report = run(entry.seed, &Options::default());
        assert!(report.violations.is_empty(), "seed {} ({}): {:?}", entry.seed, entry.name, report.violations);
    }
}

#[test]
fn on_fresh_bad_days_nothing_acknowledged_is_lost_and_everything_is_well_afterwards() {
    let bad: Vec<String> = FRESH
        .filter_map(|seed| {
            let report = run(seed, &Options::default());
            assert!(report.faults >= 50, "seed {seed} has met {} faults only", report.faults);
            assert!(report.changes >= 2 || !report.violations.is_empty(), "seed {seed}: {} changes", report.changes);
            let what = report.violations.into_iter().next()?;
            Some(format!("{what}\n  cargo run --release -p coregent-sim -- --seed {seed}"))
        })
        .collect();
    assert!(bad.is_empty(), "{} bad days:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn a_seed_gives_the_same_bytes_twice() {
    for seed in [3, 1_000_003] {
        let [first, second] = [(); 2].map(|()| run(seed, &Options { traced: true, ..Options::default() }));
        assert_eq!((first.digest, first.polls), (second.digest, second.polls));
        assert!(first.trace == second.trace, "seed {seed}: the traces differ");
        assert!(first.trace.lines().count() > 100);
    }
}
