//! Sockets of another process: found, read and changed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::common::{
    HOLD_SOCKETS, LONG, as_root, flows, flows_of, holder as start_holder, namespace_with_loopback, owners,
    root,
};
use sys::clock::Deadline;
use sys::net::CongestionControl;
use sys::process::{
    ForeignProcess, ForeignSocketError, PacingRate, Program, SocketChange, SocketOwners, find_holders,
};
use sys::shaping::{ManagedSockets, SocketTarget};

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap()
}

fn pacing(bytes: u64) -> SocketChange {
    SocketChange { pacing: PacingRate::from_bytes_per_s(bytes), ..SocketChange::default() }
}

/// Not a test of its own: a program with connections to itself.
#[test]
fn holder() {
    let Ok(connections) = std::env::var(HOLD_SOCKETS) else { return };
    sys::thread::raise_file_limit(100_000).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
    let kept: Vec<_> = (0..connections.parse().unwrap()).map(connect).collect();
    println!("\nholding");
    loop {
        std::thread::park();
        assert!(!kept.is_empty());
    }
}

#[test]
fn socket_is_read_changed_and_restored_by_its_cookie() {
    if !root() {
        return;
    }
    let process = ForeignProcess::open(own_pid()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let fd = client.as_raw_fd();
    let before = process.read(fd).unwrap();
    assert_eq!((before.pacing, before.priority, before.is_listening), (PacingRate::UNLIMITED, 0, false));
    let change = SocketChange { priority: Some(0x0001_0010), ..pacing(1_250_000) };
    let replaced = process.change(fd, before.cookie, change).unwrap();
    assert_eq!(
        replaced,
        SocketChange { pacing: Some(PacingRate::UNLIMITED), priority: Some(0), ..SocketChange::default() }
    );
    let now = process.read(fd).unwrap();
    assert_eq!((now.pacing.bytes_per_s(), now.priority), (1_250_000, 0x0001_0010));
    assert_eq!((now.cookie, now.inode), (before.cookie, before.inode));
    // Beyond 32 bits.
    process.change(fd, before.cookie, pacing(12_500_000_000)).unwrap();
    assert_eq!(process.read(fd).unwrap().pacing.bytes_per_s(), 12_500_000_000);
    process.change(fd, before.cookie, replaced).unwrap();
    assert_eq!(process.read(fd).unwrap(), before);

    let error = process.change(fd, before.cookie + 1, change).unwrap_err();
    assert!(matches!(error, ForeignSocketError::SocketGone { .. }) && error.is_gone(), "{error}");
    assert_eq!(process.read(fd).unwrap(), before, "another socket is left alone");
    let listening = process.read(listener.as_raw_fd()).unwrap();
    assert!(listening.is_listening);
    let error = process.change(listener.as_raw_fd(), listening.cookie, change).unwrap_err();
    assert!(matches!(error, ForeignSocketError::Listening { .. }) && !error.is_gone(), "{error}");
    assert_eq!(process.read(listener.as_raw_fd()).unwrap(), listening);
    drop(client);
    assert!(process.read(fd).is_err_and(|error| error.is_gone()));
    let file = std::fs::File::open("/proc/self/stat").unwrap();
    assert!(matches!(process.read(file.as_raw_fd()), Err(ForeignSocketError::NoSocket { .. })));
    assert!(ForeignProcess::open(i32::MAX).is_err_and(|error| error.is_gone()));
    assert!(ForeignProcess::open_started_at(own_pid(), process.start_ticks() + 1).is_err());
    assert_eq!(PacingRate::from_bytes_per_s(0), None);
}

/// The sockets are changed all the time while their program closes them.
#[test]
fn fin_is_sent_although_the_socket_is_being_changed() {
    if !root() {
        return;
    }
    let process = ForeignProcess::open(own_pid()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut delays = Vec::new();
    for round in 0..200 {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let (fd, cookie) = (client.as_raw_fd(), process.read(client.as_raw_fd()).unwrap().cookie);
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut changes = 0;
                let deadline = Deadline::after(LONG);
                while process.change(fd, cookie, pacing(1_000_000 + round)).is_ok() && !deadline.passed() {
                    changes += 1;
                }
                changes
            });
            while !changes.is_finished() && process.read(fd).unwrap().pacing.is_unlimited() {
                std::thread::yield_now();
            }
            server.set_read_timeout(Some(LONG)).unwrap();
            let closed = Instant::now();
            drop(client);
            assert_eq!(server.read(&mut [0]).unwrap(), 0, "a FIN");
            delays.push(closed.elapsed());
            assert!(changes.join().unwrap() > 0);
        });
    }
    delays.sort_unstable();
    eprintln!("FIN after close, n=200: median {:?}, maximum {:?}", delays[100], delays[199]);
}

