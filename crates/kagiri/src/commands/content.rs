//! `kagiri content`: make, index and serve content, and see how it lies on its disk.

mod layout;
mod pool_folder;

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use base::units::{BitRate, ByteSize, Span};
use clap::{Args, Subcommand};
use httpd::{AccessLog, Server, ServerConfig};
use mpegts::{self, ContentError, ContentIndex, ContentSpec, Progress, RateMode};

use crate::args::existing;
use crate::exit::{Code, Failure, Outcome};
use crate::file_progress::FileProgress;
use crate::{output, stop};

const SERVE_POLL: Duration = Duration::from_millis(100);

/// Make, index and serve video content (MPEG transport streams with a frame index)
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  \
    kagiri content make film.ts                   make a film of ten minutes\n  \
    kagiri content serve .                        serve it on port 8080\n  \
    kagiri stream http://127.0.0.1:8080/film.ts   how many streams?\n\n\
    The index, FILE.ts.kgi, maps bytes to play times. Without an index on the server, 'kagiri \
    stream' reads the whole content once before it measures.")]
pub enum Content {
    /// Make a transport stream and its index
    Make(Make),
    /// Index an existing transport stream; writes the index beside it
    Index(Index),
    /// Serve a directory over HTTP
    Serve(Serve),
    /// Show in how many pieces files lie on their disk
    Layout(layout::Layout),
}

/// Make a transport stream and its index.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri content make film.ts\n  \
    kagiri content make film.ts --duration 60s --bitrate 8Mbit/s --codec h264")]
pub struct Make {
    /// Output file; the index is written beside it
    #[arg(value_name = "OUT.ts")]
    out: PathBuf,
    /// Play time
    #[arg(long, value_name = "TIME", default_value = "600s", value_parser = crate::args::time)]
    duration: Span,
    /// Average bit rate
    #[arg(long, value_name = "RATE", default_value = "25Mbit/s")]
    bitrate: BitRate,
    /// Video codec; some players read h264 faster than its bit rate
    #[arg(long, value_name = "CODEC", default_value = "mpeg2", value_parser = ["mpeg2", "h264"])]
    codec: String,
    /// Constant bit rate: all groups of pictures have the same size
    #[arg(long)]
    cbr: bool,
    /// Replace OUT.ts if it exists
    #[arg(long)]
    replace: bool,
    /// Seed of the picture sizes, which vary at random without --cbr
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

/// Index an existing transport stream.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    kagiri content index film.ts     writes film.ts.kgi\n\n\
    To convert other content: ffmpeg -i FILM -c copy film.ts")]
pub struct Index {
    /// Transport stream (MPEG-TS)
    #[arg(value_name = "FILE.ts")]
    file: PathBuf,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

/// Serve a directory over HTTP/1.1.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri content serve films/                               for this host only\n  \
    kagiri content serve films/ --listen 0.0.0.0:8080 --open  for everybody\n  \
    kagiri content serve films/ --upload --pool 100GiB        take uploads\n\n\
    Runs until Ctrl-C. GET / lists the directory (HTML; JSON with /?json); index files are served as well.\n\
    The pool is DIR/.kagiri-pool: disk space that is taken once and reused in place, so that files do not \
    scatter however many come and go. Once it is there, each server of DIR serves its files, also without \
    --pool and --upload, and every upload goes into it. Remove the folder to remove the pool and its files.")]
pub struct Serve {
    /// Directory to serve; files outside it cannot be reached
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Address and port at which to serve; port 0 chooses a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Worker threads; one serves thousands of streams unless the disk is slow
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Let clients upload (PUT) and delete (DELETE) files
    #[arg(long)]
    upload: bool,
    /// Keep uploads in a segment pool of this size; it is made if DIR has none
    #[arg(long, value_name = "SIZE", requires = "upload")]
    pool: Option<ByteSize>,
    /// Accept clients from any address in --listen, without authentication
    #[arg(long)]
    open: bool,
    /// Append one line per request to this file
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Congestion control of every connection, e.g. reno [default: that of the host]
    #[arg(long, value_name = "NAME")]
    congestion_control: Option<String>,
    /// CPU time in ns to spend in addition per byte sent, to simulate a slower CPU
    #[arg(long, value_name = "NS", default_value_t = 0.0)]
    cost_ns_per_byte: f64,
}

impl Content {
    pub fn run(self) -> Outcome {
        match self {
            Self::Make(make) => make.run(),
            Self::Index(index) => index.run(),
            Self::Serve(serve) => serve.run(),
            Self::Layout(layout) => layout.run(),
        }
    }
}

impl Make {
    fn run(self) -> Outcome {
        let stop = stop::stop_flag()?;
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
        // Before the announcement.
        spec.validate().map_err(|error| failure(&self.out, error))?;
        self.check_place(spec.total_bytes())?;
        let mut work = FileProgress::begin(&what, self.quiet);
        let made = mpegts::make_file(&spec, &self.out, &mut |progress| watch(&mut work, &stop, progress));
        finish(&self.out, made, work, self.quiet)
    }

