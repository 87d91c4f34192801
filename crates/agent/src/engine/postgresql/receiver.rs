//! The end of the stream: noticed when it happens, not with the next look at the server.

use coregent_core::report::Reach;
use coregent_process::tree::Death;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;

/// A connection that nothing came back of in this time: two members that are a round trip apart answer in a fraction of it.
const CONNECT: Duration = Duration::from_millis(400);

/// The WAL receiver as the last status saw it. It ends with its connection, whatever ended that.
#[derive(Default)]
pub(super) struct Receiver {
    process: RefCell<Option<(i32, Rc<Death>)>>,
}

impl Receiver {
    /// Takes in which process streams now, if one does.
    pub(super) fn watch(&self, pid: Option<i32>) {
        let mut process = self.process.borrow_mut();
        if process.as_ref().map(|(pid, _)| *pid) == pid {
            return;
        }
        // One that has ended already is told by the next look, as without this.
        *process = pid.and_then(|pid| Some((pid, Rc::new(Death::of(pid).ok()?))));
    }

    /// Resolves when that process has ended; never while none is known.
    pub(super) async fn ended(&self) {
        let known = self.process.borrow().clone();
        let Some((pid, process)) = known else { return std::future::pending().await };
        process.ended().await;
        let mut current = self.process.borrow_mut();
        if current.as_ref().is_some_and(|(now, _)| *now == pid) {
            *current = None;
        }
    }
}

/// Connects to the agent that runs beside the server at `address`.
pub(super) async fn reach(address: &str, port: u16) -> Reach {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    match tokio::time::timeout(CONNECT, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => Reach::Answers,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Reach::Refuses,
        _ => Reach::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_listening_agent_answers_and_one_that_is_gone_refuses_although_its_host_is_there() {
        let agent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = agent.local_addr().unwrap().port();
        assert_eq!(reach("127.0.0.1:5432", port).await, Reach::Answers);
        drop(agent);
        assert_eq!(reach("127.0.0.1:5432", port).await, Reach::Refuses);
    }

    #[tokio::test]
    async fn the_end_of_the_receiver_is_told_once_and_only_of_the_one_that_is_known() {
        let receiver = Receiver::default();
        let mut child = tokio::process::Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        receiver.watch(pid);
        let early = tokio::time::timeout(Duration::from_millis(50), receiver.ended()).await;
        assert!(early.is_err(), "it runs");
        child.kill().await.unwrap();
        receiver.ended().await;
        let again = tokio::time::timeout(Duration::from_millis(50), receiver.ended()).await;
        assert!(again.is_err(), "it has been told");
    }
}
