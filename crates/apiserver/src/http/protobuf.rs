//! Request bodies in Kubernetes' protobuf encoding (kubernetes.io/docs/reference/using-api/api-concepts, «Kubernetes
//! Protobuf encoding»): clients with Go types for a built-in kind, `kubectl create` among them, send nothing else and
//! do not fall back to JSON when they are told 415.
//!
//! A field that is not known here is refused and never dropped.

mod messages;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use messages::{Count, Field, Type};

/// Begins every body.
const MAGIC: &[u8] = b"k8s\0";
/// Messages within messages at most.
const DEPTH: usize = 32;

/// Why a body was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// It is not what it says that it is.
    #[error("the body is not Kubernetes' protobuf: {0}")]
    Malformed(&'static str),
    /// No table for its kind.
    #[error("{0} is not read in protobuf here: send application/json")]
    Kind(String),
    /// A field that the table does not have.
    #[error("field {number} of {message} is not read in protobuf here: send application/json")]
    Field {
        /// Its message.
        message: &'static str,
        /// Its number.
        number: u64,
    },
}

type Result<T> = std::result::Result<T, Error>;

/// The object in a body.
pub(super) fn object(body: &[u8]) -> Result<Value> {
    let body = body.strip_prefix(MAGIC).ok_or(Error::Malformed("it does not begin with k8s and a zero"))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Entries(body) {
        match entry? {
            (1, Wire::Bytes(meta)) => {
                for entry in Entries(meta) {
                    match entry? {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (3, Wire::Bytes(encoding)) if !encoding.is_empty() => return Err(Error::Malformed("it is compressed")),
            _ => {}
        }
    }
    let message = messages::of_kind(&api_version, &kind).ok_or_else(|| Error::Kind(format!("{api_version} {kind}")))?;
    let mut object = Map::new();
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    object.extend(fields(message, raw, DEPTH)?);
    Ok(Value::Object(object))
}

/// A value as it lies on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a width that no field here has.
    Fixed,
}

/// The numbered values of a message.
struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Error::Malformed("it ends within a number"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Malformed("a number has no end"))
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Error::Malformed("it ends within a value"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn entry(&mut self) -> Result<(u64, Wire<'a>)> {
        let key = self.varint()?;
        let wire = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            _ => return Err(Error::Malformed("a value of an unknown kind")),
        };
        Ok((key >> 3, wire))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.0 = &[];
        }
        Some(entry)
    }
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Malformed("a text is not UTF-8"))
}

/// A message as the object that Kubernetes writes for it in JSON.
fn fields(message: &'static str, body: &[u8], depth: usize) -> Result<Map<String, Value>> {
    let known = messages::message(message).ok_or(Error::Malformed("a message without a table"))?;
    let depth = depth.checked_sub(1).ok_or(Error::Malformed("it is nested too deeply"))?;
    let mut object = Map::new();
    for entry in Entries(body) {
        let (number, wire) = entry?;
        let field = known.get(&number).ok_or(Error::Field { message, number })?;
        match field.count {
            Count::One => {
                let value = value(field.of, wire, depth)?;
                if field.optional || !is_unset(&value) {
                    object.insert(field.name.into(), value);
                }
            }
            Count::List => {
                let value = value(field.of, wire, depth)?;
                let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut().into_iter().for_each(|list| list.push(value.clone()));
            }
            Count::Map => {
                let (key, value) = pair(field, wire, depth)?;
                let map = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                map.as_object_mut().into_iter().for_each(|map| drop(map.insert(key.clone(), value.clone())));
            }
        }
    }
    Ok(object)
}

/// Whether a field that is always sent was not set.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

/// An entry of a map.
fn pair(field: &Field, wire: Wire<'_>, depth: usize) -> Result<(String, Value)> {
    let Wire::Bytes(entry) = wire else { return Err(Error::Malformed("an entry of a map is not a message")) };
    let (mut key, mut found) = (String::new(), value(field.of, Wire::Bytes(&[]), depth)?);
    for entry in Entries(entry) {
        match entry? {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => found = value(field.of, wire, depth)?,
            _ => return Err(Error::Malformed("an entry of a map has more than two values")),
        }
    }
    Ok((key, found))
}

fn value(of: Type, wire: Wire<'_>, depth: usize) -> Result<Value> {
    Ok(match (of, wire) {
        (Type::Text, Wire::Bytes(bytes)) => text(bytes)?.into(),
        (Type::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Type::Int, Wire::Number(number)) => number.cast_signed().into(),
        (Type::Bool, Wire::Number(number)) => (number != 0).into(),
        (Type::Message(name), Wire::Bytes(bytes)) => Value::Object(fields(name, bytes, depth)?),
        (Type::Time | Type::Micro, Wire::Bytes(bytes)) => time(of, bytes)?,
        (Type::NumberOrText, Wire::Bytes(bytes)) => number_or_text(bytes)?,
        (Type::Quantity, Wire::Bytes(bytes)) => {
            inner(bytes)?.map_or(Ok(Value::Null), |bytes| text(bytes).map(Value::from))?
        }
        (Type::Json, Wire::Bytes(bytes)) => match inner(bytes)? {
            Some(json) => serde_json::from_slice(json).map_err(|_| Error::Malformed("a text is not JSON"))?,
            None => Value::Null,
        },
        _ => return Err(Error::Malformed("a value is not of its field's type")),
    })
}

