//! The generic routes: one set of handlers, driven by the table of kinds.

mod admit;
mod auth;
mod bind;
mod body;
mod fields;
mod params;
mod path;
mod read;
mod remove;
mod render;
mod respond;
mod select;
mod status;
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
    tokens: auth::Tokens,
}

impl Server {
    pub fn open(options: Options) -> Result<Server, OpenError> {
        let store = Store::open(&options.store, options.history)?;
        let kinds = Registry::new();
        let (_, definitions) = store.list(kinds::DEFINITIONS, None);
        definitions.iter().for_each(|definition| kinds.install(&definition.value));
        Ok(Server {
            store,
            kinds,
            service_ips: options.service_ips,
            service_lock: tokio::sync::Mutex::new(()),
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
        })
    }
}

async fn serve(server: Arc<Server>, user: UserInfo, request: Request) -> Response {
    route(server, user, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn route(server: Arc<Server>, user: UserInfo, request: Request) -> Outcome<Response> {
    let path = request.uri().path().to_owned();
    if matches!(path.as_str(), "/healthz" | "/livez" | "/readyz") {
        return Ok(respond::text(200, "ok"));
    }
    let target = path::resolve(&server.kinds, &path).ok_or_else(ApiError::no_such_path)?;
    let params = Params::of(request.uri())?;
    let form = params::form(request.headers())?;
    let manager = manager(&params, &request);
    let call = Call { server, user, target, params, form, manager };
    dispatch(call, request).await
}

/// The field manager: named by the client, else the first part of its user agent, as Kubernetes does.
fn manager(params: &Params, request: &Request) -> String {
    let agent = request.headers().get(axum::http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    let agent = agent.and_then(|agent| agent.split('/').next()).filter(|agent| !agent.is_empty());
    params.get("fieldManager").or(agent).unwrap_or("unknown").to_owned()
}

async fn dispatch(call: Call, request: Request) -> Outcome<Response> {
    let method = request.method().clone();
    match (&method, call.target.name.is_some(), call.target.subresource.as_deref()) {
        (&Method::GET, false, None) if call.params.flag("watch") => watch::watch(&call),
        (&Method::GET, false, None) => read::list(&call),
        (&Method::GET, true, None) => read::get(&call),
        (&Method::GET, true, Some("status")) if call.target.kind.status => read::get(&call),
        (&Method::POST, false, None) => {
            let object = body::object(request).await?;
            write::create(&call, object).await?.respond(&call)
        }
        (&Method::POST, true, Some("binding")) if &*call.target.kind.resource == "/pods" => {
            let binding = body::object(request).await?;
            bind::bind(&call, binding).await?.respond(&call)
        }
        (&Method::PUT, true, None | Some("status" | "finalize")) => {
            let object = body::object(request).await?;
            write::replace(&call, object).await?.respond(&call)
        }
        (&Method::PATCH, true, None | Some("status")) => {
            let patch = body::patch(request).await?;
            write::patch(&call, patch).await?.respond(&call)
        }
        (&Method::DELETE, true, None) => {
            let options = body::delete_options(request, &call.params).await?;
            remove::delete(&call, options).await?.respond(&call)
        }
        (&Method::DELETE, false, None) => {
            let options = body::delete_options(request, &call.params).await?;
            remove::delete_collection(&call, options).await
        }
        (_, _, Some(_)) => Err(ApiError::no_such_path()),
        _ => Err(ApiError::method_not_allowed()),
    }
}
