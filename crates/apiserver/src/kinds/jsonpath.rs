//! The subset of JSONPath that printer columns, scale paths and selectable fields use:
//! `.a.b`, `['a.b']`, `a\.b`, `[0]`, `[*]`, `[?(@.type=="Ready")]`.

use serde_json::Value;

/// The first value at `path`, if any.
pub(crate) fn first<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    all(value, path).into_iter().next()
}

/// Every value at `path`.
pub(crate) fn all<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    let path = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    let mut found = vec![value];
    for step in steps(path) {
        found = found.into_iter().flat_map(|value| step.walk(value)).collect();
    }
    found
}

enum Step {
    Field(String),
    Index(i64),
    Every,
    Where { path: String, equals: String },
}

impl Step {
    fn walk<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Index(index) => {
                let Some(items) = value.as_array() else { return Vec::new() };
                let at = if *index < 0 { items.len() as i64 + index } else { *index };
                usize::try_from(at).ok().and_then(|at| items.get(at)).into_iter().collect()
            }
            Step::Every => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Step::Where { path, equals } => {
                let matches = |item: &&Value| first(item, path).is_some_and(|found| text(found) == *equals);
                value.as_array().map(|items| items.iter().filter(matches).collect()).unwrap_or_default()
            }
        }
    }
}

fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut chars = path.chars().peekable();
    while let Some(&next) = chars.peek() {
        match next {
            '.' => {
                chars.next();
            }
            '[' => {
                chars.next();
                let mut inner = String::new();
                let mut quote = None;
                for c in chars.by_ref() {
                    match (quote, c) {
                        (None, ']') => break,
                        (None, '\'' | '"') => quote = Some(c),
                        (Some(open), c) if c == open => quote = None,
                        _ => {}
                    }
                    inner.push(c);
                }
                steps.extend(bracket(inner.trim()));
            }
            _ => {
                let mut name = String::new();
                while let Some(&c) = chars.peek() {
                    match c {
                        '.' | '[' => break,
                        '\\' => {
                            chars.next();
                            name.extend(chars.next());
                        }
                        c => {
                            name.push(c);
                            chars.next();
                        }
                    }
                }
                steps.push(if name == "*" { Step::Every } else { Step::Field(name) });
            }
        }
    }
    steps
}

fn bracket(inner: &str) -> Option<Step> {
    let unquoted = |text: &str| text.trim().trim_matches(['\'', '"']).to_owned();
    if inner == "*" {
        return Some(Step::Every);
    }
    if let Ok(index) = inner.parse() {
        return Some(Step::Index(index));
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let (path, equals) = filter.split_once("==")?;
        return Some(Step::Where { path: path.trim().trim_start_matches('@').to_owned(), equals: unquoted(equals) });
    }
    Some(Step::Field(unquoted(inner).replace("\\.", ".")))
}

/// A scalar as people read it; structures as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_printer_columns_find_their_values() {
        let object = json!({
            "metadata": {"labels": {"coregent.io/role": "primary"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}], "n": 3}
        });
        for (path, expected) in [
            (".status.n", "3"),
            (r".metadata.labels.coregent\.io/role", "primary"),
            (".metadata.labels['coregent.io/role']", "primary"),
            (".status.conditions[?(@.type==\"Ready\")].status", "True"),
            (".status.conditions[?(@.type=='Old')].status", "False"),
            (".status.conditions[1].type", "Old"),
            ("{.status.conditions[-1].type}", "Old"),
            (".status.conditions[*].type", "Ready"),
            (".status.absent", ""),
        ] {
            assert_eq!(first(&object, path).map(text).unwrap_or_default(), expected, "{path}");
        }
    }
}
