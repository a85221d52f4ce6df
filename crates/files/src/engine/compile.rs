//! From a program to the operations of each thread: names are resolved to numbers, so that nothing is looked
//! up while it runs. Touches no files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wml::{Flowop, Kind, Number, Operation, Program, Thread, WmlError};

use super::gate::Gate;
use super::tally::Tally;

/// Files of a set that memory is kept for.
const FILES_MAX: u64 = 1 << 27;
const THREADS_MAX: u64 = 30_000;
/// The largest piece of one read or write.
const IO_BYTES_MAX: u64 = 16 << 20;

/// A flowop by its name: what the results are counted under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Work {
    Kind(Kind),
    Composite(Vec<Planned>),
}

/// Whose operations a limit or an end counts.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// All of the thread.
    All,
    Row(usize),
}

/// A flowop that is ready to run.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub work: Work,
    pub row: usize,
    pub iterations: Number,
    pub tree: Option<usize>,
    pub fd: usize,
    pub source_fd: Option<usize>,
    pub io_bytes: Option<Number>,
    pub working_set: Option<Number>,
    pub index: Option<Number>,
    pub value: u64,
    pub is_random: bool,
    pub opens_next: bool,
    pub is_dsync: bool,
    pub is_direct: bool,
    pub is_without_read_ahead: bool,
    pub is_blocking: bool,
    pub gate: Option<Arc<Gate>>,
    pub scope: Scope,
    /// Counts of the process, for an end after a number of operations.
    pub ends_by: Option<Arc<Tally>>,
    /// Number of this limit among those of the thread.
    pub limit: usize,
    pub line: u32,
}

/// Threads that do the same.
#[derive(Debug, Clone)]
pub(crate) struct ThreadPlan {
    pub name: String,
    pub instances: u64,
    pub work: Arc<[Planned]>,
    pub memory_bytes: u64,
    pub nice: i32,
    pub io_priority: Option<u8>,
    /// Slots for open files.
    pub slots: usize,
    /// Slots that can have a file at the same time.
    pub files: usize,
    pub limits: usize,
    /// By row: the counts of the process that an operation adds to.
    pub tallies: Vec<Vec<Arc<Tally>>>,
}

/// A program, ready to run.
#[derive(Debug)]
pub struct Compiled {
    pub rows: Vec<Row>,
    pub(crate) threads: Vec<ThreadPlan>,
    pub(crate) gates: Vec<Arc<Gate>>,
    /// The largest read or write.
    pub io_bytes_max: usize,
    /// Whether a flowop writes asynchronously.
    pub has_aio: bool,
}

struct Compiler<'a> {
    program: &'a Program,
    rows: Vec<Row>,
    gates: BTreeMap<String, Arc<Gate>>,
    io_bytes_max: u64,
    has_aio: bool,
    slots: usize,
    /// Slots of the thread that a flowop opens a file in.
    opened: BTreeSet<u32>,
    limits: usize,
    /// Of the process: for one flowop, or for all.
    ends: BTreeMap<Option<usize>, Arc<Tally>>,
}

type Made<T> = Result<T, (u32, String)>;

impl Compiled {
    /// # Errors
    /// A flowop names a fileset or another flowop that does not exist, or lacks what it needs: the line.
    pub fn new(file: &str, program: &Program) -> Result<Self, WmlError> {
        let wrong = |(line, problem)| WmlError { file: file.to_owned(), line, problem };
        let mut compiler = Compiler {
            program,
            rows: Vec::new(),
            gates: BTreeMap::new(),
            io_bytes_max: 1,
            has_aio: false,
            slots: 1,
            opened: BTreeSet::new(),
            limits: 0,
            ends: BTreeMap::new(),
        };
        if program.threads() == 0 {
            return Err(wrong((1, "the program defines no threads, so there is nothing to run".to_owned())));
        }
        if program.threads() > THREADS_MAX {
            let problem = format!("the program has {} threads, more than {THREADS_MAX}", program.threads());
            return Err(wrong((1, problem)));
        }
        for set in &program.filesets {
            compiler.fileset(set).map_err(wrong)?;
        }
        let all = || program.processes.iter().flat_map(|process| &process.threads);
        all().for_each(|thread| compiler.name_rows(&thread.flowops));
        let mut threads = Vec::new();
        for process in &program.processes {
            for _ in 0..process.instances {
                compiler.ends.clear();
                let from = threads.len();
                for thread in &process.threads {
                    threads.push(compiler.thread(thread).map_err(wrong)?);
                }
                let ends = std::mem::take(&mut compiler.ends);
                for thread in &mut threads[from..] {
                    thread.tallies = tallies(&compiler.rows, &ends);
                }
                // Nothing is shared by the threads of a process but these counts.
                if ends.is_empty() {
                    for thread in &mut threads[from..] {
                        thread.instances = thread.instances.saturating_mul(process.instances);
                    }
                    break;
                }
            }
        }
        Ok(Self {
            rows: compiler.rows,
            threads,
            gates: compiler.gates.into_values().collect(),
            io_bytes_max: usize::try_from(compiler.io_bytes_max.min(IO_BYTES_MAX)).unwrap_or(1 << 20),
            has_aio: compiler.has_aio,
        })
    }

