//! Messages between hosts at one bottleneck and their coordinator: any bytes are refused, or are what the
//! message read is written as. Reports make grants that can be sent, and grants make leases that end.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use qos::hosts::wire::{Grant, MESSAGE_BYTES_MAX, Message, Report};
use qos::hosts::{Coordinator, HostFacts, HostId, LEASE, Member};
use qos::law::{Law, Settings};
use qos::policy::Policy;

const MS: u64 = 1_000_000;
static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let text = "[bottleneck]\ninterface = 'eth0'\ncapacity = 'estimate'\n\
        [[class]]\nname = 'a'\nmatch = { process = 'a' }\npriority = 1\ntarget = '100ms'\nsize = '10kB'\n\
        [[class]]\nname = 'b'\nmatch = { process = 'b' }\npriority = 5\nfloor = '1Mbit/s'\n";
    Policy::parse(text).expect("a policy")
});

fuzz_target!(|data: &[u8]| {
    let mut coordinator = Coordinator::new(&POLICY);
    let mut member = Member::new(0);
    let mut law = Law::new(Settings::from_policy(&POLICY));
    // What a fuzzer does not guess: the head, and the number of classes.
    let report = Message::Report(Report { classes: vec![Default::default(); 2], ..Report::default() });
    let grant = Message::Grant(Grant { classes: vec![0.0; 2], ..Grant::default() });
    let mut now = 0;
    for (step, piece) in data.chunks(64).enumerate() {
        now += 50 * MS;
        for plain in [None, Some(&report), Some(&grant)] {
            let bytes = plain.map_or_else(|| piece.to_vec(), |plain| overwritten(plain.encode(), piece));
            let Ok(message) = Message::decode(&bytes) else { continue };
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(message.encode(), bytes);
            match message {
                Message::Report(report) => {
                    coordinator.report(now, &HostId { name: "a".into(), id: step as u64 % 3 }, report);
                }
                Message::Grant(grant) => {
                    let Some(lease) = member.take(now, &grant) else { continue };
                    assert!(lease.until_ns <= now + LEASE.as_nanos() as u64);
                    law.set_lease(lease);
                }
                _ => {}
            }
        }
        for (_, grant) in coordinator.tick(now) {
            assert!(grant.bulk_bit_per_s > 0.0);
            let message = Message::Grant(grant);
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
        let control = law.tick(now, &[]);
        assert!(control.bulk_bit_per_s.is_finite());
        member.report(now, &HostFacts { datagrams: vec![0.0; 2], ..HostFacts::default() });
    }
});

/// The bytes after the head, as far as there are new ones.
fn overwritten(mut bytes: Vec<u8>, new: &[u8]) -> Vec<u8> {
    bytes.iter_mut().skip(7).zip(new).for_each(|(to, from)| *to = *from);
    bytes
}
