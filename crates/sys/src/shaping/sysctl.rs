//! A network setting of a namespace: proc_sys_net(5).

use crate::journal::network::sysctl_path;
use crate::journal::{EntryId, Journal, Undo};
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
    /// Sets `name` (`net.ipv4.tcp_tso_rtt_log`) to `value` in the network namespace of this thread. `None`:
    /// this kernel has no such setting.
    /// Errors: no right, a value that the kernel refuses, a name that is not below `net.`.
    pub fn set(journal: &Journal, name: &str, value: &str) -> Result<Option<Self>> {
        let path = sysctl_path(name)
            .ok_or_else(|| Error::Refused(format!("`{name}` cannot name a setting below net.")))?;
        let original = match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
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
            ours: value.to_owned(),
        })?;
        if let Err(error) = std::fs::write(&path, value) {
            journal.done(entry)?;
            return Err(Error::file("set", &path, error));
        }
        Ok(Some(Self { journal: journal.clone(), entry: Some(entry), original }))
    }

    /// The value before.
    pub fn original(&self) -> &str {
        &self.original
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        // What cannot be restored stays in the journal, which reports it.
        self.entry.take().map(|entry| self.journal.undo(entry));
    }
}
