//! The coordinator of several hosts as a part of a run: kind `qos.coordinator`. It runs `kagiri qos
//! coordinate` on its host. For hosts that it does not reach over loopback, it makes a certificate for each
//! with `kagiri fleet init`: an authority of its own, whose key is deleted after the trial.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use serde::{Deserialize, Serialize};
use sys::child::{Child, Spawn};
use sys::clock::Deadline;
use sys::file::OwnedFolder;
use sys::journal::Journal;
use workload::part::{Part, Peers, server_address};
use workload::program_text;

use super::{cannot_write, folder_with_policy, said_why};

/// Default port of a coordinator, as in docs/qos.md.
const PORT: u16 = 7448;
const READY_WITHIN: Duration = Duration::from_secs(20);
/// What `kagiri qos coordinate` says once hosts can connect.
const READY: &str = "coordinates";
/// It makes a key and a certificate for each host.
const CREDENTIALS_WITHIN: Duration = Duration::from_secs(60);
const END_WITHIN: Duration = Duration::from_secs(10);
/// Files of a bundle that a host needs.
const BUNDLE_FILES: [&str; 3] = ["ca.pem", "cert.pem", "key.pem"];
const BUNDLE_FILE_BYTES_MAX: u64 = 1 << 20;
const BUNDLE: &str = "credentials";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CoordinatorTask {
    /// Name of the policy's file.
    pub name: String,
    pub text: String,
    /// Name of the host that it runs on.
    pub host: String,
    /// Hosts that it coordinates.
    pub hosts: Vec<String>,
}

/// What the hosts need to connect.
#[derive(Clone, Serialize, Deserialize)]
pub struct CoordinatorEndpoint {
    pub endpoint: String,
    /// Text of each file of a host's credentials, by host and file; none on loopback.
    pub bundles: BTreeMap<String, BTreeMap<String, String>>,
}

/// One host's way to the coordinator.
pub struct Membership {
    pub endpoint: String,
    /// Text by file; none on loopback.
    bundle: BTreeMap<String, String>,
}

/// What was coordinated. Rates in bit/s.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CoordinatorReport {
    pub coordinator: String,
    pub capacity_bit_per_s: Option<f64>,
    /// Steps of the law, and those that came too late to measure.
    pub steps: u64,
    pub late_steps: u64,
    /// Connections that were refused.
    pub refused: u64,
}

pub struct CoordinatorPart {
    task: CoordinatorTask,
    /// Dropped first: its files are in the folder.
    program: Option<Child>,
    folder: Option<OwnedFolder>,
}

impl CoordinatorEndpoint {
    /// Errors: the coordinator does not expect the host.
    pub fn membership(self, host: &str) -> Result<Membership, PartError> {
        let Self { endpoint, mut bundles } = self;
        let bundle = match bundles.is_empty() {
            true => BTreeMap::new(),
            false => bundles.remove(host).ok_or_else(|| {
                PartError::new(format!("the coordinator at {endpoint} has no credentials for {host}"))
            })?,
        };
        Ok(Membership { endpoint, bundle })
    }
}

impl Membership {
    /// Writes the credentials below a folder that only this user can read. `None`: there are none.
    /// Errors: a file cannot be written.
    pub(super) fn write_bundle(&self, folder: &Path) -> Result<Option<PathBuf>, PartError> {
        if self.bundle.is_empty() {
            return Ok(None);
        }
        let dir = folder.join(BUNDLE);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| cannot_write(&dir, &error))?;
        for name in BUNDLE_FILES {
            let path = dir.join(name);
            let text = self.bundle.get(name).map(String::as_str).unwrap_or_default();
            let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|error| cannot_write(&path, &error))?;
        }
        Ok(Some(dir))
    }
}

impl Part for CoordinatorPart {
    const KIND: &'static str = "qos.coordinator";
    type Task = CoordinatorTask;
    type Endpoint = CoordinatorEndpoint;
    type Report = CoordinatorReport;

