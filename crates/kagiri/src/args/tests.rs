//! Flags of the workloads.

use clap::Parser;
use daq::settings::DaqSettings;
use exchange::settings::ExchangeSettings;
use files::ageing::settings::AgeingSettings;
use files::settings::FilesSettings;
use serde_json::{Value, json};
use stream::settings::StreamSettings;
use transfer::settings::TransferSettings;
use workload::settings::{Settings, declarations, page};

use super::WorkloadArgs;
use crate::cli::Cli;
use crate::exit::Failure;

#[derive(Parser)]
struct Command<S: Settings> {
    #[command(flatten)]
    settings: WorkloadArgs<S>,
}

/// The arguments of a line without quotes; `+` stands for a space within an argument.
fn args<S: Settings>(line: &str) -> WorkloadArgs<S> {
    let words = ["kagiri"].into_iter().chain(line.split_whitespace());
    let words = words.map(|word| word.replace('+', " "));
    match Command::<S>::try_parse_from(words) {
        Ok(command) => command.settings,
        Err(error) => panic!("{line}: {error}"),
    }
}

fn given<S: Settings>(line: &str) -> Value {
    args::<S>(line).given().clone()
}

fn refused<S: Settings>(line: &str) -> String {
    match args::<S>(line).resolve("daq") {
        Err(Failure::Usage(problem)) => problem,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn only_given_settings_are_set() {
    for (line, expected) in [
        ("", json!({})),
        (
            "--sources 10 --size 2KiB --triggers 60/s --search rate --max 500 --no-checksum --dead-time-max \
             2",
            json!({
                "sources": 10, "size": "2KiB", "triggers": "60/s", "checksum": false,
                "search": { "vary": "rate", "max": 500 }, "objective": { "dead_time_percent_max": 2.0 },
            }),
        ),
        ("--size uniform+1KiB..4KiB", json!({ "size": "uniform 1KiB..4KiB" })),
    ] {
        assert_eq!(given::<DaqSettings>(line), expected);
    }
    for (line, expected) in [
        ("", json!({})),
        ("nas --rr --spin", json!({ "host": "nas", "requests": { "size": "1B", "waiting": "spin" } })),
        ("--protocol udp --search", json!({ "protocol": "udp", "search": { "max": "100Gbit/s" } })),
        ("--rr 5B --answer-size 1KiB", json!({ "requests": { "size": "5B", "answer_size": "1KiB" } })),
    ] {
        assert_eq!(given::<TransferSettings>(line), expected);
    }
    for (line, expected) in [
        ("http://nas/x.ts --ramp-down", json!({ "url": "http://nas/x.ts", "ramp_down": true })),
        ("--cbr --server nginx", json!({ "server": { "kind": "nginx" }, "content": { "cbr": true } })),
        ("--player-threads 3", json!({ "player": { "threads": 3 } })),
    ] {
        assert_eq!(given::<StreamSettings>(line), expected);
    }
}

#[test]
fn sizes_and_percents_are_read() {
    let settings =
        args::<DaqSettings>("--search size --max 64KiB --dead-time-max 1%").resolve("daq").unwrap();
    assert_eq!(settings["search"]["max"].as_u64(), Some(65_536));
    assert_eq!(settings["objective"]["dead_time_percent_max"].as_f64(), Some(1.0));
    for what in ["sources", "rate"] {
        let line = format!("--search {what} --dead-time-max 1% --max");
        assert!(args::<DaqSettings>(&format!("{line} 64KiB")).resolve("daq").is_err());
        assert!(args::<DaqSettings>(&format!("{line} 64")).resolve("daq").is_ok());
    }
    assert!(args::<DaqSettings>("--search size --max 64KiB").resolve("daq").is_ok());
}

/// The flags that scripts rely on, older spellings, and the letters of iperf3.
#[test]
fn flags_of_scripts_are_accepted() {
    for (line, key, value) in [
        ("--bitrate 25Mbit/s", "bitrate", json!("25Mbit/s")),
        ("--max 7", "max", json!(7)),
        ("--hold 10s", "hold", json!("10s")),
        ("--time 10s", "hold", json!("10s")),
        ("--time 10", "hold", json!("10s")),
        ("--search-hold 2s", "search_hold", json!("2s")),
        ("--streams 3", "streams", json!(3)),
        ("--depth parse", "depth", json!("parse")),
        ("--codec h264", "content.codec", json!("h264")),
        ("--congestion cubic", "server.congestion_control", json!("cubic")),
    ] {
        assert_eq!(args::<StreamSettings>(line).get(key), Some(&value), "{line}");
    }
    for (line, key, value) in [
        ("--proto udp", "protocol", json!("udp")),
        ("--protocol udp", "protocol", json!("udp")),
        ("-u", "protocol", json!("udp")),
        ("--direction both", "direction", json!("both")),
        ("-R", "direction", json!("down")),
        ("--flows 3", "flows", json!(3)),
        ("--streams 3", "flows", json!(3)),
        ("-P 3", "flows", json!(3)),
        ("--time 5s", "time", json!("5s")),
        ("-t 5s", "time", json!("5s")),
        ("--bytes 16MiB", "bytes", json!("16MiB")),
        ("-n 16MiB", "bytes", json!("16MiB")),
        ("--mode discard", "mode", json!("discard")),
        ("--rr", "requests.size", json!("1B")),
        ("--requests 2B", "requests.size", json!("2B")),
        ("--size 1470B", "size", json!("1470B")),
        ("-l 1470B", "size", json!("1470B")),
        ("-b 1Gbit/s", "rate", json!("1Gbit/s")),
        ("-w 1MiB", "window", json!("1MiB")),
        ("-i 1s", "interval", json!("1s")),
        ("-Z", "engine", json!("splice")),
        ("--congestion reno", "congestion_control", json!("reno")),
        ("--congestion-control reno", "congestion_control", json!("reno")),
        ("--search --loss-max 1", "search.loss_percent_max", json!(1.0)),
        ("--rr --requests-per-s 5", "requests.rate_per_s", json!(5.0)),
        ("--under-load", "under_load", json!("2s")),
        ("--under-load 500ms", "under_load", json!("500ms")),
    ] {
        assert_eq!(args::<TransferSettings>(line).get(key), Some(&value), "{line}");
    }
    for (line, key, value) in [
        ("--sources 8", "sources", json!(8)),
        ("--size 1KiB", "size", json!("1KiB")),
        ("--events 9", "events", json!(9)),
        ("--window 4", "window", json!(4)),
        ("--pattern grant", "pattern", json!("grant")),
        ("--proto udp", "protocol", json!("udp")),
        ("--congestion reno", "congestion_control", json!("reno")),
        ("--drop-orders 1", "drop_orders_percent", json!(1.0)),
        ("--p99-max 100ms", "objective.completion_p99_max", json!("100ms")),
    ] {
        assert_eq!(args::<DaqSettings>(line).get(key), Some(&value), "{line}");
    }
    assert!(Cli::try_parse_from(["kagiri", "transfer", "nas", "-p", "5202"]).is_ok());
    assert!(Cli::try_parse_from(["kagiri", "stream", "--no-ramp-down"]).is_ok());
}

/// What has a unit is left as it is.
#[test]
fn bare_numbers_are_read_as_iperf3_reads_them() {
    for (line, key, value) in [
        ("-t 10", "time", json!("10s")),
        ("--omit 0.5", "omit", json!("0.5s")),
        ("-i 0", "interval", Value::Null),
        ("-n 10M", "bytes", json!("10MiB")),
        ("-n 5MB", "bytes", json!("5MB")),
        ("-l 1470", "size", json!("1470B")),
        ("-l 128k", "size", json!("128KiB")),
        ("-w 1G", "window", json!("1GiB")),
        ("-b 1.5G", "rate", json!("1.5Gbit/s")),
        ("-b 100k", "rate", json!("100kbit/s")),
        ("-b 0", "rate", Value::Null),
    ] {
        assert_eq!(args::<TransferSettings>(line).get(key), Some(&value), "{line}");
    }
}

#[test]
fn wrong_values_and_combinations_are_refused() {
    for line in [
        &["daq", "--max", "5"][..],
        &["daq", "--time", "1s", "--events", "5"],
        &["daq", "--size", "much"],
        &["stream", "--bitrate", "25"],
        &["transfer", "-b", "1x"],
        &["transfer", "-t", "-1"],
        &["daq", "--pattern", "shove"],
        &["daq", "--dead-time-max", "much%"],
        &["daq", "--drop-orders", "nan"],
        &["transfer", "--time", "1s", "--bytes", "5MB"],
        &["transfer", "-u", "--protocol", "tcp"],
        &["transfer", "--spin"],
        &["transfer", "--loss-max", "1"],
        &["transfer", "--serve", "--flows", "2"],
        &["transfer", "--serve", "-u"],
        &["stream", "--streams", "1", "--max", "2"],
        &["stream", "--quick", "--streams", "1"],
        &["stream", "--ramp-down", "--no-ramp-down"],
        &["stream", "--codec", "hevc"],
    ] {
        assert!(Cli::try_parse_from([&["kagiri"], line].concat()).is_err(), "{line:?}");
    }
}

#[test]
fn messages_name_the_flag() {
    for (line, expected) in [
        ("--front-ends 200", "--front-ends: 200 is not within 0 to the number of --sources"),
        ("--search rate --max 5", "--search: rate needs a limit for vetoed triggers"),
        ("--no-checksum --window 0", "--window: 0 is not within 1 to 10000"),
        ("--search sources --resolution 0", "--resolution: 0 is not within 0.1 to 50"),
        ("--dead-time-max 150%", "--dead-time-max: 150 is not within 0 to 100"),
        ("--credit 5", "--credit: pattern push"),
    ] {
        let message = refused::<DaqSettings>(line);
        assert!(message.starts_with(expected) && !message.contains('`'), "{line}: {message}");
    }
    assert!(refused::<DaqSettings>("--search rate --max 5").ends_with("set --dead-time-max"));
    let mut unnamed = args::<DaqSettings>("");
    unnamed.set("listen", json!("here"));
    let message = unnamed.resolve("daq").unwrap_err().to_string();
    assert!(message.starts_with("--listen: 'here' is not ADDR:PORT"), "{message}");
}

#[test]
fn messages_of_parts_name_the_flag() {
    let args = args::<DaqSettings>("");
    for (message, expected) in [
        ("daq.size: cannot read 'daq.size'", "--size: cannot read 'daq.size'"),
        ("builder: daq.search.max: 5 sources", "builder: --max: 5 sources"),
        ("cannot read '/tmp/daq.size'", "cannot read '/tmp/daq.size'"),
        ("daq.checksum: no", "--no-checksum: no"),
        ("unknown daq.colour: red", "unknown daq.colour: red"),
    ] {
        assert_eq!(args.with_flags("daq", Failure::usage(message)).to_string(), expected);
    }
}

/// Keys without a flag are so by intention.
#[test]
fn every_setting_has_one_flag_or_none_by_intention() {
    assert_eq!(
        without_flag::<StreamSettings>(),
        ["source", "cpu_percent", "disk", "network", "memory"].map(|name| format!("ceiling.{name}"))
    );
    assert_eq!(without_flag::<TransferSettings>(), [""; 0]);
    assert_eq!(without_flag::<ExchangeSettings>(), ["http.headers", "search.class", "class"]);
    assert_eq!(without_flag::<DaqSettings>(), [""; 0]);
    assert_eq!(without_flag::<FilesSettings>(), ["set"]);
    crate::cli::definition().debug_assert();
}

fn without_flag<S: Settings>() -> Vec<String> {
    let all = declarations::<S>().iter();
    all.filter(|setting| setting.flag.is_none()).map(|setting| setting.key.clone()).collect()
}

/// The committed reference pages are those that the settings give.
#[test]
fn reference_pages_are_up_to_date() {
    for (name, page) in [
        ("stream", page::<StreamSettings>("stream", "stream")),
        ("transfer", page::<TransferSettings>("transfer", "transfer")),
        ("exchange", page::<ExchangeSettings>("exchange", "exchange")),
        ("daq", page::<DaqSettings>("daq", "daq")),
        ("files", page::<FilesSettings>("files", "files")),
        ("ageing", page::<AgeingSettings>("ageing", "files age")),
    ] {
        let file = format!("{}/../../docs/settings/{name}.md", env!("CARGO_MANIFEST_DIR"));
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        let how = format!("write it anew: kagiri plan schema {name} --markdown > docs/settings/{name}.md");
        assert!(committed == page, "docs/settings/{name}.md is not what the settings say; {how}");
        assert!(page.lines().all(|line| line.chars().count() <= 120), "{name}");
    }
}
