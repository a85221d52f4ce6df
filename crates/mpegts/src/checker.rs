//! Checks a transport stream while it is received: sync bytes, continuity counters, frames.

use crate::mux::ts::{PACKET_BYTES, SYNC};

/// PIDs whose counters are tracked; content has three, broadcasts a few dozen.
const PIDS_MAX: usize = 64;
/// Good packets after a loss of sync before another loss counts as a new one.
const IN_SYNC_PACKETS: u8 = 3;
/// The PID of null packets, whose counter is undefined (ISO/IEC 13818-1, 2.4.3.3).
const PID_NULL: u16 = 0x1FFF;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TsCounts {
    pub packets: u64,
    /// Frames begun: payload unit starts on the PID of the pictures.
    pub frames: u64,
    /// Losses of sync: a packet did not begin with 0x47.
    pub sync_errors: u64,
    /// Bytes that belong to no packet, skipped to find sync again.
    pub skipped_bytes: u64,
    /// Continuity counters that are not the next one: packets were lost or swapped.
    pub continuity_errors: u64,
    /// Packets sent twice in a row, which is allowed once (ISO/IEC 13818-1, 2.4.3.3). Not counted as frames.
    pub duplicates: u64,
    /// Packets that the sender marked as damaged (`transport_error_indicator`).
    pub damaged: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    pid: u16,
    last: u8,
    /// The last packet was a repetition.
    repeated: bool,
}

/// Checks a transport stream that comes in pieces of any size. Looks only at the headers of packets.
#[derive(Debug, Clone)]
pub struct TsChecker {
    video_pid: u16,
    counts: TsCounts,
    counters: Vec<Counter>,
    /// A header that is not complete yet.
    part: [u8; 6],
    part_bytes: usize,
    /// Bytes of the current packet still to come.
    skip: usize,
    /// Good packets since the last loss of sync, up to `IN_SYNC_PACKETS`.
    good_packets: u8,
}

impl TsChecker {
    /// A checker that counts frames on `video_pid` (see `ContentIndex::video_pid`). The stream must begin at
    /// a packet.
    pub fn new(video_pid: u16) -> Self {
        Self {
            video_pid,
            counts: TsCounts::default(),
            counters: Vec::with_capacity(4),
            part: [0; 6],
            part_bytes: 0,
            skip: 0,
            good_packets: IN_SYNC_PACKETS,
        }
    }

    pub fn counts(&self) -> TsCounts {
        self.counts
    }

    /// Expects a packet with any counter next: the player has moved to another offset. The counts stay.
    pub fn restart(&mut self) {
        self.counters.clear();
        (self.part_bytes, self.skip, self.good_packets) = (0, 0, IN_SYNC_PACKETS);
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            if self.skip > 0 {
                let now = self.skip.min(bytes.len() - at);
                self.skip -= now;
                at += now;
            } else if self.part_bytes == 0 && bytes.len() - at >= self.part.len() {
                at = self.check_whole_headers(bytes, at);
            } else {
                at = self.join_header(bytes, at);
            }
        }
    }

    /// Checks headers that are whole in `bytes`; returns where it stopped.
    fn check_whole_headers(&mut self, bytes: &[u8], mut at: usize) -> usize {
        while let Some(header) = bytes[at..].first_chunk::<6>() {
            if header[0] != SYNC {
                return self.resync(bytes, at);
            }
            self.packet(header);
            at += PACKET_BYTES;
            if at >= bytes.len() {
                self.skip = at - bytes.len();
                return bytes.len();
            }
        }
        at
    }

    /// Adds bytes to an incomplete header.
    fn join_header(&mut self, bytes: &[u8], at: usize) -> usize {
        if self.part_bytes == 0 && bytes[at] != SYNC {
            return self.resync(bytes, at);
        }
        let now = (self.part.len() - self.part_bytes).min(bytes.len() - at);
        self.part[self.part_bytes..self.part_bytes + now].copy_from_slice(&bytes[at..at + now]);
        self.part_bytes += now;
        if self.part_bytes == self.part.len() {
            let header = self.part;
            self.packet(&header);
            self.part_bytes = 0;
            self.skip = PACKET_BYTES - header.len();
        }
        at + now
    }

    /// Counts a loss of sync once and skips to the next possible packet.
    #[cold]
    fn resync(&mut self, bytes: &[u8], at: usize) -> usize {
        if self.good_packets == IN_SYNC_PACKETS {
            self.counts.sync_errors += 1;
        }
        self.good_packets = 0;
        // Count the loss, not the continuity errors that follow from it.
        self.counters.clear();
        let skipped = bytes[at..].iter().position(|&b| b == SYNC).unwrap_or(bytes.len() - at);
        self.counts.skipped_bytes += skipped as u64;
        at + skipped
    }

    /// Counts a packet by the first six bytes: its header, and length and flags of its adaptation field.
    #[inline]
    fn packet(&mut self, header: &[u8; 6]) {
        self.counts.packets += 1;
        self.good_packets = IN_SYNC_PACKETS.min(self.good_packets + 1);
        let pid = u16::from_be_bytes([header[1], header[2]]) & 0x1FFF;
        if header[1] & 0x80 != 0 {
            // Nothing in it can be trusted, not even the PID.
            self.counts.damaged += 1;
            return;
        }
        let new = self.check_counter(pid, header);
        if new && pid == self.video_pid && header[1] & 0x40 != 0 {
            self.counts.frames += 1;
        }
    }

    /// Checks the continuity counter. Returns whether the packet is no repetition.
    #[inline]
    fn check_counter(&mut self, pid: u16, header: &[u8; 6]) -> bool {
        let (has_field, has_payload) = (header[3] & 0x20 != 0, header[3] & 0x10 != 0);
        let now = header[3] & 15;
        let Some(counter) = self.counters.iter_mut().find(|c| c.pid == pid) else {
            if pid != PID_NULL && self.counters.len() < PIDS_MAX {
                self.counters.push(Counter { pid, last: now, repeated: false });
            }
            return true;
        };
        let expected = if has_payload { (counter.last + 1) & 15 } else { counter.last };
        // discontinuity_indicator: the counter may jump.
        let announced = has_field && header[4] > 0 && header[5] & 0x80 != 0;
        let repeated = has_payload && now == counter.last && !counter.repeated && !announced;
        if repeated {
            self.counts.duplicates += 1;
        } else if now != expected && !announced {
            self.counts.continuity_errors += 1;
        }
        counter.last = now;
        counter.repeated = repeated;
        !repeated
    }
}
