//! The part `observe.sampler`: what a host does while it carries load, ten times a second.
//!
//! One direction: [`Sources`] read counters into a [`Snapshot`], [`rates()`] makes a [`Sample`] of two of
//! them (pure), [`Recorder`] keeps the samples and turns them into a [`Report`].
//!
//! A quantity that cannot be watched at all has no series and one sentence in [`Report::unavailable`]; a
//! single reading that failed is `None`. Neither is ever zero.

mod part;
mod policy;
mod quantity;
mod rates;
mod recorder;
mod senders;
mod snapshot;
mod sources;
mod thread;

pub use part::{Sampler, SamplerEndpoint};
pub use quantity::Quantity;
pub use rates::{Sample, rates};
pub use recorder::{Recorder, Report, Watched};
pub use senders::SendersReading;
pub use snapshot::Snapshot;
pub use sources::Sources;
