//! Features of dependencies: a crate alone must not need others than the workspace has built.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::{LAYERS, root};

/// The features with which cargo would build each dependency of the programs. Those of macros and build
/// scripts are left out: `cargo tree` mixes them up with the programs'.
fn features(packages: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "--offline",
            "--edges",
            "normal,dev,no-proc-macro",
            "--prefix",
            "none",
            "--format",
            "{p}|{f}",
        ])
        .args(packages)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line = line.trim_end_matches(" (*)");
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        // A crate of the workspace has its folder behind its version.
        if !package.is_empty() && !package.contains('/') {
            all.entry(package.to_owned()).or_default().insert(features.to_owned());
        }
    }
    all
}

#[test]
fn crate_alone_builds_no_dependency_again() {
    let workspace = features(&[]);
    assert!(workspace.len() > 100, "{workspace:?}");
    // The fuzz targets are built by nobody else.
    let others = ["kagiri-features", "kagiri-fuzz"];
    for (name, _) in LAYERS.iter().filter(|(name, _)| !others.contains(name)) {
        for (dependency, sets) in features(&["--package", name]) {
            let known = workspace.get(&dependency).unwrap_or_else(|| panic!("{name}: {dependency}"));
            assert!(
                sets.is_subset(known),
                "cargo test -p {name} builds {dependency} with the features {sets:?}, the workspace with \
                 {known:?}; add the missing ones to crates/features/Cargo.toml"
            );
        }
    }
}
