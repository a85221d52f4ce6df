//! kagiri's own protocol between the two ends of a transfer.
//!
//! It shares its port with iperf3's: every connection begins with 37 bytes, from which the server knows whose they are
//! ([`name`]). Then the client orders, the server makes ready, the client opens the flows, says `go` at the moment at
//! which all is to begin, and both say how far they are until the senders have ended, the receivers have what came, and
//! the server has reported ([`message`]).

pub mod message;
pub mod name;
