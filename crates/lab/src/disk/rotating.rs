//! Access times of a rotating disk, in order of arrival.

use std::collections::BTreeMap;

use super::mechanism::MechanismStats;
use super::model::Rotating;
use super::platter::Platter;

/// The head writes at most this much of its cache before it checks for reads.
const DESTAGE_BYTES: u64 = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    start: u64,
    end: u64,
    /// Set while the head reads ahead from here: the only growing segment.
    ahead: Option<ReadAhead>,
}

/// The head passes `from` at `from_ns` and continues until `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadAhead {
    from_ns: u64,
    from: u64,
    limit: u64,
}

/// State of a rotating disk between accesses. Everything before `done_ns` is decided.
#[derive(Debug)]
pub(super) struct RotatingDisk {
    platter: Platter,
    size: u64,
    interface_byte_per_s: u64,
    read_ahead: u64,
    segments_most: usize,
    cache_bytes: u64,
    /// Completion of the last access: accesses complete in order.
    done_ns: u64,
    /// Time until which the head serves requests (not read-ahead).
    bound_ns: u64,
    /// Byte under the head at `bound_ns`, without read-ahead.
    head: u64,
    /// Read buffer, least recently used first.
    segments: Vec<Segment>,
    /// Write cache: start and length; adjacent ranges are merged.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    /// Completion of the newest cached write.
    dirty_ns: u64,
    pub(super) effort: MechanismStats,
}

impl RotatingDisk {
    pub(super) fn new(disk: &Rotating, size: u64) -> Self {
        let read_ahead = disk.read_ahead.bytes();
        let streams = disk.buffer.bytes().checked_div(2 * read_ahead).unwrap_or(0).clamp(1, 64);
        Self {
            platter: Platter::new(disk, size),
            size,
            interface_byte_per_s: disk.interface.byte_per_s().max(1),
            read_ahead,
            segments_most: streams as usize,
            cache_bytes: disk.write_cache.bytes(),
            done_ns: 0,
            bound_ns: 0,
            head: 0,
            segments: Vec::new(),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            dirty_ns: 0,
            effort: MechanismStats::default(),
        }
    }

    pub(super) fn read(&mut self, now_ns: u64, offset: u64, bytes: u64) -> u64 {
        self.write_back_until(now_ns);
        let start_ns = now_ns.max(self.done_ns);
        let end = offset + bytes;
        let over_ns = start_ns + self.interface_ns(bytes);
        let found = self.segments.iter().position(|segment| segment.reaches(offset));
        self.done_ns = if self.is_dirty(offset, end) {
            self.effort.hits += 1;
            over_ns
        } else if let Some(found) = found {
            let segment = self.segments.remove(found);
            over_ns.max(self.read_on(segment, start_ns, end))
        } else {
            over_ns.max(self.read_anew(start_ns, offset, offset, end))
        };
        self.done_ns
    }

    /// Completes a read that begins in a buffered segment. Returns the time of the last byte.
    fn read_on(&mut self, mut segment: Segment, start_ns: u64, end: u64) -> u64 {
        let Some(mut ahead) = segment.ahead else {
            if end <= segment.end {
                self.effort.hits += 1;
                self.segments.push(segment);
                return start_ns;
            }
            // The rest is on the platter; both become one segment.
            return self.read_anew(start_ns, segment.end, segment.start, end);
        };
        if self.pass_ns(ahead, ahead.limit) < start_ns {
            // The buffer was full and the head waited: now it has to wait until the next byte comes round.
            self.effort.busy_ns += self.platter.pass_ns(ahead.from, ahead.limit);
            let wait_ns = self.platter.wait_ns(start_ns, ahead.limit);
            ahead = ReadAhead { from_ns: start_ns + wait_ns, from: ahead.limit, limit: ahead.limit };
            segment.end = ahead.limit;
        }
        let there_ns = if end <= segment.end { start_ns } else { self.pass_ns(ahead, end.max(ahead.from)) };
        self.effort.hits += u64::from(there_ns <= start_ns);
        self.bound_ns = self.bound_ns.max(there_ns);
        ahead.limit = ahead.limit.max((end + self.read_ahead).min(self.size)).max(end);
        segment.start = segment.start.max(ahead.limit.saturating_sub(2 * self.read_ahead).min(end));
        segment.ahead = Some(ahead);
        self.segments.push(segment);
        there_ns
    }

    /// Seeks to `offset` and reads to `end`; its segment begins at `segment_start`.
    fn read_anew(&mut self, start_ns: u64, offset: u64, segment_start: u64, end: u64) -> u64 {
        let begin_ns = self.go_to(start_ns, offset);
        let end_ns = begin_ns + self.platter.pass_ns(offset, end);
        self.effort.busy_ns += end_ns - begin_ns;
        self.bound_ns = end_ns;
        self.head = end;
        if self.read_ahead > 0 {
            let limit = (end + self.read_ahead).min(self.size).max(end);
            let ahead = Some(ReadAhead { from_ns: begin_ns, from: offset, limit });
            self.segments.push(Segment { start: segment_start, end: offset, ahead });
            if self.segments.len() > self.segments_most {
                self.segments.remove(0);
            }
        }
        end_ns
    }

