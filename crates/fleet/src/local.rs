//! The bus within one process. It opens no port.

use std::collections::BTreeMap;
use std::time::Duration;

use base::part::{AnyPart, Endpoints, HostContext, Live, PartError, PartKind, PartSpec, Progress};
use serde_json::Value;
use sys::clock;

use crate::{Bus, BusError, HERE};

const LEAD: Duration = Duration::from_millis(100);

pub struct LocalBus {
    kinds: Vec<PartKind>,
    host: HostContext,
    parts: BTreeMap<String, Box<dyn AnyPart>>,
}

impl LocalBus {
    pub fn new(kinds: Vec<PartKind>, host: HostContext) -> Self {
        Self { kinds, host, parts: BTreeMap::new() }
    }

    /// Shows the user a line; one that he needs even if he asked for quiet.
    pub fn show(&self, line: &str, is_needed: bool) {
        if is_needed { self.host.announce(line) } else { self.host.say(line) }
    }

    /// Starts parts at a time of this host's monotonic clock.
    /// Errors: A part cannot start. Other parts may have been started.
    pub fn start_at(&mut self, parts: &[&str], at_ns: u64) -> Result<(), BusError> {
        for name in parts {
            self.part(name)?.start(at_ns).map_err(part_error(name))?;
        }
        Ok(())
    }

    /// [`Self::start_at`], but a failure after `at_ns` is a late start, which is worth a retry.
    fn start_in_time(&mut self, parts: &[&str], at_ns: u64) -> Result<(), BusError> {
        self.start_at(parts, at_ns).map_err(|error| {
            let of_part = matches!(&error, BusError::Part { error, .. } if !error.usage);
            match of_part && clock::monotonic_ns() >= at_ns {
                true => BusError::LateStart { host: HERE.to_owned(), why: error.to_string() },
                false => error,
            }
        })
    }

    fn part(&mut self, name: &str) -> Result<&mut Box<dyn AnyPart>, BusError> {
        self.parts.get_mut(name).ok_or_else(|| BusError::Unknown(format!("there is no part '{name}'")))
    }
}

fn part_error(part: &str) -> impl Fn(PartError) -> BusError + '_ {
    move |error| BusError::Part { part: part.to_owned(), host: HERE.to_owned(), error }
}

impl Bus for LocalBus {
    fn hosts(&self) -> Vec<String> {
        vec![HERE.to_owned()]
    }

    fn place(&mut self, specs: Vec<PartSpec>) -> Result<(), BusError> {
        for spec in specs {
            if spec.host != HERE {
                return Err(BusError::Unknown(format!(
                    "there is no host '{}'; without a fleet the only one is '{HERE}'",
                    spec.host
                )));
            }
            let part = crate::build(&self.kinds, &spec)?;
            self.parts.insert(spec.name, part);
        }
        Ok(())
    }

    fn prepare(&mut self, parts: &[&str], peers: &Endpoints) -> Result<Endpoints, BusError> {
        let host = self.host.clone();
        let mut endpoints = Endpoints::new();
        for name in parts {
            let endpoint = self.part(name)?.prepare(peers, &host).map_err(part_error(name))?;
            endpoints.insert((*name).to_owned(), endpoint);
        }
        Ok(endpoints)
    }

    fn start(&mut self, parts: &[&str]) -> Result<(), BusError> {
        self.start_in_time(parts, clock::monotonic_ns() + LEAD.as_nanos() as u64)
    }

    fn progress(&mut self, part: &str) -> Result<Progress, BusError> {
        Ok(self.part(part)?.progress())
    }

    fn live(&mut self, part: &str) -> Live {
        self.parts.get_mut(part).map(|part| part.live()).unwrap_or_default()
    }

