//! One viewer as a state machine: no clock, no socket, only times and byte counts that it is told.
//!
//! ```text
//! HEADER -> BUFFERING -> PLAYING <-> STALLED       (-> ENDED)
//! ```
//! Play begins when [`Rules::start_ns`] of content are there; frame k is then due at `t_play + (DTS_k - DTS_0)`.
//! When the last byte of a due frame is missing the picture stands still (a **stall**) until [`Rules::resume_ns`]
//! are there. The player asks for no more than [`Rules::cap_ns`] ahead of the picture on the screen.

use super::timeline::{Cursor, Timeline};

/// The habits of a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Play begins when this much is buffered.
    pub start_ns: u64,
    /// Play resumes after a stall when this much is buffered.
    pub resume_ns: u64,
    /// No more than this is kept ahead.
    pub cap_ns: u64,
}

impl Default for Rules {
    /// 1.0 s (VLC's network cache), 0.5 s and 2.0 s.
    fn default() -> Self {
        Self { start_ns: 1_000_000_000, resume_ns: 500_000_000, cap_ns: 2_000_000_000 }
    }
}

/// What the viewer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing: the server has not answered yet.
    Header,
    /// Nothing yet: the buffer fills.
    Buffering,
    /// The film.
    Playing,
    /// A picture that stands still.
    Stalled,
    /// Nothing more: the viewer has gone, or the stream broke.
    Ended,
}

/// A time when the picture stood still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// When the missing frame was due.
    pub began_ns: u64,
    /// When the picture moved again; `None` while it stands still.
    pub ended_ns: Option<u64>,
    /// The missing frame, counted from the player's first.
    pub frame: u64,
}

/// At most this many stalls of a stream are kept one by one; all of them are counted.
pub const STALLS_KEPT_MAX: usize = 256;

/// A virtual player.
#[derive(Debug, Clone)]
pub struct Player {
    rules: Rules,
    state: State,
    gop: usize,
    /// The clock's time at which the player's time was 0, moved on by every stall.
    zero_ns: u64,
    /// Player's time: how far the film has come.
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
    /// A player that begins at a group of pictures.
    #[must_use]
    pub fn new(rules: Rules, timeline: &Timeline, gop: usize) -> Self {
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

    /// How many more bytes the player would read at `now_ns`: up to [`Rules::cap_ns`] ahead of the picture.
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

    /// It is `now_ns`, and `received_bytes` have been received since the player's beginning. Neither may go back.
    ///
    /// A frame counts as missing when it is due and not there by the time of this call, so that a delay of the
    /// caller never makes a stall of bytes that wait in the kernel.
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
        // The stall began when the film stood at the missing frame.
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

    /// The frame that is due is not there: the film stops at the moment it was due.
    fn stall(&mut self) {
        // A clock that was handed over late cannot make a stall begin before what has been played.
        self.position_ns = self.position_ns.max(self.play.due_ns);
        self.state = State::Stalled;
        self.stall_count += 1;
        if self.stalls.len() < STALLS_KEPT_MAX {
            let began_ns = self.zero_ns + self.position_ns;
            self.stalls.push(Stall { began_ns, ended_ns: None, frame: self.play.number });
        }
    }

    /// The viewer goes, or the stream broke. An open stall ends here, unresumed.
    pub fn end(&mut self, now_ns: u64) {
        if self.state == State::Stalled {
            self.stalled_ns += now_ns.saturating_sub(self.zero_ns + self.position_ns);
        }
        self.state = State::Ended;
    }

    /// What the viewer sees.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Where the player began.
    #[must_use]
    pub fn gop(&self) -> usize {
        self.gop
    }

    /// How far the film has come.
    #[must_use]
    pub fn position_ns(&self) -> u64 {
        self.position_ns
    }

    /// Bytes received since the beginning.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Up to which time of the film content is there, parts of a frame counted as parts of its time.
    #[must_use]
    pub fn received_ns(&self) -> u64 {
        self.head.time_at(self.received_bytes)
    }

    /// How far what is there reaches ahead of the picture.
    #[must_use]
    pub fn buffered_ns(&self) -> u64 {
        self.received_ns().saturating_sub(self.position_ns)
    }

    /// How long the first frame that is missing still has until it is due; 0 during a stall, `None` before the
    /// first picture and after the end.
    #[inline]
    #[must_use]
    pub fn slack_ns(&self) -> Option<u64> {
        match self.state {
            State::Playing => Some(self.head.due_ns.saturating_sub(self.position_ns)),
            State::Stalled => Some(0),
            State::Header | State::Buffering | State::Ended => None,
        }
    }

    /// Frames shown so far.
    #[must_use]
    pub fn frames_played(&self) -> u64 {
        self.play.number
    }

    /// When the first picture was shown.
    #[must_use]
    pub fn started_ns(&self) -> Option<u64> {
        self.started_ns
    }

    /// How many stalls there were.
    #[must_use]
    pub fn stall_count(&self) -> u64 {
        self.stall_count
    }

    /// The stalls, up to [`STALLS_KEPT_MAX`].
    #[must_use]
    pub fn stalls(&self) -> &[Stall] {
        &self.stalls
    }

    /// How long the picture has stood still in all at `now_ns`.
    #[must_use]
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        match self.state {
            State::Stalled => self.stalled_ns + now_ns.saturating_sub(self.zero_ns + self.position_ns),
            _ => self.stalled_ns,
        }
    }
}
