//! Answers of the kernel's sock_diag(7): one read of messages, and one message without its header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sys::netlink::{Flow, flows_in};

/// `struct nlmsghdr` and `struct inet_diag_msg`: no message with a flow is shorter.
const MESSAGE_BYTES_LEAST: usize = 16 + 72;

fuzz_target!(|data: &[u8]| {
    let mut flows = 0;
    flows_in(data, &mut |flow| {
        flows += 1;
        assert!(flow.in_flight_bytes().is_none() || flow.tcp.is_some(), "UDP has none");
    });
    assert!(flows * MESSAGE_BYTES_LEAST <= data.len(), "{flows} flows");
    if let Some(flow) = Flow::parse(data) {
        let _ = flow.in_flight_bytes();
        // What follows changes nothing of the fixed part.
        let longer = Flow::parse(&[data, &[0; 4]].concat()).expect("a longer message");
        assert_eq!((longer.local, longer.peer, longer.cookie), (flow.local, flow.peer, flow.cookie));
    }
});
