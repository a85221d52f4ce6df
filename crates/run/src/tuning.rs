//! Settings of the kernel's network that a variant is measured with, and the watch on the sockets of their
//! hosts (`kagiri tune`).

use std::collections::BTreeMap;

use base::doubt::WorkloadDoubt;
use base::outcome::{Cell, Table, Trial};
use base::part::{HERE, PartError, PartSpec};
use base::plan::TuningWish;
use base::workload::Judgement;
use fleet::Bus;
use serde::Serialize;
use serde_json::{Value, json};
use tune::advise::{BufferShares, Finding};
use tune::part::{SettingsPart, SettingsReport, SettingsTask, WatchPart, WatchReport};
use workload::part::{self, Part};

use crate::placed;
use crate::run_error::RunError;

/// The role of the settings in messages and names of parts.
const SETTINGS: &str = "tune-settings";
const WATCH: &str = "tune-watch";
const HOSTS_KEY: &str = "tune.hosts";
/// Shares of the busy time of TCP connections, of the host with the largest.
pub const SNDBUF_LIMITED: &str = "tune_sndbuf_limited_ratio";
pub const RWND_LIMITED: &str = "tune_rwnd_limited_ratio";
pub const BANDWIDTH_DELAY: &str = "tune_bandwidth_delay_bytes";

/// The settings of each variant that has some, by its name.
pub type VariantTunings = BTreeMap<String, TuningWish>;

/// As it is stored with a run.
pub(crate) fn fact(tunings: &VariantTunings) -> Option<Value> {
    let facts = tunings.iter().map(|(variant, wish)| {
        (variant.clone(), json!({ "settings": wish.settings, "hosts": wish.hosts().hosts }))
    });
    (!tunings.is_empty()).then(|| Value::Object(facts.collect()))
}

/// Parts that set the variant's settings; none without settings.
/// Errors: a host is not there.
pub(crate) fn settings_parts(
    tunings: &VariantTunings,
    variant: &str,
    bus: &dyn Bus,
) -> Result<Vec<PartSpec>, RunError> {
    let Some(wish) = tunings.get(variant).filter(|wish| !wish.settings.is_empty()) else {
        return Ok(Vec::new());
    };
    let assignments = wish.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    specs::<SettingsPart>(SETTINGS, wish, &SettingsTask { assignments }, bus)
}

/// Parts that watch the sockets of the variant's hosts during a trial.
/// Errors: a host is not there.
pub(crate) fn watch_parts(
    tunings: &VariantTunings,
    variant: &str,
    bus: &dyn Bus,
) -> Result<Vec<PartSpec>, RunError> {
    tunings.get(variant).map_or(Ok(Vec::new()), |wish| specs::<WatchPart>(WATCH, wish, &(), bus))
}

fn specs<P: Part>(
    role: &str,
    wish: &TuningWish,
    task: &P::Task,
    bus: &dyn Bus,
) -> Result<Vec<PartSpec>, RunError> {
    let hosts = placed::hosts_of(HOSTS_KEY, &wish.hosts(), bus)?;
    let only = hosts.len() == 1;
    let spec =
        |host: &String| part::spec::<P>(part::name(role, host, only), host, task).map_err(RunError::from);
    hosts.iter().map(spec).collect()
}

/// Adds what the watches saw during a trial to its judgement.
/// Errors: a report cannot be read.
pub(crate) fn add_watches(
    specs: &[PartSpec],
    judgement: &mut Judgement,
    reports: &BTreeMap<String, Value>,
) -> Result<(), PartError> {
    let mut shares: Vec<BufferShares> = Vec::new();
    for spec in specs.iter().filter(|spec| spec.kind == WatchPart::KIND) {
        let Some(report) = reports.get(&spec.name) else { continue };
        let report: WatchReport = part::read(report, || format!("the report of {}", spec.name))?;
        judgement.account.tables.push(table(&spec.host, &report));
        shares.extend(report.buffers);
    }
    if shares.is_empty() {
        return Ok(());
    }
    let largest = |of: fn(&BufferShares) -> Option<f64>| shares.iter().filter_map(of).max_by(f64::total_cmp);
    for (name, value) in [
        (SNDBUF_LIMITED, largest(|one| Some(one.sndbuf()))),
        (RWND_LIMITED, largest(|one| Some(one.rwnd()))),
        (BANDWIDTH_DELAY, largest(|one| one.bandwidth_delay_bytes.map(|bytes| bytes as f64))),
    ] {
        judgement.metrics.insert(name.to_owned(), value);
    }
    Ok(())
}

/// Title of the tables of what watches saw.
const TABLE: &str = "counters of sockets";
const LIMIT: &str = "limit";

