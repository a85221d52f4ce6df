//! Probes on the wire: 56 bytes there, 56 bytes back, both authenticated.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | `kgck` |
//! | 4 | version, 1 |
//! | 5 | 1 question, 2 answer |
//! | 6..8 | 0 |
//! | 8..12 | which key |
//! | 12..16 | sequence |
//! | 16..40 | `t1`, `t2`, `t3` in ns; 0 in a question where they are not known yet |
//! | 40..56 | SipHash-2-4-128 of the bytes before, under the key of its direction |
//!
//! Numbers are little-endian. SipHash (Aumasson and Bernstein 2012) is made to authenticate short messages of a network,
//! and takes less time than the system call beside it. Somebody on the way can hold probes back, which widens the bound
//! and never breaks it; he cannot make times up. All agents of a run hold its one key: one of them that was taken over, and
//! is on another's way to the coordinator, can make times up for that one.

use std::fmt;

use serde::{Deserialize, Serialize};
use siphasher::sip128::SipHasher24;

/// The length of a question, and of an answer.
pub const DATAGRAM_BYTES: usize = 56;

const MAGIC: [u8; 4] = *b"kgck";
const VERSION: u8 = 1;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
const MAC_AT: usize = 40;

/// The secret of one run, handed to its agents over the control channel. It is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key([u8; 32]);

impl Key {
    /// A new key from the kernel's random numbers.
    pub fn random() -> Self {
        Self(sys::random::bytes())
    }

    /// The key of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Which key this is, for everybody to see: it tells datagrams of another run from forged ones.
    pub fn id(&self) -> u32 {
        // A pseudo-random function of the key shows nothing of it, under an input that no datagram is.
        self.hash(QUESTION, b"id").as_u64().0 as u32
    }

    fn hash(&self, kind: u8, bytes: &[u8]) -> siphasher::sip128::Hash128 {
        let (questions, answers) = self.0.split_at(16);
        let half = if kind == ANSWER { answers } else { questions };
        SipHasher24::new_with_key(half.try_into().expect("half of 32 bytes is 16")).hash(bytes)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:08x})", self.id())
    }
}

/// What a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The agent asks.
    Question {
        /// Its number.
        sequence: u32,
        /// When the agent sent it, by the agent's clock.
        t1_ns: u64,
    },
    /// The coordinator answers.
    Answer {
        /// The question's.
        sequence: u32,
        /// The question's.
        t1_ns: u64,
        /// When the question came, by the coordinator's clock.
        t2_ns: u64,
        /// When the answer was sent, by the coordinator's clock.
        t3_ns: u64,
    },
}

/// Why a datagram was passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It is longer or shorter than all of ours, or does not begin or read like one.
    #[error("not a clock probe")]
    Malformed,
    /// It is of another version of this program.
    #[error("a clock probe of version {0}, not {VERSION}")]
    Version(u8),
    /// It is of another run.
    #[error("a clock probe of another run")]
    OtherKey,
    /// It says what its sender cannot know.
    #[error("a forged clock probe")]
    Forged,
}

impl Message {
    /// The datagram that says it.
    pub fn write(&self, key: &Key) -> [u8; DATAGRAM_BYTES] {
        let (kind, sequence, times) = match *self {
            Self::Question { sequence, t1_ns } => (QUESTION, sequence, [t1_ns, 0, 0]),
            Self::Answer { sequence, t1_ns, t2_ns, t3_ns } => (ANSWER, sequence, [t1_ns, t2_ns, t3_ns]),
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

    /// What `bytes` say, if they come from a holder of `key`.
    ///
    /// # Errors
    /// Why they are to be passed over.
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
        // Two whole numbers, not byte by byte: how long it takes says nothing about where they differ.
        let mac = u128::from_le_bytes(array(&bytes[MAC_AT..]));
        if mac ^ key.hash(bytes[5], &bytes[..MAC_AT]).as_u128() != 0 {
            return Err(Rejected::Forged);
        }
        let sequence = u32::from_le_bytes(array(&bytes[12..16]));
        let time = |at: usize| u64::from_le_bytes(array(&bytes[at..at + 8]));
        let (t1_ns, t2_ns, t3_ns) = (time(16), time(24), time(32));
        match (bytes[5], &bytes[6..8]) {
            (QUESTION, [0, 0]) if t2_ns == 0 && t3_ns == 0 => Ok(Self::Question { sequence, t1_ns }),
            (ANSWER, [0, 0]) => Ok(Self::Answer { sequence, t1_ns, t2_ns, t3_ns }),
            _ => Err(Rejected::Malformed),
        }
    }
}

/// Makes the beginning and the authentication of a datagram those of `key`, whatever it says.
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
