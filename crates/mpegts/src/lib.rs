//! MPEG transport streams with a frame index.
//!
//! [`write_content`] makes a stream (`encode` the pictures, `mux` the packets), [`scan`](fn@scan) indexes any
//! other, [`ContentIndex`] is what a player needs of either, and [`TsChecker`] checks a stream while it is
//! received. `index/format.rs` describes the index file byte by byte.

mod checker;
mod encode;
mod error;
mod file;
mod index;
mod mux;
mod scan;
mod spec;

pub use checker::{TsChecker, TsCounts};
pub use error::{ContentError, IndexError};
pub use file::{clear_parts, index_file, load_index, load_index_of, make_file, save_index};
pub use index::{ContentIndex, Gop, INDEX_VERSION, Made, index_path};
pub use mux::ts::PACKET_BYTES;
pub use mux::{Progress, ProgressCallback, write_content};
pub use scan::scan;
pub use spec::{Codec, ContentSpec, FrameRate, RateMode};
