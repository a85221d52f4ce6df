//! The repository's own rules: layers, imports, sizes, `unsafe`. Licences and sources of dependencies are
//! checked by `make deny`.

mod features;
mod modules;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A longer file holds two things.
const FILE_LINES_MAX: usize = 400;

/// Columns of a line, by the file's ending.
const COLUMNS_MAX: [(&str, usize); 2] = [(".rs", 110), (".md", 120)];

/// Every crate with its layer. A crate may use only crates of lower layers.
const LAYERS: [(&str, u32); 33] = [
    ("kagiri-features", 0),
    ("kagiri-base", 0),
    ("kagiri-qos-client", 0),
    ("kagiri-s3-server", 1),
    ("kagiri-sys", 1),
    ("zenoh-link-tls", 1),
    ("kagiri-store", 1),
    ("kagiri-reactor", 2),
    ("kagiri-mpegts", 2),
    ("kagiri-pool", 2),
    ("kagiri-httpd", 2),
    ("kagiri-iperf3", 2),
    ("kagiri-wml", 2),
    ("kagiri-fleet", 2),
    ("kagiri-workload", 3),
    ("kagiri-ageing", 3),
    ("kagiri-stream", 4),
    ("kagiri-transfer", 4),
    ("kagiri-daq", 4),
    ("kagiri-files", 4),
    ("kagiri-exchange", 4),
    ("kagiri-observe", 4),
    ("kagiri-lab", 4),
    ("kagiri-qos", 4),
    ("kagiri-tune", 4),
    ("kagiri-run", 5),
    ("kagiri-report", 6),
    ("kagiri-web", 7),
    ("kagiri", 8),
    ("kagiri-tests", 9),
    ("kagiri-bench", 9),
    ("kagiri-fuzz", 9),
    ("kagiri-example-echo", 9),
];

/// Exceptions within one layer: `store` writes its files through `sys`, and `httpd` runs on `reactor` and
/// serves what is in a `pool`.
const SAME_LAYER: [(&str, &str); 3] =
    [("kagiri-store", "kagiri-sys"), ("kagiri-httpd", "kagiri-reactor"), ("kagiri-httpd", "kagiri-pool")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests are a member of the workspace")
        .to_owned()
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--no-deps"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["crates", "tests", "bench", "fuzz", "examples"].iter().map(|name| root().join(name)).collect();
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
    let layers: BTreeMap<&str, u32> = LAYERS.into();
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let layer = *layers.get(name).unwrap_or_else(|| panic!("{name} has no layer in this test"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let below = dependency["name"].as_str().expect("a name");
            let allowed = SAME_LAYER.contains(&(name, below)) || below == "kagiri-features";
            if layers.get(below).is_some_and(|&its| its >= layer) && !allowed {
                wrong.push(format!("{name} (layer {layer}) uses {below}"));
            }
        }
    }
    assert!(wrong.is_empty(), "imports go upward: {wrong:?}");
}

