//! Settings of new sockets of a control group, from their first packet on: BPF programs at the control group
//! (`new_sockets.bpf.c`).

use std::fs::File;
use std::path::Path;

use aya::maps::{Array, MapData};
use aya::programs::{CgroupAttachMode, CgroupSock, SockOps};
use aya::{Ebpf, Pod};

use crate::journal::network::OWN_RATES;
use crate::journal::{EntryId, Journal, Undo};
use crate::process::{PacingRate, SocketChange};
use crate::{Error, Result};

#[cfg(has_bpf)]
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/new_sockets.bpf.o"));
#[cfg(not(has_bpf))]
static OBJECT: &[u8] = &[];

const RANDOM_RATES: u32 = OWN_RATES as u32;

/// `struct setting`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Setting {
    bytes_per_s: u32,
    priority: u32,
}

// SAFETY: two integers, in the layout of C, without padding.
unsafe impl Pod for Setting {}

/// Sets the priority of new sockets of a control group (version 2) and the groups below it, and the pacing
/// rate of new TCP connections, until it is dropped; the kernel detaches the programs when this process ends.
/// What they have set stays, so [`crate::shaping::ManagedSockets::assume_new_sockets_have`] has to know it.
///
/// A socket belongs to the group in which its process was when it made it; an accepted one to its listener's.
pub struct NewSockets {
    journal: Journal,
    entry: EntryId,
    settings: Array<MapData, Setting>,
    change: SocketChange,
    /// The lowest 8 bits of the pacing rate.
    mark: u32,
    /// Detaches the programs when it is dropped, before the journal's entry is undone.
    programs: Option<Ebpf>,
}

impl NewSockets {
    /// Attaches the programs to the group with this folder. The pacing rate, at least 512 byte/s and below
    /// 4.29 GB/s, is set up to 511 byte/s lower: its lowest 8 bits are chosen at random, so that `kagiri
    /// undo` recognises it. See [`Self::change`].
    /// Errors: the folder is no control group of version 2, no right (CAP_BPF and CAP_NET_ADMIN), or the
    /// kernel cannot (Linux 5.7 can).
    pub fn attach(journal: &Journal, group: &Path, change: SocketChange) -> Result<Self> {
        let failed = |error: &dyn std::error::Error| {
            Error::Refused(format!(
                "cannot set new sockets of control group {}: {}; it must be a folder of a cgroup2 hierarchy, \
                 and kagiri must run as root on Linux 5.7 or later",
                group.display(),
                last_cause(error)
            ))
        };
        let folder = File::open(group).map_err(|error| Error::file("open control group", group, error))?;
        let mut random = [0; 4];
        getrandom::fill(&mut random)
            .map_err(|error| Error::call("choose a number", std::io::Error::other(error)))?;
        let mark = u32::from_ne_bytes(random) % (RANDOM_RATES - 1) + 1;
        let pacing = change.pacing.map(|rate| own_rate(rate, mark)).transpose()?;
        let change = SocketChange { pacing, ..change };

        if OBJECT.is_empty() {
            return Err(Error::Refused(
                "this kagiri was built without BPF programs (the build found no clang): new sockets are \
                 found by the next scan instead"
                    .to_owned(),
            ));
        }
        let mut programs = Ebpf::load(OBJECT).map_err(|error| failed(&error))?;
        let map = programs.take_map("settings").map(Array::try_from);
        let Some(Ok(settings)) = map else {
            return Err(Error::Refused("the BPF program lacks its map".to_owned()));
        };
        let undo = Undo::RestoreNewSockets { group: group.to_path_buf(), change, varies: true };
        let entry = journal.record(undo)?;
        let journal = journal.clone();
        let mut this = Self { journal, entry, settings, change, mark, programs: Some(programs) };
        this.start(&folder).map_err(|error| failed(&*error))?;
        Ok(this)
    }

    /// What new sockets get.
    pub fn change(&self) -> SocketChange {
        self.change
    }

    /// Sets the pacing rate of sockets that are made from now on, with the same lowest 8 bits.
    /// Errors: no pacing rate was attached, or this one is out of range.
    pub fn set_pacing(&mut self, rate: PacingRate) -> Result<()> {
        if self.change.pacing.is_none() {
            return Err(Error::Refused("new sockets of this control group have no pacing rate".to_owned()));
        }
        self.change.pacing = Some(own_rate(rate, self.mark)?);
        let written = self.settings.set(0, self.setting(), 0);
        written.map_err(|error| Error::Refused(format!("cannot set the rate of new sockets: {error}")))
    }

    fn setting(&self) -> Setting {
        Setting {
            bytes_per_s: self.change.pacing.map_or(0, |rate| rate.bytes_per_s() as u32),
            priority: self.change.priority.unwrap_or(0),
        }
    }

    fn start(&mut self, folder: &File) -> std::result::Result<(), Box<dyn std::error::Error>> {
        self.settings.set(0, self.setting(), 0)?;
        let Some(programs) = &mut self.programs else { return Ok(()) };
        // Without a flag, a link leaves other programs of the group in force, and further ones can come.
        let mode = CgroupAttachMode::Single;
        let on_create: &mut CgroupSock =
            programs.program_mut("on_create").ok_or("its program on_create is missing")?.try_into()?;
        on_create.load()?;
        on_create.attach(folder, mode)?;
        let on_operation: &mut SockOps =
            programs.program_mut("on_operation").ok_or("its program on_operation is missing")?.try_into()?;
        on_operation.load()?;
        on_operation.attach(folder, mode)?;
        Ok(())
    }
}

impl std::fmt::Debug for NewSockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSockets").field("change", &self.change).finish_non_exhaustive()
    }
}

impl Drop for NewSockets {
    fn drop(&mut self) {
        self.programs = None;
        // What cannot be restored stays in the journal, which reports it.
        self.journal.undo(self.entry);
    }
}

/// A rate with our lowest 8 bits, up to 511 byte/s lower.
fn own_rate(rate: PacingRate, mark: u32) -> Result<PacingRate> {
    let high = u32::try_from(rate.bytes_per_s()).ok().and_then(|rate| rate.checked_sub(RANDOM_RATES));
    let own = high.filter(|high| *high >= RANDOM_RATES).map(|high| high - high % RANDOM_RATES + mark);
    own.and_then(|own| PacingRate::from_bytes_per_s(own.into())).ok_or_else(|| {
        Error::Refused("the pacing rate of new sockets must be from 512 to 4294967295 byte/s".to_owned())
    })
}

/// The kernel's answer is at the bottom of the library's error.
fn last_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}