    /// Whether nothing is lost when the file gets its name, and there is space for it.
    fn check_place(&self, total_bytes: u64) -> Result<(), Failure> {
        let out = self.out.display();
        let refuse = |why: String| Err(Failure::usage(format!("{out} {why}")));
        match std::fs::symlink_metadata(&self.out) {
            _ if self.out.is_dir() => {
                return refuse(format!("is a directory; name a file, such as {out}/film.ts"));
            }
            Ok(found) if !found.is_file() && !found.is_symlink() => {
                return refuse("is no regular file; choose another name".to_owned());
            }
            Ok(_) if !self.replace => {
                return refuse("exists; choose another name, or add --replace to make it anew".to_owned());
            }
            _ => {}
        }
        let folder = self.out.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| matches!(folder.try_exists(), Ok(false))) {
            return refuse(format!("cannot be made: there is no folder {}", folder.display()));
        }
        // Any other folder that cannot be used is named when the file is created. Some file systems know no
        // size.
        match sys::disk::space(folder.unwrap_or(Path::new("."))) {
            Ok(space) if space.total_bytes > 0 && space.available_bytes < total_bytes => {
                let full = ContentError::DiskFull { path: self.out.clone(), written_bytes: 0, total_bytes };
                Err(failure(&self.out, full))
            }
            _ => Ok(()),
        }
    }
}

impl Index {
    fn run(self) -> Outcome {
        let stop = stop::stop_flag()?;
        // Before the announcement.
        let bytes = existing(&self.file, "index", std::fs::Metadata::is_file, "a file")?.len();
        let what = format!("indexing {}: {}", ByteSize::from_bytes(bytes), self.file.display());
        let mut work = FileProgress::begin(&what, self.quiet);
        let made = mpegts::index_file(&self.file, &mut |progress| watch(&mut work, &stop, progress));
        finish(&self.file, made, work, self.quiet)
    }
}

fn finish(file: &Path, made: Result<ContentIndex, ContentError>, work: FileProgress, quiet: bool) -> Outcome {
    let took = work.end();
    let index = made.map_err(|error| failure(file, error))?;
    if !quiet {
        output::print(&format!("{} ({took})\n", describe(file, &index)))?;
    }
    Ok(Code::Measured)
}

impl Serve {
    fn run(self) -> Outcome {
        if !self.listen.ip().is_loopback() && !self.open {
            return Err(Failure::usage(format!(
                "--listen {} is reachable from other hosts without authentication; add --open to allow that",
                self.listen
            )));
        }
        existing(&self.dir, "serve", std::fs::Metadata::is_dir, "a directory")?;
        let pool = pool_folder::open(&self.dir, self.pool)?;
        let stop = stop::stop_flag()?;
        let mut config = ServerConfig::new(&self.dir, self.listen);
        config.threads = self.threads as usize;
        config.upload = self.upload;
        config.pool = pool;
        config.access_log = self.access_log.map(AccessLog::Path);
        config.congestion_control = self.congestion_control;
        config.cost_ns_per_byte = self.cost_ns_per_byte;
        let server = Server::start(config).with_context(|| format!("cannot serve {}", self.dir.display()))?;
        // Scripts wait for this line.
        output::print(&format!("serving {} at http://{}/\n", self.dir.display(), server.local_addr()))?;
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(SERVE_POLL);
        }
        server.stop();
        Ok(Code::Measured)
    }
}

fn watch(work: &mut FileProgress, stop: &AtomicBool, progress: Progress) -> ControlFlow<()> {
    work.update(progress);
    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn failure(file: &Path, error: ContentError) -> Failure {
    match error {
        ContentError::Stopped => Failure::Interrupted("interrupted; nothing was left behind".into()),
        ContentError::Spec { .. } | ContentError::RateTooLow { .. } => Failure::usage(error),
        other if other.is_usage() => Failure::usage(other.about(file)),
        other => Failure::runtime(other.about(file)),
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
