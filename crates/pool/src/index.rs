//! The index of a pool: a log of changes, from bytes to the files and the free list.
//!
//! A record is one line: the CRC-32C of the rest of the line as eight hexadecimal digits, a space, and a JSON
//! array of the record's sequence number and its changes. The first record of a log describes the pool; each
//! further one has the next sequence number. Changes that hold only together are one record, so that a crash
//! loses all of them or none. Reading ends at the first record that is not whole: that was being written when
//! the program or the power failed. A whole record behind it, or a whole record that contradicts the ones
//! before, is damage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::free_list::{FreeList, Run};

/// Most segments of a pool: 16 TiB in segments of 16 MiB.
pub const SEGMENTS_MAX: u32 = 1 << 20;
/// Lengths of a segment that are accepted, in bytes; a multiple of the lower one.
pub const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 30;
/// The format of records.
const FORMAT: u32 = 1;
/// Hexadecimal digits of a checksum, and the space behind.
const CHECKSUM_CHARS: usize = 9;
/// Longest name of a file, and of a part of it between slashes, in bytes.
const NAME_BYTES_MAX: usize = 4095;
const PART_BYTES_MAX: usize = 255;

/// One change of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// The first change of a log.
    Pool {
        format: u32,
        segment_bytes: u64,
        segments: u32,
    },
    /// A file, in place of an older one of that name.
    Put {
        name: String,
        file: Entry,
    },
    Remove {
        name: String,
    },
}

/// What the index knows of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub len_bytes: u64,
    /// When it was complete, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The sequence number of the record that made it: another content of the name has another version.
    pub version: u64,
    /// Its segments in order, as runs.
    pub runs: Vec<Run>,
}

impl Entry {
    fn segments(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.1)).sum()
    }

    /// The pieces of its content, one a run: offset in the file of segments, and length, in bytes.
    pub fn pieces(&self, segment_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut left = self.len_bytes;
        self.runs.iter().map(move |&(first, count)| {
            let len = left.min(u64::from(count) * segment_bytes);
            left -= len;
            (u64::from(first) * segment_bytes, len)
        })
    }
}

/// The outcome of reading a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    pub segment_bytes: u64,
    pub segments: u32,
    pub files: BTreeMap<String, Entry>,
    pub(crate) free: FreeList,
    pub next_sequence: u64,
    pub records: u64,
    /// Where the last whole record ends; what is behind it was never answered.
    pub whole_bytes: u64,
}

impl Replayed {
    pub fn free_segments(&self) -> u32 {
        self.free.free()
    }
}

/// Which record is wrong, counted from 1, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub record: u64,
    pub reason: String,
}

/// One record as a line.
pub fn encode(sequence: u64, changes: &[Change]) -> serde_json::Result<Vec<u8>> {
    let body = serde_json::to_string(&(sequence, changes))?;
    Ok(format!("{:08x} {body}\n", crc32c::crc32c(body.as_bytes())).into_bytes())
}

/// Reads a log. Memory is bounded by a multiple of its length, and one byte per segment.
pub fn replay(log: &[u8]) -> Result<Replayed, Damage> {
    let mut state: Option<Replayed> = None;
    let (mut record, mut at) = (0, 0);
    let damage = |record, reason: String| Err(Damage { record, reason });
    while at < log.len() {
        record += 1;
        let Some(body) = whole_line(&log[at..]) else { break };
        let (sequence, changes): (u64, Vec<Change>) = match serde_json::from_slice(body) {
            Ok(parsed) => parsed,
            Err(error) => return damage(record, format!("it cannot be read: {error}")),
        };
        let applied = match &mut state {
            None => begin(sequence, changes).map(|begun| state = Some(begun)),
            Some(state) => state.apply(sequence, changes),
        };
        if let Err(reason) = applied {
            return damage(record, reason);
        }
        at += CHECKSUM_CHARS + body.len() + 1;
        if let Some(state) = &mut state {
            (state.records, state.whole_bytes) = (record, at as u64);
        }
    }
    // Behind the record that was being written there is nothing.
    let behind = log[at..].iter().position(|&byte| byte == b'\n').map_or(&[][..], |end| &log[at + end + 1..]);
    if behind.split_inclusive(|&byte| byte == b'\n').any(|line| whole_line(line).is_some()) {
        return damage(record, "its checksum is wrong, and whole records follow".to_owned());
    }
    state.ok_or_else(|| Damage { record: 1, reason: "it does not describe a pool".to_owned() })
}

