//! The parts that stand while a variant is searched, and the samplers of a trial: one on the target's host,
//! and one on each other host that offers load, where a neighbour may spoil what is offered.

use std::collections::BTreeMap;

use base::doubt::Doubt;
use base::limit_rules::CEILING;
use base::metric::Metrics;
use base::part::{Endpoints, HERE, PartError, PartSpec, Watch};
use fleet::BusError;
use observe::sampler::{self, Sampler};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use workload::part::{self, Part};

/// The name under which the target's sampler is placed.
pub(crate) const SAMPLER: &str = "sampler";
/// Other programs' CPU, in % of one core, from which a trial carries a doubt.
const NEIGHBOUR_PERCENT: f64 = 25.0;
/// Missing samples, in %, from which a trial carries a doubt.
const MISSING_PERCENT: f64 = 5.0;
/// CPU time stolen by the hypervisor, all CPUs, in % of one core, from which a trial carries a doubt.
const STEAL_PERCENT: f64 = 2.0;

/// The parts that stand while a variant is searched.
#[derive(Default)]
pub(crate) struct Standing {
    /// Their names: when one of them ends, a trial cannot go on.
    pub(crate) names: Vec<String>,
    pub(crate) peers: Endpoints,
    pub(crate) target: Option<Target>,
}

pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) watch: Watch,
}

/// What a part's endpoint asks a sampler to watch; only the part that is measured has a `watch`.
pub(crate) fn watch(part: &str, endpoint: &Value) -> Result<Option<Watch>, PartError> {
    let watch = endpoint.get("watch").filter(|watch| !watch.is_null());
    watch.map(|watch| part::read(watch, || format!("the watch of {part}"))).transpose()
}

/// Where a process of the measuring side is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Whereabouts {
    boot_id: String,
    /// Namespace of its id, which means another process in another namespace.
    pid_namespace: Option<String>,
    pid: u32,
}

impl Whereabouts {
    fn own() -> Self {
        let (boot_id, pid_namespace) = (sys::proc::boot_id(), sys::proc::pid_namespace());
        Self { boot_id, pid_namespace, pid: std::process::id() }
    }

    fn sees(&self, other: &Self) -> bool {
        (&self.boot_id, &self.pid_namespace) == (&other.boot_id, &other.pid_namespace)
    }
}

/// What an agent adds to the facts of its host: its process. This separates the measuring side's own
/// processes from other programs where hosts share a kernel.
pub fn own_facts() -> BTreeMap<String, Value> {
    let facts = serde_json::to_value(Whereabouts::own()).and_then(serde_json::from_value);
    facts.expect("three plain fields are an object")
}

/// The agents that share a kernel, as in a lab. Their processes are not counted as other programs where they
/// are visible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kin(BTreeMap<String, Whereabouts>);

impl Kin {
    pub(crate) fn of(facts: &BTreeMap<String, Value>) -> Self {
        let kin = |(host, facts): (&String, &Value)| {
            Some((host.clone(), Whereabouts::deserialize(&facts["environment"]).ok()?))
        };
        let here = (HERE.to_owned(), Whereabouts::own());
        Self(facts.iter().filter_map(kin).chain([here]).collect())
    }

    fn share_a_kernel(&self, one: &str, other: &str) -> bool {
        let is_same = |one: &Whereabouts, other: &Whereabouts| {
            // An unknown boot is empty, and no other's.
            !one.boot_id.is_empty() && one.boot_id == other.boot_id
        };
        self.0.get(one).zip(self.0.get(other)).is_some_and(|(one, other)| is_same(one, other))
    }

    /// The processes of all agents that can be seen from this host.
    fn beside(&self, host: &str) -> Vec<u32> {
        let Some(own) = self.0.get(host) else { return Vec::new() };
        self.0.values().filter(|other| own.sees(other)).map(|other| other.pid).collect()
    }
}

/// One sampler: its part's name, its host, what it watches.
struct Placed {
    name: String,
    host: String,
    watch: Watch,
}

