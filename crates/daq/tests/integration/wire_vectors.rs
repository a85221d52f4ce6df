//! Holds the code against the test vectors of `docs/daq-wire.md`.

use std::collections::BTreeMap;
use std::str::FromStr;

use daq::wire::{
    DATAGRAM_HEADER_BYTES, DatagramHeader, FragmentFlags, FragmentHeader, HELLO_BYTES, Hello, Kind, Order,
    OrderFlags,
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/daq-wire.md");

/// A test vector: type, fields by name, bytes.
struct Vector {
    what: String,
    fields: BTreeMap<String, String>,
    bytes: Vec<u8>,
}

impl Vector {
    fn read(block: &str) -> Self {
        let (words, hex): (Vec<&str>, Vec<&str>) = block
            .split_whitespace()
            .partition(|word| word.contains('=') || word.chars().any(|c| !c.is_ascii_hexdigit()));
        let hex = hex.concat();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
        let fields = words.iter().filter_map(|word| word.split_once('='));
        Self {
            what: words[0].to_owned(),
            fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            bytes: (0..hex.len()).step_by(2).map(byte).collect(),
        }
    }

    fn number<T: FromStr>(&self, name: &str) -> T {
        let text = self.fields.get(name).unwrap_or_else(|| panic!("{}: no {name}", self.what));
        text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number of its kind"))
    }

    fn kind(&self) -> Kind {
        let is_named = |kind: &Kind| format!("{kind:?}").to_lowercase() == self.fields["kind"];
        (1..=8).filter_map(Kind::from_number).find(is_named).expect("a kind")
    }

    fn order(&self) -> Order {
        Order {
            kind: self.kind(),
            flags: OrderFlags(self.number("flags")),
            run: self.number("run"),
            builder: self.number("builder"),
            event: self.number("event"),
            triggered_ns: self.number("triggered_ns"),
            first_source: self.number("first_source"),
            sources: self.number("sources"),
            fragment_bytes: self.number("fragment_bytes"),
            credit_bytes: self.number("credit_bytes"),
            event_oldest: self.number("event_oldest"),
            seed: self.number("seed"),
        }
    }

    fn header(&self) -> FragmentHeader {
        FragmentHeader {
            kind: self.kind(),
            flags: FragmentFlags(self.number("flags")),
            run: self.number("run"),
            builder: self.number("builder"),
            event: self.number("event"),
            source: self.number("source"),
            payload_bytes: self.number("payload_bytes"),
            order_received_ns: self.number("order_received_ns"),
            sent_ns: self.number("sent_ns"),
            clock_error_ns: self.number("clock_error_ns"),
            sequence: self.number("sequence"),
            payload_crc: self.number("payload_crc"),
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            group: self.number("group"),
            boot: std::array::from_fn(|at| at as u8),
            udp_port: self.number("udp_port"),
            sources: self.number("group_sources"),
            configuration: self.number("configuration"),
            congestion_control: self.fields["congestion_control"].clone(),
        }
    }

    fn check(&self) {
        match self.what.as_str() {
            "order" => {
                let order = self.order();
                assert_eq!(order.encode()[..], self.bytes, "{:?}", self.fields);
                assert_eq!(Order::decode(&self.bytes), Ok((order, self.bytes.len())));
            }
            "piece" => {
                let header = self.header();
                let (read, length) = FragmentHeader::decode(&self.bytes).expect("a fragment header");
                let (bytes, payload) = self.bytes.split_at(length);
                assert_eq!((read, &header.encode()[..]), (header, bytes), "{:?}", self.fields);
                assert!(payload.len() == header.payload_bytes as usize && header.payload_matches(payload));
                if header.kind == Kind::Hello {
                    let hello = self.hello();
                    assert_eq!((&hello.encode()[..], payload.len()), (payload, HELLO_BYTES));
                    assert_eq!(Hello::decode(payload), Ok(hello));
                }
            }
            "part" => {
                let (offset, whole_bytes) = (self.number("offset"), self.number("whole_bytes"));
                let datagram_header = DatagramHeader { fragment: self.header(), offset, whole_bytes };
                let (read, payload) = DatagramHeader::decode(&self.bytes).expect("a datagram header");
                assert_eq!(
                    (read, &datagram_header.encode()[..]),
                    (datagram_header, &self.bytes[..DATAGRAM_HEADER_BYTES])
                );
                assert_eq!(payload.len(), datagram_header.fragment.payload_bytes as usize);
            }
            other => panic!("a vector of '{other}'"),
        }
    }
}

#[test]
fn code_matches_documented_vectors() {
    let page = std::fs::read_to_string(PAGE).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    let blocks = page.split("```vector\n").skip(1);
    let blocks = blocks.map(|rest| rest.split_once("```").expect("a block ends").0);
    let vectors: Vec<Vector> = blocks.map(Vector::read).collect();
    vectors.iter().for_each(Vector::check);
    for number in 1..=8 {
        let kind = Kind::from_number(number).expect("all eight kinds");
        assert!(vectors.iter().any(|vector| vector.kind() == kind), "no vector of {kind:?}");
    }
    assert!(vectors.iter().any(|vector| vector.what == "part"));
}

#[test]
fn documented_checksum_is_crc32c() {
    let page = std::fs::read_to_string(PAGE).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    assert!(page.contains(&format!("`123456789` gives `{:x}`", crc32c::crc32c(b"123456789"))));
}