#[test]
fn files_have_at_most_400_lines() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter_map(|path| {
            let lines = std::fs::read_to_string(&path).ok()?.lines().count();
            (lines > FILE_LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert!(long.is_empty(), "files over {FILE_LINES_MAX} lines: {long:#?}");
}

/// Lines of files with this ending that are longer than `columns`.
fn long_lines(ending: &str, columns: usize) -> Vec<String> {
    let mut found = Vec::new();
    for name in listed().lines().filter(|name| name.ends_with(ending)) {
        let Ok(text) = std::fs::read_to_string(root().join(name)) else { continue };
        // A table's row, a link and what a terminal shows cannot be broken.
        let mut is_shown = false;
        let long = text.lines().enumerate().filter(|(_, line)| {
            is_shown ^= ending == ".md" && line.trim_start().starts_with("```");
            let breaks = !line.trim_start().starts_with('|') && !line.contains("](") && !is_shown;
            line.chars().count() > columns && breaks
        });
        found.extend(long.map(|(number, _)| format!("{name}:{}", number + 1)));
    }
    found
}

#[test]
fn lines_have_at_most_their_columns() {
    for (ending, columns) in COLUMNS_MAX {
        let long = long_lines(ending, columns);
        assert!(long.is_empty(), "lines of {ending} exceed {columns} columns: {long:#?}");
    }
}

#[test]
fn example_workload_has_at_most_200_lines() {
    let source =
        std::fs::read_to_string(root().join("examples/echo/src/lib.rs")).expect("the example's source");
    let lines = source.lines().count();
    assert!(lines <= 200, "examples/echo has {lines} lines");
}

#[test]
fn no_two_modules_import_each_other() {
    let crates = std::fs::read_dir(root().join("crates")).expect("the folder of crates");
    let mut found = Vec::new();
    for folder in crates.map(|entry| entry.expect("an entry").path()) {
        let cycles = modules::Modules::read(&folder.join("src")).cycles();
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        found.extend(cycles.iter().map(|group| format!("{name}: {}", group.join(", "))));
    }
    assert!(found.is_empty(), "groups of modules import each other: {found:#?}");
}

/// Crates that every workload shares, so that none of them may know one by name.
const GENERAL_CRATES: [&str; 5] = ["base", "workload", "store", "run", "report"];

/// Files of these crates that contain a workload's name, and why.
const NAMES_OF_WORKLOADS: [(&str, &str); 1] =
    [("crates/run/src/explain/csv/columns.rs", "\"stream\" is a heading of load in foreign tables")];

#[test]
fn general_crates_name_no_workload() {
    let mut wrong = Vec::new();
    for folder in GENERAL_CRATES.map(|name| root().join("crates").join(name).join("src")) {
        for path in sources().into_iter().filter(|path| path.starts_with(&folder)) {
            let name = path.strip_prefix(root()).expect("a file of the repository").display().to_string();
            let is_excepted = NAMES_OF_WORKLOADS.iter().any(|(file, _)| *file == name);
            if is_excepted || name.ends_with("/tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source is text");
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for (number, line) in
                code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
            {
                if ["\"daq\"", "\"exchange\"", "\"stream\"", "\"transfer\""]
                    .iter()
                    .any(|word| line.contains(word))
                {
                    wrong.push(format!("{name}:{}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "general crates name a workload: {wrong:#?}");
}

/// Files with `unsafe` outside `sys`. The client library of `qos` is linked into programs of others, and may
/// not bring `sys` with it: C needs names that are not mangled, and pointers; the standard library does not
/// connect a socket of this kind without blocking.
const UNSAFE_FILES: [&str; 2] = ["crates/qos-client/src/c_abi.rs", "crates/qos-client/src/socket.rs"];

#[test]
fn only_sys_has_unsafe_code() {
    let sys = root().join("crates/sys");
    let excepted = UNSAFE_FILES.map(|name| root().join(name));
    let mut wrong = Vec::new();
    for path in sources()
        .into_iter()
        .filter(|path| !path.starts_with(&sys) && !path.ends_with("tidy/main.rs") && !excepted.contains(path))
    {
        let text = std::fs::read_to_string(&path).expect("a source is text");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        // The keyword opens a block, a function, an implementation or an attribute; in a text it may be any
        // word.
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
    let crates = std::fs::read_dir(root().join("crates")).expect("the folder of crates");
    let folders = crates.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for folder in folders.filter(|folder| folder != "sys") {
        let manifest = std::fs::read_to_string(root().join("crates").join(&folder).join("Cargo.toml"))
            .expect("a manifest");
        // `forbid` has no exceptions: where a file has one, all others are denied it.
        let lints = match UNSAFE_FILES.iter().any(|name| name.starts_with(&format!("crates/{folder}/"))) {
            true => "[lints.rust]\nunsafe_code = \"deny\"\nunsafe_op_in_unsafe_fn = \"deny\"",
            false => "[lints]\nworkspace = true",
        };
        assert!(manifest.contains(lints), "{folder} does not follow the workspace's lints");
    }
}

/// The files of the repository, one a line.
fn listed() -> String {
    let listed = Command::new("git").args(["ls-files"]).current_dir(root()).output().expect("git runs");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.lines().count() > 100, "git listed too few files: {listed}");
    listed
}

#[test]
fn no_path_of_a_workplace_is_named() {
    let banned = [
        concat!("/wo", "rk/"),
        concat!("shared/", "design"),
        concat!("farm-", "bench"),
        concat!("farm-", "studio"),
    ];
    for name in listed().lines() {
        let Ok(text) = std::fs::read_to_string(root().join(name)) else { continue };
        for word in banned {
            assert!(!text.contains(word), "{name} names {word}");
        }
    }
}
