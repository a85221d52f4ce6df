//! The C header against the libraries that cargo has built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the libraries: cargo puts those of the package under test beside the tests.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a file");
    let found = own.ancestors().skip(1).take(2).find(|folder| folder.join("libkagiri_qos.a").exists());
    found.expect("libkagiri_qos.a").to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(folder().join("include/kagiri_qos.h")).expect("the header");
    let before = header.match_indices('(').filter_map(|(at, _)| {
        let name = header[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        name.starts_with("kagiri_qos_").then(|| name.to_owned())
    });
    before.collect()
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn c_program_links_with_both_libraries_and_agrees_with_the_header() {
    if !is_installed("cc") {
        return features::skip("no C compiler");
    }
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let libraries = libraries();
    let common = |program: &str| {
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder().join("include"));
        cc.arg("-o").arg(out.join(program)).arg(folder().join("tests/header.c"));
        cc
    };
    run(common("static").arg(libraries.join("libkagiri_qos.a")).args(["-lpthread", "-ldl", "-lm"]));
    run(common("dynamic").arg(libraries.join("libkagiri_qos.so")));
    for program in ["static", "dynamic"] {
        let text = run(Command::new(out.join(program)).env("LD_LIBRARY_PATH", &libraries));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..5], ["1"; 5], "{program}: {text}");
        let texts = kagiri_qos::Error::ALL.map(|error| error.text());
        assert_eq!(lines[5], "done");
        assert_eq!(lines[6..12], texts, "the codes are in the order of the errors");
        // Size, and the first, the last number, the first of the short ones, the name: as `CReport`.
        assert_eq!(lines[12], "320 0 40 48 56", "{program}");
    }
}

#[test]
fn library_has_the_functions_of_the_header_and_no_others() {
    if !is_installed("nm") {
        return features::skip("no nm(1)");
    }
    let library = libraries().join("libkagiri_qos.so");
    let text = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let symbols: BTreeSet<String> =
        text.lines().filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect();
    let declared = declared();
    assert!(declared.len() == 6, "{declared:?}");
    assert_eq!(symbols, declared);
}
