//! The generic routes: one set of handlers, driven by the table of kinds.

mod admit;
mod auth;
mod body;
mod discovery;
mod fields;
mod health;
mod impersonate;
mod openapi;
mod params;
mod path;
mod pods;
mod protobuf;
mod rbac;
mod read;
mod remove;
mod render;
mod repeated;
mod respond;
mod review;
mod scale;
mod select;
mod status;
mod table;
mod token;
mod tunnel;
mod watch;
mod write;

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub use auth::UserInfo;
pub(crate) use status::{ApiError, Outcome};

use crate::kinds::Registry;
use crate::store::{OpenError, Store};
use crate::{Options, kinds};
use params::{Form, Params};
use path::Target;

/// What the handlers share.
pub(crate) struct Server {
    pub store: Store,
    pub kinds: Registry,
    pub service_ips: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Held while a Service gets its address, so that two never get the same.
    pub service_lock: tokio::sync::Mutex<()>,
    /// What nodes ask of those who want logs or a shell.
    pub node_token: String,
    tokens: auth::Tokens,
}

impl Server {
    pub fn open(options: Options) -> Result<Server, OpenError> {
        let store = Store::open(&options.store, options.history)?;
        let kinds = Registry::new();
        let (_, definitions) = store.list(kinds::DEFINITIONS, None);
        definitions.iter().for_each(|definition| kinds.install(&definition.value()));
        Ok(Server {
            store,
            kinds,
            service_ips: options.service_ips,
            service_lock: tokio::sync::Mutex::new(()),
            node_token: options.node_token,
            tokens: auth::Tokens::default(),
        })
    }

    pub fn add_static_token(&self, token: &str, user: UserInfo) {
        self.tokens.add(token, user);
    }

    pub fn incarnation(&self) -> &str {
        &self.store.identity().incarnation
    }

    pub async fn close(&self) {
        self.store.close().await;
    }
}

