//! Builders and sources over real sockets, hostile peers included.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod builder;
mod builder_hostile;
mod builder_udp;
mod front_end_rules;
mod front_ends;
#[path = "../../../stream/tests/integration/common/permit.rs"]
mod permit;
mod planted_losses;
mod scripted_builder;
mod scripted_source;
mod several_builders;
mod sources;
mod sources_hostile;
mod sources_retransmits;
mod sources_udp;
mod trial;
mod wire_pair;
mod wire_vectors;
