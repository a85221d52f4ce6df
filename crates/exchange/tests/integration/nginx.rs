//! nginx of a test alone, plain or with TLS, and certificates by openssl.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use sys::clock::Deadline;

/// An nginx, ended when it is dropped.
pub struct Nginx {
    child: Child,
    folder: tempfile::TempDir,
    pub address: SocketAddr,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How an nginx listens.
#[derive(Clone, Copy)]
pub struct NginxOptions<'a> {
    pub certificate: Option<&'a Certificate>,
    pub has_http2: bool,
    /// Requests after which it ends a connection.
    pub requests_max: u32,
    /// The server behind `/slow`.
    pub slow: Option<SocketAddr>,
}

impl Default for NginxOptions<'_> {
    fn default() -> Self {
        Self { certificate: None, has_http2: false, requests_max: 30, slow: None }
    }
}

impl Nginx {
    /// `None`: there is no nginx here.
    pub fn start(manner: NginxOptions<'_>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::write(path("file"), vec![7; 100_000]).unwrap();
        let tls = manner.certificate.map_or(String::new(), |certificate| {
            format!(
                "ssl_certificate {}; ssl_certificate_key {};",
                certificate.certificate.display(),
                certificate.key.display()
            )
        });
        let slow = manner
            .slow
            .map_or(String::new(), |slow| format!("location /slow {{ proxy_pass http://{slow}; }}"));
        let words = [manner.certificate.map(|_| " ssl"), manner.has_http2.then_some(" http2")];
        let words: String = words.into_iter().flatten().collect();
        let text = format!(
            "daemon off; master_process off; pid {pid}; error_log {errors};\n\
             events {{ worker_connections 512; }}\n\
             http {{\n  log_format times '$status $server_protocol $request_length $ssl_protocol \
             $connection';\n  \
             access_log {log} times;\n  \
             client_body_temp_path {temp}; proxy_temp_path {temp}; fastcgi_temp_path {temp}; \
             uwsgi_temp_path {temp}; scgi_temp_path {temp};\n  keepalive_requests {requests_max};\n  \
             server {{ listen 127.0.0.1:{port}{words}; {tls} root {root}; {slow}\n    \
             location /post {{ client_max_body_size 1m; return 200 'thanks'; }}\n    \
             location /put {{ client_max_body_size 9m; proxy_pass http://unix:{inner}; }} }}\n  \
             server {{ listen unix:{inner}; access_log off; client_max_body_size 9m; \
             location / {{ return 200 'stored'; }} }}\n}}\n",
            requests_max = manner.requests_max,
            pid = path("pid"),
            errors = path("errors"),
            log = path("log"),
            temp = path("temp"),
            root = folder.path().display(),
            inner = path("inner"),
        );
        std::fs::write(path("conf"), text).unwrap();
        let child = Command::new("nginx").args(["-c", &path("conf"), "-e", &path("errors")]).spawn().ok()?;
        let nginx = Self { child, folder, address: ([127, 0, 0, 1], port).into() };
        let deadline = Deadline::after(Duration::from_secs(20));
        while TcpStream::connect(nginx.address).is_err() {
            assert!(
                deadline.pause(Duration::from_millis(10)),
                "nginx does not listen: {}",
                nginx.text("errors")
            );
        }
        Some(nginx)
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(Path::join(self.folder.path(), name)).unwrap_or_default()
    }

    /// Waits until its log has this number of lines with this beginning, and returns how many there are.
    pub fn lines(&self, start: &str, wanted: usize) -> usize {
        // nginx writes a line when a request has ended.
        let deadline = Deadline::after(Duration::from_secs(10));
        let lines = || self.text("log").lines().filter(|line| line.starts_with(start)).count();
        while lines() < wanted && deadline.pause(Duration::from_millis(20)) {}
        lines()
    }
}

/// A certificate and its key, as files.
pub struct Certificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A certificate authority made by openssl.
pub struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    /// `None`: there is no openssl here.
    pub fn new() -> Option<Self> {
        let own = Self { folder: tempfile::tempdir().unwrap() };
        own.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem \
             -subj /CN=authority -days 2",
        )?;
        std::fs::write(
            own.path("ca.conf"),
            "[ca]\ndefault_ca = own\n[own]\ndatabase = index\nnew_certs_dir = .\nrand_serial = yes\n\
             default_md = sha256\npolicy = any\ncopy_extensions = copy\n[any]\ncommonName = supplied\n",
        )
        .unwrap();
        std::fs::write(own.path("index"), "").unwrap();
        Some(own)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs openssl in the folder; `None`: it is not installed.
    fn openssl(&self, words: &str) -> Option<()> {
        let words = words.split_whitespace();
        let output = Command::new("openssl").args(words).current_dir(self.folder.path()).output().ok()?;
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
        Some(())
    }

    /// The file of those who trust it.
    pub fn file(&self) -> String {
        self.path("ca.pem").display().to_string()
    }

    /// A certificate for `name` (`IP:...` or `DNS:...`), valid from a day on for some days.
    pub fn certify(&self, name: &str, from: &str, to: &str) -> Certificate {
        let file = name.replace([':', '.'], "-") + from;
        let all = format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {file}.key -out {file}.csr \
             -subj /CN={file} -addext subjectAltName={name}"
        );
        self.openssl(&all).unwrap();
        let all = format!(
            "ca -batch -config ca.conf -cert ca.pem -keyfile ca.key -in {file}.csr -out {file}.pem -notext \
             -startdate {from}000000Z -enddate {to}000000Z"
        );
        self.openssl(&all).unwrap();
        let path = |end: &str| self.path(&format!("{file}.{end}"));
        Certificate { certificate: path("pem"), key: path("key") }
    }
}
