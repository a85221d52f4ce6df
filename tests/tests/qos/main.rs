//! `kagiri qos` end to end: policies on running programs. One test at a time: each policy is on links of its
//! own, but all share the CPUs, and late messages are judged.

mod client;
mod commands;
mod exec;
mod faults;
mod hosts;
mod plans;
mod programs;
mod rank;
mod udp;
