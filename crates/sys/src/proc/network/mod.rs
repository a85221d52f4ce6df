//! The network as the kernel counts it: devices, soft interrupts, socket memory, TCP. proc_net(5) and
//! Documentation/networking/snmp_counter.rst.

pub mod route;

use std::io;
use std::path::{Path, PathBuf};

use crate::proc::ProcFile;
use crate::proc::parse::{decimal, hexadecimal, lines, words};
use crate::proc::proc_file::malformed;

/// One network device's counters since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetDeviceReading {
    pub rx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    /// Packets dropped on the way out by the driver. A queueing discipline's drops are not among them.
    pub tx_dropped: u64,
}

#[derive(Debug)]
pub struct NetDevice {
    file: ProcFile,
    name: String,
}

impl NetDevice {
    /// Opens device `name` of this process's network namespace (`proc/net/dev` below `root`).
    /// Errors with `NotFound` when there is no such device.
    pub fn open(root: &Path, name: &str) -> io::Result<Self> {
        Self::open_file(root, PathBuf::from("proc/net/dev"), name)
    }

    /// Opens device `name` of the network namespace that process `pid` lives in. (`/sys/class/net` shows
    /// another namespace only after mounting it again; `/proc/PID/net` needs nothing.)
    pub fn open_of_pid(root: &Path, pid: i32, name: &str) -> io::Result<Self> {
        Self::open_file(root, PathBuf::from(format!("proc/{pid}/net/dev")), name)
    }

    fn open_file(root: &Path, relative: PathBuf, name: &str) -> io::Result<Self> {
        let mut this = Self { file: ProcFile::open(root, relative)?, name: name.to_owned() };
        this.read()?;
        Ok(this)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads it now. Errors with `NotFound` when the device has gone.
    pub fn read(&mut self) -> io::Result<NetDeviceReading> {
        let text = self.file.read_all()?;
        parse_device(text, self.name.as_bytes()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no network device named `{}`", self.name))
        })
    }
}

fn parse_device(text: &[u8], name: &[u8]) -> Option<NetDeviceReading> {
    let line = lines(text).find_map(|line| line.trim_ascii_start().strip_prefix(name)?.strip_prefix(b":"))?;
    let mut words = words(line);
    let mut skip_to = |places: usize| words.nth(places).and_then(decimal);
    // bytes packets errs drop fifo frame compressed multicast | bytes packets errs drop ...
    Some(NetDeviceReading {
        rx_bytes: skip_to(0)?,
        rx_dropped: skip_to(2)?,
        tx_bytes: skip_to(4)?,
        tx_packets: skip_to(0)?,
        tx_dropped: skip_to(1)?,
    })
}

/// The network stack's soft interrupts, all CPUs together, since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoftnetReading {
    pub processed: u64,
    /// Packets dropped because a CPU's backlog was full.
    pub dropped: u64,
    /// Times a round ended with work left over: the CPU could not keep up.
    pub squeezed: u64,
}

/// Reads the soft interrupts of the network stack (`/proc/net/softnet_stat`, hexadecimal, one line per CPU).
#[derive(Debug)]
pub struct Softnet {
    file: ProcFile,
}

impl Softnet {
    /// Opens `proc/net/softnet_stat` below `root`.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { file: ProcFile::open(root, "proc/net/softnet_stat")? })
    }

    /// Reads it now. Errors: those of reading, and `InvalidData` when no line has three numbers.
    pub fn read(&mut self) -> io::Result<SoftnetReading> {
        let reading = parse_softnet(self.file.read_all()?);
        reading.ok_or_else(|| malformed(self.file.path(), "lines of hexadecimal numbers"))
    }
}

fn parse_softnet(text: &[u8]) -> Option<SoftnetReading> {
    let mut sum: Option<SoftnetReading> = None;
    for line in lines(text).filter(|line| !line.is_empty()) {
        let mut words = words(line);
        let mut next = || words.next().and_then(hexadecimal);
        let sum = sum.get_or_insert_default();
        sum.processed = sum.processed.saturating_add(next()?);
        sum.dropped = sum.dropped.saturating_add(next()?);
        sum.squeezed = sum.squeezed.saturating_add(next()?);
    }
    sum
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemoryReading {
    /// TCP sockets in the whole host.
    pub tcp_allocated: Option<u64>,
    /// Memory of TCP queues in the whole host, bytes. RSS does not contain it.
    pub tcp_bytes: Option<u64>,
}

/// Reads socket memory (`/proc/net/sockstat`; its `mem` is in pages).
#[derive(Debug)]
pub struct SocketMemory {
    file: ProcFile,
    page_bytes: u64,
}

impl SocketMemory {
    /// Opens `proc/net/sockstat` below `root`.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self {
            file: ProcFile::open(root, "proc/net/sockstat")?,
            page_bytes: crate::proc::memory::page_bytes(),
        })
    }

    pub fn read(&mut self) -> io::Result<SocketMemoryReading> {
        Ok(parse_sockstat(self.file.read_once()?, self.page_bytes))
    }
}

