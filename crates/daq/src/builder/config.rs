//! What the part and one builder share: its configuration and its progress.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::assembly::AssemblerConfig;
use crate::settings::{DaqSettings, FragmentSizes, Size};

#[derive(Debug, Clone)]
pub(super) struct BuilderConfig {
    /// The settings at the trial's load.
    pub(super) settings: DaqSettings,
    pub(super) builder: u16,
    pub(super) builders_all: u16,
    pub(super) run: u32,
    pub(super) address: SocketAddr,
    pub(super) group: SocketAddrV4,
    pub(super) seed: u64,
    pub(super) sizes: FragmentSizes,
    /// Trigger times from a file, ns after the start.
    pub(super) times_ns: Vec<u64>,
    pub(super) link_bit_per_s: Option<f64>,
}

impl BuilderConfig {
    /// The number of sources, front ends included.
    pub(super) fn sources(&self) -> u32 {
        u32::try_from(self.settings.sources).unwrap_or(u32::MAX)
    }

    /// Events that may be under way at once: as set, unless the memory limit allows fewer.
    pub(super) fn window(&self) -> u32 {
        let event_bytes = (self.sizes.mean_bytes() * f64::from(self.sources())).max(1.0);
        let fit = self.settings.memory.bytes() as f64 / event_bytes;
        self.settings.window.min(fit as u32).max(1)
    }

    /// Payload length for orders; 0: it differs between fragments, and sources draw it.
    pub(super) fn fragment_bytes(&self) -> u32 {
        match self.settings.size {
            Size::Fixed(size) => u32::try_from(size.bytes()).unwrap_or(u32::MAX),
            _ => 0,
        }
    }

    pub(super) fn mean_fragment_bytes(&self) -> u32 {
        self.sizes.mean_bytes().round() as u32
    }

    /// What a fragment of the mean length takes on the wire.
    pub(super) fn mean_wire_bytes(&self) -> u64 {
        self.wire_bytes(self.mean_fragment_bytes())
    }

    /// What a fragment takes on the wire, with all headers.
    pub(super) fn wire_bytes(&self, payload_bytes: u32) -> u64 {
        crate::theory::fragment_wire_bytes(payload_bytes, self.settings.protocol)
    }

    /// A source's share of the memory for one event.
    fn share_bytes(&self) -> u64 {
        let shares = u64::from(self.sources()) * u64::from(self.window());
        self.settings.memory.bytes() / shares.max(1)
    }

    /// The longest fragment of a front end: half of its share, so that one that is sent again in another size
    /// has room; or a few usual ones if its share holds them, so that all others find theirs.
    fn claim_bytes_max(&self) -> u64 {
        let (share_bytes, usual_bytes) = (self.share_bytes(), u64::from(self.mean_fragment_bytes()));
        (share_bytes / 2).max((usual_bytes * 4).min(share_bytes)).max(usual_bytes)
    }

    pub(super) fn assembler(&self) -> AssemblerConfig {
        AssemblerConfig {
            run: self.run,
            builder: self.builder,
            builders_all: self.builders_all.max(1),
            sources: self.sources(),
            front_ends: self.settings.front_ends,
            share_bytes: self.share_bytes(),
            claim_bytes_max: self.claim_bytes_max(),
            sizes: self.sizes.clone(),
            memory_bytes: self.settings.memory.bytes(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct BuilderProgress {
    done_millionths: AtomicU32,
    /// Why the trial cannot be measured.
    pub(super) failure: OnceLock<String>,
    /// Complete events, also before the hold.
    pub(super) complete: AtomicU64,
    pub(super) incomplete: AtomicU64,
    pub(super) connected: AtomicU32,
}

impl BuilderProgress {
    pub(super) fn set_done(&self, share: f64) {
        self.done_millionths.store((share.clamp(0.0, 1.0) * 1e6) as u32, Ordering::Relaxed);
    }

    pub(super) fn done(&self) -> f64 {
        f64::from(self.done_millionths.load(Ordering::Relaxed)) / 1e6
    }
}
