//! What one builder is told.

use std::net::{SocketAddr, SocketAddrV4};

use crate::daq::settings::{DaqSettings, Draw};

/// What one builder is told.
#[derive(Debug, Clone)]
pub struct Told {
    /// The settings at the trial's load.
    pub settings: DaqSettings,
    /// Its number.
    pub builder: u16,
    /// How many builders there are on all hosts.
    pub builders_all: u16,
    /// The run.
    pub run: u32,
    /// Where it listens, by TCP and UDP.
    pub address: SocketAddr,
    /// Where it multicasts its orders to.
    pub group: SocketAddrV4,
    /// Seed of times and sizes.
    pub seed: u64,
    /// The size of each fragment.
    pub sizes: Draw,
    /// The times that a file of triggers names, ns after the start.
    pub times_ns: Vec<u64>,
}

impl Told {
    /// How many sources there are, its own and others' front ends.
    pub fn sources(&self) -> u32 {
        u32::try_from(self.settings.sources).unwrap_or(u32::MAX)
    }

    /// Events that may be under way at once: as many as was said, if so many fit into memory.
    pub fn window(&self) -> u32 {
        let event_bytes = (self.sizes.mean_bytes() * f64::from(self.sources())).max(1.0);
        let fit = self.settings.memory.bytes() as f64 / event_bytes;
        self.settings.window.min(fit as u32).max(1)
    }

    /// Bytes of every fragment, if they are all alike; else 0: the source knows.
    pub const fn fragment_bytes(&self) -> u32 {
        match self.settings.size {
            crate::daq::settings::Size::Fixed(size) => {
                let bytes = size.bytes();
                if bytes > u32::MAX as u64 { u32::MAX } else { bytes as u32 }
            }
            _ => 0,
        }
    }
}