/// The JSON of the line at the start of `rest`; `None`: it is not whole.
fn whole_line(rest: &[u8]) -> Option<&[u8]> {
    let line = &rest[..rest.iter().position(|&byte| byte == b'\n')?];
    let (checksum, body) = line.split_at_checked(CHECKSUM_CHARS)?;
    (checksum == format!("{:08x} ", crc32c::crc32c(body)).as_bytes()).then_some(body)
}

fn begin(sequence: u64, changes: Vec<Change>) -> Result<Replayed, String> {
    let [Change::Pool { format, segment_bytes, segments }] = changes[..] else {
        return Err("it does not describe a pool".to_owned());
    };
    if format != FORMAT {
        return Err(format!("it has format {format}, and this program reads {FORMAT}"));
    }
    check_sizes(segment_bytes, u64::from(segments))?;
    let next_sequence = sequence.checked_add(1).ok_or("there is no next sequence number")?;
    let free = FreeList::new(segments);
    Ok(Replayed {
        segment_bytes,
        segments,
        files: BTreeMap::new(),
        free,
        next_sequence,
        records: 0,
        whole_bytes: 0,
    })
}

/// The first change of a log of such a pool.
pub fn description(segment_bytes: u64, segments: u32) -> Change {
    Change::Pool { format: FORMAT, segment_bytes, segments }
}

/// Whether a pool can have these sizes; else what is wrong.
pub fn check_sizes(segment_bytes: u64, segments: u64) -> Result<(), String> {
    if !SEGMENT_BYTES.contains(&segment_bytes) || !segment_bytes.is_multiple_of(*SEGMENT_BYTES.start()) {
        return Err(format!("segments of {segment_bytes} bytes; give a multiple of 4096 up to 1 GiB"));
    }
    if !(1..=u64::from(SEGMENTS_MAX)).contains(&segments) {
        return Err(format!(
            "a pool of {segments} segments of {segment_bytes} bytes; give 1 to {SEGMENTS_MAX}"
        ));
    }
    Ok(())
}

/// Whether a file can have this name: parts between slashes, none empty, `.` or `..`.
pub fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= PART_BYTES_MAX;
    name.len() <= NAME_BYTES_MAX && !name.contains('\0') && name.split('/').all(is_part)
}

impl Replayed {
    fn apply(&mut self, sequence: u64, changes: Vec<Change>) -> Result<(), String> {
        if sequence != self.next_sequence {
            return Err(format!("its sequence number is {sequence}, and {} is due", self.next_sequence));
        }
        self.next_sequence = sequence.checked_add(1).ok_or("there is no next sequence number")?;
        for change in changes {
            match change {
                Change::Pool { .. } => return Err("it describes the pool again".to_owned()),
                Change::Put { name, file } => self.put(name, file, sequence)?,
                Change::Remove { name } => {
                    let gone =
                        self.files.remove(&name).ok_or_else(|| format!("there is no file {name:?}"))?;
                    gone.runs.into_iter().for_each(|run| self.free.give_back(run));
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, name: String, file: Entry, sequence: u64) -> Result<(), String> {
        if !is_name(&name) {
            return Err(format!("{name:?} is no name"));
        }
        if file.version > sequence {
            return Err(format!("{name:?} is of version {}, which is to come", file.version));
        }
        if file.segments() != file.len_bytes.div_ceil(self.segment_bytes) {
            return Err(format!("{name:?} has {} bytes in {} segments", file.len_bytes, file.segments()));
        }
        for &(first, count) in &file.runs {
            if count == 0 || !self.free.take((first, count)) {
                return Err(format!(
                    "{name:?} has segments that are missing or another file's: {count} from {first}"
                ));
            }
        }
        // Only now: the old file was there while the new one was written.
        if let Some(old) = self.files.insert(name, file) {
            old.runs.into_iter().for_each(|run| self.free.give_back(run));
        }
        Ok(())
    }
}
