//! `kagiri tune list`: the settings of this host.

use std::borrow::Cow;

use clap::Args;
use report::terminal::words_table;
use report::text::clipped;
use serde::{Deserialize, Serialize};
use tune::catalogue::{SETTINGS, find};
use tune::kernel::{Kernel, Reading, absence};
use tune::setting::Setting;
use web::client::Client;

use super::COLUMNS;
use super::assignment::LISTED_BY;
use super::record::{self, Record};
use crate::commands::qos::fitted;
use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::output;
use crate::remote::failure;

/// The answer has 15 lines: two of the head, one for what is left out, and these.
const SHOWN: usize = 12;
const CELL_COLUMNS: usize = 20;

/// Show the settings.
#[derive(Args)]
#[command(after_help = "Values are those of this network namespace. Scope 'host': exists once, and can be \
    changed outside of network namespaces only. Scope 'socket': an option that only the program sets. \
    Needs no root.\n\n\
    Examples:\n  \
    kagiri tune list --full\n  \
    kagiri tune list tcp_wmem")]
pub struct List {
    /// One setting: meaning, value, kernel default, range, scope
    name: Option<String>,
    /// Print all settings
    #[arg(long)]
    full: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ListDocument {
    settings: Vec<Entry>,
    /// What running 'tune set' have set in this namespace.
    set: Vec<Record>,
}

/// Of this host, or as a console says it.
#[derive(Serialize, Deserialize)]
struct Entry {
    name: Cow<'static, str>,
    meaning: Cow<'static, str>,
    unit: Cow<'static, str>,
    range: String,
    kernel_default: Cow<'static, str>,
    scope: Cow<'static, str>,
    affects: Cow<'static, str>,
    /// `null`: it has none here.
    value: Option<String>,
    /// Why it has none.
    absent: Option<String>,
}

impl Entry {
    fn new(setting: &'static Setting, kernel: &Kernel, available: &[String]) -> Self {
        let (value, absent) = match kernel.read(setting) {
            Reading::Value(value) => (Some(value), None),
            Reading::NotHere => (None, Some(absence(setting).to_owned())),
            Reading::Failed(why) => (None, Some(why)),
        };
        Self {
            name: setting.name.into(),
            meaning: setting.meaning.into(),
            unit: setting.unit.into(),
            range: setting.range(available),
            kernel_default: setting.default.into(),
            scope: setting.scope.name().into(),
            affects: setting.affects.name().into(),
            value,
            absent,
        }
    }

    fn row(&self) -> Vec<String> {
        let short = self.name.rsplit('.').next().unwrap_or(&self.name);
        let value = self.value.as_deref().unwrap_or(base::format::UNKNOWN);
        let cells = [short, value, &self.kernel_default];
        let cells = cells.map(|cell| clipped(cell, CELL_COLUMNS.max(if cell == short { 26 } else { 0 })));
        cells.into_iter().chain([self.scope.to_string()]).collect()
    }

    /// All about it, in lines.
    fn details(&self) -> String {
        let value = self.value.clone().or_else(|| self.absent.clone()).unwrap_or_default();
        let unit = |text: &str| match &*self.unit {
            "" => text.to_owned(),
            unit => format!("{text} {unit}"),
        };
        let lines = [
            ("  value    ", if self.value.is_some() { unit(&value) } else { value }),
            ("  default  ", unit(&self.kernel_default)),
            ("  allowed  ", self.range.clone()),
            ("  scope    ", format!("{}; a change affects {}", self.scope, self.affects)),
        ];
        let style = report::terminal::Style { width: COLUMNS, ..output::style() };
        let head = style.wrapped("", &format!("{}: {}", self.name, self.meaning));
        head + &lines.map(|(lead, text)| style.wrapped(lead, &text)).concat()
    }
}

impl List {
    pub fn run(self) -> Outcome {
        let kernel = Kernel::live();
        let available = kernel.congestion_controls();
        let chosen: Vec<&'static Setting> = match self.chosen()? {
            Some(one) => vec![one],
            None => SETTINGS.iter().collect(),
        };
        let settings: Vec<Entry> =
            chosen.iter().map(|setting| Entry::new(setting, &kernel, &available)).collect();
        let namespace = record::own_namespace()?;
        // Only root may read the records.
        let set = record::running().unwrap_or_default();
        let set: Vec<Record> = set.into_iter().filter(|record| record.namespace == namespace).collect();
        self.present(&ListDocument { settings, set })
    }

