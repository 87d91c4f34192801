//! What no member can tell any more: who runs has been heard, the others say that they have nothing to say, and what is
//! known is not enough. Waiting longer brings nothing; somebody has to put a volume right or give it up.

use super::electorate::Electorate;
use super::world::{Lease, Member, World};
use crate::report::{MemberReport, MemberState};

/// How the line begins that asks for a person; the condition `DecisionNeeded` stands for it.
pub const FOR_A_PERSON: &str = "a person has to decide";

/// The line, if everybody whose position is missing runs, has heard of this round, and will never have one in it.
pub(super) fn found(world: &World, lease: &Lease, electorate: &Electorate) -> Option<String> {
    let missing = world.members.iter().filter(|(name, _)| !electorate.left.contains_key(*name));
    let said: Option<Vec<String>> =
        missing.map(|(name, member)| Some(format!("{name}: {}", mute(world, member, lease)?))).collect();
    let said = said.filter(|said| !said.is_empty())?.join("; ");
    Some(format!(
        "{FOR_A_PERSON}: the members that can be read do not show where all acknowledged writes are, and no other can be \
         waited for; {said}. Nobody is promoted before one of these is put right by hand"
    ))
}

/// Why the member has no position and will not have one in this round.
fn mute(world: &World, member: &Member, lease: &Lease) -> Option<&'static str> {
    let report = member.report.as_ref().filter(|report| world.is_live(member) && report.epoch == lease.epoch)?;
    match report.state {
        MemberState::WaitingForSource => Some("its volume is empty"),
        MemberState::Failed => Some("its data folder cannot be used"),
        MemberState::Stopped if report.inconsistent => {
            Some("its data folder was rewound to a primary that is gone, and is not consistent without it")
        }
        _ => None,
    }
}

/// F14: its folder was given up for that of a primary, which was decided by a record in force then, and it has heard of this
/// round since. Whatever it held that counts has been with whoever it was rewound to, who is another member and is heard, so
/// that it need not be waited for: it cannot be read before somebody is primary.
pub(super) fn has_nothing_of_its_own(report: &MemberReport, lease: &Lease) -> bool {
    report.inconsistent && report.epoch == lease.epoch
}
