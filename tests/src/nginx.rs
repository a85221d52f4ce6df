//! nginx as a server that is already there.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::wait_until;

/// An nginx of the test's own, on a free port. Ended when dropped.
pub struct Nginx {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Nginx {
    /// Serve `root`; each connection is sent at most `limit_byte_per_s`, 0 for no limit.
    pub fn start(root: &Path, limit_byte_per_s: u64) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let port = crate::free_port();
        let own = dir.path().display();
        let user = if crate::is_root() { "user root;" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {own}/{kind}; "))
            .collect();
        let text = format!(
            "{user} daemon off; pid {own}/pid; error_log stderr warn; events {{ }} http {{ access_log off; \
             sendfile on; \
             {temporary} server {{ listen 127.0.0.1:{port}; root \"{}\"; \
             limit_rate {limit_byte_per_s}; }} }}",
            root.display()
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, text).expect("a configuration");
        let child = Command::new("nginx")
            .args(["-e", "stderr", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx starts");
        let nginx = Self { child, port, _dir: dir };
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until("nginx answers", Duration::from_secs(10), answers);
        nginx
    }

    /// The master process, which has one worker.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Asked to, the master ends its workers; killed, it would leave them.
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let _ = kill(pid, Signal::SIGTERM);
        let _ = self.child.wait();
    }
}
