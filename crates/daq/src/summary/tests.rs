use super::super::report::{
    BuilderReport, Cause, CreditTrial, EventCounts, GroupClock, Incomplete, Ledger, SlowEvent, SourceSeen,
    SourceSent, SourcesReport, Steered,
};
use super::*;

fn reports() -> TrialReports {
    let mut builder = BuilderReport {
        hold_to_s: 2.0,
        events: EventCounts {
            offered: 110,
            vetoed: 9,
            triggered: 101,
            complete: 100,
            incomplete: 1,
            unfinished: 0,
        },
        ledger: Ledger {
            built: 300,
            in_incomplete: 2,
            late: 1,
            turned_away: [("payload_length".to_owned(), 4)].into(),
            ..Ledger::default()
        },
        fragments: 302,
        payload_bytes: 302 * 1024,
        wire_bytes: 302 * 1250,
        slow: vec![SlowEvent {
            event: 7,
            took_ns: 210_000_000,
            complete: true,
            source: 2,
            sent_after_ns: Some(120_000),
            arrived_after_ns: Some(209_900_000),
            repeats: 0,
            cause: Cause::TailLossProbe,
        }],
        causes: [(Cause::TailLossProbe, 1)].into(),
        incomplete: vec![Incomplete { event: 50, missing: 1, sources: vec![2] }],
        sources_seen: (0..3)
            .map(|source| SourceSeen {
                source,
                fragments: 100,
                delay_mean_us: Some(500.0),
                delay_p99_us: Some(900.0),
                last: 33,
                missed: u64::from(source == 2),
                connected: true,
                congestion_control: Some("cubic".to_owned()),
                ..SourceSeen::default()
            })
            .collect(),
        clocks: vec![GroupClock {
            group: "a1".to_owned(),
            sources: 3,
            source_range: Some((0, 2)),
            bound_ns: Some(9_000),
            ..Default::default()
        }],
        steered: Some(Steered { credit: 2, ..Steered::default() }),
        ..BuilderReport::default()
    };
    builder.completion.record_ns_times(3_100_000, 100);
    let source = |source, sent| SourceSent { source, sent, ..SourceSent::default() };
    let sources = vec![source(0, 101), source(1, 101), source(2, 101)];
    TrialReports::of_one(builder, vec![SourcesReport { sources, ..SourcesReport::default() }])
}

fn settings() -> DaqSettings {
    DaqSettings { sources: 3, link: "10Mbit/s".parse().ok(), ..DaqSettings::default() }
}

#[test]
fn headline_shows_rate_losses_vetoes_and_latency() {
    let headline = of(&settings(), &reports()).headline.unwrap();
    assert_eq!(
        headline,
        "3 sources: 50 events/s, 1 of 101 events incomplete, 8.18 % of the triggers vetoed, 99 % of the \
         complete ones within 3.1 ms, 15 % of what the link can carry"
    );
    let mut all = reports();
    all.hosts[0].builders[0].events =
        EventCounts { offered: 100, triggered: 100, complete: 100, ..EventCounts::default() };
    let headline = of(&DaqSettings { sources: 3, ..DaqSettings::default() }, &all).headline.unwrap();
    assert_eq!(headline, "3 sources: 50 events/s, all complete, 99 % of them within 3.1 ms");
    assert_eq!(of(&settings(), &TrialReports::default()).headline, None);
}

#[test]
fn tables_are_rectangular_and_balance_fragments() {
    let account = of(&settings(), &reports());
    for table in &account.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
    }
    let titles: Vec<_> = account.tables.iter().map(|table| table.title.as_str()).collect();
    for title in ["Events", "Times", "Why events took long", "Slowest events", "Incomplete events"] {
        assert!(titles.contains(&title), "{titles:?}");
    }
    let fragments = account.tables.iter().find(|table| table.title.starts_with("Fragments")).unwrap();
    let count =
        |name: &str| fragments.rows.iter().find(|row| row[0] == name.into()).map(|row| row[1].text(""));
    assert_eq!(
        (count("sent"), count("built"), count("lost")),
        (Some("303".into()), Some("300".into()), Some("0".into()))
    );
    assert_eq!(count("turned away: payload length"), Some("4".into()), "not part of the balance");
    let worst = account.tables.iter().find(|table| table.title.starts_with("Sources")).unwrap();
    assert_eq!(worst.rows[0][0], "2".into(), "the one that was missed comes first");
    let clocks = account.tables.iter().find(|table| table.title.starts_with("Clocks")).unwrap();
    assert_eq!(clocks.rows[0][1], "0-2".into(), "the sources that share a clock");
    assert_eq!(account.limit.map(|limit| limit.evidence.is_empty()), Some(false));
}

