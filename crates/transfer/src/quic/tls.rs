//! The certificate of one session, and TLS 1.3 (RFC 9001) that accepts no other.

use std::fmt::Display;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls::client::Resumption;
use quinn::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use quinn::rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use quinn::rustls::version::TLS13;
use quinn::rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

use super::QuicError;

/// The name in every certificate: only the certificate itself identifies the server.
pub(super) const SERVER_NAME: &str = "kagiri";

/// The TLS configuration of a server of the session `name`, and its certificate (DER).
pub(super) fn server(name: &str) -> Result<(QuicServerConfig, Vec<u8>), QuicError> {
    let made = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).map_err(tls)?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(tls)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .map_err(tls)?;
    config.alpn_protocols = vec![name.into()];
    // There is one connection.
    config.send_tls13_tickets = 0;
    Ok((QuicServerConfig::try_from(config).map_err(tls)?, certificate.to_vec()))
}

/// The TLS configuration of a client of the session `name`, which accepts only the server of `certificate`
/// (DER).
pub(super) fn client(name: &str, certificate: &[u8]) -> Result<QuicClientConfig, QuicError> {
    let provider = provider();
    let pinned = Pinned {
        certificate: CertificateDer::from(certificate.to_vec()),
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    // A client must know the session's name, so that strangers are refused.
    config.alpn_protocols = vec![name.into()];
    config.resumption = Resumption::disabled();
    QuicClientConfig::try_from(config).map_err(tls)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn tls(error: impl Display) -> QuicError {
    QuicError::Tls(error.to_string())
}

/// Accepts one certificate: it came over the control connection, so that no authority is needed.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("its certificate is not the one announced on the control connection".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC begins with TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
