//! The one place that turns an error into what a person reads and an exit code (interface.md).

use std::fmt::Display;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// It was tried and did not work.
    Failed = 1,
    /// Refused or wrongly used; nothing was changed.
    Refused = 2,
    /// Not yet: trying again later may work.
    NotYet = 3,
    /// Partly done: what is named was done, the rest was not.
    Partly = 4,
}

/// What was refused or failed, why, and what to do: one line each, never a backtrace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Failure {
    /// The exit code.
    pub code: ExitCode,
    /// What was refused or failed.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// Result of every verb.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// It was tried and did not work.
    pub fn failed(what: impl Display, why: impl Display, remedy: impl Display) -> Failure {
        Failure::new(ExitCode::Failed, what, why, remedy)
    }

    /// It was refused before anything was changed.
    pub fn refused(what: impl Display, why: impl Display, remedy: impl Display) -> Failure {
        Failure::new(ExitCode::Refused, what, why, remedy)
    }

    /// It may work later.
    pub fn not_yet(what: impl Display, why: impl Display, remedy: impl Display) -> Failure {
        Failure::new(ExitCode::NotYet, what, why, remedy)
    }

    fn new(code: ExitCode, what: impl Display, why: impl Display, remedy: impl Display) -> Failure {
        let line = |text: String| {
            text.split('\n').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
        };
        Failure { code, what: line(what.to_string()), why: line(why.to_string()), remedy: line(remedy.to_string()) }
    }

    /// The three lines.
    pub fn render(&self) -> String {
        format!("error: {}\n  why: {}\n  do:  {}", self.what, self.why, self.remedy)
    }

    /// What an API server answered, or why it could not be asked.
    pub fn from_api(what: impl Display, error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) => Failure::from_status(what, &status),
            // Nobody answers: nothing was changed, and once somebody does it may work.
            other => Failure::not_yet(
                what,
                chain(&other),
                "check that the control plane runs: `coregent up` starts an embedded one, `--kubeconfig` names another",
            ),
        }
    }

    fn from_status(what: impl Display, status: &kube::core::Status) -> Failure {
        let remedy = match (status.code, status.reason.as_str()) {
            (404, _) => "look at the name and the namespace: `coregent get KIND -n NAMESPACE` lists what is there",
            (401, _) => "the token is not valid here: use the kubeconfig that this control plane wrote",
            (403, _) => "ask for the permission, or use an account that has it",
            (409, "Conflict") if is_about_owners(status) => {
                "leave that field out of the manifest to keep what the other one set (`kubectl scale` sets spec.replicas), or \
                 take the field over with --force"
            }
            (409, _) => "somebody else changed it in between: look at it again and repeat",
            (400 | 422, _) => "correct what is named above; nothing was changed",
            _ if is_untypable(status) => "correct what is named above; nothing was changed",
            (507, _) => "make room on the disk of the control plane's data folder and try again",
            (429 | 503 | 504, _) => "the control plane is busy: try again in a moment",
            _ => "look at `coregent events` for the reason",
        };
        let code = match status.code {
            400 | 401 | 403 | 404 | 409 | 422 => ExitCode::Refused,
            429 | 503 | 504 | 507 => ExitCode::NotYet,
            _ if is_untypable(status) => ExitCode::Refused,
            _ => ExitCode::Failed,
        };
        // What a rule says of itself says it all: that its value is an object helps nobody.
        Failure::new(code, what, status.message.replace("Invalid value: \"object\": ", ""), remedy)
    }
}

/// A server-side apply met fields that another manager owns.
fn is_about_owners(status: &kube::core::Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict")
}

/// A server-side apply stated a field that its kind does not have, or of another type. An API server has no code for it
/// but 500, whatever `fieldValidation` says.
fn is_untypable(status: &kube::core::Status) -> bool {
    status.code == 500 && status.message.starts_with("failed to create typed patch object")
}

/// An error with its causes in one line, without saying the same thing twice.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: serde_json::Value) -> Failure {
        Failure::from_status("cannot apply", &serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_conflict_of_owners_is_told_from_one_of_versions() {
        let owners = of(serde_json::json!({"code": 409, "reason": "Conflict",
            "message": "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\": .spec.replicas",
            "details": {"causes": [{"reason": "FieldManagerConflict", "field": ".spec.replicas"}]}}));
        assert!(owners.remedy.contains("--force") && owners.remedy.contains("kubectl scale"), "{owners:?}");
        let versions = of(serde_json::json!({"code": 409, "reason": "Conflict", "message": "it has been modified"}));
        assert!(versions.remedy.contains("look at it again"), "{versions:?}");
    }

    #[test]
    fn an_applied_field_that_is_none_is_a_refusal_though_the_server_says_500() {
        let refused = of(serde_json::json!({"code": 500,
            "message": "failed to create typed patch object (default/a; coregent.io/v1alpha1, Kind=DatabaseCluster): \
                        .spec.replica: field not declared in schema"}));
        assert_eq!(refused.code, ExitCode::Refused);
        assert!(refused.remedy.contains("correct what is named"), "{refused:?}");
        assert_eq!(of(serde_json::json!({"code": 500, "message": "it broke"})).code, ExitCode::Failed);
    }

    #[test]
    fn what_a_rule_says_is_not_preceded_by_what_a_machine_calls_its_value() {
        let refused = of(serde_json::json!({"code": 422, "reason": "Invalid",
            "message": "DatabaseCluster.coregent.io \"a\" is invalid: spec: Invalid value: \"object\": spec.port 8008 is taken"}));
        assert_eq!(refused.why, "DatabaseCluster.coregent.io \"a\" is invalid: spec: spec.port 8008 is taken");
        assert_eq!(refused.code, ExitCode::Refused);
    }

    #[test]
    fn a_failure_is_three_lines_whatever_its_texts_hold() {
        let failure = Failure::refused("a\nb", "c", "d\n\n e ");
        assert_eq!(failure.render(), "error: a; b\n  why: c\n  do:  d; e");
    }
}
