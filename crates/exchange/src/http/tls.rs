//! The client's side of TLS, by rustls: whom it trusts, what it offers, and why a handshake failed.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, Error, RootCertStore};

/// The name of HTTP/2 in a handshake (RFC 9113, section 3.1).
pub(crate) const ALPN_H2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";
/// A larger file of authorities is none.
pub(crate) const CA_BYTES_MAX: u64 = 16 << 20;

/// What the clients of a trial offer and demand.
#[derive(Clone)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TlsClient").field(&self.server).finish()
    }
}

/// Which versions of HTTP are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Http1,
    Http2,
    Both,
}

impl TlsClient {
    /// A client that demands a certificate for `host`. It trusts the authorities of the PEM text `ca`, and
    /// without one those of the system. Every handshake is a full one: resumed sessions would make fresh
    /// connections depend on earlier ones.
    ///
    /// # Errors
    /// There is no authority to trust, or `host` is neither a name nor an address.
    pub(crate) fn new(host: &str, ca: Option<&[u8]>, offer: Offer) -> Result<Self, String> {
        let roots = match ca {
            Some(pem) => roots_of(pem)?,
            None => roots_of_system()?,
        };
        let server = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("'{host}' is neither a host name nor an address"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config =
            builder.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = match offer {
            Offer::Http1 => vec![ALPN_HTTP1.to_vec()],
            Offer::Http2 => vec![ALPN_H2.to_vec()],
            Offer::Both => vec![ALPN_H2.to_vec(), ALPN_HTTP1.to_vec()],
        };
        Ok(Self { config: Arc::new(config), server })
    }

    /// The state of a new connection.
    pub(crate) fn connection(&self) -> Result<ClientConnection, Error> {
        ClientConnection::new(self.config.clone(), self.server.clone())
    }
}

fn roots_of(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("it is not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("it has a certificate that cannot be used: {error}"))?;
    }
    match roots.is_empty() {
        true => Err("it has no certificate; give a file with certificates in PEM".to_owned()),
        false => Ok(roots),
    }
}

fn roots_of_system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if !roots.is_empty() {
        return Ok(roots);
    }
    let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
    Err(format!(
        "this system trusts no certificate authority{why}; install ca-certificates, or name a file of \
         authorities (--ca)"
    ))
}

/// What went wrong between client and server, and what to do.
pub(crate) fn explain(error: &Error) -> String {
    use CertificateError as C;
    let said = match error {
        // A bad signature: the authority has the name of a known one, but not its key.
        Error::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => {
            "the server's certificate is not trusted: no known authority issued it; name its authority (--ca)"
        }
        Error::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "the server's certificate has expired, or this host's clock is ahead"
        }
        Error::InvalidCertificate(C::NotValidYet | C::NotValidYetContext { .. }) => {
            "the server's certificate is not valid yet, or this host's clock is behind"
        }
        Error::InvalidCertificate(C::NotValidForName | C::NotValidForNameContext { .. }) => {
            "the server's certificate is for another name; use the name in the URL that it has"
        }
        Error::InvalidCertificate(C::Revoked) => "the server's certificate was revoked",
        Error::InvalidCertificate(C::Other(other)) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the server's certificate is marked as an authority's (CA:TRUE), which no server may show"
        }
        Error::InvalidMessage(_) => "the server does not speak TLS; is it an http:// server?",
        Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)
        | Error::NoApplicationProtocol => "the server does not speak the version of HTTP that was asked for",
        Error::AlertReceived(rustls::AlertDescription::ProtocolVersion)
        | Error::PeerIncompatible(
            rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13
            | rustls::PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "the server speaks no version of TLS from 1.2 on",
        other => return other.to_string(),
    };
    said.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_authorities_is_refused() {
        for (pem, why) in [
            (&b"no certificate\n"[..], "no certificate"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be used"),
            (b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "not PEM"),
        ] {
            let error = TlsClient::new("nas", Some(pem), Offer::Both).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
