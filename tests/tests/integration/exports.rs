//! Every export of a stored run, word by word: a change to any of them is seen in review.

use std::fs;
use std::process::Command;

use kagiri_tests::{World, need_programs, workspace};
use serde_json::Value;

/// A world that holds the fixture's run.
fn world() -> World {
    let world = World::new();
    world.import_fixture();
    world
}

fn said(world: &World, words: &[&str]) -> String {
    let ended = world.run(words).code(0);
    assert_eq!(ended.stderr, "", "{words:?}");
    ended.stdout
}

/// A JSON document, which begins with its schema and the version that wrote it; that version does not stand
/// in the snapshots.
fn document(world: &World, words: &[&str]) -> Value {
    let mut document: Value = serde_json::from_str(&said(world, words)).expect("JSON");
    let keys: Vec<_> = document.as_object().expect("an object").keys().take(2).cloned().collect();
    assert_eq!(keys, ["schema", "kagiri"], "{words:?}");
    assert_eq!(document["schema"], 1, "{words:?}");
    let version = world.run(&["--version"]).code(0).stdout;
    assert_eq!(format!("kagiri {}\n", document["kagiri"].as_str().expect("a version")), version, "{words:?}");
    document["kagiri"] = "VERSION".into();
    document
}

#[test]
fn a_run_as_json() {
    let document: Value = serde_json::from_str(&said(&world(), &["runs", "export"])).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap());
}

#[test]
fn a_run_on_the_terminal() {
    let text = said(&world(), &["runs", "show"]);
    assert!(!text.contains('\x1b'), "no colour in a pipe");
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "80 columns were given: {wide:#?}");
    insta::assert_snapshot!(text);
}

#[test]
fn runs_as_a_list() {
    let world = world();
    insta::assert_snapshot!(said(&world, &["runs", "list"]));
    let list: Value = serde_json::from_str(&said(&world, &["runs", "list", "--json"])).unwrap();
    insta::assert_snapshot!("runs_as_a_json_list", serde_json::to_string_pretty(&list).unwrap());
}

/// The fixture's run beside one of another name and id, in which the server was half as strong.
#[test]
fn two_runs_compared() {
    let world = world();
    let text = fs::read_to_string(workspace().join("tests/fixtures/run.json")).unwrap();
    let mut other: Value = serde_json::from_str(&text).unwrap();
    other["run"] = "20261121-130000-othr".into();
    other["name"] = "another server".into();
    for trial in other["trials"].as_array_mut().unwrap() {
        let percent = trial["metrics"]["server_cpu_percent"].as_f64().unwrap();
        trial["metrics"]["server_cpu_percent"] = (2.0 * percent).into();
    }
    let file = world.write("other.json", other.to_string());
    world.run(&["runs", "import", file.to_str().unwrap()]).code(0);
    let words = ["runs", "compare", "20261121-120000-fixt", "20261121-130000-othr"];
    insta::assert_snapshot!(said(&world, &[&words[..], &["--full"]].concat()));
    let mut compared = document(&world, &[&words[..], &["--json"]].concat());
    // One load stands for all, which look alike.
    let loads = compared["pairs"][0]["loads"].as_array_mut().expect("loads");
    assert_eq!(
        loads.iter().map(|load| load["load"].as_f64().unwrap()).collect::<Vec<_>>(),
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    );
    loads.truncate(1);
    insta::assert_snapshot!("two_runs_compared_json", serde_json::to_string_pretty(&compared).unwrap());
}

