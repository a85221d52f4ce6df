//! Disks: a file system on a block device of its own, as slow as the disk it stands for.

mod flash;
mod head;
mod model;
mod platter;
mod rotating;

pub use head::{Direction, Effort, Head};
pub use model::{DiskModel, Flash, ModelError, Rotating};