    /// The most files that all threads have open at once.
    pub fn files_max(&self) -> u64 {
        let of_plan = |plan: &ThreadPlan| plan.instances.saturating_mul(plan.files as u64);
        self.threads.iter().map(of_plan).fold(0, u64::saturating_add)
    }

    /// How many operations that count one round of every thread does; `None` if their number is random.
    pub fn counted_per_round(&self) -> Option<f64> {
        fn counted(work: &[Planned], rows: &[Row]) -> Option<f64> {
            work.iter().try_fold(0.0, |sum, planned| {
                let times = planned.iterations.constant()? as f64;
                let one = match &planned.work {
                    Work::Kind(_) => f64::from(u8::from(rows[planned.row].kind.is_counted())),
                    Work::Composite(below) => counted(below, rows)?,
                };
                Some(sum + times * one)
            })
        }
        let of_thread =
            |thread: &ThreadPlan| Some(thread.instances as f64 * counted(&thread.work, &self.rows)?);
        self.threads.iter().map(of_thread).sum()
    }
}

/// By row: what its operations add to.
fn tallies(rows: &[Row], ends: &BTreeMap<Option<usize>, Arc<Tally>>) -> Vec<Vec<Arc<Tally>>> {
    if ends.is_empty() {
        return Vec::new();
    }
    let of_row = |row: usize| {
        let all = ends.get(&None).filter(|_| rows[row].kind.is_counted());
        all.into_iter().chain(ends.get(&Some(row))).cloned().collect()
    };
    (0..rows.len()).map(of_row).collect()
}

