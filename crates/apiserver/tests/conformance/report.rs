//! `CONFORMANCE.md`, from what the scenarios came to.

use std::fmt::Write;

use crate::known::{Entry, Known};
use crate::{Outcome, folder};

/// Checks that `CONFORMANCE.md` says what came out, or writes it if that is asked for.
pub fn check(outcomes: &[Outcome], known: &Known) {
    let path = folder().join("../../CONFORMANCE.md");
    let text = text(outcomes, known);
    if std::env::var_os("COREGENT_CONFORMANCE_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap();
    assert!(there == text, "CONFORMANCE.md is out of date: COREGENT_CONFORMANCE_UPDATE=1 writes it");
}

fn text(outcomes: &[Outcome], known: &Known) -> String {
    let mut text = std::fs::read_to_string(folder().join("preface.md")).unwrap();
    let answers: usize = outcomes.iter().map(|outcome| outcome.answers).sum();
    let differing: usize = outcomes.iter().map(different_answers).sum();
    write!(
        text,
        "\n## What was compared\n\n{answers} answers of {} scenarios; {} are equal in every byte that is not a uid, a \
         revision, a time or an address, {differing} differ in what is listed below.\n\n\
         | scenario | of what | answers | differ |\n| --- | --- | --- | --- |\n",
        outcomes.len(),
        answers - differing
    )
    .unwrap();
    for outcome in outcomes {
        let differ = match different_answers(outcome) {
            0 => String::new(),
            count => count.to_string(),
        };
        let scenario = &outcome.scenario;
        writeln!(text, "| `{}` | {} | {} | {differ} |", scenario.name, scenario.about, outcome.answers).unwrap();
    }
    text.push_str("\n## Served and different\n\n");
    entries(&mut text, known, outcomes, |entry| !entry.not_served);
    text.push_str("\n## Not served\n\n");
    entries(&mut text, known, outcomes, |entry| entry.not_served);
    text
}

fn entries(text: &mut String, known: &Known, outcomes: &[Outcome], wanted: impl Fn(&Entry) -> bool) {
    for entry in known.entries().iter().filter(|entry| wanted(entry)) {
        let explained = |outcome: &&Outcome| {
            outcome.differences.iter().any(|one| known.why(one).is_some_and(|found| std::ptr::eq(found, entry)))
        };
        let names: Vec<String> =
            outcomes.iter().filter(explained).map(|outcome| format!("`{}`", outcome.scenario.name)).collect();
        writeln!(text, "* {} ({})", entry.why.trim(), names.join(", ")).unwrap();
    }
}

/// How many answers of a scenario differ in anything.
fn different_answers(outcome: &Outcome) -> usize {
    let step = |at: &str| at.split('/').nth(1).unwrap_or_default().to_owned();
    let mut steps: Vec<String> = outcome.differences.iter().map(|one| step(&one.at)).collect();
    steps.dedup();
    steps.len()
}
