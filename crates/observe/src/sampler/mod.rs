//! The part `observe.sampler`: what a host does while it carries load, ten times a second.
//!
//! One direction: [`Sources`] read counters into a [`Raw`] snapshot, [`rates()`] makes a [`Sample`] of two of
//! them (pure), [`Record`] keeps the samples and turns them into a [`Report`].
//!
//! A quantity that cannot be watched at all has no series and one sentence in [`Report::unavailable`]; a
//! single reading that failed is `None`. Neither is ever zero.

mod part;
mod permitted;
mod quantity;
mod rates;
mod raw;
mod record;
mod senders;
mod source;
mod watcher;

pub use part::{Sampler, SamplerEndpoint};
pub use quantity::Quantity;
pub use rates::{Sample, rates};
pub use raw::Raw;
pub use record::{Record, Report, Watched};
pub use senders::SendersReading;
pub use source::Sources;
