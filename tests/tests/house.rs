//! The tests that keep the house in order: floors, sizes, `unsafe`, licences.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A file longer than this is two rooms.
const FILE_LINES_MAX: usize = 400;

/// Every crate of the house on its floor. A crate may use only what lies below its own floor.
const FLOORS: [(&str, u32); 12] = [
    ("kagiri-base", 0),
    ("kagiri-sys", 1),
    ("kagiri-store", 1),
    ("kagiri-fleet", 1),
    ("kagiri-workload", 2),
    ("kagiri-observe", 2),
    ("kagiri-lab", 2),
    ("kagiri-run", 3),
    ("kagiri-report", 4),
    ("kagiri", 5),
    ("kagiri-tests", 6),
    ("kagiri-bench", 6),
];

/// On one floor, only `fleet` may use `sys`: hosts are made of the kernel's parts.
const SAME_FLOOR: [(&str, &str); 2] = [("kagiri-fleet", "kagiri-sys"), ("kagiri-store", "kagiri-sys")];

/// Licences under which the product can be given away with its source.
const LICENCES: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "0BSD",
    "BSL-1.0",
    "MIT-0",
    "Apache-2.0 WITH LLVM-exception",
];

/// Looked at one by one: they ask nothing of whoever links to them unchanged.
/// `option-ext` (MPL-2.0, a few lines, copyleft for its own files alone) and `webpki-roots` (a list of certificates,
/// CDLA-Permissive-2.0) come with zenoh.
const LOOKED_AT: [(&str, &str); 2] = [("option-ext", "MPL-2.0"), ("webpki-roots", "CDLA-Permissive-2.0")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_owned()
}

fn metadata(arguments: &[&str]) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs, since it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["crates", "tests", "bench", "fuzz"].iter().map(|name| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            match path.file_name().and_then(|name| name.to_str()) {
                Some("target" | "corpus" | "artifacts") => {}
                _ if path.is_dir() => folders.push(path),
                _ if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
                _ => {}
            }
        }
    }
    assert!(found.len() > 30, "the sources were found");
    found
}

#[test]
fn imports_go_strictly_downward() {
    let floors: BTreeMap<&str, u32> = FLOORS.into();
    let metadata = metadata(&["--no-deps"]);
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let floor = *floors.get(name).unwrap_or_else(|| panic!("{name} has no floor in this test"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let below = dependency["name"].as_str().expect("a name");
            let allowed = SAME_FLOOR.contains(&(name, below));
            if floors.get(below).is_some_and(|&its| its >= floor) && !allowed {
                wrong.push(format!("{name} (floor {floor}) uses {below}"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports climb: {wrong:?}");
}

#[test]
fn files_are_rooms() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter_map(|path| {
            let lines = std::fs::read_to_string(&path).ok()?.lines().count();
            (lines > FILE_LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert!(long.is_empty(), "files over {FILE_LINES_MAX} lines: {long:#?}");
}

#[test]
fn only_sys_may_be_unsafe() {
    let sys = root().join("crates/sys");
    let mut wrong = Vec::new();
    for path in sources().into_iter().filter(|path| !path.starts_with(&sys) && !path.ends_with("house.rs")) {
        let text = std::fs::read_to_string(&path).expect("a source is text");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        // The keyword opens a block, a function, an implementation or an attribute; in a text it may be any word.
        let opens = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words
                .windows(2)
                .any(|w| w[0] == "unsafe" && ["{", "fn", "impl", "trait", "extern"].contains(&w[1]))
                || line.contains("[unsafe(")
        };
        if code.into_iter().any(opens) {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "unsafe outside sys: {wrong:?}");
    for folder in ["base", "store", "fleet", "workload", "observe", "lab", "run", "report", "kagiri"] {
        let manifest = std::fs::read_to_string(root().join("crates").join(folder).join("Cargo.toml"))
            .expect("a manifest");
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{folder} does not follow the workspace's lints"
        );
    }
}

/// Whether an SPDX expression can be met by allowed licences alone.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let one = |term: &str| LICENCES.contains(&term.trim().trim_matches(['(', ')']).trim());
    expression.split(" OR ").any(|choice| choice.split(" AND ").all(one))
        || expression.split(" AND ").all(|term| term.trim_matches(['(', ')', ' ']).split(" OR ").any(one))
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    // Only what is built here: other platforms' crates need not be on this machine.
    let metadata = metadata(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let mut wrong = BTreeSet::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let licence = package["license"].as_str().unwrap_or("none");
        let name = package["name"].as_str().unwrap_or("none");
        if !is_allowed(licence) && !LOOKED_AT.contains(&(name, licence)) {
            wrong.insert(format!("{}: {licence}", package["name"]));
        }
    }
    assert!(wrong.is_empty(), "licences to look at: {wrong:#?}");
}

#[test]
fn licence_expressions_are_understood() {
    for (expression, allowed) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("GPL-3.0", false),
        ("MIT AND GPL-3.0", false),
        ("none", false),
    ] {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }
}

#[test]
fn nothing_of_the_workshop_is_named() {
    let banned = [
        concat!("/wo", "rk/"),
        concat!("shared/", "design"),
        concat!("farm-", "bench"),
        concat!("farm-", "studio"),
    ];
    let listed = Command::new("git").args(["ls-files"]).current_dir(root()).output().expect("git runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.lines().count() > 100, "the files of the repository were listed: {listed}");
    for name in listed.lines() {
        let Ok(text) = std::fs::read_to_string(root().join(name)) else { continue };
        for word in banned {
            assert!(!text.contains(word), "{name} names {word}");
        }
    }
}
