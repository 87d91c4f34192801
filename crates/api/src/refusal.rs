//! What an API server means when it says no, in one CamelCase word, and what a person can do about it. The words are those
//! of Kubernetes: RBAC, admission and quota all answer 403, and differ in nothing but the message.

use kube::core::Status;

/// Nobody has given this account the verb on that kind.
pub const PERMISSION_MISSING: &str = "PermissionMissing";
/// A ResourceQuota of the namespace is used up.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// A webhook, a policy or the Pod Security Standard of the namespace does not let it in.
pub const ADMISSION_REJECTED: &str = "AdmissionRejected";
/// The namespace is being deleted.
pub const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
/// The object is not valid for this API server.
pub const INVALID: &str = "InvalidForServer";
/// The kind is not served: its definition is missing.
pub const KIND_MISSING: &str = "KindMissing";
/// The API server asks for fewer requests (429).
pub const TOO_MANY_REQUESTS: &str = "TooManyRequests";
/// The API server answers 5xx.
pub const SERVER_ERROR: &str = "ApiServerError";
/// The API server does not answer in time.
pub const NO_ANSWER: &str = "ApiServerSlow";
/// Something of this name is there and belongs to somebody else.
pub const FOREIGN_OBJECT: &str = "ForeignObject";

/// Every reason.
const ALL: [&str; 10] = [
    PERMISSION_MISSING,
    QUOTA_EXCEEDED,
    ADMISSION_REJECTED,
    NAMESPACE_TERMINATING,
    INVALID,
    KIND_MISSING,
    TOO_MANY_REQUESTS,
    SERVER_ERROR,
    NO_ANSWER,
    FOREIGN_OBJECT,
];

/// The reason of an answer; `None` for what reading again puts right (404, 409, 410), and where nobody answered.
#[must_use]
pub fn reason(error: &kube::Error) -> Option<&'static str> {
    match error {
        kube::Error::Api(status) => reason_of(status),
        _ => None,
    }
}

/// See [`reason`].
#[must_use]
pub fn reason_of(status: &Status) -> Option<&'static str> {
    match status.code {
        _ if is_of_webhook(&status.message) => Some(ADMISSION_REJECTED),
        403 => Some(of_forbidden(status)),
        400 | 405 | 413 | 422 => Some(INVALID),
        401 => Some(PERMISSION_MISSING),
        429 => Some(TOO_MANY_REQUESTS),
        500..=599 => Some(SERVER_ERROR),
        _ => None,
    }
}

/// A webhook chooses its code itself; the API server puts these words before what it said.
fn is_of_webhook(message: &str) -> bool {
    message.starts_with("admission webhook ") && message.contains(" denied the request")
}

fn of_forbidden(status: &Status) -> &'static str {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let message = status.message.as_str();
    if causes.any(|cause| cause.reason == "NamespaceTerminating") || message.contains("because it is being terminated")
    {
        NAMESPACE_TERMINATING
    } else if message.contains("exceeded quota") || message.contains("failed quota") {
        QUOTA_EXCEEDED
    } else if message.contains("\" cannot ") || message.contains("attempting to grant RBAC permissions") {
        PERMISSION_MISSING
    } else {
        ADMISSION_REJECTED
    }
}

/// The reason of what a controller of Kubernetes says in an event: the message of the API server's answer is in it.
#[must_use]
pub fn reason_of_text(message: &str) -> &'static str {
    let said = |code| Status { code, message: message.to_owned(), ..Status::default() };
    if message.contains("admission webhook ") { ADMISSION_REJECTED } else { of_forbidden(&said(403)) }
}

/// The one of these reasons that `text` is, if it is one.
#[must_use]
pub fn known(text: &str) -> Option<&'static str> {
    ALL.into_iter().find(|reason| *reason == text)
}

/// Whether it passes by itself: said to people only once it has lasted.
#[must_use]
pub fn is_passing(reason: &str) -> bool {
    matches!(reason, TOO_MANY_REQUESTS | SERVER_ERROR | NO_ANSWER)
}

/// What to do about it.
#[must_use]
pub fn remedy(reason: &str) -> &'static str {
    match reason {
        PERMISSION_MISSING => {
            "give the account that verb: `coregent install | kubectl apply --server-side -f -` restores its ClusterRole"
        }
        QUOTA_EXCEEDED => "raise the ResourceQuota, or ask for less in spec.resources or spec.storage",
        ADMISSION_REJECTED => "let it in where it is refused, or change the spec as is asked there",
        NAMESPACE_TERMINATING => "nothing, if the namespace is to go",
        KIND_MISSING => "`coregent install | kubectl apply --server-side -f -` brings the definition",
        FOREIGN_OBJECT => "rename one of them or delete it",
        INVALID => "correct in the spec what is named",
        _ => "look at the API server and what it is busy with",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Messages as a kube-apiserver 1.36 writes them.
    #[test]
    fn what_an_api_server_means_is_told_from_its_answer() {
        let rbac = "pods \"a\" is forbidden: User \"system:serviceaccount:s:o\" cannot patch resource \"pods\" in API group \
                    \"\" in the namespace \"d\"";
        let quota = "pods \"a\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0";
        let unset = "pods \"a\" is forbidden: failed quota: q: must specify limits.cpu for: postgresql";
        let security = "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true";
        let ending =
            "pods \"a\" is forbidden: unable to create new content in namespace d because it is being terminated";
        let grant = "roles.rbac.authorization.k8s.io \"a\" is forbidden: user \"u\" (groups=[]) is attempting to grant RBAC \
                     permissions not currently held";
        let webhook = "admission webhook \"a.b.c\" denied the request: no";
        let table = [
            (403, rbac, Some(PERMISSION_MISSING)),
            (403, grant, Some(PERMISSION_MISSING)),
            (403, quota, Some(QUOTA_EXCEEDED)),
            (403, unset, Some(QUOTA_EXCEEDED)),
            (403, security, Some(ADMISSION_REJECTED)),
            (403, ending, Some(NAMESPACE_TERMINATING)),
            (403, webhook, Some(ADMISSION_REJECTED)),
            (400, webhook, Some(ADMISSION_REJECTED)),
            (422, "StatefulSet \"a\" is invalid", Some(INVALID)),
            (429, "Too many requests", Some(TOO_MANY_REQUESTS)),
            (503, "the server is currently unable", Some(SERVER_ERROR)),
            (404, "not found", None),
            (409, "the object has been modified", None),
            (410, "too old resource version", None),
        ];
        for (code, message, expected) in table {
            let status: Status = serde_json::from_value(json!({"code": code, "message": message})).unwrap();
            assert_eq!(reason_of(&status), expected, "{message}");
            if code == 403 {
                assert_eq!(
                    Some(reason_of_text(&format!("create Pod a failed error: {message}"))),
                    expected,
                    "{message}"
                );
            }
        }
    }
}
