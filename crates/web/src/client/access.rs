//! Where a console is, and what it takes to use it: address, token, trusted certificates.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use http::HeaderValue;
use reqwest::{Certificate, Url};

use super::ClientError;

const TOKEN_BYTES_MAX: u64 = 1024;
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Address, token and trusted certificates of a console.
pub struct Access {
    pub(super) address: Url,
    pub(super) bearer: HeaderValue,
    pub(super) authorities: Vec<Certificate>,
}

impl Access {
    /// `authorities`: a file of certificates (PEM) to trust beside those of the system.
    /// Errors: an address that is none, or at which the token would cross a network in clear text; a text
    /// that is no token; a file without certificates.
    pub fn new(address: &str, token: &str, authorities: Option<&Path>) -> Result<Self, ClientError> {
        let address = checked(address).map_err(ClientError::access)?;
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.trim()));
        let Some(mut bearer) = bearer.ok().filter(|_| !token.trim().is_empty()) else {
            return Err(ClientError::access(
                "the console's token is empty, or has characters that no token has; it is in the file \
                 console/token of the console's results",
            ));
        };
        bearer.set_sensitive(true);
        let authorities = authorities.map(certificates).transpose().map_err(ClientError::access)?;
        Ok(Self { address, bearer, authorities: authorities.unwrap_or_default() })
    }
}

/// Reads the token from a file.
/// Errors: it cannot be read, or other users can read it.
pub fn read_token(path: &Path) -> Result<String, ClientError> {
    let wrong = |why: &dyn std::fmt::Display| {
        ClientError::access(format!("cannot read the console's token {}: {why}", path.display()))
    };
    let found = std::fs::metadata(path).map_err(|error| wrong(&error))?;
    if found.permissions().mode() & 0o077 != 0 {
        return Err(wrong(&"other users can access this file; protect it with chmod 600"));
    }
    sys::file::read_text(path, TOKEN_BYTES_MAX).map_err(|error| wrong(&error))
}

/// An address as messages may show it: what follows '#' may be a token, and what is before '@' a password.
pub fn without_secrets(address: &str) -> &str {
    let address = address.split('#').next().unwrap_or_default();
    address.rsplit('@').next().unwrap_or_default()
}

fn checked(text: &str) -> Result<Url, String> {
    let shown = without_secrets(text);
    let wrong = |why: &str| {
        format!(
            "console address {shown}: {why}; write https://HOST:7890, or http://127.0.0.1:7890 for this \
             machine or a port that ssh -L forwards"
        )
    };
    let url: Url = text.parse().map_err(|error| wrong(&format!("{error}")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it does not begin with https:// or http://"));
    }
    if url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it holds more than the address; the token belongs into KAGIRI_TOKEN or a file"));
    }
    if url.path() != "/" || url.query().is_some() {
        return Err(wrong("it holds more than scheme, host and port"));
    }
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err(wrong("the token would cross the network in clear text"));
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, String> {
    let wrong = |why: &dyn std::fmt::Display| {
        format!("--console-ca {}: {why}; give a file with certificates in PEM", path.display())
    };
    let text = sys::file::read_text(path, PEM_BYTES_MAX).map_err(|error| wrong(&error))?;
    let found = Certificate::from_pem_bundle(text.as_bytes()).map_err(|error| wrong(&error))?;
    match found.is_empty() {
        true => Err(wrong(&"it has no certificate")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_https_or_loopback_and_nothing_else() {
        for right in [
            "https://nas:7890",
            "https://nas/",
            "http://127.0.0.1:7890",
            "http://[::1]:7890/",
            "http://localhost:1",
        ] {
            assert!(checked(right).is_ok(), "{right}");
        }
        for (text, why) in [
            ("nas:7890", "begin with"),
            ("127.0.0.1:7890", "https://HOST"),
            ("ftp://nas", "begin with"),
            ("http://nas:7890", "clear text"),
            ("http://10.0.0.1:7890", "clear text"),
            ("http://127.0.0.1.example:7890", "clear text"),
            ("https://nas:7890/api", "more than"),
            ("https://nas:7890/?a=b", "more than"),
            ("https://user:5ec4e7@nas", "more than"),
            ("http://127.0.0.1:1/#token=5ec4e7", "KAGIRI_TOKEN"),
            ("", "https://HOST"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(why) && !error.contains("5ec4e7"), "{text}: {error}");
        }
    }

    #[test]
    fn token_is_private_and_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(read_token(&path).unwrap_err().to_string().contains("No such file"));
        std::fs::write(&path, "abc\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_token(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let token = read_token(&path).unwrap();
        assert!(Access::new("https://nas", &token, None).is_ok());
        for wrong in ["", " \n", "a\nb"] {
            assert!(Access::new("https://nas", wrong, None).is_err(), "{wrong:?}");
        }
        let error = Access::new("https://nas", "abc", Some(&path)).err().map(|error| error.to_string());
        assert!(error.as_deref().is_some_and(|error| error.contains("no certificate")), "{error:?}");
    }
}
