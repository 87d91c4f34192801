//! `x-kubernetes-validations`: rules in CEL, evaluated with the function library of the `kube-cel` crate.
//!
//! The walk and the conversion of values are ours because field names are escaped as the page "Validation rules" of the
//! Kubernetes documentation has it (`kube-cel` 0.8 doubles every underscore), list-maps are correlated by their keys,
//! and an absent `oldSelf` is an optional.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kube_cel::KubeCelExt;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, Value as Cel};
use serde_json::Value;

use super::error::FieldError;
use super::node::{Additional, Node, Topology, Type};
use super::prune::join;

/// One compiled rule.
pub struct Rule {
    source: String,
    expression: Expression,
    compares: bool,
    message: Option<String>,
    message_expression: Option<Expression>,
    reason: Option<String>,
    field_path: Option<String>,
    optional_old_self: bool,
}

impl fmt::Debug for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Rule").field(&self.source).finish()
    }
}

/// Compiles an entry of `x-kubernetes-validations`; the errors name the field of the entry.
pub fn compile(rule: &Value, path: &str) -> Result<Rule, FieldError> {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).map(str::to_owned);
    let parsed = |name: &str, source: &str| {
        Parser::new().enable_optional_syntax(true).parse(source).map_err(|errors| {
            FieldError::invalid(&join(path, name), &source.into(), &format!("compilation failed: {errors}"))
        })
    };
    let Some(source) = text("rule").filter(|source| !source.trim().is_empty()) else {
        return Err(FieldError::required(&join(path, "rule"), "rule is not specified"));
    };
    let expression = parsed("rule", &source)?;
    let compares = expression.references().has_variable("oldSelf");
    let optional_old_self = rule.get("optionalOldSelf").and_then(Value::as_bool) == Some(true);
    if optional_old_self && !compares {
        let path = join(path, "optionalOldSelf");
        return Err(FieldError::invalid(&path, &true.into(), "may not be set if oldSelf is not used in rule"));
    }
    let message_expression =
        text("messageExpression").map(|source| parsed("messageExpression", &source)).transpose()?;
    let reason = text("reason");
    const REASONS: [&str; 4] =
        ["FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate"];
    if let Some(reason) = reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        return Err(FieldError::not_supported(&join(path, "reason"), &reason.into(), REASONS));
    }
    Ok(Rule {
        message: text("message").map(|message| message.trim().to_owned()).filter(|message| !message.is_empty()),
        field_path: text("fieldPath"),
        source,
        expression,
        compares,
        message_expression,
        reason,
        optional_old_self,
    })
}

/// Evaluates every rule of the schema on an object.
pub fn root(node: &Node, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if !has_rules(node) {
        return Vec::new();
    }
    thread_local! {
        // Registering some two hundred functions costs more than evaluating most rules.
        static LIBRARY: Context<'static> = Context::default().with_all();
    }
    let mut errors = Vec::new();
    LIBRARY.with(|library| walk(node, new, old, "", library, &mut errors));
    errors
}

/// Whether any rule of the schema is in CEL.
pub fn has_rules(node: &Node) -> bool {
    let values = match &node.additional {
        Some(Additional::Schema(values)) => Some(values),
        _ => None,
    };
    !node.rules.is_empty()
        || node.properties.values().any(has_rules)
        || node.items.iter().chain(values).any(|child| has_rules(child))
}

fn walk(
    node: &Node,
    new: &Value,
    old: Option<&Value>,
    path: &str,
    context: &Context<'_>,
    errors: &mut Vec<FieldError>,
) {
    if new.is_null() {
        return;
    }
    evaluate(node, new, old, path, context, errors);
    match new {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(child) = node.child(name) {
                    let old = old.and_then(|old| old.get(name)).filter(|old| !old.is_null());
                    let path = match node.properties.contains_key(name) {
                        true => join(path, name),
                        false => format!("{path}[{name}]"),
                    };
                    walk(child, value, old, &path, context, errors);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &node.items else { return };
            for (index, value) in list.iter().enumerate() {
                let old = old.and_then(|old| same_element(node, value, old));
                walk(items, value, old, &format!("{path}[{index}]"), context, errors);
            }
        }
        _ => {}
    }
}

/// The element of the old list that has the keys of `value`. Only list-maps correlate; other lists are one value.
fn same_element<'a>(node: &Node, value: &Value, old: &'a Value) -> Option<&'a Value> {
    let Topology::Map(keys) = &node.topology else { return None };
    let wanted = node.keys_of(keys, value);
    old.as_array()?.iter().find(|other| node.keys_of(keys, other) == wanted)
}

