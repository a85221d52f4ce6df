//! Changes of all jobs, as events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use crate::app::Shared;
use crate::error::ApiResult;
use crate::jobs::frame;

/// A comment keeps proxies from closing a quiet stream, and shows this server that the viewer is gone.
pub const COMMENT_EVERY: Duration = Duration::from_secs(15);
pub const COMMENT: &str = ": alive\n\n";
/// Jobs that a new viewer gets.
const JOBS_FIRST: usize = 50;
/// Pieces that wait for a viewer that takes nothing.
const PIECES: usize = 8;

/// A stream of events, and where they come from.
pub fn channel() -> (mpsc::Sender<Bytes>, Response) {
    let (send, pieces) = mpsc::channel::<Bytes>(PIECES);
    let pieces = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, Infallible>(piece), pieces))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (send, (headers, Body::from_stream(pieces)).into_response())
}

pub async fn stream(State(app): State<Shared>) -> ApiResult<Response> {
    let place = app.viewer()?;
    let (send, response) = channel();
    tokio::spawn(async move {
        let _place = place;
        loop {
            let mut changes = app.jobs.subscribe();
            if send.send(first(&app)).await.is_err() {
                return;
            }
            loop {
                let bytes = match tokio::time::timeout(COMMENT_EVERY, changes.recv()).await {
                    Ok(Ok(bytes)) => bytes,
                    // It missed some: it gets all again.
                    Ok(Err(RecvError::Lagged(_))) => break,
                    Ok(Err(RecvError::Closed)) => return,
                    Err(_) => Bytes::from_static(COMMENT.as_bytes()),
                };
                if send.send(bytes).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(response)
}

fn first(app: &Shared) -> Bytes {
    let jobs = app.jobs.views();
    let mut text = ": the last jobs\n\n".to_owned();
    for job in jobs.iter().take(JOBS_FIRST).rev() {
        text += &frame(None, "jobs", &job.to_string());
    }
    text.into()
}