/// The samplers of a trial, the target's first.
pub(crate) struct Samplers(Vec<Placed>);

impl Samplers {
    /// For a target, and the hosts that offer load; none without a target.
    pub(crate) fn of<'a>(target: Option<&Target>, hosts: impl Iterator<Item = &'a str>, kin: &Kin) -> Self {
        let Some(target) = target else { return Self(Vec::new()) };
        let mut watch = target.watch.clone();
        watch.own_pids.extend(kin.beside(&target.host));
        let mut all = vec![Placed { name: SAMPLER.into(), host: target.host.clone(), watch }];
        for host in hosts {
            // One sampler sees all programs of a kernel. If each of a lab's 200 hosts sampled all processes,
            // they would use all CPUs.
            if !all.iter().any(|sampler| sampler.host == host || kin.share_a_kernel(&sampler.host, host)) {
                let (elsewhere, own_pids) = (Some(target.host.clone()), kin.beside(host));
                let watch = Watch { elsewhere, own_pids, ..Watch::default() };
                all.push(Placed { name: format!("{SAMPLER}@{host}"), host: host.to_owned(), watch });
            }
        }
        Self(all)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|sampler| sampler.name.as_str())
    }

    pub(crate) fn specs(&self) -> Result<Vec<PartSpec>, PartError> {
        let spec = |placed: &Placed| part::spec::<Sampler>(placed.name.clone(), &placed.host, &placed.watch);
        self.0.iter().map(spec).collect()
    }

    /// Their reports, out of those of all parts. A missing one is a doubt: the trial is valid without it.
    pub(crate) fn reports(&self, ended: &mut BTreeMap<String, Result<Value, BusError>>) -> Vec<OfHost> {
        let mut read = |placed: &Placed| {
            let gone = || Err(BusError::Unknown("the sampler left no report".into()));
            let report = ended.remove(&placed.name).unwrap_or_else(gone).map_err(|error| error.to_string());
            let sampled = report.and_then(|report| {
                let what = || format!("the report of {}", placed.name);
                part::read::<<Sampler as Part>::Report>(&report, what).map_err(|error| error.message)
            });
            let sampled = sampled.map_err(|why| Doubt::NotSampled { what: vec![why] });
            OfHost { is_target: placed.name == SAMPLER, host: placed.host.clone(), sampled }
        };
        self.0.iter().map(&mut read).collect()
    }
}

pub(crate) struct OfHost {
    pub(crate) is_target: bool,
    host: String,
    pub(crate) sampled: Result<sampler::Report, Doubt>,
}

impl OfHost {
    /// The means of its series over the hold.
    pub(crate) fn means(&self, (from_s, to_s): (f64, f64)) -> Metrics {
        let series = self.sampled.as_ref().map_or(&[][..], |sampled| sampled.series.as_slice());
        series.iter().map(|one| (one.name.clone(), one.mean(from_s, to_s))).collect()
    }

    /// What weakens the trial, given the means over its hold.
    pub(crate) fn doubts(&self, means: &Metrics) -> Vec<Doubt> {
        let doubts = match &self.sampled {
            Err(doubt) => vec![doubt.clone()],
            Ok(sampled) => missing(&sampled.missing).into_iter().chain(neighbours(means)).collect(),
        };
        if self.is_target { doubts } else { doubts.into_iter().map(|doubt| doubt.on(&self.host)).collect() }
    }

    /// Why a failure is not the target's: its own or a player's host was full, in part with others' work.
    pub(crate) fn spoiled(&self, means: &Metrics) -> Option<String> {
        let cores = f64::from(self.sampled.as_ref().ok()?.cores?);
        let why = full_of_others(means, cores)?;
        Some(if self.is_target { format!("the host {why}") } else { format!("the host {} {why}", self.host) })
    }
}

