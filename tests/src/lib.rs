//! Helpers that the whole-program tests share: they run the real program against real servers and players.

mod bpf;
mod fleet;
mod hostile;
mod lab;
mod leak_check;
mod machine;
mod namespaces;
mod nginx;
mod program;
mod retry;
mod slurm;

pub use bpf::{is_any_loaded, loaded_programs};
pub use fleet::{FLEET_PATIENCE, Fleet, SHORT_FILM, free_port, names, search_plan, text, trials};
pub use hostile::{HostileServer, Manner};
pub use lab::{RunInLab, UpLab, unique_name};
pub use leak_check::Traces;
pub use machine::{MachineLock, SmallDisk, alone, beside_others, is_root, missing, wait_until};
pub use namespaces::Namespaces;
pub use nginx::Nginx;
pub use program::{Ended, Live, World, program, set_like, workspace};
pub use retry::{ATTEMPTS, undisturbed, until_undisturbed, valid, with_verdict};
pub use slurm::Slurm;

/// End a test early, saying why, unless it runs as root.
#[macro_export]
macro_rules! need_root {
    () => {
        if !$crate::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
    };
}

/// End a test early, saying why, unless these programs are installed. `make test` installs all of them and
/// says so by `KAGIRI_TESTS_ALL`: then a missing one fails the test, so that none passes there without having
/// looked.
#[macro_export]
macro_rules! need_programs {
    ($($name:literal),+) => {
        if let Some(name) = $crate::missing(&[$($name),+]) {
            assert!(std::env::var_os("KAGIRI_TESTS_ALL").is_none(), "{name} is missing");
            eprintln!("skipped: needs {name}");
            return;
        }
    };
}
