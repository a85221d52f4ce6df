//! Puts the fragments that arrive together to events, within a memory limit.

mod assembler;
mod datagrams;
mod event_table;
mod fragment_memory;
pub mod message_parser;

pub(crate) use assembler::{Assembler, AssemblerConfig, ControlMessage, NewFragment};
pub(crate) use datagrams::DatagramReassembler;
pub(crate) use event_table::{EventTable, Fragment, SourceSet};
