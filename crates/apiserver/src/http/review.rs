//! Reviews: questions about users and their rights. Nothing is stored.

use serde_json::{Value, json};

use super::Call;
use super::auth::{self, UserInfo};
use super::rbac::{self, Attributes};
use super::status::{ApiError, Outcome};
use super::write::{Answer, Reply, text};

pub(super) fn review(call: &Call, mut review: Value) -> Outcome<Reply> {
    let kind = &call.target.kind;
    let status = match kind.kind.as_str() {
        "SelfSubjectAccessReview" => access(call, &call.user, &review),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => access(call, &subject(&review), &review),
        "SelfSubjectReview" => json!({"userInfo": user_info(&call.user)}),
        "SelfSubjectRulesReview" => {
            let rules = match call.user.is_admin() {
                true => vec![json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})],
                false => rbac::rules(&call.server, &call.user, text(&review, "/spec/namespace")),
            };
            json!({"resourceRules": rules, "incomplete": false,
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*",
                    "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version"]}]})
        }
        "TokenReview" => match auth::user_of(&call.server, text(&review, "/spec/token")) {
            Some(user) => json!({"authenticated": true, "user": user_info(&user)}),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        },
        _ => return Err(ApiError::no_such_path()),
    };
    if let Some(map) = review.as_object_mut() {
        map.insert("apiVersion".into(), kind.api_version().into());
        map.insert("kind".into(), kind.kind.as_str().into());
        map.insert("status".into(), status);
        map.entry("metadata").or_insert_with(|| json!({}));
    }
    Ok(Reply { code: 201, answer: Answer::Status(review), warnings: Vec::new() })
}

fn user_info(user: &UserInfo) -> Value {
    json!({"username": user.name, "uid": user.uid, "groups": user.groups})
}

fn subject(review: &Value) -> UserInfo {
    let groups = review.pointer("/spec/groups").and_then(Value::as_array);
    let groups = groups.into_iter().flatten().filter_map(|group| group.as_str().map(str::to_owned)).collect();
    UserInfo { name: text(review, "/spec/user").into(), uid: text(review, "/spec/uid").into(), groups }
}

fn access(call: &Call, user: &UserInfo, review: &Value) -> Value {
    let Some(asked) = review.pointer("/spec/resourceAttributes").filter(|asked| asked.is_object()) else {
        let path = text(review, "/spec/nonResourceAttributes/path");
        let open = ["/api", "/healthz", "/livez", "/readyz", "/openapi", "/version"];
        let allowed = user.is_admin() || open.iter().any(|prefix| path.starts_with(prefix));
        return json!({"allowed": allowed});
    };
    let attributes = Attributes {
        verb: text(asked, "/verb").into(),
        group: text(asked, "/group").into(),
        resource: text(asked, "/resource").into(),
        subresource: text(asked, "/subresource").into(),
        namespace: text(asked, "/namespace").into(),
        name: text(asked, "/name").into(),
    };
    json!({"allowed": rbac::allowed(&call.server, user, &attributes)})
}