    fn new(task: CoordinatorTask) -> Result<Self, PartError> {
        Ok(Self { task, program: None, folder: None })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<CoordinatorEndpoint, PartError> {
        let elsewhere = self.task.hosts.iter().any(|other| *other != self.task.host);
        let address = server_address(host, elsewhere, "hosts of the policy", "coordinator")?;
        host.permit.peer(SocketAddr::new(address, PORT))?;
        let journal = Journal::open(&host.journal_dir).map_err(PartError::new)?;
        let (folder, file) = folder_with_policy(&self.task.name, &self.task.text, host, &journal)?;
        let place = SocketAddr::new(address, PORT);
        let mut spawn = Spawn::new(&host.program).args(["qos", "coordinate"]).arg(&file).arg("--json");
        let answer = if address.is_loopback() {
            CoordinatorEndpoint { endpoint: format!("tcp/{place}"), bundles: BTreeMap::new() }
        } else {
            let fleet = folder.path().join("fleet");
            self.make_credentials(host, &journal, &fleet, address)?;
            spawn = spawn.arg("--credentials").arg(fleet.join("bundles").join("coordinator"));
            let bundles = self.task.hosts.iter().map(|host| Ok((host.clone(), bundle(&fleet, host)?)));
            let bundles = bundles.collect::<Result<_, PartError>>()?;
            CoordinatorEndpoint { endpoint: format!("tls/{place}"), bundles }
        };
        let spawn = spawn.args(["--listen", &answer.endpoint]);
        let mut program = spawn.start(&journal).map_err(PartError::new)?;
        if let Err(error) = program.wait_line(READY_WITHIN, |line| line.contains(READY)) {
            let why = said_why(&program, &error);
            let why = why.replace(&file.display().to_string(), &self.task.name);
            return Err(PartError::new(format!("the hosts are not coordinated: {why}")));
        }
        (self.program, self.folder) = (Some(program), Some(folder));
        Ok(answer)
    }

    fn progress(&mut self) -> Progress {
        match self.program.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) => {
                let said = self.program.as_ref().map(Child::output_tail).unwrap_or_default();
                Progress::Failed(PartError::new(format!(
                    "the coordinator ended during the trial ({status}): {}",
                    program_text::end(&said)
                )))
            }
            _ => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<CoordinatorReport, PartError> {
        let Some(mut program) = self.program.take() else {
            return Err(PartError::new("the hosts were not coordinated"));
        };
        program.signal(sys::child::Signal::SIGINT).map_err(PartError::new)?;
        let status = program.wait(END_WITHIN).map_err(PartError::new)?;
        let said = program.last_words(Deadline::after(sys::child::LAST_WORDS_WITHIN));
        drop(program);
        self.folder = None;
        match program_text::document(&said) {
            Some(report) if status.success() => Ok(report),
            _ => Err(PartError::new(format!(
                "the coordinator ended with {status}: {}",
                program_text::end(&said)
            ))),
        }
    }
}

impl CoordinatorPart {
    /// An authority, and certificates for the coordinator and each host, for one day.
    fn make_credentials(
        &self,
        host: &HostContext,
        journal: &Journal,
        fleet: &Path,
        address: IpAddr,
    ) -> Result<(), PartError> {
        let own = format!("{},{address}", self.task.host);
        let mut spawn = Spawn::new(&host.program).args(["fleet", "init"]).arg(fleet);
        spawn = spawn.args(["--days", "1", "--coordinator", &own]);
        for name in &self.task.hosts {
            spawn = spawn.args(["--host", name]);
        }
        let mut program = spawn.start(journal).map_err(PartError::new)?;
        let failed = |why: String| PartError::new(format!("no credentials for the hosts: {why}"));
        let ended = program.wait(CREDENTIALS_WITHIN).map_err(|error| failed(error.to_string()))?;
        let said = program.last_words(Deadline::after(sys::child::LAST_WORDS_WITHIN));
        match ended.success() {
            true => Ok(()),
            false => {
                Err(failed(program_text::error(&said).unwrap_or_else(|| program_text::end(&said)).to_owned()))
            }
        }
    }
}

fn bundle(fleet: &Path, host: &str) -> Result<BTreeMap<String, String>, PartError> {
    let file = |name: &str| {
        let path = fleet.join("bundles").join(host).join(name);
        let text = sys::file::read_text(&path, BUNDLE_FILE_BYTES_MAX)
            .map_err(|error| PartError::new(format!("cannot read {}: {error}", path.display())))?;
        Ok((name.to_owned(), text))
    };
    BUNDLE_FILES.into_iter().map(file).collect()
}
