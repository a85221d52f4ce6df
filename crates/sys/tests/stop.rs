//! Stop signals, in a process of their own: they are the whole process's.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sys::stop::StopSignal;

fn readable(stop: &StopSignal) -> bool {
    let mut fds = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).expect("poll") == 1
}

/// By the kernel's own account: SIGHUP is the first bit.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("ignored signals");
    u64::from_str_radix(ignored.trim(), 16).expect("hexadecimal") & 1 == 1
}

#[test]
fn signals_are_counted_and_wake_a_waiter() {
    let stop = StopSignal::install().expect("install");
    assert!(!stop.requested());
    assert!(!stop.wait_timeout(Duration::from_millis(5)));
    assert!(!readable(&stop));

    let waiter = std::thread::spawn(move || stop.wait_timeout(Duration::from_secs(20)));
    kill(Pid::this(), Signal::SIGINT).expect("kill");
    assert!(waiter.join().expect("join"), "the waiter saw the signal, not its timeout");
    assert_eq!(stop.count(), 1);
    assert!(readable(&stop));
    assert!(stop.wait_timeout(Duration::from_secs(20)), "returns at once from now on");

    // A signal to the own process is delivered to one of its threads; wait for it rather than assume when.
    kill(Pid::this(), Signal::SIGTERM).expect("kill");
    let again = StopSignal::install().expect("install twice");
    for _ in 0..2000 {
        if again.count() == 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(again.count(), 2, "a second Ctrl-C is visible");
    // The terminal was closed; a program that nohup(1) started goes on.
    let expected = if is_hangup_ignored() { 2 } else { 3 };
    kill(Pid::this(), Signal::SIGHUP).expect("kill");
    for _ in 0..2000 {
        if again.count() == 3 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(again.count(), expected, "a hangup counts unless it was ignored from the start");
    again.request();
    assert_eq!(stop.count(), expected + 1, "all copies are one signal");
}
