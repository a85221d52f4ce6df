//! Searches the credit by rounds of events, and compares it with push.

use sys::clock::monotonic_ns;

use super::driver::{Driver, Early, Phase};
use crate::scheduling::{Barrier, CreditSearch, Round, RoundStats};
use crate::settings::Size;
use crate::theory::queue_full_ns;

const MS: u64 = 1_000_000;
const SEARCH_TIMEOUT_NS: u64 = 20_000 * MS;
/// Time limit of the recovery after a credit that was too large, and the credit meanwhile.
const RECOVERY_TIMEOUT_NS: u64 = 4_000 * MS;
const RECOVERY_CREDIT: u32 = 4;

pub(super) struct CreditRounds<'a>(pub(super) &'a mut Driver);

impl CreditRounds<'_> {
    /// Searches the credit unless the settings give it. The search is returned for the comparison with push.
    pub(super) fn search_credit(&mut self) -> Result<Option<CreditSearch>, Early> {
        let config = self.0.config.clone();
        if self.0.machine.events.orders.credit.is_none() {
            return Ok(None);
        }
        let mut search = None;
        if config.settings.credit.is_none() {
            let buffer_bytes = config.settings.buffer.map(|buffer| buffer.bytes());
            let link = config.settings.link.map(|link| link.bit_per_s() as f64).or(config.link_bit_per_s);
            let mut new = CreditSearch::new(config.sources(), config.mean_wire_bytes(), buffer_bytes);
            new.link_bit_per_s = link.filter(|&rate| rate > 0.0);
            let searched = self.run_search(new)?;
            let result = searched.result();
            if let Some((buffer, rate)) = result.buffer_bytes.zip(result.rate_bit_per_s) {
                let queue_full_ns = queue_full_ns(buffer, rate.max(1.0));
                self.0.machine.events.recorder.plan.queue_full_ns = queue_full_ns;
            }
            search = Some(searched);
        }
        if let Some(credit) = &mut self.0.machine.events.orders.credit {
            let found = search.as_ref().map_or(credit.credit, |search| search.result().credit);
            credit.set_credit(found);
            if !matches!(config.settings.size, Size::Fixed(_)) {
                credit.set_credit_bytes(u64::from(found) * config.mean_wire_bytes());
            }
        }
        Ok(search)
    }

    fn run_search(&mut self, mut search: CreditSearch) -> Result<CreditSearch, Early> {
        let until_ns = monotonic_ns() + SEARCH_TIMEOUT_NS;
        while let Some(round) = search.next() {
            if monotonic_ns() > until_ns {
                search.stop();
                break;
            }
            let stats = self.run_round(round)?;
            if stats.has_stalled() {
                self.recover()?;
            }
            search.add_round(&stats);
        }
        Ok(search)
    }

    /// Triggers events with a small credit until one has no stall: connections may still be waiting for
    /// retransmissions, which would count against the next credit.
    fn recover(&mut self) -> Phase {
        let until_ns = monotonic_ns() + RECOVERY_TIMEOUT_NS;
        let round = Round::probe(RECOVERY_CREDIT, 1);
        while self.run_round(round)?.has_stalled() && monotonic_ns() < until_ns {}
        Ok(())
    }

    /// Triggers a round's events one window after the other.
    fn run_round(&mut self, round: Round) -> Result<RoundStats, Early> {
        if let Some(credit) = &mut self.0.machine.events.orders.credit {
            credit.set_credit(round.credit);
        }
        let stats = RoundStats::new(round, monotonic_ns());
        self.0.machine.events.round = Some(stats.clone());
        let mut begun = 0;
        loop {
            let now_ns = monotonic_ns();
            let is_over = self.0.machine.events.round.as_ref().is_none_or(|stats| stats.is_over(now_ns))
                || begun >= round.events;
            if is_over && self.0.outstanding() == 0 {
                break;
            }
            if !is_over && self.0.has_room() {
                self.0.begin_event(now_ns);
                begun += 1;
            } else {
                self.0.poll_until(u64::MAX)?;
            }
        }
        Ok(self.0.machine.events.round.take().unwrap_or(stats))
    }

    /// Builds events with the credit in use, then lets all sources send at once. Push comes last, because
    /// connections may wait for seconds afterwards.
    pub(super) fn compare_with_push(&mut self, mut search: CreditSearch) -> Phase {
        let [granted, push] = search.compared_rounds();
        self.0.machine.events.recorder.is_hold_over = true;
        // Either would disturb the hold of another builder, and push its other round.
        if self.0.wait_at_barrier(Barrier::Compare)?.is_none() {
            return Ok(());
        }
        let granted = self.run_round(granted)?;
        if self.0.wait_at_barrier(Barrier::Push)?.is_none() {
            return Ok(());
        }
        self.0.machine.events.orders.is_push = true;
        let push = self.run_round(push);
        self.0.machine.events.orders.is_push = false;
        search.set_compared([&granted, &push?]);
        self.0.machine.events.recorder.report.steered = Some(search.result());
        Ok(())
    }
}
