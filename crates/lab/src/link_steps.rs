//! The steps of a lab's links as a part of a run: kind `lab.steps`. It runs on the machine of the lab.

use base::part::{HostContext, PartError, Progress};
use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;
use workload::part::{Part, Peers};

use crate::client::Steps;
use crate::state::{Folders, StepDone};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkStepsTask {
    pub lab: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LinkStepsReport {
    /// In the order of their times.
    pub done: Vec<StepDone>,
}

/// Starts the steps with a trial, and gives the links their first rates again after it.
pub struct LinkSteps {
    task: LinkStepsTask,
    folders: Option<Folders>,
    steps: Option<Steps>,
}

impl Part for LinkSteps {
    const KIND: &'static str = "lab.steps";
    type Task = LinkStepsTask;
    type Endpoint = ();
    type Report = LinkStepsReport;

    fn new(task: LinkStepsTask) -> Result<Self, PartError> {
        Ok(Self { task, folders: None, steps: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        self.folders = Some(Folders { journal: host.journal_dir.clone(), data: host.data_dir.clone() });
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let folders = self.folders.as_ref();
        let folders =
            folders.ok_or_else(|| PartError::new("the steps were started before they were prepared"))?;
        let steps = Steps::start(folders, &self.task.lab, at_monotonic_ns).map_err(PartError::new)?;
        // A trial whose rates change too late is started again.
        if monotonic_ns() > at_monotonic_ns {
            return Err(PartError::new("the start of the links' steps came too late"));
        }
        self.steps = Some(steps);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        Progress::Running { done: None }
    }

    fn stop(&mut self) -> Result<LinkStepsReport, PartError> {
        let done = self.steps.take().map_or_else(|| Ok(Vec::new()), Steps::end);
        Ok(LinkStepsReport { done: done.map_err(PartError::new)? })
    }
}
