//! The course of a trial: sources gather, the credit is found, events are left out, events count (see `hold.rs`), all ends.

use std::sync::Arc;

use sys::clock::monotonic_ns;
use sys::net::NetError;
use sys::thread::{thread_cpu_ns, thread_ready_ns};

use super::steer::{Round, Steer, Tally};
use super::turns::{Gate, Turns};
use super::worker::Worker;
use crate::daq::account;
use crate::daq::report::BuilderReport;
use crate::daq::settings::{Carrier, Size};
use crate::daq::theory::fragment_wire_bytes;
use crate::daq::wire::Kind;

const MS: u64 = 1_000_000;
/// How long sources are waited for that should have been there before the start.
const LATE_NS: u64 = 10_000 * MS;
/// How long front ends are waited for, which somebody has to start by hand.
const FRONT_ENDS_NS: u64 = 30_000 * MS;
/// How long it is waited for answers to the first questions, and to who hears multicast.
const ANSWERS_NS: u64 = 1_500 * MS;
/// Between two questions who hears multicast.
const HEARING_NS: u64 = 20 * MS;
/// How long a credit is searched.
const STEER_NS: u64 = 20_000 * MS;
/// How long connections may take to recover from a credit that was too much, and the credit with which they do.
const RECOVER_NS: u64 = 4_000 * MS;
const CAREFUL: u32 = 4;
/// How long it is waited that sources end their connections, once the run is over.
const GOODBYE_NS: u64 = 1_000 * MS;

/// Why a phase ended before its time.
pub(super) enum Early {
    /// Somebody wants the report now.
    Stopped,
    /// It cannot go on.
    Broken(String),
}

impl From<NetError> for Early {
    fn from(error: NetError) -> Self {
        Self::Broken(error.to_string())
    }
}

pub(super) type Phase = Result<(), Early>;

/// Takes a builder out of what is shared, however its thread ends.
struct Leaving(Arc<Turns>, usize);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

impl Worker {
    /// Goes through all phases; whatever happens, there is a report.
    pub(super) fn run(mut self) -> BuilderReport {
        let leaving = Leaving(self.turns.clone(), self.seat);
        // Until the hold is over.
        let mut report =
            BuilderReport { builder: self.told.builder, ended_early: true, ..BuilderReport::default() };
        if let Err(Early::Broken(why)) = self.measure(&mut report) {
            report.ended_early = false;
            report.broke_off = Some(why);
        }
        drop(leaving);
        // What is under way was cut off.
        while let Some(&(_, slot)) = self.assembly.table.under_way().first() {
            self.break_off_event(slot);
        }
        let _ = self.say_stop();
        let shared = self.shared.clone();
        self.write(&mut report);
        shared.finish();
        report
    }

    fn measure(&mut self, report: &mut BuilderReport) -> Phase {
        self.wait_for_the_start()?;
        self.gather(report)?;
        if self.told.settings.protocol == Carrier::Udp {
            self.gathering.turn_on();
        }
        let steer = self.steer()?;
        report.steered = steer.as_ref().map(Steer::steered);
        report.credit = self.grants.as_ref().map(super::grants::Grants::credit);
        let from_ns = self.warm_up()?;
        let (cpu_ns, ready_ns) = (thread_cpu_ns(), thread_ready_ns());
        let held = self.hold(from_ns);
        report.cpu_s = thread_cpu_ns().saturating_sub(cpu_ns) as f64 / 1e9;
        let ready_ns =
            thread_ready_ns().zip(ready_ns).map(|(now_ns, before_ns)| now_ns.saturating_sub(before_ns));
        report.ready_s = ready_ns.map(|ns| ns as f64 / 1e9);
        held?;
        report.ended_early = false;
        self.shared.set_done(1.0);
        self.ask_the_clocks_once_more()?;
        if let Some(steer) = steer {
            self.compare_with_push(steer, report)?;
        }
        Ok(())
    }

    /// One turn, unless the report is wanted.
    pub(super) fn go_on(&mut self, until_ns: u64) -> Phase {
        if self.shared.is_to_stop() {
            return Err(Early::Stopped);
        }
        Ok(self.turn(until_ns)?)
    }