/// One doubt for all missing samples: a late sampler misses all quantities at once.
fn missing(percent_by_name: &BTreeMap<String, f64>) -> Option<Doubt> {
    let gaps = || percent_by_name.iter().filter(|(_, percent)| **percent > MISSING_PERCENT);
    let (worst, percent) = gaps().max_by(|a, b| a.1.total_cmp(b.1))?;
    let resource = match gaps().count() - 1 {
        0 => worst.clone(),
        others => format!("{worst}, and some of {others} other counters,"),
    };
    Some(Doubt::SamplesMissing { resource, missing_percent: *percent })
}

fn known(metrics: &Metrics, name: &str) -> Option<f64> {
    metrics.get(name).copied().flatten()
}

/// Doubts about other programs on the host.
fn neighbours(metrics: &Metrics) -> impl Iterator<Item = Doubt> {
    let other = known(metrics, "other_cpu_percent").filter(|percent| *percent > NEIGHBOUR_PERCENT);
    let steal = known(metrics, "steal_percent").filter(|percent| *percent > STEAL_PERCENT);
    let other = other.map(|other_cpu_percent| Doubt::NoisyNeighbour { other_cpu_percent });
    other.into_iter().chain(steal.map(|steal_percent| Doubt::CpuStolen { steal_percent }))
}

