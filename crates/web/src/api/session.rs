//! Logging in and out.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::error::{ApiError, ApiResult, read};
use crate::guard::session;
use crate::json::Json;
use crate::security::SESSION_S;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// Only who is logged in gets here.
pub async fn show() -> Json<Value> {
    Json(json!({ "user": "local" }))
}

pub async fn open(State(app): State<Shared>, body: Bytes) -> ApiResult<Response> {
    let login: Login = read(&body)?;
    if !app.token.is_right(login.token.trim()) {
        return Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "this is not the token of this server; use the address that 'kagiri serve' printed",
        ));
    }
    let session = app.token.open_session(Timestamp::now().as_second());
    Ok(with_cookie(&app, &session, SESSION_S))
}

pub async fn close(State(app): State<Shared>, headers: HeaderMap) -> Response {
    if let Some(session) = session(&app, &headers) {
        app.token.end_session(session, Timestamp::now().as_second());
    }
    with_cookie(&app, "", 0)
}

fn with_cookie(app: &App, session: &str, age_s: i64) -> Response {
    let secure = if app.is_tls { "; Secure" } else { "" };
    let name = app.token.cookie();
    let cookie = format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}");
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}
