//! What settings are possible.

use base::plan::PlanError;

use super::triggers::RATE_MAX_PER_S;
use super::{BuilderChoice, Carrier, DaqSettings, Pattern, Size, Triggers, Vary};
use crate::reading::{ranged, span, within};

/// The largest payload of a fragment.
pub(super) const SIZE_BYTES_MAX: u32 = crate::daq::wire::PAYLOAD_BYTES_MAX;
/// The most sources of a run.
const SOURCES_MAX: u64 = 1_000_000;

fn wrong(key: &str, why: impl std::fmt::Display) -> Result<(), PlanError> {
    Err(PlanError::of_key(key, why))
}

impl DaqSettings {
    /// Checks every range, and what does not go together.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        within("daq.sources", self.sources, 1, SOURCES_MAX, "1 to 1000000")?;
        within("daq.front_ends", self.front_ends, 0, self.sources, "0 to the number of sources")?;
        within("daq.window", self.window.into(), 1, 10_000, "1 to 10000")?;
        within("daq.builders", self.builders.into(), 1, 64, "1 to 64")?;
        within("daq.threads", self.threads.into(), 0, 1024, "0 to 1024")?;
        if let Some(events) = self.events {
            within("daq.events", events, 1, 1 << 40, "1 to 2^40")?;
        }
        if let Some(credit) = self.credit {
            within("daq.credit", credit.into(), 1, SOURCES_MAX, "1 to 1000000")?;
        }
        within("daq.memory", self.memory.bytes(), 64 << 10, 1 << 40, "64KiB to 1TiB")?;
        ranged("daq.drop_orders_percent", self.drop_orders_percent, 0.0, 90.0)?;
        if self.time.ns() == 0 || self.time.s() > 86_400.0 {
            return wrong("daq.time", format!("{} is not within 1ns to 86400s", self.time));
        }
        if let Some(link) = self.link {
            within("daq.link", link.bit_per_s(), 1, u64::MAX, "1bit/s and more")?;
        }
        if let Some(percent) = self.objective.dead_time_percent_max {
            ranged("daq.objective.dead_time_percent_max", percent, 0.0, 100.0)?;
        }
        span("daq.omit", self.omit, 0, 3_600)?;
        if self.timeout.ns() < 1_000_000 || self.timeout.s() > 600.0 {
            return wrong("daq.timeout", format!("{} is not within 1ms to 600s", self.timeout));
        }
        if self.stagger.is_some_and(|stagger| stagger.s() > 1.0) {
            return wrong(
                "daq.stagger",
                "a second is more than any source should wait for the one before it",
            );
        }
        self.check_size()?;
        self.check_triggers()?;
        self.check_together()?;
        self.check_search()
    }

    fn check_size(&self) -> Result<(), PlanError> {
        let most = |bytes: u64| within("daq.size", bytes, 0, SIZE_BYTES_MAX.into(), "0 to 64MiB");
        match &self.size {
            Size::Fixed(size) => most(size.bytes()),
            Size::Uniform(least, largest) if least > largest => {
                wrong("daq.size", format!("{least} is more than {largest}: write the smaller first"))
            }
            Size::Uniform(_, largest) => most(largest.bytes()),
            Size::Lognormal(median, sigma) => {
                most(median.bytes())?;
                ranged("daq.size", *sigma, 0.0, 3.0)
            }
            Size::File(path) if path.is_empty() => wrong("daq.size", "the file's path is missing"),
            Size::File(_) => Ok(()),
        }
    }

    fn check_triggers(&self) -> Result<(), PlanError> {
        match &self.triggers {
            Triggers::Max => Ok(()),
            Triggers::Fixed(rate) | Triggers::Poisson(rate) => {
                ranged("daq.triggers", *rate, 1e-3, RATE_MAX_PER_S.into())
            }
            Triggers::Bursts(count, rate) => {
                within("daq.triggers", (*count).into(), 1, 10_000, "1 to 10000 at once")?;
                ranged("daq.triggers", *rate, 1e-3, RATE_MAX_PER_S.into())?;
                let per_s = f64::from(*count) * rate;
                if per_s > RATE_MAX_PER_S.into() {
                    return wrong(
                        "daq.triggers",
                        format!(
                            "{count} at once {rate} times a second are {per_s} triggers a second, more than \
                             {RATE_MAX_PER_S}: let fewer happen at once, or less often"
                        ),
                    );
                }
                Ok(())
            }
            Triggers::File(path) if path.is_empty() => wrong("daq.triggers", "the file's path is missing"),
            Triggers::File(_) => Ok(()),
        }
    }

    fn check_together(&self) -> Result<(), PlanError> {
        if self.stagger.is_some() && self.pattern != Pattern::Push {
            return wrong("daq.stagger", "only with pattern push do sources decide when they send");
        }
        if self.credit.is_some() && self.pattern == Pattern::Push {
            return wrong("daq.credit", "with pattern push nobody asks for credit; use grant or pull");
        }
        if self.congestion_control.is_some() && self.protocol == Carrier::Udp {
            return wrong("daq.congestion_control", "UDP has none; leave it out, or use protocol tcp");
        }
        if let Some(listen) = &self.listen
            && listen.parse::<std::net::SocketAddr>().is_err()
        {
            return wrong("daq.listen", format!("'{listen}' is not ADDR:PORT, such as 127.0.0.1:7500"));
        }
        if self.builder_choice != BuilderChoice::Modulo && self.builders < 2 {
            return wrong(
                "daq.builder_choice",
                "there is only one builder on a host to choose from; give builders",
            );
        }
        Ok(())
    }

    fn check_search(&self) -> Result<(), PlanError> {
        let Some(search) = &self.search else { return Ok(()) };
        ranged("daq.search.resolution_percent", search.resolution_percent, 0.1, 50.0)?;
        let most = match search.vary {
            Vary::Sources => SOURCES_MAX,
            Vary::Rate => 1_000_000,
            Vary::Size => SIZE_BYTES_MAX.into(),
        };
        within("daq.search.max", search.max, 1, most, &format!("1 to {most}"))?;
        if search.vary == Vary::Rate && self.objective.dead_time_percent_max.is_none() {
            return wrong(
                "daq.search.vary",
                "a rate that is too high shows in vetoed triggers: say how many may be, with \
                 daq.objective.dead_time_percent_max",
            );
        }
        if self.front_ends > 0 && search.vary == Vary::Sources {
            return wrong("daq.search.vary", "front ends of others are as many as they are");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_key_at_fault_is_named() {
        for (settings, key) in [
            (json!({ "sources": 0 }), "daq.sources"),
            (json!({ "size": "65MiB" }), "daq.size"),
            (json!({ "size": "uniform 4KiB..1KiB" }), "daq.size"),
            (json!({ "triggers": "-1/s" }), "daq.triggers"),
            (json!({ "triggers": "1000001/s" }), "daq.triggers"),
            (json!({ "triggers": "bursts 10000 101/s" }), "daq.triggers"),
            (json!({ "credit": 5 }), "daq.credit"),
            (json!({ "pattern": "pull", "stagger": "1ms" }), "daq.stagger"),
            (json!({ "timeout": "0s" }), "daq.timeout"),
            (json!({ "time": "0s" }), "daq.time"),
            (json!({ "time": "90000s" }), "daq.time"),
            (json!({ "link": "0bit/s" }), "daq.link"),
            (json!({ "objective": { "dead_time_percent_max": 150 } }), "daq.objective.dead_time_percent_max"),
            (json!({ "search": { "vary": "rate", "max": 5 } }), "daq.search.vary"),
            (json!({ "protocol": "udp", "congestion_control": "reno" }), "daq.congestion_control"),
            (json!({ "listen": "here" }), "daq.listen"),
            (json!({ "builder_choice": "round_robin" }), "daq.builder_choice"),
        ] {
            let error = DaqSettings::read(settings.clone()).expect_err(&settings.to_string());
            assert_eq!(error.key.as_deref(), Some(key), "{error}");
        }
        assert!(DaqSettings::read(json!({ "sources": 1000, "pattern": "grant" })).is_ok());
        assert!(DaqSettings::read(json!({ "triggers": "bursts 10000 100/s" })).is_ok());
        assert!(
            DaqSettings::read(json!({ "speed": 1 }))
                .is_err_and(|error| error.key.as_deref() == Some("speed"))
        );
    }
}
