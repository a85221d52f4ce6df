//! A connection's stream of messages, as a builder takes it apart: what is found in it does not depend on how
//! it comes.
#![no_main]

use daq::assembly::message_parser::{Destination, MessageParser, MessageSink};
use daq::wire::{FragmentHeader, PAYLOAD_BYTES_MAX, WireError};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Default, PartialEq)]
struct Found {
    begun: Vec<FragmentHeader>,
    ended: Vec<FragmentHeader>,
    hellos: Vec<(FragmentHeader, Vec<u8>)>,
    answers: Vec<FragmentHeader>,
}

impl MessageSink for Found {
    fn begin_fragment(&mut self, fragment: &FragmentHeader) -> Destination {
        assert!(fragment.payload_bytes <= PAYLOAD_BYTES_MAX);
        self.begun.push(*fragment);
        Destination::Discard
    }

    fn buffer(&mut self, _: Destination, _: u32) -> &mut [u8] {
        &mut []
    }

    fn end_fragment(&mut self, fragment: &FragmentHeader, _: Destination, _: u32) {
        self.ended.push(*fragment);
    }

    fn hello(&mut self, hello: &FragmentHeader, payload: &[u8]) {
        assert_eq!(payload.len(), hello.payload_bytes as usize);
        self.hellos.push((*hello, payload.to_vec()));
    }

    fn clock_answer(&mut self, answer: &FragmentHeader) {
        self.answers.push(*answer);
    }
}

fn take<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Found, Result<(), WireError>) {
    let (mut stream, mut found) = (MessageParser::default(), Found::default());
    for piece in pieces {
        if let Err(error) = stream.parse(piece, &mut found) {
            assert_ne!(error, WireError::Short, "that is no error of a stream");
            return (found, Err(error));
        }
    }
    assert!(found.begun.len() - found.ended.len() <= 1);
    assert!(!stream.is_between_messages() || found.begun.len() == found.ended.len());
    (found, Ok(()))
}

fuzz_target!(|data: &[u8]| {
    let (how, rest) = fuzz::choice(data);
    let content = if how & 1 == 0 { fuzz::daq_messages(rest) } else { rest.to_vec() };
    assert_eq!(take(std::iter::once(&content[..])), take(fuzz::pieces(&content, how)));
});
