//! Query parameters and the Accept header.

use axum::http::{HeaderMap, Method, Uri, header};

use super::status::{ApiError, Cause, Outcome};

/// The query of a request.
#[derive(Debug, Default, Clone)]
pub(crate) struct Params {
    query: Vec<(String, String)>,
    /// What Kubernetes calls the options of the request's method.
    options: &'static str,
}

impl Params {
    pub fn of(method: &Method, uri: &Uri) -> Outcome<Params> {
        let options = match method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            "PATCH" => "PatchOptions",
            "DELETE" => "DeleteOptions",
            _ => "ListOptions",
        };
        axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|query| Params { query: query.0, options })
            .map_err(|error| ApiError::bad_request(format!("the query cannot be read: {error}")))
    }

    /// The first value of a parameter; an empty one counts as absent, as in Kubernetes.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Every value of a parameter.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// `true`, `1` and a bare parameter are true.
    pub fn flag(&self, name: &str) -> bool {
        self.query.iter().any(|(key, value)| key == name && matches!(value.as_str(), "true" | "1" | "True" | ""))
    }

    /// A number; one below zero asks for nothing, as in Kubernetes.
    pub fn number(&self, name: &str) -> Outcome<Option<u64>> {
        let parse = |text: &str| text.parse::<i64>().map_err(|_| not_a_number(name, text));
        Ok(self.get(name).map(parse).transpose()?.and_then(|number| u64::try_from(number).ok()))
    }

    /// Whether the request is a patch.
    pub fn patches(&self) -> bool {
        self.options == "PatchOptions"
    }

    /// The refusal of an option.
    pub fn refuse(&self, field: &str, reason: &str, message: impl Into<String>) -> ApiError {
        ApiError::options(self.options, Cause { reason: reason.into(), message: message.into(), field: field.into() })
    }

    /// Whether nothing is to be stored. Any value but `All` is refused, as in Kubernetes.
    pub fn dry_run(&self) -> Outcome<bool> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let message = format!("Unsupported value: [\"{other}\"]: supported values: \"All\"");
                Err(self.refuse("dryRun", "FieldValueNotSupported", message))
            }
        }
    }

    pub fn field_validation(&self) -> Outcome<FieldValidation> {
        match self.get("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some(other) => {
                let known = r#""", "Ignore", "Strict", "Warn""#;
                let message = format!("Unsupported value: \"{other}\": supported values: {known}");
                Err(self.refuse("fieldValidation", "FieldValueNotSupported", message))
            }
        }
    }
}

/// As Go words it.
fn not_a_number(name: &str, text: &str) -> ApiError {
    let parse = |function| format!("strconv.{function}: parsing \"{text}\": invalid syntax");
    ApiError::bad_request(match name {
        "resourceVersion" => {
            format!("invalid resource version: resourceVersion: Invalid value: \"{text}\": {}", parse("ParseUint"))
        }
        _ => parse("ParseInt"),
    })
}

/// What becomes of unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Strict,
    Warn,
    Ignore,
}

/// The form of answer that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Object,
    /// `Table`, as `kubectl get` asks.
    Table,
    /// Metadata alone.
    PartialMetadata,
}

/// The first form in the Accept header that is served.
pub(crate) fn form(headers: &HeaderMap) -> Outcome<Form> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    for choice in accept.split(',') {
        let mut parts = choice.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let target = parts.find_map(|part| part.strip_prefix("as="));
        match (media, target) {
            ("application/json" | "*/*" | "application/*" | "", None) => return Ok(Form::Object),
            ("application/json", Some("Table")) => return Ok(Form::Table),
            ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList")) => {
                return Ok(Form::PartialMetadata);
            }
            _ => {}
        }
    }
    // Protobuf-only and YAML-only clients do not exist in practice; JSON is what every one of them can read. One that
    // asks for a form that is not served could not read anything else.
    if !accept.contains("as=") && (accept.contains("json") || accept.contains("yaml") || accept.contains("*/*")) {
        return Ok(Form::Object);
    }
    Err(ApiError::new(406, "NotAcceptable", "only the following media types are accepted: application/json"))
}
