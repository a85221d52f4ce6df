//! One viewer as a state machine, without clock and socket: time and received bytes are passed in.
//!
//! ```text
//! HEADER -> BUFFERING -> PLAYING <-> STALLED       (-> ENDED)
//! ```
//! Play begins when [`BufferRules::start_ns`] of content are buffered; frame k is then due at `t_play +
//! (DTS_k - DTS_0)`. When the last byte of a due frame is missing the picture stands still (a **stall**)
//! until [`BufferRules::resume_ns`] are buffered. The player reads no more than [`BufferRules::cap_ns`] ahead
//! of the picture on the screen.

use crate::content::timeline::{Cursor, Timeline};

/// How much a player buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferRules {
    /// Play begins when this much is buffered.
    pub start_ns: u64,
    /// Play resumes after a stall when this much is buffered.
    pub resume_ns: u64,
    /// The most that is buffered.
    pub cap_ns: u64,
}

impl Default for BufferRules {
    /// 1.0 s (VLC's network cache), 0.5 s and 2.0 s.
    fn default() -> Self {
        Self { start_ns: 1_000_000_000, resume_ns: 500_000_000, cap_ns: 2_000_000_000 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server has not answered yet.
    Header,
    /// The buffer fills before the first picture.
    Buffering,
    Playing,
    /// The picture stands still.
    Stalled,
    /// The trial ended, or the stream broke.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// When the missing frame was due.
    pub began_ns: u64,
    /// When play resumed; `None` during the stall.
    pub ended_ns: Option<u64>,
    /// The missing frame, counted from the player's first.
    pub frame: u64,
}

/// The first stalls of a stream are kept one by one; all of them are counted.
pub const STALLS_KEPT_MAX: usize = 256;

#[derive(Debug, Clone)]
pub struct Player {
    rules: BufferRules,
    state: State,
    gop: usize,
    /// The clock's time at position 0, moved on by every stall.
    zero_ns: u64,
    /// How far the content has been played.
    position_ns: u64,
    received_bytes: u64,
    play: Cursor,
    head: Cursor,
    want: Cursor,
    started_ns: Option<u64>,
    stalled_ns: u64,
    stall_count: u64,
    stalls: Vec<Stall>,
}

impl Player {
    pub fn new(rules: BufferRules, timeline: &Timeline, gop: usize) -> Self {
        let cursor = Cursor::new(timeline, gop);
        Self {
            rules,
            state: State::Header,
            gop,
            zero_ns: 0,
            position_ns: 0,
            received_bytes: 0,
            play: cursor.clone(),
            head: cursor.clone(),
            want: cursor,
            started_ns: None,
            stalled_ns: 0,
            stall_count: 0,
            stalls: Vec::new(),
        }
    }

    /// The server has answered the first request; the body follows.
    pub fn opened(&mut self) {
        if self.state == State::Header {
            self.state = State::Buffering;
        }
    }

    /// How many more bytes the player would read at `now_ns`: up to [`BufferRules::cap_ns`] ahead of the
    /// picture.
    #[inline]
    pub fn wanted_bytes(&mut self, timeline: &Timeline, now_ns: u64) -> u64 {
        let position_ns = match self.state {
            State::Header | State::Ended => return 0,
            State::Playing => now_ns.saturating_sub(self.zero_ns).max(self.position_ns),
            State::Buffering | State::Stalled => self.position_ns,
        };
        let until_ns = position_ns.saturating_add(self.rules.cap_ns);
        while self.want.due_ns <= until_ns {
            self.want.step(timeline);
        }
        self.want.bytes_at(until_ns).saturating_sub(self.received_bytes)
    }

    /// Play up to `now_ns` with `received_bytes` since the player's beginning. Neither may decrease.
    ///
    /// A frame is missing when it is due and not received by the time of this call, so a late caller never
    /// makes a stall out of bytes that wait in the kernel.
    pub fn advance(&mut self, timeline: &Timeline, now_ns: u64, received_bytes: u64) {
        self.received_bytes = self.received_bytes.max(received_bytes);
        while self.head.end_bytes <= self.received_bytes {
            self.head.step(timeline);
        }
        match self.state {
            State::Header | State::Ended => return,
            State::Buffering => {
                if self.head.due_ns < self.rules.start_ns {
                    return;
                }
                self.started_ns = Some(now_ns);
                self.zero_ns = now_ns;
                self.state = State::Playing;
            }
            State::Stalled => {
                if self.head.due_ns < self.play.due_ns.saturating_add(self.rules.resume_ns) {
                    return;
                }
                self.resume(now_ns);
            }
            State::Playing => {}
        }
        self.play_until(timeline, now_ns);
    }

    fn resume(&mut self, now_ns: u64) {
        if let Some(stall) = self.stalls.last_mut().filter(|stall| stall.ended_ns.is_none()) {
            stall.ended_ns = Some(now_ns);
        }
        // The stall began when the missing frame was due.
        let began_ns = self.zero_ns + self.position_ns;
        let length_ns = now_ns.saturating_sub(began_ns);
        self.stalled_ns += length_ns;
        self.zero_ns += length_ns;
        self.state = State::Playing;
    }

    #[inline]
    fn play_until(&mut self, timeline: &Timeline, now_ns: u64) {
        let position_ns = now_ns.saturating_sub(self.zero_ns).max(self.position_ns);
        while self.play.due_ns <= position_ns {
            if self.play.number >= self.head.number {
                return self.stall();
            }
            self.play.step(timeline);
        }
        self.position_ns = position_ns;
    }

    fn stall(&mut self) {
        // A stall cannot begin before what has been played.
        self.position_ns = self.position_ns.max(self.play.due_ns);
        self.state = State::Stalled;
        self.stall_count += 1;
        if self.stalls.len() < STALLS_KEPT_MAX {
            let began_ns = self.zero_ns + self.position_ns;
            self.stalls.push(Stall { began_ns, ended_ns: None, frame: self.play.number });
        }
    }

    /// End the player. An open stall ends here, unresumed.
    pub fn end(&mut self, now_ns: u64) {
        if self.state == State::Stalled {
            self.stalled_ns += now_ns.saturating_sub(self.zero_ns + self.position_ns);
        }
        self.state = State::Ended;
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn gop(&self) -> usize {
        self.gop
    }

    pub fn position_ns(&self) -> u64 {
        self.position_ns
    }

    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Playing time received so far; parts of a frame count as parts of its time.
    pub fn received_ns(&self) -> u64 {
        self.head.time_at(self.received_bytes)
    }

    /// Playing time received ahead of the picture.
    pub fn buffered_ns(&self) -> u64 {
        self.received_ns().saturating_sub(self.position_ns)
    }

    /// Time until the first missing frame is due; 0 during a stall, `None` before the first picture and after
    /// the end.
    #[inline]
    pub fn slack_ns(&self) -> Option<u64> {
        match self.state {
            State::Playing => Some(self.head.due_ns.saturating_sub(self.position_ns)),
            State::Stalled => Some(0),
            State::Header | State::Buffering | State::Ended => None,
        }
    }

    pub fn frames_played(&self) -> u64 {
        self.play.number
    }

    pub fn started_ns(&self) -> Option<u64> {
        self.started_ns
    }

    pub fn stall_count(&self) -> u64 {
        self.stall_count
    }

    /// The stalls, up to [`STALLS_KEPT_MAX`].
    pub fn stalls(&self) -> &[Stall] {
        &self.stalls
    }

    /// Total length of all stalls up to `now_ns`.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        match self.state {
            State::Stalled => self.stalled_ns + now_ns.saturating_sub(self.zero_ns + self.position_ns),
            _ => self.stalled_ns,
        }
    }
}
