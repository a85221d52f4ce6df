//! Answers in JSON. axum's own would give `serde_json` a feature that nothing else here has, so that every
//! crate would be built again.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;

pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}