    /// When a write is answered: from the cache if there is room, else when enough of it is on the platter.
    pub(super) fn write(&mut self, now_ns: u64, offset: u64, bytes: u64) -> u64 {
        self.write_back_until(now_ns);
        let start_ns = now_ns.max(self.done_ns);
        let end = offset + bytes;
        // Invalidates buffered reads.
        self.stop_reading_ahead(start_ns);
        self.segments.retain(|segment| segment.end <= offset || segment.start >= end);
        let mut over_ns = start_ns + self.interface_ns(bytes);
        if bytes > self.cache_bytes {
            over_ns = over_ns.max(self.write_all(start_ns));
            self.done_ns = over_ns.max(self.put(start_ns, offset, end));
            return self.done_ns;
        }
        while self.dirty_bytes + bytes > self.cache_bytes && self.dirty_bytes > 0 {
            over_ns = over_ns.max(self.write_back());
        }
        // Older bytes in the cache come first.
        self.write_back_until(over_ns);
        self.keep_dirty(offset, end);
        self.dirty_ns = over_ns;
        self.done_ns = over_ns;
        over_ns
    }

    pub(super) fn flush(&mut self, now_ns: u64) -> u64 {
        self.write_back_until(now_ns);
        self.done_ns = self.write_all(now_ns.max(self.done_ns));
        self.done_ns
    }

    fn write_all(&mut self, from_ns: u64) -> u64 {
        while self.dirty_bytes > 0 {
            self.write_back();
        }
        from_ns.max(self.bound_ns)
    }

    /// Writes from the cache while the head is idle, before `now_ns`.
    fn write_back_until(&mut self, now_ns: u64) {
        while self.dirty_bytes > 0 && self.bound_ns.max(self.dirty_ns) < now_ns {
            self.write_back();
        }
    }

    /// Writes one range of the cache: the next one inwards of the head, else the outermost.
    fn write_back(&mut self) -> u64 {
        let start_ns = self.bound_ns.max(self.dirty_ns);
        let inward = self.dirty.range(self.head..).next().or_else(|| self.dirty.iter().next());
        let Some((&offset, &bytes)) = inward else { return self.bound_ns };
        let piece = bytes.min(DESTAGE_BYTES);
        self.dirty.remove(&offset);
        if bytes > piece {
            self.dirty.insert(offset + piece, bytes - piece);
        }
        self.dirty_bytes -= piece;
        self.put(start_ns, offset, offset + piece)
    }

    fn put(&mut self, start_ns: u64, offset: u64, end: u64) -> u64 {
        let begin_ns = self.go_to(start_ns.max(self.bound_ns), offset);
        self.bound_ns = begin_ns + self.platter.pass_ns(offset, end);
        self.effort.busy_ns += self.bound_ns - begin_ns;
        self.head = end;
        self.bound_ns
    }

    /// Positions the head over `offset` from `start_ns` on. Returns when that byte begins to pass.
    fn go_to(&mut self, start_ns: u64, offset: u64) -> u64 {
        let reads_ahead = self.stop_reading_ahead(start_ns);
        // Not computed from angles: a rounding error would cost a rotation.
        if !reads_ahead && offset == self.head && start_ns <= self.bound_ns {
            return self.bound_ns;
        }
        let seek_ns = self.platter.seek_ns(self.head, offset);
        let wait_ns = self.platter.wait_ns(start_ns + seek_ns, offset);
        self.effort.seeks += u64::from(seek_ns > 0);
        self.effort.busy_ns += seek_ns + wait_ns;
        start_ns + seek_ns + wait_ns
    }

    /// Keeps what was read ahead until `at_ns`. Returns whether anything was.
    fn stop_reading_ahead(&mut self, at_ns: u64) -> bool {
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.ahead.is_some()) else {
            return false;
        };
        let Some(ahead) = segment.ahead.take() else { return false };
        let passed = self.platter.passed(ahead.from, at_ns.saturating_sub(ahead.from_ns));
        segment.end = passed.min(ahead.limit).max(segment.end);
        self.head = segment.end;
        true
    }

    fn pass_ns(&self, ahead: ReadAhead, byte: u64) -> u64 {
        ahead.from_ns + self.platter.pass_ns(ahead.from, byte)
    }

    fn interface_ns(&self, bytes: u64) -> u64 {
        super::mechanism::transfer_ns(bytes, self.interface_byte_per_s)
    }

    fn is_dirty(&self, offset: u64, end: u64) -> bool {
        let before = self.dirty.range(..=offset).next_back();
        before.is_some_and(|(start, bytes)| start + bytes >= end)
    }

    fn keep_dirty(&mut self, mut offset: u64, mut end: u64) {
        // Merges ranges that overlap or touch.
        while let Some((&start, &bytes)) = self.dirty.range(..=end).next_back() {
            if start + bytes < offset {
                break;
            }
            self.dirty.remove(&start);
            self.dirty_bytes -= bytes;
            (offset, end) = (offset.min(start), end.max(start + bytes));
        }
        self.dirty.insert(offset, end - offset);
        self.dirty_bytes += end - offset;
    }
}

impl Segment {
    /// Whether a read at `offset` finds its beginning here, or right behind, where the head is about to be.
    fn reaches(&self, offset: u64) -> bool {
        let end = self.ahead.map_or(self.end, |ahead| ahead.limit + 1);
        (self.start..end).contains(&offset)
    }
}
