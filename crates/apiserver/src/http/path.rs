//! From a path to a kind, a namespace, a name and a subresource.

use std::sync::Arc;

use crate::kinds::{Kind, Registry};

/// What a path of the resource API names.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub kind: Arc<Kind>,
    /// `None`: all namespaces, or a kind without them.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Target {
    /// The namespace part of the key.
    pub fn place(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// The name; empty for a collection.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// Finds the target of `/api/v1/…` and `/apis/<group>/<version>/…`.
pub(crate) fn resolve(registry: &Registry, path: &str) -> Option<Target> {
    let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    // A namespace's own subresources look like a collection in it.
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
        _ => return None,
    };
    let kind = registry.find(group, version, plural)?;
    let in_namespace = namespace.is_some();
    if in_namespace && !kind.namespaced || (kind.namespaced && !in_namespace && name.is_some()) {
        return None;
    }
    Some(Target {
        kind,
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
    })
}

/// Percent-decoding of one segment (names of RBAC objects hold colons).
fn decode(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let mut bytes = segment.bytes();
    let mut decoded = Vec::with_capacity(segment.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let hex: Vec<u8> = bytes.by_ref().take(2).collect();
        let code = std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.extend(code);
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
