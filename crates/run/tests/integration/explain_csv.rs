//! Tables as people write them: spellings, units, separators, and what is said about a bad one.

use std::collections::BTreeMap;

use base::outcome::Resource;
use base::verdict::Verdict;
use proptest::prelude::*;
use run::explain::csv::{ROWS_MAX, TABLE_BYTES_MAX, read};
use run::explain::{LoadTable, ceiling, explain};

fn table(text: &str) -> LoadTable {
    read(text.as_bytes(), BTreeMap::new()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn message(text: &str) -> String {
    read(text.as_bytes(), BTreeMap::new()).expect_err(text).to_string()
}

#[test]
fn headers_are_read_in_their_usual_spellings_and_units() {
    let cases = [
        ("cpu", "27.2", Resource::Cpu, 27.2),
        ("cpu %", "27.2", Resource::Cpu, 27.2),
        ("cpu_percent", "27.2", Resource::Cpu, 27.2),
        ("CPU[%]", "27.2", Resource::Cpu, 27.2),
        ("%cpu", "27.2", Resource::Cpu, 27.2),
        ("server cpu (%)", "27.2 %", Resource::Cpu, 27.2),
        ("server_cpu_percent", "27.2", Resource::Cpu, 27.2),
        ("CPU (cores)", "1.5", Resource::Cpu, 150.0),
        ("cpu", "1.5 cores", Resource::Cpu, 150.0),
        ("disk Mbit/s", "26.9", Resource::Disk, 26.9e6),
        ("disk_mbit_s", "26.9", Resource::Disk, 26.9e6),
        ("disk_mbit_per_s", "26.9", Resource::Disk, 26.9e6),
        ("disk_bit_per_s", "26900000", Resource::Disk, 26.9e6),
        ("Disk [Mbps]", "26.9", Resource::Disk, 26.9e6),
        ("disk (MB/s)", "3.5", Resource::Disk, 28e6),
        ("disk read MiB/s", "1", Resource::Disk, 8.0 * 1_048_576.0),
        ("disk", "26.9 Mbit/s", Resource::Disk, 26.9e6),
        ("disk MB/s", "26.9Mbit/s", Resource::Disk, 26.9e6),
        ("network Mbit/s", "1.5e2", Resource::Network, 150e6),
        ("net kB/s", "250", Resource::Network, 2e6),
        ("network_bit_per_s", "2e6", Resource::Network, 2e6),
        ("Network (Gbit/sec)", "2", Resource::Network, 2e9),
        ("memory KB", "2542", Resource::Memory, 2542.0 * 1024.0),
        ("mem_kb", "2542", Resource::Memory, 2542.0 * 1024.0),
        ("memory kB", "2542", Resource::Memory, 2_542_000.0),
        ("rss MiB", "2", Resource::Memory, 2_097_152.0),
        ("server_memory_bytes", "4096", Resource::Memory, 4096.0),
        ("player_cpu_percent", "12", Resource::Player, 12.0),
    ];
    for (header, cell, resource, expected) in cases {
        let rows = table(&format!("N,{header}\n3,{cell}\n")).rows;
        let value = rows[0].usage.get(&resource).copied();
        assert!(value.is_some_and(|v| (v / expected - 1.0).abs() < 1e-12), "{header}: {value:?}");
    }
}

#[test]
fn load_column_names_its_unit() {
    let cases = [
        ("streams", "streams"),
        ("Number of clients", "clients"),
        ("viewers", "viewers"),
        ("N", "load"),
        ("load (streams)", "streams"),
        ("load [Mbit/s]", "Mbit/s"),
    ];
    for (header, unit) in cases {
        assert_eq!(table(&format!("{header},cpu\n1,2\n")).load_unit, unit, "{header}");
    }
}

#[test]
fn separators_decimal_commas_comments_and_blanks() {
    let semicolons = table(
        "\u{feff}# how it was made\r\nstreams;cpu %;disk Mbit/s\r\n\r\n1;13,5;26,9\r\n# note\r\n2;;52,1\r\n\
         ;;\r\n",
    );
    assert_eq!(semicolons.rows.len(), 2);
    assert_eq!(semicolons.rows[0].usage[&Resource::Cpu], 13.5);
    assert_eq!(semicolons.rows[1].usage.get(&Resource::Cpu), None, "a blank is unknown, not zero");
    let tabs = table("streams\tcpu %\n1\t13,5\n2\tn/a\n3\t0\n");
    assert_eq!(tabs.rows[0].usage[&Resource::Cpu], 13.5);
    assert!(tabs.rows[1].usage.is_empty() && tabs.rows[2].usage[&Resource::Cpu] == 0.0);
    let quoted = table("\"streams\",\"cpu, %\"\n\"1\",\"13.5\"\n");
    assert_eq!(quoted.rows[0].usage[&Resource::Cpu], 13.5);
}

#[test]
fn verdicts_are_read_as_words_numbers_and_stalls() {
    for (header, cell, verdict) in [
        ("verdict", "pass", Some(Verdict::Pass)),
        ("Verdict", "FAIL", Some(Verdict::Fail)),
        ("verdict", "invalid", Some(Verdict::Invalid)),
        ("ok", "1", Some(Verdict::Pass)),
        ("ok", "0", Some(Verdict::Fail)),
        ("passed", "no", Some(Verdict::Fail)),
        ("stalls", "0", Some(Verdict::Pass)),
        ("stalls", "4", Some(Verdict::Fail)),
        ("stalls", "", None),
    ] {
        assert_eq!(
            table(&format!("N,cpu,{header}\n1,2,{cell}\n")).rows[0].verdict,
            verdict,
            "{header} {cell}"
        );
    }
    let both = table("N,cpu,stalls,verdict\n1,2,3,invalid\n");
    assert_eq!(both.rows[0].verdict, Some(Verdict::Invalid), "the verdict goes before the stalls");
    assert_eq!(both.rows[0].counters["stalls"], 3.0);
}

#[test]
fn known_counters_are_read_and_other_columns_listed() {
    let table = table("N,cpu,throttled %,await (ms),%util,comment,fans rpm\n1,2,31,0.5,99,hot,4000\n");
    let counters = &table.rows[0].counters;
    assert_eq!(counters["throttled_percent"], 31.0);
    assert_eq!(counters["disk_await_ms"], 0.5);
    assert_eq!(counters["disk_busy_percent"], 99.0);
    assert_eq!(counters["fans_rpm"], 4000.0);
    assert_eq!(table.ignored_columns, ["comment", "fans rpm"]);
    assert_eq!(explain(&table).ignored_columns, ["comment", "fans rpm"]);
}

#[test]
fn table_error_names_line_column_and_expected_value() {
    let cases: [(&str, &[&str]); 16] = [
        ("# note\n\nstreams,cpu %\n1,13\n# more\n\n2,abc\n", &["line 7", "'cpu %'", "'abc'", "27.2"]),
        ("streams,cpu\n1,13\n2,-4\n", &["line 3", "'cpu'", "negative"]),
        ("streams,disk\n1,26.9\n", &["line 2", "'disk'", "unit is missing", "Mbit/s"]),
        ("streams,disk Mbit/s\n1,26.9 parsec\n", &["line 2", "'parsec'"]),
        ("streams,cpu\n1,\"13,5\"\n", &["line 2", "decimal comma", "semicolons"]),
        ("streams;cpu\n1;1.013,5\n", &["line 2", "thousands"]),
        ("streams,cpu\n,13\n", &["line 2", "'streams'", "load"]),
        ("streams,cpu\n1,2,3\n", &["line 2", "3 cells", "2 columns"]),
        ("streams,cpu\n1\n", &["line 2", "1 cells"]),
        ("streams,cpu,verdict\n1,2,perhaps\n", &["line 2", "'perhaps'", "pass, fail or invalid"]),
        ("streams,disk_mb_s\n1,2\n", &["line 1", "mb_s", "could be mistaken"]),
        ("streams,disk Mb/s\n1,2\n", &["line 1", "Mb/s", "could be mistaken"]),
        ("disk Mbit/s,cpu\n1,2\n", &["line 1", "no load column", "streams"]),
        ("streams,colour\n1,2\n", &["line 1", "no resource column"]),
        ("streams,cpu,server cpu\n1,2,3\n", &["line 1", "'cpu' and 'server cpu'"]),
        ("1,13\n2,27\n", &["line 1", "name the columns"]),
    ];
    for (text, parts) in cases {
        let message = message(text);
        for part in parts {
            assert!(message.contains(part), "'{part}' is not in: {message}");
        }
    }
    assert!(message("").contains("no rows"));
    assert!(message("streams,cpu\n# nothing\n").contains("no rows"));
    let latin = read(b"streams,cpu\n1,2\n2,\xb5\n", BTreeMap::new()).unwrap_err().to_string();
    assert!(latin.contains("line 3") && latin.contains("UTF-8"), "{latin}");
}

#[test]
fn table_size_is_limited() {
    let rows = "streams,cpu\n".to_owned() + &"1,2\n".repeat(ROWS_MAX + 1);
    assert!(message(&rows).contains("10000 rows"));
    assert!(message(&"#".repeat(TABLE_BYTES_MAX + 1)).contains("bytes"));
    assert!(message(&("streams,cpu".to_owned() + &",x".repeat(300) + "\n1,2\n")).contains("200 columns"));
    // The largest table that is read is also explained: each load differs, nothing is quadratic in the rows.
    let text: String = (1..=ROWS_MAX).map(|n| format!("{n},{}\n", 0.009 * n as f64)).collect();
    let explanation = explain(&table(&("streams,cpu\n".to_owned() + &text)));
    assert_eq!(explanation.saturation[&Resource::Cpu].n, ROWS_MAX as u32);
    assert!((explanation.capacity.value.unwrap() - 11_111.0).abs() <= 1.0);
}

#[test]
fn ceilings_are_read_with_their_units() {
    for (text, resource, value) in [
        ("disk=110Mbit/s", Resource::Disk, 110e6),
        ("disk=13.75MB/s", Resource::Disk, 110e6),
        ("cpu=200%", Resource::Cpu, 200.0),
        ("cpu=2cores", Resource::Cpu, 200.0),
        ("CPU = 1.5 cores", Resource::Cpu, 150.0),
        ("network=1Gbit/s", Resource::Network, 1e9),
        ("memory=512MiB", Resource::Memory, 536_870_912.0),
    ] {
        let (found, ceiling) = ceiling::parse(text).unwrap();
        assert_eq!((found, ceiling.value, ceiling.source.as_str()), (resource, value, "given"), "{text}");
    }
    for (text, part) in [
        ("disk", "'=' is missing"),
        ("disc=1Mbit/s", "'disc' is not a resource"),
        ("cpu=2", "neither '%' nor 'cores'"),
        ("cpu=many%", "'many' is not a number"),
        ("cpu=nan%", "not a possible amount"),
        ("cpu=-5%", "above zero"),
        ("disk=110", "unit is missing"),
        ("disk=0Mbit/s", "above zero"),
        ("memory=1Mbit/s", "not a size"),
        ("none=1%", "not a resource"),
    ] {
        let message = ceiling::parse(text).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("disk=110Mbit/s"), "{text}: {message}");
    }
}

/// Cells that lie near what tables hold, so that more than the first check is reached.
fn near_cell() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,4}(\\.[0-9]{1,3})?",
        "[0-9]{1,3},[0-9] ?(Mbit/s|%|KB|µs|e9|E|e-)?",
        Just("1e308".to_owned()),
        Just("fail".to_owned()),
        Just(String::new()),
        "\\PC{0,6}",
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(table) = read(&bytes, BTreeMap::new()) {
            explain(&table);
        }
    }

    #[test]
    fn no_cells_make_the_explanation_panic(
        rows in prop::collection::vec(prop::collection::vec(near_cell(), 6), 0..12),
        mark in prop::sample::select(vec![",", ";", "\t"]),
    ) {
        let lines: Vec<String> = rows.iter().map(|row| row.join(mark)).collect();
        let header = ["N", "cpu %", "disk", "net kB/s", "verdict", "throttled"].join(mark);
        if let Ok(table) = read(format!("{header}\n{}\n", lines.join("\n")).as_bytes(), BTreeMap::new()) {
            explain(&table);
        }
    }

    #[test]
    fn no_numbers_make_the_explanation_panic(
        rows in prop::collection::vec((0f64..1e15, 0f64..1e17, 0u8..4), 0..40),
        ceiling in prop::option::of(1e-300f64..1e17),
    ) {
        let word = ["pass", "fail", "invalid", ""];
        let line = |&(load, used, verdict): &(f64, f64, u8)| {
            format!("{load},{used},{}\n", word[usize::from(verdict)])
        };
        let text = "N,disk bit/s,verdict\n".to_owned() + &rows.iter().map(line).collect::<String>();
        let given = |value| base::outcome::Ceiling { value, source: "given".into() };
        let known = ceiling.map(|value| (Resource::Disk, given(value)));
        if let Ok(table) = read(text.as_bytes(), known.into_iter().collect()) {
            let explanation = explain(&table);
            prop_assert!((2..=6).contains(&explanation.considerations.len()));
            let found = explanation.capacity.clone();
            if let (Some(value), [Some(low), Some(high)]) = (found.value, found.interval) {
                prop_assert!(low <= high, "{low} {value} {high}");
            }
            prop_assert!(serde_json::to_string(&explanation).unwrap().len() > 2);
        }
    }

    #[test]
    fn no_text_makes_the_ceiling_parser_panic(text in "\\PC{0,30}") {
        let _ = ceiling::parse(&text);
        let _ = ceiling::parse(&format!("cpu={text}"));
    }
}

/// What `kagiri runs export --format trials-csv` writes of a real run reads back as the table that it is.
#[test]
fn exported_run_reads_back() {
    let snapshot =
        include_str!("../../../../tests/tests/integration/snapshots/integration__exports__trials_csv.snap");
    let text = &snapshot[snapshot.find("run,trial,").expect("the head of the export")..];
    let table = table(text);
    assert_eq!(table.load_unit, "streams");
    assert_eq!(table.loads(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert!(table.ignored_columns.iter().any(|name| name == "streams_broken"), "{:?}", table.ignored_columns);
    let at_six = table.rows.iter().find(|row| row.load == 6.0).expect("six was tried");
    assert_eq!((at_six.verdict, at_six.usage[&Resource::Cpu]), (Some(Verdict::Fail), 78.0));
    let explanation = explain(&table);
    assert_eq!((explanation.capacity.value, explanation.limit.resource), (Some(5.0), Resource::Cpu));
}
