//! The bus within one process: no port is opened, nothing is serialised but settings and reports.

use std::collections::BTreeMap;
use std::time::Duration;

use base::part::{Endpoints, HostContext, Part, PartError, PartKind, PartSpec, Progress};
use serde_json::Value;
use sys::clock;

use crate::{Bus, BusError, HERE};

/// Parts of this process, by name.
pub struct LocalBus {
    kinds: Vec<PartKind>,
    host: HostContext,
    parts: BTreeMap<String, Box<dyn Part>>,
}

impl LocalBus {
    /// A bus that can build the given kinds of parts.
    pub fn new(kinds: Vec<PartKind>, host: HostContext) -> Self {
        Self { kinds, host, parts: BTreeMap::new() }
    }

    fn part(&mut self, name: &str) -> Result<&mut Box<dyn Part>, BusError> {
        self.parts.get_mut(name).ok_or_else(|| BusError::Unknown(format!("there is no part '{name}'")))
    }
}

/// An error of a part, with the part's name.
fn of(part: &str) -> impl Fn(PartError) -> BusError + '_ {
    move |error| BusError::Part { part: part.to_owned(), host: HERE.to_owned(), error }
}

impl Bus for LocalBus {
    fn hosts(&self) -> Vec<String> {
        vec![HERE.to_owned()]
    }

    fn place(&mut self, host: &str, spec: PartSpec) -> Result<(), BusError> {
        if host != HERE {
            return Err(BusError::Unknown(format!(
                "there is no host '{host}'; without a fleet the only one is '{HERE}'"
            )));
        }
        let kind = self.kinds.iter().find(|kind| kind.name == spec.kind);
        let kind =
            kind.ok_or_else(|| BusError::Unknown(format!("there is no kind of part '{}'", spec.kind)))?;
        let part = (kind.build)(&spec).map_err(of(&spec.name))?;
        self.parts.insert(spec.name, part);
        Ok(())
    }

    fn prepare(&mut self, part: &str, peers: &Endpoints) -> Result<Value, BusError> {
        let host = self.host.clone();
        self.part(part)?.prepare(peers, &host).map_err(of(part))
    }

    fn start(&mut self, parts: &[&str], lead: Duration) -> Result<u64, BusError> {
        let at_ns = clock::monotonic_ns() + u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
        for name in parts {
            self.part(name)?.start(at_ns).map_err(of(name))?;
        }
        Ok(at_ns)
    }

    fn progress(&mut self, part: &str) -> Result<Progress, BusError> {
        Ok(self.part(part)?.progress())
    }

    fn stop(&mut self, part: &str) -> Result<Value, BusError> {
        let mut gone =
            self.parts.remove(part).ok_or_else(|| BusError::Unknown(format!("there is no part '{part}'")))?;
        gone.stop().map_err(of(part))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// A part that counts how often it was asked, and is refused a negative `work`.
    struct Counter {
        work: i64,
        started_ns: Option<u64>,
    }

    impl Part for Counter {
        fn prepare(&mut self, peers: &Endpoints, _: &HostContext) -> Result<Value, PartError> {
            Ok(json!({ "peers": peers.len() }))
        }
        fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
            self.started_ns = Some(at_monotonic_ns);
            Ok(())
        }
        fn progress(&mut self) -> Progress {
            self.work -= 1;
            if self.work > 0 { Progress::Running { done: None } } else { Progress::Finished }
        }
        fn stop(&mut self) -> Result<Value, PartError> {
            Ok(json!(self.started_ns))
        }
    }

    fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
        match spec.settings["work"].as_i64() {
            Some(work) if work >= 0 => Ok(Box::new(Counter { work, started_ns: None })),
            _ => Err(PartError::usage("work must be a number that is not negative")),
        }
    }

    fn bus() -> LocalBus {
        let host = HostContext {
            data_dir: PathBuf::new(),
            journal_dir: PathBuf::new(),
            program: PathBuf::new(),
            stop: Arc::default(),
            say: Arc::new(|_| {}),
        };
        LocalBus::new(vec![PartKind { name: "test.counter", build }], host)
    }

    fn spec(work: i64) -> PartSpec {
        PartSpec { kind: "test.counter".into(), name: "counter".into(), settings: json!({ "work": work }) }
    }

    #[test]
    fn a_part_goes_through_its_phases() {
        let mut bus = bus();
        bus.place(HERE, spec(2)).unwrap();
        assert_eq!(bus.prepare("counter", &Endpoints::new()).unwrap(), json!({ "peers": 0 }));
        let at_ns = bus.start(&["counter"], Duration::from_millis(5)).unwrap();
        assert_eq!(bus.progress("counter").unwrap(), Progress::Running { done: None });
        assert_eq!(bus.progress("counter").unwrap(), Progress::Finished);
        assert_eq!(bus.stop("counter").unwrap(), json!(at_ns));
        assert!(bus.stop("counter").unwrap_err().to_string().contains("there is no part 'counter'"));
    }

    #[test]
    fn what_cannot_be_placed_is_named() {
        let mut bus = bus();
        let refused = bus.place(HERE, spec(-1)).unwrap_err();
        assert!(refused.is_usage() && refused.to_string().starts_with("work must be"));
        assert!(bus.place("elsewhere", spec(1)).unwrap_err().to_string().contains("no host 'elsewhere'"));
        let foreign = PartSpec { kind: "test.other".into(), ..spec(1) };
        assert!(bus.place(HERE, foreign).unwrap_err().to_string().contains("no kind of part 'test.other'"));
    }
}
