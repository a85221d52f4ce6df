//! The events of one job: from its beginning, or from where a viewer was, and on while it runs.

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::events::{COMMENT, COMMENT_EVERY, channel};
use crate::app::Shared;
use crate::error::ApiResult;
use crate::jobs::{Chunk, events_file, frame, replay};

const LAST_EVENT_ID: &str = "last-event-id";

pub async fn stream(
    State(app): State<Shared>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    app.jobs.view(&id)?;
    let place = app.viewer()?;
    let position = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse().ok()).unwrap_or(0);
    let (send, response) = channel();
    tokio::spawn(async move {
        let _place = place;
        Viewer { app, id, send, position }.watch().await;
    });
    Ok(response)
}

struct Viewer {
    app: Shared,
    id: String,
    send: mpsc::Sender<Bytes>,
    /// What of the file it has, in bytes.
    position: u64,
}

impl Viewer {
    /// Sends until the job has ended, or the viewer is gone.
    async fn watch(mut self) {
        while let Some(true) = self.follow().await {}
    }

    /// Sends what is stored, and then what happens. `Some(true)`: it missed something, and begins again.
    async fn follow(&mut self) -> Option<bool> {
        let mut subscription = self.app.jobs.stream(&self.id).subscribe();
        self.replay(subscription.published).await?;
        // A job of an earlier server has a stream without events.
        let job = self.app.jobs.view(&self.id).ok()?;
        let has_ended = job["ended"].is_string();
        if has_ended && !subscription.has_ended {
            self.replay(u64::MAX).await?;
        }
        self.put(frame(None, "job", &job.to_string())).await?;
        if has_ended {
            self.put(frame(None, "bye", "{}")).await?;
            return None;
        }
        loop {
            match tokio::time::timeout(COMMENT_EVERY, subscription.receiver.recv()).await {
                Ok(Ok(chunk)) => self.pass(chunk).await?,
                Ok(Err(RecvError::Lagged(_))) => return Some(true),
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => self.put(COMMENT.to_owned()).await?,
            }
        }
    }

    /// `None`: nothing follows.
    async fn pass(&mut self, chunk: Chunk) -> Option<()> {
        if let Some(end) = chunk.end {
            if end <= self.position {
                return Some(());
            }
            self.position = end;
        }
        self.send.send(chunk.bytes).await.ok()?;
        (!chunk.is_last).then_some(())
    }

    async fn replay(&mut self, to: u64) -> Option<()> {
        let from = self.position;
        if from >= to && from > 0 {
            return Some(());
        }
        let path = events_file(&self.app.jobs.folder_of(&self.id));
        let send = self.send.clone();
        let read = tokio::task::spawn_blocking(move || {
            // A job that waits has no file yet.
            let _ = replay(&path, from, to, &mut |bytes| send.blocking_send(bytes).is_ok());
            std::fs::metadata(&path).map_or(0, |found| found.len())
        });
        self.position = to.min(read.await.ok()?);
        (!self.send.is_closed()).then_some(())
    }

    async fn put(&mut self, text: String) -> Option<()> {
        self.send.send(text.into()).await.ok()
    }
}
