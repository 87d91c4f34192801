//! The failover protocol explored: every interleaving of the steps that the core's own decision functions take for three
//! members and the controllers, with faults between any two of them, within small bounds. docs/model.md says what is
//! modelled, what was found and which rule's absence is caught.
//!
//! One run of its own: `COREGENT_MODEL="faults=2 kinds=coahl epochs=3 off=sweep" cargo test -p coregent-core --test it
//! model::asked -- --nocapture`.

mod acts;
mod governs;
mod happens;
mod log;
mod mirror;
mod observe;
mod rules;
mod search;
mod state;
mod steps;

use rules::{Off, Rule};
use search::{Outcome, explore};
use steps::Bounds;

/// Bounds of which others are said as a difference.
const PLAIN: Bounds = Bounds {
    kinds: "",
    faults: 1,
    epochs: 2,
    writes: 1,
    states: usize::MAX,
    degrades: true,
    quorum: true,
    off: Off::none(),
};

/// Reads bounds such as `faults=2 kinds=coahl epochs=3 writes=1 states=1000000 block async off=sweep+adopt`.
fn bounds(text: &str) -> Result<Bounds, String> {
    let mut bounds = PLAIN;
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<usize>().map_err(|_| format!("{word}: no number"));
        let small = || value.parse::<u8>().map_err(|_| format!("{word}: no small number"));
        match key {
            "faults" => bounds.faults = small()?,
            "epochs" => bounds.epochs = small()?,
            "writes" => bounds.writes = small()?,
            "states" => bounds.states = number()?,
            "kinds" => bounds.kinds = Box::leak(value.to_owned().into_boxed_str()),
            "block" => bounds.degrades = false,
            "async" => bounds.quorum = false,
            "off" => {
                for name in value.split('+') {
                    bounds.off = bounds.off.with(Rule::named(name).ok_or(format!("{name}: no such rule"))?);
                }
            }
            _ => return Err(format!("{word}: unknown")),
        }
    }
    Ok(bounds)
}

fn told(outcome: &Outcome) -> String {
    let Outcome { states, depth, asked, whole, wrong } = outcome;
    let reached = if *whole { "all" } else { "the first" };
    let found = match wrong {
        None => "nothing is wrong".to_owned(),
        Some((what, way)) => format!("{what} in {} steps:\n  {}", way.len(), way.join("\n  ")),
    };
    format!("{reached} {states} states to depth {depth}, {asked} decisions of the core: {found}")
}

/// Every interleaving after one crash of any agent, in which a primary is deposed, fenced, replaced and taken back: nothing
/// is acknowledged twice or lost, no timeline used twice, nobody killed who was named, and a primary can be reached.
#[test]
fn nothing_is_wrong_wherever_one_agent_crashes() {
    let outcome = explore(bounds("kinds=c").unwrap());
    assert!(outcome.wrong.is_none() && outcome.whole, "{}", told(&outcome));
    assert!(outcome.states > 50_000, "{}", told(&outcome));
}

/// The beginnings of what any other single fault leads to; `make model` looks at all of it.
#[test]
fn nothing_is_wrong_soon_after_any_one_fault() {
    for fault in ["p", "o", "f", "h", "a"] {
        let outcome = explore(bounds(&format!("kinds={fault} states=15000")).unwrap());
        assert!(outcome.wrong.is_none(), "{fault}: {}", told(&outcome));
        assert!(outcome.states == 15_000, "{fault}: {}", told(&outcome));
    }
}

/// The same in async mode, where no set fences anybody: who acknowledges when, and no timeline twice.
#[test]
fn nothing_is_wrong_in_async_mode_after_any_one_fault() {
    for fault in ["c", "p", "o", "f", "h", "a"] {
        let outcome = explore(bounds(&format!("async kinds={fault}")).unwrap());
        assert!(outcome.wrong.is_none() && outcome.whole, "{fault}: {}", told(&outcome));
        assert!(outcome.states > 10_000, "{fault}: {}", told(&outcome));
    }
}

/// F2: an operator that calls every Lease expired raises and names too soon, and no more: whoever it names counts by itself.
#[test]
fn what_an_operator_counts_through_a_gap_harms_nobody() {
    for mode in ["async kinds=a", "async kinds=c", "kinds=a"] {
        let outcome = explore(bounds(&format!("{mode} states=25000 off=gap")).unwrap());
        assert!(outcome.wrong.is_none() && outcome.states == 25_000, "{mode}: {}", told(&outcome));
    }
}

/// Rules whose absence is found within seconds, with the bounds within which it is and what is found.
const FOUND: [(&str, &str, &str); 10] = [
    ("gap+candidate", "async kinds=a", "S1"),
    ("kill_deadline", "async kinds=a", "S1"),
    ("kill_first", "async kinds=f", "S1"),
    ("proof", "async kinds=a", "S1"),
    ("pidns", "async kinds=c", "S1"),
    ("cas", "kinds=c", "S4"),
    ("x_del_stamp", "kinds=c", "S4"),
    ("sweep", "kinds=p", "S2"),
    ("api_weaken", "kinds=a", "S2"),
    ("fence_count", "kinds=o", "S2"),
];

/// A model that finds nothing when a rule is missing would find nothing in the core either.
#[test]
fn a_rule_that_is_missing_is_found() {
    for (rule, within, what) in FOUND {
        let outcome = explore(bounds(&format!("{within} states=100000 off={rule}")).unwrap());
        let found = outcome.wrong.as_ref().is_some_and(|(wrong, _)| wrong.starts_with(what));
        assert!(found, "{rule}: {}", told(&outcome));
    }
}

/// What `make model` looks at.
const LONG: [&str; 9] = [
    "kinds=p",
    "kinds=o",
    "kinds=f",
    "kinds=h",
    "kinds=a",
    "faults=2 kinds=l",
    "faults=2 kinds=cn",
    "faults=2 kinds=coahlpfn states=4000000",
    "faults=2 kinds=c epochs=3 states=4000000",
];

/// What the environment asks for: bounds, several with `;` between them, or `long`.
#[test]
fn asked() {
    let Some(text) = crate::asked::<String>("COREGENT_MODEL") else { return };
    let runs: Vec<String> = if text == "long" {
        let rules =
            Rule::ALL.iter().map(|(_, name, _)| format!("faults=2 kinds=coahlpf epochs=3 states=1000000 off={name}"));
        LONG.iter().map(ToString::to_string).chain(rules).collect()
    } else {
        text.split(';').map(ToOwned::to_owned).collect()
    };
    let mut wrong = 0;
    for run in runs {
        let outcome = explore(bounds(&run).unwrap());
        println!("{run}: {}", told(&outcome));
        wrong += usize::from(outcome.wrong.is_some() && !run.contains("off="));
    }
    assert_eq!(wrong, 0, "see above");
}
