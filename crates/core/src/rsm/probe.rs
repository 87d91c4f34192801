//! What a role probe's handler said, and when it is worth a report (rsm.md 3.8, 4.2, 4.4).
//!
//! A handler is somebody else's program: it may print anything, at any length, in any encoding. Whatever is not plainly a
//! role is refused with words, and a refusal changes no label.

use serde::Serialize;

use super::roles::{self, Role};

/// As much of a handler's output as is read. A snapshot of a thousand pods fits.
pub const LONGEST_OUTPUT: usize = 64 * 1024;
/// The longest name of a role: it becomes the value of a label.
const LONGEST_ROLE: usize = 63;
/// As much of an unreadable output as is shown.
const SHOWN: usize = 80;
/// Failures in a row between two reports of them, after the first.
const EVERY_SO_MANY_FAILURES: u32 = 300;
/// As much of a failure's reason as an Event has room for: the API server takes 1,024 bytes in all.
const LONGEST_REASON: usize = 200;
/// As much of a snapshot as goes into one Event, and what its JSON in JSON puts around each pair.
const LONGEST_PART: usize = 800;
const AROUND_A_PAIR: usize = 48;

/// What a handler said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The role of its own member, and the engine's own number for how new that is (a term), where it has one.
    Role {
        /// Name of the role, possibly empty.
        role: String,
        /// The number.
        version: Option<u64>,
    },
    /// Roles of several members as one of them sees it.
    Snapshot {
        /// The term of the last line.
        term: String,
        /// Pod and role.
        pairs: Vec<(String, String)>,
    },
}

/// Why an output says no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// More than anybody has to say about a role.
    #[error("the output is longer than {LONGEST_OUTPUT} bytes")]
    TooLong,
    /// Not text.
    #[error("the output is not UTF-8 text")]
    NotText,
    /// Neither `<role>`, `<role> <number>` nor lines of `term,pod,role`.
    #[error("the output is neither a role, a role and a number, nor lines of term,pod,role: {0:?}")]
    NoRole(String),
    /// A role that the set does not declare.
    #[error("the role {role:?} is none of those that the set declares: {declared}")]
    NotDeclared {
        /// What was said.
        role: String,
        /// What could have been.
        declared: String,
    },
}

/// Reads the output of the last handler.
///
/// # Errors
/// When it is not plainly a role.
pub fn read(output: &[u8]) -> Result<Answer, Unreadable> {
    if output.len() > LONGEST_OUTPUT {
        return Err(Unreadable::TooLong);
    }
    let text = std::str::from_utf8(output).map_err(|_| Unreadable::NotText)?.trim();
    let refused = || Unreadable::NoRole(shown(text));
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err(refused());
    }
    if text.contains(',') {
        return snapshot(text).ok_or_else(refused);
    }
    let mut words = text.split_whitespace();
    let (role, version) = match (words.next(), words.next(), words.next()) {
        (None, ..) => (String::new(), None),
        (Some(role), None, _) => (role.to_owned(), None),
        (Some(role), Some(number), None) => (role.to_owned(), Some(number.parse().map_err(|_| refused())?)),
        _ => return Err(refused()),
    };
    if role.len() > LONGEST_ROLE { Err(refused()) } else { Ok(Answer::Role { role, version }) }
}

fn snapshot(text: &str) -> Option<Answer> {
    let mut pairs = Vec::new();
    let mut last = "";
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut columns = line.split(',').map(str::trim);
        let (term, pod, role) = (columns.next()?, columns.next()?, columns.next()?);
        if columns.next().is_some() || pod.is_empty() || role.len() > LONGEST_ROLE {
            return None;
        }
        last = term;
        pairs.push((pod.to_owned(), role.to_owned()));
    }
    Some(Answer::Snapshot { term: last.to_owned(), pairs })
}

/// The beginning of a text, cut between characters.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Refuses a role of which the set knows nothing (rsm.md 3.8). An empty one says that the member has none.
///
/// # Errors
/// When it is not declared. Of a snapshot the controller judges each pair by itself.
pub fn check(answer: Answer, declared: &[Role]) -> Result<Answer, Unreadable> {
    match &answer {
        Answer::Role { role, .. } if !role.is_empty() && roles::find(declared, role).is_none() => {
            let declared = declared.iter().map(|role| role.name.as_str()).collect::<Vec<_>>().join(", ");
            Err(Unreadable::NotDeclared { role: role.clone(), declared })
        }
        _ => Ok(answer),
    }
}

/// The message of an Event about a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// `Success`, or what went wrong.
    pub event: &'static str,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The role reported before.
    pub original_role: String,
    /// The role.
    pub role: String,
}

/// Decides what is reported of a row of answers.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    tolerated: u32,
    say_again: Option<u64>,
    said: Option<Answer>,
    said_at: u64,
    failures: u32,
}

