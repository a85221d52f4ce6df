//! Facts about this server, and the description of the API.

use std::path::Path;

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::header;
use serde_json::{Value, json};

use crate::app::Shared;

pub const OPENAPI: &str = include_str!("../../openapi.json");

pub async fn show(State(app): State<Shared>) -> Json<Value> {
    let host = sys::environment::describe(Path::new("/"));
    Json(json!({
        "version": app.version,
        "host": app.host_name,
        "cores": host.cpus,
        "memory_bytes": host.memory_bytes,
        "kernel": host.kernel_release,
        "is_root": sys::environment::is_root(),
        "data_dir": app.data_dir.display().to_string(),
        "started": app.started.to_string(),
        "has_fleet": !app.fleet.is_empty(),
        "store_problem": app.store_problem().await,
    }))
}

pub async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}
