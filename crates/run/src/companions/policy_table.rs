//! The table of a policy in force, in a trial's account.

use base::format::quantity;
use base::outcome::{Cell, Table};
use base::part::HERE;
use qos::daemon::{ClassStatus, HostsStatus, LeaseState};
use qos::part::PolicyReport;
use qos::verdict::Judgement as ClassJudgement;

use super::VariantPolicy;

/// The classes of a policy that was in force on a host.
pub(super) fn table(policy: &VariantPolicy, host: &str, report: &PolicyReport) -> Table {
    let on = if host == HERE { String::new() } else { format!(" on {host}") };
    let file = std::path::Path::new(&policy.file).file_name();
    let file = file.map_or_else(|| policy.file.clone(), |name| name.to_string_lossy().into_owned());
    let columns = [
        ("class", ""),
        ("verdict", ""),
        ("target", "s"),
        ("predicted", "s"),
        ("messages", ""),
        ("in time", "%"),
        ("99 % within", "s"),
        ("UDP sent", "bit/s"),
    ];
    let mut table = Table::new(format!("policy in force{on}: {file}"), &columns);
    let judged = policy.policy.classes.iter().zip(policy.policy.judge());
    for ((class, judged), status) in judged.zip(&report.status.classes) {
        table.rows.push(row(class.target.map(|target| target.s()), &judged, status, report.age_s));
    }
    let status = &report.status;
    table.notes.push(match status.socket_readings {
        0 => "No TCP socket was limited.".to_owned(),
        all => format!(
            "The kernel confirmed the rate at {} of {all} readings of limited TCP sockets.",
            status.socket_readings_verified
        ),
    });
    if let Some(capacity) = status.capacity_bit_per_s {
        table.notes.push(format!("Payload that the link carries: {}.", quantity(Some(capacity), "bit/s")));
    }
    if let Some(hosts) = &status.hosts {
        table.notes.push(match hosts.state {
            LeaseState::Leased => {
                format!("{} granted this host its rates, as one of {}.", hosts.coordinator, hosts.hosts)
            }
            LeaseState::Alone => format!("At its end, this host followed no coordinator: {}.", why(hosts)),
        });
    }
    table.notes.extend(status.problems.iter().cloned());
    table.without_unknown_columns()
}

/// Why a host followed no coordinator at its end.
pub(super) fn why(hosts: &HostsStatus) -> &str {
    hosts.problem.as_deref().map_or("its lease ended", |problem| problem.trim_end_matches('.'))
}

fn row(target_s: Option<f64>, judged: &ClassJudgement, status: &ClassStatus, age_s: f64) -> Vec<Cell> {
    let number = |value: Option<f64>| value.map_or(Cell::Unknown, Cell::from);
    let messages = (status.messages > 0).then_some(status.messages as f64);
    let predicted = judged.predicted_response_s.filter(|_| target_s.is_some());
    let sent = status.udp.as_ref().map(|udp| udp.sent_bytes as f64 * 8.0 / age_s);
    vec![
        status.name.as_str().into(),
        judged.verdict.name().into(),
        number(target_s),
        number(predicted),
        number(messages),
        number(messages.map(|all| 100.0 * status.in_time as f64 / all)),
        number(status.transfer_p99_ms.map(|ms| ms / 1e3)),
        number(sent),
    ]
}