impl Reports {
    /// Of a probe of which so many failures in a row are tolerated, and that says again what did not change after so many
    /// milliseconds, in case a report was lost.
    #[must_use]
    pub fn new(tolerated: u32, say_again: Option<u64>) -> Reports {
        Reports { tolerated: tolerated.max(1), say_again, ..Reports::default() }
    }

    /// Takes in an answer of the moment `now` (milliseconds, growing); gives what is to be reported. It counts as said
    /// once [`Reports::said`] is called, so that a report which failed is tried again.
    #[must_use]
    pub fn take(&mut self, answer: &Result<Answer, String>, now: u64) -> Vec<Message> {
        match answer {
            Ok(answer) => {
                self.failures = 0;
                let again = self.say_again.is_some_and(|after| now.saturating_sub(self.said_at) >= after);
                if self.said.as_ref() != Some(answer) || again { self.success(answer) } else { Vec::new() }
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                let due = self.failures == self.tolerated
                    || (self.failures > self.tolerated && self.failures.is_multiple_of(EVERY_SO_MANY_FAILURES));
                let failed = || Message {
                    event: "checkRoleFailed",
                    message: why.chars().take(LONGEST_REASON).collect(),
                    original_role: self.original(),
                    role: String::new(),
                };
                due.then(failed).into_iter().collect()
            }
        }
    }

    /// The report of `answer` arrived.
    pub fn said(&mut self, answer: Answer, now: u64) {
        self.said = Some(answer);
        self.said_at = now;
    }

    /// Failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The role that was said before; of a snapshot nothing, since it is as long as the new one.
    fn original(&self) -> String {
        match &self.said {
            Some(Answer::Role { role, .. }) => role.clone(),
            _ => String::new(),
        }
    }

    fn success(&self, answer: &Answer) -> Vec<Message> {
        let message = |role| Message { event: "Success", message: String::new(), original_role: self.original(), role };
        match answer {
            Answer::Role { role, version: None } => vec![message(role.clone())],
            Answer::Role { role, version: Some(version) } => vec![message(format!("{role} {version}"))],
            Answer::Snapshot { term, pairs } => snapshots(term, pairs).into_iter().map(message).collect(),
        }
    }
}

