//! Commands of this program, as processes of their own: they have their own undo journal, guardian and
//! memory, and a crash of one ends nothing else.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::error::{ApiError, ApiResult};

/// Commands at a time that are short, such as those that undo something.
const SHORT_MAX: usize = 6;
/// Commands at a time that are long: those whose clients read slowly, or that watch for some time.
const LONG_MAX: usize = 4;
const SLOT_WITHIN: Duration = Duration::from_secs(20);
const CHUNK_BYTES: usize = 64 * 1024;
/// A larger document is no answer of the commands that are collected.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;
const STDERR_BYTES_MAX: u64 = 64 * 1024;
const END_POLL: Duration = Duration::from_millis(5);
/// A process that has closed its output ends soon.
const END_WITHIN: Duration = Duration::from_secs(10);

pub struct Program {
    path: PathBuf,
    data_dir: PathBuf,
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// What a command printed, and how it ended.
pub struct Answer {
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub code: Option<i32>,
}

enum Piece {
    Chunk(Bytes),
    Ended { code: Option<i32>, stderr: String },
}

/// Kills a command whose request has ended.
struct Running(Arc<Mutex<Child>>);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}

impl Program {
    pub fn new(path: &Path, data_dir: &Path) -> Self {
        let [short, long] = [SHORT_MAX, LONG_MAX].map(|max| Arc::new(Semaphore::new(max)));
        Self { path: path.to_owned(), data_dir: data_dir.to_owned(), short, long }
    }

    /// A command on the same stored runs, without input.
    pub fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).env("KAGIRI_DATA", &self.data_dir).env("NO_COLOR", "1");
        command.stdin(Stdio::null());
        command
    }

    /// The JSON document of a command.
    /// Errors: it fails, with its own message; it does not end in time.
    pub async fn json(&self, arguments: &[OsString], within: Duration) -> ApiResult<Value> {
        let answer = self.answer(&self.short, arguments, within).await?;
        serde_json::from_slice(&answer.stdout).map_err(|_| failure(&answer))
    }

    /// As [`Self::json`], of a command that takes long: short ones do not wait for it.
    pub async fn json_of_long(&self, arguments: &[OsString], within: Duration) -> ApiResult<Value> {
        let answer = self.answer(&self.long, arguments, within).await?;
        serde_json::from_slice(&answer.stdout).map_err(|_| failure(&answer))
    }

    /// The output of a command that succeeds.
    pub async fn text(&self, arguments: &[OsString], within: Duration) -> ApiResult<String> {
        let answer = self.answer(&self.short, arguments, within).await?;
        match answer.code {
            Some(0) => Ok(String::from_utf8_lossy(&answer.stdout).into_owned()),
            _ => Err(failure(&answer)),
        }
    }

    async fn answer(
        &self,
        slots: &Arc<Semaphore>,
        arguments: &[OsString],
        within: Duration,
    ) -> ApiResult<Answer> {
        let collect = async {
            let (mut pieces, _running) = self.start(slots, arguments).await?;
            let mut stdout = Vec::new();
            while let Some(piece) = pieces.recv().await {
                match piece {
                    Piece::Chunk(chunk) if stdout.len() + chunk.len() > DOCUMENT_BYTES_MAX => {
                        return Err(ApiError::internal("the answer of the command is too long"));
                    }
                    Piece::Chunk(chunk) => stdout.extend_from_slice(&chunk),
                    Piece::Ended { code, stderr } => return Ok(Answer { stdout, stderr, code }),
                }
            }
            Err(ApiError::internal("the command ended without an answer"))
        };
        tokio::time::timeout(within, collect).await.unwrap_or_else(|_| {
            let words: Vec<_> = arguments.iter().take(3).map(|word| word.to_string_lossy()).collect();
            let message = format!("'kagiri {}' did not end within {} s", words.join(" "), within.as_secs());
            Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, message))
        })
    }

    /// What a command prints, as it prints it.
    /// Errors: it fails before it prints anything.
    pub async fn stream(&self, arguments: &[OsString], within: Duration) -> ApiResult<Body> {
        let (mut pieces, running) = self.start(&self.long, arguments).await?;
        let deadline = tokio::time::Instant::now() + within;
        let first = match tokio::time::timeout_at(deadline, pieces.recv()).await {
            Ok(Some(Piece::Chunk(chunk))) => chunk,
            Ok(Some(Piece::Ended { code: Some(0), .. })) => Bytes::new(),
            Ok(Some(Piece::Ended { code, stderr })) => {
                return Err(failure(&Answer { stdout: Vec::new(), stderr, code }));
            }
            Ok(None) => return Err(ApiError::internal("the command ended without an answer")),
            Err(_) => {
                let message = format!("the command printed nothing within {} s", within.as_secs());
                return Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, message));
            }
        };
        let rest = stream::unfold((pieces, running), move |(mut pieces, running)| async move {
            let item = match tokio::time::timeout_at(deadline, pieces.recv()).await {
                Ok(Some(Piece::Chunk(chunk))) => Ok(chunk),
                Ok(Some(Piece::Ended { code: Some(0), .. })) => return None,
                // The connection breaks: half an answer must not look like a whole one.
                _ => Err(io::Error::other("the command failed")),
            };
            Some((item, (pieces, running)))
        });
        let first = stream::iter([Ok::<_, io::Error>(first)]);
        Ok(Body::from_stream(futures_util::StreamExt::chain(first, rest)))
    }

    async fn start(
        &self,
        slots: &Arc<Semaphore>,
        arguments: &[OsString],
    ) -> ApiResult<(mpsc::Receiver<Piece>, Running)> {
        let slot = tokio::time::timeout(SLOT_WITHIN, Arc::clone(slots).acquire_owned()).await;
        let Ok(Ok(slot)) = slot else {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is busy; try again"));
        };
        let mut command = self.command(arguments);
        let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started
            .map_err(|error| ApiError::internal(format!("cannot start {}: {error}", self.path.display())))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let child = Arc::new(Mutex::new(child));
        let (send, pieces) = mpsc::channel(4);
        let running = Running(Arc::clone(&child));
        let messages = std::thread::spawn(move || {
            let mut text = Vec::new();
            let mut stderr = stderr?;
            let _ = stderr.by_ref().take(STDERR_BYTES_MAX).read_to_end(&mut text);
            // The rest is read, so that the command does not wait.
            let _ = io::copy(&mut stderr, &mut io::sink());
            Some(String::from_utf8_lossy(&text).into_owned())
        });
        tokio::task::spawn_blocking(move || {
            if let Some(stdout) = stdout {
                pass_on(stdout, &send);
            }
            let code = end_of(&child, slot);
            let stderr = messages.join().ok().flatten().unwrap_or_default();
            let _ = send.blocking_send(Piece::Ended { code, stderr });
        });
        Ok((pieces, running))
    }
}

