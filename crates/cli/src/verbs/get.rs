//! `coregent get`: tables as the API server prints them.

use crate::connection::Connection;
use crate::failure::{Failure, Outcome};
use crate::kinds::{Kinds, Served, kind_and_name};
use crate::output::{self, Format};
use crate::say;
use futures::{AsyncBufReadExt, TryStreamExt};
use serde_json::Value;

/// What to print.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// KIND, KIND NAME or KIND/NAME; several kinds with commas: pods,pvc
    #[arg(value_name = "KIND [NAME]", num_args = 1..=2, required = true)]
    pub object: Vec<String>,
    /// Keep printing as things change
    #[arg(short, long)]
    pub watch: bool,
    /// Every namespace
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only objects whose labels match
    #[arg(short = 'l', long)]
    pub selector: Option<String>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// Accept header that asks for rows instead of objects.
const AS_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Prints one object, a kind, or every kind of a category.
///
/// # Errors
/// When the kind or the object is not there.
pub async fn run(connection: &Connection, args: &Args) -> Outcome {
    let (kind, name) = kind_and_name(&args.object)?;
    let kinds = Kinds::discover(connection).await?;
    let mut found = Vec::new();
    for kind in kind.split(',').filter(|kind| !kind.is_empty()) {
        found.extend(kinds.find_all(kind)?);
    }
    if let (true, [one]) = (args.watch, found.as_slice()) {
        return watch(connection, one, name.as_deref(), args).await;
    }
    let several = found.len() > 1;
    if args.watch && several {
        return Err(Failure::refused(
            "cannot watch several kinds",
            "each is a watch of its own",
            "name one kind with -w",
        ));
    }
    for served in found {
        print_once(connection, served, name.as_deref(), args, several).await?;
    }
    Ok(())
}

async fn print_once(
    connection: &Connection,
    served: &Served,
    name: Option<&str>,
    args: &Args,
    several: bool,
) -> Outcome {
    let rows = args.output.is_table();
    let value =
        parse(&fetch(connection, &uri(connection, served, name, args, None), rows, &describe(served, name)).await?)?;
    if rows {
        let prefix = several.then(|| served.display());
        let printed = output::table(&value, args.output == Format::Wide, args.all_namespaces, prefix.as_deref());
        if printed.is_empty() && !several {
            say::err(format_args!("no {} in {}", served.resource.plural, scope(connection, served, args)));
        }
        print!("{printed}");
    } else {
        print!("{}", output::objects(&value, args.output, &served.display()));
    }
    Ok(())
}

fn describe(served: &Served, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("cannot get {}/{name}", served.display()),
        None => format!("cannot list {}", served.resource.plural),
    }
}

fn scope(connection: &Connection, served: &Served, args: &Args) -> String {
    if args.all_namespaces || !served.namespaced {
        "the cluster".into()
    } else {
        format!("namespace {}", connection.namespace)
    }
}

fn uri(connection: &Connection, served: &Served, name: Option<&str>, args: &Args, watch_from: Option<&str>) -> String {
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    let mut uri = served.path(namespace);
    if let (Some(name), None) = (name, watch_from) {
        return format!("{uri}/{name}");
    }
    let mut query = Vec::new();
    if let Some(selector) = &args.selector {
        query.push(format!("labelSelector={}", output::percent_encode(selector)));
    }
    if let Some(name) = name {
        query.push(format!("fieldSelector=metadata.name%3D{}", output::percent_encode(name)));
    }
    if let Some(version) = watch_from {
        query.push(format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}"));
    }
    if !query.is_empty() {
        uri = format!("{uri}?{}", query.join("&"));
    }
    uri
}

fn request(uri: &str, rows: bool) -> Outcome<http::Request<Vec<u8>>> {
    let accept = if rows { AS_TABLE } else { "application/json" };
    http::Request::get(uri).header(http::header::ACCEPT, accept).body(Vec::new()).map_err(|error| {
        Failure::refused("cannot ask the API server", error, "check the name and the selector for odd characters")
    })
}

async fn fetch(connection: &Connection, uri: &str, rows: bool, what: &str) -> Outcome<String> {
    connection.client.request_text(request(uri, rows)?).await.map_err(|error| Failure::from_api(what, error))
}

/// Prints what is there and then every change; begins again where the server ended the watch.
async fn watch(connection: &Connection, served: &Served, name: Option<&str>, args: &Args) -> Outcome {
    let rows = args.output.is_table();
    let what = describe(served, name);
    let first = parse(&fetch(connection, &uri(connection, served, name, args, None), rows, &what).await?)?;
    let mut header = true;
    print_row(&first, args, served, &mut header);
    let mut version = first["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    loop {
        let request = request(&uri(connection, served, name, args, Some(&version)), rows)?;
        let stream =
            connection.client.request_stream(request).await.map_err(|error| Failure::from_api(&what, error))?;
        let mut lines = std::pin::pin!(stream.lines());
        while let Ok(Some(line)) = lines.try_next().await {
            let event = parse(&line)?;
            match event["type"].as_str() {
                Some("ERROR") => {
                    let status = event["object"]["message"].as_str().unwrap_or("the watch was ended").to_owned();
                    return Err(Failure::not_yet(&what, status, "start the watch again"));
                }
                kind => {
                    if let Some(newer) = resource_version(&event["object"]) {
                        version = newer;
                    }
                    if kind != Some("BOOKMARK") {
                        print_row(&event["object"], args, served, &mut header);
                    }
                }
            }
        }
    }
}

fn resource_version(object: &Value) -> Option<String> {
    let own = object["metadata"]["resourceVersion"].as_str();
    own.or_else(|| object["rows"][0]["object"]["metadata"]["resourceVersion"].as_str()).map(str::to_owned)
}

fn parse(text: &str) -> Outcome<Value> {
    serde_json::from_str(text)
        .map_err(|error| Failure::failed("cannot read the API server's answer", error, "try again"))
}

fn print_row(object: &Value, args: &Args, served: &Served, header: &mut bool) {
    if !args.output.is_table() {
        print!("{}", output::objects(object, args.output, &served.display()));
        return;
    }
    let (names, rows) = output::cells(object, args.output == Format::Wide, args.all_namespaces, None);
    if rows.is_empty() {
        return;
    }
    let names = if std::mem::take(header) { names } else { Vec::new() };
    print!("{}", output::columns(&names, &rows));
}
