//! Helpers that the whole-program tests share: they run the real program against real servers and players.

mod bpf;
mod collect;
mod console;
mod document;
mod fleet;
mod hostile;
mod http;
mod known_limit;
mod lab;
mod leak_check;
mod machine;
mod namespaces;
mod nginx;
mod program;
mod retry;
mod s3;
mod slurm;
mod tls;

pub use features::skip;

pub use bpf::{is_any_loaded, loaded_programs};
pub use console::Console;
pub use document::metric;
pub use fleet::{FLEET_PATIENCE, Fleet, SHORT_FILM, free_port, names, search_plan, text, trials};
pub use hostile::{HostileServer, Manner};
pub use http::{HttpAnswer, http_request};
pub use known_limit::{found, search, shortened};
pub use lab::{LabHosts, RunInLab, UpLab, unique_name};
pub use leak_check::Traces;
pub use machine::{MachineLock, SmallDisk, alone, beside_others, is_root, missing, wait_until};
pub use namespaces::Namespaces;
pub use nginx::Nginx;
pub use program::{Ended, Live, World, program, s3_server_program, set_like, workspace};
pub use retry::{ATTEMPTS, undisturbed, until_undisturbed, valid, with_verdict};
pub use s3::{S3_SECRET, is_s3_untouched, s3_command, s3_measure, s3_server, s3_words};
pub use slurm::Slurm;
pub use tls::{Authority, Certified};

/// End a test early, saying why, unless it runs as root; see [`skip`].
#[macro_export]
macro_rules! need_root {
    () => {
        if !$crate::is_root() {
            return $crate::skip("needs root");
        }
    };
}

/// End a test early, saying why, unless these programs are installed; see [`skip`]. `make test` installs all.
#[macro_export]
macro_rules! need_programs {
    ($($name:literal),+) => {
        if let Some(name) = $crate::missing(&[$($name),+]) {
            return $crate::skip(&format!("needs {name}"));
        }
    };
}
