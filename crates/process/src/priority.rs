//! Who gets the processor first.
//!
//! Every member of every database asks the control plane for its Lease all the time, and gives its server up when it gets no
//! answer. On a machine that is short of processor time a control plane of the same rank as everything else let all of them go,
//! and each failover that followed took more of what was short.

use rustix::process::{getpriority_process, setpriority_process};

/// The nice value of a control plane.
const ABOVE_OTHERS: i32 = -10;

/// Puts the calling process before others of the machine, where it may (as root) and has not been given a rank already. Before
/// any thread is started: a rank is a thread's.
pub fn rise() {
    if getpriority_process(None) == Ok(0) {
        // An ordinary user may not; then it goes on as it is.
        let _ = setpriority_process(None, ABOVE_OTHERS);
    }
}

/// The rank that a program in a container begins with, whoever started it.
pub(crate) fn step_down() {
    if getpriority_process(None).is_ok_and(|rank| rank < 0) {
        let _ = setpriority_process(None, 0);
    }
}
