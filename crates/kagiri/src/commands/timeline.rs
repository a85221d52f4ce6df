//! `kagiri timeline`: traces a program's system calls.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::units::{ByteSize, Span};
use clap::{Args, ValueEnum};
use observe::timeline::calls::{self, Call};
use observe::timeline::session::{Session, Watched, Wish};
use sys::child::suspended_child::{ProcessFamily, SuspendedChild};
use sys::clock::Deadline;
use sys::stop::StopSignal;
use sys::trace::{Backend, Target};

use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::output;
use crate::pictures::Pictures;
use crate::stop::erase_echo;

/// How often events are fetched; the kernel's buffer must last until then.
const FETCH_EVERY: Duration = Duration::from_millis(10);
/// Time spent to measure the overhead of tracing.
const COST_WITHIN: Duration = Duration::from_millis(200);

/// Tracing backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendChoice {
    /// The best available one
    Auto,
    /// BPF program at raw tracepoints
    Bpf,
    /// perf_event_open tracepoints
    Perf,
}

impl BackendChoice {
    fn backend(self) -> Option<Backend> {
        match self {
            Self::Auto => None,
            Self::Bpf => Some(Backend::Bpf),
            Self::Perf => Some(Backend::Perf),
        }
    }
}

/// Trace a program's system calls and show where its time goes.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri timeline -- iperf3 -c 10.0.0.2 -t 2\n  \
    kagiri timeline -p $(pgrep -o nginx) --for 5s --html nginx.html\n  \
    kagiri timeline --trace +futex --pftrace app.pftrace -- java -jar app.jar\n\n\
    Also traces the threads and child processes. A call counts as 'blocked' if the thread lost its CPU \
    during it, else as 'ready'. Ctrl-C stops tracing and prints the result; processes given by -p continue.\n\
    Needs root, or CAP_BPF and CAP_PERFMON.")]
pub struct Timeline {
    /// Trace these running processes (comma-separated) with their threads and child processes
    #[arg(long, short, value_name = "PID", value_delimiter = ',', conflicts_with = "command")]
    #[arg(value_parser = process_id)]
    pid: Vec<i32>,
    /// Stop tracing after TIME, and end COMMAND (processes given by -p continue)
    #[arg(long = "for", value_name = "TIME", value_parser = crate::args::time)]
    length: Option<Span>,
    /// Write a timeline of all threads and CPUs as an HTML page that works offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a trace for Perfetto
    #[arg(long, value_name = "FILE")]
    pftrace: Option<PathBuf>,
    /// Print one JSON document on standard output and nothing else (the program's output goes to standard
    /// error)
    #[arg(long)]
    json: bool,
    /// Print all calls, softirqs and doubts
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Tracing backend
    #[arg(long, value_name = "WAY", default_value = "auto")]
    backend: BackendChoice,
    /// System calls to trace, comma-separated; '+NAME' adds to the defaults: read, write, send, receive,
    /// poll, sync and connect calls
    #[arg(long, alias = "calls", value_name = "NAMES")]
    trace: Option<String>,
    /// Size of the kernel's event buffer (with perf: of each CPU)
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    ring: ByteSize,
    /// Maximum number of calls, and of times on a CPU, that the page or trace file shows
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    spans: u32,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    /// Program to trace, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn process_id(text: &str) -> Result<i32, String> {
    let id = text.trim().parse().ok().filter(|id| *id > 0);
    id.ok_or_else(|| format!("'{text}' is not the number of a process; find it with 'pgrep NAME'"))
}

/// The traced process.
enum Subject {
    Started(ProcessFamily),
    /// Those that were named, each with the time of its start.
    Running(Vec<(i32, u64)>),
}

impl Subject {
    fn has_ended(&mut self) -> bool {
        match self {
            Self::Started(family) => family.has_ended(),
            Self::Running(all) => {
                all.iter().all(|(pid, start_ticks)| !sys::child::is_running(*pid, *start_ticks))
            }
        }
    }

