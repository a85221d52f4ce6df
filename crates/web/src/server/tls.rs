//! TLS of the listener.

use std::sync::Arc;

use anyhow::{Context, bail};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

const PEM_BYTES_MAX: u64 = 1 << 20;

/// Reads certificate and key.
/// Errors: a file cannot be read or has none, or the key is not that of the certificate.
pub fn acceptor(files: &TlsFiles) -> anyhow::Result<TlsAcceptor> {
    let read = |path: &std::path::Path| {
        sys::file::read_text(path, PEM_BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))
    };
    let (certificates, key) = (read(&files.certificates)?, read(&files.key)?);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates.as_bytes())
        .collect::<Result<_, _>>()
        .with_context(|| format!("{}: this is no certificate in PEM", files.certificates.display()))?;
    if chain.is_empty() {
        bail!("{}: there is no certificate in this file", files.certificates.display());
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .with_context(|| format!("{}: there is no private key in PEM in this file", files.key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .with_context(|| {
            format!("{} and {} do not fit", files.certificates.display(), files.key.display())
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
