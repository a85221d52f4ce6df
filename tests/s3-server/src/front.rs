//! The HTTP side: connections, faults, and the access log around the S3 service.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::Body;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::net::{TcpListener, TcpStream};

use crate::Config;
use crate::faults::{Direction, Gate};
use crate::log::{AccessLog, Entry, Kind};
use crate::objects::Buckets;
use crate::paced::Paced;
use crate::service::Storage;

/// As of S3.
const SKEW_MAX_S: i64 = 900;

pub(crate) struct Front {
    service: S3Service,
    log: Arc<AccessLog>,
    gate: Arc<Gate>,
}

impl Front {
    pub(crate) fn new(config: &Config, buckets: Arc<Buckets>, log: Arc<AccessLog>, gate: Arc<Gate>) -> Self {
        let mut builder = S3ServiceBuilder::new(Storage::new(buckets));
        builder.set_auth(SimpleAuth::from_single(config.access_key.as_str(), config.secret_key.as_str()));
        Self { service: builder.build(), log, gate }
    }

    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(Arc::clone(&self).serve(stream));
                }
                // Without a descriptor left it continues when one is closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let answer = service_fn(|request| {
            let this = Arc::clone(&self);
            async move { Ok::<_, Infallible>(this.answer(request).await) }
        });
        // How a connection ends is the client's affair.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Paced<Body>> {
        let began = Instant::now();
        let number = self.log.add(entry(&request));
        let latency = self.gate.latency();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let response = match self.refusal(request.method(), request.headers()) {
            Some((status, code, why)) => self.refuse(request, number, status, code, why).await,
            None => self.pass(request, number).await,
        };
        let status = response.status().as_u16();
        self.log.update(number, |entry| {
            entry.status = status;
            entry.answered_after = began.elapsed();
        });
        let log = Arc::clone(&self.log);
        let mut is_done = false;
        let counted = Box::new(move |bytes, is_end| {
            log.update(number, |entry| entry.bytes_out = bytes);
            if is_end && !is_done {
                is_done = true;
                log.update(number, |entry| entry.done_after = Some(began.elapsed()));
                log.write(number);
            }
        });
        let mut counted: crate::paced::Counted = counted;
        if http_body::Body::is_end_stream(response.body()) {
            counted(0, true);
        }
        response.map(|body| Paced::new(body, Arc::clone(&self.gate), Direction::Out, counted))
    }

    /// Why the request is not passed on.
    fn refusal(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<(StatusCode, &'static str, &'static str)> {
        if self.gate.is_refused() {
            return Some((StatusCode::SERVICE_UNAVAILABLE, "SlowDown", "Please reduce your request rate."));
        }
        if method == Method::DELETE && self.gate.refuses_deletes() {
            return Some((StatusCode::FORBIDDEN, "AccessDenied", "Access Denied"));
        }
        let ahead_s = self.gate.clock_ahead_s();
        let sent = headers.get("x-amz-date").and_then(|value| value.to_str().ok());
        let format = format_description!("[year][month][day]T[hour][minute][second]Z");
        let sent = time::PrimitiveDateTime::parse(sent?, format).ok()?.assume_utc().unix_timestamp();
        let now = OffsetDateTime::from(SystemTime::now()).unix_timestamp() + ahead_s;
        let why = "The difference between the request time and the server's time is too large.";
        ((sent - now).abs() > SKEW_MAX_S).then_some((StatusCode::FORBIDDEN, "RequestTimeTooSkewed", why))
    }

    async fn refuse(
        &self,
        request: Request<Incoming>,
        number: usize,
        status: StatusCode,
        code: &str,
        why: &str,
    ) -> Response<Body> {
        let is_head = request.method() == Method::HEAD;
        // The connection is used again only if the request was read.
        if let Ok(body) = request.into_body().collect().await {
            self.log.update(number, |entry| entry.bytes_in = body.to_bytes().len() as u64);
        }
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code>\
             <Message>{why}</Message></Error>"
        );
        let mut response = Response::new(if is_head { Body::empty() } else { Body::from(text) });
        *response.status_mut() = status;
        response
    }

    async fn pass(&self, request: Request<Incoming>, number: usize) -> Response<Body> {
        let log = Arc::clone(&self.log);
        let counted = Box::new(move |bytes, _| log.update(number, |entry| entry.bytes_in = bytes));
        let gate = Arc::clone(&self.gate);
        let request =
            request.map(|body| Body::http_body_unsync(Paced::new(body, gate, Direction::In, counted)));
        match self.service.call(request).await {
            Ok(response) => response,
            Err(error) => {
                let mut response = Response::new(Body::from(format!("{error:?}")));
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
        }
    }
}

fn entry(request: &Request<Incoming>) -> Entry {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
    let (bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_matches('/'), ""));
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let kind = match *request.method() {
        _ if has("uploadId") || has("uploads") => Kind::Multipart,
        Method::POST if has("delete") => Kind::DeleteMany,
        Method::GET if key.is_empty() && !bucket.is_empty() && !has("location") => Kind::List,
        _ if key.is_empty() => Kind::Other,
        Method::GET => Kind::Get,
        Method::HEAD => Kind::Head,
        Method::PUT if request.headers().contains_key("x-amz-copy-source") => Kind::Copy,
        Method::PUT => Kind::Put,
        Method::DELETE => Kind::Delete,
        _ => Kind::Other,
    };
    Entry {
        at: SystemTime::now(),
        kind,
        method: request.method().to_string(),
        bucket: bucket.to_owned(),
        key: decoded(key),
        query: query.to_owned(),
        status: 0,
        bytes_in: 0,
        bytes_out: 0,
        answered_after: Duration::ZERO,
        done_after: None,
    }
}

/// A path of a URI with its `%XX` resolved.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten();
        let value = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