impl Compiler<'_> {
    fn fileset(&self, set: &wml::Fileset) -> Made<()> {
        let all = set.entries + set.leaf_dirs;
        if all > FILES_MAX {
            return Err((
                set.line,
                format!("the fileset {} has {all} entries, more than {FILES_MAX}", set.name),
            ));
        }
        Ok(())
    }

    fn name_rows(&mut self, flowops: &[Flowop]) {
        for flowop in flowops {
            match &flowop.operation {
                Operation::Kind(kind) => {
                    let is_same = |row: &Row| row.name == flowop.name && row.kind == *kind;
                    if !self.rows.iter().any(is_same) {
                        self.rows.push(Row { name: flowop.name.clone(), kind: *kind });
                    }
                }
                Operation::Composite(below) => self.name_rows(below),
            }
        }
    }

    fn row(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name == name)
    }

    fn gate(&mut self, name: &str) -> Arc<Gate> {
        self.gates.entry(name.to_owned()).or_default().clone()
    }

    fn thread(&mut self, thread: &Thread) -> Made<ThreadPlan> {
        (self.slots, self.limits) = (1, 0);
        self.opened.clear();
        let work = self.flowops(&thread.flowops)?;
        Ok(ThreadPlan {
            name: thread.name.clone(),
            instances: thread.instances,
            work: work.into(),
            memory_bytes: thread.memory_bytes,
            nice: thread.nice,
            io_priority: thread.io_priority,
            slots: self.slots,
            files: self.opened.len(),
            limits: self.limits,
            tallies: Vec::new(),
        })
    }

    fn flowops(&mut self, flowops: &[Flowop]) -> Made<Vec<Planned>> {
        flowops.iter().map(|flowop| self.flowop(flowop)).collect()
    }

    fn flowop(&mut self, flowop: &Flowop) -> Made<Planned> {
        let wrong = |problem: String| (flowop.line, problem);
        let tree = match &flowop.fileset {
            None => None,
            Some(name) => match self.program.filesets.iter().position(|set| set.name == *name) {
                None => return Err(wrong(format!("there is no file or fileset '{name}'"))),
                found => found,
            },
        };
        let (work, row) = match &flowop.operation {
            Operation::Composite(below) => (Work::Composite(self.flowops(below)?), 0),
            Operation::Kind(kind) => {
                let is_same = |row: &Row| row.name == flowop.name && row.kind == *kind;
                let row = self.rows.iter().position(is_same).unwrap_or(0);
                (Work::Kind(*kind), row)
            }
        };
        let kind = match work {
            Work::Kind(kind) => Some(kind),
            Work::Composite(_) => None,
        };
        if let Some(kind) = kind.filter(|kind| tree.is_none() && needs_fileset(*kind)) {
            return Err(wrong(format!("{} needs a fileset: filesetname=...", kind.word())));
        }
        self.slots = self.slots.max(flowop.fd.max(flowop.source_fd.unwrap_or(0)) as usize + 1);
        if kind.is_some_and(opens_file) {
            self.opened.insert(flowop.fd);
        }
        self.has_aio |= kind == Some(Kind::AioWrite);
        self.size(flowop, tree);
        let gate = self.gate_of(flowop, kind)?;
        let (scope, ends_by) = self.scope(flowop, kind)?;
        let is_limit =
            matches!(kind, Some(Kind::EventLimit | Kind::IopsLimit | Kind::OpsLimit | Kind::BandwidthLimit));
        self.limits += usize::from(is_limit);
        Ok(Planned {
            work,
            row,
            iterations: flowop.iterations.clone(),
            tree,
            fd: flowop.fd as usize,
            source_fd: flowop.source_fd.map(|fd| fd as usize),
            io_bytes: flowop.io_bytes.clone(),
            working_set: flowop.working_set.clone(),
            index: flowop.index.clone(),
            value: flowop.value.as_ref().and_then(Number::constant).unwrap_or(1),
            is_random: flowop.is_random,
            opens_next: flowop.opens_next,
            is_dsync: flowop.is_dsync,
            is_direct: flowop.is_direct,
            is_without_read_ahead: flowop.is_without_read_ahead,
            is_blocking: flowop.is_blocking,
            gate,
            scope,
            ends_by,
            limit: self.limits.saturating_sub(1),
            line: flowop.line,
        })
    }

    /// Notes the largest read or write.
    fn size(&mut self, flowop: &Flowop, tree: Option<usize>) {
        let largest = |number: &Number| match number {
            Number::Constant(bytes) => *bytes,
            // Random sizes have no bound that is known beforehand.
            Number::Random(_) => IO_BYTES_MAX,
        };
        let of_file = || tree.map_or(0, |tree| largest(&self.program.filesets[tree].size));
        let bytes = match &flowop.io_bytes {
            Some(Number::Constant(0)) | None => of_file().max(1 << 20),
            Some(number) => largest(number),
        };
        self.io_bytes_max = self.io_bytes_max.max(bytes.min(IO_BYTES_MAX));
    }

    fn gate_of(&mut self, flowop: &Flowop, kind: Option<Kind>) -> Made<Option<Arc<Gate>>> {
        let target = || {
            let target = flowop.target.as_deref().filter(|target| self.row(target).is_some());
            target.ok_or_else(|| {
                let found = flowop.target.as_deref().unwrap_or("none");
                (
                    flowop.line,
                    format!("the flowop needs target=FLOWOP, the name of another flowop, and has {found}"),
                )
            })
        };
        match kind {
            Some(Kind::Block | Kind::SemBlock) => {
                let gate = self.gate(&flowop.name);
                gate.set_high_water(flowop.high_water);
                Ok(Some(gate))
            }
            Some(Kind::Wakeup | Kind::SemPost) => {
                let target = target()?.to_owned();
                Ok(Some(self.gate(&target)))
            }
            _ => Ok(None),
        }
    }

    fn scope(&mut self, flowop: &Flowop, kind: Option<Kind>) -> Made<(Scope, Option<Arc<Tally>>)> {
        use Kind::{BandwidthLimit, EventLimit, FinishOnBytes, FinishOnCount, IopsLimit, OpsLimit};
        let Some(kind) = kind else { return Ok((Scope::All, None)) };
        if !matches!(kind, BandwidthLimit | EventLimit | FinishOnBytes | FinishOnCount | IopsLimit | OpsLimit)
        {
            return Ok((Scope::All, None));
        }
        let scope = match flowop.target.as_deref() {
            None | Some("all") => Scope::All,
            Some(name) => match self.row(name) {
                Some(row) => Scope::Row(row),
                None => return Err((flowop.line, format!("target={name}: there is no flowop of that name"))),
            },
        };
        let is_end = matches!(kind, FinishOnBytes | FinishOnCount);
        let key = match scope {
            Scope::All => None,
            Scope::Row(row) => Some(row),
        };
        let tally = is_end.then(|| self.ends.entry(key).or_default().clone());
        Ok((scope, tally))
    }
}

/// Whether a flowop opens a file in its slot, also where it reads or writes one that is not open yet.
fn opens_file(kind: Kind) -> bool {
    kind.reads() || kind.writes() || matches!(kind, Kind::CreateFile | Kind::OpenFile | Kind::Fsync)
}

fn needs_fileset(kind: Kind) -> bool {
    use Kind::{CreateFile, ListDir, MakeDir, OpenFile, RemoveDir, StatFile};
    matches!(kind, CreateFile | ListDir | MakeDir | OpenFile | RemoveDir | StatFile | Kind::FsyncSet)
}
