//! What the server stands on when it is made for the measurement: a disk, a CPU quota, a link. Everything goes
//! through the undo journal, and is gone when the stand is dropped.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use base::part::{HostContext, PartError};
use sys::cgroup::{Cgroup, ExistingGroup};
use sys::child::Spawn;
use sys::disk::{DiskImage, ImageSpec};
use sys::journal::Journal;
use sys::netns::{Netns, Shape, Subnet};

use crate::stream::settings::{DiskSettings, LinkSettings, StreamSettings};

/// Networks of links are taken from 10.83.0.0/16, the first that this host does not use.
const SUBNETS: u8 = 64;
/// A token bucket must hold what the timer lets through at once: at least rate / 250, and a full-sized segment.
const BURST_BYTES_MIN: u64 = 16 * 1024;

/// What was made. The fields are dropped in their order.
pub struct Stand {
    address: IpAddr,
    group: Option<Cgroup>,
    /// The host's own for programs under test.
    program_group: Option<ExistingGroup>,
    link: Option<Link>,
    disk: Option<DiskImage>,
    journal: Journal,
}

/// A link between the server's network namespace and this one.
pub struct Link {
    namespace: Netns,
}

impl Link {
    /// The server's end, which is the one that is shaped.
    pub fn device(&self) -> &str {
        self.namespace.inner_link()
    }
}

impl Stand {
    /// Make what the settings ask for; `address` is the host's, for a server without a link of its own.
    pub fn make(
        settings: &StreamSettings,
        address: IpAddr,
        journal: &Journal,
        host: &HostContext,
    ) -> Result<Self, PartError> {
        let needs_root =
            settings.disk.is_some() || settings.link.is_some() || settings.server.cpu_quota_percent.is_some();
        if needs_root && !sys::environment::is_root() {
            return Err(PartError::new(
                "a disk, a link or a CPU quota can be made only by root; run as root, or leave them out of the plan",
            ));
        }
        let program_group = host.program_group.as_deref().map(ExistingGroup::find).transpose();
        let program_group = program_group.map_err(PartError::new)?;
        let journal_kept = journal.clone();
        let mut stand =
            Self { address, group: None, program_group, link: None, disk: None, journal: journal_kept };
        if let Some(disk) = &settings.disk {
            host.say(format!("making a disk of {} with {}", disk.size, disk.file_system.name()));
            stand.disk = Some(make_disk(disk, journal, host)?);
        }
        if let Some(link) = &settings.link {
            stand.link = Some(make_link(link, journal)?);
        }
        stand.limit(settings, host)?;
        Ok(stand)
    }

    /// The CPU quota and the disk's read limit, on one group.
    fn limit(&mut self, settings: &StreamSettings, host: &HostContext) -> Result<(), PartError> {
        let read_limit = settings.disk.as_ref().and_then(|disk| disk.read_limit);
        if settings.server.cpu_quota_percent.is_none() && read_limit.is_none() {
            return Ok(());
        }
        if let Some(name) = self.program_group.as_ref().and(host.program_group.as_deref()) {
            return Err(PartError::usage(format!(
                "the host starts programs under test in its control group {name}, which a group with a quota or read \
                 limit would take them out of; leave server.cpu_quota_percent and disk.read_limit out"
            )));
        }
        let group = Cgroup::create(&self.journal, "server").map_err(PartError::new)?;
        if let Some(percent) = settings.server.cpu_quota_percent {
            group.set_cpu_quota_percent(percent).map_err(PartError::new)?;
        }
        if let (Some(limit), Some(device)) = (read_limit, self.disk.as_ref().map(DiskImage::block_device)) {
            group.set_read_limit(device, limit.byte_per_s()).map_err(PartError::new)?;
        }
        self.group = Some(group);
        Ok(())
    }

    /// Where content has to lie, if a disk was made for it.
    pub fn content_dir(&self) -> Option<&Path> {
        self.disk.as_ref().map(DiskImage::target)
    }

    /// The address that the server listens on.
    pub fn server_ip(&self) -> IpAddr {
        self.link.as_ref().map_or(self.address, |link| IpAddr::V4(link.namespace.inner_address()))
    }

    /// The link that was made.
    pub fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// The directory of the group's CPU accounting.
    pub fn cgroup_cpu_dir(&self) -> Option<String> {
        let made = self.group.as_ref().and_then(Cgroup::cpu_stat_path);
        let made = made.as_deref().and_then(Path::parent);
        let dir = made.or_else(|| self.program_group.as_ref()?.cpu_folder())?;
        Some(dir.to_string_lossy().into_owned())
    }

    /// Let a program be started in the group and the namespace.
    pub fn hold(&self, mut spawn: Spawn) -> Spawn {
        if let Some(group) = &self.group {
            spawn = spawn.cgroup(group);
        }
        if let Some(group) = &self.program_group {
            spawn = spawn.join(group);
        }
        if let Some(link) = &self.link {
            spawn = spawn.netns(&link.namespace);
        }
        spawn
    }

    /// Put everything back and say what could not be.
    pub fn remove(self) -> Result<(), String> {
        let journal = self.journal.clone();
        drop(self);
        match journal.pending() {
            0 => Ok(()),
            n => Err(format!("{n} changes to this system could not be put back; run 'kagiri undo'")),
        }
    }
}

fn make_disk(disk: &DiskSettings, journal: &Journal, host: &HostContext) -> Result<DiskImage, PartError> {
    let name = format!("{}-{}", std::process::id(), sys::clock::monotonic_ns());
    let dir = host.data_dir.join("disks");
    std::fs::create_dir_all(&dir)
        .map_err(|error| PartError::new(format!("cannot make the directory {}: {error}", dir.display())))?;
    let spec = ImageSpec {
        image: dir.join(format!("{name}.img")),
        size_bytes: disk.size.bytes(),
        file_system: disk.file_system,
        target: mount_point(&dir, &name),
    };
    DiskImage::create(journal, &spec).map_err(PartError::new)
}

fn mount_point(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.mnt"))
}

fn make_link(link: &LinkSettings, journal: &Journal) -> Result<Link, PartError> {
    let rate_bit_per_s = link.rate.bit_per_s();
    let burst_bytes = (rate_bit_per_s / 8 / 250).max(BURST_BYTES_MIN);
    let shape = Shape { rate_bit_per_s, burst_bytes, buffer_bytes: link.buffer.bytes() };
    let mut refused = None;
    for number in 0..SUBNETS {
        let subnet = Subnet::new(Ipv4Addr::new(10, 83, number, 0), 30).map_err(PartError::new)?;
        match Netns::create(journal, &format!("server-{}", sys::clock::monotonic_ns()), subnet) {
            Ok(namespace) => {
                namespace.shape(shape).map_err(PartError::new)?;
                return Ok(Link { namespace });
            }
            Err(error) => refused = Some(error),
        }
    }
    Err(PartError::new(refused.map_or_else(|| "no network for a link".to_owned(), |error| error.to_string())))
}
