//! What a real kubectl does with a pod that runs: logs, exec, cp, port-forward.

use crate::plane::{Plane, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    command: [sh, -c, 'echo started; mkdir -p /tmp/www; echo hello >/tmp/www/index.html; exec busybox httpd -f -p 8080 -h /tmp/www']
    readinessProbe: {httpGet: {port: 8080, path: /index.html}, periodSeconds: 1}
";

/// A real kubectl, or why there is none.
fn fetch() -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/kubectl");
    let output = Command::new(script).output().map_err(|error| error.to_string())?;
    let said = if output.status.success() { &output.stdout } else { &output.stderr };
    let said = text(said).trim().to_owned();
    if output.status.success() { Ok(said.into()) } else { Err(said) }
}

struct Kubectl<'a> {
    plane: &'a Plane,
    program: PathBuf,
}

impl Kubectl<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("KUBECONFIG", self.plane.data_dir().join("kubeconfig")).env("HOME", self.plane.dir());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("kubectl runs")
    }

    fn must(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "kubectl {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

/// A port-forward that is ended when it goes.
struct Forward {
    kubectl: Child,
    said: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Forward {
    /// From a free port of this machine to `port` of the pod.
    fn to(kubectl: &Kubectl<'_>, port: u16) -> Forward {
        let mut command = kubectl.command(&["port-forward", "pod/web", &format!(":{port}"), "--address", "127.0.0.1"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl runs");
        let mut said = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        said.read_line(&mut line).expect("what it says");
        let address = line.strip_prefix("Forwarding from ").and_then(|rest| rest.split(' ').next());
        let address = address.and_then(|text| text.parse().ok()).expect("the address that it listens at");
        Forward { kubectl: child, said, address }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the forwarded port");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// The first line of kubectl's complaints.
    fn complaint(mut self) -> String {
        let mut line = String::new();
        let mut complaints = BufReader::new(self.kubectl.stderr.take().expect("its complaints"));
        complaints.read_line(&mut line).expect("what it says");
        line
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
        let mut rest = Vec::new();
        let _ = self.said.read_to_end(&mut rest);
    }
}

#[test]
fn kubectl_reads_enters_copies_to_and_forwards_to_a_running_pod() {
    let program = match fetch() {
        Ok(program) => program,
        Err(why) => return eprintln!("SKIPPED: no kubectl: {why}"),
    };
    let plane = Plane::up();
    plane.apply(POD);
    plane.wait("pod/web", "Ready");
    let kubectl = Kubectl { plane: &plane, program };

    assert_eq!(kubectl.must(&["logs", "web"]), "started\n");
    assert_eq!(kubectl.must(&["exec", "web", "--", "sh", "-c", "echo $((6 * 7))"]), "42\n");
    let failed = kubectl.run(&["exec", "web", "--", "sh", "-c", "echo no >&2; exit 7"]);
    assert_eq!(failed.status.code(), Some(7));
    assert!(text(&failed.stderr).starts_with("no\n"), "{}", text(&failed.stderr));

    let large: String = (0..200_000).map(|n| format!("{n}\n")).collect();
    let file = plane.write("large", &large).display().to_string();
    kubectl.must(&["cp", &file, "web:/tmp/www/large"]);
    let copy = plane.dir().join("copy");
    kubectl.must(&["cp", "web:/tmp/www/large", &copy.display().to_string()]);
    assert!(std::fs::read_to_string(&copy).expect("the copy") == large, "the copy differs");

    let forward = Forward::to(&kubectl, 8080);
    assert!(forward.get("/index.html").ends_with("hello\n"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(forward.get("/large").ends_with(&large), "the file came through changed"));
        }
    });
    drop(forward);

    // A port that nobody listens on: said, with the reason.
    let forward = Forward::to(&kubectl, 9);
    assert_eq!(forward.get("/"), "");
    let complaint = forward.complaint();
    assert!(complaint.contains("failed to connect to") && complaint.contains("refused"), "{complaint}");
}
