//! Memory of a server and of a client whose peers send JSON that is made to be large in memory. Each runs as
//! a process of its own, whose peak the kernel counts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::*;
use crate::native_common;
use transfer::control::{COOKIE_BYTES, Cookie};
use transfer::iperf3::{Length, Parameters, State};
use transfer::native::NativeSettings;
use transfer::native::session_id::{Role, SessionId};

/// What a process may need above what it needs when idle.
const ABOVE_IDLE_BYTES_MAX: u64 = 64 << 20;
const CLIENTS: usize = 16;
/// Environment variables that make this test program a server or a client: the file to write its address or
/// its peak to, and the address of the server.
const SERVE: &str = "KAGIRI_TEST_SERVE";
const REPORT: &str = "KAGIRI_TEST_REPORT";
const ADDRESS: &str = "KAGIRI_TEST_ADDRESS";

/// `VmHWM` of a process, proc_pid_status(5).
fn peak_bytes(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// This test program again, with one test and these variables.
fn again(test: &str, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("iperf3_memory::{test}")]).envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// A JSON object of about so many bytes: a list of empty objects under `key`.
fn empty_objects(key: &str, bytes: usize) -> String {
    format!(r#"{{"{key}":[{}{{}}]}}"#, "{},".repeat(bytes / 3))
}

fn frame(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat()
}

fn hear(stream: &mut TcpStream) -> Option<State> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    State::read(byte[0])
}

fn connect(address: SocketAddr, cookie: &Cookie) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(cookie.bytes()).unwrap();
    stream
}

/// Sends a message and waits for the server to answer or to close.
fn attack(mut control: TcpStream, text: &str) {
    // The server may close before it has taken all.
    let _ = control.write_all(&frame(text));
    let _ = control.shutdown(std::net::Shutdown::Write);
    let _ = control.read_to_end(&mut Vec::new());
}

fn attack_by_parameters(address: SocketAddr, text: &str) {
    let mut control = connect(address, &Cookie::random());
    assert_eq!(hear(&mut control), Some(State::ParamExchange));
    attack(control, text);
}

fn attack_by_results(address: SocketAddr, text: &str) {
    let cookie = Cookie::random();
    let mut control = connect(address, &cookie);
    assert_eq!(hear(&mut control), Some(State::ParamExchange));
    control.write_all(&frame(r#"{"tcp":true,"time":1,"parallel":1}"#)).unwrap();
    assert_eq!(hear(&mut control), Some(State::CreateStreams));
    let _stream = connect(address, &cookie);
    assert_eq!((hear(&mut control), hear(&mut control)), (Some(State::TestStart), Some(State::TestRunning)));
    control.write_all(&[State::TestEnd.byte()]).unwrap();
    assert_eq!(hear(&mut control), Some(State::ExchangeResults));
    attack(control, text);
}

/// By kagiri's own protocol, on the same port.
fn attack_natively(address: SocketAddr, text: &str) {
    let mut control = connect(address, &SessionId::random().cookie(Role::Control));
    let mut greeting = [0];
    control.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"k");
    attack(control, text);
}

#[test]
fn clients_cannot_fill_the_memory_of_a_server() {
    if let Some(file) = std::env::var_os(SERVE) {
        let (server, _) = native_common::server(NativeSettings::default());
        let half = Path::new(&file).with_extension("half");
        std::fs::write(&half, server.local_addr().to_string()).unwrap();
        std::fs::rename(half, file).unwrap();
        // Until the parent ends it, or itself.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("address");
    let name = "clients_cannot_fill_the_memory_of_a_server";
    let mut server = again(name, &[(SERVE, file.to_str().unwrap())]);
    let pid = server.id().to_string();
    let mut address = None;
    until("the server listens", || {
        address = std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<SocketAddr>().ok());
        address.is_some()
    });
    let address = address.unwrap();
    let idle = peak_bytes(&pid);
    let all = |attack: &(dyn Fn() + Sync)| at_once(&[(); CLIENTS], |()| attack());
    for bytes in [60 << 10, 10 << 20] {
        let (results, parameters) = (empty_objects("streams", bytes), empty_objects("title", bytes));
        all(&|| attack_by_results(address, &results));
        all(&|| attack_by_parameters(address, &parameters));
        let order = parameters.replacen('{', r#"{"say":"order","#, 1);
        all(&|| attack_natively(address, &order));
        let above = peak_bytes(&pid).saturating_sub(idle);
        eprintln!("{CLIENTS} clients with {bytes} bytes each: {} KiB above idle", above >> 10);
        assert!(above <= ABOVE_IDLE_BYTES_MAX, "{above} bytes above idle");
    }
    let parameters = Parameters { length: Length::Bytes(100_000), ..Parameters::default() };
    assert!(run(address, parameters).is_ok_and(|report| report.problem.is_none()), "it still serves");
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// A server that answers results with `text`.
fn hostile_server(listener: &TcpListener, text: &str) {
    let accept = || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; COOKIE_BYTES]).unwrap();
        stream
    };
    let say = |control: &mut TcpStream, state: State| control.write_all(&[state.byte()]).unwrap();
    let mut control = accept();
    say(&mut control, State::ParamExchange);
    read_frame(&mut control).unwrap();
    say(&mut control, State::CreateStreams);
    let mut stream = accept();
    let reader = std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    say(&mut control, State::TestStart);
    say(&mut control, State::TestRunning);
    while hear(&mut control).unwrap() != State::TestEnd {}
    say(&mut control, State::ExchangeResults);
    read_frame(&mut control).unwrap();
    // The client may close before it has taken all.
    let _ = control.write_all(&frame(text));
    let _ = control.read_to_end(&mut Vec::new());
    let _ = reader.join();
}

#[test]
fn server_cannot_fill_the_memory_of_a_client() {
    if let (Ok(address), Some(file)) = (std::env::var(ADDRESS), std::env::var_os(REPORT)) {
        let idle = peak_bytes("self");
        let parameters = Parameters { length: Length::Bytes(100_000), ..Parameters::default() };
        let problem = run(address.parse().unwrap(), parameters).unwrap().problem;
        std::fs::write(file, format!("{}\n{}", peak_bytes("self") - idle, problem.unwrap_or_default()))
            .unwrap();
        return;
    }
    let (listener, address) = listener();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("peak");
    let name = "server_cannot_fill_the_memory_of_a_client";
    let variables = [(ADDRESS, &*address.to_string()), (REPORT, file.to_str().unwrap())];
    let mut client = again(name, &variables);
    hostile_server(&listener, &empty_objects("server_output_json", 10 << 20));
    assert!(client.wait().unwrap().success());
    let report = std::fs::read_to_string(&file).unwrap();
    let (above, problem) = report.split_once('\n').unwrap();
    eprintln!("{above} bytes above idle; {problem}");
    assert!(above.parse::<u64>().unwrap() <= ABOVE_IDLE_BYTES_MAX, "{above}");
    assert!(problem.contains("bytes"), "the client says what was too long: {problem}");
}
