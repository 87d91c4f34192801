//! Certificates and the kubeconfig of one data folder.
//!
//! Each folder has a certificate authority of its own, made once, and an admin token. kubectl sends no Authorization
//! header to an `http://` server, so the API is served over HTTPS on loopback too.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the server presents, and what its clients know it by.
#[derive(Clone)]
pub struct Identity {
    /// The CA's certificate, PEM.
    pub ca_pem: String,
    /// The server's certificate and key.
    pub tls: Arc<ServerConfig>,
}

/// Why the certificates or the kubeconfig of a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A key or certificate cannot be used.
    #[error(
        "cannot make the certificates of this data folder: {0}; remove its ca.key and ca.crt to have new ones made"
    )]
    Certificate(String),
    /// No random numbers.
    #[error("cannot draw a random token: {0}")]
    Random(String),
}

/// Reads or makes the CA, and issues a certificate for `names` (addresses and host names) with it.
///
/// # Errors
/// When a file cannot be used or does not hold what it should.
pub fn prepare(dir: &Path, names: &[String]) -> Result<Identity, PkiError> {
    let key_file = dir.join("ca.key");
    let certificate_file = dir.join("ca.crt");
    let ca_key = match read(&key_file)? {
        Some(pem) => KeyPair::from_pem(&pem).map_err(certificate)?,
        None => {
            let key = KeyPair::generate().map_err(certificate)?;
            write(&key_file, &key.serialize_pem(), 0o600)?;
            key
        }
    };
    let params = ca_params();
    let ca_pem = match read(&certificate_file)? {
        Some(pem) => pem,
        None => {
            let pem = params.self_signed(&ca_key).map_err(certificate)?.pem();
            write(&certificate_file, &pem, 0o644)?;
            pem
        }
    };
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().map_err(certificate)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(certificate)?;
    params.distinguished_name.push(DnType::CommonName, "coregent-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let server = params.signed_by(&key, &issuer).map_err(certificate)?;
    Ok(Identity { ca_pem, tls: Arc::new(tls(server.der().clone(), &key)?) })
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, "coregent-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    params
}

fn tls(server: CertificateDer<'static>, key: &KeyPair) -> Result<ServerConfig, PkiError> {
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).map_err(certificate)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(certificate)?
        .with_no_client_auth()
        .with_single_cert(vec![server], key)
        .map_err(certificate)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Writes `<dir>/kubeconfig` (0600) for the server at `address`; gives the admin token in it, which stays the same for
/// as long as the folder has its file `admin.token`.
///
/// # Errors
/// When a file cannot be used.
pub fn write_kubeconfig(dir: &Path, address: SocketAddr, ca_pem: &str) -> Result<String, PkiError> {
    use base64::Engine;
    let token_file = dir.join("admin.token");
    let token = match read(&token_file)?.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()) {
        Some(token) => token,
        None => {
            let token = random_token()?;
            write(&token_file, &token, 0o600)?;
            token
        }
    };
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "coregent",
        "clusters": [{"name": "coregent", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": base64::engine::general_purpose::STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "coregent", "context": {"cluster": "coregent", "user": "admin", "namespace": "default"}}],
    });
    let text = serde_saphyr::to_string(&kubeconfig).map_err(certificate)?;
    write(&dir.join("kubeconfig"), &text, 0o600)?;
    Ok(token)
}

/// 256 random bits in hexadecimal.
///
/// # Errors
/// When the system has no random numbers.
pub fn random_token() -> Result<String, PkiError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| PkiError::Random(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The names that a server at these addresses is known by.
pub fn names(addresses: &[IpAddr]) -> Vec<String> {
    let fixed = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1"];
    let mut names: Vec<String> = fixed.iter().map(|name| (*name).to_owned()).collect();
    names.extend(addresses.iter().filter(|address| !address.is_unspecified()).map(IpAddr::to_string));
    names.dedup();
    names
}

fn certificate(error: impl std::fmt::Display) -> PkiError {
    PkiError::Certificate(error.to_string())
}

fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::File { path: path.to_owned(), source }),
    }
}

/// Written aside, made durable and renamed: a file is there whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let aside = path.with_extension("new");
    let attempt = || {
        // An interrupted attempt may have left one, with the permissions of another umask.
        if let Err(error) = std::fs::remove_file(&aside)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&aside, path)
    };
    attempt().map_err(|source| PkiError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn ca_and_token_stay_the_same_and_secrets_are_for_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let first = prepare(dir.path(), &names(&[])).unwrap();
        let second = prepare(dir.path(), &names(&[])).unwrap();
        assert_eq!(first.ca_pem, second.ca_pem);
        let address = "127.0.0.1:6443".parse().unwrap();
        let token = write_kubeconfig(dir.path(), address, &first.ca_pem).unwrap();
        assert_eq!(write_kubeconfig(dir.path(), address, &first.ca_pem).unwrap(), token);
        for secret in ["ca.key", "kubeconfig", "admin.token"] {
            let mode = std::fs::metadata(dir.path().join(secret)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{secret}");
        }
    }
}
