//! Server-sent events of a job: the lines of `--json-lines` that its process writes, and changes of the job.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::broadcast;

/// A longer line is left out.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Read at a time.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Events of progress in a replay.
const PROGRESS_MAX: u64 = 2000;
/// At 10 chunks a second: a viewer may be that late, then it reads the file again.
const CHUNKS_KEPT: usize = 32;
const REPLAY_CHUNK_BYTES: usize = 64 * 1024;

/// One event for `EventSource`; `id`: where a later connection continues.
pub fn frame(id: Option<u64>, event: &str, data: &str) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {event}\ndata: {data}\n\n")
}

/// The event's name at the beginning of a line of `--json-lines`.
fn event_of(line: &str) -> &str {
    let begin = line.strip_prefix("{\"event\":\"").unwrap_or_default();
    begin.split('"').next().unwrap_or_default()
}

/// Complete lines behind a position of a file that grows.
pub struct Lines {
    position: u64,
    rest: Vec<u8>,
    /// The beginning of the present line was dropped.
    is_cut: bool,
}

/// A line, and the position behind it.
pub struct Line {
    pub text: String,
    pub end: u64,
}

impl Lines {
    pub fn new() -> Self {
        Self { position: 0, rest: Vec::new(), is_cut: false }
    }

    /// Some lines that were completed since the last call, and whether there may be more.
    pub fn read(&mut self, path: &Path) -> io::Result<(Vec<Line>, bool)> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.position + self.rest.len() as u64))?;
        let read = file.take(READ_BYTES_MAX).read_to_end(&mut self.rest)?;
        let (mut lines, mut used) = (Vec::new(), 0);
        while let Some(length) = self.rest[used..].iter().position(|byte| *byte == b'\n') {
            let text = &self.rest[used..used + length];
            used += length + 1;
            if !std::mem::take(&mut self.is_cut) && length <= LINE_BYTES_MAX {
                let end = self.position + used as u64;
                lines.push(Line { text: String::from_utf8_lossy(text).into_owned(), end });
            }
        }
        if self.rest.len() - used > LINE_BYTES_MAX {
            self.is_cut = true;
            used = self.rest.len();
        }
        self.rest.drain(..used);
        self.position += used as u64;
        Ok((lines, read as u64 == READ_BYTES_MAX))
    }
}

/// Some events at once.
#[derive(Clone)]
pub struct Chunk {
    /// The position behind the last of them in the file; `None`: they are not from the file.
    pub end: Option<u64>,
    pub bytes: Bytes,
    /// Nothing follows.
    pub is_last: bool,
}

/// The events of one job for all who watch it.
pub struct JobStream {
    sender: broadcast::Sender<Chunk>,
    state: Mutex<StreamState>,
}

#[derive(Clone, Copy, Default)]
struct StreamState {
    /// How much of the file was sent.
    published: u64,
    has_ended: bool,
}

/// What a viewer begins with.
pub struct Subscription {
    pub receiver: broadcast::Receiver<Chunk>,
    /// What is before this position is read from the file.
    pub published: u64,
    pub has_ended: bool,
}

impl JobStream {
    pub fn new() -> Self {
        Self { sender: broadcast::channel(CHUNKS_KEPT).0, state: Mutex::default() }
    }

    pub fn subscribe(&self) -> Subscription {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = self.sender.subscribe();
        Subscription { receiver, published: state.published, has_ended: state.has_ended }
    }

    pub fn send(&self, chunk: Chunk) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.published = chunk.end.unwrap_or(state.published);
        state.has_ended |= chunk.is_last;
        // It fails only if no viewer is connected.
        let _ = self.sender.send(chunk);
    }
}

/// Lines as events.
pub fn frames(lines: &[Line]) -> String {
    lines.iter().map(|line| frame(Some(line.end), event_of(&line.text), &line.text)).collect()
}

/// The event of a line; `None`: it is no JSON.
pub fn parsed(line: &Line) -> Option<Value> {
    serde_json::from_str(&line.text).ok()
}

