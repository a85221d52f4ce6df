//! Parts with typed tasks, endpoints and reports, and the only place that turns these into JSON and back.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use base::part::{AnyPart, Endpoints, HostContext, Live, PartError, PartKind, PartSpec, Progress};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::settings::Settings;

/// One side of a workload on one host. [`AnyPart`] describes the order of the calls.
pub trait Part: Send + Sized + 'static {
    /// The name of its kind, `workload.part`.
    const KIND: &'static str;
    /// What it is made from.
    type Task: Serialize + DeserializeOwned;
    /// What it publishes to its peers once it is prepared.
    type Endpoint: Serialize + DeserializeOwned;
    type Report: Serialize + DeserializeOwned;

    /// How many streams, flows or sources the report lists one by one.
    fn report_items(_task: &Self::Task) -> u64 {
        0
    }

    /// Make the part; acquires nothing yet.
    fn new(task: Self::Task) -> Result<Self, PartError>;

    /// Acquire what is needed (ports, files), and publish what peers need to know.
    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<Self::Endpoint, PartError>;

    /// Begin at a moment of this host's monotonic clock; returns at once. A part that works from `prepare` on
    /// has nothing to do here.
    /// Fails if the moment has passed, or if the part was not prepared.
    fn start(&mut self, _at_monotonic_ns: u64) -> Result<(), PartError> {
        Ok(())
    }

    /// How far it is. Never blocks. A server runs until it is stopped.
    fn progress(&mut self) -> Progress {
        Progress::Running { done: None }
    }

    /// Its present numbers, by name with the unit last. Never blocks.
    fn live(&mut self) -> Live {
        Live::new()
    }

    /// End, release everything, and report.
    fn stop(&mut self) -> Result<Self::Report, PartError>;
}

pub const fn kind<P: Part>() -> PartKind {
    PartKind { name: P::KIND, build: build::<P> }
}

fn build<P: Part>(spec: &PartSpec) -> Result<Box<dyn AnyPart>, PartError> {
    let task = read(&spec.settings, || format!("the task of {}", spec.name));
    let task = task.map_err(|error| PartError { usage: true, ..error })?;
    Ok(Box::new(Erased(P::new(task)?)))
}

/// A part to build on a host. `name` is unique within the run.
pub fn spec<P: Part>(name: String, host: &str, task: &P::Task) -> Result<PartSpec, PartError> {
    let settings = write(task, || format!("the task of {name}"))?;
    let report_items = P::report_items(task);
    Ok(PartSpec { kind: P::KIND.to_owned(), name, host: host.to_owned(), settings, report_items })
}

/// The name of a role's part: `viewers`, or `viewers@HOST` where the role has several hosts.
pub fn name(role: &str, host: &str, is_only_host: bool) -> String {
    if is_only_host { role.to_owned() } else { format!("{role}@{host}") }
}

/// The address at which the `others` of a run reach a `server` here: the loopback's, or this host's if some
/// of them are `elsewhere`, on other hosts.
pub fn server_address(
    host: &HostContext,
    elsewhere: bool,
    others: &str,
    server: &str,
) -> Result<IpAddr, PartError> {
    if !elsewhere {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    host.address.ok_or_else(|| {
        PartError::new(format!(
            "the {others} are on other hosts, and the address at which they reach this host is unknown; \
             run an agent here with --address, and place the {server} on it"
        ))
    })
}

/// What prepared parts have published.
#[derive(Clone, Copy)]
pub struct Peers<'a>(&'a Endpoints);

impl<'a> Peers<'a> {
    pub fn new(endpoints: &'a Endpoints) -> Self {
        Self(endpoints)
    }

    /// The endpoint of the part of that name.
    pub fn get<P: Part>(&self, name: &str) -> Result<P::Endpoint, PartError> {
        let endpoint = self.0.get(name).ok_or_else(|| {
            PartError::new(format!("the endpoint of '{name}' is not known: it was not prepared before"))
        })?;
        read(endpoint, || format!("the endpoint of {name}"))
    }
}

/// A part's report with its host; without one where the role has only one host.
pub type HostReport<'a, P> = (Option<&'a str>, <P as Part>::Report);

/// The reports of a trial's parts, by part name.
pub struct Reports(BTreeMap<String, Value>);

impl Reports {
    pub fn new(reports: BTreeMap<String, Value>) -> Self {
        Self(reports)
    }

    /// The report of the part of that name; `None` if there is no such part.
    pub fn get<P: Part>(&self, name: &str) -> Result<Option<P::Report>, PartError> {
        self.0.get(name).map(|report| read(report, || format!("the report of {name}"))).transpose()
    }