fn pass_on(mut stdout: ChildStdout, send: &mpsc::Sender<Piece>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(length @ 1..) = stdout.read(&mut buffer) {
        if send.blocking_send(Piece::Chunk(Bytes::copy_from_slice(&buffer[..length]))).is_err() {
            return;
        }
    }
}

/// The exit code of a process that has closed its output.
fn end_of(child: &Mutex<Child>, _slot: OwnedSemaphorePermit) -> Option<i32> {
    let deadline = Instant::now() + END_WITHIN;
    loop {
        {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            match child.try_wait() {
                Ok(Some(status)) => return status.code(),
                Ok(None) if Instant::now() < deadline => {}
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return None;
                }
            }
        }
        std::thread::sleep(END_POLL);
    }
}

/// The error of a command, with its own words.
pub fn failure(answer: &Answer) -> ApiError {
    let message = message_of(&answer.stderr);
    let status = match answer.code {
        _ if message.contains("needs root") => StatusCode::FORBIDDEN,
        Some(2) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ApiError::new(status, message)
}

/// The error among the lines of a command; else its last line.
pub fn message_of(stderr: &str) -> String {
    let errors: Vec<&str> = stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    match errors.last() {
        Some(error) => (*error).to_owned(),
        None => stderr.lines().last().unwrap_or("the command failed without a message").to_owned(),
    }
}

/// Arguments of a command.
macro_rules! words {
    ($($word:expr),* $(,)?) => { [$(::std::ffi::OsString::from($word)),*] };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn short_commands_do_not_wait_for_long_ones() {
        let program = Program::new(Path::new("/bin/sh"), Path::new("/"));
        let script = |text: &str| words!["-c", text];
        let within = Duration::from_secs(30);
        let mut open = Vec::new();
        for _ in 0..LONG_MAX {
            // The rest is not read.
            open.push(program.stream(&script("echo begun; exec sleep 30"), within).await.unwrap());
        }
        assert_eq!(program.text(&script("echo undone"), within).await.unwrap(), "undone\n");
    }

    #[test]
    fn message_is_the_last_error_of_a_command() {
        assert_eq!(message_of("Watching\nerror: no such run\nhint\n"), "no such run");
        assert_eq!(message_of("a\nb\n"), "b");
        assert!(message_of("").contains("without a message"));
    }

    #[test]
    fn command_that_needs_root_is_forbidden() {
        let answer =
            |code, stderr: &str| failure(&Answer { stdout: Vec::new(), stderr: stderr.into(), code });
        assert_eq!(answer(Some(1), "error: x, and needs root: run it").status, StatusCode::FORBIDDEN);
        assert_eq!(answer(Some(2), "error: wrong").status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(answer(None, "").status, StatusCode::INTERNAL_SERVER_ERROR);
    }
}
