//! What a request asks for, as far as its line says.

use http::{Method, Uri};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// The plural name of the resource, `leases`; the path where it names none.
    pub resource: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The name of the one object.
    pub name: Option<String>,
    /// `status` and the like.
    pub subresource: Option<String>,
    /// The query.
    pub query: String,
}

impl Asked {
    /// Reads a request line.
    #[must_use]
    pub fn new(method: &Method, uri: &Uri) -> Asked {
        let mut asked = Asked {
            method: method.clone(),
            resource: uri.path().to_owned(),
            namespace: None,
            name: None,
            subresource: None,
            query: uri.query().unwrap_or_default().to_owned(),
        };
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let rest = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => return asked,
        };
        let rest = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) => {
                asked.namespace = Some((*namespace).to_owned());
                rest
            }
            rest => rest,
        };
        if let [resource, rest @ ..] = rest {
            asked.resource = (*resource).to_owned();
            asked.name = rest.first().map(|name| (*name).to_owned());
            asked.subresource = rest.get(1).map(|name| (*name).to_owned());
        }
        asked
    }

    /// It changes something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }

    /// It may meet a version other than the one it names.
    #[must_use]
    pub fn can_conflict(&self) -> bool {
        self.is_write() && self.method != Method::POST
    }

    /// It is a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.method == Method::GET && self.query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"))
    }

    /// It lists objects.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.method == Method::GET && self.name.is_none() && !self.resource.starts_with('/') && !self.is_watch()
    }

    /// An event, which nobody waits for.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.resource == "events"
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.method)?;
        let parts = [self.namespace.as_ref(), Some(&self.resource), self.name.as_ref(), self.subresource.as_ref()];
        let mut parts = parts.into_iter().flatten();
        if let Some(first) = parts.next() {
            f.write_str(first)?;
        }
        parts.try_for_each(|part| write!(f, "/{part}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let table = [
            ("GET", "/api/v1/pods?watch=true&resourceVersion=4", "GET pods", "watch"),
            ("GET", "/api/v1/namespaces/default/pods?limit=500", "GET default/pods", "list"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/d/leases/a", "PUT d/leases/a", "write"),
            (
                "PUT",
                "/apis/coregent.io/v1/namespaces/d/databaseclusters/a/status",
                "PUT d/databaseclusters/a/status",
                "write",
            ),
            ("GET", "/api/v1/namespaces/default", "GET namespaces/default", ""),
            ("PUT", "/api/v1/namespaces/default/finalize", "PUT namespaces/default/finalize", "write"),
            ("GET", "/api/v1/nodes/n1", "GET nodes/n1", ""),
            ("GET", "/apis", "GET /apis", ""),
        ];
        for (method, uri, line, what) in table {
            let asked = Asked::new(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(asked.to_string(), line);
            assert_eq!(
                (asked.is_watch(), asked.is_list(), asked.is_write()),
                (what == "watch", what == "list", what == "write")
            );
        }
    }
}