/// That a host was full, in part with other programs or other guests. Every percentage is of one core.
fn full_of_others(metrics: &Metrics, cores: f64) -> Option<String> {
    let host = known(metrics, "host_cpu_percent")?;
    let other = known(metrics, "other_cpu_percent")?;
    let steal = known(metrics, "steal_percent").unwrap_or(0.0);
    // A failure on a full host, with a neighbour on it, is not the target's.
    let full = host + steal >= CEILING.used_up_from * 100.0 * cores;
    (full && other + steal > NEIGHBOUR_PERCENT * cores).then(|| {
        let (busy, theirs) = (host / 100.0, other / 100.0);
        let taken = match steal > STEAL_PERCENT {
            true => format!("; the hypervisor took {:.1} more", steal / 100.0),
            false => String::new(),
        };
        format!(
            "was full: {busy:.1} of {cores} cores were busy, {theirs:.1} of them with other programs{taken}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn full_host_is_reported_in_cores() {
        let with = |host, other, cores, steal: Option<f64>| {
            let known = [("host_cpu_percent", Some(host)), ("other_cpu_percent", Some(other))];
            let metrics = known.into_iter().chain([("steal_percent", steal)]);
            full_of_others(&metrics.map(|(name, value)| (name.to_owned(), value)).collect(), cores)
        };
        let at = |host, other, cores| with(host, other, cores, None);
        let expected = "was full: 1.9 of 2 cores were busy, 0.6 of them with other programs";
        assert_eq!(at(190.0, 60.0, 2.0).as_deref(), Some(expected));
        assert_eq!(at(189.0, 60.0, 2.0), None, "there was room");
        assert_eq!(at(190.0, 50.0, 2.0), None, "the others took too little");
        assert_eq!(at(190.0, 60.0, 4.0), None);
        // Time that the hypervisor gave to others was no more there than time that other programs used.
        let expected = "was full: 1.2 of 2 cores were busy, 0.1 of them with other programs; the hypervisor \
                        took 0.7 more";
        assert_eq!(with(120.0, 10.0, 2.0, Some(70.0)).as_deref(), Some(expected));
        assert_eq!(with(120.0, 10.0, 2.0, Some(30.0)), None, "there was room");
        assert_eq!(at(120.0, 10.0, 2.0), None);
    }

    fn at(boot_id: &str, pid_namespace: &str, pid: u32) -> Whereabouts {
        Whereabouts { boot_id: boot_id.into(), pid_namespace: Some(pid_namespace.into()), pid }
    }

    fn facts(whereabouts: &Whereabouts) -> Value {
        json!({ "environment": whereabouts })
    }

    #[test]
    fn agents_are_known_where_their_processes_are_visible() {
        let own = Whereabouts::own();
        let beside = |pid| Whereabouts { pid, ..own.clone() };
        let pod = |pid| at(&own.boot_id, "pid:[1]", pid);
        let hosts = [
            ("nas", beside(7)),
            ("pc", beside(8)),
            ("far", at("another", "pid:[2]", 9)),
            ("pod-1", pod(1)),
            ("pod-2", pod(2)),
        ];
        let mut facts = hosts.map(|(name, whereabouts)| (name.to_owned(), facts(&whereabouts))).to_vec();
        facts.push(("old".to_owned(), json!({ "environment": {} })));
        let kin = Kin::of(&facts.into_iter().collect());
        assert_eq!(kin.beside("far"), [9]);
        assert_eq!(kin.beside("nas"), [std::process::id(), 7, 8]);
        assert_eq!(kin.beside("pod-1"), [1, 2]);
        assert!(kin.share_a_kernel("pod-1", "nas") && !kin.share_a_kernel("pod-1", "far"));
        assert_eq!(kin.beside("unknown").len() + kin.beside("old").len(), 0);
    }

    /// Environment variable that makes this test program write its own facts.
    const TELL: &str = "KAGIRI_TEST_TELL_WHERE";

    #[test]
    fn agent_in_another_pid_namespace_is_not_visible() {
        if let Some(file) = std::env::var_os(TELL) {
            std::fs::write(file, serde_json::to_vec(&own_facts()).unwrap()).unwrap();
            return;
        }
        if !sys::environment::is_root() {
            return features::skip("needs root");
        }
        let folder = tempfile::tempdir().unwrap();
        let facts_of = |program: &[&str]| {
            let file = folder.path().join("facts");
            let own = std::env::current_exe().unwrap();
            let name = "sampled::tests::agent_in_another_pid_namespace_is_not_visible";
            let mut command = std::process::Command::new(program[0]);
            command.args(&program[1..]).arg(own).args(["--exact", name]).env(TELL, &file);
            assert!(command.output().unwrap().status.success());
            serde_json::from_slice::<Whereabouts>(&std::fs::read(file).unwrap()).unwrap()
        };
        // With its own /proc, as a container has it.
        let pod = facts_of(&["unshare", "--pid", "--fork", "--mount-proc"]);
        let process = facts_of(&["env"]);
        assert_eq!(pod.pid, 1);
        let hosts = [("pod".to_owned(), facts(&pod)), ("process".to_owned(), facts(&process))];
        let kin = Kin::of(&hosts.into());
        assert!(kin.share_a_kernel("pod", HERE) && kin.share_a_kernel("process", HERE));
        assert_eq!(kin.beside("pod"), [1], "there the others' ids belong to other processes");
        assert_eq!(
            kin.beside(HERE),
            [std::process::id(), process.pid],
            "and here its id belongs to another process"
        );
    }

    #[test]
    fn each_host_that_offers_load_is_sampled_once_and_the_target_first() {
        let target = Target { host: "nas".into(), watch: Watch { pids: vec![7], ..Watch::default() } };
        let kin_of = |(host, boot): (&str, &str)| (host.to_owned(), at(boot, "pid:[1]", 1));
        let kin = Kin::default();
        let samplers = Samplers::of(Some(&target), ["pc-1", "nas", "pc-1", "pc-2"].into_iter(), &kin);
        assert_eq!(samplers.names().collect::<Vec<_>>(), ["sampler", "sampler@pc-1", "sampler@pc-2"]);
        let kin = Kin([("nas", "a"), ("pc-1", "a"), ("pc-2", "b"), ("pc-3", "b")]
            .into_iter()
            .map(kin_of)
            .collect());
        let samplers = Samplers::of(Some(&target), ["pc-1", "pc-2", "pc-3"].into_iter(), &kin);
        assert_eq!(samplers.names().collect::<Vec<_>>(), ["sampler", "sampler@pc-2"], "one for each kernel");
        assert_eq!(Samplers::of(None, ["pc-1"].into_iter(), &kin).names().count(), 0);
    }
}
