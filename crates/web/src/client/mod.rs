//! The client of this API, for commands that run on the console of another host.
//!
//! Its calls wait: each until the console has answered, or until a deadline.

mod access;
mod error;
mod events;

use std::time::Duration;

use base::outcome::Run;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use store::RunSummary;

pub use self::access::{Access, read_token, without_secrets};
pub use self::error::{Cause, ClientError};
pub use self::events::{Event, Events, Next};
pub use crate::api::settings::ADVICE_S_MAX;
use crate::plans::to_toml;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Until the head of an answer, and between its pieces: more than a console takes for a request.
const READ_WITHIN: Duration = Duration::from_secs(160);
/// Answers other than runs and reports.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const REPORT_BYTES_MAX: u64 = 1 << 30;
const REFUSAL_CHARS_MAX: usize = 1000;
/// As many as the console gives.
const PAGE_RUNS: &str = "500";
const PAGES_MAX: usize = 10_000;

/// A console that was reached and accepts the token.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    address: Url,
    /// As messages show it.
    name: String,
    facts: ConsoleFacts,
}

/// What a console says about itself.
#[derive(Debug, Clone, Deserialize)]
pub struct ConsoleFacts {
    /// Of its kagiri.
    pub version: String,
    pub host: String,
}

/// A job of the console.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct JobView {
    pub id: String,
    pub state: String,
    /// In the queue, from 1.
    pub position: Option<u64>,
    pub run: Option<String>,
    /// Why it waits, or what happened.
    pub message: Option<String>,
    /// Of its process, once that has ended.
    pub exit_code: Option<i32>,
}

/// Why a console does not take a plan.
#[derive(Debug, Clone, Deserialize)]
pub struct Problem {
    pub message: String,
    pub line: Option<u64>,
}

impl Client {
    /// Reaches the console, and checks the token.
    /// Errors: no connection, a certificate that is not trusted, a wrong token, or no console.
    pub fn connect(access: Access) -> Result<Self, ClientError> {
        // The workspace's provider, where nothing else in this process has chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |why: &dyn std::fmt::Display| {
            ClientError::new(Cause::Unreachable, format!("cannot make an HTTP client: {why}"))
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().map_err(|error| failed(&error))?;
        let mut headers = http::HeaderMap::new();
        headers.insert(http::header::AUTHORIZATION, access.bearer);
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("kagiri/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .tls_certs_merge(access.authorities)
            // A redirect could carry the token to any host.
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(READ_WITHIN);
        if access.address.scheme() == "http" {
            // Loopback: a proxy would get the token in clear text, and reach another host.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| failed(&error))?;
        let name = access.address.as_str().trim_end_matches('/').to_owned();
        let facts = ConsoleFacts { version: "of an unknown version".into(), host: String::new() };
        let mut client = Self { runtime, http, address: access.address, name, facts };
        client.facts = client.json(client.http.get(client.url(&["console"])))?;
        Ok(client)
    }

    /// The address, as messages and commands have it.
    pub fn address(&self) -> &str {
        &self.name
    }

    pub fn facts(&self) -> &ConsoleFacts {
        &self.facts
    }

    /// All stored runs, newest first.
    pub fn runs(&self) -> Result<Vec<RunSummary>, ClientError> {
        #[derive(Deserialize)]
        struct Entry {
            summary: RunSummary,
        }
        #[derive(Deserialize)]
        struct Page {
            runs: Vec<Entry>,
            next: Option<String>,
        }
        let (mut all, mut before): (Vec<RunSummary>, Option<String>) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let mut url = self.url(&["runs"]);
            url.query_pairs_mut().append_pair("limit", PAGE_RUNS);
            if let Some(before) = &before {
                url.query_pairs_mut().append_pair("before", before);
            }
            let page: Page = self.json(self.http.get(url))?;
            all.extend(page.runs.into_iter().map(|entry| entry.summary));
            before = page.next;
            if before.is_none() {
                return Ok(all);
            }
        }
        Err(self.unreadable("its list of runs does not end"))
    }

    /// A stored run, with its outcome. `id`: its whole id.
    pub fn run(&self, id: &str) -> Result<Run, ClientError> {
        let document = self.bytes(self.http.get(self.url(&["runs", id])), store::IMPORT_BYTES_MAX)?;
        store::read_export(&document).map_err(|error| self.unreadable(&error.to_string()))
    }

    /// The HTML report of a stored run.
    pub fn report(&self, id: &str) -> Result<Vec<u8>, ClientError> {
        self.bytes(self.http.get(self.url(&["runs", id, "report"])), REPORT_BYTES_MAX)
    }

    /// The document of `kagiri qos status` on the console's host.
    pub fn qos_status<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        self.json(self.http.get(self.url(&["qos"])))
    }

