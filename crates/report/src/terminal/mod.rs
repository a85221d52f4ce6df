//! What a run says on a terminal: the answer in words, then its tables.

mod brief;
mod brief_differences;
mod brief_explanation;
mod calls;
mod differences;
mod explanation;
mod list;
mod paint;
mod summary;
mod survey;
mod table;

pub use brief::brief;
pub use brief_differences::brief_differences;
pub use brief_explanation::{brief_explained, brief_explanation};
pub use calls::{brief_call_times, call_times};
pub(crate) use calls::{call_columns, softirq_columns};
pub use differences::{circumstances, differences, undecided, worse};
pub use explanation::{explained, explanation};
pub use list::{Entry, comparison, list_table, result_cell};
pub use summary::summary;
pub use survey::survey;
pub(crate) use table::Column;
pub use table::words_table;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether colours may be used (a terminal, and no `NO_COLOR`: <https://no-color.org>).
    pub colour: bool,
    /// Columns; less than 40 are taken as 40.
    pub width: usize,
    /// Whether characters beyond ASCII are shown.
    pub unicode: bool,
}

impl Style {
    fn columns(&self) -> usize {
        self.width.max(40)
    }
}
