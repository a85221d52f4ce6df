//! Which names this server has: a page of another origin may not use it, even if its name leads here.

use std::net::IpAddr;

use http::{HeaderMap, header};

/// Host names of this server. An address is always accepted: a rebound name is what an attacker can make
/// lead here, and an address cannot be rebound.
pub struct Names {
    names: Vec<String>,
    scheme: &'static str,
}

impl Names {
    pub fn new(names: impl IntoIterator<Item = String>, is_tls: bool) -> Self {
        let local = ["localhost".to_owned()];
        let names = local.into_iter().chain(names).map(|name| name.to_ascii_lowercase());
        Self { names: names.collect(), scheme: if is_tls { "https" } else { "http" } }
    }

    /// Whether the request is for this server.
    pub fn is_host(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| self.is_own(host))
    }

    /// Whether the request comes from a page of this server, or from no page.
    pub fn is_origin(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else { return true };
        let Some((scheme, place)) = origin.to_str().ok().and_then(|origin| origin.split_once("://")) else {
            return false;
        };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        // The port, too, must be this server's.
        scheme == self.scheme && host.is_some_and(|host| host.eq_ignore_ascii_case(place))
    }

    fn is_own(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        bare.parse::<IpAddr>().is_ok() || self.names.contains(&name.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        origin.into_iter().for_each(|origin| drop(headers.insert(header::ORIGIN, origin.parse().unwrap())));
        headers
    }

    #[test]
    fn host_is_a_name_of_this_server_or_an_address() {
        let names = Names::new(["Desk.example".to_owned()], false);
        for own in
            ["localhost:7890", "127.0.0.1", "[::1]:7890", "10.0.0.2:1", "desk.example:7890", "DESK.EXAMPLE"]
        {
            assert!(names.is_host(&headers(own, None)), "{own}");
        }
        for foreign in
            ["evil.example", "localhost.evil.example:7890", "desk.example.evil", "", "[::1", "127.0.0.1.nip"]
        {
            assert!(!names.is_host(&headers(foreign, None)), "{foreign}");
        }
        assert!(!names.is_host(&HeaderMap::new()));
    }

    #[test]
    fn origin_is_this_server_with_scheme_and_port() {
        let names = Names::new([], false);
        let is_origin = |origin| names.is_origin(&headers("localhost:7890", origin));
        assert!(is_origin(None) && is_origin(Some("http://localhost:7890")));
        for foreign in ["https://localhost:7890", "http://localhost:7891", "http://evil.example", "null"] {
            assert!(!is_origin(Some(foreign)), "{foreign}");
        }
    }
}
