//! A server and clients of kagiri's own protocol over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;
use transfer::client::{ClientError, Ready, Task};
use transfer::control::StopHandle;
use transfer::flow::Direction;
use transfer::native::{NativeServer, NativeSettings, SessionEnd};
use transfer::report::{EndReport, TransferReport};
use transfer::server::{Server, ServerSettings};
use transfer::settings::TransferSettings;

use crate::common::{stop_handle, until};

pub const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

pub fn server(settings: NativeSettings) -> (Server, Arc<NativeServer>) {
    let natives = Arc::new(NativeServer::new(settings));
    let settings = ServerSettings { natives: Some(natives.clone()), ..ServerSettings::new(LOOPBACK.into()) };
    (Server::start(settings).unwrap(), natives)
}

pub fn settings(value: Value) -> TransferSettings {
    TransferSettings::read(value).unwrap()
}

pub fn prepare(server: SocketAddr, settings: &TransferSettings) -> Result<Ready, ClientError> {
    prepare_stoppable(server, settings, stop_handle())
}

pub fn prepare_stoppable(
    server: SocketAddr,
    settings: &TransferSettings,
    stop_handle: Arc<StopHandle>,
) -> Result<Ready, ClientError> {
    Ready::prepare(Task { settings: settings.clone(), server, key: None }, stop_handle)
}

/// Runs a transfer against a server of its own.
pub fn transfer(value: Value) -> (TransferSettings, TransferReport) {
    let (server, _) = server(NativeSettings::default());
    let settings = settings(value);
    let report = prepare(server.local_addr(), &settings).unwrap().run(0);
    (settings, report)
}

/// The sender and the receiver of a direction.
pub fn ends(report: &TransferReport, direction: Direction) -> (&EndReport, &EndReport) {
    let found = report.directions.iter().find(|found| found.direction == direction).unwrap();
    (found.sender.as_ref().unwrap(), found.receiver.as_ref().unwrap())
}

/// Runs a long transfer and does `then` once bytes flow in `direction`; the report, and how long it took from
/// then on.
pub fn interrupted(ready: Ready, direction: Direction, then: impl FnOnce()) -> (TransferReport, Duration) {
    let passed = ready.passed.clone();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| ready.run(0));
        let index = usize::from(direction == Direction::Down);
        until("bytes flow", || passed[index].load(Ordering::Relaxed) > 0);
        let from = Instant::now();
        then();
        (run.join().unwrap(), from.elapsed())
    })
}

/// Waits for the results of `number` sessions.
pub fn session_ends(natives: &NativeServer, number: usize) -> Vec<SessionEnd> {
    let mut ends = Vec::new();
    until("the sessions end", || {
        ends.extend(natives.take_ends());
        ends.len() >= number
    });
    ends
}

/// Runs a case with longer and longer times until enough was transferred: a thread without a CPU may miss a
/// short one.
pub fn until_long_enough(is_enough: impl Fn(u64) -> bool) {
    let enough = [1, 2, 4, 8, 16].into_iter().find(|&times| is_enough(times));
    assert!(enough.is_some(), "too little moved, however long it took");
}