    /// The reports of all parts of a role (see [`name`]).
    pub fn of_role<P: Part>(&self, role: &str) -> Result<Vec<HostReport<'_, P>>, PartError> {
        let of_role = self.0.iter().filter_map(|(name, report)| match name.strip_prefix(role)? {
            "" => Some((None, name, report)),
            rest => Some((Some(rest.strip_prefix('@')?), name, report)),
        });
        of_role
            .map(|(host, name, report)| Ok((host, read(report, || format!("the report of {name}"))?)))
            .collect()
    }
}

/// Read JSON that crossed a bus; `what` names it in the error.
pub fn read<T: DeserializeOwned>(json: &Value, what: impl FnOnce() -> String) -> Result<T, PartError> {
    T::deserialize(json).map_err(|error| PartError::new(format!("{} cannot be read: {error}", what())))
}

/// Read settings within a task as strictly as those of a plan: `#[serde(deserialize_with =
/// "workload::part::settings")]`.
pub fn settings<'de, S: Settings, D: Deserializer<'de>>(json: D) -> Result<S, D::Error> {
    crate::settings::read(&Value::deserialize(json)?).map_err(D::Error::custom)
}

fn write(data: &impl Serialize, what: impl FnOnce() -> String) -> Result<Value, PartError> {
    serde_json::to_value(data).map_err(|error| PartError::new(format!("{} cannot be sent: {error}", what())))
}

/// A part as the bus carries it.
struct Erased<P>(P);

impl<P: Part> AnyPart for Erased<P> {
    fn prepare(&mut self, peers: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        let endpoint = self.0.prepare(&Peers::new(peers), host)?;
        write(&endpoint, || format!("the endpoint of {}", P::KIND))
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        self.0.start(at_monotonic_ns)
    }

    fn progress(&mut self) -> Progress {
        self.0.progress()
    }

    fn live(&mut self) -> Live {
        self.0.live()
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        let report = self.0.stop()?;
        write(&report, || format!("the report of {}", P::KIND))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Adder(u64);

    impl Part for Adder {
        const KIND: &'static str = "test.adder";
        type Task = u64;
        type Endpoint = u64;
        type Report = u64;

        fn new(task: u64) -> Result<Self, PartError> {
            Ok(Self(task))
        }
        fn prepare(&mut self, peers: &Peers<'_>, _: &HostContext) -> Result<u64, PartError> {
            self.0 += peers.get::<Self>("first")?;
            Ok(self.0)
        }
        fn progress(&mut self) -> Progress {
            Progress::Finished
        }
        fn stop(&mut self) -> Result<u64, PartError> {
            Ok(self.0)
        }
    }

    fn spec_of(settings: Value) -> PartSpec {
        PartSpec { settings, ..spec::<Adder>("second".into(), "here", &2).unwrap() }
    }

    #[test]
    fn part_reads_task_and_peers_and_writes_endpoint_and_report() {
        let host = HostContext::here("/".into(), "/".into(), "/".into());
        let mut part = (kind::<Adder>().build)(&spec_of(json!(2))).unwrap();
        let peers = Endpoints::from([("first".to_owned(), json!(5))]);
        assert_eq!(part.prepare(&peers, &host).unwrap(), json!(7));
        part.start(0).unwrap();
        assert_eq!(part.stop().unwrap(), json!(7));
    }

    #[test]
    fn unreadable_task_endpoint_and_report_are_named() {
        let task = (kind::<Adder>().build)(&spec_of(json!("two"))).err().unwrap();
        assert!(task.usage && task.message.starts_with("the task of second cannot be read: "), "{task}");
        let endpoints = Endpoints::from([("first".to_owned(), json!("five"))]);
        let peers = Peers::new(&endpoints);
        let endpoint = peers.get::<Adder>("first").unwrap_err();
        assert!(!endpoint.usage && endpoint.message.starts_with("the endpoint of first cannot be read: "));
        let unknown = peers.get::<Adder>("third").unwrap_err();
        assert!(unknown.message.starts_with("the endpoint of 'third' is not known"), "{unknown}");
        let reports = Reports::new(BTreeMap::from([("adders@pc".to_owned(), json!("seven"))]));
        let report = reports.of_role::<Adder>("adders").unwrap_err();
        assert!(report.message.starts_with("the report of adders@pc cannot be read: "), "{report}");
        assert!(reports.get::<Adder>("adders").unwrap().is_none());
    }

    #[test]
    fn reports_of_a_role_carry_their_hosts() {
        let names = ["adder", "adders", "adders-too", "adders@a", "adders@b"];
        let reports = names.iter().zip(1..).map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
        let found = Reports(reports);
        assert_eq!(found.of_role::<Adder>("adders").unwrap(), [(None, 2), (Some("a"), 4), (Some("b"), 5)]);
        assert_eq!(found.get::<Adder>("adder").unwrap(), Some(1));
    }
}
