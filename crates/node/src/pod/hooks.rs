//! Actions in or towards a container: what probes and lifecycle hooks have in common.

use std::{net::Ipv4Addr, time::Duration};

use coregent_process::{ExecSpec, Output};
use k8s_openapi::{
    api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::container::Running;

/// As much of an answer as is worth showing.
const SHOWN: usize = 1024;

/// One thing to do.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Exec(ExecAction),
    Http(HTTPGetAction),
    Tcp(TCPSocketAction),
    Sleep(Duration),
    /// A kind that the node does not serve; it fails, with this name.
    Unknown(&'static str),
}

impl Action {
    /// What a probe asks for.
    pub fn of_probe(probe: &Probe) -> Self {
        match probe {
            Probe { exec: Some(exec), .. } => Self::Exec(exec.clone()),
            Probe { http_get: Some(http), .. } => Self::Http(http.clone()),
            Probe { tcp_socket: Some(tcp), .. } => Self::Tcp(tcp.clone()),
            Probe { grpc: Some(_), .. } => Self::Unknown("grpc"),
            _ => Self::Unknown("none"),
        }
    }

    /// What a hook asks for.
    pub fn of_hook(hook: &LifecycleHandler) -> Self {
        match hook {
            LifecycleHandler { exec: Some(exec), .. } => Self::Exec(exec.clone()),
            LifecycleHandler { http_get: Some(http), .. } => Self::Http(http.clone()),
            LifecycleHandler { sleep: Some(sleep), .. } => {
                Self::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0)))
            }
            LifecycleHandler { tcp_socket: Some(tcp), .. } => Self::Tcp(tcp.clone()),
            _ => Self::Unknown("none"),
        }
    }
}

/// Carries an action out; the error is what a person is shown.
pub(crate) async fn run(
    action: &Action,
    container: &Container,
    running: &Running,
    ip: Ipv4Addr,
    timeout: Duration,
) -> Result<(), String> {
    let work = async {
        match action {
            Action::Exec(exec) => run_exec(exec, running).await,
            Action::Http(http) => get(http, container, ip).await,
            Action::Tcp(tcp) => {
                let (host, port) = target(tcp.host.as_deref(), &tcp.port, container, ip)?;
                TcpStream::connect((host.as_str(), port)).await.map_err(|e| format!("dial tcp {host}:{port}: {e}"))?;
                Ok(())
            }
            Action::Sleep(duration) => {
                tokio::time::sleep(*duration).await;
                Ok(())
            }
            Action::Unknown(kind) => Err(format!("action {kind:?} is not served; use exec, httpGet or tcpSocket")),
        }
    };
    match tokio::time::timeout(timeout, work).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} s", timeout.as_secs_f32())),
    }
}

async fn run_exec(exec: &ExecAction, running: &Running) -> Result<(), String> {
    let spec = ExecSpec { argv: exec.command.clone().unwrap_or_default(), ..ExecSpec::default() };
    let mut process = running.process.exec(spec).await.map_err(|e| e.to_string())?;
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let (out, err, status) = tokio::join!(shown(stdout), shown(stderr), process.wait());
    if status.success() {
        return Ok(());
    }
    let text = format!("{out}{err}");
    let text = text.trim();
    Err(if text.is_empty() { format!("command failed: {status}") } else { text.to_owned() })
}

/// The beginning of an output; the rest is read and dropped so that the program is not stopped by a full pipe.
async fn shown(output: Option<Output>) -> String {
    let Some(mut output) = output else { return String::new() };
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n) = output.read(&mut buffer).await {
        if n == 0 {
            break;
        }
        text.extend_from_slice(&buffer[..n.min(SHOWN.saturating_sub(text.len()))]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn target(
    host: Option<&str>,
    port: &IntOrString,
    container: &Container,
    ip: Ipv4Addr,
) -> Result<(String, u16), String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            named.map(|p| p.container_port).or_else(|| name.parse().ok())
        }
    };
    let port =
        number.and_then(|n| u16::try_from(n).ok()).ok_or_else(|| format!("the container has no port {port:?}"))?;
    Ok((host.filter(|h| !h.is_empty()).map_or_else(|| ip.to_string(), str::to_owned), port))
}

/// An HTTP GET whose answer counts only by its code: written by hand, because the probe is to see exactly
/// what any client would, with no connection kept.
async fn get(http: &HTTPGetAction, container: &Container, ip: Ipv4Addr) -> Result<(), String> {
    if http.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https")) {
        return Err("scheme HTTPS is not served; use HTTP, tcpSocket or exec".into());
    }
    let (host, port) = target(http.host.as_deref(), &http.port, container, ip)?;
    let path = http.path.as_deref().filter(|p| !p.is_empty()).unwrap_or("/");
    let failed = |e: std::io::Error| format!("GET http://{host}:{port}{path}: {e}");
    let mut stream = TcpStream::connect((host.as_str(), port)).await.map_err(failed)?;
    let mut request = format!("GET {path} HTTP/1.1\r\n");
    let own = http.http_headers.iter().flatten();
    if !own.clone().any(|h| h.name.eq_ignore_ascii_case("host")) {
        request.push_str(&format!("Host: {host}:{port}\r\n"));
    }
    for header in own {
        request.push_str(&format!("{}: {}\r\n", header.name, header.value));
    }
    request.push_str("User-Agent: coregent-node\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while head.len() < 8 * SHOWN {
        let n = stream.read(&mut buffer).await.map_err(failed)?;
        head.extend_from_slice(&buffer[..n]);
        // Not to the end: a server may keep the connection open all the same.
        if n == 0 || head.windows(4).any(|w| w == b"\r\n\r\n") {
            break;
        }
    }
    verdict(&head)
}

/// Any code from 200 to 399 is success.
fn verdict(answer: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(answer);
    let code = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
    match code {
        Some(200..=399) => Ok(()),
        Some(code) => {
            let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).trim();
            let body: String = body.chars().take(300).collect();
            Err(format!("HTTP probe failed with statuscode: {code} {body}").trim().to_owned())
        }
        None => Err("the answer is not HTTP".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_from_200_to_399_are_success() {
        for (answer, good) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.0 302 Found\r\n\r\n", true),
            ("HTTP/1.1 503 Service Unavailable\r\n\r\nno primary", false),
            ("SSH-2.0", false),
            ("", false),
        ] {
            assert_eq!(verdict(answer.as_bytes()).is_ok(), good, "{answer}");
        }
        assert_eq!(
            verdict(b"HTTP/1.1 503 X\r\nA: b\r\n\r\nno primary\n").unwrap_err(),
            "HTTP probe failed with statuscode: 503 no primary"
        );
    }

    #[test]
    fn ports_are_found_by_name() {
        let container: Container =
            serde_json::from_value(serde_json::json!({"name": "c", "ports": [{"name": "web", "containerPort": 80}]}))
                .unwrap();
        let ip = Ipv4Addr::new(127, 64, 0, 2);
        let of = |port| target(None, &port, &container, ip);
        assert_eq!(of(IntOrString::String("web".into())), Ok(("127.64.0.2".into(), 80)));
        assert_eq!(of(IntOrString::Int(81)), Ok(("127.64.0.2".into(), 81)));
        assert!(of(IntOrString::String("none".into())).is_err());
    }
}
