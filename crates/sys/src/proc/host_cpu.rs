//! The CPUs of the host: `/proc/stat`, proc_stat(5).

use std::io;
use std::path::Path;

use super::ProcFile;
use super::parse::{decimal, lines, words};
use super::proc_file::malformed;
use crate::clock::tick_hz;

const NS_PER_S: u64 = 1_000_000_000;

/// CPU time since boot, in nanoseconds, with the resolution of the kernel's accounting tick (10 ms).
///
/// What the kernel does not report (`steal` before Linux 2.6.11) is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Programs, guests included.
    pub user_ns: u64,
    /// Programs of lowered priority.
    pub nice_ns: u64,
    /// The kernel, without interrupts.
    pub system_ns: u64,
    pub idle_ns: u64,
    /// Nothing to do while something waited for a disk; proc_stat(5) warns that it is only a hint.
    pub iowait_ns: Option<u64>,
    pub irq_ns: Option<u64>,
    /// Soft interrupts: most of the work of the network stack.
    pub softirq_ns: Option<u64>,
    /// Taken by the hypervisor for others: a noisy neighbour.
    pub steal_ns: Option<u64>,
}

impl CpuTimes {
    /// Everything but idle, iowait and steal.
    pub fn busy_ns(&self) -> u64 {
        [self.nice_ns, self.system_ns, self.irq_ns.unwrap_or(0), self.softirq_ns.unwrap_or(0)]
            .iter()
            .fold(self.user_ns, |sum, part| sum.saturating_add(*part))
    }

    /// From the words after `cpu`; `None` with fewer than the four that every kernel has.
    fn parse<'a>(mut ticks: impl Iterator<Item = &'a [u8]>, ns_per_tick: u64) -> Option<Self> {
        let mut next = || ticks.next().and_then(decimal).map(|ticks| ticks.saturating_mul(ns_per_tick));
        Some(Self {
            user_ns: next()?,
            nice_ns: next()?,
            system_ns: next()?,
            idle_ns: next()?,
            iowait_ns: next(),
            irq_ns: next(),
            softirq_ns: next(),
            steal_ns: next(),
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCpuReading {
    pub total: CpuTimes,
    /// Per online CPU: its number and its times.
    pub per_cpu: Vec<(u32, CpuTimes)>,
    pub context_switches: Option<u64>,
}

#[derive(Debug)]
pub struct HostCpu {
    file: ProcFile,
    reading: HostCpuReading,
    ns_per_tick: u64,
}

impl HostCpu {
    pub fn open(root: &Path) -> io::Result<Self> {
        let file = ProcFile::open(root, "proc/stat")?;
        Ok(Self { file, reading: HostCpuReading::default(), ns_per_tick: NS_PER_S / tick_hz() })
    }

    /// Reads them now. Errors: those of reading, and `InvalidData` when the file does not start with `cpu`.
    pub fn read(&mut self) -> io::Result<&HostCpuReading> {
        let text = self.file.read_once()?;
        let whole = parse(text, self.ns_per_tick, &mut self.reading);
        if whole.is_none() {
            return Err(malformed(self.file.path(), "a first line `cpu` with at least four numbers"));
        }
        Ok(&self.reading)
    }
}

fn parse(text: &[u8], ns_per_tick: u64, into: &mut HostCpuReading) -> Option<()> {
    into.per_cpu.clear();
    into.context_switches = None;
    let mut lines = lines(text);
    let mut first = words(lines.next()?);
    if first.next()? != b"cpu" {
        return None;
    }
    into.total = CpuTimes::parse(first, ns_per_tick)?;
    for line in lines {
        let mut words = words(line);
        let Some(name) = words.next() else { continue };
        if let Some(number) = name.strip_prefix(b"cpu").and_then(decimal) {
            let Ok(number) = u32::try_from(number) else { continue };
            if let Some(times) = CpuTimes::parse(words, ns_per_tick) {
                into.per_cpu.push((number, times));
            }
        } else if name == b"ctxt" {
            into.context_switches = words.next().and_then(decimal);
            break;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "cpu  31584 0 4587 278530 1275 0 169 144 0 0\n\
        cpu0 14879 0 1711 141377 113 0 13 49 0 0\n\
        cpu1 16705 0 2876 137152 1162 0 155 94 0 0\n\
        intr 346968 0 0 0 13 0\nctxt 563248\nbtime 1795\n";

    fn read(text: &str) -> io::Result<HostCpuReading> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/stat"), text).unwrap();
        HostCpu::open(root.path()).unwrap().read().cloned()
    }

    #[test]
    fn real_sample_is_parsed() {
        let reading = read(SAMPLE).unwrap();
        let tick = NS_PER_S / tick_hz();
        assert_eq!(reading.total.busy_ns(), (31584 + 4587 + 169) * tick);
        assert_eq!(reading.total.steal_ns, Some(144 * tick));
        assert_eq!(reading.total.iowait_ns, Some(1275 * tick));
        assert_eq!(reading.per_cpu.len(), 2);
        assert_eq!(reading.per_cpu[1].0, 1);
        assert_eq!(reading.per_cpu[1].1.softirq_ns, Some(155 * tick));
        assert_eq!(reading.context_switches, Some(563_248));
    }

    #[test]
    fn old_format_has_no_steal() {
        let reading = read("cpu 1 2 3 4\n").unwrap();
        assert_eq!(reading.total.steal_ns, None);
        assert_eq!(reading.total.iowait_ns, None);
        assert_eq!(reading.context_switches, None);
    }

    #[test]
    fn malformed_stat_is_an_error() {
        for text in ["", "cpu\n", "cpu 1 2 3\n", "intr 1 2 3 4\n"] {
            assert_eq!(read(text).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
    }

    #[test]
    fn host_cpu_counters_grow() {
        let mut reader = HostCpu::open(Path::new("/")).unwrap();
        let first = reader.read().unwrap().total;
        let second = reader.read().unwrap().clone();
        assert!(second.total.user_ns >= first.user_ns);
        assert!(!second.per_cpu.is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(text: Vec<u8>) {
            parse(&text, 10_000_000, &mut HostCpuReading::default());
        }

        #[test]
        fn per_cpu_numbers_round_trip(
            cpus in proptest::collection::vec(proptest::array::uniform8(0u64..1 << 40), 1..9),
        ) {
            let mut text = String::from("cpu 1 2 3 4\n");
            for (number, ticks) in cpus.iter().enumerate() {
                text.push_str(&format!("cpu{number} "));
                text.push_str(&ticks.map(|t| t.to_string()).join(" "));
                text.push('\n');
            }
            let mut reading = HostCpuReading::default();
            prop_assert_eq!(parse(text.as_bytes(), 1, &mut reading), Some(()));
            prop_assert_eq!(reading.per_cpu.len(), cpus.len());
            for (read, written) in reading.per_cpu.iter().zip(&cpus) {
                prop_assert_eq!(read.1.user_ns, written[0]);
                prop_assert_eq!(read.1.steal_ns, Some(written[7]));
            }
        }
    }
}
