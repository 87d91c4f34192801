//! One long-running part of the plane: how to stop it and how it ended.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A part that runs.
pub struct Part {
    name: &'static str,
    shutdown: CancellationToken,
    ended: CancellationToken,
    task: JoinHandle<()>,
}

impl Part {
    /// Starts `run`, which ends when its token is cancelled.
    pub fn start<F>(name: &'static str, run: impl FnOnce(CancellationToken) -> F) -> Part
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let shutdown = CancellationToken::new();
        let ended = CancellationToken::new();
        let work = run(shutdown.clone());
        let guard = ended.clone().drop_guard();
        let task = tokio::spawn(async move {
            let _guard = guard;
            if let Err(why) = work.await {
                tracing::error!("the {name} ended: {why}");
            }
        });
        Part { name, shutdown, ended, task }
    }

    /// Resolves when it has ended, with its name.
    pub async fn ended(&self) -> &'static str {
        self.ended.cancelled().await;
        self.name
    }

    /// Asks it to end and waits for that.
    pub async fn stop(&mut self) {
        self.shutdown.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!("the {} ended badly: {error}", self.name);
        }
    }
}
