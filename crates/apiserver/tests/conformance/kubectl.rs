//! A real kubectl against both: what it prints, on both outputs, and how it ends.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use coregent_apiserver::{UserInfo, pki, serve};
use regex::Regex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::commands::{self, Invocation};
use crate::compare::{self, Difference};
use crate::recording;
use crate::run::{self, Exchange};
use crate::scenario::Scenario;

/// What kubectl came to; the reason why there is none otherwise.
pub async fn judge() -> Result<(Scenario, usize, Vec<Difference>), String> {
    let program = tokio::task::spawn_blocking(fetch).await.unwrap()?;
    let scenario = commands::scenario();
    if let Some(kubeconfig) = std::env::var_os("COREGENT_CONFORMANCE_KUBECONFIG") {
        let place = run::Place::recorded_from().await.unwrap();
        run::tidy(&scenario, &place).await;
        recording::write(&scenario, &invoke(&program, kubeconfig.into()).await);
        run::tidy(&scenario, &place).await;
    }
    let recorded = recording::lines(&scenario);
    let asked: Vec<Value> = commands::all().iter().filter(|one| !one.silent).map(described).collect();
    let then: Vec<Value> = recorded.iter().map(|exchange| exchange.request.clone()).collect();
    assert_eq!(asked, then, "the commands have changed since they were recorded");
    let given = embedded(&program, &scenario).await;
    let differences = compare::exchanges(scenario.name, &recorded, &given);
    Ok((scenario, given.len(), differences))
}

/// A real kubectl, or why there is none.
fn fetch() -> Result<PathBuf, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dev/kubectl");
    let output = Command::new(script).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().into()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

async fn embedded(program: &std::path::Path, scenario: &Scenario) -> Vec<Exchange> {
    let place = run::embedded(scenario).await;
    let server = place.server().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listener = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let identity = pki::prepare(folder.path(), &pki::names(&[address.ip()])).unwrap();
    let token = pki::write_kubeconfig(folder.path(), address, &identity.ca_pem).unwrap();
    server.add_static_token(&token, UserInfo::admin());
    let shutdown = CancellationToken::new();
    let _stop = shutdown.clone().drop_guard();
    tokio::spawn(serve::https(server.clone(), listener, identity, shutdown));
    invoke(program, folder.path().join("kubeconfig")).await
}

async fn invoke(program: &std::path::Path, kubeconfig: PathBuf) -> Vec<Exchange> {
    let home = tempfile::tempdir().unwrap();
    let mut exchanges = Vec::new();
    for invocation in commands::all() {
        let mut command = Command::new(program);
        command.args(&invocation.arguments).env("KUBECONFIG", &kubeconfig).env("HOME", home.path());
        let wanted = invocation.clone();
        let answer = tokio::task::spawn_blocking(move || until(&mut command, &wanted)).await.unwrap();
        if !invocation.silent {
            exchanges.push(Exchange { step: invocation.label.to_owned(), request: described(&invocation), answer });
        }
    }
    exchanges
}

/// Runs it, again and again if what controllers do is waited for.
fn until(command: &mut Command, invocation: &Invocation) -> Value {
    for _ in 0..200 {
        let output = once(command, invocation.input);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if invocation.until.is_none_or(|wanted| out.contains(wanted)) {
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            return json!({"status": output.status.code(), "out": lines(&out), "err": lines(&err)});
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    json!({"waited": "in vain"})
}

fn once(command: &mut Command, input: Option<&str>) -> Output {
    use std::io::Write;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.unwrap_or_default().as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// What changes from run to run, and what stands for it.
static CHANGING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?( [+-]\d{4})?( UTC)?", "<time>"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
        (r"10\.212\.\d+\.\d+", "<address>"),
        (r"https://127\.[0-9.:]+", "<server>"),
        (r"/tmp/(LIVE|MERGED)-\d+", "$1"),
        (r#"resourceVersion: "\d+""#, "resourceVersion: <revision>"),
        (r"\b(\d+h)?(\d+m)?\d+s\b", "<age>"),
        // The columns of a table are as wide as what is in them.
        ("  +", "  "),
    ]
    .map(|(pattern, text)| (Regex::new(pattern).unwrap(), text))
    .into()
});

fn lines(text: &str) -> Vec<String> {
    let plain = |line: &str| {
        let mut line = line.to_owned();
        for (pattern, stands) in CHANGING.iter() {
            line = pattern.replace_all(&line, *stands).into_owned();
        }
        line.trim_end().to_owned()
    };
    text.lines().map(plain).collect()
}

fn described(invocation: &Invocation) -> Value {
    let mut described = json!({"kubectl": invocation.arguments});
    if let Some(input) = invocation.input {
        described["input"] = input.into();
    }
    described
}
