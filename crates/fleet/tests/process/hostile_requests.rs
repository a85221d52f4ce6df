//! A taken-over coordinator sends an agent JSON whose values take a hundred times the memory of its text. The
//! agent is a process of its own, whose peak the kernel counts.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::common::{Agent, GUARD, endpoint};
use fleet::protocol::{self, MESSAGE_BYTES_MAX, Request, Response, request_key};
use fleet::session::{self, Role};
use zenoh::Wait;
use zenoh::qos::CongestionControl;

/// What an agent may need above what it needs when idle.
const ABOVE_IDLE_BYTES_MAX: u64 = 64 << 20;
/// Requests sent at once.
const AT_ONCE: usize = 4;
/// Environment variable that makes this test program an agent: the endpoint to join.
const JOIN: &str = "KAGIRI_TEST_JOIN";

/// `VmHWM` of a process, proc_pid_status(5).
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// A request to place a part whose settings are a list of so many bytes.
fn place(item: &str, bytes: usize) -> Vec<u8> {
    let list = vec![item; bytes / (item.len() + 1)].join(",");
    let spec = format!(r#"{{"kind":"test.worker","name":"a","host":"nas","settings":[{list}]}}"#);
    format!(r#"{{"ask":"place","run":"r","specs":[{spec}]}}"#).into_bytes()
}

#[test]
fn memory_for_hostile_requests_is_bounded() {
    if let Ok(endpoint) = std::env::var(JOIN) {
        let dir = tempfile::tempdir().unwrap();
        let _agent = Agent::start("nas", &endpoint, dir.path(), false);
        // Until the parent ends it, or itself.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let _alone = crate::alone();
    let endpoint = endpoint();
    let role = Role::Router { listen: vec![endpoint.clone()] };
    let hostile = session::open(&role, None, &[], GUARD).unwrap();
    let tokens =
        hostile.liveliness().declare_subscriber(protocol::agents_key()).history(true).wait().unwrap();
    let mut agent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hostile_requests::memory_for_hostile_requests_is_bounded"])
        .env(JOIN, &endpoint)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    tokens.recv_timeout(GUARD).unwrap().expect("the agent's token");
    let ask = |bytes: &[u8]| {
        let query = hostile.get(request_key("nas", "*")).payload(bytes.to_vec()).timeout(GUARD);
        query.wait().unwrap()
    };
    let answer = |replies: &zenoh::handlers::FifoChannelHandler<zenoh::query::Reply>| {
        let reply = replies.recv_timeout(GUARD).unwrap().expect("an answer");
        protocol::decode::<Response>(&reply.result().unwrap().payload().to_bytes()).unwrap()
    };
    let describe = protocol::encode(&Request::Describe);
    let is_described = || matches!(answer(&ask(&describe)), Response::Description(_));
    assert!(is_described());
    let idle = peak_bytes(agent.id());
    // The first are the longest messages; the others are read, as the estimate of their memory allows.
    let long = MESSAGE_BYTES_MAX - 4096;
    for (item, bytes) in [("{}", long), ("0", long), ("{}", 70_000), (r#"{"a":0}"#, 160_000), ("0", 380_000)]
    {
        let bomb = place(item, bytes);
        let asked: Vec<_> = (0..AT_ONCE).map(|_| ask(&bomb)).collect();
        for replies in &asked {
            let answer = answer(replies);
            assert!(matches!(answer, Response::Refused { .. }), "{answer:?}");
        }
        // Lease renewals get no answer.
        let renewal = hostile.put(protocol::coordinator_key("x"), bomb);
        renewal.congestion_control(CongestionControl::Block).wait().unwrap();
        let above = peak_bytes(agent.id()).saturating_sub(idle);
        eprintln!("{AT_ONCE} requests of {bytes} bytes of {item}: {} KiB above idle", above >> 10);
        assert!(above <= ABOVE_IDLE_BYTES_MAX, "{above} bytes above idle");
    }
    assert!(is_described(), "it still answers");
    drop(agent.stdin.take());
    agent.wait().unwrap();
    drop(hostile.close().wait());
}
