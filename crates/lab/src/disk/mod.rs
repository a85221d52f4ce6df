//! Disks: a file system on a block device of its own, as slow as the disk it stands for.

mod answers;
mod counters;
mod flash;
mod head;
mod made;
mod model;
mod platter;
mod rotating;
mod serve;
mod volume;

pub use counters::Counters;
pub use head::{Direction, Effort, Head};
pub use made::{Disk, DiskSpec};
pub use model::{DiskModel, Flash, ModelError, Rotating};
pub use serve::{Service, serve};