    fn wait_for_the_start(&mut self) -> Phase {
        loop {
            let now_ns = monotonic_ns();
            match self.shared.start_ns() {
                Some(start_ns) if start_ns <= now_ns => {
                    self.collect.set_start_ns(start_ns);
                    return Ok(());
                }
                Some(start_ns) => self.go_on(start_ns)?,
                None => self.go_on(now_ns + HEARING_NS)?,
            }
            self.ask_who_hears();
        }
    }

    /// Waits for all sources, and until as much is known of each group as has to be.
    fn gather(&mut self, report: &mut BuilderReport) -> Phase {
        let from_ns = monotonic_ns();
        let sources = self.told.sources();
        let patience_ns = if self.told.settings.front_ends > 0 { FRONT_ENDS_NS } else { LATE_NS };
        while self.were_here < sources && monotonic_ns() < from_ns + patience_ns {
            self.go_on(monotonic_ns() + HEARING_NS)?;
            self.ask_who_hears();
        }
        report.sources = self.were_here;
        if let Some(why) = self.missing_front_ends() {
            self.shared.fail(&why);
            return Err(Early::Broken(why));
        }
        if self.were_here == 0 {
            let why =
                format!("no source came to {} within {} s", self.told.address, patience_ns / 1_000_000_000);
            return Err(Early::Broken(why));
        }
        let from_ns = monotonic_ns();
        let mut asked_ns = 0;
        while monotonic_ns() < from_ns + ANSWERS_NS {
            let now_ns = monotonic_ns();
            let mut is_hearing_open =
                self.multicast.is_some() && self.groups.iter().any(|group| !group.hears);
            if is_hearing_open && now_ns >= asked_ns + HEARING_NS {
                is_hearing_open = self.ask_who_hears();
                asked_ns = now_ns;
            }
            if !is_hearing_open && self.clocks.acquainted() {
                break;
            }
            self.go_on(now_ns + HEARING_NS)?;
        }
        report.orders_note = self.settle_who_hears();
        Ok(())
    }

    /// Which front ends somebody had to start and did not; sources of kagiri's own that do not come break off by themselves.
    fn missing_front_ends(&self) -> Option<String> {
        let (sources, front_ends) = (self.told.sources(), self.told.settings.front_ends);
        let first = u64::from(sources).saturating_sub(front_ends) as usize;
        let theirs = self.of_source.iter().zip(0..sources).skip(first);
        let missing: Vec<u32> = theirs.filter(|(at, _)| at.is_none()).map(|(_, source)| source).collect();
        (self.were_here < sources && !missing.is_empty()).then(|| {
            format!(
                "{} of {front_ends} front ends did not connect to {} within {} s ({} {} missing): start them, or leave \
                 --front-ends out",
                missing.len(),
                self.told.address,
                FRONT_ENDS_NS / 1_000_000_000,
                account::missing(missing.len() as u32, &missing),
                if missing.len() == 1 { "is" } else { "are" },
            )
        })
    }

    /// Finds the credit, where it was left open; what comes back still knows what to try after the hold.
    fn steer(&mut self) -> Result<Option<Steer>, Early> {
        if self.is_push {
            return Ok(None);
        }
        let (sources, settings) = (self.told.sources(), self.told.settings.clone());
        let mean_bytes = self.told.sizes.mean_bytes().round() as u32;
        let wire_bytes = fragment_wire_bytes(mean_bytes, settings.protocol);
        let mut found = None;
        if settings.credit.is_none() {
            let buffer_bytes = settings.buffer.map(|buffer| buffer.bytes());
            let link_bit_per_s = settings.link.map(|link| link.bit_per_s() as f64);
            let mut steer =
                Steer::new(sources, wire_bytes, buffer_bytes).through(link_bit_per_s.or(self.link_bit_per_s));
            let until_ns = monotonic_ns() + STEER_NS;
            while let Some(round) = steer.next().filter(|round| !round.push) {
                if monotonic_ns() > until_ns {
                    steer.stop();
                    break;
                }
                let tally = self.round(round)?;
                if tally.has_stalled() {
                    self.let_recover()?;
                }
                steer.told(&tally);
            }
            let steered = steer.steered();
            if let Some((buffer, rate)) = steered.buffer_bytes.zip(steered.rate_bit_per_s) {
                self.collect.set_queue_full_ns((buffer as f64 * 8e9 / rate.max(1.0)) as u64);
            }
            found = Some(steer);
        }
        if let Some(grants) = &mut self.grants {
            let credit = found.as_ref().map_or(grants.credit(), |steer| steer.steered().credit);
            grants.set_credit(credit);
            if !matches!(settings.size, Size::Fixed(_)) {
                grants.set_credit_bytes(u64::from(credit) * wire_bytes);
            }
        }
        Ok(found)
    }

