//! Stopping a pod or one container of it.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::Worker;
use crate::{
    events::about_pod,
    pod::{
        hooks::{self, Action},
        state::{Kind, StopReason, containers},
    },
};

impl Worker {
    /// Begins to stop the pod. A later call may only make it faster, or say that the object is gone.
    pub(super) fn stop(&mut self, reason: StopReason, grace: Duration) {
        let by = Instant::now() + grace;
        let sooner = self.stop_by.is_none_or(|have| by < have);
        let replaces = match self.state.stop {
            None | Some(StopReason::Finished | StopReason::DeadlineExceeded) => true,
            Some(StopReason::NodeShutdown) => false,
            Some(StopReason::Deleted) => matches!(reason, StopReason::Vanished),
            Some(StopReason::Vanished) => false,
        };
        if replaces {
            // The last word on a pod that has ended by itself is said already.
            self.frozen |= self.state.stop.is_some() && self.live.is_empty();
            self.state.stop = Some(reason);
        }
        if sooner {
            self.stop_by = Some(by);
            for live in self.live.values_mut().filter(|l| l.stopping) {
                live.kill_at = Some(live.kill_at.map_or(by, |at| at.min(by)));
            }
        }
        self.stop_next_wave();
        self.kill_overdue(Instant::now());
    }

    /// Sidecars go when the containers that they serve are gone.
    pub(super) fn stop_next_wave(&mut self) {
        let Some(by) = self.stop_by else { return };
        let is_sidecar = |index: &usize| self.state.containers[*index].kind == Kind::Sidecar;
        let sidecars_only = self.live.keys().all(is_sidecar);
        let wave: Vec<usize> = self
            .live
            .iter()
            .filter(|(index, live)| !live.stopping && (sidecars_only || !is_sidecar(index)))
            .map(|(index, _)| *index)
            .collect();
        let grace = by.saturating_duration_since(Instant::now());
        for index in wave {
            self.stop_container(index, grace, false);
        }
    }

    /// `preStop`, then the stop signal, then SIGKILL when the grace is over.
    pub(super) fn stop_container(&mut self, index: usize, grace: Duration, quietly: bool) {
        let pod = Arc::clone(&self.state.pod);
        let Some((_, spec)) = containers(&pod).nth(index) else { return };
        let Some(live) = self.live.get_mut(&index) else { return };
        if live.stopping {
            return;
        }
        live.stopping = true;
        live.kill_at = Some(Instant::now() + grace);
        if !quietly {
            self.normal(&spec.name, "Killing", format!("Stopping container {}", spec.name));
        }
        if grace.is_zero() {
            return self.kill_overdue(Instant::now());
        }
        let Some(live) = self.live.get_mut(&index) else { return };
        let running = Arc::clone(&live.running);
        let signal = running.stop_signal.number();
        let Some(hook) = spec.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()) else {
            return running.process.signal(signal);
        };
        let (action, container, node) = (Action::of_hook(hook), spec.clone(), Arc::clone(&self.node));
        let ip = self.state.ip.unwrap_or(node.host_ip);
        let task = tokio::spawn(async move {
            if let Err(reason) = hooks::run(&action, &container, &running, ip, grace).await {
                node.events.warning(&about_pod(&pod, Some(&container.name)), "FailedPreStopHook", reason);
            }
            running.process.signal(signal);
        });
        live.tasks.push(task.abort_handle());
    }

    pub(super) fn kill_overdue(&mut self, now: Instant) {
        for live in self.live.values_mut().filter(|l| l.kill_at.is_some_and(|at| at <= now)) {
            live.running.process.kill();
            live.kill_at = None;
        }
    }
}