#[test]
fn tables_for_spreadsheets() {
    let world = world();
    for (kind, name) in [("trials", "trials_csv"), ("series", "series_csv")] {
        let text = said(&world, &["runs", "export", "--format", &format!("{kind}-csv")]);
        let header = text.lines().next().unwrap_or_default().split(',').count();
        assert!(text.lines().all(|line| line.split(',').count() >= header || line.contains('"')), "{text}");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn a_table_explained() {
    let table = workspace().join("tests/fixtures/reference.csv");
    let table = table.to_str().unwrap();
    let world = World::new();
    insta::assert_snapshot!(said(&world, &["explain", table, "--full"]));
    insta::assert_snapshot!(
        "a_table_with_a_ceiling",
        said(&world, &["explain", table, "--full", "--ceiling", "disk=110Mbit/s"])
    );
    let words = ["explain", table, "--ceiling", "disk=110Mbit/s", "--json"];
    let document = document(&world, &words);
    assert_eq!(
        (document["capacity"]["value"].as_f64(), document["limit"]["resource"].as_str()),
        (Some(4.0), Some("disk"))
    );
    for resource in ["cpu", "disk", "network", "memory"] {
        assert!(document["saturation"][resource]["cost_per_load"].is_number(), "{resource}");
    }
    assert!(document["saturation"]["disk"]["saturates_at"].is_number());
    insta::assert_snapshot!("a_table_explained_json", serde_json::to_string_pretty(&document).unwrap());
}

#[test]
fn an_exported_table_is_explained() {
    let world = world();
    let text = said(&world, &["runs", "export", "--format", "trials-csv"]);
    let file = world.write("trials.csv", text);
    let document = document(&world, &["explain", file.to_str().unwrap(), "--json"]);
    assert_eq!(
        (document["capacity"]["value"].as_f64(), document["limit"]["resource"].as_str()),
        (Some(5.0), Some("cpu"))
    );
}

/// What a stored run found needs no table, and a document that is none is not read as one.
#[test]
fn a_run_is_explained_by_its_name_and_as_its_document() {
    let world = world();
    let explained = said(&world, &["explain", "last"]);
    for part in
        ["Carries 5 streams", "Limited by cpu (confirmed)", "- at 6 streams the quota", "What would help:"]
    {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    world.write("exported.json", said(&world, &["runs", "export"]));
    assert_eq!(said(&world, &["explain", "exported.json"]), explained);
    let document = document(&world, &["explain", "20261121-120000-fixt", "--json"]);
    assert_eq!(document["variants"][0]["limit"]["resource"], "cpu");
    world.write("other.json", "{\"capacity\": 5}");
    world.run(&["explain", "other.json"]).fails(2, &["other.json is JSON", "(CSV)", "stored run"]);
    world.run(&["explain", "nothing"]).fails(2, &["nothing"]);
    world.run(&["explain", "last", "--ceiling", "cpu=2cores"]).fails(2, &["--ceiling is for tables"]);
}

/// Addresses that a page would fetch when it is opened: a reader offline must miss nothing.
fn fetched(page: &str) -> Vec<&str> {
    let marks =
        ["src=", "<link", "@import", "url(", "<iframe", "fetch(", "XMLHttpRequest", "<object", "<embed"];
    let outside = |rest: &str| {
        let value = rest.trim_start_matches(['"', '\'', ' ']);
        !value.starts_with("data:") && !value.starts_with('#')
    };
    let mut found = Vec::new();
    for mark in marks {
        for (at, _) in page.match_indices(mark) {
            let rest = &page[at + mark.len()..];
            // What a link tag fetches stands in its href.
            let rest = if mark == "<link" {
                rest.split_once("href=").map_or(rest, |(_, value)| value)
            } else {
                rest
            };
            if outside(rest) {
                found.push(&page[at..page.len().min(at + 80)]);
            }
        }
    }
    found
}

/// The text of a page is well formed as far as its tags: what is opened is closed, in order.
fn unclosed(page: &str) -> Vec<String> {
    const VOID: [&str; 6] = ["meta", "br", "hr", "img", "link", "input"];
    let (mut open, mut rest) = (Vec::new(), page);
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').expect("a tag ends");
        let (tag, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        let name = name.to_ascii_lowercase();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "</{name}> closes something else");
        } else if !tag.starts_with('!') && !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            if matches!(name.as_str(), "script" | "style") {
                let close = format!("</{name}>");
                rest = &rest[rest.find(&close).expect("it is closed") + close.len()..];
            } else {
                open.push(name);
            }
        }
    }
    open
}

#[test]
fn the_report_is_one_page_that_works_offline() {
    let world = world();
    let page = said(&world, &["report", "-o", "-"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    assert_eq!(fetched(&page), [""; 0]);
    assert_eq!(unclosed(&page), [""; 0]);
    let document: Value = serde_json::from_str(&said(&world, &["runs", "export"])).unwrap();
    let capacity = document["capacity"]["value"].as_f64().unwrap();
    assert!(page.contains(&format!("{capacity} streams")), "the capacity stands in it");
    assert!(page.contains("<svg") && page.contains(document["run"].as_str().unwrap()));
    let file = said(&world, &["report", "-o", "page.html"]);
    // A relative path would be wrong in another working directory.
    assert_eq!(fs::canonicalize(file.trim()).unwrap(), fs::canonicalize(world.path("page.html")).unwrap());
    assert!(file.starts_with('/'), "{file}");
    assert_eq!(fs::read_to_string(world.path("page.html")).unwrap(), page);
    let default = said(&world, &["report"]);
    assert_eq!(fs::read_to_string(default.trim()).unwrap(), page);
}

/// Browsers run the script of a report only if its hash is that in the page's policy; openssl is the witness.
#[test]
fn report_allows_its_own_script_and_no_other() {
    need_programs!("openssl", "base64");
    let script = workspace().join("crates/report/src/html/pointing.js");
    let words = "openssl dgst -sha256 -binary \"$1\" | base64";
    let output = Command::new("sh").args(["-c", words, "sh"]).arg(script).output().expect("sh runs");
    let hash = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let page = said(&world(), &["report", "last", "-o", "-"]);
    let policy = format!("script-src 'sha256-{hash}'; img-src");
    assert!(page.contains(&policy), "{policy}");
}
