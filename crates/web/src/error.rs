//! Answers that say what went wrong: `{"error": {"message", "field"}}`.

use std::io;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use store::StoreError;

use crate::json::Json;

/// What happened, to what, and what to do.
#[derive(Debug)]
pub struct ApiError {
    pub status: StatusCode,
    pub message: String,
    /// The key of the request that is wrong, such as `stream.bitrate`.
    pub field: Option<String>,
}

pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), field: None }
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    pub fn invalid(message: impl Into<String>, field: Option<&str>) -> Self {
        let field = field.map(str::to_owned);
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, message: message.into(), field }
    }

    /// A file could not be written. `what`: the file and what it is for.
    pub fn not_written(what: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                format!("{what}: no space left on the disk; free some space there"),
            ),
            _ => Self::internal(format!("{what}: {error}")),
        }
    }

    /// Something that should not fail has failed, such as writing a file.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_string())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::NoRun { .. } | StoreError::BadId { .. } => StatusCode::NOT_FOUND,
            StoreError::Measured { .. } => StatusCode::CONFLICT,
            StoreError::Ambiguous { .. } | StoreError::Ended { .. } | StoreError::NotStorable { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            StoreError::Full { .. } => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "message": self.message, "field": self.field } });
        (self.status, Json(body)).into_response()
    }
}

/// Reads the JSON of a request.
/// Errors: it is no object, or lacks a key, or has an unknown one; the message names the line and the key.
pub fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    let unusable = |why: &dyn std::fmt::Display| {
        ApiError::invalid(format!("the request's JSON cannot be used: {why}"), None)
    };
    // A structure could also be read from a list of its values, which the API does not describe.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(unusable(&"it is not an object"));
    }
    serde_json::from_slice(body).map_err(|error| unusable(&error))
}
