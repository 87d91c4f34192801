//! Rules of Nodes and Leases.

use super::at::At;
use crate::schema::FieldError;

/// The rules of a Lease.
pub fn validate_lease(new: &At<'_>, _was: &At<'_>, errors: &mut Vec<FieldError>) {
    let spec = new.get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.int().is_some_and(|seconds| seconds <= 0) {
        errors.push(duration.invalid("must be greater than 0"));
    }
    spec.get("leaseTransitions").must_not_be_negative(errors);
    let holder = spec.get("holderIdentity");
    if holder.is_there() && holder.text().is_empty() && spec.get("strategy").is_there() {
        errors.push(holder.invalid("must not be empty"));
    }
}

/// The rules of a Node.
pub fn validate_node(new: &At<'_>, was: &At<'_>, errors: &mut Vec<FieldError>) {
    for taint in new.at(["spec", "taints"]).items() {
        taint.get("key").must_be_given("", errors);
        let effect = taint.get("effect");
        effect.must_be_given("", errors);
        effect.must_be_one_of(&["NoExecute", "NoSchedule", "PreferNoSchedule"], errors);
    }
    let (provider, before) = (new.at(["spec", "providerID"]), was.at(["spec", "providerID"]));
    if before.is_there() && provider.value != before.value {
        errors.push(provider.forbidden("node updates may not change providerID except from \"\" to valid"));
    }
}

/// An event lies beside what it is about; those about cluster-scoped objects lie in `default`.
pub fn validate_event(new: &At<'_>, _: &At<'_>, errors: &mut Vec<FieldError>) {
    let namespace = new.get("metadata").get("namespace").text().to_owned();
    let about = new.get("involvedObject").get("namespace");
    let beside = match about.text() {
        "" => matches!(namespace.as_str(), "" | "default"),
        about => about == namespace,
    };
    if !beside {
        errors.push(about.invalid("does not match event.namespace"));
    }
}
