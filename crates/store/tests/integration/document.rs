//! Runs as documents: export, import, schema.

use crate::common::{arbitrary, run};
use base::outcome::{Run, State};
use proptest::prelude::*;
use serde_json::Value;
use store::{Imported, Store, StoreError, export, json_schema, read_export, read_export_file};

fn message(document: &[u8]) -> String {
    read_export(document).unwrap_err().to_string()
}

#[test]
fn an_exported_run_reads_as_the_contract_says() {
    let text = String::from_utf8(export(&run("20261121-143012-k3f9")).unwrap()).unwrap();
    assert!(text.starts_with("{\"schema\":1,\"kagiri\":"));
    let document: Value = serde_json::from_str(&text).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap());
}

#[test]
fn second_import_of_a_run_changes_nothing() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut from = Store::open(here.path()).unwrap();
    from.save(&run("a")).unwrap();
    let document = export(&from.load("a").unwrap()).unwrap();
    let mut to = Store::open(there.path()).unwrap();
    assert_eq!(to.import(&document).unwrap(), Imported { run: "a".into(), new: true });
    assert_eq!(to.import(&document).unwrap(), Imported { run: "a".into(), new: false });
    assert_eq!(to.load("a").unwrap(), run("a"));
    let other = export(&Run { name: "another".into(), ..run("a") }).unwrap();
    assert!(matches!(to.import(&other), Err(StoreError::Conflict { .. })));
    assert_eq!(to.load("a").unwrap(), run("a"));
}

#[test]
fn run_exported_while_running_imports_as_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let document = export(&Run { state: State::Running, ..run("a") }).unwrap();
    store.import(&document).unwrap();
    let shown = store.load("a").unwrap();
    assert_eq!(shown.state, State::Interrupted);
    assert!(!store.import(&document).unwrap().new);
    assert!(!store.import(&export(&shown).unwrap()).unwrap().new);
}

#[test]
fn invalid_document_is_rejected_with_line_and_column() {
    let whole = export(&run("a")).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    for cut in [1, 30, whole.len() / 2, whole.len() - 2] {
        let message = message(&whole[..cut]);
        assert!(message.contains(&format!("cut off at line 1, column {cut}")), "{message}");
    }
    for (document, part) in [
        (text.replace("\"schema\":1,\"kagiri\"", "\"schema\":7,\"kagiri\""), "has schema 7"),
        ("{\"schema\": 2, \"all\": \"new\"}".into(), "has schema 2"),
        ("{\"schema\": 0}".into(), "missing field"),
        (text.replace("\"schema\":1,\"kagiri\"", "\"schema\":0,\"kagiri\""), "schema is 0"),
        ("{\n\"schema\": 1,\nkagiri}".into(), "line 3, column 1"),
        ("<html>".into(), "line 1, column 1"),
        (text.clone() + "{}", "trailing characters"),
        (text.replace("\"verdict\":\"pass\"", "\"verdict\":\"maybe\""), "unknown variant `maybe`"),
        ("[".repeat(100_000), "line 1"),
        (format!("{{\"plan\":{}", "[".repeat(100_000)), "recursion limit"),
    ] {
        let message = message(document.as_bytes());
        assert!(message.contains(part), "{message}");
    }
    assert!(message(b"\xff\xfe").contains("line 1, column 1"));
    assert!(message(b"").contains("cut off"));
}

#[test]
fn keys_of_a_later_version_are_passed_over() {
    let mut document: Value = serde_json::from_slice(&export(&run("a")).unwrap()).unwrap();
    document["later"] = Value::Bool(true);
    document["trials"][0]["later"] = Value::Null;
    assert_eq!(read_export(document.to_string().as_bytes()).unwrap(), run("a"));
}

/// "lock" stands for a resource of a later version or of another program's workload.
#[test]
fn resource_is_stored_and_exported_by_its_name_even_if_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    for name in ["cpu", "window", "send_buffer", "buffer", "player", "none", "lock"] {
        let mut document: Value = serde_json::from_slice(&export(&run(name)).unwrap()).unwrap();
        document["variants"][0]["limit"]["resource"] = name.into();
        document["variants"][0]["limit"]["evidence"][0]["resource"] = name.into();
        let saturation = document["variants"][0]["saturation"]["cpu"].clone();
        document["variants"][0]["saturation"] = serde_json::json!({ name: saturation });
        store.import(document.to_string().as_bytes()).unwrap();
        let loaded = store.load(name).unwrap();
        assert_eq!(loaded.variants[0].limit.resource.word(), name);
        let exported: Value = serde_json::from_slice(&export(&loaded).unwrap()).unwrap();
        assert_eq!(exported["variants"][0], document["variants"][0]);
    }
}

#[test]
fn only_regular_files_of_bounded_size_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let reading = |path: &std::path::Path| read_export_file(path).unwrap_err().to_string();
    assert!(reading(dir.path()).contains("not a regular file"));
    assert!(reading(std::path::Path::new("/dev/zero")).contains("not a regular file"));
    assert!(reading(&dir.path().join("none")).contains("No such file"));
}

#[test]
fn json_schema_accepts_exports_only() {
    let schema = json_schema();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let mut document: Value = serde_json::from_slice(&export(&run("a")).unwrap()).unwrap();
    if let Err(error) = validator.validate(&document) {
        panic!("{error} at {}", error.instance_path());
    }
    document["trials"][0]["verdict"] = "maybe".into();
    assert!(!validator.is_valid(&document));
    assert!(!validator.is_valid(&Value::Object(serde_json::Map::new())));
    for key in ["schema", "run", "trials", "capacity", "limit", "requirements"] {
        assert!(schema["required"].as_array().unwrap().contains(&key.into()), "{key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_matches_the_schema(run in arbitrary::run("any")) {
        let document: Value = serde_json::from_slice(&export(&run).unwrap()).unwrap();
        let found = jsonschema::draft202012::validate(&json_schema(), &document);
        prop_assert!(found.is_ok(), "{:?}", found);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_export(&bytes);
    }

    #[test]
    fn no_damage_makes_the_reader_panic(at in any::<prop::sample::Index>(), byte: u8,
        cut in any::<prop::sample::Index>()) {
        let mut bytes = export(&run("a")).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len() * 2));
        let _ = read_export(&bytes);
    }
}

/// A transfer that was stored when tables were text (kagiri 0.1.0, before typed cells).
#[test]
fn run_stored_with_text_tables_opens_and_keeps_their_text() {
    let document = include_bytes!("fixtures/run-text-tables.json");
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let imported = store.import(document).unwrap();
    let shown = store.load(&imported.run).unwrap();
    assert_eq!(shown, read_export(document).unwrap());
    let table = &shown.variants[0].account.tables[0];
    assert_eq!((table.title.as_str(), table.columns[1].title.as_str()), ("Bytes", "sent"));
    assert_eq!(table.rows[0][1], "1.448 GB".into(), "a text, since its number was not stored");
    let tables = |json: &Value| json["variants"][0]["account"]["tables"].clone();
    let (before, after): (Value, Value) = (
        serde_json::from_slice(document).unwrap(),
        serde_json::from_slice(&export(&shown).unwrap()).unwrap(),
    );
    for (before, after) in tables(&before).as_array().unwrap().iter().zip(tables(&after).as_array().unwrap())
    {
        assert_eq!([&before["head"], &before["rows"]], [&after["head"], &after["rows"]]);
    }
}