    /// The document of `kagiri tune advise` on the console's host, which watches for `for_s` seconds, at most
    /// [`ADVICE_S_MAX`].
    pub fn advice<T: DeserializeOwned>(&self, for_s: u64) -> Result<T, ClientError> {
        self.json(self.posted(&["advice"], &json!({ "for_s": for_s })))
    }

    /// The settings of the console's host, as in the document of `kagiri tune list`.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        self.json(self.http.get(self.url(&["settings"])))
    }

    /// What running `kagiri tune set` have set on the console's host, as in the document of `kagiri tune
    /// list`.
    pub fn settings_set<T: DeserializeOwned>(&self) -> Result<Vec<T>, ClientError> {
        #[derive(Deserialize)]
        struct Applied<T> {
            record: Option<T>,
        }
        let applied: Vec<Applied<T>> = self.json(self.http.get(self.url(&["settings", "applied"])))?;
        Ok(applied.into_iter().filter_map(|applied| applied.record).collect())
    }

    /// What is wrong with a plan, if anything is.
    pub fn check(&self, toml: &str) -> Result<Option<Problem>, ClientError> {
        #[derive(Deserialize)]
        struct Checked {
            valid: bool,
            errors: Vec<Problem>,
        }
        let checked: Checked = self.json(self.posted(&["plans", "check"], &json!({ "toml": toml })))?;
        match (checked.valid, checked.errors.into_iter().next()) {
            (true, _) => Ok(None),
            (false, Some(problem)) => Ok(Some(problem)),
            (false, None) => Err(self.unreadable("it refuses a plan without a reason")),
        }
    }

    /// Asks for a run.
    pub fn submit(&self, toml: &str) -> Result<JobView, ClientError> {
        self.json(self.posted(&["jobs"], &json!({ "toml": toml })))
    }

    /// Asks for what is left of a stored run. `run`: its whole id.
    pub fn resume(&self, run: &str) -> Result<JobView, ClientError> {
        self.json(self.posted(&["jobs"], &json!({ "resume": run })))
    }

    pub fn job(&self, id: &str) -> Result<JobView, ClientError> {
        self.json(self.http.get(self.url(&["jobs", id])))
    }

    /// Ends a job, which keeps what it has measured. A job that has ended already is no error.
    pub fn stop(&self, id: &str) -> Result<(), ClientError> {
        let request = self.http.request(Method::POST, self.url(&["jobs", id, "stop"]));
        match self.bytes(request, ANSWER_BYTES_MAX) {
            Err(error) if error.cause == Cause::Refused(StatusCode::CONFLICT) => Ok(()),
            answer => answer.map(drop),
        }
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.address.clone();
        // An address with a host takes a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().extend(["api", "v1"]).extend(path);
        }
        url
    }

    fn posted(&self, path: &[&str], body: &Value) -> RequestBuilder {
        let request = self.http.post(self.url(path)).header(http::header::CONTENT_TYPE, "application/json");
        request.body(body.to_string())
    }

    fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let body = self.bytes(request, ANSWER_BYTES_MAX)?;
        serde_json::from_slice(&body).map_err(|error| self.unreadable(&error.to_string()))
    }

    fn bytes(&self, request: RequestBuilder, bytes_max: u64) -> Result<Vec<u8>, ClientError> {
        self.runtime.block_on(async {
            let mut answer = self.send(request).await?;
            let mut all = Vec::new();
            let broken = |error| ClientError::of_transport(&self.name, &error);
            while let Some(chunk) = answer.chunk().await.map_err(broken)? {
                if (all.len() + chunk.len()) as u64 > bytes_max {
                    return Err(self.unreadable(&format!("it is longer than {} MiB", bytes_max >> 20)));
                }
                all.extend_from_slice(&chunk);
            }
            Ok(all)
        })
    }

    /// The answer to a request that succeeds; its body is read later.
    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let sent = request.send().await;
        let mut answer = sent.map_err(|error| ClientError::of_transport(&self.name, &error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = answer.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > ANSWER_BYTES_MAX {
                break;
            }
        }
        Err(self.refusal(status, &body))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> ClientError {
        let body: Option<Value> = serde_json::from_slice(body).ok();
        let said = body.as_ref().and_then(|body| body["error"]["message"].as_str());
        let message = match (status, said) {
            (StatusCode::UNAUTHORIZED, Some(_)) => {
                "it refuses the token; give the one in the file console/token of its results, with \
                 KAGIRI_TOKEN or --console-token"
                    .to_owned()
            }
            (_, Some(said)) => said.chars().take(REFUSAL_CHARS_MAX).collect(),
            (_, None) => {
                format!("it answers {status}, and not as a console; is 'kagiri serve' at this address?")
            }
        };
        ClientError::new(Cause::Refused(status), format!("console {}: {message}", self.name))
    }

    fn unreadable(&self, why: &str) -> ClientError {
        let (its, own) = (&self.facts.version, env!("CARGO_PKG_VERSION"));
        let advice = match its == own {
            true => "is 'kagiri serve' at this address?".to_owned(),
            false => format!("it runs kagiri {its}, this is kagiri {own}: use the same version"),
        };
        let message = format!("console {}: its answer cannot be read ({why}); {advice}", self.name);
        ClientError::new(Cause::Answer, message)
    }
}

