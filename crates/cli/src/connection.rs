//! Which API server a verb talks to (interface.md «The command line»).

use crate::failure::{Failure, Outcome, chain};
use coregent_operator::pace::Pace;
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use std::path::{Path, PathBuf};

/// Where a verb looks for the API, and in which namespace.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// Namespace of the objects
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// kubeconfig file of the API server to talk to
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Data folder of the embedded control plane
    #[arg(long, global = true, env = "COREGENT_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Default data folder, in the current one.
pub const DEFAULT_DATA_DIR: &str = ".coregent";

/// A client and the namespace that was asked for.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The namespace: as asked for, else the context's.
    pub namespace: String,
}

impl Target {
    /// The data folder, as given or the default.
    pub fn data_dir(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR))
    }

    /// Connects: `--kubeconfig`/`--context` where given, else the embedded plane of the data folder when that
    /// holds one, else `$KUBECONFIG` or `~/.kube/config`, else the in-cluster account.
    ///
    /// # Errors
    /// When none of them can be read, with what was looked for.
    pub async fn connect(&self) -> Outcome<Connection> {
        self.connect_with(Client::try_from).await
    }

    /// The same for what runs for long: it tries again by itself, and leaves an API server alone that asks for it.
    ///
    /// # Errors
    /// As [`Target::connect`].
    pub async fn connect_paced(&self) -> Outcome<Connection> {
        self.connect_with(|mut config| {
            // It would sleep in each request by itself, longer than anybody here waits for an answer.
            config.default_retry = false;
            Ok(ClientBuilder::try_from(config)?.with_layer(&Pace::default()).build())
        })
        .await
    }

    async fn connect_with(&self, client: impl FnOnce(Config) -> kube::Result<Client>) -> Outcome<Connection> {
        let config = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = client(config).map_err(|error| {
            Failure::failed("cannot make a client for the API server", chain(&error), "check the kubeconfig")
        })?;
        Ok(Connection { client, namespace })
    }

    async fn config(&self) -> Outcome<Config> {
        if let Some(file) = &self.kubeconfig {
            return self.read(file).await;
        }
        let embedded = self.data_dir().join("kubeconfig");
        if self.context.is_none() && embedded.exists() {
            return self.read(&embedded).await;
        }
        if self.data_dir.is_some() && self.context.is_none() {
            return Err(Failure::refused(
                format!("no control plane in {}", self.data_dir().display()),
                "the folder holds no kubeconfig",
                "start one there with `coregent up`, or leave --data-dir out",
            ));
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match Config::from_kubeconfig(&options).await {
            Ok(config) => Ok(config),
            Err(kubeconfig) => Config::incluster().map_err(|_| {
                Failure::refused(
                    "no API server to talk to",
                    format!("no control plane in {}, and {}", self.data_dir().display(), chain(&kubeconfig)),
                    "start one with `coregent up`, or name one with --kubeconfig",
                )
            }),
        }
    }

    async fn read(&self, file: &Path) -> Outcome<Config> {
        let cannot = |why: String| {
            Failure::refused(
                format!("cannot use the kubeconfig {}", file.display()),
                why,
                "name a readable kubeconfig with --kubeconfig",
            )
        };
        let kubeconfig = Kubeconfig::read_from(file).map_err(|error| cannot(chain(&error)))?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| cannot(chain(&error)))
    }
}