#[test]
fn sockets_of_a_program_are_found_with_the_program() {
    let Some((_folder, journal)) = as_root() else { return };
    let namespace = namespace_with_loopback(&journal, "owners");
    let child = start_holder(&journal, &namespace, 20);
    let found = flows(child.pid());
    assert_eq!(found.len(), 40, "{found:?}");
    let mut owners = owners(&found);
    assert_eq!(owners.holders().filter(|(_, holder)| holder.pid == child.pid()).count(), 40);
    let program = owners.program(child.pid()).unwrap();
    assert_eq!(*program, Program::read(child.pid()).unwrap());
    assert!(program.command.contains("foreign_sockets::holder"), "{program:?}");
    assert_eq!(program.uid, 0);
    for flow in &found {
        let fd = owners.holder(flow.inode).unwrap().fd;
        let settings = owners.process(child.pid()).unwrap().read(fd).unwrap();
        assert_eq!((settings.cookie, settings.inode), (flow.cookie, flow.inode));
    }
    // Only those are asked for.
    owners.update(found.iter().take(3).map(|flow| flow.inode), LONG);
    assert_eq!(owners.holders().count(), 3);
    let pid = child.pid();
    drop(child);
    owners.update(found.iter().take(3).map(|flow| flow.inode), LONG);
    assert_eq!(owners.holders().count(), 0, "the program has ended");
    assert!(owners.program(pid).is_none() && owners.holder(found[0].inode).is_none());
}

#[test]
fn new_socket_moved_descriptor_and_inherited_socket_are_found() {
    if !root() {
        return;
    }
    let mut owners = SocketOwners::new();
    let process = ForeignProcess::open(own_pid()).unwrap();
    let inode = |socket: &UdpSocket| process.read(socket.as_raw_fd()).unwrap().inode;
    let first = UdpSocket::bind("127.0.0.1:0").unwrap();
    owners.update([inode(&first)], LONG);
    assert_eq!(owners.holder(inode(&first)).unwrap().fd, first.as_raw_fd());
    let second = UdpSocket::bind("127.0.0.1:0").unwrap();
    owners.update([inode(&first), inode(&second)], LONG);
    assert_eq!(owners.holder(inode(&second)).unwrap().fd, second.as_raw_fd());
    // Another descriptor of the same socket: the old one does not count any more.
    let (number, old) = (inode(&first), first.as_raw_fd());
    let moved = first.try_clone().unwrap();
    drop(first);
    owners.forget(number);
    owners.update([number], LONG);
    assert_eq!(owners.holder(number).unwrap().fd, moved.as_raw_fd());
    assert_ne!(old, moved.as_raw_fd());
    let programs = owners.programs_version();
    owners.update([number], LONG);
    assert_eq!(owners.programs_version(), programs, "this program is the same");
    // Without being told, too, within the time after which all processes are read again.
    let moved_on = moved.try_clone().unwrap();
    drop(moved);
    let deadline = Deadline::after(LONG);
    while owners.holder(number).unwrap().fd != moved_on.as_raw_fd() {
        owners.update([number], LONG);
        assert!(deadline.pause(Duration::from_millis(50)));
    }
    // A child that has it as its standard input.
    let input = std::os::fd::OwnedFd::from(moved_on.try_clone().unwrap());
    let mut child = std::process::Command::new("sleep").arg("60").stdin(input).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let both = find_holders(&[number].into());
    drop(moved_on);
    let deadline = Deadline::after(LONG);
    while owners.holder(number).is_none_or(|holder| holder.pid != pid) {
        owners.update([number], LONG);
        assert!(deadline.pause(Duration::from_millis(50)));
    }
    let name = owners.program(pid).unwrap().name.clone();
    assert_ne!(owners.programs_version(), programs, "another program holds it");
    let programs = owners.programs_version();
    child.kill().unwrap();
    child.wait().unwrap();
    owners.update([number], LONG);
    assert_ne!(owners.programs_version(), programs, "it has ended");
    assert!(both.iter().any(|(_, holder)| holder.pid == pid && holder.fd == 0), "{both:?}");
    assert_eq!(name, "sleep");
}