/// What the command line says beside a plan.
#[derive(Debug, Clone, Default)]
pub struct Changes<'a> {
    pub repeats: Option<u32>,
    pub seed: Option<u64>,
    /// Added to those of the plan.
    pub require: &'a [String],
}

impl Changes<'_> {
    pub fn is_empty(&self) -> bool {
        self.repeats.is_none() && self.seed.is_none() && self.require.is_empty()
    }

    /// A plan with these changes; its comments are lost.
    /// Errors: it is no TOML.
    pub fn over(&self, toml: &str) -> Result<String, String> {
        let mut plan: Map<String, Value> = toml::from_str(toml).map_err(|error| error.to_string())?;
        plan.extend(self.repeats.map(|repeats| ("repeats".to_owned(), repeats.into())));
        plan.extend(self.seed.map(|seed| ("seed".to_owned(), seed.into())));
        if !self.require.is_empty() {
            let own = plan.get("require").and_then(Value::as_array).cloned().unwrap_or_default();
            let all = own.into_iter().chain(self.require.iter().map(|text| text.as_str().into()));
            plan.insert("require".to_owned(), all.collect());
        }
        to_toml(&Value::Object(plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_replace_numbers_and_add_requirements() {
        let plan = "workload = 'transfer'\nrequire = ['capacity>=1']\nrepeats = 2\n[transfer]\ntime = '1s'\n";
        let more = ["capacity>=2".to_owned()];
        let changes = Changes { repeats: Some(5), seed: Some(7), require: &more };
        let changed: Value = toml::from_str(&changes.over(plan).unwrap()).unwrap();
        let expected = json!({
            "workload": "transfer", "require": ["capacity>=1", "capacity>=2"], "repeats": 5, "seed": 7,
            "transfer": { "time": "1s" },
        });
        assert_eq!(changed, expected);
        assert!(Changes::default().is_empty() && !changes.is_empty());
        assert!(changes.over("name = ").is_err());
    }
}
