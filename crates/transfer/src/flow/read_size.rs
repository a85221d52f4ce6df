//! Tunes the read size of a TCP receiver while it runs. Pure: the caller passes the time.
//!
//! Small reads keep the buffer in the core's own cache and spread the work over both ends. Large ones that
//! are woken rarely (`SO_RCVLOWAT`, socket(7)) spare wake-ups, and acknowledgements, each of which makes the
//! sender's congestion control work on the receiver's time. Which is faster depends on the host, its load and
//! the congestion control of the sender, which a receiver cannot see: with `bbr` over loopback the large ones
//! carried twice as much, with `reno` half.

use crate::driver::Mode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadMode {
    pub(super) read_bytes: usize,
    /// Bytes that must have arrived before the receiver is woken.
    pub(super) lowat_bytes: u32,
}

const LARGE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 256 << 10;
const SMALL: usize = 0;
const LARGE: usize = 1;

/// The modes are compared on a path that brings so much within [`FAST_WITHIN_NS`]: on a slower one, waiting
/// for a large amount would only make the counts late.
const FAST_BYTES: u64 = 4 << 20;
const FAST_WITHIN_NS: u64 = 20_000_000;

/// The modes take turns, because other load on the host changes.
const TURN_NS: u64 = 20_000_000;
const TURNS: u32 = 4;
/// How long the better mode is kept before they are compared again.
const KEEP_NS: u64 = 3_000_000_000;
/// Within this ratio the rates are alike, and the CPU time of the receiver decides.
const ALIKE: f64 = 1.1;

/// Totals of a mode over its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    bytes: u64,
    wall_ns: u64,
    cpu_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The size is fixed.
    Fixed,
    /// Waits for the path to be fast.
    Watching,
    /// The modes take turns.
    Trying {
        step: u32,
        sums: [Sum; 2],
    },
    Keeping {
        until_ns: u64,
    },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    bytes: u64,
    now_ns: u64,
    cpu_ns: u64,
}

#[derive(Debug)]
pub(super) struct ReadSizeTuner {
    modes: [ReadMode; 2],
    mode: usize,
    phase: Phase,
    since: Mark,
}

impl ReadSizeTuner {
    /// For a receiver in `mode` that is to ask for `size_bytes` a call (0: as it finds out). One of many
    /// flows asks for little and is not woken rarely: together they bring enough at a time.
    pub(super) fn new(mode: Mode, size_bytes: usize, is_one_of_few: bool) -> Self {
        let small_bytes = match mode {
            _ if size_bytes > 0 => size_bytes,
            Mode::Copy => SMALL_BYTES,
            Mode::Discard => LARGE_BYTES,
        };
        let small = ReadMode { read_bytes: small_bytes, lowat_bytes: 1 };
        let large = ReadMode { read_bytes: LARGE_BYTES, lowat_bytes: LARGE_BYTES as u32 };
        let phase = if size_bytes == 0 && is_one_of_few { Phase::Watching } else { Phase::Fixed };
        Self { modes: [small, large], mode: SMALL, phase, since: Mark::default() }
    }

    pub(super) fn mode(&self) -> ReadMode {
        self.modes[self.mode]
    }

    /// The largest read that it may choose.
    pub(super) fn read_bytes_most(&self) -> usize {
        if self.phase == Phase::Fixed { self.mode().read_bytes } else { LARGE_BYTES }
    }

    /// The flow ends soon: fewer bytes may be left than wake the receiver.
    pub(super) fn near_end(&mut self) {
        self.phase = Phase::Fixed;
        self.mode = SMALL;
    }

    /// Fewer bytes arrived than should wake the receiver: the path has become slow.
    pub(super) fn came_short(&mut self, now_ns: u64) {
        if self.mode == LARGE {
            self.mode = SMALL;
            self.phase = Phase::Keeping { until_ns: now_ns.saturating_add(KEEP_NS) };
        }
    }

    /// `bytes` in all have come at `now_ns`; `cpu_ns` reads the thread's CPU time.
    pub(super) fn moved(&mut self, bytes: u64, now_ns: u64, cpu_ns: impl Fn() -> u64) {
        match &mut self.phase {
            Phase::Fixed => {}
            Phase::Watching => {
                if now_ns - self.since.now_ns > FAST_WITHIN_NS {
                    self.since = Mark { bytes, now_ns, cpu_ns: 0 };
                } else if bytes - self.since.bytes >= FAST_BYTES {
                    self.phase = Phase::Trying { step: 0, sums: [Sum::default(); 2] };
                    self.since = Mark { bytes, now_ns, cpu_ns: cpu_ns() };
                }
            }
            Phase::Keeping { until_ns } if now_ns < *until_ns => {}
            Phase::Keeping { .. } => {
                self.phase = Phase::Watching;
                self.mode = SMALL;
                self.since = Mark { bytes, now_ns, cpu_ns: 0 };
            }
            Phase::Trying { step, sums } => {
                if now_ns - self.since.now_ns < TURN_NS {
                    return;
                }
                let mark = Mark { bytes, now_ns, cpu_ns: cpu_ns() };
                sums[self.mode].add(self.since, mark);
                self.since = mark;
                *step += 1;
                self.mode = (self.mode + 1) % 2;
                if *step == TURNS {
                    self.mode = better(sums);
                    self.phase = Phase::Keeping { until_ns: now_ns.saturating_add(KEEP_NS) };
                }
            }
        }
    }
}

