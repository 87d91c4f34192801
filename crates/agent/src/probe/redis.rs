//! Redis, by its own protocol (RESP): a request is an array of texts, an answer a tree of them.

use coregent_core::rsm::membership::ActionKind;
use coregent_core::rsm::probe::Answer;
use coregent_core::rsm::request::{Place, Request};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::HandlerError;
use super::config::{Account, Kinds, ProbeConfig};

/// Silence after which the server is given up.
const SILENCE: Duration = Duration::from_secs(5);
/// Between two looks at something that Redis tells nobody of.
const AGAIN: Duration = Duration::from_millis(50);
/// How long writes may wait for the replica that takes over.
const FAILOVER_MILLIS: &str = "5000";
/// More than any answer that is asked for is long.
const LONGEST: usize = 1024 * 1024;
const DEEPEST: usize = 8;

/// One server.
#[derive(Debug)]
pub(crate) struct Redis {
    address: String,
    account: Option<Account>,
    kept: Option<BufReader<TcpStream>>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Number(i64),
    Nothing,
    List(Vec<Reply>),
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        if let Reply::Text(text) = self { text } else { "" }
    }
}

impl Redis {
    /// The server at `host:port`.
    pub(crate) fn at(address: String, account: Option<Account>) -> Redis {
        Redis { address, account, kept: None }
    }

    /// Its role. Redis has no number for how new that is.
    pub(crate) async fn role(&mut self, kinds: &Kinds) -> Result<Answer, HandlerError> {
        let reply = self.call(&["ROLE"]).await?;
        let role = match &reply {
            Reply::List(items) => match items.first().map(Reply::text) {
                Some("master") => &kinds.leader,
                Some("slave") => &kinds.follower,
                _ => return Err(self.unreadable("ROLE says neither master nor slave")),
            },
            _ => return Err(self.unreadable("ROLE gives no list")),
        };
        Ok(Answer::Role { role: role.clone(), version: None })
    }

    /// Sends a command and reads its answer.
    pub(crate) async fn call(&mut self, command: &[&str]) -> Result<Reply, HandlerError> {
        let answer = timeout(SILENCE, self.try_call(command)).await;
        let answer = answer.unwrap_or_else(|_| Err(HandlerError::Silent { address: self.address.clone() }));
        // Whatever is left of a failed request on the connection is not to be taken for the next answer.
        if !matches!(answer, Ok(_) | Err(HandlerError::Refused { .. })) {
            self.kept = None;
        }
        answer
    }

    async fn try_call(&mut self, command: &[&str]) -> Result<Reply, HandlerError> {
        let unreachable = |source| HandlerError::Unreachable { address: self.address.clone(), source };
        let mut stream = match self.kept.take() {
            Some(kept) => kept,
            None => {
                let stream = TcpStream::connect(&self.address).await.map_err(unreachable)?;
                let mut stream = BufReader::new(stream);
                if let Some(account) = &self.account {
                    let login = ["AUTH", &account.username, &account.password];
                    let login = if account.username.is_empty() { vec![login[0], login[2]] } else { login.to_vec() };
                    stream.write_all(&encode(&login)).await.map_err(unreachable)?;
                    self.answer(&mut stream).await?;
                }
                stream
            }
        };
        stream.write_all(&encode(command)).await.map_err(unreachable)?;
        let answer = self.answer(&mut stream).await;
        self.kept = Some(stream);
        answer
    }

    async fn answer(&self, stream: &mut BufReader<TcpStream>) -> Result<Reply, HandlerError> {
        let mut budget = LONGEST;
        match read(stream, &mut budget, DEEPEST).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(message)) => Err(HandlerError::Refused { code: 0, message }),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(self.unreadable(&error.to_string())),
            Err(source) => Err(HandlerError::Unreachable { address: self.address.clone(), source }),
        }
    }

    fn unreadable(&self, why: &str) -> HandlerError {
        HandlerError::Unreadable { address: self.address.clone(), why: why.to_owned() }
    }
}

/// Does what is asked of this member's Redis. Each may be done twice: what is so already is left.
pub(super) async fn carry_out(config: &ProbeConfig, request: &Request) -> Result<(), String> {
    act(config, request).await.map_err(|error| error.to_string())
}

