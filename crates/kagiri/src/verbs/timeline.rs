//! `kagiri timeline`: where the time of a program goes, call by call.

pub mod own;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::units::{ByteSize, Span};
use clap::{Args, ValueEnum};
use observe::timeline::calls::{self, Call};
use observe::timeline::pftrace;
use observe::timeline::session::{Session, Watched, Wish};
use sys::child::held::{Family, Held};
use sys::clock::Deadline;
use sys::stop::StopSignal;
use sys::trace::{Backend, Target};

use crate::document::Document;
use crate::exit::{Code, Failure, Outcome};
use crate::output;
use crate::whole::write_whole;

/// How often events are fetched: the kernel's room must last so long.
const FETCH_EVERY: Duration = Duration::from_millis(10);
/// How long calls are made to find out what watching costs.
const COST_WITHIN: Duration = Duration::from_millis(200);

/// How to look into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    /// The best that works here
    Auto,
    /// A BPF program at raw tracepoints
    Bpf,
    /// Records of tracepoints in rings (perf_event_open)
    Perf,
}

impl Way {
    fn backend(self) -> Option<Backend> {
        match self {
            Self::Auto => None,
            Self::Bpf => Some(Backend::Bpf),
            Self::Perf => Some(Backend::Perf),
        }
    }
}

/// Show where the time of a program goes, call by call.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri timeline -- iperf3 -c 10.0.0.2 -t 2\n  \
    kagiri timeline -p $(pgrep -n nginx) --for 5s --html nginx.html      a worker, the newest process\n  \
    kagiri timeline --calls +futex --pftrace app.pftrace -- java -jar app.jar\n\n\
    The threads and processes that the program starts are watched too. Calls in which the thread was switched out \
    (blocked) stand apart from those that were carried out at once (ready). Ctrl-C ends the watching and prints what there \
    is; a process that was given by -p goes on.\n\
    Needs the right to trace: root, or CAP_BPF and CAP_PERFMON.")]
pub struct Timeline {
    /// Watch this running process, with all its threads
    #[arg(long, short, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with = "command")]
    pid: Option<i32>,
    /// Watch for so long only; a program that was started here is ended then
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Write the picture of all threads and CPUs, one page that works offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the picture for Perfetto
    #[arg(long, value_name = "FILE")]
    pftrace: Option<PathBuf>,
    /// Print one JSON document on standard output, and nothing else there (the program writes on standard error)
    #[arg(long)]
    json: bool,
    /// How to look into the kernel
    #[arg(long, value_name = "WAY", default_value = "auto")]
    backend: Way,
    /// Watch these calls; '+NAME' adds to the usual ones: reading, writing, sending, receiving, waiting for data,
    /// keeping, connecting
    #[arg(long, value_name = "NAMES")]
    calls: Option<String>,
    /// Room in the kernel for events that were not fetched yet (of each CPU with perf)
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    ring: ByteSize,
    /// The most spans that the picture keeps
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    spans: u32,
    /// Say nothing while watching
    #[arg(long, short)]
    quiet: bool,
    /// The program to watch, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Who is watched, while it goes on.
enum Subject {
    Started(Family),
    Running { pid: i32, start_ticks: u64 },
}

impl Subject {
    /// Whether nobody is left to be watched.
    fn has_ended(&mut self) -> bool {
        match self {
            Self::Started(family) => family.has_ended(),
            Self::Running { pid, start_ticks } => !sys::child::is_running(*pid, *start_ticks),
        }
    }

    /// How it ended, or why it is about to be ended.
    fn ended(&mut self, over: &str) -> Option<String> {
        match self {
            Self::Started(family) => {
                family.has_ended();
                let status = family.status().map(|status| format!("it ended with {status}"));
                Some(status.unwrap_or_else(|| format!("it was ended then: {over}")))
            }
            Self::Running { .. } => self.has_ended().then(|| "it ended meanwhile".to_owned()),
        }
    }

    /// Ends what was started here; what ran before goes on.
    fn leave(self) -> sys::Result<()> {
        match self {
            Self::Started(mut family) => family.end(),
            Self::Running { .. } => Ok(()),
        }
    }
}

impl Timeline {
    /// Watch, and tell.
    pub fn perform(self) -> Outcome {
        let calls = match &self.calls {
            Some(text) => calls::read(text).map_err(Failure::usage)?,
            None => calls::usual(),
        };
        if calls.is_empty() {
            return Err(Failure::usage("--calls names no call"));
        }
        if self.pid.is_none() && self.command.is_empty() {
            return Err(Failure::usage(
                "nothing to watch: give a program ('kagiri timeline -- COMMAND') or a process ('-p PID')",
            ));
        }
        self.pictures().check()?;
        let stop = StopSignal::install()?;
        if let Some(pid) = self.pid {
            // Told before anything is measured in vain.
            sys::trace::threads_of(pid)?;
        }
        let session = Session::open(self.wish(calls))?;
        if stop.requested() {
            return Err(Failure::Interrupted("interrupted before the watching began".to_owned()));
        }
        let watched = self.watch(session, stop)?;
        self.present(&watched)?;
        Ok(if stop.requested() { Code::Interrupted } else { Code::Measured })
    }

