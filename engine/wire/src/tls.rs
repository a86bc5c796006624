//! Encryption: the server's certificate, given or self-made.
//!
//! A self-made one is kept in the data directory, so that clients that pinned it keep trusting the
//! server after a restart. The private key is readable by its owner only and never logged.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use types::{Error, Result};

/// Name of the self-made certificate in the data directory.
pub const CERTIFICATE_FILE: &str = "server-cert.pem";
/// Name of its key.
pub const KEY_FILE: &str = "server-key.pem";

/// Where a certificate and its key are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// Certificate chain.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Configuration for the given certificate, or for the self-made one in `directory`, which is made
/// at the first start, and again when it is damaged.
pub fn server_config(
    given: Option<&CertificatePaths>,
    directory: &Path,
) -> Result<Arc<rustls::ServerConfig>> {
    if let Some(paths) = given {
        return load(paths);
    }
    let paths = CertificatePaths {
        certificate: directory.join(CERTIFICATE_FILE),
        key: directory.join(KEY_FILE),
    };
    if paths.certificate.exists() && paths.key.exists() {
        match load(&paths) {
            Err(Error::Invalid(error)) => {
                tracing::error!(
                    error,
                    "a new certificate is made: clients that trusted the old one must learn it"
                );
            }
            loaded => return loaded,
        }
    }
    make(&paths, directory)?;
    load(&paths)
}

fn load(paths: &CertificatePaths) -> Result<Arc<rustls::ServerConfig>> {
    let unusable = |path: &Path, error: &dyn std::fmt::Display| {
        Error::Invalid(format!(
            "TLS: {} is no usable PEM file: {error}; give a certificate and its key, or neither to have \
             them made",
            path.display()
        ))
    };
    let chain = CertificateDer::pem_file_iter(&paths.certificate)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| unusable(&paths.certificate, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&paths.key).map_err(|error| unusable(&paths.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| unusable(&paths.certificate, &error))?;
    Ok(Arc::new(config))
}

fn make(paths: &CertificatePaths, directory: &Path) -> Result<()> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Error::Invalid(format!("TLS: cannot make a certificate: {error}")))?;
    std::fs::create_dir_all(directory)?;
    // The key first: a certificate without its key would be taken for a pair.
    write(&paths.key, made.signing_key.serialize_pem().as_bytes())?;
    write(&paths.certificate, made.cert.pem().as_bytes())
}

/// Writes a file whole or not at all, readable by its owner only.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let failed =
        |error: std::io::Error| Error::Io(format!("TLS: cannot write {}: {error}", path.display()));
    let draft = path.with_extension("tmp");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .map_err(failed)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)
}
