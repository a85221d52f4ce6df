//! Content: the MPEG transport streams that the server holds, and their frame index.
//!
//! [`write_content`] makes it (pictures of `mpeg2` or `h264`, sized by `size`, cut into packets by `pes` and `ts`),
//! [`scan`](fn@scan) indexes what others made, [`ContentIndex`] is what a player needs of either, and [`TsChecker`]
//! looks at a stream while it is played. The index file is described byte by byte in `index/format.rs`.

mod bits;
mod canvas;
mod cavlc;
mod check;
mod error;
mod file;
mod font;
mod h264;
mod index;
mod mpeg2;
mod pes;
mod scan;
mod scene;
mod size;
mod spec;
mod timing;
mod ts;
mod write;

pub use check::{TsChecker, TsCounts};
pub use error::{ContentError, IndexError};
pub use file::{clear_parts, index_file, load_index, make_file, save_index};
pub use index::{ContentIndex, Gop, INDEX_VERSION, Made, index_path};
pub use scan::scan;
pub use spec::{Codec, ContentSpec, FrameRate, RateMode};
pub use ts::PACKET_BYTES;
pub use write::{Progress, Watch, write_content};