/// The one value of a message that wraps it.
fn inner(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let mut found = None;
    for entry in Entries(bytes) {
        if let (1, Wire::Bytes(bytes)) = entry? {
            found = Some(bytes);
        }
    }
    Ok(found)
}

/// A moment; one that was not set is an empty message.
fn time(of: Type, bytes: &[u8]) -> Result<Value> {
    let (mut seconds, mut nanoseconds) = (None, 0);
    for entry in Entries(bytes) {
        match entry? {
            (1, Wire::Number(number)) => seconds = Some(number.cast_signed()),
            (2, Wire::Number(number)) => nanoseconds = i32::try_from(number.cast_signed()).unwrap_or(0),
            _ => return Err(Error::Malformed("a moment has more than seconds and nanoseconds")),
        }
    }
    let Some(seconds) = seconds else { return Ok(Value::Null) };
    let nanoseconds = if of == Type::Micro { nanoseconds } else { 0 };
    let moment = jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| Error::Malformed("a moment out of range"))?;
    Ok(if of == Type::Micro { format!("{moment:.6}") } else { moment.to_string() }.into())
}

fn number_or_text(bytes: &[u8]) -> Result<Value> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    for entry in Entries(bytes) {
        match entry? {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(found)) => number = found.cast_signed(),
            (3, Wire::Bytes(found)) => words = text(found)?,
            _ => return Err(Error::Malformed("a number or text is neither")),
        }
    }
    Ok(if is_text { words.into() } else { number.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wrapped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let message = |number: u8, body: &[u8]| [&[number << 3 | 2, u8::try_from(body.len()).unwrap()], body].concat();
        let meta = [message(1, api_version.as_bytes()), message(2, kind.as_bytes())].concat();
        [MAGIC, &message(1, &meta), &message(2, raw), &message(3, b""), &message(4, b"")].concat()
    }

    #[test]
    fn what_kubectl_sends_for_a_config_map_is_read() {
        // As `kubectl create configmap c --from-literal=a=b -v=8` of 1.37 prints it.
        let raw = b"\x0a\x11\x0a\x01c\x12\0\x1a\0\x22\0*\x002\x008\0B\0\x12\x06\x0a\x01a\x12\x01b";
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
        assert_eq!(object(&wrapped("v1", "ConfigMap", raw)), Ok(expected));
    }

    #[test]
    fn a_zero_counts_where_it_was_set_and_moments_have_their_own_precision() {
        let options = object(&wrapped("v1", "DeleteOptions", b"\x08\0")).unwrap();
        assert_eq!(options["gracePeriodSeconds"], 0);
        // spec: {holderIdentity: "", leaseDurationSeconds: 15, acquireTime: 1 s, renewTime: 1 s and 1000 ns}
        let spec = b"\x0a\0\x10\x0f\x1a\x02\x08\x01\x22\x05\x08\x01\x10\xe8\x07";
        let raw = [&[0x12, u8::try_from(spec.len()).unwrap()], &spec[..]].concat();
        let lease = object(&wrapped("coordination.k8s.io/v1", "Lease", &raw)).unwrap();
        let expected = json!({"holderIdentity": "", "leaseDurationSeconds": 15,
            "acquireTime": "1970-01-01T00:00:01.000000Z", "renewTime": "1970-01-01T00:00:01.000001Z"});
        assert_eq!(lease["spec"], expected);
        // metadata: {creationTimestamp: 1 s and 1000 ns}
        let map = object(&wrapped("v1", "ConfigMap", b"\x0a\x07\x42\x05\x08\x01\x10\xe8\x07")).unwrap();
        assert_eq!(map["metadata"]["creationTimestamp"], "1970-01-01T00:00:01Z");
    }

    #[test]
    fn what_is_not_known_is_refused_and_not_dropped() {
        let error = |body: &[u8]| object(body).unwrap_err().to_string();
        assert!(error(b"{}").contains("begin"));
        assert!(error(&wrapped("apps/v1", "StatefulSet", b"")).contains("apps/v1 StatefulSet is not read"));
        assert!(error(&wrapped("v1", "ConfigMap", b"\x7a\0")).contains("field 15 of ConfigMap"));
        assert!(error(&wrapped("v1", "ConfigMap", b"\x0a\x7f")).contains("ends within a value"));
    }
}