/// A value that the program sets itself is what it gets back.
#[test]
fn managed_sockets_get_back_what_their_program_has_set() {
    let Some((_folder, journal)) = as_root() else { return };
    let process = ForeignProcess::open(own_pid()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sockets: Vec<TcpStream> =
        (0..4).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
    let settings = |at: usize| process.read(sockets[at].as_raw_fd()).unwrap();
    let own = pacing(7_000_000);
    process.change(sockets[1].as_raw_fd(), settings(1).cookie, own).unwrap();
    let target = |at: usize, change: SocketChange| {
        let now = settings(at);
        let fd = sockets[at].as_raw_fd();
        SocketTarget { process: &process, fd, inode: now.inode, cookie: now.cookie, change }
    };
    let mut managed = ManagedSockets::new(&journal);
    let all = |bytes: u64| (0..4).map(|at| target(at, pacing(bytes))).collect::<Vec<_>>();
    for bytes in [1_000_000, 2_000_000] {
        let results = managed.apply(&all(bytes)).unwrap();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert!((0..4).all(|at| settings(at).pacing.bytes_per_s() == bytes));
        assert_eq!(journal.pending(), 4);
    }
    // This program sets one itself, then that one is changed once more; another gets a priority as well.
    process.change(sockets[2].as_raw_fd(), settings(2).cookie, pacing(9_000_000)).unwrap();
    let both = SocketChange { priority: Some(0x6b00_0010), ..pacing(3_000_000) };
    let results = managed.apply(&[target(2, pacing(3_000_000)), target(3, both)]).unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!((settings(3).priority, journal.pending()), (0x6b00_0010, 4));
    assert_eq!(managed.applied(settings(3).cookie), Some(both));
    // A wrong one among them changes nothing and is written down nowhere.
    let wrong = SocketTarget { cookie: 1, ..target(0, own) };
    assert!(managed.apply(&[wrong]).unwrap()[0].as_ref().is_err_and(ForeignSocketError::is_gone));
    assert_eq!((journal.pending(), managed.cookies().count()), (4, 4));
    assert!(managed.restore(settings(0).cookie).is_some());
    assert!(settings(0).pacing.is_unlimited() && journal.pending() == 3);
    drop(managed);
    assert_eq!(journal.pending(), 0);
    assert_eq!(settings(1).pacing.bytes_per_s(), 7_000_000);
    assert_eq!(settings(2).pacing.bytes_per_s(), 9_000_000);
    assert_eq!((settings(3).pacing, settings(3).priority), (PacingRate::UNLIMITED, 0));
}

#[test]
fn socket_whose_congestion_control_fails_keeps_its_pacing_rate() {
    let Some((_folder, journal)) = as_root() else { return };
    let process = ForeignProcess::open(own_pid()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let fd = socket.as_raw_fd();
    let now = process.read(fd).unwrap();
    let congestion = CongestionControl::from_name("no-such");
    let change = SocketChange { congestion, ..pacing(1_000_000) };
    let mut managed = ManagedSockets::new(&journal);
    let target = SocketTarget { process: &process, fd, inode: now.inode, cookie: now.cookie, change };
    assert!(congestion.unwrap().check_available().is_err());
    for _ in 0..2 {
        assert!(managed.apply(&[target]).unwrap()[0].is_err());
        assert_eq!((process.read(fd).unwrap().pacing, journal.pending()), (PacingRate::UNLIMITED, 1));
    }
    let paced = SocketTarget { change: pacing(2_000_000), ..target };
    assert!(managed.apply(&[paced]).unwrap()[0].is_ok());
    drop(managed);
    assert_eq!((process.read(fd).unwrap().pacing, journal.pending()), (PacingRate::UNLIMITED, 0));
}

/// What was set is what another process reads by sock_diag.
#[test]
fn changed_rate_reaches_the_flow_sampler() {
    let Some((_folder, journal)) = as_root() else { return };
    let namespace = namespace_with_loopback(&journal, "sampled");
    let child = start_holder(&journal, &namespace, 3);
    let (process, found) = flows_of(child.pid(), |flow| flow.state == 1);
    assert_eq!(found.len(), 6);
    for (flow, fd) in &found {
        process.change(*fd, flow.cookie, pacing(500_000)).unwrap();
    }
    let rates = |flow: &sys::netlink::Flow| flow.tcp.as_ref().unwrap().pacing_max_bytes_per_s;
    assert!(flows(child.pid()).iter().all(|flow| rates(flow) == Some(500_000)));
}

/// A peer that writes sees its data arrive: the duplicate took nothing from the socket.
#[test]
fn data_is_not_disturbed_by_changes() {
    if !root() {
        return;
    }
    let process = ForeignProcess::open(own_pid()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    let cookie = process.read(client.as_raw_fd()).unwrap().cookie;
    for round in 0..100_u8 {
        process.change(client.as_raw_fd(), cookie, pacing(100_000_000 + u64::from(round))).unwrap();
        client.write_all(&[round]).unwrap();
        let mut byte = [0];
        server.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [round]);
    }
}
