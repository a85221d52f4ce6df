//! CPU time and throttling of a control group: `cpu.stat` of version 1 and 2.

use std::io;
use std::path::Path;

use super::ProcFile;
use super::parse::{decimal, keyed_decimal};

/// CPU use and throttling of a control group since its creation.
///
/// Version 1 counts nanoseconds and has the usage in another file (`cpuacct.usage`); version 2 counts
/// microseconds in one file. Both are nanoseconds here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupCpuReading {
    pub usage_ns: Option<u64>,
    /// Periods in which it used up its quota and had to wait.
    pub periods_throttled: Option<u64>,
    /// Time waited for the next period, summed over CPUs.
    pub throttled_ns: Option<u64>,
}

/// Reads one group's `cpu.stat`.
#[derive(Debug)]
pub struct CgroupCpu {
    stat: ProcFile,
    usage: Option<ProcFile>,
}

impl CgroupCpu {
    /// Opens the `cpu.stat` file at `stat` and, for version 1, the group's `cpuacct.usage`.
    ///
    /// [`crate::cgroup::Cgroup::cpu_reader`] knows both paths of a group that this program made.
    pub fn open(stat: &Path, usage: Option<&Path>) -> io::Result<Self> {
        let usage = usage.and_then(|path| ProcFile::open_path(path.to_path_buf()).ok());
        Ok(Self { stat: ProcFile::open_path(stat.to_path_buf())?, usage })
    }

    pub fn read(&mut self) -> io::Result<CgroupCpuReading> {
        let mut reading = parse(self.stat.read_once()?);
        if let Some(usage) = &mut self.usage {
            reading.usage_ns = usage.read_once().ok().and_then(|text| decimal(text.trim_ascii()));
        }
        Ok(reading)
    }
}

pub(super) fn parse(text: &[u8]) -> CgroupCpuReading {
    let from_us = |key| keyed_decimal(text, key).map(|us| us.saturating_mul(1000));
    CgroupCpuReading {
        usage_ns: from_us(b"usage_usec"),
        periods_throttled: keyed_decimal(text, b"nr_throttled"),
        throttled_ns: from_us(b"throttled_usec").or_else(|| keyed_decimal(text, b"throttled_time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_counts_nanoseconds_in_two_files() {
        let dir = tempfile::tempdir().unwrap();
        let (stat, usage) = (dir.path().join("cpu.stat"), dir.path().join("cpuacct.usage"));
        std::fs::write(&stat, "nr_periods 40\nnr_throttled 7\nthrottled_time 123456\nnr_bursts 0\n").unwrap();
        std::fs::write(&usage, "369180266130\n").unwrap();
        let reading = CgroupCpu::open(&stat, Some(&usage)).unwrap().read().unwrap();
        let expected = CgroupCpuReading {
            usage_ns: Some(369_180_266_130),
            periods_throttled: Some(7),
            throttled_ns: Some(123_456),
        };
        assert_eq!(reading, expected);
    }

    #[test]
    fn version_2_counts_microseconds_in_one_file() {
        let text = b"usage_usec 364137806\nuser_usec 1\nnr_periods 2\nnr_throttled 1\nthrottled_usec 5\n";
        let reading = parse(text);
        assert_eq!(reading.usage_ns, Some(364_137_806_000));
        assert_eq!(reading.throttled_ns, Some(5000));
        // The root group has no quota: these keys are absent, not zero.
        assert_eq!(parse(b"usage_usec 1\n").throttled_ns, None);
    }
}
