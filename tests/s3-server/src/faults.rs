//! What the server does to requests before it answers them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Faults of a server; none by default.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Time before each answer.
    pub latency: Duration,
    /// Bytes per second of all bodies, in each direction.
    pub bytes_per_s: Option<f64>,
    /// Requests per second; what is above is answered with `503 SlowDown`.
    pub requests_per_s: Option<f64>,
    /// Share of the requests that are answered with `503 SlowDown`, evenly spread.
    pub slow_down_share: f64,
    /// Seconds that the server's clock is ahead; requests more than 15 minutes away from it are refused.
    pub clock_ahead_s: i64,
    /// Every DELETE is answered with `403 AccessDenied`.
    pub refuses_deletes: bool,
}

/// Direction of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    In,
    Out,
}

#[derive(Debug)]
struct State {
    faults: Faults,
    /// Sum of the share since the last refusal.
    owed: f64,
    /// Until when the requests so far use up the rate.
    requests_until: Instant,
    /// The same of the bytes, by direction.
    bytes_until: [Instant; 2],
}

/// Applies the faults to all connections.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<State>);

/// Requests that come at once may be ahead of the rate by so much.
const BURST: Duration = Duration::from_millis(100);

impl Gate {
    pub(crate) fn new(faults: Faults) -> Self {
        let now = Instant::now();
        Self(Mutex::new(State { faults, owed: 0.0, requests_until: now, bytes_until: [now; 2] }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub(crate) fn latency(&self) -> Duration {
        self.lock().faults.latency
    }

    pub(crate) fn refuses_deletes(&self) -> bool {
        self.lock().faults.refuses_deletes
    }

    pub(crate) fn clock_ahead_s(&self) -> i64 {
        self.lock().faults.clock_ahead_s
    }

    /// Whether this request is to be refused.
    pub(crate) fn is_refused(&self) -> bool {
        let mut state = self.lock();
        state.owed += state.faults.slow_down_share;
        if state.owed >= 1.0 {
            state.owed -= 1.0;
            return true;
        }
        let Some(rate) = state.faults.requests_per_s.filter(|rate| *rate > 0.0) else { return false };
        let now = Instant::now();
        if state.requests_until > now + BURST {
            return true;
        }
        state.requests_until = state.requests_until.max(now) + Duration::from_secs_f64(1.0 / rate);
        false
    }

    /// When bytes may pass.
    pub(crate) fn pass(&self, direction: Direction, bytes: usize) -> Option<Instant> {
        let mut state = self.lock();
        let rate = state.faults.bytes_per_s.filter(|rate| *rate > 0.0)?;
        let until = &mut state.bytes_until[direction as usize];
        *until = (*until).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / rate);
        Some(*until)
    }
}