/// Makes the namespaces that every cluster has.
pub(crate) async fn bootstrap(server: &Arc<Server>) -> Outcome<()> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let call = Call::internal(server, &format!("/api/v1/namespaces/{name}"))?;
        match write::create(&call, namespace).await {
            Err(error) if error.code != 409 => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The router for a user that it trusts.
pub(crate) fn trusted(server: Arc<Server>, user: UserInfo) -> Router {
    Router::new().fallback(move |request: Request| {
        let (server, user) = (server.clone(), user.clone());
        async move { serve(server, user, request).await }
    })
}

/// The router that lets nobody in without a token.
pub(crate) fn authenticating(server: Arc<Server>) -> Router {
    Router::new().fallback(move |request: Request| {
        let server = server.clone();
        async move {
            match auth::authenticate(&server, request.headers()) {
                Ok(user) => serve(server, user, request).await,
                Err(error) => error.into_response(),
            }
        }
    })
}

/// One request, as the handlers see it.
pub(crate) struct Call {
    pub server: Arc<Server>,
    pub user: UserInfo,
    pub target: Target,
    pub params: Params,
    pub form: Form,
    /// Who writes, for managedFields.
    pub manager: String,
    /// Whether this is a server-side apply, which keeps its own record of owners.
    pub applying: bool,
    /// Fields that the body gives more than once.
    pub repeated: Vec<String>,
}

impl Call {
    /// A request of the server itself.
    pub fn internal(server: &Arc<Server>, path: &str) -> Outcome<Call> {
        let target = path::resolve(&server.kinds, path).ok_or_else(ApiError::no_such_path)?;
        Ok(Call {
            server: server.clone(),
            user: UserInfo::admin(),
            target,
            params: Params::default(),
            form: Form::Object,
            manager: "coregent".into(),
            applying: false,
            repeated: Vec::new(),
        })
    }
}

async fn serve(server: Arc<Server>, user: UserInfo, request: Request) -> Response {
    route(server, user, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn route(server: Arc<Server>, user: UserInfo, request: Request) -> Outcome<Response> {
    if request.method() == Method::GET
        && let Some(answer) = health::answer(&server, request.uri())?
    {
        return Ok(answer);
    }
    if request.method() == Method::GET
        && let Some(answer) = discovery::answer(&server, request.uri().path(), request.headers())
    {
        return Ok(answer);
    }
    let user = impersonate::acting(&server, user, request.headers())?;
    let target = path::resolve(&server.kinds, request.uri().path()).ok_or_else(ApiError::no_such_path)?;
    let params = Params::of(request.method(), request.uri())?;
    let form = params::form(request.headers())?;
    let manager = manager(&params, &request);
    if manager.len() > LONGEST_MANAGER {
        let message = format!("Too long: may not be more than {LONGEST_MANAGER} bytes");
        return Err(params.refuse("fieldManager", "FieldValueTooLong", message));
    }
    let call = Call { server, user, target, params, form, manager, applying: false, repeated: Vec::new() };
    rbac::authorize(&call, verb(&call, request.method())?)?;
    if call.target.kind.review {
        return reviews(&call, request).await;
    }
    match call.target.subresource {
        None => resource(call, request).await,
        Some(_) => subresource(call, request).await,
    }
}

/// The longest name of a field manager.
const LONGEST_MANAGER: usize = 128;

/// The field manager: named by the client, else the first part of its user agent, as Kubernetes does.
fn manager(params: &Params, request: &Request) -> String {
    let agent = request.headers().get(axum::http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    let agent = agent.and_then(|agent| agent.split('/').next()).filter(|agent| !agent.is_empty());
    params.get("fieldManager").or(agent).unwrap_or("unknown").to_owned()
}

/// The verb that RBAC knows.
fn verb(call: &Call, method: &Method) -> Outcome<&'static str> {
    let one = call.target.name.is_some();
    match (method.as_str(), one) {
        ("GET" | "HEAD", true) => Ok("get"),
        ("GET" | "HEAD", false) if call.params.flag("watch") => Ok("watch"),
        ("GET" | "HEAD", false) => Ok("list"),
        // A namespaced kind is created in a namespace; reviews are nobody's.
        ("POST", false) if call.target.kind.namespaced && call.target.namespace.is_none() => {
            Err(ApiError::method_not_allowed())
        }
        ("POST", _) => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("DELETE", true) => Ok("delete"),
        // Nobody means to delete all namespaces at once, and Kubernetes does not offer it.
        ("DELETE", false) if &*call.target.kind.resource != "/namespaces" => Ok("deletecollection"),
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The verbs of objects and collections.
async fn resource(mut call: Call, request: Request) -> Outcome<Response> {
    match (request.method().as_str(), call.target.name.is_some()) {
        ("GET", false) if call.params.flag("watch") => watch::watch(&call),
        ("GET", false) => read::list(&call),
        ("GET", true) => read::get(&call),
        ("POST", false) => {
            let object = noted(&mut call, request).await?;
            write::create(&call, object).await?.respond(&call)
        }
        ("PUT", true) => {
            let object = noted(&mut call, request).await?;
            write::replace(&call, object).await?.respond(&call)
        }
        ("PATCH", true) => {
            let patch = body::patch(request).await?;
            write::patch(&mut call, patch).await?.respond(&call)
        }
        ("DELETE", true) => {
            let options = body::delete_options(request, &call.params).await?;
            remove::delete(&call, options).await?.respond(&call)
        }
        ("DELETE", false) => {
            let options = body::delete_options(request, &call.params).await?;
            remove::delete_collection(&call, options).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// The object in a body; what it says twice is noted if anybody wants to hear of it.
async fn noted(call: &mut Call, request: Request) -> Outcome<serde_json::Value> {
    let wanted = call.params.field_validation()? != params::FieldValidation::Ignore;
    let (object, repeated) = body::object_with_repeated(request, wanted).await?;
    call.repeated = repeated;
    Ok(object)
}

/// The verbs of subresources.
async fn subresource(mut call: Call, request: Request) -> Outcome<Response> {
    let kind = call.target.kind.clone();
    let name = call.target.subresource.clone().unwrap_or_default();
    match (&*kind.resource, name.as_str(), request.method().as_str()) {
        (_, "status", "GET") if kind.status => read::get(&call),
        (_, "status", "PUT") if kind.status => {
            let object = body::object(request).await?;
            write::replace(&call, object).await?.respond(&call)
        }
        (_, "status", "PATCH") if kind.status => {
            let patch = body::patch(request).await?;
            write::patch(&mut call, patch).await?.respond(&call)
        }
        ("/namespaces", "finalize", "PUT") => {
            let object = body::object(request).await?;
            write::replace(&call, object).await?.respond(&call)
        }
        (_, "scale", "GET") if kind.scale.is_some() => scale::get(&call)?.respond(&call),
        (_, "scale", "PUT") if kind.scale.is_some() => {
            let object = body::object(request).await?;
            scale::replace(&call, object).await?.respond(&call)
        }
        (_, "scale", "PATCH") if kind.scale.is_some() => {
            let patch = body::patch(request).await?;
            scale::patch(&call, patch).await?.respond(&call)
        }
        ("/serviceaccounts", "token", "POST") => {
            let object = body::object(request).await?;
            token::request(&call, &object)?.respond(&call)
        }
        ("/pods", "binding", "POST") => {
            let object = body::object(request).await?;
            pods::bind(&call, &object).await?.respond(&call)
        }
        ("/pods", "eviction", "POST") => {
            let object = body::object(request).await?;
            pods::evict(&call, &object).await?.respond(&call)
        }
        ("/pods", "log", "GET") | ("/pods", "exec" | "attach" | "portforward", "GET" | "POST") => {
            tunnel::forward(&call, request).await
        }
        (_, "status", _) if kind.status => Err(ApiError::method_not_allowed()),
        (_, "scale", _) if kind.scale.is_some() => Err(ApiError::method_not_allowed()),
        // Kubernetes' handler of custom kinds knows no other paths, and means the object.
        _ if kind.custom.is_some() => Err(ApiError::not_found(&kind, call.target.name())),
        _ => Err(ApiError::no_such_path()),
    }
}

async fn reviews(call: &Call, request: Request) -> Outcome<Response> {
    if request.method() != Method::POST || call.target.name.is_some() {
        return Err(ApiError::method_not_allowed());
    }
    let object = body::object(request).await?;
    review::review(call, object)?.respond(call)
}
