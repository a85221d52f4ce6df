//! The S3 server for tests as a program.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use s3_server::{Config, Faults, Server};

/// S3 server for tests: buckets in memory, signatures checked, faults on request. Prints its address and
/// serves until SIGINT or SIGTERM.
#[derive(Parser)]
struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Access key that requests are signed with
    #[arg(long, default_value = "test-access-key")]
    access_key: String,
    /// Secret key that requests are signed with
    #[arg(long, default_value = "test-secret-key")]
    secret_key: String,
    /// Bucket that is there from the beginning; repeatable
    #[arg(long, default_value = "test")]
    bucket: Vec<String>,
    /// Keep the bodies of objects in files here [default: in memory]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Add a line for every request to this file
    #[arg(long)]
    log: Option<PathBuf>,
    /// Wait this many milliseconds before each answer
    #[arg(long, default_value_t = 0.0)]
    latency_ms: f64,
    /// Bytes per second of all bodies, in each direction
    #[arg(long)]
    bytes_per_s: Option<f64>,
    /// Requests per second; what is above is answered with 503 SlowDown
    #[arg(long)]
    requests_per_s: Option<f64>,
    /// Share of the requests that are answered with 503 SlowDown, from 0 to 1
    #[arg(long, default_value_t = 0.0)]
    slow_down: f64,
    /// Seconds that the server's clock is ahead of this machine's
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    clock_ahead_s: i64,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    // Blocked before threads start, so that none of them takes it.
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGINT);
    ends.add(Signal::SIGTERM);
    ends.thread_block()?;
    let faults = Faults {
        latency: Duration::from_secs_f64(args.latency_ms.max(0.0) / 1e3),
        bytes_per_s: args.bytes_per_s,
        requests_per_s: args.requests_per_s,
        slow_down_share: args.slow_down,
        clock_ahead_s: args.clock_ahead_s,
        ..Faults::default()
    };
    let server = Server::start(Config {
        listen: args.listen,
        access_key: args.access_key,
        secret_key: args.secret_key,
        buckets: args.bucket,
        folder: args.folder,
        log_file: args.log,
        faults,
    })?;
    println!("listening on {}", server.addr());
    io::stdout().flush()?;
    ends.wait()?;
    Ok(())
}
