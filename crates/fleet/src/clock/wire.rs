//! Clock probes on the wire: 56 bytes each way, authenticated.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `kgck` |
//! | 4 | version, 1 |
//! | 5 | 1 request, 2 response |
//! | 6..8 | 0 |
//! | 8..12 | key id |
//! | 12..16 | sequence |
//! | 16..40 | `t1`, `t2`, `t3` in ns; 0 in a request where not yet known |
//! | 40..56 | SipHash-2-4-128 of the bytes before, under the key of its direction |
//!
//! Little-endian. SipHash (Aumasson and Bernstein 2012) authenticates short network messages in less time
//! than the system call takes. Someone on the path can delay probes, which widens the bound but keeps it
//! valid; without the key, times cannot be forged. All agents of a run share one key: a compromised agent on
//! the path of another can forge that one's times.

use std::fmt;

use serde::{Deserialize, Serialize};
use siphasher::sip128::SipHasher24;

pub const DATAGRAM_BYTES: usize = 56;

const MAGIC: [u8; 4] = *b"kgck";
const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const MAC_AT: usize = 40;

/// The secret of one run, which its agents receive over the control channel. Never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key([u8; 32]);

impl Key {
    pub fn random() -> Self {
        Self(sys::random::bytes())
    }

    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Public id of the key: distinguishes datagrams of another run from forged ones.
    pub fn id(&self) -> u32 {
        // A pseudo-random function reveals nothing of the key; no datagram has this input.
        self.hash(REQUEST, b"id").as_u64().0 as u32
    }

    fn hash(&self, kind: u8, bytes: &[u8]) -> siphasher::sip128::Hash128 {
        let (requests, responses) = self.0.split_at(16);
        let half = if kind == RESPONSE { responses } else { requests };
        SipHasher24::new_with_key(half.try_into().expect("half of 32 bytes is 16")).hash(bytes)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:08x})", self.id())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// `t1_ns`: send time on the agent's clock.
    Request { sequence: u32, t1_ns: u64 },
    /// `sequence` and `t1_ns` are copied from the request; `t2_ns` and `t3_ns`: arrival of the request and
    /// departure of the response on the coordinator's clock.
    Response { sequence: u32, t1_ns: u64, t2_ns: u64, t3_ns: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("not a clock probe")]
    Malformed,
    #[error("a clock probe of version {0}, not {VERSION}")]
    Version(u8),
    #[error("a clock probe of another run")]
    OtherKey,
    #[error("a forged clock probe")]
    Forged,
}

impl Message {
    pub fn write(&self, key: &Key) -> [u8; DATAGRAM_BYTES] {
        let (kind, sequence, times) = match *self {
            Self::Request { sequence, t1_ns } => (REQUEST, sequence, [t1_ns, 0, 0]),
            Self::Response { sequence, t1_ns, t2_ns, t3_ns } => (RESPONSE, sequence, [t1_ns, t2_ns, t3_ns]),
        };
        let mut bytes = [0; DATAGRAM_BYTES];
        bytes[5] = kind;
        bytes[12..16].copy_from_slice(&sequence.to_le_bytes());
        for (field, time) in bytes[16..MAC_AT].chunks_exact_mut(8).zip(times) {
            field.copy_from_slice(&time.to_le_bytes());
        }
        seal(&mut bytes, key);
        bytes
    }

    pub fn read(bytes: &[u8], key: &Key) -> Result<Self, Rejected> {
        let bytes: &[u8; DATAGRAM_BYTES] = bytes.try_into().map_err(|_| Rejected::Malformed)?;
        if bytes[..4] != MAGIC {
            return Err(Rejected::Malformed);
        }
        if bytes[4] != VERSION {
            return Err(Rejected::Version(bytes[4]));
        }
        if bytes[8..12] != key.id().to_le_bytes() {
            return Err(Rejected::OtherKey);
        }
        // Compares whole numbers, so that the time does not reveal where they differ.
        let mac = u128::from_le_bytes(array(&bytes[MAC_AT..]));
        if mac ^ key.hash(bytes[5], &bytes[..MAC_AT]).as_u128() != 0 {
            return Err(Rejected::Forged);
        }
        let sequence = u32::from_le_bytes(array(&bytes[12..16]));
        let time = |at: usize| u64::from_le_bytes(array(&bytes[at..at + 8]));
        let (t1_ns, t2_ns, t3_ns) = (time(16), time(24), time(32));
        match (bytes[5], &bytes[6..8]) {
            (REQUEST, [0, 0]) if t2_ns == 0 && t3_ns == 0 => Ok(Self::Request { sequence, t1_ns }),
            (RESPONSE, [0, 0]) => Ok(Self::Response { sequence, t1_ns, t2_ns, t3_ns }),
            _ => Err(Rejected::Malformed),
        }
    }
}

/// Writes magic, version, key id and authentication code into a datagram.
pub fn seal(bytes: &mut [u8; DATAGRAM_BYTES], key: &Key) {
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[8..12].copy_from_slice(&key.id().to_le_bytes());
    let mac = key.hash(bytes[5], &bytes[..MAC_AT]).as_u128();
    bytes[MAC_AT..].copy_from_slice(&mac.to_le_bytes());
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the callers slice a fixed array at fixed places")
}