fn table(host: &str, report: &WatchReport) -> Table {
    let on = if host == HERE { String::new() } else { format!(" on {host}") };
    let columns = [("finding", ""), ("read from", ""), ("setting", "")];
    let mut table = Table::new(format!("{TABLE}{on}"), &columns);
    for one in &report.statements {
        let finding = match one.finding {
            Finding::Limit => LIMIT,
            Finding::Delay => "delay",
            Finding::NotTheLimit => "not the limit",
            Finding::Unknown => "unknown",
        };
        let setting = one.setting.as_deref().unwrap_or_default();
        table.rows.push(vec![finding.into(), one.text.as_str().into(), setting.into()]);
    }
    table
}

/// What the watches of a trial found to limit traffic: the sentence, and the setting that it concerns.
pub fn limits_of(trial: &Trial) -> Vec<(String, String)> {
    let tables = trial.account.tables.iter().filter(|table| table.title.starts_with(TABLE));
    let words = |row: &Vec<Cell>| match row.as_slice() {
        [Cell::Text(finding), Cell::Text(text), Cell::Text(setting)] if finding == LIMIT => {
            Some((text.clone(), setting.clone()))
        }
        _ => None,
    };
    tables.flat_map(|table| table.rows.iter().filter_map(words)).collect()
}

/// Doubts about settings that another program changed while the variant was measured.
/// Errors: the report cannot be read.
pub(crate) fn doubts_of(report: &Value) -> Result<Vec<TuningDoubt>, PartError> {
    let report: SettingsReport = part::read(report, || format!("the report of {SETTINGS}"))?;
    let left = report.settings.into_iter().filter(tune::part::EndedSetting::is_left_alone);
    Ok(left
        .map(|one| TuningDoubt::SettingChanged { name: one.name, found: one.note.unwrap_or_default() })
        .collect())
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum TuningDoubt {
    /// Another program changed a setting of the plan.
    SettingChanged { name: String, found: String },
}

impl WorkloadDoubt for TuningDoubt {
    fn message(&self) -> String {
        let Self::SettingChanged { name, found } = self;
        format!("another program changed {name} while it was measured ({found})")
    }

    fn advice(&self) -> &'static str {
        "find the program that sets it (sysctl.d, tuned, bpftune), stop it and measure again"
    }

    fn gravity(&self) -> f64 {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use base::verdict::Verdict;
    use tune::part::WatchStatement;

    use super::*;

    #[test]
    fn shares_of_the_host_with_the_largest_become_metrics() {
        let report = |sndbuf_limited_us, bandwidth_delay_bytes| {
            json!(WatchReport {
                observed_s: 5.0,
                buffers: Some(BufferShares {
                    connections: 1,
                    busy_us: 1000,
                    sndbuf_limited_us,
                    rwnd_limited_us: 0,
                    bandwidth_delay_bytes,
                }),
                statements: vec![WatchStatement {
                    finding: Finding::Limit,
                    text: "Send buffers limit it (tcpi_sndbuf_limited).".into(),
                    setting: Some("net.ipv4.tcp_wmem".into()),
                }],
            })
        };
        let names = ["tune-watch@a", "tune-watch@b"];
        let specs = names.map(|name| part::spec::<WatchPart>(name.into(), "a", &()).unwrap());
        let reports = [report(100, None), report(400, Some(7))];
        let reports = names.map(str::to_owned).into_iter().zip(reports).collect();
        let mut judgement = Judgement::new(Verdict::Pass, (0.0, 1.0));
        add_watches(&specs, &mut judgement, &reports).unwrap();
        assert_eq!(judgement.metrics[SNDBUF_LIMITED], Some(0.4));
        assert_eq!(judgement.metrics[BANDWIDTH_DELAY], Some(7.0));
        assert_eq!(judgement.account.tables.len(), 2);
        let mut none = Judgement::new(Verdict::Pass, (0.0, 1.0));
        add_watches(&specs, &mut none, &BTreeMap::new()).unwrap();
        assert!(none.metrics.is_empty());
    }

    #[test]
    fn setting_that_was_changed_by_others_is_a_doubt() {
        let report = |outcome: &str| {
            let setting = json!({ "name": "net.ipv4.tcp_sack", "before": "1", "value": "0",
                "outcome": outcome, "note": "its value is 1 now" });
            json!({ "settings": [setting] })
        };
        assert!(doubts_of(&report("restored")).unwrap().is_empty());
        let doubt = &doubts_of(&report("left_alone")).unwrap()[0];
        assert!(doubt.message().contains("net.ipv4.tcp_sack"), "{}", doubt.message());
        assert!(doubts_of(&json!({})).is_err());
    }
}
