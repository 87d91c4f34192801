//! Query parameters and the Accept header.

use axum::http::{HeaderMap, Uri, header};

use super::status::{ApiError, Outcome};

/// The query of a request.
#[derive(Debug, Default, Clone)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub fn of(uri: &Uri) -> Outcome<Params> {
        axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map(|query| Params(query.0))
            .map_err(|error| ApiError::bad_request(format!("the query cannot be read: {error}")))
    }

    /// The first value of a parameter; an empty one counts as absent, as in Kubernetes.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Every value of a parameter.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// `true`, `1` and a bare parameter are true.
    pub fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|(key, value)| key == name && matches!(value.as_str(), "true" | "1" | "True" | ""))
    }

    pub fn number(&self, name: &str) -> Outcome<Option<u64>> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| ApiError::bad_request(format!("invalid value \"{text}\" for {name}: not a number")))
        };
        self.get(name).map(parse).transpose()
    }

    /// Whether nothing is to be stored. Any value but `All` is refused, as in Kubernetes.
    pub fn dry_run(&self) -> Outcome<bool> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!("invalid dryRun \"{other}\": only All is supported"))),
        }
    }

    pub fn field_validation(&self) -> Outcome<FieldValidation> {
        match self.get("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some(other) => Err(ApiError::bad_request(format!(
                "invalid fieldValidation \"{other}\": one of Ignore, Warn, Strict is expected"
            ))),
        }
    }
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
    // Protobuf-only and YAML-only clients do not exist in practice; JSON is what every one of them can read.
    if accept.contains("json") || accept.contains("yaml") || accept.contains("*/*") {
        return Ok(Form::Object);
    }
    Err(ApiError::new(406, "NotAcceptable", "only the following media types are accepted: application/json"))
}
