//! Where acknowledged writes are: nobody throws the last copy of one away (F12).

use crate::data::Data;
use crate::world::World;

impl World {
    /// Every acknowledged write that is not over must be somewhere, else somebody has thrown it away.
    pub(crate) fn check_copies(&self, why: &str) {
        let volumes: Vec<_> = self.volumes.iter().map(|volume| volume.borrow()).collect();
        let folders: Vec<&Data> =
            volumes.iter().flat_map(|volume| volume.data.iter().chain(volume.aside.iter())).collect();
        let gone = {
            let oracle = self.oracle.borrow();
            let mut live = oracle.acks.iter().filter(|ack| !ack.over);
            live.find(|ack| !folders.iter().any(|data| data.holds(ack.end, ack.write))).cloned()
        };
        drop(folders);
        drop(volumes);
        if let Some(ack) = gone {
            let name = self.setup.name(ack.member);
            self.violation(format!("{why} removes the only copy of write {}, which {name} acknowledged", ack.write));
        }
    }

    /// What is in a folder that a copy is about to replace.
    pub(crate) fn held_by(&self, old: Option<&Data>) -> Vec<(u64, u32, usize)> {
        let Some(old) = old else { return Vec::new() };
        let oracle = self.oracle.borrow();
        let held = oracle.acks.iter().filter(|ack| old.holds(ack.end, ack.write));
        held.map(|ack| (ack.end, ack.write, ack.member)).collect()
    }

    /// F12: what was acknowledged and said to be lost is not thrown away with the folder that a copy replaces: a person may
    /// still want it.
    pub(crate) fn check_set_aside(&self, held: &[(u64, u32, usize)]) {
        let gone = {
            let volumes: Vec<_> = self.volumes.iter().map(|volume| volume.borrow()).collect();
            let folders: Vec<&Data> =
                volumes.iter().flat_map(|volume| volume.data.iter().chain(volume.aside.iter())).collect();
            held.iter().find(|(end, write, _)| !folders.iter().any(|data| data.holds(*end, *write))).copied()
        };
        if let Some((_, write, member)) = gone {
            let name = self.setup.name(member);
            self.violation(format!(
                "a copy throws away write {write}, which {name} acknowledged, and sets nothing aside"
            ));
        }
    }

    /// A fault has taken volumes: what was only there has an excuse.
    pub(crate) fn excuse_lost(&self) {
        let volumes: Vec<_> = self.volumes.iter().map(|volume| volume.borrow()).collect();
        let mut oracle = self.oracle.borrow_mut();
        oracle.volumes_lost += 1;
        for ack in &mut oracle.acks {
            let held =
                volumes.iter().any(|volume| volume.data.as_ref().is_some_and(|data| data.holds(ack.end, ack.write)));
            ack.over |= !held;
        }
    }
}

/// A folder is about to be replaced.
pub(crate) fn replaces(world: &World, member: usize, how: &str) {
    world.note(world.setup.name(member), || format!("its folder is replaced by a {how}"));
}

/// A folder has been replaced: the only copy of something acknowledged may have gone (F12).
pub(crate) fn replaced(world: &World) {
    world.check_copies("a copy or a rewind");
}
