//! What a running program writes, line by line.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Reads on a thread of its own, until the stream ends.
pub(crate) fn collect(stream: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let push =
            |line: &[u8]| into.lock().expect("no reader panics").push_str(&String::from_utf8_lossy(line));
        let mut line = Vec::new();
        // A bar and mplayer's status lines end with a carriage return only.
        while let Ok(bytes @ [_, ..]) = reader.fill_buf() {
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let taken = end.map_or(bytes.len(), |at| at + 1);
            line.extend_from_slice(&bytes[..taken]);
            reader.consume(taken);
            if end.is_some() {
                push(&std::mem::take(&mut line));
            }
        }
        push(&line);
    })
}
