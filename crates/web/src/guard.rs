//! What is checked before each request, and added to each answer.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::report_answer;
use crate::security::headers;

/// A page of another origin cannot send it without this server's permission.
const CSRF_HEADER: &str = "x-kagiri";
/// Until the head of the answer; streams go on.
const ANSWER_WITHIN: Duration = Duration::from_secs(150);
const PROBLEM_BYTES_MAX: usize = 4096;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    Token,
    Cookie,
    None,
}

pub async fn guard(State(app): State<Shared>, request: Request, next: Next) -> Response {
    app.count_request();
    let is_api = is_protected(request.uri().path());
    let mut response = match check(&app, &request, is_api) {
        // The frame of a report stays after its user has logged out.
        Err(refusal) if is_report(request.uri().path()) => report_answer::problem(refusal, request.headers()),
        Err(refusal) => refusal.into_response(),
        Ok(()) => match tokio::time::timeout(ANSWER_WITHIN, next.run(request)).await {
            Ok(response) if is_api => in_words(response).await,
            Ok(response) => response,
            Err(_) => {
                let message = format!("there was no answer within {} s; try again", ANSWER_WITHIN.as_secs());
                ApiError::new(StatusCode::GATEWAY_TIMEOUT, message).into_response()
            }
        },
    };
    headers::complete(response.headers_mut());
    response
}

fn is_report(path: &str) -> bool {
    path.starts_with("/api/v1/runs/") && path.ends_with("/report")
}

pub fn is_protected(path: &str) -> bool {
    path == "/metrics" || path == "/api" || path.starts_with("/api/")
}

fn check(app: &Shared, request: &Request, is_api: bool) -> Result<(), ApiError> {
    let (headers, method) = (request.headers(), request.method());
    if !app.names.is_host(headers) {
        return Err(ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this server has another name; use its address, or start it with --name NAME",
        ));
    }
    if !is_api {
        return Ok(());
    }
    if !app.names.is_origin(headers) {
        return Err(ApiError::new(StatusCode::FORBIDDEN, "the request comes from a page of another server"));
    }
    // Logging in needs no login.
    if request.uri().path() == "/api/v1/session" && method == Method::POST {
        return Ok(());
    }
    let is_safe = matches!(*method, Method::GET | Method::HEAD);
    match login(app, headers) {
        Login::None => Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "log in with the address that 'kagiri serve' printed, or send its token: \
             Authorization: Bearer TOKEN",
        )),
        Login::Cookie if !is_safe && headers.get(CSRF_HEADER).is_none_or(|value| value != "1") => {
            Err(ApiError::new(StatusCode::FORBIDDEN, "the header 'X-Kagiri: 1' is missing"))
        }
        Login::Cookie | Login::Token => Ok(()),
    }
}

fn login(app: &Shared, headers: &HeaderMap) -> Login {
    if let Some(presented) = headers.get(header::AUTHORIZATION) {
        let token = presented.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
        let is_right = token.is_some_and(|token| app.token.is_right(token.trim()));
        return if is_right { Login::Token } else { Login::None };
    }
    let now_s = Timestamp::now().as_second();
    match session(app, headers) {
        Some(session) if app.token.is_session(session, now_s) => Login::Cookie,
        _ => Login::None,
    }
}

/// The session of a request.
pub fn session<'a>(app: &App, headers: &'a HeaderMap) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == app.token.cookie()).map(|(_, value)| value)
}

/// Gives errors of the framework, which are plain text, the form of all others.
async fn in_words(response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_own = kind.starts_with(b"application/json") || kind.starts_with(b"text/html");
    let status = response.status();
    if is_own || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let message = match (text.trim(), status) {
        ("", StatusCode::NOT_FOUND) => "there is no such path; /api/v1/openapi.json lists all".to_owned(),
        ("", StatusCode::METHOD_NOT_ALLOWED) => "this path does not take this method".to_owned(),
        (_, StatusCode::PAYLOAD_TOO_LARGE) => "the request is larger than 1 MiB".to_owned(),
        ("", status) => status.to_string(),
        (text, _) => text.to_owned(),
    };
    let answer = ApiError::new(status, message).into_response();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(answer.headers().clone());
    Response::from_parts(parts, Body::new(answer.into_body()))
}