    /// How it ended, or why it will be ended.
    fn ended(&mut self, over: &str) -> Option<String> {
        match self {
            Self::Started(family) => {
                family.has_ended();
                let status = family.status().map(|status| format!("it ended with {status}"));
                Some(status.unwrap_or_else(|| format!("it was ended: {over}")))
            }
            Self::Running(_) => self.has_ended().then(|| "it ended meanwhile".to_owned()),
        }
    }

    /// Ends a process that was started here.
    fn leave(self) -> sys::Result<()> {
        match self {
            Self::Started(mut family) => family.end(),
            Self::Running(_) => Ok(()),
        }
    }
}

impl Timeline {
    pub fn run(self) -> Outcome {
        let calls = match &self.trace {
            Some(text) => calls::read(text).map_err(Failure::usage)?,
            None => calls::usual(),
        };
        if calls.is_empty() {
            return Err(Failure::usage("--trace lists no system call"));
        }
        if self.pid.is_empty() && self.command.is_empty() {
            return Err(Failure::usage(
                "nothing to trace: give a program ('kagiri timeline -- COMMAND') or a process ('-p PID')",
            ));
        }
        self.pictures().check()?;
        let stop = StopSignal::install()?;
        for pid in &self.pid {
            // Check before tracing starts.
            sys::trace::threads_of(*pid)?;
        }
        let session = Session::open(self.wish(calls))?;
        if stop.requested() {
            return Err(Failure::Interrupted("interrupted before tracing started".to_owned()));
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

    /// Traces until the process ends, the time is over, or the user stops.
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
        if stop.requested() {
            erase_echo();
        }
        // Before it is ended here.
        let ended = subject.ended(over);
        let finished = session.finish(&name, ended);
        let left = subject.leave();
        let mut watched = finished?;
        // Keep the result even if the process cannot be ended.
        watched.times.doubts.extend(left.err().map(|error| error.to_string()));
        Ok(watched)
    }

    fn begin(&self, session: &mut Session) -> Result<(Subject, String), Failure> {
        if !self.pid.is_empty() {
            return self.begin_running(session);
        }
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        let held = SuspendedChild::prepare(&self.command, self.json)?;
        session.follow(Target::Suspended(held.pid()))?;
        let family = held.release()?;
        self.say(&format!("tracing {}", words[0]), session);
        Ok((Subject::Started(family), words.join(" ")))
    }

    fn begin_running(&self, session: &mut Session) -> Result<(Subject, String), Failure> {
        let (mut subjects, mut names) = (Vec::new(), Vec::new());
        for &pid in &self.pid {
            let gone = || sys::trace::TraceError::NoProcess { pid };
            let start_ticks = sys::proc::start_ticks(Path::new("/"), pid).map_err(|_| gone())?;
            let name = sys::trace::name_of_thread(pid.cast_unsigned()).ok_or_else(gone)?;
            session.follow(Target::Process(pid))?;
            subjects.push((pid, start_ticks));
            names.push(format!("{pid} ({name})"));
        }
        // A child that ends meanwhile is no loss; one that is started meanwhile is followed by its parent.
        let mut others: Vec<i32> = self.pid.iter().flat_map(|pid| sys::trace::children_of(*pid)).collect();
        while let Some(child) = others.pop() {
            if session.follow_unless_known(child) {
                others.extend(sys::trace::children_of(child));
            }
        }
        let names = names.join(", ");
        let noun = if self.pid.len() == 1 { "process" } else { "processes" };
        self.say(&format!("tracing {noun} {names}"), session);
        Ok((Subject::Running(subjects), format!("pid {names}")))
    }

    fn say(&self, what: &str, session: &Session) {
        if !self.quiet {
            output::say(&format!("{what}, by {}", session.backend().name()));
        }
    }

    /// Prints the table before it writes the pictures, which can fail.
    fn present(&self, watched: &Watched) -> Result<(), Failure> {
        if self.json {
            output::print(&Document::new(&watched.times).text()?)?;
        } else {
            let print = match self.full {
                true => report::terminal::call_times,
                false => report::terminal::brief_call_times,
            };
            output::print(&print(&watched.times, output::style()))?;
        }
        self.pictures().write(watched)
    }
}
