//! Virtual players: what a viewer would have seen.
//!
//! Pure pieces (no clock, no socket): [`timeline`] says which byte is due when, [`player`] plays it, [`steady`]
//! holds the throughput against the demand, [`slack`] finds a buffer that drains, [`http`] and [`url`] read what
//! a server says, [`place`] spreads the players over the content, [`merge`] makes one [`report`] of several hosts',
//! [`judge`] and [`metrics`] read it.
//!
//! Around them: [`fetch`] (small downloads), [`shelf`] (films by address), [`link`] (a stream's connection),
//! [`sink`] (what looks at its bytes), [`viewer`] (one stream), [`worker`] (a thread of them), [`group`] (threads),
//! [`collect`] (their report) and [`part`] (the group as a part of a run).

pub mod calls;
pub mod collect;
pub mod config;
pub mod fetch;
pub mod film;
pub mod group;
pub mod http;
pub mod judge;
pub mod link;
pub mod merge;
pub mod metrics;
pub mod part;
pub mod place;
pub mod player;
pub mod report;
pub mod shelf;
pub mod sink;
pub mod slack;
pub mod steady;
pub mod timeline;
pub mod url;
// The stream itself is the heart of the room of the same name.
#[allow(clippy::module_inception)]
pub mod viewer;
pub mod worker;
