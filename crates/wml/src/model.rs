//! What a program describes, with every value known.

use crate::distribution::Distribution;

/// A number that is drawn at each use, or always the same.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    Constant(u64),
    Random(Box<Distribution>),
}

impl Number {
    #[inline]
    pub fn draw(&self, rng: &mut fastrand::Rng) -> u64 {
        match self {
            Self::Constant(number) => *number,
            Self::Random(distribution) => distribution.sample(rng),
        }
    }

    /// The same number at every use, if it is one.
    pub fn constant(&self) -> Option<u64> {
        match self {
            Self::Constant(number) => Some(*number),
            Self::Random(_) => None,
        }
    }
}

/// What ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quit {
    /// Its time.
    #[default]
    Timeout,
    /// The first thread that has nothing more to do.
    FirstDone,
    /// All threads have nothing more to do.
    AllDone,
}

/// A set of files, or a single file.
#[derive(Debug, Clone, PartialEq)]
pub struct Fileset {
    pub name: String,
    pub path: String,
    /// Whether it is one file, and not a tree.
    pub is_single: bool,
    /// Size of a file, drawn once for each.
    pub size: Number,
    pub entries: u64,
    /// Empty directories beside the files.
    pub leaf_dirs: u64,
    /// Mean number of entries of a directory; 0: all files are in one.
    pub dir_width: Number,
    /// Depth of the tree; without it, it follows from entries and width.
    pub dir_depth: Option<Number>,
    /// Shape of the gamma distribution of widths and depths, in thousandths; 0: all are equal.
    pub dir_gamma: u64,
    /// Share of the files that exist before the run, in percent.
    pub prealloc_percent: u64,
    pub is_read_only: bool,
    pub is_write_only: bool,
    pub line: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    pub name: String,
    pub instances: u64,
    pub threads: Vec<Thread>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    pub name: String,
    pub instances: u64,
    /// Memory from which it writes and into which it reads.
    pub memory_bytes: u64,
    /// Its process's `nice`: what is added to its nice value (nice(2)).
    pub nice: i32,
    /// Level of its I/O in the best-effort class (ioprio_set(2)), 0 (first) to 7; `None`: as it is.
    pub io_priority: Option<u8>,
    pub flowops: Vec<Flowop>,
    pub line: u32,
}

/// The kinds of flowops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Read,
    Write,
    OpenFile,
    CreateFile,
    CloseFile,
    DeleteFile,
    StatFile,
    Fsync,
    FsyncSet,
    MakeDir,
    RemoveDir,
    ListDir,
    ReadWholeFile,
    WriteWholeFile,
    AppendFile,
    AppendFileRandom,
    AioWrite,
    AioWait,
    Delay,
    Hog,
    Print,
    Block,
    Wakeup,
    SemBlock,
    SemPost,
    EventLimit,
    IopsLimit,
    OpsLimit,
    BandwidthLimit,
    FinishOnCount,
    FinishOnBytes,
}

impl Kind {
    /// Every kind with its word.
    pub const ALL: [(&'static str, Self); 33] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("openfile", Self::OpenFile),
        ("createfile", Self::CreateFile),
        ("closefile", Self::CloseFile),
        ("deletefile", Self::DeleteFile),
        ("statfile", Self::StatFile),
        ("fsync", Self::Fsync),
        ("fsyncset", Self::FsyncSet),
        ("makedir", Self::MakeDir),
        ("removedir", Self::RemoveDir),
        ("listdir", Self::ListDir),
        ("readwholefile", Self::ReadWholeFile),
        ("writewholefile", Self::WriteWholeFile),
        ("appendfile", Self::AppendFile),
        ("appendfilerand", Self::AppendFileRandom),
        ("aiowrite", Self::AioWrite),
        ("aiowait", Self::AioWait),
        ("delay", Self::Delay),
        ("hog", Self::Hog),
        ("print", Self::Print),
        ("testrandvar", Self::Print),
        ("block", Self::Block),
        ("wakeup", Self::Wakeup),
        ("semblock", Self::SemBlock),
        ("sempost", Self::SemPost),
        ("eventlimit", Self::EventLimit),
        ("iopslimit", Self::IopsLimit),
        ("opslimit", Self::OpsLimit),
        ("bwlimit", Self::BandwidthLimit),
        ("finishoncount", Self::FinishOnCount),
        ("finishonbytes", Self::FinishOnBytes),
        ("nop", Self::Print),
    ];

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
    }

    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }

    /// Whether it counts in the summary of a run.
    pub fn is_counted(self) -> bool {
        self <= Self::AioWait
    }

    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWholeFile)
    }

    pub fn writes(self) -> bool {
        use Kind::{AioWrite, AppendFile, AppendFileRandom, Write, WriteWholeFile};
        matches!(self, Write | WriteWholeFile | AppendFile | AppendFileRandom | AioWrite)
    }
}

/// What a flowop does.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    Kind(Kind),
    /// A composite: these flowops, one after the other.
    Composite(Vec<Flowop>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Flowop {
    pub name: String,
    pub operation: Operation,
    /// How often it is run in each round.
    pub iterations: Number,
    pub fileset: Option<String>,
    /// Slot of the open file, and of the file whose size `writewholefile` takes.
    pub fd: u32,
    pub source_fd: Option<u32>,
    pub io_bytes: Option<Number>,
    pub working_set: Option<Number>,
    pub is_random: bool,
    pub opens_next: bool,
    pub is_dsync: bool,
    pub is_direct: bool,
    pub is_without_read_ahead: bool,
    pub index: Option<Number>,
    pub target: Option<String>,
    pub value: Option<Number>,
    pub is_blocking: bool,
    pub high_water: u64,
    pub line: u32,
}

/// A whole program.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    pub filesets: Vec<Fileset>,
    pub processes: Vec<Process>,
    pub quit: Quit,
    /// Time of the run, where the program says it.
    pub seconds: Option<u64>,
    /// Whether the program has a `run` or `psrun`.
    pub runs: bool,
    /// Events per second; none or 0: flowops that wait for events do not wait.
    pub event_rate: Option<u64>,
    /// What `usage` and `echo` print.
    pub messages: Vec<String>,
    /// What has no effect, and why: line and sentence.
    pub notes: Vec<(u32, String)>,
    /// The variables that `set` declares, with their last values.
    pub variables: Vec<(String, String)>,
}

impl Program {
    /// The number of its threads.
    pub fn threads(&self) -> u64 {
        let of_process = |process: &Process| {
            let threads = process.threads.iter().map(|thread| thread.instances);
            process.instances.saturating_mul(threads.fold(0, u64::saturating_add))
        };
        self.processes.iter().map(of_process).fold(0, u64::saturating_add)
    }
}
