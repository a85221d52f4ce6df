use proptest::prelude::*;

use super::*;

fn order() -> Order {
    Order {
        kind: Kind::Trigger,
        flags: OrderFlags(OrderFlags::AGAIN),
        run: 0x0102_0304,
        builder: 1,
        event: 42,
        triggered_ns: 1_000_000_007,
        first_source: 0,
        sources: 1000,
        fragment_bytes: 1024,
        credit_bytes: 65_536,
        event_oldest: 40,
        seed: 7,
    }
}

fn header(kind: Kind, payload: &[u8]) -> FragmentHeader {
    FragmentHeader {
        kind,
        flags: FragmentFlags(FragmentFlags::CATCHUP),
        run: 0x0102_0304,
        builder: 1,
        event: 42,
        source: 999,
        payload_bytes: payload.len() as u32,
        order_received_ns: 1_000_100_000,
        sent_ns: 1_000_100_500,
        clock_error_ns: 17,
        sequence: 41,
        payload_crc: crc32c::crc32c(payload),
    }
}

#[test]
fn headers_round_trip() {
    let order = order();
    assert_eq!(Order::decode(&order.encode()), Ok((order, HEADER_BYTES)));
    let header = header(Kind::Fragment, b"payload");
    assert_eq!(FragmentHeader::decode(&header.encode()), Ok((header, HEADER_BYTES)));
    assert!(header.payload_matches(b"payload") && !header.payload_matches(b"pAyload"));
    let hello = Hello {
        group: 5,
        boot: [9; 16],
        udp_port: 7500,
        sources: 3,
        configuration: 8,
        congestion_control: "cubic".into(),
    };
    assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
}

#[test]
fn decode_skips_extension_and_rejects_other_version() {
    let mut bytes = order().encode().to_vec();
    bytes[6..8].copy_from_slice(&80_u16.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(Order::decode(&bytes), Err(WireError::Short));
    bytes.resize(100, 0xff);
    assert_eq!(Order::decode(&bytes), Ok((order(), 80)));
    bytes[4] = 2;
    assert_eq!(Order::decode(&bytes), Err(WireError::Version(2)));
    assert_eq!(Order::decode(b"GET / HTTP/1.1\r\n"), Err(WireError::Magic));
    assert_eq!(FragmentHeader::decode(&order().encode()), Err(WireError::Side));
}

#[test]
fn decode_rejects_wrong_lengths() {
    let lies = FragmentHeader { payload_bytes: PAYLOAD_BYTES_MAX + 1, ..header(Kind::Fragment, b"") };
    assert_eq!(FragmentHeader::decode(&lies.encode()), Err(WireError::PayloadLength(PAYLOAD_BYTES_MAX + 1)));
    let datagram_header =
        DatagramHeader { fragment: header(Kind::Fragment, b"abc"), offset: 8, whole_bytes: 10 };
    let datagram = [&datagram_header.encode()[..], b"abc"].concat();
    assert_eq!(DatagramHeader::decode(&datagram), Err(WireError::PayloadLength(10)));
    let datagram_header = DatagramHeader { whole_bytes: 11, ..datagram_header };
    let datagram = [&datagram_header.encode()[..], b"abc"].concat();
    assert_eq!(DatagramHeader::decode(&datagram), Ok((datagram_header, &b"abc"[..])));
    let whole = [&datagram_header.fragment.encode()[..], b"abc"].concat();
    assert_eq!(
        DatagramHeader::decode(&whole)
            .map(|(datagram_header, _)| (datagram_header.offset, datagram_header.whole_bytes)),
        Ok((0, 3))
    );
    assert_eq!(DatagramHeader::decode(&whole[..whole.len() - 1]), Err(WireError::PayloadLength(3)));
}

proptest! {
    #[test]
    fn flipped_bit_is_detected(bit in 0..HEADER_BYTES * 8) {
        let mut bytes = header(Kind::Fragment, b"x").encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(FragmentHeader::decode(&bytes).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200), ours in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if ours && bytes.len() >= HEADER_BYTES {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[4] = VERSION;
            let crc = crc32c::crc32c(&bytes[..60]);
            bytes[60..64].copy_from_slice(&crc.to_be_bytes());
        }
        let _ = (Order::decode(&bytes), FragmentHeader::decode(&bytes), Hello::decode(&bytes));
        let _ = DatagramHeader::decode(&bytes).map(|_| ());
    }
}
