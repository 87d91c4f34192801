//! A place in an object: the value and its path, so that a rule reads as one line.

use serde_json::{Map, Value};

use crate::schema::FieldError;
use crate::schema::prune::join;

/// A value, if there is one, and where it stands.
#[derive(Clone, Debug)]
pub struct At<'a> {
    pub path: String,
    pub value: Option<&'a Value>,
}

impl<'a> At<'a> {
    pub fn root(value: &'a Value) -> At<'a> {
        At { path: String::new(), value: Some(value) }
    }

    pub fn root_of(value: Option<&'a Value>) -> At<'a> {
        At { path: String::new(), value }
    }

    /// The field `name`; a null counts as absent.
    pub fn get(&self, name: &str) -> At<'a> {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        At { path: join(&self.path, name), value }
    }

    /// The field at the end of a path of fields.
    pub fn at<const N: usize>(&self, names: [&str; N]) -> At<'a> {
        names.iter().fold(self.clone(), |at, name| at.get(name))
    }

    /// The elements of a list.
    pub fn items(&self) -> Vec<At<'a>> {
        let list = self.value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let item = |(index, value)| At { path: format!("{}[{index}]", self.path), value: Some(value) };
        list.iter().enumerate().map(item).collect()
    }

    /// The entries of a map, each at `path[key]`.
    pub fn entries(&self) -> Vec<(&'a str, At<'a>)> {
        let entry = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), At { path: format!("{}[{key}]", self.path), value: Some(value) })
        };
        self.fields().into_iter().flatten().map(entry).collect()
    }

    pub fn fields(&self) -> Option<&'a Map<String, Value>> {
        self.value.and_then(Value::as_object)
    }

    pub fn is_there(&self) -> bool {
        self.value.is_some()
    }

    /// The text, "" where there is none.
    pub fn text(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    pub fn int(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    pub fn is_true(&self) -> bool {
        self.value.and_then(Value::as_bool) == Some(true)
    }

    pub fn required(&self, detail: &str) -> FieldError {
        FieldError::required(&self.path, detail)
    }

    pub fn invalid(&self, detail: &str) -> FieldError {
        FieldError::invalid(&self.path, self.value.unwrap_or(&Value::Null), detail)
    }

    pub fn forbidden(&self, detail: &str) -> FieldError {
        FieldError::forbidden(&self.path, detail)
    }

    pub fn duplicate(&self) -> FieldError {
        FieldError::duplicate(&self.path, self.value.unwrap_or(&Value::Null))
    }

    pub fn not_found(&self) -> FieldError {
        FieldError::not_found(&self.path, self.value.unwrap_or(&Value::Null))
    }

    /// The text must be given.
    pub fn must_be_given(&self, detail: &str, errors: &mut Vec<FieldError>) {
        if self.text().is_empty() {
            errors.push(self.required(detail));
        }
    }

    /// The text, if there is one, must be one of `allowed`.
    pub fn must_be_one_of(&self, allowed: &[&str], errors: &mut Vec<FieldError>) {
        if let Some(value) = self.value.filter(|value| !allowed.iter().any(|allowed| value.as_str() == Some(allowed))) {
            errors.push(FieldError::not_supported(&self.path, value, allowed.iter().copied()));
        }
    }

    /// The number, if there is one, must not be negative.
    pub fn must_not_be_negative(&self, errors: &mut Vec<FieldError>) {
        if self.int().is_some_and(|number| number < 0) {
            errors.push(self.invalid("must be greater than or equal to 0"));
        }
    }

    /// The value must be what it was. A field that was not there may not appear either.
    pub fn must_not_change(&self, was: &At<'_>, errors: &mut Vec<FieldError>) {
        if self.value != was.value {
            errors.push(self.invalid("field is immutable"));
        }
    }
}
