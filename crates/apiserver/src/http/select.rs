//! Label and field selectors.

use serde_json::Value;

use super::status::{ApiError, Outcome};
use crate::kinds::{Kind, jsonpath};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

/// What a list or watch is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<(String, Test)>,
    /// Stored path, wanted value, whether it must differ.
    fields: Vec<(String, String, bool)>,
    /// `metadata.name=…`, by which RBAC and the store can narrow.
    pub name: Option<String>,
    /// `metadata.namespace=…`.
    pub namespace: Option<String>,
}

impl Selector {
    /// Parses both selectors of a request for `kind`.
    pub fn parse(kind: &Kind, labels: Option<&str>, fields: Option<&str>) -> Outcome<Selector> {
        let mut selector = Selector { labels: parse_labels(labels.unwrap_or_default())?, ..Selector::default() };
        for (field, value, differs) in parse_fields(fields.unwrap_or_default())? {
            let path = match field.as_str() {
                "metadata.name" | "metadata.namespace" => format!(".{field}"),
                _ => {
                    let known = kind.selectable.iter().find(|(label, _)| *label == field);
                    let unknown = || unknown_field(kind, &field);
                    known.ok_or_else(unknown)?.1.clone()
                }
            };
            match (field.as_str(), differs) {
                ("metadata.name", false) => selector.name = Some(value.clone()),
                ("metadata.namespace", false) => selector.namespace = Some(value.clone()),
                _ => {}
            }
            selector.fields.push((path, value, differs));
        }
        Ok(selector)
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether a stored object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let label = |name: &str| labels.and_then(|labels| labels.get(name)).and_then(Value::as_str);
        let fields = |(path, wanted, differs): &(String, String, bool)| {
            let found = jsonpath::first(object, path).map(jsonpath::text).unwrap_or_default();
            // An absent boolean reads as false (`spec.unschedulable=false` selects every ordinary node).
            let equal = found == *wanted || (found.is_empty() && wanted == "false");
            equal != *differs
        };
        self.labels.iter().all(|(name, test)| test.holds(label(name))) && self.fields.iter().all(fields)
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Test::NotIn(values) => !value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

fn unknown_field(kind: &Kind, field: &str) -> ApiError {
    // Where a kind has fields of its own, Kubernetes does not list them.
    ApiError::bad_request(match kind.selectable.is_empty() {
        true => {
            format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        false => format!("field label not supported: {field}"),
    })
}

/// Splits at commas outside parentheses.
fn requirements(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

fn parse_labels(text: &str) -> Outcome<Vec<(String, Test)>> {
    requirements(text).iter().map(|part| parse_label(part)).collect()
}

fn parse_label(part: &str) -> Outcome<(String, Test)> {
    let bad = || ApiError::bad_request(format!("unable to parse requirement: \"{part}\" is not a label selector"));
    let key = |text: &str| {
        let text = text.trim();
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if text.is_empty() || !text.chars().all(fine) { Err(bad()) } else { Ok(text.to_owned()) }
    };
    if let Some(open) = part.find('(') {
        let values = part[open + 1..].strip_suffix(')').ok_or_else(bad)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let head = part[..open].trim();
        if let Some(name) = head.strip_suffix(" notin") {
            return Ok((key(name)?, Test::NotIn(values)));
        }
        let name = head.strip_suffix(" in").ok_or_else(bad)?;
        return Ok((key(name)?, Test::In(values)));
    }
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| bad());
    // A value has the characters of a label; more is more than one word.
    let value = |text: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let text = text.trim();
        if text.chars().all(fine) { Ok(text.to_owned()) } else { Err(bad()) }
    };
    if let Some((name, text)) = part.split_once("!=") {
        return Ok((key(name)?, Test::NotIn(vec![value(text)?])));
    }
    if let Some((name, text)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok((key(name)?, Test::In(vec![value(text)?])));
    }
    if let Some((name, value)) = part.split_once('>') {
        return Ok((key(name)?, Test::Above(number(value)?)));
    }
    if let Some((name, value)) = part.split_once('<') {
        return Ok((key(name)?, Test::Below(number(value)?)));
    }
    match part.strip_prefix('!') {
        Some(name) => Ok((key(name)?, Test::Absent)),
        None => Ok((key(part)?, Test::Exists)),
    }
}

fn parse_fields(text: &str) -> Outcome<Vec<(String, String, bool)>> {
    let parse = |part: &String| {
        let split = |operator: &str| part.split_once(operator);
        let (field, value, differs) = match (split("!="), split("=="), split("=")) {
            (Some((field, value)), _, _) => (field, value, true),
            (_, Some((field, value)), _) | (_, _, Some((field, value))) => (field, value, false),
            _ => return Err(ApiError::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'"))),
        };
        Ok((field.trim().to_owned(), value.trim().to_owned(), differs))
    };
    requirements(text).iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Registry;
    use serde_json::json;

    fn check(labels: &str, fields: &str) -> bool {
        let pods = Registry::new().find("", "v1", "pods").unwrap();
        let pod =
            json!({"metadata": {"name": "a", "labels": {"app": "db", "rank": "3"}}, "status": {"phase": "Running"}});
        Selector::parse(&pods, Some(labels), Some(fields)).unwrap().matches(&pod)
    }

    #[test]
    fn selectors_select_as_kubernetes_does() {
        for (labels, fields, expected) in [
            ("", "", true),
            ("app=db", "", true),
            ("app==db,rank!=4", "", true),
            ("app in (web, db),!gone", "", true),
            ("app notin (db)", "", false),
            ("gone notin (db)", "", true),
            ("gone!=x", "", true),
            ("rank>2,rank<4", "", true),
            ("gone", "", false),
            ("", "metadata.name=a,status.phase!=Pending", true),
            ("", "spec.nodeName=", true),
            ("", "spec.nodeName=n", false),
        ] {
            assert_eq!(check(labels, fields), expected, "{labels} {fields}");
        }
    }

    #[test]
    fn selectors_that_cannot_be_read_are_refused() {
        let pods = Registry::new().find("", "v1", "pods").unwrap();
        for (labels, fields) in [("a in b", ""), ("a in (b", ""), ("=b", ""), ("", "spec.image=x"), ("", "name")] {
            assert_eq!(Selector::parse(&pods, Some(labels), Some(fields)).unwrap_err().code, 400, "{labels} {fields}");
        }
    }
}