/// Gives the events of a file between two positions to `send`, in pieces, until it returns `false`. Of many
/// events of progress, only as many are given as a chart can show.
pub fn replay(path: &Path, from: u64, to: u64, send: &mut dyn FnMut(Bytes) -> bool) -> io::Result<()> {
    let count = {
        let mut count = 0;
        for_lines(path, from, to, &mut |line, _| {
            count += u64::from(event_of(line) == "progress");
            true
        })?;
        count
    };
    let each = count.div_ceil(PROGRESS_MAX).max(1);
    let (mut seen, mut text) = (0, String::new());
    for_lines(path, from, to, &mut |line, end| {
        let event = event_of(line);
        if event == "progress" {
            seen += 1;
            if seen % each != 0 {
                return true;
            }
        }
        text += &frame(Some(end), event, line);
        text.len() < REPLAY_CHUNK_BYTES || send(Bytes::from(std::mem::take(&mut text)))
    })?;
    if !text.is_empty() {
        send(Bytes::from(text));
    }
    Ok(())
}

/// Calls `each` with the complete lines between two positions and where they end, until it returns `false`.
fn for_lines(path: &Path, from: u64, to: u64, each: &mut dyn FnMut(&str, u64) -> bool) -> io::Result<()> {
    let mut file = File::open(path)?;
    // A position that is not behind a line break is none of this file's.
    let from = if from > 0 && !is_line_begin(&mut file, from)? { 0 } else { from };
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::new(file.take(to.saturating_sub(from)));
    let (mut line, mut end) = (Vec::new(), from);
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        end += length as u64;
        let Some(text) = line.strip_suffix(b"\n") else { return Ok(()) };
        if text.len() <= LINE_BYTES_MAX && !each(&String::from_utf8_lossy(text), end) {
            return Ok(());
        }
    }
}

fn is_line_begin(file: &mut File, position: u64) -> io::Result<bool> {
    if position > file.metadata()?.len() {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(position - 1))?;
    let mut before = [0];
    file.read_exact(&mut before)?;
    Ok(before == [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(path: &Path, from: u64, to: u64) -> String {
        let mut all = String::new();
        replay(path, from, to, &mut |bytes| {
            all += std::str::from_utf8(&bytes).unwrap();
            true
        })
        .unwrap();
        all
    }

    #[test]
    fn lines_are_read_once_and_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let mut lines = Lines::new();
        assert!(lines.read(&path).is_err());
        std::fs::write(&path, "{\"event\":\"run\"}\n{\"event\":").unwrap();
        let (first, has_more) = lines.read(&path).unwrap();
        assert_eq!((first.len(), first[0].end, has_more), (1, 16, false));
        std::fs::write(&path, "{\"event\":\"run\"}\n{\"event\":\"end\"}\n").unwrap();
        let (second, _) = lines.read(&path).unwrap();
        assert_eq!((second.len(), second[0].text.as_str()), (1, "{\"event\":\"end\"}"));
        assert_eq!(frames(&second), "id: 32\nevent: end\ndata: {\"event\":\"end\"}\n\n");
        assert!(lines.read(&path).unwrap().0.is_empty());
    }

    #[test]
    fn too_long_line_is_left_out_and_the_next_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let text = "x".repeat(LINE_BYTES_MAX + 10) + "\n{\"event\":\"end\"}\n";
        std::fs::write(&path, &text).unwrap();
        let (mut lines, mut found) = (Lines::new(), Vec::new());
        while let Ok((read, has_more)) = lines.read(&path) {
            found.extend(read);
            if !has_more {
                break;
            }
        }
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].text.as_str(), found[0].end), ("{\"event\":\"end\"}", text.len() as u64));
    }

    #[test]
    fn replay_thins_progress_and_continues_behind_a_position() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let progress = "{\"event\":\"progress\"}\n".repeat(10_000);
        let text = format!("{{\"event\":\"run\"}}\n{progress}{{\"event\":\"end\"}}\n");
        std::fs::write(&path, &text).unwrap();
        let all = replayed(&path, 0, text.len() as u64);
        assert_eq!(all.matches("event: progress\n").count(), 2000);
        assert!(all.starts_with("id: 16\nevent: run\n") && all.contains("event: end\n"));
        let behind = replayed(&path, 16, text.len() as u64);
        assert!(!behind.contains("event: run\n") && behind.contains("event: end\n"));
        // Positions that are none of this file's lead to its beginning.
        for wrong in [17, u64::MAX] {
            assert!(replayed(&path, wrong, text.len() as u64).starts_with("id: 16\nevent: run\n"), "{wrong}");
        }
        assert!(!replayed(&path, 0, 20).contains("progress"));
    }
}
