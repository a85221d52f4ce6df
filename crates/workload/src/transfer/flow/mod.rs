//! Flows: the bytes that one thread moves over one socket in one direction, and groups of them.

mod order;

pub use order::{
    Direction, End, Ended, Engine, FlowCount, FlowOrder, FlowReport, Mode, Protocol, Side, Stamp,
    ThreadReport,
};
