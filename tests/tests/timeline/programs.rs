//! Programs of others under `kagiri timeline`: iperf3, nginx, Python, a shell with a thousand children, Java.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use kagiri_tests::{Live, World, alone, free_port, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{PATIENCE, calls, check, count, document_of};

fn listening(mut command: Command, port: u16) -> Live {
    command.stdin(Stdio::null());
    let live = Live::start(command);
    wait_until("the server listens", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    live
}

#[test]
fn iperf3_is_seen_to_send_and_receive() {
    need_root!();
    let _alone = alone();
    kagiri_tests::need_programs!("iperf3");
    let world = World::new();
    let port = free_port();
    let port_text = port.to_string();
    let mut command = Command::new("iperf3");
    command.args(["-s", "-p", &port_text]);
    let server = listening(command, port);
    let client = ["timeline", "--json", "--", "iperf3", "-c", "127.0.0.1", "-p", &port_text, "-n", "50M"];
    let sent = document_of(world.measure(&client, PATIENCE));
    let bytes = |document: &Value, names: &[&str]| -> u64 {
        let rows =
            calls(document).iter().filter(|row| names.contains(&row["name"].as_str().expect("a name")));
        rows.map(|row| row["returned"].as_u64().expect("bytes")).sum()
    };
    assert!(bytes(&sent, &["write", "sendto", "send"]) >= 50 << 20, "{sent:#}");
    // The server, from outside.
    let mut watching = world.start(&["timeline", "--json", "--for", "20s", "-p", &server.pid().to_string()]);
    watching.wait_for("tracing process", PATIENCE);
    let run = Command::new("iperf3").args(["-c", "127.0.0.1", "-p", &port_text, "-n", "50M"]).output();
    assert!(run.is_ok_and(|output| output.status.success()));
    watching.signal(Signal::SIGINT);
    let received = watching.end(PATIENCE).code(130).json();
    check(&received);
    // What is in the sockets when the sender says that it has sent all, iperf3's server never reads.
    assert!(bytes(&received, &["read", "recvfrom"]) >= 20 << 20, "{received:#}");
    let waits = ["select", "pselect6", "poll", "ppoll", "epoll_wait"];
    assert!(count(&received, &waits) > 0, "{received:#}");
    assert!(
        received["softirqs"].as_array().is_some_and(|rows| !rows.is_empty()),
        "loopback is received by softirq"
    );
}

#[test]
fn nginx_is_watched_while_it_serves() {
    need_root!();
    let _alone = alone();
    kagiri_tests::need_programs!("nginx");
    let world = World::new();
    let port = free_port();
    std::fs::create_dir(world.path("site")).expect("a folder");
    std::fs::write(world.path("site/file"), vec![7u8; 300_000]).expect("a file");
    let config = format!(
        "daemon off; master_process off; pid {0}/nginx.pid; error_log stderr;\nevents {{}}\nhttp {{ \
         access_log off; client_body_temp_path {0}/t1; proxy_temp_path {0}/t2; fastcgi_temp_path {0}/t3; \
         uwsgi_temp_path {0}/t4; \
         scgi_temp_path {0}/t5; sendfile on; server {{ listen 127.0.0.1:{port}; root {0}/site; }} }}",
        world.path("").display()
    );
    let config = world.write("nginx.conf", config);
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&config).arg("-p").arg(world.path(""));
    let server = listening(command, port);
    let mut watching = world.start(&["timeline", "--json", "--for", "20s", "-p", &server.pid().to_string()]);
    watching.wait_for("tracing process", PATIENCE);
    for _ in 0..20 {
        get(port);
    }
    watching.signal(Signal::SIGINT);
    let document = watching.end(PATIENCE).code(130).json();
    check(&document);
    assert!(count(&document, &["sendfile"]) >= 20, "{document:#}");
    assert!(count(&document, &["recvfrom"]) >= 20 && count(&document, &["accept4"]) >= 20, "{document:#}");
    assert!(count(&document, &["epoll_wait"]) > 0, "{document:#}");
}

fn get(port: u16) {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    assert!(answer.len() > 300_000);
}

/// A server and its client in one process: the server waits in select() for each of 200 questions, 20 ms
/// apart.
const ECHO: &str = "
import select, socket, threading, time
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
def answer():
    for _ in range(200):
        select.select([theirs], [], [])
        theirs.send(theirs.recv(2000))
threading.Thread(target=answer).start()
for _ in range(200):
    time.sleep(0.02)
    ours.send(bytes(100))
    ours.recv(2000)
";

#[test]
fn python_is_seen_to_wait_and_to_work() {
    need_root!();
    kagiri_tests::need_programs!("python3");
    let world = World::new();
    let document = document_of(world.measure(&["timeline", "--json", "--", "python3", "-c", ECHO], PATIENCE));
    let row = |name: &str, state: &str| {
        let found = calls(&document).iter().find(|row| row["name"] == name && row["state"] == state);
        found.unwrap_or_else(|| panic!("no {name}, {state}: {document:#}"))
    };
    let number = |row: &Value, key: &str| row[key].as_f64().expect("a number");
    // Hardly any question comes before the server asks for it: it has 20 ms to.
    assert!(number(row("pselect6", "blocked"), "count") >= 150.0, "{document:#}");
    assert!(number(row("pselect6", "blocked"), "p50_us") >= 500.0, "{document:#}");
    // Told to be there, a question is received at once; both send at once, the one being short, the other's
    // room ample.
    assert_eq!(count(&document, &["recvfrom"]), 400);
    assert!(number(row("sendto", "ready"), "count") >= 200.0, "{document:#}");
    let sent: u64 = calls(&document)
        .iter()
        .filter(|row| row["name"] == "sendto")
        .map(|row| row["returned"].as_u64().expect("bytes"))
        .sum();
    assert_eq!(sent, 400 * 100);
    assert!(document["threads"].as_u64().is_some_and(|threads| threads >= 2));
}

#[test]
fn a_thousand_children_are_watched() {
    need_root!();
    let world = World::new();
    let lines = "n=0; while [ $n -lt 1000 ]; do (:) & n=$((n+1)); done; wait";
    let document = document_of(world.measure(&["timeline", "--json", "--", "sh", "-c", lines], PATIENCE));
    assert_eq!(document["processes"], 1001, "{document:#}");
    assert_eq!(document["events_lost"], 0, "{document:#}");
}

#[test]
fn java_is_watched_with_all_its_threads() {
    need_root!();
    kagiri_tests::need_programs!("java");
    let world = World::new();
    let document = document_of(world.measure(&["timeline", "--json", "--", "java", "-version"], PATIENCE));
    assert!(document["threads"].as_u64().is_some_and(|threads| threads > 5), "{document:#}");
    assert!(count(&document, &["read", "pread64"]) > 0, "{document:#}");
}
