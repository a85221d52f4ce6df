//! How a store is reached, and what of it is kagiri's.
//!
//! [`client`] signs and sends requests, to hosts that `guard` lets pass; [`failure`] says what is wrong with
//! an answer. [`prefix`] owns a prefix of kagiri's own below the one that the user names, for as long as a
//! variant is measured, and deletes what was made below it; [`leftover`] deletes what a killed program left.

pub mod address;
mod authorities;
pub mod client;
pub(crate) mod failure;
mod guard;
pub mod keys;
pub mod leftover;
pub(super) mod listing;
pub mod prefix;
