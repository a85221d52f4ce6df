//! Runs of single loads whose findings say what a capacity cannot: four transfers, three repetitions each.

use base::metric::{Better, MetricSpec};
use base::objective::Requirement;
use base::outcome::{Account, Cell, Limit, LoadMetric, Phase, Resource, Run, Table};
use base::verdict::Verdict;
use base::workload::{Panel, Presentation};

use crate::simulate::{self, CPU_LIMITED, Server};
use report::html::{Extras, page};
use report::terminal::{Style, differences, explained, summary};
use report::words;

const PLAIN: Style = Style { colour: false, width: 100, unicode: true };
const SPECS: &[MetricSpec] = &[
    MetricSpec {
        name: "goodput_bit_per_s",
        unit: "bit/s",
        better: Better::Higher,
        meaning: "payload that arrived",
    },
    MetricSpec { name: "sent_bytes", unit: "B", better: Better::Neither, meaning: "payload that was sent" },
];
static PRESENTATION: Presentation = Presentation {
    panels_above: &[Panel { title: "goodput up", series: &["goodput_up_bit_per_s"], has_stalls: false }],
    ..Presentation::DEFAULT
};

fn table(title: &str, head: &[&str], row: &[&str], note: &str) -> Table {
    let columns: Vec<_> = head.iter().map(|title| (*title, "")).collect();
    let row = row.iter().map(|cell| Cell::from(*cell)).collect();
    Table { rows: vec![row], notes: vec![note.into()], ..Table::new(title, &columns) }
}

/// Four ways to move bytes.
fn run() -> Run {
    const ONE: &[(u32, Phase)] = &[(1, Phase::Single)];
    let server = |name| Server { name, loads: ONE, repetitions: 3, ..CPU_LIMITED };
    let mut run = simulate::run("two hosts", &["TCP up", "TCP down", "UDP up", "UDP down"].map(server));
    for (index, variant) in run.variants.iter_mut().enumerate() {
        let rate = 940e6 + 10e6 * index as f64;
        let of = |metric: &str, values: [f64; 3]| LoadMetric { metric: metric.into(), values: values.into() };
        variant.findings = vec![of("goodput_bit_per_s", [rate, rate - 2e6, rate + 1e6])];
        if index > 1 {
            variant.findings.push(of("loss_ratio", [0.0, 0.001, 0.002]));
        }
        let way = if index % 2 == 0 { "up" } else { "down" };
        let goodput = format!("{:.1} Mbit/s", rate / 1e6);
        variant.account = Account {
            headline: Some(format!("Moved {goodput} {way}")),
            tables: vec![
                table("Bytes", &["way", "goodput"], &[way, &goodput], "by write"),
                table(
                    &format!("Calls of the sender {way}"),
                    &["call", "calls"],
                    &["send", "11490"],
                    "1 thread",
                ),
            ],
            ..Account::default()
        };
        variant.limit = Limit { resource: Resource::Network, ..variant.limit.clone() };
        variant.considerations = vec!["What would help: a faster link, or several links.".into()];
        variant.saturation.clear();
    }
    run.requirements = vec![Requirement {
        requirement: "goodput>=1Tbit/s".into(),
        measured: Some(938e6),
        held: false,
        unknown: None,
    }];
    for (number, trial) in run.trials.iter_mut().enumerate() {
        let index = number % 4;
        let rate = run.variants[index].findings[0].values[number / 4];
        trial.metrics.insert("goodput_bit_per_s".into(), Some(rate));
        trial.metrics.insert("sent_bytes".into(), Some(1e9 + index as f64));
        trial.series[5].name = "goodput_up_bit_per_s".into();
    }
    run
}

#[test]
fn terminal_shows_single_loads_side_by_side() {
    let text = summary(&run(), &Extras { specs: SPECS, ..Extras::default() }, PLAIN, None);
    let table: Vec<&str> = text.lines().skip_while(|line| !line.contains("repetitions")).take(7).collect();
    for said in ["goodput", "loss", "Mbit/s", "938.0 to 941.0", "+1.1 %", "network (confirmed)"] {
        assert!(table.iter().any(|line| line.contains(said)), "{said}\n{text}");
    }
    assert!(!table.join("\n").contains("capacity"), "{text}");
    assert!(text.contains("TCP up: moved 940.0 Mbit/s up (the median trial of 3)"), "{text}");
    assert!(text.contains("not met (measured 938 Mbit/s)"), "{text}");
    assert!(!text.contains("--max"), "{text}");
}

#[test]
fn failed_transfer_shows_reason_beside_result() {
    let mut run = run();
    run.variants.truncate(1);
    run.trials.retain(|trial| trial.variant == "TCP up");
    run.trials[2].verdict = Verdict::Fail;
    run.trials[2].reasons = vec!["940.0 of the requested 2000.0 Mbit/s up arrived".into()];
    let said = words::carries(&run, &run.variants[0]);
    let expected = "Moved 940.0 Mbit/s up (the median trial of 3). Failed in 1 of 3 trials: 940.0 of the \
                    requested 2000.0 Mbit/s up arrived.";
    assert_eq!(said, expected);
}

#[test]
fn page_shows_metrics_of_single_loads_instead_of_capacity() {
    let page = page(&run(), &Extras { specs: SPECS, presentation: &PRESENTATION, ..Extras::default() });
    for said in [
        "Goodput of every variant",
        "950 Mbit/s (n = 3)",
        "948 to 951 Mbit/s",
        "goodput up (Mbit/s)",
        "measured</th>",
        "938 Mbit/s",
    ] {
        assert!(page.contains(said), "{said}");
    }
    for absent in ["or more", "Capacity of", "<h2>Verdicts"] {
        assert!(!page.contains(absent), "{absent}");
    }
    // Tables of one form are one, in which the variants stand below one another.
    for title in ["Bytes", "Calls of the sender up", "Calls of the sender down"] {
        assert_eq!(page.matches(&format!("<h3>{title}</h3>")).count(), 1, "{title}");
    }
    assert!(page.contains("<p class=\"caption\">By write</p>"), "a note of all needs no name");
    assert!(page.contains("TCP up, UDP up: 1 thread"), "a note of some has theirs");
}

#[test]
fn comparison_starts_with_the_headline_metric() {
    let text = differences(&store::compare::compare(&[run()], SPECS), PLAIN);
    let line = text.lines().find(|line| line.starts_with("Goodput: ")).expect("its line");
    assert_eq!(line, "Goodput:  950 Mbit/s (n = 3) against 940 Mbit/s (n = 3), +1.1 %: better");
    assert!(!text.contains("Capacity") && !text.contains("sent_bytes"), "{text}");
}

#[test]
fn stored_run_is_explained_with_evidence_and_advice() {
    let text = explained(&run(), PLAIN);
    assert_eq!(text.matches("What would help: a faster link").count(), 4, "{text}");
    assert_eq!(text.matches("Evidence:  - ").count(), 4, "{text}");
    assert!(text.contains("Limited by network (confirmed)") && text.contains("Doubt: "), "{text}");
}
