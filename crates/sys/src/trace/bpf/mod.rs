//! Tracing by a BPF program (`calls.bpf.c`) at raw tracepoints: one record a call, or counts per duration.
//!
//! The program times a call where it happens, and asks a table of followed threads; it needs CAP_BPF and
//! CAP_PERFMON, a kernel from 5.8 on with its types in `/sys/kernel/btf/vmlinux`, and a clang at build time.

mod records;
#[cfg(has_bpf)]
mod tracer;

use super::{Backend, Setting, TraceError, Tracer};

/// Loads and checks the program; nothing is traced yet.
/// Errors: No right to, the kernel cannot, or this build has no BPF program.
pub(super) fn open(setting: &Setting) -> Result<Box<dyn Tracer>, TraceError> {
    if !shares_the_first_namespace() {
        // The program would see other process numbers than we do.
        return Err(unsupported("this program runs in a process namespace of its own (a container)"));
    }
    load(setting)
}

#[cfg(has_bpf)]
fn load(setting: &Setting) -> Result<Box<dyn Tracer>, TraceError> {
    Ok(Box::new(tracer::BpfTracer::open(setting)?))
}

#[cfg(not(has_bpf))]
fn load(_: &Setting) -> Result<Box<dyn Tracer>, TraceError> {
    Err(unsupported("this kagiri was built without it (the build found no clang)"))
}

fn unsupported(why: impl Into<String>) -> TraceError {
    TraceError::Unsupported { backend: Backend::Bpf, why: why.into() }
}

/// Whether this process has one number only: in a namespace of its own it would have several (`NSpid`,
/// proc(5)).
fn shares_the_first_namespace() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_none_or(|numbers| numbers.split_whitespace().count() == 1)
}
