//! What `make test` asks of the simulator: days on which something was found stay good, fresh ones are, and a seed is a
//! seed.

use coregent_sim::{CORPUS, MUTATIONS, Options, Rules, run};

/// Fresh seeds of an ordinary run of the tests: always the same, so that a failure is of the change that is tested. `make sim`
/// runs others.
const FRESH: std::ops::Range<u64> = 1_000_000..1_000_300;

#[test]
fn days_on_which_something_was_found_are_good_now() {
    for entry in CORPUS {
        let report = run(entry.seed, &Options::default());
        assert!(report.violations.is_empty(), "seed {} ({}): {:?}", entry.seed, entry.name, report.violations);
    }
}

#[test]
fn on_fresh_bad_days_nothing_acknowledged_is_lost_and_everything_is_well_afterwards() {
    let mut counting = 0;
    let bad: Vec<String> = FRESH
        .filter_map(|seed| {
            let report = run(seed, &Options::default());
            counting += u64::from(report.counts());
            let what = report.violations.into_iter().next()?;
            Some(format!("{what}\n  cargo run --release -p coregent-sim -- --seed {seed}"))
        })
        .collect();
    assert!(bad.is_empty(), "{} bad days:\n{}", bad.len(), bad.join("\n"));
    let all = FRESH.end - FRESH.start;
    assert!(counting * 10 >= all * 8, "only {counting} of {all} days are bad enough to count");
}

/// Each rule in turn is off on the day that notices, and on that same day nothing is wrong while it is on.
#[test]
fn the_absence_of_a_rule_is_noticed() {
    for mutation in MUTATIONS {
        let Some(seed) = mutation.seed else { continue };
        let off = Options { off: Rules::all(mutation.off), ..Options::default() };
        assert!(!run(seed, &off).violations.is_empty(), "{:?} is not missed on day {seed}", mutation.off);
        let good = run(seed, &Options::default());
        assert!(good.violations.is_empty(), "day {seed}: {:?}", good.violations);
    }
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
