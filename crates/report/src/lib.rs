//! Layer 6: what people read of a run, rendered from the stored [`base::outcome::Run`] alone.
//!
//! Everything here is a pure function from a run to text: no clock, no file, no terminal. A stored run can
//! therefore be rendered again at any time, by a later version too.
//!
//! - [`terminal`]: the answer in words and tables for a terminal of a given width;
//! - [`html`]: one page that works offline, with its figures drawn by [`chart`];
//! - [`export`]: CSV of trials and of series (JSON is the stored document itself);
//! - [`survey`]: measurements of several workloads as rows of one table;
//! - [`words`], [`digest`], [`findings`], [`doubts`], [`text`]: the sentences, the numbers per load and per
//!   variant, the doubts and the units that all of these share, so that text and tables cannot contradict
//!   each other.

pub mod chart;
pub mod digest;
pub mod doubts;
pub mod export;
mod extras;
pub mod findings;
pub mod html;
pub mod survey;
mod sweep;
mod tables;
pub mod terminal;
pub mod text;
pub mod timeline;
pub mod words;
