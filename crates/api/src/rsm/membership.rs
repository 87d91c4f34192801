//! What is run when members join, leave or hand over (rsm.md 1.2, 6).

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is run when members join, leave or hand over.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MembershipReconfiguration {
    /// Before the leader goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switchover_action: Option<MemberAction>,
    /// After a member came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_join_action: Option<MemberAction>,
    /// Before a member goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_leave_action: Option<MemberAction>,
    /// After a member joined, until it has the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_sync_action: Option<MemberAction>,
    /// After a member has the log, to let it vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_action: Option<MemberAction>,
    /// Seconds that one attempt of an action may take.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_seconds: i32,
    /// Attempts before an action that fails waits for a person.
    #[serde(default = "default_attempts")]
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: i32,
}

impl Default for MembershipReconfiguration {
    fn default() -> MembershipReconfiguration {
        MembershipReconfiguration {
            switchover_action: None,
            member_join_action: None,
            member_leave_action: None,
            log_sync_action: None,
            promote_action: None,
            timeout_seconds: default_timeout(),
            max_attempts: default_attempts(),
        }
    }
}

impl MembershipReconfiguration {
    /// The action of a kind.
    #[must_use]
    pub fn action(&self, kind: ActionKind) -> Option<&MemberAction> {
        match kind {
            ActionKind::Switchover => self.switchover_action.as_ref(),
            ActionKind::MemberJoin => self.member_join_action.as_ref(),
            ActionKind::MemberLeave => self.member_leave_action.as_ref(),
            ActionKind::LogSync => self.log_sync_action.as_ref(),
            ActionKind::Promote => self.promote_action.as_ref(),
        }
    }

    /// The image that the Job of an action runs: its own, else that of the closest earlier action that has one, in the
    /// order in which actions come in a member's life; `None`: the default one (rsm.md 1.2).
    #[must_use]
    pub fn image(&self, kind: ActionKind) -> Option<&str> {
        let from = ActionKind::FALLBACK.iter().position(|other| *other == kind).unwrap_or_default();
        ActionKind::FALLBACK.iter().skip(from).find_map(|kind| self.action(*kind)?.image.as_deref())
    }
}

/// Which action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ActionKind {
    /// The leader hands over.
    Switchover,
    /// A member joins.
    MemberJoin,
    /// A member leaves.
    MemberLeave,
    /// A member that joined gets the log.
    LogSync,
    /// A member that has the log may vote.
    Promote,
}

impl ActionKind {
    /// The order in which an image is looked for.
    const FALLBACK: [ActionKind; 5] = [
        ActionKind::Promote,
        ActionKind::LogSync,
        ActionKind::MemberLeave,
        ActionKind::MemberJoin,
        ActionKind::Switchover,
    ];

    /// As it stands in the names of Jobs and containers (rsm.md 6.3).
    #[must_use]
    pub fn slug(self) -> &'static str {
        match self {
            ActionKind::Switchover => "switchover",
            ActionKind::MemberJoin => "member-join",
            ActionKind::MemberLeave => "member-leave",
            ActionKind::LogSync => "log-sync",
            ActionKind::Promote => "promote",
        }
    }
}

/// What is run on a change of membership, and by whom.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(
    validation = Rule::new("self.via == 'Agent' || (has(self.command) && self.command.size() > 0)")
        .message("an action needs a command, unless via: Agent leaves it to the builtin handler"),
    validation = Rule::new("!has(self.image) || self.via == 'Job'")
        .message("image is for actions via: Job"),
    validation = Rule::new("!has(self.container) || self.via == 'Exec'")
        .message("container is for actions via: Exec")
)]
#[serde(rename_all = "camelCase")]
pub struct MemberAction {
    /// Image of the Job. Absent: that of the closest earlier action that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Command. Absent, with `via: Agent`: what the builtin handler of the role probe does for this action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Who carries it out.
    #[serde(default)]
    pub via: ActionVia,
    /// `Exec` only: the container that the command runs in. Absent: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// Who carries an action out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ActionVia {
    /// A Job with a pod of its own.
    #[default]
    Job,
    /// The agent beside the member, which reads the request in an object: no pod is started.
    Agent,
    /// `pods/exec` in a container of the member, for members without our agent.
    Exec,
}

fn default_timeout() -> i32 {
    300
}

fn default_attempts() -> i32 {
    5
}
