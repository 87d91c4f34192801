//! `kubectl --as`: a user who asks in the name of another (Kubernetes documentation, "User impersonation").

use axum::http::HeaderMap;

use super::Server;
use super::auth::UserInfo;
use super::rbac::{self, Attributes};
use super::status::{ApiError, Outcome};

/// Who a request is to be judged as: `user` himself, or whom he names and may impersonate.
pub(super) fn acting(server: &Server, user: UserInfo, headers: &HeaderMap) -> Outcome<UserInfo> {
    let values = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let (names, mut groups) = (values("impersonate-user"), values("impersonate-group"));
    let Some(name) = names.into_iter().next() else {
        return match groups.is_empty() {
            true => Ok(user),
            false => Err(ApiError::bad_request("requested groups without impersonating a user")),
        };
    };
    let wanted = groups.iter().map(|group| ("groups", group)).chain([("users", &name)]);
    for (resource, name) in wanted {
        let attributes = Attributes {
            verb: "impersonate".into(),
            resource: resource.into(),
            name: name.clone(),
            ..Attributes::default()
        };
        if !rbac::allowed(server, &user, &attributes) {
            let message = format!(
                "{resource} \"{name}\" is forbidden: User \"{}\" cannot impersonate resource \"{resource}\" in API group \
                 \"\" at the cluster scope",
                user.name
            );
            return Err(ApiError::new(403, "Forbidden", message));
        }
    }
    if let (true, Some((namespace, account))) =
        (groups.is_empty(), name.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':')))
    {
        return Ok(UserInfo::service_account(namespace, account, ""));
    }
    groups.push("system:authenticated".to_owned());
    Ok(UserInfo { name, uid: String::new(), groups })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    fn asked(user: UserInfo, headers: &[(&'static str, &'static str)]) -> Result<UserInfo, u16> {
        let server = Server::open(Options::default()).unwrap();
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        acting(&server, user, &headers).map_err(|error| error.code)
    }

    #[test]
    fn who_may_impersonate_is_judged_as_the_other_and_nobody_else_may() {
        let jane = asked(UserInfo::admin(), &[("impersonate-user", "jane"), ("impersonate-group", "dev")]).unwrap();
        assert_eq!(
            (jane.name.as_str(), jane.groups.as_slice()),
            ("jane", &["dev".into(), "system:authenticated".into()][..])
        );
        assert!(!jane.is_admin());
        let account = asked(UserInfo::admin(), &[("impersonate-user", "system:serviceaccount:a:b")]).unwrap();
        assert_eq!(account, UserInfo::service_account("a", "b", ""));
        assert_eq!(asked(jane.clone(), &[]), Ok(jane.clone()));
        assert_eq!(asked(jane.clone(), &[("impersonate-user", "admin")]), Err(403));
        assert_eq!(asked(jane, &[("impersonate-group", "system:masters")]), Err(400));
    }
}
