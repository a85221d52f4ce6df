//! One stream of a group: player, connection and what is written down about it during the hold.

use super::film::Film;
use super::link::{Link, LinkError, Source};
use super::player::{Player, Rules, State};
use super::sink::Sink;
use super::steady::Steady;
use crate::stream::settings::Depth;

/// Throughput is compared with demand over windows of this length.
const WINDOW_NS: u64 = 5_000_000_000;

/// What one stream is to do.
#[derive(Debug, Clone, Copy)]
pub struct Role {
    /// Its number within the group.
    pub stream: u64,
    /// Where it begins.
    pub gop: usize,
    /// How deeply it looks.
    pub depth: Depth,
    /// Whether it compares the content's hashes.
    pub hashes: bool,
    /// When it connects, on the monotonic clock.
    pub connect_ns: u64,
}

/// The figures of a player at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// The moment.
    pub at_ns: u64,
    /// How far the film had come.
    pub position_ns: u64,
    /// Frames shown.
    pub frames: u64,
    /// Stalls begun.
    pub stalls: u64,
    /// Time the picture had stood still.
    pub stalled_ns: u64,
    /// Whether it stood still at this moment.
    pub in_stall: bool,
    /// Bytes received.
    pub received_bytes: u64,
}

/// The hold as all threads know it; ns on the monotonic clock, `u64::MAX` while it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Its first moment.
    pub from_ns: u64,
    /// Its last moment.
    pub to_ns: u64,
}

/// One stream.
#[derive(Debug)]
pub struct Viewer {
    /// What it is to do.
    pub role: Role,
    /// The player.
    pub player: Player,
    /// The connection.
    pub link: Link,
    /// What looks at the bytes.
    pub sink: Sink,
    /// Throughput against demand.
    pub steady: Steady,
    /// When and why the stream broke.
    pub error: Option<(u64, LinkError)>,
    /// The figures when the hold began, once it has.
    pub from: Option<Mark>,
    /// The figures when the hold ended, once it has.
    pub to: Option<Mark>,
    /// Least slack in the hold.
    pub slack_min_ns: Option<u64>,
    /// Least slack in the second that runs.
    pub second_min_ns: Option<u64>,
    /// Slack at the last look, for the samples.
    pub slack_ns: Option<u64>,
    turn_ns: u64,
    has_started: bool,
    /// Whether epoll watches its connection.
    pub watched: bool,
}

impl Viewer {
    /// A stream that has not connected yet.
    #[must_use]
    pub fn new(role: Role, rules: Rules, film: &Film) -> Self {
        Self {
            role,
            player: Player::new(rules, &film.timeline, role.gop),
            link: Link::new(film.timeline.gops()[role.gop].start_bytes),
            sink: Sink::new(role.depth, role.hashes, film, role.gop),
            steady: Steady::default(),
            error: None,
            from: None,
            to: None,
            slack_min_ns: None,
            second_min_ns: None,
            slack_ns: None,
            turn_ns: 0,
            has_started: false,
            watched: false,
        }
    }

    /// Read what is wanted and play on. True if the first picture has just been shown.
    pub fn tick(&mut self, source: &Source, film: &Film, buffer: &mut [u8], hold: Hold, now_ns: u64) -> bool {
        if self.to.is_some() {
            return false;
        }
        let timeline = &film.timeline;
        if self.error.is_none() && now_ns >= self.role.connect_ns {
            let wanted = self.player.wanted_bytes(timeline, now_ns);
            match self.link.go_on(source, film, &mut self.sink, buffer, wanted) {
                Ok(got) => {
                    if got.opened {
                        self.player.opened();
                    }
                    let received = self.player.received_bytes() + got.bytes;
                    self.steady.fed(now_ns, wanted, got.bytes);
                    self.cross(film, hold, now_ns, received);
                    self.player.advance(timeline, now_ns, received);
                    self.look(film, now_ns, got.bytes >= wanted);
                }
                Err(error) => {
                    self.cross(film, hold, now_ns, self.player.received_bytes());
                    self.fail(now_ns, error);
                }
            }
        } else {
            self.cross(film, hold, now_ns, self.player.received_bytes());
        }
        let started = !self.has_started && self.player.started_ns().is_some();
        self.has_started |= started;
        started
    }

    /// The stream broke.
    pub fn fail(&mut self, now_ns: u64, error: LinkError) {
        self.player.end(now_ns);
        self.slack_ns = None;
        self.error = Some((now_ns, error));
    }

    /// Play exactly up to the hold's ends, if `now_ns` is beyond them, and write the figures down.
    fn cross(&mut self, film: &Film, hold: Hold, now_ns: u64, received: u64) {
        if self.from.is_none() && now_ns >= hold.from_ns {
            self.player.advance(&film.timeline, hold.from_ns, received);
            self.from = Some(self.mark(hold.from_ns));
            self.turn_ns = hold.from_ns;
            self.steady.forget_gaps();
        }
        if self.to.is_none() && now_ns >= hold.to_ns {
            self.player.advance(&film.timeline, hold.to_ns, received);
            self.to = Some(self.mark(hold.to_ns));
        }
    }

    /// The figures at a moment.
    #[must_use]
    pub fn mark(&self, at_ns: u64) -> Mark {
        Mark {
            at_ns,
            position_ns: self.player.position_ns(),
            frames: self.player.frames_played(),
            stalls: self.player.stall_count(),
            stalled_ns: self.player.stalled_ns(at_ns),
            in_stall: self.player.state() == State::Stalled,
            received_bytes: self.player.received_bytes(),
        }
    }

    /// After a read: slack, and at the end of a window throughput against demand.
    fn look(&mut self, film: &Film, now_ns: u64, is_full: bool) {
        self.slack_ns = self.player.slack_ns();
        if self.from.is_none() {
            return;
        }
        // Between the last tick and the hold's end the slack is the last one's; after it nothing is looked at.
        if self.to.is_none() {
            let slack = self.slack_ns.unwrap_or(0);
            self.slack_min_ns = Some(self.slack_min_ns.map_or(slack, |least| least.min(slack)));
            self.second_min_ns = Some(self.second_min_ns.map_or(slack, |least| least.min(slack)));
        }
        if now_ns >= self.turn_ns {
            self.steady.turn(&self.player, &film.timeline, is_full);
            self.turn_ns += WINDOW_NS;
        }
    }

    /// Whether the stream is certain to be disturbed: it stalled within the hold, or broke.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        let stalled = self.from.is_some_and(|from| from.in_stall || self.player.stall_count() > from.stalls);
        stalled || self.error.is_some()
    }

    /// End the hold here, if it has begun and not ended: the group was told to stop.
    pub fn cut(&mut self, now_ns: u64) {
        if self.to.is_none() && self.from.is_some() {
            self.to = Some(self.mark(now_ns));
        }
    }
}
