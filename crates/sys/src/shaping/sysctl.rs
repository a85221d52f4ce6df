//! A network setting of a namespace: proc_sys_net(5).

use std::io;
use std::path::Path;

use crate::journal::network::{sysctl_path, sysctl_words};
use crate::journal::{EntryId, Journal, Undo, UndoResult};
use crate::netlink::NamespaceId;
use crate::{Error, Result};

/// A changed network setting. Dropping it restores the former value, unless another program has changed it
/// since.
#[derive(Debug)]
pub struct Sysctl {
    journal: Journal,
    entry: Option<EntryId>,
    original: String,
}

impl Sysctl {
    /// Sets `name` (`net.ipv4.tcp_tso_rtt_log`) to `value` in the network namespace of this thread; several
    /// numbers are separated by blanks. `None`: this namespace has no such setting, or this kernel.
    /// Errors: no right, a value that the kernel refuses or changes, a name that is not below `net.`.
    pub fn set(journal: &Journal, name: &str, value: &str) -> Result<Option<Self>> {
        let path = sysctl_path(name)
            .ok_or_else(|| Error::Refused(format!("`{name}` cannot name a setting below net.")))?;
        let value = sysctl_words(value);
        let original = match std::fs::read_to_string(&path) {
            Ok(text) => sysctl_words(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("read", &path, error)),
        };
        if original == value {
            return Ok(Some(Self { journal: journal.clone(), entry: None, original }));
        }
        let namespace =
            NamespaceId::of_this_thread().map_err(|e| Error::call("look at this network namespace", e))?;
        let entry = journal.record(Undo::RestoreSysctl {
            namespace,
            name: name.to_owned(),
            original: original.clone(),
            ours: value.clone(),
        })?;
        if let Err(error) = write_exactly(&path, &value, &original) {
            // Finds the former value, or restores it.
            journal.undo(entry);
            return Err(error);
        }
        Ok(Some(Self { journal: journal.clone(), entry: Some(entry), original }))
    }

    /// The value before, with single blanks between several numbers.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Restores the former value now, and returns what was done. `None`: the setting had the value already.
    pub fn restore(mut self) -> Option<UndoResult> {
        let entry = self.entry.take()?;
        self.journal.undo(entry)
    }

    /// Leaves the new value, also when this process ends.
    /// Errors: the journal cannot be written; the value is restored then.
    pub fn keep(mut self) -> Result<()> {
        let Some(entry) = self.entry else { return Ok(()) };
        self.journal.done(entry)?;
        self.entry = None;
        Ok(())
    }
}

/// Writes `value`. The kernel rounds or limits some values: the journal would not recognise those as ours.
fn write_exactly(path: &Path, value: &str, original: &str) -> Result<()> {
    std::fs::write(path, value).map_err(|error| Error::file("set", path, error))?;
    let now = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error));
    let now = now.map(|text| sysctl_words(&text));
    if now.as_ref().is_ok_and(|now| now == value) {
        return Ok(());
    }
    std::fs::write(path, original).map_err(|error| Error::file("restore", path, error))?;
    Err(Error::Refused(format!(
        "the kernel turns `{value}` of {} into `{}`; the value before is restored",
        path.display(),
        now?
    )))
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        // What cannot be restored stays in the journal, which reports it.
        self.entry.take().map(|entry| self.journal.undo(entry));
    }
}
