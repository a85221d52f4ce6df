//! The phases of a trial: wait for the start and the sources, search the credit, warm up, hold, stop.

use std::sync::Arc;

use reactor::ThreadControl;
use sys::clock::monotonic_ns;
use sys::thread::{thread_cpu_ns, thread_ready_ns};

use super::credit_rounds::CreditRounds;
use super::driver::{Driver, Early, Phase};
use crate::missing_sources;
use crate::part_settings::FRONT_ENDS_TIMEOUT_S;
use crate::report::{BuilderReport, counted};
use crate::scheduling::{Assignment, Barrier, CreditSearch, TriggerScheduler};
use crate::settings::Carrier;

const MS: u64 = 1_000_000;
/// How long to wait for sources, which should have connected before the start.
const SOURCES_TIMEOUT_NS: u64 = 10_000 * MS;
const FRONT_ENDS_TIMEOUT_NS: u64 = FRONT_ENDS_TIMEOUT_S * 1_000 * MS;
/// How long to wait for answers to clock and multicast probes.
const PROBES_TIMEOUT_NS: u64 = 1_500 * MS;
const PROBE_INTERVAL_NS: u64 = 20 * MS;
/// How long sources may take to close their connections.
const CLOSE_TIMEOUT_NS: u64 = 1_000 * MS;
/// How often a stop order is repeated meanwhile.
const STOP_INTERVAL_NS: u64 = 50 * MS;
/// However many triggers are due, sockets are read after so long.
const READ_INTERVAL_NS: u64 = MS;

/// Removes the builder from the scheduler, even if its thread panics.
struct SchedulerGuard(Arc<TriggerScheduler>, usize);

impl Drop for SchedulerGuard {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// Whether triggers have been sent for so long, `since_ns`, that the sockets must be read.
fn is_read_due(since_ns: &mut Option<u64>, now_ns: u64) -> bool {
    now_ns >= since_ns.get_or_insert(now_ns).saturating_add(READ_INTERVAL_NS)
}

pub(super) struct Trial {
    pub(super) driver: Driver,
}

impl Trial {
    /// Runs all phases; always returns a report.
    pub(super) fn run(mut self, control: &ThreadControl) -> BuilderReport {
        let guard = SchedulerGuard(self.driver.scheduler.clone(), self.driver.slot);
        (self.report().builder, self.report().ended_early) = (self.driver.config.builder, true);
        if let Err(Early::Failed(why)) = self.measure(control) {
            (self.report().ended_early, self.report().broke_off) = (false, Some(why));
        }
        drop(guard);
        let states = self.driver.machine.stop();
        let until_ns = monotonic_ns() + CLOSE_TIMEOUT_NS;
        let mut again_ns = monotonic_ns() + STOP_INTERVAL_NS;
        while self.driver.machine.events.sources.connected > 0 && monotonic_ns() < until_ns {
            if self.driver.poll_stopped(until_ns.min(again_ns)).is_err() {
                break;
            }
            if monotonic_ns() >= again_ns {
                // It may have been lost, and the connections may be in retransmission timeouts.
                self.driver.machine.events.orders.sender.multicast_stop();
                again_ns = monotonic_ns() + STOP_INTERVAL_NS;
            }
        }
        let is_udp = self.driver.config.settings.protocol == Carrier::Udp;
        let dropped = self.driver.machine.sockets.udp.dropped().ok().filter(|_| is_udp);
        let link_bit_per_s = self.driver.config.link_bit_per_s;
        let mut report = self.driver.machine.events.report();
        (report.datagrams_overflowed, report.link_bit_per_s) = (dropped.map(u64::from), link_bit_per_s);
        for (seen, state) in report.sources_seen.iter_mut().zip(states) {
            (seen.connected, seen.congestion_control) = state;
        }
        report
    }

    const fn report(&mut self) -> &mut BuilderReport {
        &mut self.driver.machine.events.recorder.report
    }

    fn measure(&mut self, control: &ThreadControl) -> Phase {
        self.wait_for_start(control)?;
        self.wait_for_sources()?;
        self.wait_for_probes()?;
        self.report().orders_note = self.driver.machine.events.orders.sender.settle_multicast();
        if self.driver.config.settings.protocol == Carrier::Udp {
            self.driver.machine.events.datagrams.is_requesting = true;
        }
        let search = CreditRounds(&mut self.driver).search_credit()?;
        self.report().steered = search.as_ref().map(CreditSearch::result);
        self.report().credit = self.driver.machine.events.orders.credit.as_ref().map(|credit| credit.credit);
        let from_ns = self.warm_up()?;
        let (cpu_ns, ready_ns) = (thread_cpu_ns(), thread_ready_ns());
        let held = self.hold(from_ns);
        self.report().cpu_s = thread_cpu_ns().saturating_sub(cpu_ns) as f64 / 1e9;
        let ready_ns = thread_ready_ns().zip(ready_ns).map(|(now, before)| now.saturating_sub(before));
        self.report().ready_s = ready_ns.map(|ns| ns as f64 / 1e9);
        held?;
        self.report().ended_early = false;
        self.driver.progress.set_done(1.0);
        self.probe_clocks_again()?;
        match search {
            Some(search) => CreditRounds(&mut self.driver).compare_with_push(search),
            None => Ok(()),
        }
    }

