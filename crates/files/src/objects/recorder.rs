//! What the workers of a run count: several share one recorder, each holds it for the time of an addition.

use base::histogram::Histogram;

use super::access::failure::Failure;
use crate::engine::recorder::{RowCounts, Times};
use crate::engine::report::RowReport;

/// A kind of request, as it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    Put,
    Get,
    AppendGet,
    AppendPut,
    Head,
    Delete,
    List,
}

impl Row {
    const ALL: [Self; 7] =
        [Self::Put, Self::Get, Self::AppendGet, Self::AppendPut, Self::Head, Self::Delete, Self::List];

    fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::AppendGet => "append: get",
            Self::AppendPut => "append: put",
            Self::Head => "head",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Self::Put | Self::AppendPut => "PUT",
            Self::Get | Self::AppendGet | Self::List => "GET",
            Self::Head => "HEAD",
            Self::Delete => "DELETE",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Recorder {
    rows: [RowCounts; Row::ALL.len()],
    first_byte: Times,
    pub waited_ns: u64,
    pub requests: u64,
    pub failed: u64,
    pub slow_downs: u64,
    pub rounds: u64,
    pub late_rounds: u64,
}

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub row: Row,
    /// From the intended start.
    pub latency_ns: u64,
    /// From the start.
    pub took_ns: u64,
    pub first_byte_ns: Option<u64>,
    pub bytes: u64,
    pub is_judged: bool,
}

impl Recorder {
    pub(crate) fn count(&mut self, ended: Ended) {
        self.requests += 1;
        let counts = &mut self.rows[ended.row as usize];
        counts.all_count += 1;
        counts.all_bytes += ended.bytes;
        if ended.is_judged {
            counts.count(ended.latency_ns, ended.bytes);
            self.waited_ns += ended.took_ns;
            if let Some(ns) = ended.first_byte_ns {
                self.first_byte.count(ns);
            }
        }
    }

    pub(crate) fn fail(&mut self, row: Row, failure: &Failure, took_ns: u64, is_judged: bool) {
        self.requests += 1;
        let counts = &mut self.rows[row as usize];
        counts.all_count += 1;
        if is_judged {
            *counts.errors.entry(failure.kind.clone()).or_default() += 1;
            self.waited_ns += took_ns;
            self.failed += 1;
            self.slow_downs += u64::from(failure.is_slow_down);
        }
    }
}

/// All recorders of a run together: rows, and times to the first byte.
pub(crate) fn add_up(recorders: &[Recorder]) -> (Vec<RowReport>, Histogram) {
    let mut first_byte = Histogram::default();
    recorders.iter().for_each(|recorder| recorder.first_byte.add_to(&mut first_byte));
    let row = |row: Row| {
        let mut report = RowReport::of_requests(row.name(), row.method());
        for counts in recorders.iter().map(|recorder| &recorder.rows[row as usize]) {
            report.add(counts);
        }
        report
    };
    (Row::ALL.map(row).into(), first_byte)
}
