//! Rules of roles and their bindings.

use super::at::At;
use crate::schema::FieldError;

/// The rules of a Role or ClusterRole.
pub fn validate_role(new: &At<'_>, _was: &At<'_>, errors: &mut Vec<FieldError>) {
    for rule in new.get("rules").items() {
        let verbs = rule.get("verbs");
        if verbs.items().is_empty() {
            errors.push(verbs.required("verbs must contain at least one value"));
        }
        let (groups, resources, urls) = (rule.get("apiGroups"), rule.get("resources"), rule.get("nonResourceURLs"));
        if !urls.items().is_empty() {
            if !resources.items().is_empty() || !groups.items().is_empty() {
                errors.push(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
            }
            continue;
        }
        if groups.items().is_empty() {
            errors.push(groups.required("resource rules must supply at least one api group"));
        }
        if resources.items().is_empty() {
            errors.push(resources.required("resource rules must supply at least one resource"));
        }
    }
}

/// The rules of a RoleBinding or ClusterRoleBinding.
pub fn validate_binding(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    let role = new.get("roleRef");
    role.get("name").must_be_given("", errors);
    role.get("apiGroup").must_be_one_of(&["rbac.authorization.k8s.io"], errors);
    role.get("kind").must_be_one_of(&["ClusterRole", "Role"], errors);
    for subject in new.get("subjects").items() {
        subject.get("name").must_be_given("", errors);
        let kind = subject.get("kind");
        kind.must_be_given("", errors);
        kind.must_be_one_of(&["Group", "ServiceAccount", "User"], errors);
        if kind.text() == "ServiceAccount" {
            subject.get("namespace").must_be_given("", errors);
        }
    }
    if was.is_there() && role.value != was.get("roleRef").value {
        errors.push(role.invalid("cannot change roleRef"));
    }
}