    fn stop(&mut self, parts: &[&str]) -> BTreeMap<String, Result<Value, BusError>> {
        let stop = |name: &&str| {
            let report = match self.parts.remove(*name) {
                Some(mut gone) => gone.stop().map_err(part_error(name)),
                None => Err(BusError::Unknown(format!("there is no part '{name}'"))),
            };
            ((*name).to_owned(), report)
        };
        parts.iter().map(stop).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    /// Counts its progress calls, rejects a negative `work`, and fails to start without any.
    struct Counter {
        work: i64,
        started_ns: Option<u64>,
    }

    impl AnyPart for Counter {
        fn prepare(&mut self, peers: &Endpoints, _: &HostContext) -> Result<Value, PartError> {
            Ok(json!({ "peers": peers.len() }))
        }
        fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
            self.started_ns = Some(at_monotonic_ns);
            if self.work > 0 { Ok(()) } else { Err(PartError::new("it does not start")) }
        }
        fn progress(&mut self) -> Progress {
            self.work -= 1;
            if self.work > 0 { Progress::Running { done: None } } else { Progress::Finished }
        }
        fn stop(&mut self) -> Result<Value, PartError> {
            Ok(json!(self.started_ns))
        }
    }

    fn build(spec: &PartSpec) -> Result<Box<dyn AnyPart>, PartError> {
        match spec.settings["work"].as_i64() {
            Some(work) if work >= 0 => Ok(Box::new(Counter { work, started_ns: None })),
            _ => Err(PartError::usage("work must be a number that is not negative")),
        }
    }

    fn bus() -> LocalBus {
        let host = HostContext::here(PathBuf::new(), PathBuf::new(), PathBuf::new());
        LocalBus::new(vec![PartKind { name: "test.counter", build }], host)
    }

    fn spec(work: i64) -> PartSpec {
        let settings = json!({ "work": work });
        PartSpec {
            kind: "test.counter".into(),
            name: "counter".into(),
            host: HERE.into(),
            settings,
            report_items: 0,
        }
    }

    #[test]
    fn part_goes_through_its_phases() {
        let mut bus = bus();
        bus.place(vec![spec(2)]).unwrap();
        let endpoints = bus.prepare(&["counter"], &Endpoints::new()).unwrap();
        assert_eq!(endpoints["counter"], json!({ "peers": 0 }));
        bus.start_at(&["counter"], 7).unwrap();
        assert_eq!(bus.progress("counter").unwrap(), Progress::Running { done: None });
        assert_eq!(bus.progress("counter").unwrap(), Progress::Finished);
        let mut stop = || bus.stop(&["counter"]).remove("counter").unwrap();
        assert_eq!(stop().unwrap(), json!(7));
        assert!(stop().unwrap_err().to_string().contains("there is no part 'counter'"));
    }

    #[test]
    fn refusal_after_the_start_time_is_a_late_start() {
        let mut bus = bus();
        bus.place(vec![spec(0)]).unwrap();
        let late = bus.start_in_time(&["counter"], 0).unwrap_err();
        assert!(
            matches!(&late, BusError::LateStart { host, why } if host == HERE && why == "counter: it does \
                                                                                         not start"),
            "{late}"
        );
        let own = bus.start_in_time(&["counter"], u64::MAX).unwrap_err();
        assert!(matches!(own, BusError::Part { .. }), "{own}");
        let unknown = bus.start_in_time(&["nobody"], 0).unwrap_err();
        assert!(matches!(unknown, BusError::Unknown(_)), "{unknown}");
    }

    #[test]
    fn placement_error_names_the_cause() {
        let mut bus = bus();
        let refused = bus.place(vec![spec(-1)]).unwrap_err();
        assert!(refused.is_usage() && refused.to_string().starts_with("work must be"));
        let elsewhere = PartSpec { host: "elsewhere".into(), ..spec(1) };
        assert!(bus.place(vec![elsewhere]).unwrap_err().to_string().contains("no host 'elsewhere'"));
        let foreign = PartSpec { kind: "test.other".into(), ..spec(1) };
        assert!(bus.place(vec![foreign]).unwrap_err().to_string().contains("no kind of part 'test.other'"));
    }
}