#[test]
fn credit_without_a_complete_event_has_no_time_and_the_gain_is_of_equal_rounds() {
    let tried = |credit, complete, lasted_s, ms: Option<f64>| CreditTrial {
        credit,
        events: 12,
        complete,
        lasted_s,
        events_per_s: f64::from(complete) / lasted_s,
        completion_p99_ms: ms,
        stalled: 2,
    };
    let credit = |granted, push| {
        let mut all = reports();
        all.hosts[0].builders[0].steered =
            Some(Steered { tried: vec![tried(4, 0, 2.0, None)], granted, push, ..Default::default() });
        let tables = of(&settings(), &all).tables;
        tables.into_iter().find(|table| table.title.starts_with("Credit search")).unwrap()
    };
    let measured = Some(tried(2, 12, 2.0, Some(5.0)));
    let table = credit(measured, Some(tried(3, 3, 2.0, Some(300.0))));
    assert_eq!(table.rows[0][3], base::outcome::Cell::Unknown, "no event completed: {:?}", table.rows);
    assert_eq!((&table.rows[1][0], &table.rows[2][0]), (&"compared: 2".into(), &"compared: push".into()));
    let said = table.notes.join("; ");
    let gain = "4 times the event rate of push (12 events in 2 s against 3 events in 2 s)";
    assert!(said.contains(gain), "{said}");
    let said = credit(measured, Some(tried(3, 0, 2.0, None))).notes.join("; ");
    assert!(said.contains("push completed no event"), "{said}");
}

#[test]
fn builder_that_never_held_has_no_row_of_zeros() {
    let mut all = reports();
    let never = BuilderReport { builder: 1, broke_off: Some("it failed".into()), ..BuilderReport::default() };
    all.hosts[0].builders.push(never.clone());
    let table = |all: &TrialReports, title: &str| {
        of(&settings(), all).tables.into_iter().find(|table| table.title == title)
    };
    for title in ["Events", "Maximum in progress"] {
        let rows = table(&all, title).unwrap().rows;
        assert_eq!((rows.len(), &rows[0][0]), (1, &"builder 0".into()), "{title}");
    }
    let none = TrialReports::of_one(never, Vec::new());
    for title in ["Events", "Maximum in progress", "Sources that events waited for"] {
        assert_eq!(table(&none, title), None, "{title}");
    }
}

#[test]
fn percentile_of_a_source_is_at_most_that_of_all_events() {
    let mut all = reports();
    all.hosts[0].builders[0].events.incomplete = 0;
    // Few events of the second builder are slow: fewer than 1 % of all.
    let seen = SourceSeen { source: 1, fragments: 1, delay_p99_us: Some(90_000.0), ..SourceSeen::default() };
    let mut other = BuilderReport { builder: 1, sources_seen: vec![seen], ..BuilderReport::default() };
    other.completion.record_ns(90_000_000);
    all.hosts[0].builders[0].completion.record_ns_times(3_100_000, 900);
    all.hosts[0].builders.push(other);
    let p99_s = all.merged(|builder| &builder.completion).percentile_ns(99.0).unwrap() as f64 / 1e3 / 1e6;
    let account = of(&settings(), &all);
    let table = account.tables.iter().find(|table| table.title.starts_with("Sources")).unwrap();
    let row = table.rows.iter().find(|row| row[0] == "1".into()).unwrap();
    assert_eq!(row[2], p99_s.into(), "{row:?}");
}

#[test]
fn summary_without_reports_is_empty() {
    let account = of(&settings(), &TrialReports::default());
    assert!(account.tables.is_empty() && account.limit.is_none(), "{account:?}");
}