impl Sum {
    fn add(&mut self, from: Mark, to: Mark) {
        self.bytes += to.bytes - from.bytes;
        self.wall_ns += to.now_ns - from.now_ns;
        self.cpu_ns += to.cpu_ns - from.cpu_ns;
    }

    fn bytes_per_ns(&self) -> f64 {
        self.bytes as f64 / self.wall_ns.max(1) as f64
    }

    fn cpu_per_byte(&self) -> f64 {
        self.cpu_ns as f64 / self.bytes.max(1) as f64
    }
}

fn better([small, large]: &[Sum; 2]) -> usize {
    let ratio = large.bytes_per_ns() / small.bytes_per_ns().max(f64::MIN_POSITIVE);
    if ratio > ALIKE || (ratio > 1.0 / ALIKE && large.cpu_per_byte() < small.cpu_per_byte()) {
        LARGE
    } else {
        SMALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has come over a path, and the CPU time that it took.
    #[derive(Default)]
    struct Path {
        bytes: u64,
        cpu_ns: u64,
    }

    impl Path {
        /// Delivers bytes per millisecond at a CPU time per byte, both by the tuner's mode: small, large.
        fn run(&mut self, tuner: &mut ReadSizeTuner, ms: std::ops::Range<u64>, modes: [(u64, u64); 2]) {
            for ms in ms {
                let (rate, cpu) = modes[usize::from(tuner.mode().lowat_bytes > 1)];
                self.bytes += rate;
                self.cpu_ns += rate * cpu;
                tuner.moved(self.bytes, ms * 1_000_000, || self.cpu_ns);
            }
        }
    }

    const FAST: u64 = 1 << 20;

    #[test]
    fn tuner_keeps_the_faster_mode_and_retries() {
        let mut tuner = ReadSizeTuner::new(Mode::Copy, 0, true);
        assert_eq!((tuner.mode().lowat_bytes, tuner.read_bytes_most()), (1, LARGE_BYTES));
        let mut path = Path::default();
        path.run(&mut tuner, 0..150, [(FAST, 1), (2 * FAST, 1)]);
        assert_eq!(tuner.mode().read_bytes, LARGE_BYTES, "twice as fast");
        path.run(&mut tuner, 150..3350, [(FAST, 1), (FAST / 2, 1)]);
        assert_eq!(tuner.mode().read_bytes, SMALL_BYTES, "no longer");
    }

    #[test]
    fn equal_rates_are_decided_by_cpu_cost() {
        for (cost, bytes_asked) in [([3, 2], LARGE_BYTES), ([2, 3], SMALL_BYTES)] {
            let mut tuner = ReadSizeTuner::new(Mode::Copy, 0, true);
            Path::default().run(&mut tuner, 0..150, [(FAST, cost[0]), (FAST, cost[1])]);
            assert_eq!(tuner.mode().read_bytes, bytes_asked);
        }
    }

    #[test]
    fn tuner_is_off_for_slow_paths_fixed_sizes_and_many_flows() {
        for mut tuner in [
            ReadSizeTuner::new(Mode::Discard, 0, false),
            ReadSizeTuner::new(Mode::Copy, 5000, true),
            ReadSizeTuner::new(Mode::Copy, 0, true),
        ] {
            let rate = if tuner.phase == Phase::Fixed { FAST } else { 100_000 };
            let mode = tuner.mode();
            for ms in 0..5000 {
                tuner.moved(ms * rate, ms * 1_000_000, || 0);
                assert_eq!(tuner.mode(), mode);
            }
        }
        assert_eq!(ReadSizeTuner::new(Mode::Copy, 5000, true).read_bytes_most(), 5000);
    }

    #[test]
    fn short_reads_and_the_end_choose_the_small_size() {
        let mut tuner = ReadSizeTuner::new(Mode::Discard, 0, true);
        let mut path = Path::default();
        path.run(&mut tuner, 0..150, [(FAST, 1), (2 * FAST, 1)]);
        assert!(tuner.mode().lowat_bytes > 1);
        tuner.came_short(150_000_000);
        assert_eq!(tuner.mode().lowat_bytes, 1);
        tuner.near_end();
        path.run(&mut tuner, 4000..4500, [(FAST, 1), (2 * FAST, 1)]);
        assert_eq!(tuner.mode().lowat_bytes, 1);
    }
}