    /// The settings of a console's host.
    pub fn run_on(self, console: &Client) -> Outcome {
        let chosen = self.chosen()?;
        let mut settings: Vec<Entry> = console.settings().map_err(failure)?;
        settings.retain(|entry| chosen.is_none_or(|one| entry.name == one.name));
        if let (Some(one), true) = (chosen, settings.is_empty()) {
            let (address, version) = (console.address(), &console.facts().version);
            return Err(Failure::runtime(format!(
                "console {address} does not know the setting {}: it runs kagiri {version}",
                one.name
            )));
        }
        let set = console.settings_set().map_err(failure)?;
        self.present(&ListDocument { settings, set })
    }

    /// The setting that is named, if one is.
    fn chosen(&self) -> Result<Option<&'static Setting>, Failure> {
        let unknown = |error| Failure::usage(format!("{error}{LISTED_BY}"));
        self.name.as_deref().map(find).transpose().map_err(unknown)
    }

    fn present(&self, document: &ListDocument) -> Outcome {
        let ListDocument { settings, set } = document;
        if self.json {
            output::print(&Document::new(document).text()?)?;
        } else if self.name.is_some() {
            output::print(&settings.iter().map(Entry::details).collect::<String>())?;
        } else {
            output::print(&answer(settings, set, self.full))?;
        }
        Ok(Code::Measured)
    }
}

fn answer(entries: &[Entry], set: &[Record], is_full: bool) -> String {
    let notes: Vec<String> = set
        .iter()
        .map(|record| format!("Process {} has set {} ({}).", record.pid, record.assignments(), record.until))
        .collect();
    let shown = if is_full { entries.len() } else { SHOWN.saturating_sub(notes.len()) };
    let rows: Vec<Vec<String>> = entries.iter().take(shown).map(Entry::row).collect();
    let style = report::terminal::Style { width: COLUMNS, ..output::style() };
    let table = words_table(&["setting", "value", "kernel default", "scope"], &rows, &style);
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    if entries.len() > shown {
        lines.push(format!("{} more: --full; 'kagiri tune list NAME' explains one.", entries.len() - shown));
    }
    lines.extend(notes);
    match is_full {
        true => lines.iter().map(|line| format!("{line}\n")).collect(),
        false => fitted(&lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let kernel = Kernel::live();
        SETTINGS.iter().map(|setting| Entry::new(setting, &kernel, &kernel.congestion_controls())).collect()
    }

    #[test]
    fn answer_fits_15_lines_of_80_columns_and_full_has_all() {
        let record = Record {
            pid: 1,
            start_ticks: 1,
            namespace: 1,
            settings: Vec::new(),
            until: "for 10min".to_owned(),
        };
        for set in [vec![], vec![record.clone(), record]] {
            let text = answer(&entries(), &set, false);
            assert!(text.lines().count() <= 15, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(text.contains("tcp_wmem") && text.contains("more: --full"), "{text}");
            assert_eq!(text.contains("has set"), !set.is_empty());
        }
        let full = answer(&entries(), &[], true);
        assert!(full.contains("SO_RCVBUF") && !full.contains("--full"), "{full}");
    }

    #[test]
    fn details_name_value_default_range_and_scope() {
        let all = entries();
        let wmem = all.iter().find(|entry| entry.name == "net.ipv4.tcp_wmem").unwrap();
        let text = wmem.details();
        for part in
            ["Send buffer", "value", "16384", "default", "allowed  three rising", "scope    namespace"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
