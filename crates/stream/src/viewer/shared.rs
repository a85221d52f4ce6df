//! What the threads of a group share: the task, and the hold's limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::connection::ContentSource;
use super::part_settings::ViewerSettings;
use super::stream::Hold;
use crate::content::Content;

pub const SLOTS: u64 = 8;
pub const SLOT_NS: u64 = 5_000_000;
/// Least length of a hold that is ended early: long enough to sample the resources' rates.
const ABORTED_HOLD_NS_MIN: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct Shared {
    pub plan: ViewerSettings,
    pub source: ContentSource,
    pub content: Arc<Content>,
    /// On the monotonic clock.
    pub start_ns: u64,
    /// The verdict is certain before the hold's end.
    aborted: AtomicBool,
    hold_from_ns: AtomicU64,
    /// Streams that have shown a picture.
    playing: AtomicU64,
}

impl Shared {
    pub fn new(plan: ViewerSettings, source: ContentSource, content: Arc<Content>, start_ns: u64) -> Self {
        let latest_ns = start_ns + plan.hold_after_ns().next_multiple_of(SLOT_NS);
        let (aborted, playing) = (AtomicBool::new(false), AtomicU64::new(0));
        let hold_from_ns = AtomicU64::new(latest_ns);
        Self { plan, source, content, start_ns, aborted, hold_from_ns, playing }
    }

    #[inline]
    pub fn hold(&self) -> Hold {
        let from_ns = self.hold_from_ns.load(Ordering::Relaxed);
        Hold { from_ns, to_ns: from_ns.saturating_add(self.plan.hold.ns()) }
    }

    pub fn latest_end_ns(&self) -> u64 {
        self.start_ns + self.plan.hold_after_ns() + self.plan.hold.ns()
    }

    /// Count a stream's first picture. After the last one the hold can begin, unless `warm_up` fixes its
    /// beginning or other hosts, whose progress is unknown here, hold at the same time.
    pub fn record_playback_start(&self, now_ns: u64) {
        let playing = self.playing.fetch_add(1, Ordering::Relaxed) + 1;
        if playing == self.plan.streams && self.plan.warm_up.is_none() && !self.plan.is_part() {
            self.set_hold_start(now_ns + 2 * self.plan.cap.ns());
        }
    }

    /// Begin the hold with the slot at or after `from_ns`, but not later than planned.
    fn set_hold_start(&self, from_ns: u64) {
        let slots = (from_ns - self.start_ns).div_ceil(SLOT_NS);
        self.hold_from_ns.fetch_min(self.start_ns + slots * SLOT_NS, Ordering::Relaxed);
    }

    /// End the hold early: the verdict is certain.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Whether the threads end at the slot that is due at `due_ns`.
    pub fn is_over(&self, due_ns: u64) -> bool {
        let hold = self.hold();
        let is_aborted = self.is_aborted() && due_ns >= hold.from_ns.saturating_add(ABORTED_HOLD_NS_MIN);
        due_ns >= hold.to_ns || is_aborted
    }
}
