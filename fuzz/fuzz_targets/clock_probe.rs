//! Clock probes, of strangers and of holders of the key; and what the times of such make of an offset.
#![no_main]

use fleet::clock::wire::{DATAGRAM_BYTES, Message, Rejected, seal};
use fleet::clock::{Batch, Key, Offset, Probe};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let key = Key::new([7; 32]);
    let mut batches = Vec::new();
    for datagram in data.chunks(DATAGRAM_BYTES) {
        if let Ok(message) = Message::read(datagram, &key) {
            assert_eq!(message.write(&key), datagram, "it is written otherwise");
        }
        let Ok(mut sealed) = <[u8; DATAGRAM_BYTES]>::try_from(datagram) else { break };
        seal(&mut sealed, &key);
        match Message::read(&sealed, &key) {
            Ok(message) => {
                assert_eq!(message.write(&key), sealed, "it is written otherwise");
                if let Message::Response { sequence, t1_ns, t2_ns, t3_ns } = message {
                    let probe = Probe { t1_ns, t2_ns, t3_ns, t4_ns: t1_ns.saturating_add(sequence.into()) };
                    batches.extend(Batch::new(&probe, sequence & 1 == 0));
                    for batch in &mut batches {
                        batch.add(&probe);
                    }
                }
            }
            Err(error) => assert_eq!(error, Rejected::Malformed, "it was sealed"),
        }
    }
    if let Ok(offset) = Offset::from_batches(&batches) {
        for batch in &batches {
            let at = batch.lower.at_ns;
            assert!(offset.bound_ns(at) > 0 && offset.drift_bound_ppm() >= 0.0);
            let _ = (offset.to_agent_ns(at), offset.to_coordinator_ns(at));
        }
    }
});
