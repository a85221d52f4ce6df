use super::*;
use proptest::prelude::*;

fn message() -> impl Strategy<Value = Message> {
    let rate = || (0.0f64..1e15).prop_map(rate);
    let class = ([rate(), rate(), rate()], any::<u16>(), any::<u16>()).prop_map(
        |([delivered_bit_per_s, datagrams_bit_per_s, active_need_bit_per_s], active, backlogged)| {
            ClassReport {
                delivered_bit_per_s,
                datagrams_bit_per_s,
                active_need_bit_per_s,
                active,
                backlogged,
            }
        },
    );
    let hello = (any::<u64>(), any::<[u8; 16]>(), "[a-zA-Z0-9é.@-]{1,32}")
        .prop_map(|(id, digest, name)| Message::Hello(Hello { id, digest, name }));
    let welcome = (0usize..4).prop_map(|at| Message::Welcome(Welcome::ALL[at]));
    let numbers = proptest::array::uniform9(any::<u32>());
    let queue = proptest::option::of(0..u32::MAX);
    let classes = proptest::collection::vec(class, 0..CLASSES_MAX);
    let report = (numbers, queue, any::<bool>(), [rate(), rate()], classes).prop_map(
        |(n, queue_us, is_late, [bulk, message], classes)| {
            Message::Report(Report {
                sequence: n[0],
                grant: n[1],
                since_grant_us: n[2],
                is_late,
                queue_us,
                base_us: n[3],
                target_us: n[4],
                inflight_bytes: n[5],
                slack_bytes: n[6],
                delivered_segments: n[7],
                retransmitted_segments: n[8],
                bulk_bit_per_s: bulk,
                message_need_bit_per_s: message,
                classes,
            })
        },
    );
    let rates = proptest::collection::vec(rate(), 0..CLASSES_MAX);
    let grant = (any::<[u32; 2]>(), any::<[u16; 2]>(), proptest::option::of(rate()), rate(), rates).prop_map(
        |([sequence, report], [lease_ms, hosts], capacity_bit_per_s, bulk_bit_per_s, classes)| {
            let grant =
                Grant { sequence, report, lease_ms, hosts, capacity_bit_per_s, bulk_bit_per_s, classes };
            Message::Grant(grant)
        },
    );
    prop_oneof![hello, welcome, report, grant]
}

proptest! {
    #[test]
    fn message_is_read_as_written(message in message()) {
        let bytes = message.encode();
        prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX, "{}", bytes.len());
        prop_assert_eq!(Message::decode(&bytes), Ok(message));
    }

    #[test]
    fn changed_message_is_refused_or_has_one_form(
        message in message(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        cut in any::<usize>(),
    ) {
        let mut bytes = message.encode();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if cut % 3 == 0 {
            bytes.truncate(cut % (bytes.len() + 1));
        }
        if let Ok(read) = Message::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }
}

#[test]
fn messages_are_as_long_as_documented() {
    let report = |classes| {
        Message::Report(Report { classes: vec![ClassReport::default(); classes], ..Report::default() })
    };
    let grant = |classes| Message::Grant(Grant { classes: vec![0.0; classes], ..Grant::default() });
    assert_eq!((report(0).encode().len(), report(3).encode().len()), (59, 107));
    assert_eq!((grant(0).encode().len(), grant(3).encode().len()), (31, 43));
}

#[test]
fn other_versions_and_other_bytes_are_told_apart() {
    let mut bytes = Message::Welcome(Welcome::Accepted).encode();
    assert_eq!(Message::decode(&[]), Err(Malformed::Other));
    assert_eq!(Message::decode(&bytes[..4]), Err(Malformed::Other));
    bytes[4] = 2;
    assert_eq!(Message::decode(&bytes), Err(Malformed::Version(2)));
    bytes[0] = b'X';
    assert_eq!(Message::decode(&bytes), Err(Malformed::Other));
    let name = |name: &str| Message::Hello(Hello { id: 1, digest: [0; 16], name: name.into() }).encode();
    assert_eq!(Message::decode(&name("a b")), Err(Malformed::Other));
    assert_eq!(Message::decode(&name("")), Err(Malformed::Other));
    assert_eq!(Message::decode(&name(&"a".repeat(65))), Err(Malformed::Other));
}
