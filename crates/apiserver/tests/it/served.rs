//! An API that is reached over its socket, as programs of their own reach it.

use std::net::SocketAddr;

use coregent_apiserver::{ApiServer, UserInfo, pki, serve};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

/// A served API: its address, its CA's folder, and what stops it.
pub struct Served {
    pub folder: tempfile::TempDir,
    pub address: SocketAddr,
    pub ca_pem: String,
    _stop: tokio_util::sync::DropGuard,
}

/// Serves over HTTPS at a free port, with a kubeconfig of an administrator.
pub async fn serve(server: &ApiServer) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let listener = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let identity = pki::prepare(folder.path(), &pki::names(&[address.ip()])).unwrap();
    let token = pki::write_kubeconfig(folder.path(), address, &identity.ca_pem).unwrap();
    server.add_static_token(&token, UserInfo::admin());
    let shutdown = CancellationToken::new();
    let ca_pem = identity.ca_pem.clone();
    tokio::spawn(serve::https(server.clone(), listener, identity, shutdown.clone()));
    Served { folder, address, ca_pem, _stop: shutdown.drop_guard() }
}

impl Served {
    pub fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::read_from(self.folder.path().join("kubeconfig")).unwrap()
    }

    /// A client with the kubeconfig, and with another token than its own if one is given.
    pub async fn client(&self, token: Option<&str>) -> Client {
        let mut kubeconfig = self.kubeconfig();
        if let Some(token) = token {
            let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
            user.token = (!token.is_empty()).then(|| token.to_owned().into());
        }
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }
}
