//! Where two answers differ.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::run::Exchange;

/// One value that is not the same.
pub struct Difference {
    /// Scenario, step and the path in the answer.
    pub at: String,
    pub real: Option<Value>,
    pub embedded: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
        write!(f, "{}\n    real:     {}\n    embedded: {}", self.at, text(&self.real), text(&self.embedded))
    }
}

/// The differences between two runs of a scenario.
pub fn exchanges(scenario: &str, real: &[Exchange], embedded: &[Exchange]) -> Vec<Difference> {
    let mut found = Vec::new();
    for (real, embedded) in real.iter().zip(embedded) {
        let at = format!("{scenario}/{}", embedded.step);
        // Answers of different kinds have nothing in common worth listing.
        if real.answer["status"] == embedded.answer["status"] {
            values(&at, Some(&real.answer), Some(&embedded.answer), &mut found);
        } else {
            let (real, embedded) = (Some(real.answer.clone()), Some(embedded.answer.clone()));
            found.push(Difference { at: format!("{at}/status"), real, embedded });
        }
    }
    found
}

fn values(at: &str, real: Option<&Value>, embedded: Option<&Value>, found: &mut Vec<Difference>) {
    match (real, embedded) {
        (Some(Value::Object(one)), Some(Value::Object(two))) => {
            let keys: BTreeSet<&String> = one.keys().chain(two.keys()).collect();
            for key in keys {
                values(&format!("{at}/{}", escaped(key)), one.get(key), two.get(key), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(two))) => lists(at, one, two, found),
        (one, two) if one == two => {}
        (one, two) => found.push(Difference { at: at.to_owned(), real: one.cloned(), embedded: two.cloned() }),
    }
}

/// Items with names are compared name by name, others place by place.
fn lists(at: &str, one: &[Value], two: &[Value], found: &mut Vec<Difference>) {
    let keys: Option<Vec<String>> = one.iter().chain(two).map(|item| key(item).map(str::to_owned)).collect();
    let unique = |list: &[Value]| list.iter().map(key).collect::<BTreeSet<_>>().len() == list.len();
    if let Some(keys) = keys.filter(|_| unique(one) && unique(two)) {
        for name in keys.into_iter().collect::<BTreeSet<_>>() {
            let named = |list: &[Value]| list.iter().find(|item| key(item) == Some(&*name)).cloned();
            values(&format!("{at}[{name}]"), named(one).as_ref(), named(two).as_ref(), found);
        }
        let order = |list: &[Value], other: &[Value]| -> Vec<String> {
            let both = |item: &&Value| other.iter().any(|one| key(one) == key(item));
            list.iter().filter(both).filter_map(key).map(str::to_owned).collect()
        };
        let (first, second) = (order(one, two), order(two, one));
        if first != second {
            let (real, embedded) = (Some(first.into()), Some(second.into()));
            found.push(Difference { at: format!("{at}[order]"), real, embedded });
        }
        return;
    }
    for index in 0..one.len().max(two.len()) {
        values(&format!("{at}[{index}]"), one.get(index), two.get(index), found);
    }
}

/// What an item of a list is called.
fn key(item: &Value) -> Option<&str> {
    item["name"].as_str().or_else(|| item["groupVersion"].as_str())
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
