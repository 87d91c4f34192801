//! Answers.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;

/// A JSON answer.
pub(crate) fn json(code: u16, body: impl Into<Bytes>) -> Response {
    typed(code, "application/json", body)
}

/// A plain-text answer.
pub(crate) fn text(code: u16, body: impl Into<Bytes>) -> Response {
    typed(code, "text/plain; charset=utf-8", body)
}

/// An answer of some content type.
pub(crate) fn typed(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Adds `Warning` headers, which kubectl prints (RFC 7234, 5.5).
pub(crate) fn warn(response: &mut Response, warnings: &[String]) {
    for warning in warnings {
        let clean: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