    fn wait_for_start(&mut self, control: &ThreadControl) -> Phase {
        loop {
            let now_ns = monotonic_ns();
            let start_ns = control.start_ns();
            if start_ns <= now_ns {
                self.driver.machine.events.recorder.plan.start_ns = start_ns;
                return Ok(());
            }
            // The start is `u64::MAX` until it is known; setting it wakes the loop.
            let probe_ns = if start_ns == u64::MAX { now_ns + PROBE_INTERVAL_NS } else { start_ns };
            self.driver.poll_until(probe_ns)?;
            self.driver.machine.events.orders.sender.probe_unanswered_groups();
        }
    }

    fn wait_for_sources(&mut self) -> Phase {
        let has_front_ends = self.driver.config.settings.front_ends > 0;
        let timeout_ns = if has_front_ends { FRONT_ENDS_TIMEOUT_NS } else { SOURCES_TIMEOUT_NS };
        let until_ns = monotonic_ns() + timeout_ns;
        while self.driver.machine.events.sources.ever_connected < self.driver.config.sources()
            && monotonic_ns() < until_ns
        {
            self.driver.poll_until(monotonic_ns() + PROBE_INTERVAL_NS)?;
            self.driver.machine.events.orders.sender.probe_unanswered_groups();
        }
        let connected = self.driver.machine.events.sources.ever_connected;
        self.report().sources = connected;
        if let Some(why) = self.missing_front_ends() {
            let _ = self.driver.progress.failure.set(why.clone());
            return Err(Early::Failed(why));
        }
        if connected == 0 {
            let (address, s) = (self.driver.config.address, timeout_ns / 1_000_000_000);
            return Err(Early::Failed(format!("no source connected to {address} within {s} s")));
        }
        Ok(())
    }

    /// Waits for the first clock answers of each group, and for answers to multicast probes.
    fn wait_for_probes(&mut self) -> Phase {
        let until_ns = monotonic_ns() + PROBES_TIMEOUT_NS;
        let mut probed_ns = 0;
        while monotonic_ns() < until_ns {
            let now_ns = monotonic_ns();
            let mut is_unanswered = self.driver.machine.events.orders.sender.has_unanswered_groups();
            if is_unanswered && now_ns >= probed_ns + PROBE_INTERVAL_NS {
                is_unanswered = self.driver.machine.events.orders.sender.probe_unanswered_groups();
                probed_ns = now_ns;
            }
            if !is_unanswered && self.driver.machine.events.clocks.has_initial_estimate() {
                break;
            }
            self.driver.poll_until(now_ns + PROBE_INTERVAL_NS)?;
        }
        Ok(())
    }

    /// Names the front ends that did not connect. (kagiri's own sources report that themselves.)
    fn missing_front_ends(&self) -> Option<String> {
        let (sources, front_ends) = (self.driver.config.sources(), self.driver.config.settings.front_ends);
        let first = u64::from(sources).saturating_sub(front_ends) as u32;
        let registry = &self.driver.machine.events.sources;
        let missing: Vec<u32> = (first..sources).filter(|&source| !registry.is_connected(source)).collect();
        let turned_away = &self.driver.machine.events.assembler.ledger.turned_away;
        let refused: Vec<String> =
            turned_away.iter().map(|(reason, count)| counted(reason, *count)).collect();
        let refused = match refused.is_empty() {
            true => String::new(),
            false => format!("; the builder turned away {}", refused.join(", ")),
        };
        (registry.ever_connected < sources && !missing.is_empty()).then(|| {
            format!(
                "{} of {front_ends} front ends did not connect to {} within {} s ({} {} missing{refused}): \
                 start them, or leave --front-ends out",
                missing.len(),
                self.driver.config.address,
                FRONT_ENDS_TIMEOUT_S,
                missing_sources::text(missing.len() as u32, &missing),
                if missing.len() == 1 { "is" } else { "are" },
            )
        })
    }

