//! `kagiri qos exec`: a program in a class of a policy in force.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use qos::daemon::ClassStatus;
use report::text::plain;
use sys::cgroup::UnifiedGroup;
use sys::journal::Journal;

use super::check_root;
use super::record::{self, Record};
use crate::dirs::journal_dir;
use crate::exit::{Failure, Outcome};
use crate::output;

/// Run a program in a class of the policy in force.
#[derive(Args)]
#[command(
    after_help = "The program and all that it starts belong to the class, whatever the class matches. \
    Its new connections are paced from the first packet on, by BPF programs at a control group; without \
    those, within 100 ms. It leaves the control group that it was started from, and its limits. \
    Ctrl-C and other signals go to the program, and its exit code is this command's. Needs root.\n\n\
    Examples:\n  \
    kagiri qos exec bulk -- rsync -a /data backup:/data\n  \
    kagiri qos exec bulk -- sudo -u me curl -O http://server/file"
)]
pub struct Exec {
    /// Class of the policy
    #[arg(value_name = "CLASS")]
    class: String,
    /// Interface of the policy, if several are in force
    #[arg(long)]
    interface: Option<String>,
    /// Program and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

impl Exec {
    pub fn run(self) -> Outcome {
        check_root("qos exec puts a program into a control group")?;
        let record = self.policy()?;
        let class = self.class_of(&record)?;
        let Some(above) = &class.group else {
            let why = record.status.groups_problem.as_deref().unwrap_or("it has none");
            return Err(Failure::runtime(format!("class {} has no control group: {why}", self.class)));
        };
        if let Some(problem) = &class.new_sockets_problem {
            output::say(&plain(&format!("New connections are paced within 100 ms only: {problem}")));
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::usage("name a program after --"));
        };
        let journal = Journal::open(&journal_dir())?;
        let group = UnifiedGroup::create_in(&journal, Path::new(above), "exec")?;
        let mut command = Command::new(PathBuf::from(program));
        command.args(arguments);
        let code = sys::child::run_in_foreground(command, Some(&group.process_file()));
        // What the program has left running stays in the class until the policy ends.
        drop((group, journal));
        std::process::exit(code?);
    }

    /// The policy in force here that has the class.
    fn policy(&self) -> Result<Record, Failure> {
        let namespace = record::own_namespace()?;
        let here = |record: &Record| record.namespace == namespace;
        let mut policies: Vec<Record> = record::in_force()?.into_iter().filter(here).collect();
        if let Some(interface) = &self.interface {
            policies.retain(|record| record.status.interface == *interface);
        }
        if policies.is_empty() {
            return Err(Failure::runtime(
                "no policy is in force here; start one with 'kagiri qos run POLICY.toml', in the same \
                 network namespace",
            ));
        }
        let has_class = |record: &Record| record.status.classes.iter().any(|class| class.name == self.class);
        let (mut with, without): (Vec<Record>, Vec<Record>) = policies.into_iter().partition(has_class);
        match (with.len(), with.pop()) {
            (1, Some(record)) => Ok(record),
            (0, _) => {
                let classes = without.iter().flat_map(|record| &record.status.classes);
                let names: Vec<String> = classes.map(|class| plain(&class.name)).collect();
                let (class, names) = (&self.class, names.join(", "));
                Err(Failure::usage(format!("no policy in force has a class {class:?}; there are: {names}")))
            }
            (count, _) => Err(Failure::usage(format!(
                "{count} policies in force have a class {:?}; name the one's interface with --interface",
                self.class
            ))),
        }
    }

    fn class_of<'a>(&self, record: &'a Record) -> Result<&'a ClassStatus, Failure> {
        let class = record.status.classes.iter().find(|class| class.name == self.class);
        class.ok_or_else(|| Failure::usage(format!("no class {:?}", self.class)))
    }
}
