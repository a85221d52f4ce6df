//! Pressure stall information: how long work waited for CPU, disk or memory. `/proc/pressure`,
//! Documentation/accounting/psi.rst.

use std::io;
use std::path::Path;

use super::ProcFile;
use super::parse::{decimal, lines, words};

/// Time lost since boot to one resource, in nanoseconds (the kernel counts microseconds).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stall {
    /// At least one task waited.
    pub some_ns: Option<u64>,
    /// Every task that could run waited. Not meaningful for the CPU of a whole host.
    pub full_ns: Option<u64>,
}

/// The pressures at one moment; `None` for a resource the kernel does not watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureReading {
    /// Waiting for a CPU.
    pub cpu: Option<Stall>,
    /// Waiting for a disk.
    pub io: Option<Stall>,
    /// Waiting for memory.
    pub memory: Option<Stall>,
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
        let read =
            |file: &mut Option<ProcFile>| file.as_mut().and_then(|file| file.read_once().ok().map(parse));
        Ok(PressureReading {
            cpu: read(&mut self.cpu),
            io: read(&mut self.io),
            memory: read(&mut self.memory),
        })
    }
}

/// Reads the two lines of one pressure file.
fn parse(text: &[u8]) -> Stall {
    let mut stall = Stall::default();
    for line in lines(text) {
        let mut words = words(line);
        let kind = words.next();
        let total_ns = words
            .find_map(|word| word.strip_prefix(b"total="))
            .and_then(decimal)
            .map(|us| us.saturating_mul(1000));
        match kind {
            Some(b"some") => stall.some_ns = total_ns,
            Some(b"full") => stall.full_ns = total_ns,
            _ => {}
        }
    }
    stall
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &[u8] = b"some avg10=0.14 avg60=0.03 avg300=0.00 total=10864774\n\
        full avg10=0.14 avg60=0.03 avg300=0.00 total=10306033\n";

    #[test]
    fn a_real_sample() {
        let stall = parse(SAMPLE);
        assert_eq!(stall.some_ns, Some(10_864_774_000));
        assert_eq!(stall.full_ns, Some(10_306_033_000));
    }

    #[test]
    fn what_is_missing_is_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Pressure::open(root.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        std::fs::write(root.path().join("proc/pressure/cpu"), "some avg10=0.00 total=5\n").unwrap();
        let reading = Pressure::open(root.path()).unwrap().read().unwrap();
        assert_eq!(reading.cpu, Some(Stall { some_ns: Some(5000), full_ns: None }));
        assert_eq!(reading.io, None);
    }

    proptest! {
        #[test]
        fn no_input_panics(text: Vec<u8>) {
            parse(&text);
        }
    }
}
