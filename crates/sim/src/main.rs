//! `cargo run --release -p coregent-sim -- --seeds 0..100000`: see the library and docs/simulation.md.

use clap::{Parser, ValueEnum};
use coregent_sim::{Coverage, MUTATIONS, Options, Report, Rule, Rules, plan, run, shrink};
use std::process::ExitCode;
use std::time::Instant;

/// Runs bad days in virtual time and says which of them break a rule.
#[derive(Parser)]
struct Arguments {
    /// Seeds from the first, without the last: `0..100000`.
    #[arg(long, value_parser = range, default_value = "0..1000", conflicts_with = "seed")]
    seeds: (u64, u64),
    /// One seed, with a trace of who did what when.
    #[arg(long)]
    seed: Option<u64>,
    /// With `--seed`: leave out every planned fault that the violation does not need.
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// Which world; `all` are all that there are.
    #[arg(long, value_enum, default_value = "database")]
    world: World,
    /// Switch safety rules off, to see that they are missed.
    #[arg(long, value_parser = rule, value_delimiter = ',')]
    off: Vec<Rule>,
    /// For each safety rule, or for those of `--off` together, the first of `--seeds` that catches its absence.
    #[arg(long)]
    mutations: bool,
    /// Run every seed twice and compare.
    #[arg(long)]
    twice: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum World {
    Database,
    All,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parsed = text.split_once("..").and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    parsed.filter(|(first, last)| first < last).ok_or_else(|| format!("{text:?} is no range such as 0..1000"))
}

fn rule(text: &str) -> Result<Rule, String> {
    let known = || Rule::ALL.map(|rule| rule.to_string()).join(", ");
    Rule::of_name(text).ok_or_else(|| format!("no rule {text:?}; there are {}", known()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.world {
        World::Database | World::All => {}
    }
    let off = Rules::all(&arguments.off);
    let options = Options { off, ..Options::default() };
    let good = match arguments.seed {
        Some(seed) => one(seed, options, arguments.shrink),
        None if arguments.mutations && arguments.off.is_empty() => {
            MUTATIONS.iter().filter(|mutation| !mutate(mutation.off, arguments.seeds)).count() == 0
        }
        None if arguments.mutations => mutate(&arguments.off, arguments.seeds),
        None => many(arguments.seeds, &options, arguments.twice),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(seed: u64, mut options: Options, smaller: bool) -> bool {
    if smaller && let Some((kept, _)) = shrink(seed, &options) {
        options.only = Some(kept);
    }
    let report = run(seed, &Options { traced: true, ..options.clone() });
    print!("{}", report.trace);
    if let Some(kept) = &options.only {
        println!("\nof the planned faults these are needed:");
        let planned = plan(seed);
        kept.iter().filter_map(|number| planned.get(*number)).for_each(|fault| println!("  {fault}"));
    }
    println!("\n{}", line(&report));
    report.violations.iter().for_each(|what| println!("VIOLATION {what}"));
    report.violations.is_empty()
}

fn line(report: &Report) -> String {
    format!(
        "seed {}: {} faults, {} changes of primary, {} acknowledged writes in {} virtual seconds, digest {:016x}",
        report.seed,
        report.faults,
        report.changes,
        report.writes,
        report.millis / 1_000,
        report.digest
    )
}

/// How to see a seed again.
fn again(seed: u64, options: &Options) -> String {
    let off: Vec<String> =
        Rule::ALL.into_iter().filter(|rule| options.off.has(*rule)).map(|rule| rule.to_string()).collect();
    let off = if off.is_empty() { String::new() } else { format!(" --off {}", off.join(",")) };
    format!("cargo run --release -p coregent-sim -- --seed {seed}{off}")
}

fn many((first, last): (u64, u64), options: &Options, twice: bool) -> bool {
    let begun = Instant::now();
    let (mut coverage, mut bad) = (Coverage::default(), 0_u64);
    let (mut faults, mut changes) = (Vec::new(), Vec::new());
    let (mut writes, mut millis, mut said) = (0_u64, 0_u64, begun);
    let mut counting = 0_u64;
    for seed in first..last {
        let report = run(seed, options);
        if twice {
            let second = run(seed, options);
            if (second.digest, second.polls) != (report.digest, report.polls) {
                println!("seed {seed} is not the same twice");
                bad += 1;
            }
        }
        coverage.add(&report.coverage);
        counting += u64::from(report.counts());
        if report.counts() {
            faults.push(report.faults);
            changes.push(u64::from(report.changes));
        }
        writes += report.writes;
        millis += report.millis;
        if let Some(what) = report.violations.first() {
            bad += 1;
            println!("seed {seed}: {what}\n  {}", again(seed, options));
        }
        if said.elapsed().as_secs() >= 30 {
            said = Instant::now();
            println!(
                "{} of {} seeds, {bad} bad, {:.0} s",
                seed - first + 1,
                last - first,
                begun.elapsed().as_secs_f64()
            );
        }
    }
    let count = last - first;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!("\n{}", coverage.table());
    let never = coverage.never();
    println!("\n{}", if never.is_empty() { "every step has met everything that may wait for it" } else { &never });
    println!("{} different pairs of a step and a fault\n", coverage.pairs());
    println!("{writes} acknowledged writes in {} virtual hours", millis / 3_600_000);
    println!("{count} seeds in {minutes:.1} minutes ({:.0} a minute), {bad} bad", count as f64 / minutes);
    println!(
        "{counting} of them count: at least 50 faults and 2 completed changes ({:.0} a minute)",
        counting as f64 / minutes
    );
    println!("of these, faults: {}; completed changes of primary: {}", spread(&mut faults), spread(&mut changes));
    bad == 0
}

fn spread(values: &mut [u64]) -> String {
    values.sort_unstable();
    let median = values.get(values.len() / 2).copied().unwrap_or_default();
    format!("at least {}, median {median}", values.first().copied().unwrap_or_default())
}

/// These rules are off until a seed notices: by a broken promise, or, where there is none, by the lack of progress, provided
/// that the same seed is good with all rules on.
fn mutate(off: &[Rule], (first, last): (u64, u64)) -> bool {
    let options = Options { off: Rules::all(off), ..Options::default() };
    let name = off.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ");
    let begun = Instant::now();
    let mut stuck = None;
    for seed in first..last {
        let report = run(seed, &options);
        let good = || run(seed, &Options::default()).violations.is_empty();
        if let Some(what) = report.broken().filter(|_| good()) {
            println!("| {name} | {seed} | {what} |");
            return true;
        }
        if stuck.is_none()
            && let Some(what) = report.violations.first().filter(|_| good())
        {
            println!("{name} has been missed at {seed} already: {what}");
            stuck = Some((seed, what.clone()));
        }
    }
    match &stuck {
        Some((seed, what)) => println!("| {name} | {seed} | {what} |"),
        None => println!("| {name} | not within {first}..{last} | ({:.0} s) |", begun.elapsed().as_secs_f64()),
    }
    stuck.is_some()
}
