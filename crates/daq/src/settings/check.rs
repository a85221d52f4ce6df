//! Which settings fit together.

use std::fmt::Display;
use std::ops::RangeInclusive;

use base::plan::PlanError;
use base::units::ByteSize;

use super::triggers::RATE_MAX_PER_S;
use super::{BuilderChoice, Carrier, DaqSettings, Pattern, SearchMax, Size, Triggers, Vary};
use workload::settings::Settings;

pub(super) const SIZE_BYTES_MAX: u32 = crate::wire::PAYLOAD_BYTES_MAX;
const SOURCES_MAX: u64 = 1_000_000;

fn wrong(key: &str, why: impl Display) -> Result<(), PlanError> {
    Err(PlanError::of_key(key, why))
}

/// Checks a value against a range, whose end `most` names.
fn within<T: PartialOrd + Display>(
    key: &str,
    value: T,
    range: RangeInclusive<T>,
    most: &str,
) -> Result<(), PlanError> {
    match range.contains(&value) {
        true => Ok(()),
        false => wrong(key, format!("{value} is not within {} to {most}", range.start())),
    }
}

impl Settings for DaqSettings {
    fn check(&self) -> Result<(), PlanError> {
        within("front_ends", self.front_ends, 0..=self.sources, "the number of `sources`")?;
        self.check_size()?;
        self.check_triggers()?;
        self.check_together()?;
        self.check_bulk()?;
        self.check_search()
    }
}

impl DaqSettings {
    fn check_size(&self) -> Result<(), PlanError> {
        let (largest, most) = (ByteSize::from_bytes(SIZE_BYTES_MAX.into()), "64MiB");
        match &self.size {
            Size::Uniform(least, largest) if least > largest => {
                wrong("size", format!("{least} is more than {largest}: write the smaller first"))
            }
            Size::Fixed(size) | Size::Uniform(_, size) | Size::Lognormal(size, _) if *size > largest => {
                wrong("size", format!("{size} is not within 0 to {most}"))
            }
            Size::Lognormal(_, sigma) if !(0.0..=3.0).contains(sigma) => {
                wrong("size", format!("sigma {sigma} is not within 0 to 3"))
            }
            Size::File(path) if path.is_empty() => wrong("size", "the file's path is missing"),
            _ => Ok(()),
        }
    }

    fn check_triggers(&self) -> Result<(), PlanError> {
        let rate = |rate: f64| within("triggers", rate, 1e-3..=RATE_MAX_PER_S.into(), "1000000");
        match &self.triggers {
            Triggers::Max => Ok(()),
            Triggers::Fixed(per_s) | Triggers::Poisson(per_s) => rate(*per_s),
            Triggers::Bursts(count, per_s) => {
                within("triggers", *count, 1..=10_000, "10000 at once")?;
                rate(*per_s)?;
                let triggers_per_s = f64::from(*count) * per_s;
                if triggers_per_s <= RATE_MAX_PER_S.into() {
                    return Ok(());
                }
                wrong(
                    "triggers",
                    format!(
                        "bursts of {count} at {per_s}/s are {triggers_per_s} triggers per second, more than \
                         the maximum of {RATE_MAX_PER_S}: use smaller or fewer bursts"
                    ),
                )
            }
            Triggers::File(path) if path.is_empty() => wrong("triggers", "the file's path is missing"),
            Triggers::File(_) => Ok(()),
        }
    }

    fn check_together(&self) -> Result<(), PlanError> {
        if self.stagger.is_some() && self.pattern != Pattern::Push {
            return wrong(
                "stagger",
                "needs pattern push: with grant and pull the builder decides when a source sends",
            );
        }
        if self.credit.is_some() {
            match self.pattern {
                Pattern::Push => return wrong("credit", "pattern push has no credit; use grant or pull"),
                Pattern::Bulk => return wrong("credit", "pattern bulk has no credit; use grant or pull"),
                Pattern::Grant | Pattern::Pull => {}
            }
        }
        if self.congestion_control.is_some() && self.protocol == Carrier::Udp {
            return wrong(
                "congestion_control",
                "UDP has no congestion control; leave it out, or use protocol tcp",
            );
        }
        if let Some(listen) = &self.listen
            && listen.parse::<std::net::SocketAddr>().is_err()
        {
            return wrong("listen", format!("'{listen}' is not ADDR:PORT, such as 127.0.0.1:7500"));
        }
        if self.builder_choice != BuilderChoice::Modulo && self.builders < 2 {
            return wrong("builder_choice", "there is only one builder per host; set `builders`");
        }
        Ok(())
    }

