//! Applying to nothing first: manifests that a new plane would refuse are refused before it is started.

use super::kinds;
use crate::connection::Connection;
use crate::failure::{Failure, Outcome, chain};
use crate::manifest::Document;
use crate::verbs;
use coregent_apiserver::{ApiServer, Options, Storage};
use std::path::Path;

/// Applies the documents to an API server in memory, with our kinds and nothing else, as they will be to the new plane.
/// A plane that exists already is not rehearsed: what it holds may make good what a manifest lacks, or bad what it says.
///
/// # Errors
/// The refusal that the plane would answer.
pub async fn refuse_bad(documents: &[Document], data_dir: &Path, namespace: &str) -> Outcome {
    if documents.is_empty() || data_dir.join("store.db").exists() {
        return Ok(());
    }
    let options = Options { store: Storage::Memory, ..Options::default() };
    let server = ApiServer::open(options).await.map_err(|error| {
        Failure::failed("cannot look at the manifests", chain(&error), "start it without -f and apply them then")
    })?;
    let client = server.client();
    kinds::install(&client).await?;
    let outcome =
        verbs::apply::documents(&Connection { client, namespace: namespace.to_owned() }, documents, true).await;
    server.close().await;
    outcome.map(drop)
}
