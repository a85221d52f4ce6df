//! The access log: combined format plus bytes, duration and reason, written by a thread of its own.
//!
//! ```text
//! 10.0.0.1 - - [21/Nov/2026:03:12:00 +0000] "GET /a HTTP/1.1" 206 1000 "-" "VLC" sent_bytes=1212 \
//! duration_s=0.000150 reason=-
//! ```
//! Workers hand entries over without ever waiting; when the log cannot keep up, entries are dropped and
//! counted.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::request::LoggedFields;
use super::stats::Shared;

/// Entries that may wait for the log's thread.
const QUEUE_MAX: usize = 8192;
/// How often rates are read and the file is flushed.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Entry {
    pub peer: IpAddr,
    pub ended_realtime_ns: u64,
    pub duration_ns: u64,
    pub logged: LoggedFields,
    pub status: u16,
    pub content_bytes: u64,
    pub sent_bytes: u64,
    pub reason: Option<&'static str>,
}

/// A worker's end of the log.
#[derive(Clone, Debug)]
pub struct LogSender {
    /// `None` when no log is kept; the channel below then only ends the thread.
    wanted: bool,
    entries: SyncSender<Entry>,
    shared: Arc<Shared>,
}

impl LogSender {
    /// Whether entries are wanted; if not, do not make them.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Hands an entry over, or drops and counts it. Never waits.
    pub fn write(&self, entry: Entry) {
        if let Err(TrySendError::Full(_)) = self.entries.try_send(entry) {
            self.shared.log_lines_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The log's thread also reads the rates once a second. It ends when the last sender is gone.
pub fn start(
    shared: Arc<Shared>,
    writer: Option<Box<dyn Write + Send>>,
) -> std::io::Result<(LogSender, std::thread::JoinHandle<()>)> {
    let (entries, received) = sync_channel(QUEUE_MAX);
    let sender = LogSender { wanted: writer.is_some(), entries, shared: shared.clone() };
    let run = move || write_all(&shared, &received, writer);
    let thread = std::thread::Builder::new().name("kagiri-log".into()).spawn(run)?;
    Ok((sender, thread))
}

/// Logs a connection that was refused before it was taken in.
pub fn log_refused_connection(log: &LogSender, peer: IpAddr, sent_bytes: u64, reason: &'static str) {
    if !log.is_wanted() {
        return;
    }
    log.write(Entry {
        peer,
        ended_realtime_ns: sys::clock::realtime_ns(),
        duration_ns: 0,
        logged: LoggedFields::default(),
        status: 503,
        content_bytes: 0,
        sent_bytes,
        reason: Some(reason),
    });
}

fn write_all(shared: &Shared, received: &Receiver<Entry>, writer: Option<Box<dyn Write + Send>>) {
    let mut writer = writer.map(|w| std::io::BufWriter::with_capacity(64 << 10, w));
    let (mut line, mut dropped, mut next_tick) = (Vec::new(), 0, Instant::now() + TICK);
    loop {
        let entry = received.recv_timeout(next_tick.saturating_duration_since(Instant::now()));
        if let (Ok(entry), Some(writer)) = (&entry, &mut writer) {
            line.clear();
            format(entry, &mut line);
            // A log on a full disk must not stop the server; the line is lost and counted.
            if writer.write_all(&line).is_err() {
                shared.log_lines_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        if Instant::now() >= next_tick {
            next_tick = Instant::now() + TICK;
            shared.tick();
            if let Some(writer) = &mut writer {
                let now_dropped = shared.log_lines_dropped.load(Ordering::Relaxed);
                if now_dropped > dropped {
                    let _ = writeln!(
                        writer,
                        "# {} lines dropped: the log could not keep up",
                        now_dropped - dropped
                    );
                    dropped = now_dropped;
                }
                let _ = writer.flush();
            }
        }
        if matches!(entry, Err(RecvTimeoutError::Disconnected)) {
            if let Some(writer) = &mut writer {
                let _ = writer.flush();
            }
            return;
        }
    }
}

fn format(entry: &Entry, line: &mut Vec<u8>) {
    let ended = i128::from(entry.ended_realtime_ns);
    let time = Timestamp::from_nanosecond(ended)
        .map_or_else(|_| "-".to_owned(), |t| t.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string());
    // Writing to a vector cannot fail.
    let _ = write!(line, "{} - - [{time}] \"", entry.peer);
    escape(&entry.logged.line, line);
    let _ = write!(line, "\" {:03} {} \"", entry.status, entry.content_bytes);
    escape(entry.logged.referer.as_deref().unwrap_or(b"-"), line);
    line.extend_from_slice(b"\" \"");
    escape(entry.logged.agent.as_deref().unwrap_or(b"-"), line);
    let _ = writeln!(
        line,
        "\" sent_bytes={} duration_s={:.6} reason={}",
        entry.sent_bytes,
        entry.duration_ns as f64 / 1e9,
        entry.reason.map_or_else(|| "-".to_owned(), |r| format!("\"{r}\"")),
    );
}

/// Quotes, backslashes and everything that is not printable ASCII become `\xHH`, so a stranger cannot forge a
/// line.
fn escape(text: &[u8], line: &mut Vec<u8>) {
    for &byte in text {
        if matches!(byte, b'"' | b'\\') || !(b' '..=b'~').contains(&byte) {
            let _ = write!(line, "\\x{byte:02X}");
        } else {
            line.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_line_escapes_control_characters() {
        let entry = Entry {
            peer: IpAddr::from([10, 0, 0, 1]),
            ended_realtime_ns: 784_111_777_000_000_000,
            duration_ns: 1_500_000,
            logged: LoggedFields {
                line: b"GET /\"\n\xff HTTP/1.1".to_vec(),
                referer: None,
                agent: Some(b"a\\b".to_vec()),
            },
            status: 400,
            content_bytes: 7,
            sent_bytes: 99,
            reason: Some("malformed request"),
        };
        let mut line = Vec::new();
        format(&entry, &mut line);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /\\x22\\x0A\\xFF HTTP/1.1\" 400 7 \"-\" \
             \"a\\x5Cb\" sent_bytes=99 duration_s=0.001500 reason=\"malformed request\"\n"
        );
    }
}
