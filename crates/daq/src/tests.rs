use std::collections::BTreeMap;

use base::outcome::Phase;
use base::part::Endpoints;
use base::placement::{Wish, Wishes};
use serde_json::{Value, json};

use super::*;

fn placed(wishes: &[(&str, &str)]) -> Placement {
    let wish = |hosts: &str| Wish { hosts: hosts.to_owned(), count: None, at_least: None };
    let wishes: Wishes = wishes.iter().map(|(role, hosts)| ((*role).to_owned(), wish(hosts))).collect();
    let hosts: Vec<String> = wishes.values().flat_map(|wish| wish.spelled_out().unwrap()).collect();
    Placement::of(&wishes, &hosts)
}

fn trial(load: u64) -> TrialContext {
    TrialContext { load, phase: Phase::Single, hold: Span::from_s(3), seed: 7 }
}

fn read(settings: Value) -> DaqSettings {
    DaqSettings::read(settings).unwrap()
}

fn offered(settings: &DaqSettings, load: u64, placement: &Placement) -> Vec<PartSpec> {
    Daq.offering(settings, &trial(load), &Peers::new(&Endpoints::new()), placement).unwrap()
}

#[test]
fn parts_on_one_host_have_plain_names() {
    let settings = read(json!({ "sources": 5 }));
    let here = Placement::default();
    let standing = Daq.standing(&settings, &here).unwrap();
    assert_eq!((standing.len(), standing[0].name.as_str()), (1, "port"));
    assert_eq!(standing[0].settings["sources_elsewhere"], false);
    let parts = offered(&settings, 5, &here);
    let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["builder", "sources"]);
    assert_eq!((&parts[1].settings["ports"], &parts[1].settings["sources"]), (&json!(["port"]), &json!(5)));
}

#[test]
fn sources_are_split_evenly_and_front_ends_have_highest_numbers() {
    let settings = read(json!({ "sources": 12, "front_ends": 2, "builders": 2 }));
    let placement = placed(&[("builder", "e-[1-2]"), ("sources", "s-[1-3]")]);
    let standing = Daq.standing(&settings, &placement).unwrap();
    assert_eq!(standing.iter().map(|part| part.name.as_str()).collect::<Vec<_>>(), ["port@e-1", "port@e-2"]);
    assert!(standing.iter().all(|part| part.settings["sources_elsewhere"] == true));
    let parts = offered(&settings, 12, &placement);
    let of = |kind: &str, key: &str| -> Vec<u64> {
        parts
            .iter()
            .filter(|part| part.kind == kind)
            .map(|part| part.settings[key].as_u64().unwrap())
            .collect()
    };
    assert_eq!(of("daq.builder", "builder_first"), [0, 2]);
    assert_eq!(of("daq.builder", "builders_all"), [4, 4]);
    assert_eq!(of("daq.sources", "source_first"), [0, 4, 7]);
    assert_eq!(of("daq.sources", "sources"), [4, 3, 3]);
    let few = read(json!({ "sources": 2 }));
    let hosts = offered(&few, 2, &placement).iter().filter(|part| part.kind == "daq.sources").count();
    assert_eq!(hosts, 2, "a host without sources has no part");
}

#[test]
fn searched_setting_is_set_to_the_load() {
    let searched = |vary: &str| {
        let settings = json!({
            "search": { "vary": vary, "max": 100 },
            "objective": { "dead_time_percent_max": 1.0 },
        });
        let settings = read(settings);
        let parts = offered(&settings, 50, &Placement::default());
        (Daq.load_unit(&settings), parts[0].settings["settings"].clone(), Daq.keeps_interrupted(&settings))
    };
    let (unit, settings, is_kept) = searched("sources");
    assert_eq!((unit, &settings["sources"], is_kept), ("sources", &json!(50), false));
    let (unit, settings, _) = searched("rate");
    assert_eq!((unit, &settings["triggers"]), ("events/s", &json!("50/s")));
    let (unit, settings, _) = searched("size");
    assert_eq!((unit, &settings["size"]), ("bytes", &json!("50B")));
    assert!(Daq.keeps_interrupted(&read(json!({}))));
}

#[test]
fn builders_on_several_hosts_require_modulo() {
    let settings = read(json!({ "builders": 2, "builder_choice": "least_outstanding" }));
    assert!(Daq.standing(&settings, &Placement::default()).is_ok());
    let error = Daq.standing(&settings, &placed(&[("builder", "a,b")])).unwrap_err();
    assert!(error.usage && error.message.contains("builder_choice"), "{}", error.message);
}

#[test]
fn reports_of_both_roles_are_read_by_part_name() {
    let settings = read(json!({ "sources": 2 }));
    let builder = json!({ "builders": [{ "hold_to_s": 1.0, "events": { "triggered": 4, "complete": 4 } }] });
    let reports: BTreeMap<String, Value> = [
        ("builder".to_owned(), builder),
        ("sources@a".to_owned(), json!({ "connect_s": 0.25 })),
        ("sampler".to_owned(), json!({})),
    ]
    .into();
    let judgement = Daq.judge(&settings, &trial(2), &Reports::new(reports)).unwrap();
    assert_eq!(judgement.metrics["events_per_s"], Some(4.0));
    assert_eq!(judgement.metrics["connect_s"], Some(0.25));
    assert!(Daq.judge(&settings, &trial(2), &Reports::new(BTreeMap::new())).is_err());
    let strange = [("builder".to_owned(), json!([1]))].into();
    let error = Daq.judge(&settings, &trial(2), &Reports::new(strange)).unwrap_err();
    assert!(error.message.contains("report of builder"), "{}", error.message);
}

#[test]
fn port_buffer_limits_from_one_lost_event_in_a_hundred() {
    for (share, is_used_up) in [(0.009, false), (0.01, true), (0.02, true)] {
        assert_eq!(PORT_BUFFER.rule.is_used_up(share), is_used_up, "{share}");
    }
}

#[test]
fn trial_time_counts_warm_up_front_ends_and_events() {
    let rate = json!({ "vary": "rate", "max": 100 });
    let dead_time = json!({ "dead_time_percent_max": 1.0 });
    for (settings, hold, warm_up_s, wait_s) in [
        (json!({ "omit": "0s" }), HoldTime::OfPlan, 0, 0),
        (json!({ "omit": "90s", "front_ends": 3 }), HoldTime::OfPlan, 90, 30),
        (json!({ "omit": "0s", "events": 600 }), HoldTime::Unknown, 0, 0),
        (json!({ "omit": "0s", "events": 600, "triggers": "60/s" }), HoldTime::S(10.0), 0, 0),
        (json!({ "omit": "0s", "events": 600, "triggers": "bursts 10 6/s" }), HoldTime::S(10.0), 0, 0),
        (json!({ "omit": "0s", "events": 600, "triggers": "file x" }), HoldTime::Unknown, 0, 0),
        (
            json!({ "omit": "0s", "events": 600, "search": rate, "objective": dead_time }),
            HoldTime::AtLoad(600.0),
            0,
            0,
        ),
    ] {
        let expected = TrialTime {
            hold,
            warm_up: Span::from_s(warm_up_s),
            wait_max: Span::from_s(wait_s),
            beyond: None,
        };
        assert_eq!(Daq.trial_time(&read(settings.clone())), expected, "{settings}");
    }
}
