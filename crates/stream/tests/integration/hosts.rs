//! A load shared out over hosts: which players there are does not depend on where they are.

use crate::common::hold;
use std::collections::{BTreeMap, BTreeSet};

use base::outcome::Phase;
use base::part::{Endpoints, PartSpec};
use base::placement::{Placement, Wish, Wishes};
use base::units::Span;
use base::verdict::Verdict;
use base::workload::TrialContext;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use stream::Stream;
use stream::settings::{Depth, StreamSettings};
use stream::viewer::part_settings::ViewerSettings;
use workload::Workload;
use workload::part::{Peers, Reports};

fn placement(server: &str, viewers: &str) -> Placement {
    let wish = |hosts: &str| Wish { hosts: hosts.into(), count: None, at_least: None };
    let wishes = Wishes::from([("server".to_owned(), wish(server)), ("viewers".to_owned(), wish(viewers))]);
    let hosts = ["nas", "pc-1", "pc-2", "pc-3"].map(str::to_owned);
    Placement::of(&wishes, &hosts)
}

const FILM: &str = "/films/film.ts";

fn offered(load: u64, settings: Value, url: &str, placement: &Placement) -> Vec<PartSpec> {
    let peers = Endpoints::from([(
        "server".to_owned(),
        json!({"content_url": url, "content_path": FILM, "stored_path": FILM, "watch": {}}),
    )]);
    let trial = TrialContext { load, phase: Phase::Single, hold: Span::from_s(1), seed: 3 };
    let settings = StreamSettings::read(settings.clone()).unwrap();
    Stream.offering(&settings, &trial, &Peers::new(&peers), placement).unwrap()
}

fn read(spec: &PartSpec) -> ViewerSettings {
    ViewerSettings::deserialize(&spec.settings).unwrap()
}

#[test]
fn part_names_contain_host_if_several() {
    let names = |load, server: &str, viewers: &str| -> Vec<String> {
        let specs = offered(load, json!({"cold": true}), "http://nas/film.ts", &placement(server, viewers));
        specs.into_iter().map(|spec| format!("{} on {}", spec.name, spec.host)).collect()
    };
    assert_eq!(names(5, "nas", "pc-1"), ["viewers on pc-1", "cache on nas"]);
    assert_eq!(
        names(5, "nas", "pc-*"),
        ["viewers@pc-1 on pc-1", "viewers@pc-2 on pc-2", "viewers@pc-3 on pc-3", "cache on nas"]
    );
    assert_eq!(names(2, "nas", "pc-*"), ["viewers@pc-1 on pc-1", "viewers@pc-2 on pc-2", "cache on nas"]);
}

#[test]
fn content_path_is_passed_only_to_its_host() {
    let specs = offered(4, json!({}), "http://nas/film.ts", &placement("pc-2", "pc-*"));
    let paths: Vec<_> = specs.iter().map(|spec| read(spec).content_path.is_some()).collect();
    assert_eq!(paths, [false, true, false]);
}

/// What a player is and does, apart from where.
fn players(specs: &[PartSpec]) -> BTreeSet<(u64, bool)> {
    let of = |spec: &PartSpec| {
        let settings = read(spec);
        let deep = |number| (number, settings.depth_of(number) == Depth::Parse);
        settings.numbers().map(deep).collect::<Vec<_>>()
    };
    specs.iter().flat_map(of).collect()
}

proptest! {
    #[test]
    fn load_is_spread_evenly_and_one_more_adds_one_stream(
        load in 1..200_u64,
        hosts in 1..4_usize,
        parsing in 0..5_u64,
    ) {
        let at = placement("nas", &["pc-1", "pc-2", "pc-3"][..hosts].join(","));
        let specs = |load| offered(load, json!({"player": {"parsing": parsing}}), "http://nas/film.ts", &at);
        let (some, more) = (specs(load), specs(load + 1));
        let counts: Vec<u64> = some.iter().map(|spec| read(spec).streams).collect();
        prop_assert_eq!(counts.iter().sum::<u64>(), load);
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        let (some_players, more_players) = (players(&some), players(&more));
        prop_assert_eq!(some_players.len() as u64, load);
        prop_assert!(some_players.is_subset(&more_players));
        let added: Vec<u64> = more_players.difference(&some_players).map(|(number, _)| *number).collect();
        prop_assert_eq!(added, [load]);
        // Each player stays on its host, which has one that parses if there is any.
        for spec in &some {
            let same = more.iter().find(|other| other.name == spec.name).unwrap();
            let numbers: BTreeSet<u64> = read(same).numbers().collect();
            prop_assert!(read(spec).numbers().all(|number| numbers.contains(&number)));
            let parses = |number: &u64| read(spec).depth_of(*number) == Depth::Parse;
            prop_assert_eq!(read(spec).numbers().filter(parses).count() > 0, parsing > 0);
        }
        // All groups hold at one moment.
        let windows: BTreeSet<u64> = some.iter().map(|spec| read(spec).hold_after_ns()).collect();
        prop_assert_eq!(windows.len(), 1);
    }
}

/// Two groups of one load at a real server, as on two hosts.
#[test]
fn two_groups_are_judged_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = hold::served(directory.path(), 6.0);
    let settings = json!({"depth": "discard", "player": {"warm_up": "2s"}});
    let specs = offered(3, settings.clone(), &url, &placement("nas", "pc-1,pc-2"));
    let attempt = || {
        let mut parts: Vec<_> = specs.iter().map(|spec| hold::part(&spec.settings)).collect();
        for part in &mut parts {
            part.prepare(&Endpoints::new(), &hold::host()).unwrap();
        }
        let at_ns = sys::clock::monotonic_ns() + 1_000_000_000;
        for part in &mut parts {
            part.start(at_ns).unwrap();
        }
        let mut reports = BTreeMap::new();
        for (part, spec) in parts.iter_mut().zip(&specs) {
            hold::wait(part.as_mut());
            reports.insert(spec.name.clone(), part.stop().unwrap());
        }
        let holds: Vec<&Value> = reports.values().map(|report| &report["hold_s"]).collect();
        // 3 s until all have connected, and the warm-up.
        assert!(holds.iter().all(|hold| (hold[0].as_f64().unwrap() - 5.0).abs() < 0.5), "{holds:?}");
        let trial = TrialContext { load: 3, phase: Phase::Single, hold: Span::from_s(1), seed: 3 };
        let judgement = Stream
            .judge(&StreamSettings::read(settings.clone()).unwrap(), &trial, &Reports::new(reports))
            .unwrap();
        ((), judgement)
    };
    let ((), judgement) = hold::until_valid(attempt);
    assert_eq!((judgement.verdict, &judgement.reasons), (Verdict::Pass, &Vec::new()));
    assert_eq!(judgement.metrics["frames_played"], Some(75.0));
    assert_eq!(judgement.metrics["streams_parsed"], Some(2.0), "one on each host");
    let playing = judgement.series.iter().find(|series| series.name == "streams_playing").unwrap();
    assert_eq!(playing.max(5.0, 6.0), Some(3.0));
}
