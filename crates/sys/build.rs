//! Compiles the program that the kernel runs for `trace::bpf`, where there is a clang that can. Without one
//! the crate has no BPF tracer, and says so when it is asked for it.

use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "src/trace/bpf";
const SOURCE: &str = "src/trace/bpf/calls.bpf.c";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_bpf)");
    println!("cargo::rerun-if-env-changed=CLANG");
    for name in ["calls.bpf.c", "state.h", "kernel.h"] {
        println!("cargo::rerun-if-changed={FOLDER}/{name}");
    }
    let Some(out) = std::env::var_os("OUT_DIR") else { return };
    let object = PathBuf::from(out).join("calls.bpf.o");
    match compile(&object) {
        Ok(()) => println!("cargo::rustc-cfg=has_bpf"),
        Err(why) => println!("cargo::warning=the timeline is built without its BPF tracer: {why}"),
    }
}

/// Debug information is kept: from its BTF the loader finds the fields that the program reads in the running
/// kernel.
fn compile(object: &Path) -> Result<(), String> {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let compiled = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-c", SOURCE, "-o"])
        .arg(object)
        .output()
        .map_err(|error| format!("{clang}: {error}; install clang"))?;
    match compiled.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&compiled.stderr).replace('\n', " ")),
    }
}
