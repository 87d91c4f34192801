//! What other crates and the API server rely on in the kinds.

#![allow(clippy::unwrap_used)]

mod crds;
mod values;