    /// All at once, for comparison: last, because it may leave connections that wait for seconds.
    fn compare_with_push(&mut self, mut steer: Steer, report: &mut BuilderReport) -> Phase {
        let Some(round) = steer.next() else { return Ok(()) };
        self.collect.end_hold();
        // All sources at once would be a fault in what another builder still measures.
        if self.meet(Gate::Compare)?.is_none() {
            return Ok(());
        }
        self.is_push = true;
        let tally = self.round(round);
        self.is_push = false;
        steer.told(&tally?);
        report.steered = Some(steer.steered());
        Ok(())
    }

    /// Goes on carefully until an event was complete in time: connections that lost something may wait for seconds to send
    /// it again, which would be taken for the fault of the next credit.
    fn let_recover(&mut self) -> Phase {
        let until_ns = monotonic_ns() + RECOVER_NS;
        let careful = Round { credit: CAREFUL, events: 1, push: false };
        while self.round(careful)?.has_stalled() && monotonic_ns() < until_ns {}
        Ok(())
    }

    /// Some events with one credit.
    fn round(&mut self, round: Round) -> Result<Tally, Early> {
        if let Some(grants) = &mut self.grants {
            grants.set_credit(round.credit);
        }
        let (tally, events) = (Tally::new(round, monotonic_ns()), round.events);
        self.tally = Some(tally.clone());
        let mut begun = 0;
        loop {
            let is_over = self.tally.as_ref().is_none_or(Tally::is_over) || begun >= events;
            if is_over && self.outstanding() == 0 {
                break;
            }
            if !is_over && self.outstanding() < self.told.window() {
                self.begin_event(monotonic_ns());
                begun += 1;
                continue;
            }
            self.go_on(u64::MAX)?;
        }
        Ok(self.tally.take().unwrap_or(tally))
    }

    /// What the clocks said before the hold is bounded from the other side, too.
    fn ask_the_clocks_once_more(&mut self) -> Phase {
        if self.clocks.are_all_ours() {
            return Ok(());
        }
        let from_ns = monotonic_ns();
        self.clocks.ask_once_more(from_ns);
        let until_ns = from_ns + ANSWERS_NS;
        while monotonic_ns() < until_ns && self.is_anybody_here() {
            self.go_on(until_ns)?;
        }
        Ok(())
    }

    /// Tells all that the run is over, and takes what still comes until they are gone.
    fn say_stop(&mut self) -> Result<(), NetError> {
        self.is_over = true;
        let connection = |at: &Option<u32>| self.connections.get((*at)? as usize)?.as_ref();
        let at_end = self.of_source.iter().map(|at| {
            let connection = connection(at);
            (connection.is_some(), connection.and_then(|one| one.congestion_control.clone()))
        });
        self.at_end = at_end.collect();
        let stop = self.order(Kind::Stop, 0, 0, 0, self.told.sources());
        if let Some(multicast) = &self.multicast {
            let _ = multicast.send(&stop.encode());
        }
        self.say_goodbye(&stop.encode());
        let until_ns = monotonic_ns() + GOODBYE_NS;
        while self.is_anybody_here() && monotonic_ns() < until_ns {
            self.turn(until_ns)?;
        }
        Ok(())
    }

    /// Writes down what came of it all.
    fn write(mut self, report: &mut BuilderReport) {
        let hold_ns = self.collect.hold_ns();
        report.clocks = self.clocks.report(hold_ns);
        report.orders = self.orders;
        report.outstanding_max = self.assembly.table.under_way_max() as u32;
        report.memory_bytes_max = self.assembly.memory.held_bytes_max();
        report.datagrams_overflowed = self.datagrams_dropped();
        report.link_bit_per_s = self.link_bit_per_s;
        report.ledger = std::mem::take(&mut self.assembly.ledger);
        self.collect.report(report);
        for (seen, at_end) in report.sources_seen.iter_mut().zip(&self.at_end) {
            (seen.connected, seen.congestion_control) = at_end.clone();
        }
    }
}
