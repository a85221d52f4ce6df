//! Control groups of the classes: programs that `kagiri qos exec` starts in them belong to the class, and
//! their new connections are paced from the first packet on.

use sys::cgroup::{UnifiedGroup, unified_path};
use sys::journal::Journal;
use sys::process::{PacingRate, SocketChange};
use sys::shaping::NewSockets;

use crate::law::CHANGE_MIN;
use crate::policy::Policy;

/// The most that new sockets can be set to, byte/s: the kernel's program knows 32 bits.
const RATE_MAX: u64 = u32::MAX as u64;

/// The group of one class.
#[derive(Debug)]
pub struct ClassGroup {
    /// Dropped before the group is removed: what it has set is put back first.
    new_sockets: Option<NewSockets>,
    group: UnifiedGroup,
    /// As it stands in `/proc/PID/cgroup`.
    path: String,
    /// Why new sockets are not set.
    pub problem: Option<String>,
    asked: Option<f64>,
}

impl ClassGroup {
    pub fn folder(&self) -> String {
        self.group.folder().display().to_string()
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// What new connections get, bit/s.
    pub fn bit_per_s(&self) -> Option<f64> {
        Some(8.0 * self.new_sockets.as_ref()?.change().pacing?.bytes_per_s() as f64)
    }

    /// Paces connections that are made from now on. Returns what they have then, if that has changed.
    pub fn set_rate(&mut self, journal: &Journal, bit_per_s: f64) -> Option<SocketChange> {
        let is_same = |asked: f64| (bit_per_s / asked - 1.0).abs() < CHANGE_MIN;
        if self.problem.is_some() || self.asked.is_some_and(is_same) {
            return None;
        }
        self.asked = Some(bit_per_s);
        let pacing = PacingRate::from_bytes_per_s(((bit_per_s / 8.0) as u64).min(RATE_MAX))?;
        let set = match &mut self.new_sockets {
            Some(new_sockets) => new_sockets.set_pacing(pacing),
            None => {
                let change = SocketChange { pacing: Some(pacing), ..SocketChange::default() };
                let attached = NewSockets::attach(journal, self.group.folder(), change);
                attached.map(|attached| self.new_sockets = Some(attached))
            }
        };
        if let Err(error) = set {
            self.problem = Some(error.to_string());
            self.new_sockets = None;
        }
        self.new_sockets.as_ref().map(NewSockets::change)
    }

    /// Paces no connections that are made from now on, and gives back to those of the group what they had.
    pub fn clear_rate(&mut self) {
        (self.new_sockets, self.asked) = (None, None);
    }
}

/// Makes a group for each class. The error says why there is none.
pub fn create(policy: &Policy, journal: &Journal) -> Result<Vec<ClassGroup>, String> {
    let create = |at| {
        let group = UnifiedGroup::create(journal, &format!("qos-{at}")).map_err(|error| error.to_string())?;
        let path = unified_path(group.folder()).ok_or("the control group is not there")?;
        Ok(ClassGroup { new_sockets: None, group, path, problem: None, asked: None })
    };
    (0..policy.classes.len()).map(create).collect()
}