    fn pictures(&self) -> Pictures<'_> {
        Pictures { html: self.html.as_deref(), pftrace: self.pftrace.as_deref(), is_quiet: self.quiet }
    }

    fn wish(&self, calls: Vec<Call>) -> Wish {
        Wish {
            calls,
            spans_max: self.pictures().are_wanted().then_some(self.spans as usize),
            softirqs: true,
            ring_bytes: usize::try_from(self.ring.bytes()).unwrap_or(usize::MAX),
            backend: self.backend.backend(),
            cost_within: COST_WITHIN,
        }
    }

    /// Follow the subject until it has ended, its time is over, or a stop is asked for.
    fn watch(&self, mut session: Session, stop: StopSignal) -> Result<Watched, Failure> {
        let (mut subject, name) = self.begin(&mut session)?;
        let deadline = self.length.map(|length| Deadline::after(length.duration()));
        let mut over = "Ctrl-C";
        while !subject.has_ended() && !stop.wait_timeout(FETCH_EVERY) {
            if deadline.is_some_and(|deadline| deadline.passed()) {
                over = "--for was over";
                break;
            }
            session.pump();
        }
        // Before it is ended by us: its end is not what was to be seen.
        let ended = subject.ended(over);
        let finished = session.finish(&name, ended);
        let left = subject.leave();
        let mut watched = finished?;
        // What was measured is not lost because somebody does not end.
        watched.times.doubts.extend(left.err().map(|error| error.to_string()));
        Ok(watched)
    }

    fn begin(&self, session: &mut Session) -> Result<(Subject, String), Failure> {
        if let Some(pid) = self.pid {
            let gone = || sys::trace::TraceError::NoProcess { pid };
            let start_ticks = sys::proc::start_ticks(Path::new("/"), pid).map_err(|_| gone())?;
            let name = sys::trace::name_of_thread(pid.cast_unsigned()).ok_or_else(gone)?;
            session.follow(Target::Process(pid))?;
            self.say(&format!("watching process {pid} ({name})"), session);
            return Ok((Subject::Running { pid, start_ticks }, format!("pid {pid} ({name})")));
        }
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        let held = Held::prepare(&self.command, self.json)?;
        session.follow(Target::Held(held.pid()))?;
        let family = held.release()?;
        self.say(&format!("watching {}", words[0]), session);
        Ok((Subject::Started(family), words.join(" ")))
    }

    fn say(&self, what: &str, session: &Session) {
        if !self.quiet {
            output::say(&format!("{what}, by {}", session.backend().name()));
        }
    }

    /// Print the table, write the pictures. What was measured is printed even if a file cannot be written.
    fn present(&self, watched: &Watched) -> Result<(), Failure> {
        if self.json {
            output::print(&Document::of(&watched.times).text()?);
        } else {
            output::print(&report::terminal::call_times(&watched.times, output::style()));
        }
        self.pictures().write(watched)
    }
}

/// The files that a picture is written to.
struct Pictures<'a> {
    html: Option<&'a Path>,
    pftrace: Option<&'a Path>,
    is_quiet: bool,
}

impl Pictures<'_> {
    fn are_wanted(&self) -> bool {
        self.html.is_some() || self.pftrace.is_some()
    }

    /// A folder that is not there is told before anything is watched.
    fn check(&self) -> Result<(), Failure> {
        [self.html, self.pftrace].into_iter().flatten().try_for_each(check_folder)
    }

    /// Where one cannot be written, the other is.
    fn write(&self, watched: &Watched) -> Result<(), Failure> {
        let Some(picture) = &watched.picture else { return Ok(()) };
        let write = |path: &Path, bytes: &[u8]| {
            write_whole(path, bytes).map_err(Failure::of_named)?;
            if !self.is_quiet {
                output::say(&format!("wrote {} ({:.1} MB)", path.display(), bytes.len() as f64 / 1e6));
            }
            Ok(())
        };
        let page = |path| write(path, report::timeline::page(&watched.times, picture).as_bytes());
        let trace = |path| write(path, &pftrace::encode(picture));
        self.html.map(page).into_iter().chain(self.pftrace.map(trace)).collect()
    }
}

fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.is_none_or(Path::is_dir) && !path.is_dir() {
        true => Ok(()),
        false => Err(Failure::usage(format!("cannot write {}: there is no such folder", path.display()))),
    }
}
