//! `kagiri content`: make, index and serve content.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use base::units::{BitRate, ByteSize, Span};
use clap::{Args, Subcommand};
use workload::stream::content::{self, ContentError, ContentIndex, ContentSpec, Progress, RateMode};
use workload::stream::server::{AccessLog, Server, ServerConfig};

use crate::exit::{Code, Failure, Outcome};
use crate::filework::FileWork;
use crate::{measure, output};

/// How often the server looks whether it is to end.
const SERVE_POLL: Duration = Duration::from_millis(100);

/// Content: MPEG transport streams and their frame index.
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  \
    kagiri content make film.ts                   a film of ten minutes\n  \
    kagiri content serve .                        served on port 8080\n  \
    kagiri stream http://127.0.0.1:8080/film.ts   and how many can watch it\n\n\
    The index, FILE.ts.kgi, says which byte of the content is due when. Where a server has none, the content is \
    read through once before it is measured.")]
pub enum Content {
    /// Make a transport stream and its index
    Make(Make),
    /// Index an existing transport stream; the index is put beside it
    Index(Index),
    /// Serve a directory over HTTP
    Serve(Serve),
}

/// Make a transport stream and its index.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri content make film.ts\n  \
    kagiri content make film.ts --duration 60s --bitrate 8Mbit/s --codec h264")]
