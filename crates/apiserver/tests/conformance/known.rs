//! The differences that are known, and why they are there.

use serde::Deserialize;

use crate::compare::Difference;
use crate::folder;

/// `known.yaml`.
#[derive(Deserialize)]
pub struct Known {
    known: Vec<Entry>,
}

/// Differences with one reason.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The reason, as CONFORMANCE.md gives it.
    pub why: String,
    /// Whether this is something that is not served at all.
    #[serde(default)]
    pub not_served: bool,
    /// Scenario, step and path; `*` stands for anything.
    pub at: Vec<String>,
}

impl Known {
    pub fn read() -> Self {
        let text = std::fs::read_to_string(folder().join("known.yaml")).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    }

    /// The entry that explains a difference.
    pub fn why(&self, difference: &Difference) -> Option<&Entry> {
        self.known.iter().find(|entry| entry.at.iter().any(|pattern| matches(pattern, &difference.at)))
    }

    pub fn entries(&self) -> &[Entry] {
        &self.known
    }

    /// Patterns that no difference meets.
    pub fn stale(&self, differences: &[&Difference]) -> Vec<String> {
        let patterns = self.known.iter().flat_map(|entry| &entry.at);
        patterns.filter(|pattern| !differences.iter().any(|one| matches(pattern, &one.at))).cloned().collect()
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| matches(after, &rest[at..]))
        }),
    }
}

#[test]
fn a_pattern_matches_the_whole_path() {
    assert!(matches("crud/*/body/a", "crud/create/body/a"));
    assert!(matches("*[order]", "discovery/apps/body/resources[order]"));
    assert!(!matches("crud/*/body/a", "crud/create/body/ab"));
    assert!(!matches("crud", "crud/create"));
}
