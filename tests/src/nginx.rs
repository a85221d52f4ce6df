//! nginx as a server that is already there, and as one that speaks TLS for another.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::tls::Certified;
use crate::wait_until;

/// An nginx of the test's own, on a free port. Ended when dropped.
pub struct Nginx {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Nginx {
    /// Serve `root`; each connection is sent at most `limit_byte_per_s`, 0 for no limit.
    pub fn start(root: &Path, limit_byte_per_s: u64) -> Self {
        let root = root.display();
        Self::serve(|port, _| {
            format!(
                "access_log off; sendfile on; server {{ listen 127.0.0.1:{port}; root \"{root}\"; \
                 limit_rate {limit_byte_per_s}; }}"
            )
        })
    }

    /// Speak TLS with `certified` and pass requests on, unchanged, to the HTTP server `inner`.
    pub fn before(inner: SocketAddr, certified: &Certified) -> Self {
        Self::serve(|port, own| {
            let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| own.join(name));
            std::fs::write(&certificate, &certified.certificate_pem).expect("a certificate");
            std::fs::write(&key, &certified.key_pem).expect("a key");
            let (certificate, key) = (certificate.display(), key.display());
            let log = own.join("access");
            let log = log.display();
            // A request's signature covers the name that the client called.
            format!(
                "log_format tls \"$ssl_protocol $request_method $status\"; access_log {log} tls; \
                 server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; \
                 ssl_certificate_key {key}; client_max_body_size 0; proxy_request_buffering off; \
                 proxy_http_version 1.1; location / {{ proxy_pass http://{inner}; \
                 proxy_set_header Host $http_host; proxy_set_header Connection \"\"; }} }}"
            )
        })
    }

    /// `sections` makes the part of HTTP for a port and a folder of the server's own.
    fn serve(sections: impl FnOnce(u16, &Path) -> String) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let port = crate::free_port();
        let http = sections(port, dir.path());
        let own = dir.path().display();
        let user = if crate::is_root() { "user root;" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {own}/{kind}; "))
            .collect();
        let text = format!(
            "{user} daemon off; pid {own}/pid; error_log stderr warn; events {{ }} \
             http {{ {temporary} {http} }}"
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
        let nginx = Self { child, port, dir };
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until("nginx answers", Duration::from_secs(10), answers);
        nginx
    }

    /// Requests of a server that speaks TLS: the protocol, the method and the status of each.
    pub fn tls_requests(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("access")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// `127.0.0.1:PORT`.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
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
