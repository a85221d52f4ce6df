//! The fleet's certificate authority: one key, kept offline, that signs a certificate for each member.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, RevokedCertParams,
    SerialNumber,
};

use super::credentials::Certificate;
use super::name::{Member, MemberKind};
use super::{IdentityError, file};

const AUTHORITY_DAYS: u32 = 3650;
/// Certificates are valid from a day ago, so that hosts with a wrong clock can join.
const BACKDATED: Duration = Duration::from_secs(86_400);

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
    not_after: SystemTime,
}

pub(super) struct Issued {
    /// Hexadecimal.
    pub serial: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Authority {
    pub fn create(dir: &Path, now: SystemTime) -> Result<Self, IdentityError> {
        let key = new_key()?;
        let mut params = params(now, AUTHORITY_DAYS, None)?;
        let serial = sys::random::bytes::<4>().map(|byte| format!("{byte:02x}")).concat();
        params.distinguished_name.push(DnType::CommonName, format!("kagiri fleet authority {serial}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).map_err(crypto("the authority's certificate"))?.pem();
        file::make_dir(dir)?;
        file::write_new(&dir.join("ca.key"), &key.serialize_pem())?;
        file::write_new(&dir.join("ca.pem"), &pem)?;
        Self::open(dir, now)
    }

    pub fn open(dir: &Path, now: SystemTime) -> Result<Self, IdentityError> {
        let path = dir.join("ca.key");
        let invalid =
            |error: rcgen::Error| IdentityError::invalid(&path, format!("it is no private key: {error}"));
        let key = KeyPair::from_pem(&file::read_secret(&path)?).map_err(invalid)?;
        let path = dir.join("ca.pem");
        let pem = file::read(&path)?;
        let certificate = Certificate::read(&path, &pem)?;
        if !certificate.belongs_to(&key) {
            return Err(IdentityError::invalid(path, "it does not belong to the key ca.key beside it"));
        }
        certificate.check_time(now)?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(crypto("an issuer of the authority"))?;
        Ok(Self { issuer, pem, not_after: certificate.not_after })
    }

    /// Issues a member's certificate. A server's certificate lists its names and addresses; an agent's is
    /// valid for opening connections only.
    pub fn issue(
        &self,
        member: &Member,
        addresses: &[String],
        days: u32,
        now: SystemTime,
    ) -> Result<Issued, IdentityError> {
        let mut params = params(now, days, Some(self.not_after))?;
        params.distinguished_name.push(DnType::CommonName, member.to_string());
        let serves = member.kind != MemberKind::Agent;
        let named = std::iter::once(member.name.clone());
        let here = ["localhost", "127.0.0.1", "::1"].map(String::from);
        let mut names: Vec<_> = match serves {
            true => named.chain(addresses.iter().cloned()).chain(here).collect(),
            false => named.collect(),
        };
        names.dedup();
        params.subject_alt_names =
            CertificateParams::new(names).map_err(crypto("a certificate's names"))?.subject_alt_names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if serves {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(crypto("a certificate"))?;
        let serial = params.serial_number.as_ref().map(|serial| hex(&serial.to_bytes())).unwrap_or_default();
        Ok(Issued { serial, certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Signs the list of revoked certificates, which is valid as long as the authority: those who check it
    /// have no way to a newer one, except that a person copies it.
    pub fn sign_revoked(&self, revoked: &[RevokedEntry], now: SystemTime) -> Result<String, IdentityError> {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let certificates = revoked.iter().map(|entry| {
            let serial: Option<Vec<u8>> = entry.serial.as_bytes().chunks(2).map(from_hex).collect();
            Some(RevokedCertParams {
                serial_number: SerialNumber::from_slice(&serial?),
                revocation_time: epoch + Duration::from_secs(entry.at_s),
                reason_code: None,
                invalidity_date: None,
            })
        });
        let list = CertificateRevocationListParams {
            this_update: epoch + since_epoch(now - BACKDATED),
            next_update: epoch + since_epoch(self.not_after),
            crl_number: SerialNumber::from(revoked.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: certificates.flatten().collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).and_then(|list| list.pem());
        list.map_err(crypto("the list of revoked certificates"))
    }
}

/// A revoked certificate.
pub(super) struct RevokedEntry {
    /// Hexadecimal.
    pub serial: String,
    /// Since 1970.
    pub at_s: u64,
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn new_key() -> Result<KeyPair, IdentityError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(crypto("a key"))
}

fn crypto(what: &'static str) -> impl FnOnce(rcgen::Error) -> IdentityError {
    move |error| IdentityError::Crypto { what, why: error.to_string() }
}

/// Valid from a day ago for `days`, at most as long as the issuer; with a random serial number.
fn params(
    now: SystemTime,
    days: u32,
    at_most: Option<SystemTime>,
) -> Result<CertificateParams, IdentityError> {
    let until = now + Duration::from_secs(86_400) * days;
    let until = at_most.map_or(until, |most| until.min(most));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = epoch + since_epoch(now - BACKDATED);
    params.not_after = epoch + since_epoch(until);
    let mut serial = sys::random::bytes::<16>();
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}