fn evaluate(
    node: &Node,
    new: &Value,
    old: Option<&Value>,
    path: &str,
    context: &Context<'_>,
    errors: &mut Vec<FieldError>,
) {
    if node.rules.is_empty() {
        return;
    }
    let mut scope = context.new_inner_scope();
    scope.add_variable_from_value("self", to_cel(new, Some(node)));
    let old_self = old.map(|old| to_cel(old, Some(node)));
    for rule in &node.rules {
        let mut scope = scope.new_inner_scope();
        match (&old_self, rule.optional_old_self) {
            (old_self, true) => {
                let optional = old_self.clone().map_or_else(OptionalValue::none, OptionalValue::of);
                scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
            }
            (Some(old_self), false) => scope.add_variable_from_value("oldSelf", old_self.clone()),
            (None, false) if rule.compares => continue,
            (None, false) => {}
        }
        // What did not change is not held against an update, unless the rule is about the change.
        if old == Some(new) && !rule.compares {
            continue;
        }
        errors.extend(rule.check(new, path, &scope));
    }
}

impl Rule {
    fn check(&self, value: &Value, path: &str, scope: &Context<'_>) -> Option<FieldError> {
        let message = || {
            let computed = self.message_expression.as_ref().and_then(|expression| match scope.resolve(expression) {
                Ok(Cel::String(text)) => Some(text.trim().to_owned()),
                _ => None,
            });
            let computed = computed.filter(|text| !text.is_empty() && !text.contains('\n'));
            computed.or_else(|| self.message.clone()).unwrap_or_else(|| format!("failed rule: {}", self.source))
        };
        let at = match &self.field_path {
            Some(below) => format!("{path}{below}").trim_start_matches('.').to_owned(),
            None => path.to_owned(),
        };
        match scope.resolve(&self.expression) {
            Ok(Cel::Bool(true)) => None,
            Ok(Cel::Bool(false)) => Some(match self.reason.as_deref() {
                Some("FieldValueForbidden") => FieldError::forbidden(&at, &message()),
                Some("FieldValueRequired") => FieldError::required(&at, &message()),
                Some("FieldValueDuplicate") => FieldError::duplicate(&at, value),
                _ => refused(&at, value, &message()),
            }),
            Ok(_) => Some(refused(path, value, &format!("rule must evaluate to a bool: {}", self.source))),
            Err(error) => {
                let detail = format!("rule: {}: {error} evaluating rule: {}", self.source, message());
                Some(refused(path, value, &detail))
            }
        }
    }
}

/// A value that breaks a rule; objects and lists are not repeated in the message.
fn refused(path: &str, value: &Value, detail: &str) -> FieldError {
    match value {
        Value::Object(_) | Value::Array(_) => FieldError::unshown(path, detail),
        _ => FieldError::invalid(path, value, detail),
    }
}

/// Words that an expression cannot name, and how a field of that name is written.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field in expressions; `None` if it has none.
fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    if !(first.is_ascii_alphabetic() || first == '_') {
        return None;
    }
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            text.push_str("__underscores__");
            rest = after;
            continue;
        }
        match next {
            '.' => text.push_str("__dot__"),
            '-' => text.push_str("__dash__"),
            '/' => text.push_str("__slash__"),
            other if other.is_ascii_alphanumeric() || other == '_' => text.push(other),
            _ => return None,
        }
        rest = &rest[next.len_utf8()..];
    }
    Some(text)
}

fn to_cel(value: &Value, node: Option<&Node>) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => {
            let float = node.and_then(|node| node.ty) == Some(Type::Number);
            match number.as_i64().or_else(|| whole(number.as_f64())) {
                Some(integer) if !float => Cel::Int(integer),
                _ => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        Value::String(text) => string_to_cel(text, node.and_then(|node| node.checks.format.as_deref())),
        Value::Array(list) => {
            let items = node.and_then(|node| node.items.as_deref());
            Cel::List(Arc::new(list.iter().map(|item| to_cel(item, items)).collect()))
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields {
                let child = node.and_then(|node| node.child(name));
                // Keys of maps are data: they are written as they are.
                let declared = node.is_some_and(|node| node.additional.is_none());
                let key = if declared { escaped(name) } else { Some(name.clone()) };
                if let Some(key) = key {
                    map.insert(Key::String(Arc::new(key)), to_cel(value, child));
                }
            }
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

fn whole(number: Option<f64>) -> Option<i64> {
    // The bounds are those within which every f64 without a fraction is an exact i64.
    number.filter(|number| number.fract() == 0.0 && number.abs() < 9e15).map(|number| number as i64)
}

fn string_to_cel(text: &str, format: Option<&str>) -> Cel {
    use kube_cel::cel::functions::{duration, timestamp};
    let text = Arc::new(text.to_owned());
    let typed = match format {
        Some("date-time") => timestamp(Arc::clone(&text)).ok(),
        Some("date") => timestamp(Arc::new(format!("{text}T00:00:00Z"))).ok(),
        Some("duration") => duration(Arc::clone(&text)).ok(),
        Some("byte") => {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(text.as_bytes());
            bytes.ok().map(|bytes| Cel::Bytes(Arc::new(bytes)))
        }
        _ => None,
    };
    typed.unwrap_or(Cel::String(text))
}

#[cfg(test)]
#[path = "cel_tests.rs"]
mod tests;
