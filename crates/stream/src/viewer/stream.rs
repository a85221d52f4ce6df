//! One stream of a group: player, connection, and its figures at the ends of the hold.

use super::connection::{Connection, ConnectionError, ContentSource};
use super::player::{BufferRules, Player, State};
use super::sink::Sink;
use super::throughput_check::ThroughputCheck;
use crate::content::Content;
use crate::settings::Depth;

/// Throughput is compared with demand over windows of this length.
const WINDOW_NS: u64 = 5_000_000_000;

#[derive(Debug, Clone, Copy)]
pub struct StreamSpec {
    /// The stream's number among all of the trial.
    pub number: u64,
    pub gop: usize,
    pub depth: Depth,
    /// Whether it compares the content's hashes.
    pub check_hashes: bool,
    /// When it connects, on the monotonic clock.
    pub connect_ns: u64,
}

/// The figures of a player at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub at_ns: u64,
    pub position_ns: u64,
    pub frames: u64,
    pub stalls: u64,
    pub stalled_ns: u64,
    pub in_stall: bool,
    pub received_bytes: u64,
}

/// The hold, in ns of the monotonic clock; `u64::MAX` while it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub from_ns: u64,
    pub to_ns: u64,
}

#[derive(Debug)]
pub struct ViewerStream {
    pub spec: StreamSpec,
    pub player: Player,
    pub connection: Connection,
    pub sink: Sink,
    pub throughput: ThroughputCheck,
    /// When and why the stream broke.
    pub error: Option<(u64, ConnectionError)>,
    pub from: Option<Snapshot>,
    pub to: Option<Snapshot>,
    pub slack_min_ns: Option<u64>,
    /// Least slack in the current second of the hold.
    pub second_min_ns: Option<u64>,
    pub slack_ns: Option<u64>,
    window_end_ns: u64,
    has_started: bool,
    /// Whether the event loop watches the connection.
    pub is_watched: bool,
}

impl ViewerStream {
    pub fn new(spec: StreamSpec, rules: BufferRules, content: &Content) -> Self {
        Self {
            spec,
            player: Player::new(rules, &content.timeline, spec.gop),
            connection: Connection::new(content.timeline.gops()[spec.gop].start_bytes),
            sink: Sink::new(spec.depth, spec.check_hashes, content, spec.gop),
            throughput: ThroughputCheck::default(),
            error: None,
            from: None,
            to: None,
            slack_min_ns: None,
            second_min_ns: None,
            slack_ns: None,
            window_end_ns: 0,
            has_started: false,
            is_watched: false,
        }
    }

    /// Read what the player wants and play. True if the first picture has just been shown.
    pub fn tick(
        &mut self,
        source: &ContentSource,
        content: &Content,
        buffer: &mut [u8],
        hold: Hold,
        now_ns: u64,
    ) -> bool {
        if self.to.is_some() {
            return false;
        }
        let timeline = &content.timeline;
        if self.error.is_none() && now_ns >= self.spec.connect_ns {
            let wanted = self.player.wanted_bytes(timeline, now_ns);
            match self.connection.advance(source, content, &mut self.sink, buffer, wanted) {
                Ok(read) => {
                    if read.is_open {
                        self.player.opened();
                    }
                    let received = self.player.received_bytes() + read.bytes;
                    self.throughput.record_read(now_ns, wanted, read.bytes);
                    self.snapshot_hold_ends(content, hold, now_ns, received);
                    self.player.advance(timeline, now_ns, received);
                    self.record_slack(content, now_ns, read.bytes >= wanted);
                }
                Err(error) => self.fail(content, hold, now_ns, error),
            }
        } else {
            self.snapshot_hold_ends(content, hold, now_ns, self.player.received_bytes());
        }
        let started = !self.has_started && self.player.started_ns().is_some();
        self.has_started |= started;
        started
    }

    pub fn fail(&mut self, content: &Content, hold: Hold, now_ns: u64, error: ConnectionError) {
        self.snapshot_hold_ends(content, hold, now_ns, self.player.received_bytes());
        self.player.end(now_ns);
        self.slack_ns = None;
        self.error = Some((now_ns, error));
    }

    /// At each end of the hold that has passed, play exactly up to it and take a snapshot.
    fn snapshot_hold_ends(&mut self, content: &Content, hold: Hold, now_ns: u64, received: u64) {
        if self.from.is_none() && now_ns >= hold.from_ns {
            self.player.advance(&content.timeline, hold.from_ns, received);
            self.from = Some(self.snapshot(hold.from_ns));
            self.window_end_ns = hold.from_ns;
            self.throughput.reset_gaps();
        }
        if self.to.is_none() && now_ns >= hold.to_ns {
            self.player.advance(&content.timeline, hold.to_ns, received);
            self.to = Some(self.snapshot(hold.to_ns));
        }
    }

    fn snapshot(&self, at_ns: u64) -> Snapshot {
        Snapshot {
            at_ns,
            position_ns: self.player.position_ns(),
            frames: self.player.frames_played(),
            stalls: self.player.stall_count(),
            stalled_ns: self.player.stalled_ns(at_ns),
            in_stall: self.player.state() == State::Stalled,
            received_bytes: self.player.received_bytes(),
        }
    }

    /// After a read: record the slack, and at the end of a window compare throughput with demand.
    fn record_slack(&mut self, content: &Content, now_ns: u64, is_full: bool) {
        self.slack_ns = self.player.slack_ns();
        if self.from.is_none() {
            return;
        }
        if self.to.is_none() {
            let slack = self.slack_ns.unwrap_or(0);
            self.slack_min_ns = Some(self.slack_min_ns.map_or(slack, |least| least.min(slack)));
            self.second_min_ns = Some(self.second_min_ns.map_or(slack, |least| least.min(slack)));
        }
        if now_ns >= self.window_end_ns {
            self.throughput.next_window(&self.player, &content.timeline, is_full);
            self.window_end_ns += WINDOW_NS;
        }
    }

    /// Whether the stream stalled within the hold, or broke.
    pub fn is_disturbed(&self) -> bool {
        let stalled = self.from.is_some_and(|from| from.in_stall || self.player.stall_count() > from.stalls);
        stalled || self.error.is_some()
    }

    /// End the hold now, if it has begun and not ended.
    pub fn end_hold(&mut self, now_ns: u64) {
        if self.to.is_none() && self.from.is_some() {
            self.to = Some(self.snapshot(now_ns));
        }
    }
}
