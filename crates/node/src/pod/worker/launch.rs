//! Starting containers, and what hangs on a container that runs.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

use super::{LOOK_AGAIN, Live, Message, Worker};
use crate::pod::{
    container::{self, Place, Running, StartError},
    hooks::{self, Action},
    probe::{self, Question},
    state::{Run, containers},
};

impl Worker {
    pub(super) async fn start_container(&mut self, index: usize) {
        let pod = Arc::clone(&self.state.pod);
        let Some((_, spec)) = containers(&pod).nth(index) else { return };
        let Some(sandbox) = &self.sandbox else { return };
        let again = matches!(self.state.containers[index].run, Run::Terminated(_));
        let restart = self.state.containers[index].restarts + i32::from(again);
        let place = Place { node: &self.node, pod: &pod, ip: self.state.ip, sandbox, volumes: &self.volumes };
        match container::start(&place, spec, restart).await {
            Ok(running) => self.started(index, spec, running, restart),
            Err(error) => self.not_started(index, &error),
        }
    }

    pub(super) fn started(&mut self, index: usize, spec: &Container, running: Running, restart: i32) {
        let running = Arc::new(running);
        let has_startup = spec.startup_probe.is_some();
        let container = &mut self.state.containers[index];
        if let Run::Terminated(ended) = &container.run {
            container.last = Some(ended.clone());
        }
        container.restarts = restart;
        container.run = Run::Running { since: Timestamp::now() };
        container.id = Some(running.id.clone());
        container.started = !has_startup;
        container.ready = !has_startup && spec.readiness_probe.is_none();
        container.retry_at = None;
        let name = container.name.clone();
        let image = container.image.clone();
        self.normal(&name, "Pulled", format!("Container image {image:?} already present on machine"));
        self.normal(&name, "Created", format!("Created container {name}"));
        self.normal(&name, "Started", format!("Started container {name}"));
        self.node.add_running(self.key(&name), Arc::clone(&running));

        let (exits, process, id) = (self.own.clone(), running.process.clone(), running.id.clone());
        tokio::spawn(async move {
            let status = process.wait().await;
            let _ = exits.send(Message::Exited { index, id, status });
        });
        let mut live = Live { running, tasks: Vec::new(), stopping: false, kill_at: None };
        self.run_post_start(index, spec, &mut live);
        if has_startup {
            self.ask(index, Question::Startup, spec, &mut live);
        } else {
            self.ask(index, Question::Liveness, spec, &mut live);
            self.ask(index, Question::Readiness, spec, &mut live);
        }
        self.live.insert(index, live);
    }

    pub(super) fn not_started(&mut self, index: usize, error: &StartError) {
        let message = error.to_string();
        let container = &mut self.state.containers[index];
        let name = container.name.clone();
        let wait = match error {
            // Looked for again at the next change of an object; the time is for changes that we cannot see.
            StartError::Config(_) | StartError::Volume(_) | StartError::Image(_) => LOOK_AGAIN,
            _ => container.backoff.after_failed_start(),
        };
        container.retry_at = Some(Instant::now() + wait);
        if let Run::Terminated(ended) = &container.run {
            container.last = Some(ended.clone());
            container.restarts += 1;
        }
        let seen = matches!(&container.run, Run::Waiting { message: Some(m), .. } if *m == message);
        let reason = match error {
            StartError::Image(_) if seen => "ImagePullBackOff",
            _ => error.reason(),
        };
        container.run = Run::Waiting { reason: reason.into(), message: Some(message.clone()) };
        if !seen {
            self.warn(Some(&name), "Failed", format!("{}: {message}", error.reason()));
        }
    }

    pub(super) fn run_post_start(&self, index: usize, spec: &Container, live: &mut Live) {
        let Some(hook) = spec.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) else { return };
        let (action, container, running) = (Action::of_hook(hook), spec.clone(), Arc::clone(&live.running));
        let (own, ip) = (self.own.clone(), self.state.ip.unwrap_or(self.node.host_ip));
        let task = tokio::spawn(async move {
            let longest = Duration::from_secs(3600);
            if let Err(reason) = hooks::run(&action, &container, &running, ip, longest).await {
                let _ = own.send(Message::HookFailed { index, id: running.id.clone(), reason });
            }
        });
        live.tasks.push(task.abort_handle());
    }

    pub(super) fn ask(&self, index: usize, question: Question, spec: &Container, live: &mut Live) {
        let Some(probe) = probe::of(spec, question) else { return };
        let (running, ip) = (Arc::clone(&live.running), self.state.ip.unwrap_or(self.node.host_ip));
        let task =
            tokio::spawn(probe::ask(index, question, probe.clone(), spec.clone(), running, ip, self.own.clone()));
        live.tasks.push(task.abort_handle());
    }
}