fn parse_sockstat(text: &[u8], page_bytes: u64) -> SocketMemoryReading {
    let mut reading = SocketMemoryReading::default();
    for line in lines(text) {
        let mut words = words(line);
        let protocol = words.next();
        while let (Some(key), Some(value)) = (words.next(), words.next()) {
            let field = match (protocol, key) {
                (Some(b"TCP:"), b"alloc") => &mut reading.tcp_allocated,
                (Some(b"TCP:"), b"mem") => &mut reading.tcp_bytes,
                _ => continue,
            };
            let scale = if key == b"mem" { page_bytes } else { 1 };
            *field = decimal(value).map(|value| value.saturating_mul(scale));
        }
    }
    reading
}

/// TCP's counters of one network namespace since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpCountersReading {
    /// Segments sent, retransmissions excluded.
    pub segments_sent: Option<u64>,
    pub segments_retransmitted: Option<u64>,
    /// Retransmission timers that ran out.
    pub timeouts: Option<u64>,
    /// Connections that programs opened to others, and those that others opened.
    pub opened_active: Option<u64>,
    pub opened_passive: Option<u64>,
}

/// Reads TCP's counters (`/proc/net/snmp` and `/proc/net/netstat`).
#[derive(Debug)]
pub struct TcpCounters {
    snmp: ProcFile,
    netstat: Option<ProcFile>,
}

impl TcpCounters {
    /// Opens both files below `root`; without `netstat` its counters are `None`.
    pub fn open(root: &Path) -> io::Result<Self> {
        let netstat = ProcFile::open(root, "proc/net/netstat").ok();
        Ok(Self { snmp: ProcFile::open(root, "proc/net/snmp")?, netstat })
    }

    /// As [`TcpCounters::open`], of the network namespace that the calling thread is in, which need not be
    /// its process's.
    pub fn open_of_thread(root: &Path) -> io::Result<Self> {
        let netstat = ProcFile::open(root, "proc/thread-self/net/netstat").ok();
        Ok(Self { snmp: ProcFile::open(root, "proc/thread-self/net/snmp")?, netstat })
    }

    pub fn read(&mut self) -> io::Result<TcpCountersReading> {
        let mut reading = TcpCountersReading::default();
        parse_tcp(self.snmp.read_all()?, b"Tcp:", &mut reading);
        if let Some(netstat) = &mut self.netstat {
            parse_tcp(netstat.read_all()?, b"TcpExt:", &mut reading);
        }
        Ok(reading)
    }
}

/// Counts the TCP connections that are opened in a network namespace, from either side.
#[derive(Debug)]
pub struct OpenedConnections {
    snmp: ProcFile,
}

impl OpenedConnections {
    /// Of the network namespace that the calling thread is in.
    pub fn open_of_thread() -> io::Result<Self> {
        Ok(Self { snmp: ProcFile::open(Path::new("/"), "proc/thread-self/net/snmp")? })
    }

    /// All since the namespace was made (`ActiveOpens` and `PassiveOpens` of `/proc/net/snmp`). As long as
    /// the number is the same, no TCP socket has become a connection.
    pub fn read(&mut self) -> io::Result<Option<u64>> {
        let mut reading = TcpCountersReading::default();
        parse_tcp(self.snmp.read_all()?, b"Tcp:", &mut reading);
        Ok(reading.opened_active.zip(reading.opened_passive).map(|(own, others)| own.saturating_add(others)))
    }
}

/// Both files hold pairs of lines, names above and numbers below, each starting with the same group name.
fn parse_tcp(text: &[u8], group: &[u8], reading: &mut TcpCountersReading) {
    let mut lines = lines(text).filter_map(|line| line.strip_prefix(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return };
    for (name, value) in words(names).zip(words(values)) {
        let field = match name {
            b"OutSegs" => &mut reading.segments_sent,
            b"RetransSegs" => &mut reading.segments_retransmitted,
            b"TCPTimeouts" => &mut reading.timeouts,
            b"ActiveOpens" => &mut reading.opened_active,
            b"PassiveOpens" => &mut reading.opened_passive,
            _ => continue,
        };
        *field = decimal(value);
    }
}

#[cfg(test)]
mod tests;
