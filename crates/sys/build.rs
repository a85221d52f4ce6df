//! Compiles the programs that the kernel runs for `trace::bpf` and `shaping::NewSockets`, where there is a
//! clang that can. Without one the crate has neither, and says so when it is asked for it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Sources and what they become.
const PROGRAMS: [(&str, &str); 2] =
    [("src/trace/bpf/calls.bpf.c", "calls.bpf.o"), ("src/shaping/new_sockets.bpf.c", "new_sockets.bpf.o")];
const HEADERS: [&str; 2] = ["src/trace/bpf/state.h", "src/trace/bpf/kernel.h"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_bpf)");
    println!("cargo::rerun-if-env-changed=CLANG");
    for path in HEADERS.iter().chain(PROGRAMS.iter().map(|(source, _)| source)) {
        println!("cargo::rerun-if-changed={path}");
    }
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    let all = PROGRAMS.iter().try_for_each(|(source, object)| compile(source, &out.join(object)));
    match all {
        Ok(()) => println!("cargo::rustc-cfg=has_bpf"),
        Err(why) => println!("cargo::warning=the timeline and qos are built without BPF programs: {why}"),
    }
}

/// Debug information is kept: from its BTF the loader finds the fields that the program reads in the running
/// kernel.
fn compile(source: &str, object: &Path) -> Result<(), String> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let compiled = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-c", source, "-o"])
        .arg(object)
        .output()
        .map_err(|error| format!("{clang}: {error}; install clang"))?;
    match compiled.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&compiled.stderr).replace('\n', " ")),
    }
}
