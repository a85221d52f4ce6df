//! TLS settings of both ends, from a bundle: version 1.3, and no authority but the fleet's.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::identity::{Credentials, PeerCertificate};

/// A client that gets this answer knows that the listener sends a [`super::welcome::Welcome`]; an external
/// router does not.
pub(crate) const PROTOCOL_NAME: &[u8] = b"kagiri-bus/2";

/// `protocol`: what the listener has to speak (ALPN, RFC 7301).
pub(crate) fn client(credentials: &Credentials, protocol: &[u8]) -> io::Result<ClientConfig> {
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(authority(&credentials.ca)?), provider())
            .with_crls(revoked(credentials.revoked.as_deref())?)
            .only_check_end_entity_revocation();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_webpki_verifier(verifier.build().map_err(io::Error::other)?);
    let mut config = match credentials.pair.as_ref().filter(|_| !credentials.uses_passwords()) {
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(io::Error::other)?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

pub(crate) fn server(credentials: &Credentials, protocol: &[u8]) -> io::Result<ServerConfig> {
    let Some((certificate, key)) = &credentials.pair else {
        return Err(io::Error::other("the bundle has no certificate to listen with"));
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?;
    let builder = match credentials.uses_passwords() {
        true => builder.with_no_client_auth(),
        false => {
            let roots = Arc::new(authority(&credentials.ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .with_crls(revoked(credentials.revoked.as_deref())?)
                .only_check_end_entity_revocation();
            builder.with_client_cert_verifier(verifier.build().map_err(io::Error::other)?)
        }
    };
    let chain = certificates(certificate)?;
    let mut config = builder.with_single_cert(chain, private_key(key)?).map_err(io::Error::other)?;
    config.alpn_protocols = vec![protocol.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Who the verified other side is; `None` without a certificate.
pub(crate) fn peer(chain: Option<&[CertificateDer<'_>]>) -> Option<PeerCertificate> {
    PeerCertificate::read(chain?.first()?)
}

/// Time until a certificate expires; `None` without one.
pub(crate) fn left(peer: Option<&PeerCertificate>) -> Option<Duration> {
    peer.map(|peer| peer.not_after.duration_since(SystemTime::now()).unwrap_or_default())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn authority(path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| unusable(path, error))
}

fn revoked(path: Option<&Path>) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let read = CertificateRevocationListDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|error| unusable(path, error))
}

fn private_key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
