//! `kagiri fleet list`: lists the agents.

use clap::Args;
use fleet::coordinator::Coordinator;
use serde_json::{Value, json};

use crate::exit::{Code, Failure, Outcome};
use crate::hosts::HostArgs;
use crate::{hosts, output};

/// List the agents that join.
#[derive(Args)]
#[command(
    after_help = "Waits until agents have joined and no other follows for 1 s, or until --wait is over.\n\n\
    Examples:\n  \
    kagiri fleet list --listen tls/0.0.0.0:7447 --credentials DIR\n  \
    kagiri fleet list --lab home-server --json"
)]
pub struct List {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hosts: HostArgs,
}

impl List {
    pub fn run(self) -> Outcome {
        self.hosts.check_credentials()?;
        let mut coordinator = self.hosts.coordinator("list".to_owned())?;
        coordinator.compare_clocks(self.hosts.wait().duration())?;
        let all = described(&coordinator)?;
        if all.is_empty() && !self.json {
            let reason = hosts::connect_failure().map(|reason| format!("; {reason}")).unwrap_or_default();
            return Err(Failure::runtime(format!(
                "no agent joined {} within {} (--wait); {}{reason}",
                self.hosts.meeting_place(),
                self.hosts.wait(),
                self.hosts.invitation()
            )));
        }
        match self.json {
            true => output::print(&(serde_json::to_string_pretty(&json!({ "agents": all }))? + "\n"))?,
            false => print(&all)?,
        }
        Ok(Code::Measured)
    }
}

fn described(coordinator: &Coordinator) -> Result<Vec<Value>, Failure> {
    let mut all = coordinator.describe_all(std::time::Duration::from_secs(5))?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let line = |one: &fleet::protocol::Description| {
        let clock = coordinator.clock(&one.name);
        json!({
            "name": one.name,
            "address": one.address,
            "kagiri": one.version,
            "kernel": one.kernel,
            "congestion_control": one.congestion_control,
            "clock_bound_us": clock.map(|(_, bound_ns)| bound_ns as f64 / 1e3),
            "clock_offset_ns": clock.map(|(offset_ns, _)| offset_ns),
            "busy": one.busy,
        })
    };
    Ok(all.iter().map(line).collect())
}

fn print(all: &[Value]) -> Result<(), Failure> {
    let text = |value: &Value| match value {
        Value::Null => base::format::UNKNOWN.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), base::format::number),
        other => other.to_string(),
    };
    let columns = [
        ("name", "host"),
        ("address", "address"),
        ("kagiri", "kagiri"),
        ("kernel", "kernel"),
        ("clock_bound_us", "clock error, us"),
        ("busy", "busy with"),
    ];
    let rows: Vec<_> = all.iter().map(|one| columns.map(|(key, _)| text(&one[key])).to_vec()).collect();
    let heads = columns.map(|(_, head)| head).to_vec();
    output::print(&report::terminal::words_table(&heads, &rows, &output::style()))
}
