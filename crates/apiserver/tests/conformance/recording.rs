//! The files of what a real server answered.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::folder;
use crate::run::Exchange;
use crate::scenario::Scenario;

#[derive(Deserialize)]
struct Line {
    step: String,
    request: Value,
    answer: Value,
}

fn path(scenario: &Scenario) -> PathBuf {
    folder().join("recorded").join(format!("{}.json", scenario.name))
}

/// One line for each request and each answer: small, and a change of one answer is a change of one line.
pub fn write(scenario: &Scenario, exchanges: &[Exchange]) {
    let vain = exchanges.iter().find(|exchange| exchange.answer.get("waited").is_some());
    assert!(vain.is_none(), "{}/{}: waited in vain", scenario.name, vain.map_or("", |exchange| &exchange.step));
    let mut text = String::from("[");
    for (index, exchange) in exchanges.iter().enumerate() {
        let Exchange { step, request, answer } = exchange;
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\n{{\"step\": {},\n \"request\": {request},\n \"answer\": {answer}}}", json!(step))
            .unwrap();
    }
    text.push_str("\n]\n");
    std::fs::write(path(scenario), text).unwrap();
}

/// What was recorded of a scenario, which must be of the requests that it has now.
pub fn read(scenario: &Scenario) -> Vec<Exchange> {
    let lines = lines(scenario);
    let now: Vec<(String, Value)> = scenario
        .steps
        .iter()
        .filter(|step| !step.silent)
        .map(|step| (step.label.clone(), crate::run::described(step)))
        .collect();
    let then: Vec<(String, Value)> = lines.iter().map(|line| (line.step.clone(), line.request.clone())).collect();
    assert_eq!(now, then, "{} has changed since it was recorded; {ADVICE}", scenario.name);
    lines
}

const ADVICE: &str = "record it: COREGENT_CONFORMANCE_KUBECONFIG=$(dev/kubernetes/api)";

/// What was recorded of a scenario.
pub fn lines(scenario: &Scenario) -> Vec<Exchange> {
    let path = path(scenario);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}; {ADVICE}", path.display()));
    let lines: Vec<Line> = serde_json::from_str(&text).unwrap();
    let exchange = |Line { step, request, answer }| Exchange { step, request, answer };
    lines.into_iter().map(exchange).collect()
}