pub struct Make {
    /// Where to write it; the index is put beside it
    #[arg(value_name = "OUT.ts")]
    out: PathBuf,
    /// How long it plays
    #[arg(long, value_name = "TIME", default_value = "600s")]
    duration: Span,
    /// Its rate, on average
    #[arg(long, value_name = "RATE", default_value = "25Mbit/s")]
    bitrate: BitRate,
    /// Picture coding; every player paces mpeg2 correctly
    #[arg(long, value_name = "CODEC", default_value = "mpeg2", value_parser = ["mpeg2", "h264"])]
    codec: String,
    /// Constant bit rate: every group of pictures of the same size
    #[arg(long)]
    cbr: bool,
    /// Seed of the picture sizes, which vary at random unless --cbr is given
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

/// Index an existing transport stream.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    kagiri content index film.ts     writes film.ts.kgi\n\n\
    Content from other programs: ffmpeg -i FILM -c copy film.ts")]
pub struct Index {
    /// The transport stream
    #[arg(value_name = "FILE.ts")]
    file: PathBuf,
    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

/// Serve a directory over HTTP/1.1.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri content serve films/                               for this host alone\n  \
    kagiri content serve films/ --listen 0.0.0.0:8080 --open  for everybody\n\n\
    It runs until Ctrl-C. GET / lists the directory (HTML; JSON with /?json); content and its index are served alike.")]
pub struct Serve {
    /// The directory; nothing outside it can be reached
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Worker threads; one carries thousands of streams unless the disk is slow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Let clients upload files (PUT); only on loopback unless --open is given
    #[arg(long)]
    upload: bool,
    /// Allow --listen beyond loopback although nobody is asked who they are
    #[arg(long)]
    open: bool,
    /// Append one line per request to this file
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Congestion control of every connection, such as reno; the host's default unless given
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// CPU time in ns to burn per byte sent, to stand for a slower CPU
    #[arg(long, value_name = "NS", default_value_t = 0.0)]
    cost_ns_per_byte: f64,
}

impl Content {
    /// Do it.
    pub fn perform(self) -> Outcome {
        match self {
            Self::Make(make) => make.perform(),
            Self::Index(index) => index.perform(),
            Self::Serve(serve) => serve.perform(),
        }
    }
}

impl Make {
    fn perform(self) -> Outcome {
        let stop = measure::stop_flag()?;
        let spec = ContentSpec {
            codec: self.codec.parse().map_err(Failure::usage)?,
            rate_bit_per_s: self.bitrate.bit_per_s(),
            duration_s: self.duration.s(),
            mode: if self.cbr { RateMode::Cbr } else { RateMode::Vbr },
            seed: self.seed,
            ..ContentSpec::default()
        };
        let what = format!(
            "making {} of {} content ({}, {}): {}",
            ByteSize::from_bytes(spec.total_bytes()),
            spec.codec,
            self.bitrate,
            self.duration,
            self.out.display()
        );
        // What cannot be made is not announced.
        spec.validate().map_err(|error| failure(&self.out, error))?;
        if self.out.is_dir() {
            let out = self.out.display();
            return Err(Failure::usage(format!("{out} is a directory; name a file, such as {out}/film.ts")));
        }
        let mut work = FileWork::begin(&what, self.quiet);
        let made = content::make_file(&spec, &self.out, &mut |progress| watch(&mut work, &stop, progress));
        finish(&self.out, made, work, self.quiet)
    }
}

impl Index {
    fn perform(self) -> Outcome {
        let stop = measure::stop_flag()?;
        // What cannot be indexed is not announced.
        let bytes = existing(&self.file, "index", std::fs::Metadata::is_file, "a file")?.len();
        let what = format!("indexing {}: {}", ByteSize::from_bytes(bytes), self.file.display());
        let mut work = FileWork::begin(&what, self.quiet);
        let made = content::index_file(&self.file, &mut |progress| watch(&mut work, &stop, progress));
        finish(&self.file, made, work, self.quiet)
    }
}

/// Say what came of content that was made or indexed.
fn finish(file: &Path, made: Result<ContentIndex, ContentError>, work: FileWork, quiet: bool) -> Outcome {
    let took = work.end();
    let index = made.map_err(|error| failure(file, error))?;
    if !quiet {
        output::print(&format!("{} ({took})\n", describe(file, &index)));
    }
    Ok(Code::Measured)
}

impl Serve {
    fn perform(self) -> Outcome {
        if !self.listen.ip().is_loopback() && !self.open {
            return Err(Failure::usage(format!(
                "--listen {} is reachable from other hosts, and nobody is asked who they are; add --open if that is meant",
                self.listen
            )));
        }
        existing(&self.dir, "serve", std::fs::Metadata::is_dir, "a directory")?;
        let stop = measure::stop_flag()?;
        let mut config = ServerConfig::new(&self.dir, self.listen);
        config.threads = self.threads as usize;
        config.upload = self.upload;
        config.access_log = self.access_log.map(AccessLog::Path);
        config.congestion_control = self.congestion_control;
        config.cost_ns_per_byte = self.cost_ns_per_byte;
        let server = Server::start(config).with_context(|| format!("cannot serve {}", self.dir.display()))?;
        // The line that whoever started this process waits for.
        output::print(&format!("serving {} at http://{}/\n", self.dir.display(), server.local_addr()));
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(SERVE_POLL);
        }
        server.stop();
        Ok(Code::Measured)
    }
}

/// What the user named, as long as it is there and of the kind that is needed to `act` on it.
pub fn existing(
    path: &Path,
    act: &str,
    is_right: fn(&std::fs::Metadata) -> bool,
    kind: &str,
) -> Result<std::fs::Metadata, Failure> {
    let found = std::fs::metadata(path).with_context(|| format!("cannot {act} {}", path.display()));
    let found = found.map_err(Failure::of_named)?;
    match is_right(&found) {
        true => Ok(found),
        false => Err(Failure::usage(format!("cannot {act} {}: it is not {kind}", path.display()))),
    }
}

fn watch(work: &mut FileWork, stop: &AtomicBool, progress: Progress) -> ControlFlow<()> {
    work.at(progress);
    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn failure(file: &Path, error: ContentError) -> Failure {
    match error {
        ContentError::Stopped => Failure::Interrupted("interrupted; nothing was left behind".into()),
        ContentError::Spec { .. } | ContentError::RateTooLow { .. } => Failure::usage(error),
        other if other.is_usage() => Failure::usage(other.about(file)),
        other => Failure::World(anyhow::Error::msg(other.about(file))),
    }
}

fn describe(path: &Path, index: &ContentIndex) -> String {
    format!(
        "{}: {}, {} frames, {}, {} on average",
        path.display(),
        Span::from_duration(Duration::from_millis(index.duration_ns() / 1_000_000)),
        index.frame_count(),
        ByteSize::from_bytes(index.total_bytes()),
        BitRate::from_bit_per_s(index.rate_bit_per_s()),
    )
}