async fn act(config: &ProbeConfig, request: &Request) -> Result<(), HandlerError> {
    let refused = |why: &str| HandlerError::Refused { code: 0, message: why.to_owned() };
    let port = if config.port == 0 { 6379 } else { config.port }.to_string();
    let at = |place: &Place| Redis::at(format!("{}:{port}", place.host), config.account.clone());
    let leader = request.leader.as_ref().ok_or_else(|| refused("nobody leads"))?;
    match request.action {
        ActionKind::MemberJoin => follow(&mut at(&request.member), &leader.host, &port).await,
        ActionKind::LogSync => {
            let end = offset(&at(leader).call(&["ROLE"]).await?);
            let mut member = at(&request.member);
            // Whoever asked bounds how long this may take.
            while offset(&member.call(&["ROLE"]).await?) < end {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(())
        }
        ActionKind::Switchover => {
            let target = request.target.as_ref().ok_or_else(|| refused("there is no target"))?;
            let mut old = at(&request.member);
            // Writes wait until the replica has them all; it takes over then, or within that time everything is as before.
            if !is_replica(&old.call(&["ROLE"]).await?) {
                old.call(&["FAILOVER", "TO", &target.host, &port, "TIMEOUT", FAILOVER_MILLIS]).await?;
            }
            while !is_replica(&old.call(&["ROLE"]).await?) {
                tokio::time::sleep(AGAIN).await;
            }
            // What each of them is it must be after a restart too; the new primary first.
            at(target).call(&REMEMBER).await?;
            old.call(&REMEMBER).await?;
            for other in
                request.members.iter().filter(|other| other.pod != target.pod && other.pod != request.member.pod)
            {
                follow(&mut at(other), &target.host, &port).await?;
            }
            Ok(())
        }
        // A replica is no member that anybody counts.
        ActionKind::Promote => Ok(()),
        ActionKind::MemberLeave if leader.pod == request.member.pod => {
            Err(refused("it leads, and has to hand over first"))
        }
        ActionKind::MemberLeave => Ok(()),
    }
}

/// Writes what a server is into its configuration file.
const REMEMBER: [&str; 2] = ["CONFIG", "REWRITE"];

async fn follow(server: &mut Redis, host: &str, port: &str) -> Result<(), HandlerError> {
    server.call(&["REPLICAOF", host, port]).await?;
    server.call(&REMEMBER).await.map(drop)
}

fn is_replica(role: &Reply) -> bool {
    matches!(role, Reply::List(items) if items.first().is_some_and(|word| word.text() == "slave"))
}

/// How far a server is in the stream: `master, offset, …` or `slave, host, port, state, offset`; -1 where it follows nobody yet.
fn offset(role: &Reply) -> i64 {
    let Reply::List(items) = role else { return -1 };
    let at = if is_replica(role) { 4 } else { 1 };
    match items.get(at) {
        Some(Reply::Number(offset)) => *offset,
        _ => -1,
    }
}

fn encode(command: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Reads one answer; the inner error is what the server says of a command that it refuses.
async fn read<R: AsyncBufReadExt + Unpin>(
    stream: &mut R,
    budget: &mut usize,
    depth: usize,
) -> std::io::Result<Result<Reply, String>> {
    let bad = |why: &'static str| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    let mut line = Vec::new();
    let limit = u64::try_from(*budget).unwrap_or(u64::MAX);
    stream.take(limit).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    *budget = budget.saturating_sub(line.len());
    let text = String::from_utf8_lossy(line.strip_suffix(b"\r\n").ok_or_else(|| bad("a line without an end"))?);
    let (kind, rest) = text.split_at_checked(1).ok_or_else(|| bad("an empty line"))?;
    let length = || rest.parse::<i64>().map_err(|_| bad("a length that is no number"));
    match kind {
        "+" => Ok(Ok(Reply::Text(rest.to_owned()))),
        "-" => Ok(Err(rest.to_owned())),
        ":" => Ok(Ok(Reply::Number(length()?))),
        "$" => {
            let Ok(length) = usize::try_from(length()?) else { return Ok(Ok(Reply::Nothing)) };
            if length > *budget {
                return Err(bad("a text that is too long"));
            }
            *budget -= length;
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes).await?;
            bytes.truncate(length);
            Ok(Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned())))
        }
        "*" => {
            let Ok(length) = usize::try_from(length()?) else { return Ok(Ok(Reply::Nothing)) };
            if depth == 0 || length > *budget {
                return Err(bad("a list that is too long or too deep"));
            }
            let mut items = Vec::new();
            for _ in 0..length {
                let item = Box::pin(read(stream, budget, depth - 1)).await?;
                items.push(item.unwrap_or_else(Reply::Text));
            }
            Ok(Ok(Reply::List(items)))
        }
        _ => Err(bad("the answer is not Redis' protocol")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answer(bytes: &[u8]) -> std::io::Result<Result<Reply, String>> {
        let mut budget = LONGEST;
        read(&mut BufReader::new(bytes), &mut budget, DEEPEST).await
    }

    #[tokio::test]
    async fn answers_are_read_whole_and_garbage_is_refused() {
        let role = b"*3\r\n$6\r\nmaster\r\n:3129659\r\n*1\r\n*2\r\n$9\r\n127.0.0.1\r\n$-1\r\n";
        let Ok(Ok(Reply::List(items))) = answer(role).await else { unreachable!("a list") };
        assert_eq!((items[0].text(), &items[1]), ("master", &Reply::Number(3_129_659)));
        assert_eq!(answer(b"+OK\r\n").await.unwrap(), Ok(Reply::Text("OK".into())));
        assert_eq!(answer(b"-ERR no\r\n").await.unwrap(), Err("ERR no".into()));
        let deep = "*1\r\n".repeat(100);
        for garbage in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"$99999999999\r\n",
            b"*x\r\n",
            b"\r\n",
            b"$5\r\nab",
            deep.as_bytes(),
            &[0xff; 64],
        ] {
            assert!(answer(garbage).await.is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn a_command_is_an_array_of_texts() {
        assert_eq!(encode(&["AUTH", "p w"]), b"*2\r\n$4\r\nAUTH\r\n$3\r\np w\r\n");
    }
}