    /// Without events, most settings have no meaning.
    fn check_bulk(&self) -> Result<(), PlanError> {
        if self.pattern != Pattern::Bulk {
            return Ok(());
        }
        let is_fixed = matches!(&self.size, Size::Fixed(size) if size.bytes() > 0);
        let others = [
            ("front_ends", self.front_ends > 0),
            ("triggers", self.triggers != Triggers::Max),
            ("events", self.events.is_some()),
            ("protocol", self.protocol != Carrier::Tcp),
            ("builders", self.builders > 1),
            ("search", self.search.is_some()),
        ];
        if let Some((key, _)) = others.iter().find(|(_, is_set)| *is_set) {
            return wrong(key, "pattern bulk builds no events; leave this out, or use another pattern");
        }
        if !is_fixed {
            return wrong("size", "pattern bulk needs one size of at least 1 byte");
        }
        within("sources", self.sources, 1..=super::pattern::BULK_SOURCES_MAX, "64 with pattern bulk")
    }

    fn check_search(&self) -> Result<(), PlanError> {
        let Some(search) = &self.search else { return Ok(()) };
        let (most, what) = match search.vary {
            Vary::Sources => (SOURCES_MAX, "a number of sources"),
            Vary::Rate => (1_000_000, "triggers per second"),
            Vary::Size => (SIZE_BYTES_MAX.into(), "bytes"),
        };
        if matches!(search.max, SearchMax::Size(_)) && search.vary != Vary::Size {
            let problem = format!("expected {what} such as 1000; only a search of the size takes a size");
            return wrong("search.max", problem);
        }
        within("search.max", search.max.value(), 1..=most, &most.to_string())?;
        if search.vary == Vary::Rate && self.objective.dead_time_percent_max.is_none() {
            return wrong(
                "search.vary",
                "rate needs a limit for vetoed triggers: set `objective.dead_time_percent_max`",
            );
        }
        if self.front_ends > 0 && search.vary == Vary::Sources {
            return wrong(
                "search.vary",
                "sources cannot be varied with front ends, whose number is fixed; leave `front_ends` out, or \
                 vary the rate or the size",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_rejects_wrong_settings_and_names_the_key() {
        for (settings, key) in [
            (json!({ "sources": 0 }), "sources"),
            (json!({ "size": "65MiB" }), "size"),
            (json!({ "size": "uniform 4KiB..1KiB" }), "size"),
            (json!({ "triggers": "-1/s" }), "triggers"),
            (json!({ "triggers": "1000001/s" }), "triggers"),
            (json!({ "triggers": "bursts 10000 101/s" }), "triggers"),
            (json!({ "credit": 5 }), "credit"),
            (json!({ "pattern": "pull", "stagger": "1ms" }), "stagger"),
            (json!({ "timeout": "0s" }), "timeout"),
            (json!({ "time": "0s" }), "time"),
            (json!({ "time": "90000s" }), "time"),
            (json!({ "link": "0bit/s" }), "link"),
            (json!({ "objective": { "dead_time_percent_max": 150 } }), "objective.dead_time_percent_max"),
            (json!({ "search": { "vary": "rate", "max": 5 } }), "search.vary"),
            (json!({ "protocol": "udp", "congestion_control": "reno" }), "congestion_control"),
            (json!({ "listen": "here" }), "listen"),
            (json!({ "builder_choice": "round_robin" }), "builder_choice"),
            (json!({ "pattern": "bulk", "size": "uniform 1KiB..4KiB", "sources": 2 }), "size"),
            (json!({ "pattern": "bulk", "size": "0B", "sources": 2 }), "size"),
            (json!({ "pattern": "bulk", "sources": 65 }), "sources"),
            (json!({ "pattern": "bulk", "sources": 2, "triggers": "5/s" }), "triggers"),
            (json!({ "pattern": "bulk", "sources": 2, "protocol": "udp" }), "protocol"),
            (json!({ "pattern": "bulk", "sources": 2, "search": {} }), "search"),
            (json!({ "pattern": "bulk", "sources": 2, "credit": 5 }), "credit"),
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
