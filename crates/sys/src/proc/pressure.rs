//! Pressure stall information: how long work waited for CPU, disk or memory. `/proc/pressure`,
//! Documentation/accounting/psi.rst.

use std::io;
use std::path::Path;

use super::ProcFile;
use super::parse::{decimal, lines, words};

/// Time since boot in which at least one task waited for a resource, in nanoseconds (the kernel counts
/// microseconds); `None` for a resource that the kernel does not watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureReading {
    pub cpu_ns: Option<u64>,
    pub io_ns: Option<u64>,
    pub memory_ns: Option<u64>,
}

/// Reads the pressures of the host, or of a cgroup v2.
#[derive(Debug)]
pub struct Pressure {
    cpu: Option<ProcFile>,
    io: Option<ProcFile>,
    memory: Option<ProcFile>,
}

impl Pressure {
    /// Opens `proc/pressure/*` below `root`. Errors with `NotFound` when there is none (no `CONFIG_PSI`, or
    /// not switched on).
    pub fn open(root: &Path) -> io::Result<Self> {
        let open = |name: &str| ProcFile::open(root, Path::new("proc/pressure").join(name)).ok();
        let this = Self { cpu: open("cpu"), io: open("io"), memory: open("memory") };
        if this.cpu.is_none() && this.io.is_none() && this.memory.is_none() {
            let what = "no /proc/pressure: the kernel has no pressure stall information (boot with psi=1)";
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        Ok(this)
    }

    /// Reads them now. A file that exists but cannot be read (PSI switched off) counts as not offered.
    pub fn read(&mut self) -> io::Result<PressureReading> {
        let read = |file: &mut Option<ProcFile>| parse(file.as_mut()?.read_once().ok()?);
        Ok(PressureReading {
            cpu_ns: read(&mut self.cpu),
            io_ns: read(&mut self.io),
            memory_ns: read(&mut self.memory),
        })
    }
}

/// Reads the line `some ... total=MICROSECONDS` of one pressure file.
pub(super) fn parse(text: &[u8]) -> Option<u64> {
    let mut words = words(lines(text).find(|line| line.starts_with(b"some "))?);
    let total_us = words.find_map(|word| word.strip_prefix(b"total=")).and_then(decimal)?;
    Some(total_us.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"some avg10=0.14 avg60=0.03 avg300=0.00 total=10864774\n\
        full avg10=0.14 avg60=0.03 avg300=0.00 total=10306033\n";

    #[test]
    fn real_sample_is_parsed() {
        assert_eq!(parse(SAMPLE), Some(10_864_774_000));
    }

    #[test]
    fn missing_values_are_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Pressure::open(root.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        std::fs::write(root.path().join("proc/pressure/cpu"), "some avg10=0.00 total=5\n").unwrap();
        let reading = Pressure::open(root.path()).unwrap().read().unwrap();
        assert_eq!((reading.cpu_ns, reading.io_ns), (Some(5000), None));
    }
}
