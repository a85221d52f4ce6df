//! Certificates of authorities that the tests make.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority that no system trusts.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A server's certificate and its key.
pub struct Certified {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate for self-signed whose issuer has the name of its holder.
        params.distinguished_name.push(DnType::CommonName, "kagiri's test authority");
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its certificate, which those who trust it have.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a server of this name or address.
    pub fn certify(&self, name: &str) -> Certified {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Certified { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }
}
