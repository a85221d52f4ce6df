//! Which engines the flows of a group get.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tcp::{CALL_BYTES, Pipes};
use crate::driver::{Engine, EngineChoice, Mode, ProbeReport};

/// The probe's result, once in the life of the process.
static PROBED: Mutex<Option<ProbeReport>> = Mutex::new(None);

pub(super) fn probed() -> MutexGuard<'static, Option<ProbeReport>> {
    PROBED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With more flows than this, each receives too little at a time for rare wake-ups (`SO_RCVLOWAT`).
const FEW_FLOWS: usize = 2;

/// With more flows than this, pipes are not worth their memory, and each call sends less, so that each of ten
/// thousand flows has its turn soon.
const SPLICED_FLOWS_MAX: usize = 64;
/// Bytes per send call of such a flow.
const CROWDED_CALL_BYTES: usize = 64 << 10;

/// The engines of a group while its flows are made ready.
#[derive(Debug)]
pub(super) struct Engines {
    sender: Engine,
    pub(super) flows: usize,
    segmented: Option<bool>,
    probe: Option<ProbeReport>,
}

impl Engines {
    /// For a group of `flows`: as `given`, else as the probe found if it has run, else `splice`.
    pub(super) fn choose(given: Option<Engine>, flows: usize) -> Self {
        let probe = if given.is_some() { None } else { probed().clone() };
        let sender = given.or(probe.as_ref().map(|p| p.chosen)).unwrap_or(Engine::Splice);
        let sender = if flows > SPLICED_FLOWS_MAX { Engine::Write } else { sender };
        Self { sender, flows, segmented: None, probe }
    }

    /// Pipes for one sender, if it is to splice. Where there are none to be had, senders write.
    pub(super) fn pipes(&mut self) -> Option<Pipes> {
        if self.sender == Engine::Write {
            return None;
        }
        let pipes = Pipes::new();
        if pipes.is_err() {
            self.sender = Engine::Write;
        }
        pipes.ok()
    }

    /// Bytes per send call of TCP.
    pub(super) fn call_bytes(&self) -> usize {
        if self.flows > SPLICED_FLOWS_MAX { CROWDED_CALL_BYTES } else { CALL_BYTES }
    }

    pub(super) fn are_few(&self) -> bool {
        self.flows <= FEW_FLOWS
    }

    /// Notes whether the kernel segments the calls of a UDP sender.
    pub(super) fn note_segments(&mut self, segmented: bool) {
        self.segmented = Some(self.segmented.unwrap_or(true) && segmented);
    }

    /// What was chosen; `sends_tcp` and `mode` say what flows there are.
    pub(super) fn choice(
        self,
        sends_tcp: bool,
        mode: Option<Mode>,
        threads: usize,
        shared: bool,
    ) -> EngineChoice {
        EngineChoice {
            sender: sends_tcp.then_some(self.sender),
            mode,
            segmented: self.segmented,
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            shared_threads: shared,
            probe: self.probe.filter(|_| sends_tcp),
        }
    }
}
