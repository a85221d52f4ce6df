//! Which settings fit together.

use std::collections::BTreeSet;

use base::plan::PlanError;
use workload::settings::Settings;

use super::{Connections, ExchangeSettings, HttpVersion, Loop, MessageSize};
use crate::http::Target;

/// More clients than a host can have connections to one server.
const CLIENTS_MAX: u64 = 100_000;
const RATE_MAX_PER_S: f64 = 1e6;
const REPLY_BYTES: std::ops::RangeInclusive<u64> =
    crate::wire::HEADER_BYTES as u64..=crate::wire::MESSAGE_BYTES_MAX;

fn wrong(key: &str, problem: impl ToString) -> Result<(), PlanError> {
    Err(PlanError::of_key(key, problem.to_string()))
}

impl Settings for ExchangeSettings {
    fn check(&self) -> Result<(), PlanError> {
        check_size("size", self.size.as_ref())?;
        if let Some((key, problem)) = self.background.problem() {
            return wrong(key, problem);
        }
        self.check_http()?;
        self.check_classes()?;
        for class in self.classes() {
            if class.loop_kind == Loop::Open && class.rate_per_s.is_none() {
                return wrong("loop", "an open loop needs a rate: set `rate_per_s`");
            }
        }
        Ok(())
    }
}

fn check_size(key: &str, size: Option<&MessageSize>) -> Result<(), PlanError> {
    match size.and_then(MessageSize::problem) {
        Some(problem) => wrong(key, problem),
        None => Ok(()),
    }
}

