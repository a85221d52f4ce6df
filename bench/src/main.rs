//! Side-by-side benchmarks against other tools: the numbers of `docs/benchmarks.md`, and how they came about.
//!
//! Everything is measured in pairs, interleaved (ours, peer, peer, ours, ...), and judged by the median of
//! the pairs' ratios: one machine's absolute numbers say little. What else the machine did meanwhile stands
//! beside every pair, and no pair is left out.

mod builds;
mod console;
mod daq;
mod exchange;
mod files;
mod fleet;
mod lab;
mod noise;
mod qos;
mod record;
mod render;
mod stream;
mod suite;
mod timeline;
mod tools;
mod transfer;

use clap::{Parser, Subcommand};

/// Benchmarks of kagiri side by side with other tools.
#[derive(Parser)]
#[command(name = "kagiri-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Hot paths before and after a change, by two builds of kagiri
    Builds(builds::BuildsArgs),
    /// Pages of the console that watch a run
    Console(console::ConsoleArgs),
    /// Events built from many sources at once
    Daq(daq::Settings),
    /// Requests and messages in a closed loop, against wrk, oha and sockperf
    Exchange(exchange::ExchangeArgs),
    /// File workloads, against filebench
    Files(files::FilesArgs),
    /// Many hosts: joining, asking, clocks, faults, labs, links
    Fleet(fleet::Settings),
    /// What a lab makes on one machine: disks
    Lab(lab::LabArgs),
    /// Urgent messages beside greedy connections
    Qos(qos::QosArgs),
    /// Content, virtual players, content server, capacity searches
    Stream(stream::Settings),
    /// What watching costs the program that is watched
    Timeline(timeline::TimelineArgs),
    /// Bulk transfers over loopback
    Transfer(transfer::TransferArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().what {
        What::Builds(builds) => builds.perform(),
        What::Console(console) => console.perform(),
        What::Daq(daq) => daq.perform(),
        What::Exchange(exchange) => exchange.perform(),
        What::Files(files) => files.perform(),
        What::Fleet(fleet) => fleet.perform(),
        What::Lab(lab) => lab.perform(),
        What::Qos(qos) => qos.perform(),
        What::Stream(stream) => stream.perform(),
        What::Timeline(timeline) => timeline.perform(),
        What::Transfer(transfer) => transfer.perform(),
    }
}
