//! Virtual disks: a file system on its own block device, with modelled access times.

mod counters;
mod delay_queue;
mod flash;
mod fuse_fs;
mod mechanism;
mod model;
mod mount;
mod platter;
mod rotating;
mod serve;
mod service_time;

pub use counters::Counters;
pub use mechanism::{Direction, MechanismStats};
pub use model::{DiskModel, Flash, ModelError, Rotating};
pub(crate) use mount::with_timeout;
pub use mount::{Disk, DiskSpec};
pub use serve::{Service, serve};
pub use service_time::ServiceTime;