/// A snapshot as JSON, in as many parts as fit into one Event each.
fn snapshots(term: &str, pairs: &[(String, String)]) -> Vec<String> {
    #[derive(Serialize)]
    struct Pair<'a> {
        #[serde(rename = "podName")]
        pod: &'a str,
        #[serde(rename = "roleName")]
        role: &'a str,
    }
    #[derive(Serialize)]
    struct Snapshot<'a> {
        term: &'a str,
        #[serde(rename = "PodRoleNamePairs")]
        pairs: Vec<Pair<'a>>,
    }
    let mut parts: Vec<&[(String, String)]> = Vec::new();
    let mut rest = pairs;
    while !rest.is_empty() {
        let mut length = 0;
        let fits = rest.iter().take_while(|(pod, role)| {
            length += pod.len() + role.len() + AROUND_A_PAIR;
            length <= LONGEST_PART
        });
        let (part, others) = rest.split_at(fits.count().max(1));
        parts.push(part);
        rest = others;
    }
    let text = |part: &[(String, String)]| {
        let pairs = part.iter().map(|(pod, role)| Pair { pod, role }).collect();
        serde_json::to_string(&Snapshot { term, pairs }).unwrap_or_default()
    };
    parts.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::super::roles::AccessMode;
    use super::*;
    use proptest::prelude::*;

    fn role(role: &str, version: Option<u64>) -> Answer {
        Answer::Role { role: role.to_owned(), version }
    }

    #[test]
    fn one_token_is_a_role_and_two_are_a_role_and_its_number() {
        let good = [
            ("leader\n", role("leader", None)),
            ("  Leader\t", role("Leader", None)),
            ("leader 7", role("leader", Some(7))),
            ("leader\t\n7\n", role("leader", Some(7))),
            ("leader 18446744073709551615", role("leader", Some(u64::MAX))),
            ("", role("", None)),
            (" \n", role("", None)),
        ];
        for (output, expected) in good {
            assert_eq!(read(output.as_bytes()), Ok(expected), "{output:?}");
        }
        let bad = ["leader seven", "leader -1", "leader 7 8", "a b c", "leader\u{0}", "leader 18446744073709551616"];
        for output in bad {
            assert!(matches!(read(output.as_bytes()), Err(Unreadable::NoRole(_))), "{output:?}");
        }
    }

    #[test]
    fn lines_of_three_columns_are_a_snapshot_whose_last_term_counts() {
        let pairs = vec![("a-0".to_owned(), "leader".to_owned()), ("a-1".to_owned(), "follower".to_owned())];
        let expected = Answer::Snapshot { term: "8".into(), pairs };
        assert_eq!(read(b"7,a-0,leader\n8, a-1 ,follower\n\n"), Ok(expected));
        for output in ["7,a-0", "7,a-0,leader,x", "7,,leader", "leader\n7,a-0,leader"] {
            assert!(matches!(read(output.as_bytes()), Err(Unreadable::NoRole(_))), "{output:?}");
        }
    }

    #[test]
    fn megabytes_and_what_is_no_text_are_refused_with_words() {
        assert_eq!(read(&vec![b'a'; LONGEST_OUTPUT + 1]), Err(Unreadable::TooLong));
        assert_eq!(read(b"lea\xff\xfeder"), Err(Unreadable::NotText));
        assert!(matches!(read(&[b'a'; 64]), Err(Unreadable::NoRole(_))));
        let long = "\u{fffd}x ".repeat(5_000);
        let Err(Unreadable::NoRole(shown)) = read(long.as_bytes()) else { unreachable!("no role") };
        assert_eq!(shown.chars().count(), SHOWN);
    }

    #[test]
    fn a_role_that_is_not_declared_is_dropped_at_the_agent() {
        let declared = |name: &str| Role {
            name: name.into(),
            access_mode: AccessMode::Readonly,
            can_vote: true,
            is_leader: false,
            is_exclusive: false,
        };
        let declared = [declared("Leader"), declared("follower")];
        assert_eq!(check(role("LEADER", Some(2)), &declared), Ok(role("LEADER", Some(2))));
        assert_eq!(check(role("", None), &declared), Ok(role("", None)));
        let refused = check(role("candidate", None), &declared).unwrap_err().to_string();
        assert!(refused.contains("candidate") && refused.contains("Leader, follower"), "{refused}");
    }

    #[test]
    fn a_role_is_reported_once_and_again_after_a_change_a_lost_report_or_a_long_time() {
        let mut reports = Reports::new(3, Some(5_000));
        let (leader, follower) = (role("leader", Some(3)), role("follower", Some(3)));
        let first = &reports.take(&Ok(leader.clone()), 1)[0];
        assert_eq!((first.event, first.role.as_str(), first.original_role.as_str()), ("Success", "leader 3", ""));
        assert_eq!(reports.take(&Ok(leader.clone()), 2).len(), 1, "the first report did not arrive");
        reports.said(leader.clone(), 2);
        assert_eq!(reports.take(&Ok(leader.clone()), 3), []);
        let moved = &reports.take(&Ok(follower.clone()), 4)[0];
        assert_eq!((moved.role.as_str(), moved.original_role.as_str()), ("follower 3", "leader"));
        reports.said(follower.clone(), 4);
        assert_eq!(reports.take(&Ok(follower.clone()), 3 + 5_000), []);
        assert_eq!(reports.take(&Ok(follower), 4 + 5_000).len(), 1);
    }

    #[test]
    fn failures_are_reported_after_the_tolerated_ones_and_then_rarely() {
        let mut reports = Reports::new(3, None);
        let failed: Result<Answer, String> = Err("refused".into());
        let reported: Vec<u32> = (1..=700).filter(|at| !reports.take(&failed, u64::from(*at)).is_empty()).collect();
        assert_eq!(reported, [3, 300, 600]);
        assert_eq!(reports.take(&Ok(role("leader", None)), 701).len(), 1);
        assert_eq!(reports.failures(), 0);
    }

    #[test]
    fn a_snapshot_of_a_thousand_pods_is_said_in_parts_that_fit_into_an_event() {
        let pairs: Vec<_> = (0..1_000).map(|at| (format!("{}-{at}", "p".repeat(49)), "follower".to_owned())).collect();
        let messages = Reports::new(3, None).take(&Ok(Answer::Snapshot { term: "7".into(), pairs }), 1);
        let longest = messages.iter().map(|message| serde_json::to_string(message).unwrap().len()).max();
        assert!(longest.is_some_and(|longest| longest <= 1_024), "{longest:?}");
        let said: usize = messages.iter().map(|message| message.role.matches("podName").count()).sum();
        assert_eq!(said, 1_000);
    }

    proptest! {
        #[test]
        fn whatever_is_printed_gives_a_role_that_can_be_a_label_or_words(output in prop::collection::vec(any::<u8>(), 0..200)) {
            match read(&output) {
                Ok(Answer::Role { role, .. }) => prop_assert!(role.len() <= LONGEST_ROLE && !role.contains(char::is_whitespace)),
                Ok(Answer::Snapshot { pairs, .. }) => prop_assert!(!pairs.is_empty()),
                Err(why) => prop_assert!(why.to_string().len() < 1_000),
            }
        }
    }
}