    /// Triggers the events of the warm-up; returns when it ended, which is now.
    fn warm_up(&mut self) -> Result<u64, Early> {
        let Some(from_ns) = self.driver.wait_at_barrier(Barrier::Hold)? else {
            return Err(Early::Failed("another builder of this host was not ready in time".to_owned()));
        };
        let config = self.driver.config.clone();
        let until_ns = from_ns.saturating_add(config.settings.omit.ns());
        self.driver.scheduler.begin_at(until_ns);
        // Another seed: the timetable that all builders share begins with the hold.
        let mut due = config.settings.triggers.due(config.seed ^ 1, config.times_ns.clone()).map(|due| {
            let (all, own) = (u64::from(config.builders_all.max(1)), u64::from(config.builder));
            due.zip(0_u64..)
                .filter(move |(_, index)| index % all == own)
                .map(|(after_ns, _)| after_ns)
                .peekable()
        });
        let mut since_ns = None;
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns {
                return Ok(until_ns);
            }
            let next_ns = match &mut due {
                Some(due) => due.peek().map_or(u64::MAX, |&after_ns| from_ns.saturating_add(after_ns)),
                None if self.driver.has_room() => now_ns,
                None => u64::MAX,
            };
            if next_ns > now_ns || is_read_due(&mut since_ns, now_ns) {
                self.driver.poll_until(next_ns.min(until_ns))?;
                since_ns = None;
                continue;
            }
            due.as_mut().and_then(Iterator::next);
            if self.driver.has_room() {
                self.driver.begin_event(next_ns);
            }
        }
    }

    /// Triggers the events of the hold, and waits until each has ended.
    fn hold(&mut self, from_ns: u64) -> Phase {
        let settings = &self.driver.config.settings;
        let (time_ns, events) = (settings.time.ns(), settings.events);
        // Plus one that may have ended just now.
        let is_full = self.driver.outstanding() + 1 >= self.driver.config.window();
        self.driver.machine.events.recorder.begin_hold(from_ns, events.is_none().then_some(time_ns), is_full);
        let until_ns = if events.is_some() { u64::MAX } else { from_ns.saturating_add(time_ns) };
        let builders = u64::from(self.driver.config.builders_all.max(1));
        let own_events = events.map(|events| events.div_ceil(builders).max(1));
        let (mut begun, mut since_ns) = (0_u64, None);
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns {
                self.driver.machine.events.recorder.held_until(until_ns);
                break;
            }
            let share = match own_events {
                Some(own) => begun as f64 / own as f64,
                None => now_ns.saturating_sub(from_ns) as f64 / time_ns.max(1) as f64,
            };
            self.driver.progress.set_done(share.min(0.999));
            self.read_if_due(&mut since_ns, now_ns)?;
            match self.driver.scheduler.next(self.driver.slot, now_ns, self.driver.outstanding()) {
                Assignment::Wait { until_ns: next_ns } => {
                    self.driver.poll_until(next_ns.unwrap_or(u64::MAX).min(until_ns))?;
                    since_ns = None;
                }
                Assignment::Over => break,
                assignment => begun += self.execute(assignment),
            }
        }
        // Triggers that were due in the hold, but that the thread did not get to in time, count as well.
        while let Some(overdue) =
            self.driver.scheduler.next_overdue(self.driver.slot, until_ns, self.driver.outstanding())
        {
            self.execute(overdue);
            self.read_if_due(&mut since_ns, monotonic_ns())?;
        }
        while self.driver.outstanding() > 0 {
            self.driver.poll_until(u64::MAX)?;
        }
        Ok(())
    }

    /// Begins an event or counts vetoes; returns the number of events begun.
    fn execute(&mut self, assignment: Assignment) -> u64 {
        match assignment {
            Assignment::Due { due_ns } => self.driver.begin_event(due_ns),
            Assignment::Vetoed { due_ns, times } => self.driver.machine.events.recorder.vetoed(due_ns, times),
            Assignment::Wait { .. } | Assignment::Over => {}
        }
        u64::from(matches!(assignment, Assignment::Due { .. }))
    }

    /// Reads the sockets if that was long ago; in any case checks for a stop request.
    fn read_if_due(&mut self, since_ns: &mut Option<u64>, now_ns: u64) -> Phase {
        if is_read_due(since_ns, now_ns) {
            *since_ns = None;
            return self.driver.poll_until(now_ns);
        }
        if self.driver.is_stopped() { Err(Early::Stopped) } else { Ok(()) }
    }

    /// Probes the clocks after the hold, so that their offsets are bounded from both sides.
    fn probe_clocks_again(&mut self) -> Phase {
        if self.driver.machine.events.clocks.all_same_kernel() {
            return Ok(());
        }
        let from_ns = monotonic_ns();
        self.driver.machine.events.clocks.probe_again(from_ns);
        let until_ns = from_ns + PROBES_TIMEOUT_NS;
        while monotonic_ns() < until_ns && self.driver.machine.events.sources.connected > 0 {
            self.driver.poll_until(until_ns)?;
        }
        Ok(())
    }
}