impl ExchangeSettings {
    fn check_http(&self) -> Result<(), PlanError> {
        let Some(url) = self.url() else {
            let http = &self.http;
            let given = [
                ("http.method", http.method.is_some()),
                ("http.body", http.body.is_some()),
                ("http.headers", !http.headers.is_empty()),
                ("http.version", http.version != HttpVersion::Auto),
                ("http.streams", http.streams > 1),
                ("http.ca", http.ca.is_some()),
            ];
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((key, _)) => wrong(key, "needs a URL: write http://HOST/PATH"),
                None => Ok(()),
            };
        };
        let target = Target::parse(url).map_err(|problem| PlanError::of_key("host", problem))?;
        if self.http.ca.is_some() && !target.is_tls {
            return wrong("http.ca", "only an https:// server has a certificate");
        }
        self.check_streams(&target)?;
        if self.host.is_some() && self.service.ns() > 0 {
            return wrong("service", "it applies only to kagiri's server");
        }
        if let Some(method) = &self.http.method
            && (method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic()))
        {
            return wrong("http.method", format!("'{method}' is not a method, such as GET or POST"));
        }
        for field in &self.http.headers {
            let name = field.split_once(':').map(|(name, _)| name);
            let is_name = name.is_some_and(|name| !name.is_empty() && !name.contains(char::is_whitespace));
            if !is_name || field.contains(['\r', '\n']) {
                return wrong(
                    "http.headers",
                    format!("'{field}' is not a header field, such as 'Accept: */*'"),
                );
            }
        }
        Ok(())
    }

    /// Several streams need HTTP/2, and a connection that lasts.
    fn check_streams(&self, target: &Target) -> Result<(), PlanError> {
        if self.http.streams == 1 {
            return Ok(());
        }
        let one = "HTTP/1.1 carries one request at a time on a connection";
        match self.http.version {
            HttpVersion::V1 => {
                wrong("http.streams", format!("{one}; use HTTP/2 (--http2), or more --clients"))
            }
            HttpVersion::Auto if !target.is_tls => wrong(
                "http.streams",
                format!("{one}, and an http:// server gets HTTP/1.1; add --http2 (http.version = \"2\")"),
            ),
            _ if self.connections == Connections::Fresh => {
                wrong("http.streams", "a fresh connection carries only one request; use persistent ones")
            }
            _ => Ok(()),
        }
    }

    fn check_classes(&self) -> Result<(), PlanError> {
        let mut names = BTreeSet::new();
        for class in &self.class {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if class.name.is_empty() || class.name.len() > 40 || !class.name.bytes().all(is_name) {
                let problem = format!("'{}' is not a name of letters, digits, - and _", class.name);
                return wrong("class.name", problem);
            }
            if !names.insert(&class.name) {
                return wrong("class.name", format!("two classes have the name '{}'", class.name));
            }
            check_size("class.size", class.size.as_ref())?;
            if class.reply_size.is_some_and(|size| !REPLY_BYTES.contains(&size.bytes())) {
                return wrong("class.reply_size", "it is not within 24B to 1GiB");
            }
            if class.rate_per_s.is_some_and(|rate| !(0.001..=RATE_MAX_PER_S).contains(&rate)) {
                return wrong("class.rate_per_s", "it is not within 0.001 to 1000000");
            }
            if class.send_buffer.is_some_and(|size| !(1 << 10..=1 << 30).contains(&size.bytes())) {
                return wrong("class.send_buffer", "it is not within 1KiB to 1GiB");
            }
            match class.port {
                Some(0) => return wrong("class.port", "0 is no port; write 1 to 65535"),
                Some(_) if self.host.is_some() => {
                    return wrong(
                        "class.port",
                        "it applies only to kagiri's server of the run, without host",
                    );
                }
                _ => {}
            }
            if class.clients == 0 || class.count == Some(0) || class.priority == Some(0) {
                return wrong("class", format!("'{}' has a number of 0; write 1 or more", class.name));
            }
        }
        if self.clients_all() > CLIENTS_MAX {
            return wrong("class.clients", format!("more than {CLIENTS_MAX} clients in all"));
        }
        let Some(search) = &self.search else { return Ok(()) };
        match &search.class {
            Some(name) if !self.classes().iter().any(|class| class.name == *name) => {
                wrong("search.class", format!("there is no class '{name}'"))
            }
            None if self.class.len() > 1 => {
                wrong("search.class", "name the class whose number of clients is searched")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_valid_and_complete() {
        assert_eq!(ExchangeSettings::read(json!({})).unwrap(), ExchangeSettings::default());
    }

    #[test]
    fn read_rejects_wrong_settings_and_names_the_key() {
        for (settings, part) in [
            (json!({"client": 2}), "client: unknown key"),
            (json!({"clients": 0}), "clients: 0 is not within"),
            (json!({"size": "1B"}), "size: 1B is not within 24B"),
            (json!({"size": "normal 1kB"}), "size: 'normal 1kB' is not a size of messages"),
            (json!({"loop": "open"}), "loop: an open loop needs a rate"),
            (json!({"rate_per_s": -1.0}), "rate_per_s"),
            (json!({"background": {"kind": "udp"}}), "background.rate: udp and tcp need a rate"),
            (json!({"background": {"kind": "greedy", "rate": "1Mbit/s"}}), "greedy flows have no rate"),
            (json!({"http": {"method": "GET"}}), "http.method: needs a URL"),
            (json!({"http": {"version": "2"}}), "http.version: needs a URL"),
            (json!({"host": "http://example/", "http": {"version": "3"}}), "http.version"),
            (json!({"host": "http://example/", "http": {"ca": "a.pem"}}), "http.ca: only an https://"),
            (json!({"http": {"streams": 2}}), "http.streams: needs a URL"),
            (json!({"host": "https://a/", "http": {"streams": 0}}), "http.streams: 0 is not within 1"),
            (
                json!({"host": "https://a/", "http": {"streams": 2, "version": "1.1"}}),
                "http.streams: HTTP/1.1 carries one request at a time on a connection; use HTTP/2",
            ),
            (json!({"host": "http://a/", "http": {"streams": 2}}), "http.streams: HTTP/1.1 carries one"),
            (
                json!({"host": "https://a/", "http": {"streams": 2}, "connections": "fresh"}),
                "http.streams: a fresh connection carries only one",
            ),
            (json!({"host": "ftp://example/"}), "host: "),
            (json!({"host": "http://example/", "service": "1ms"}), "service: it applies only"),
            (json!({"host": "http://example/", "http": {"headers": ["no field"]}}), "http.headers: "),
            (json!({"class": [{"name": "a b", "clients": 1}]}), "class.name"),
            (json!({"class": [{"name": "a", "clients": 1}, {"name": "a", "clients": 1}]}), "two classes"),
            (
                json!({"search": {}, "class": [{"name": "a", "clients": 1}, {"name": "b", "clients": 1}]}),
                "search.class: name the class",
            ),
            (json!({"class": [{"name": "a", "clients": 1, "port": 0}]}), "class.port: 0 is no port"),
            (
                json!({"class": [{"name": "a", "clients": 1, "send_buffer": "1B"}]}),
                "class.send_buffer: it is",
            ),
            (
                json!({"host": "nas", "class": [{"name": "a", "clients": 1, "port": 7001}]}),
                "class.port: it applies only",
            ),
            (json!({"search": {"class": "x"}}), "search.class: there is no class 'x'"),
        ] {
            let message = ExchangeSettings::read(settings.clone()).unwrap_err().to_string();
            assert!(message.contains(part), "{settings}: {message}");
        }
    }
}
