//! Values of settings, as the network namespace of this thread has them: proc_sys_net(5).

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::setting::{Scope, Setting};

/// Mode of a file that someone may write: chmod(1).
const WRITABLE: u32 = 0o222;

/// What was read of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// With single blanks between several numbers.
    Value(String),
    /// This kernel does not have it, or not in this network namespace.
    NotHere,
    /// Why it could not be read.
    Failed(String),
}

impl Reading {
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotHere | Self::Failed(_) => None,
        }
    }
}

/// The kernel's files below a root, which is `/` but in tests.
#[derive(Debug, Clone)]
pub struct Kernel {
    root: PathBuf,
}

impl Kernel {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The running kernel.
    pub fn live() -> Self {
        Self::new("/")
    }

    pub fn read(&self, setting: &Setting) -> Reading {
        if setting.scope == Scope::Socket {
            return Reading::NotHere;
        }
        self.read_name(setting.name)
    }

    /// Whether no one may change it in this network namespace: the kernel shows some settings of the host in
    /// all namespaces.
    pub fn is_read_only(&self, setting: &Setting) -> bool {
        let facts = std::fs::metadata(self.path_of(setting.name));
        facts.is_ok_and(|facts| facts.permissions().mode() & WRITABLE == 0)
    }

    /// Congestion controls that are loaded; empty if the kernel does not list them.
    pub fn congestion_controls(&self) -> Vec<String> {
        let reading = self.read_name("net.ipv4.tcp_available_congestion_control");
        reading.value().map(|value| value.split(' ').map(str::to_owned).collect()).unwrap_or_default()
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.root.join("proc/sys").join(name.replace('.', "/"))
    }

    fn read_name(&self, name: &str) -> Reading {
        let path = self.path_of(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => Reading::Value(text.split_whitespace().collect::<Vec<_>>().join(" ")),
            Err(error) if error.kind() == ErrorKind::NotFound => Reading::NotHere,
            Err(error) => Reading::Failed(format!("{}: {error}", path.display())),
        }
    }
}

/// Why a setting is not there.
pub fn absence(setting: &Setting) -> &'static str {
    match setting.scope {
        Scope::Host => "not here: this kernel has none, or it exists outside of network namespaces only",
        Scope::Namespace => "not in this kernel",
        Scope::Socket => "an option of a socket",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::find;

    #[test]
    fn values_are_read_from_files() {
        let root = tempfile::tempdir().unwrap();
        let ipv4 = root.path().join("proc/sys/net/ipv4");
        std::fs::create_dir_all(&ipv4).unwrap();
        std::fs::write(ipv4.join("tcp_wmem"), "4096\t16384\t4194304\n").unwrap();
        std::fs::write(ipv4.join("tcp_available_congestion_control"), "reno cubic\n").unwrap();
        std::fs::create_dir(ipv4.join("tcp_sack")).unwrap();
        let kernel = Kernel::new(root.path());
        let read = |name: &str| kernel.read(find(name).unwrap());
        assert_eq!(read("tcp_wmem"), Reading::Value("4096 16384 4194304".into()));
        assert_eq!(read("tcp_rmem"), Reading::NotHere);
        assert!(matches!(read("tcp_sack"), Reading::Failed(why) if why.contains("tcp_sack")));
        let mut mode = std::fs::metadata(ipv4.join("tcp_wmem")).unwrap().permissions();
        assert!(!kernel.is_read_only(find("tcp_wmem").unwrap()));
        mode.set_mode(0o444);
        std::fs::set_permissions(ipv4.join("tcp_wmem"), mode).unwrap();
        assert!(kernel.is_read_only(find("tcp_wmem").unwrap()));
        assert_eq!(kernel.congestion_controls(), ["reno", "cubic"]);
        assert!(Kernel::new("/nowhere").congestion_controls().is_empty());
    }

    #[test]
    fn running_kernel_has_values_within_the_ranges_of_the_catalogue() {
        let kernel = Kernel::live();
        let available = kernel.congestion_controls();
        let mut read = 0;
        for setting in crate::catalogue::SETTINGS {
            if let Reading::Value(value) = kernel.read(setting) {
                assert_eq!(setting.check(&value, &available).as_deref(), Ok(value.as_str()));
                read += 1;
            }
        }
        assert!(read > 10, "only {read} settings were read");
    }
}
