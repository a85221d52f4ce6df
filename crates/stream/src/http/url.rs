//! `http://host:port/path`: the part of RFC 3986 that players need.

use std::fmt;

/// An `http` URL. Percent-encoding is left as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    host: String,
    port: u16,
    target: String,
}

/// Why a text is no URL that can be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no URL that can be played: {problem}; write for example http://192.168.0.10:8080/film.ts"
)]
pub struct UrlError {
    text: String,
    problem: &'static str,
}

impl Url {
    /// Parse a URL.
    /// Errors: [`UrlError`]: another scheme (https in particular), no host, a port out of range, blanks or
    /// controls.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let fail = |problem| UrlError { text: text.chars().take(200).collect(), problem };
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(fail("it contains a blank or a control character (write %20 for a blank)"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| fail("http:// is missing"))?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => {
                return Err(fail("https is not supported, because encryption would be measured too"));
            }
            _ => return Err(fail("only http is supported")),
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(fail("a user name is not supported"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(|| fail("the ']' is missing"))?;
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| fail("the text in brackets is no IPv6 address"))?;
                match after {
                    "" => (host, None),
                    _ => (
                        host,
                        Some(after.strip_prefix(':').ok_or_else(|| fail("only :port may follow ']'"))?),
                    ),
                }
            }
            None => match authority.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err(fail("an IPv6 address needs brackets, as in http://[::1]:8080/"));
                }
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(fail("there is no host"));
        }
        let port = match port {
            None | Some("") => 80,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(fail("the port is not between 1 and 65535")),
                Ok(port) => port,
            },
        };
        let target = target.split('#').next().unwrap_or("");
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok(Self { host: host.to_owned(), port, target })
    }

    /// Resolve a `Location` header against this URL (RFC 3986, section 5.2).
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        let relative = match location {
            _ if location.contains("://") && location.find("://") < location.find(['/', '?']) => {
                return Self::parse(location);
            }
            _ if location.starts_with("//") => return Self::parse(&format!("http:{location}")),
            _ if location.starts_with('/') => location.to_owned(),
            _ => {
                let folder = self.path().rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{location}")
            }
        };
        Self::parse(&format!("http://{}{relative}", self.authority()))
    }

    /// The URL of the content's index: `.kgi` appended to the path.
    pub fn index(&self) -> Self {
        let query = &self.target[self.path().len()..];
        Self { target: format!("{}.kgi{query}", self.path()), ..self.clone() }
    }

    fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or(&self.target)
    }

    /// Host name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The `Host` header: the port only where it is not 80 (RFC 9112, section 3.2).
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == 80 { host } else { format!("{host}:{}", self.port) }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_parsed() {
        for (text, host, port, target) in [
            ("http://nas/film.ts", "nas", 80, "/film.ts"),
            ("HTTP://nas:8080", "nas", 8080, "/"),
            ("http://[::1]:81/a%20b.ts?x=1#t", "::1", 81, "/a%20b.ts?x=1"),
            ("http://10.0.0.1?q", "10.0.0.1", 80, "/?q"),
            ("http://nas:/x", "nas", 80, "/x"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.host(), url.port(), url.target()), (host, port, target), "{text}");
        }
        assert_eq!(Url::parse("http://[::1]:81/x").unwrap().to_string(), "http://[::1]:81/x");
        assert_eq!(Url::parse("http://nas:80/x?q=1").unwrap().index().to_string(), "http://nas/x.kgi?q=1");
    }

    #[test]
    fn invalid_urls_are_rejected_with_the_reason() {
        for (text, part) in [
            ("film.ts", "http:// is missing"),
            ("https://nas/film.ts", "https is not supported"),
            ("ftp://nas/film.ts", "only http"),
            ("http:///film.ts", "no host"),
            ("http://nas:70000/", "port"),
            ("http://nas:0/", "port"),
            ("http://::1/", "brackets"),
            ("http://[::1/", "']' is missing"),
            ("http://[nas]/", "no IPv6 address"),
            ("http://a@b/", "user name"),
            ("http://nas/a b", "%20"),
            ("http://nas/a\r\nX: y", "control character"),
        ] {
            let message = Url::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn locations_are_resolved_against_the_url() {
        let here = Url::parse("http://nas:8080/films/a.ts?x=/y").unwrap();
        for (location, there) in [
            ("http://other/b.ts", "http://other/b.ts"),
            ("//other/b.ts", "http://other/b.ts"),
            ("/b.ts", "http://nas:8080/b.ts"),
            ("b.ts", "http://nas:8080/films/b.ts"),
            ("/go?to=http://z/", "http://nas:8080/go?to=http://z/"),
        ] {
            assert_eq!(here.join(location).unwrap().to_string(), there, "{location}");
        }
        assert!(here.join("https://other/b.ts").unwrap_err().to_string().contains("https"));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_round_trips(text in ".{0,60}", tail in "[!-~]{0,40}") {
            for text in [text, format!("http://{tail}")] {
                if let Ok(url) = Url::parse(&text) {
                    prop_assert_eq!(Url::parse(&url.to_string()).unwrap(), url.clone());
                    let _ = (url.join(&tail), url.index());
                }
            }
        }
    }
}
