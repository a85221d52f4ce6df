//! Messages between a program and a policy in force: one record of a fixed length per message of a
//! `SOCK_SEQPACKET` socket (unix(7)), little-endian. docs/qos.md has the layout.
//!
//! Fixed records need no parser of text in a foreign program, and their length bounds what is read.

/// Longest name of a class, in bytes of UTF-8: 64 characters.
pub const CLASS_BYTES_MAX: usize = 256;
pub const REQUEST_BYTES: usize = 32 + CLASS_BYTES_MAX;
pub const REPLY_BYTES: usize = 72 + CLASS_BYTES_MAX;
/// Rate of a reply in which a socket has no limit.
pub const UNLIMITED: u64 = u64::MAX;

const MAGIC: [u8; 4] = *b"KGQC";
const VERSION: u8 = 1;
const REQUEST_CLASS: usize = 32;
const REPLY_CLASS: usize = 72;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Replaces what the program stated before.
    State,
    /// Asks only.
    Ask,
    /// Takes back what was stated.
    Withdraw,
}

impl Kind {
    const ALL: [Self; 3] = [Self::State, Self::Ask, Self::Withdraw];

    fn byte(self) -> u8 {
        match self {
            Self::State => 1,
            Self::Ask => 2,
            Self::Withdraw => 3,
        }
    }
}

/// A message of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub kind: Kind,
    /// The reply repeats it.
    pub sequence: u32,
    /// Empty: the class whose conditions the program's sockets match.
    pub class: String,
    /// Size of a message, in bytes; 0: not stated.
    pub size_bytes: u64,
    /// Longest response time, in microseconds; 0: not stated.
    pub target_us: u64,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The policy has no class of this name: nothing is stated any more.
    UnknownClass,
    /// The class does not have `join = true`: nothing is stated any more.
    NotPermitted,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Done, Self::UnknownClass, Self::NotPermitted];

    fn byte(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::UnknownClass => 1,
            Self::NotPermitted => 2,
        }
    }
}

/// Answer of a policy in force, about the program that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub outcome: Outcome,
    pub sequence: u32,
    /// Class of its sockets; empty: it has none.
    pub class: String,
    /// TCP sockets of the program that leave through the bottleneck.
    pub sockets: u32,
    /// Those whose rate is limited.
    pub paced: u32,
    /// Sum of the limits that the kernel reports, in bit/s; [`UNLIMITED`] unless all sockets have one.
    pub rate_bit_per_s: u64,
    /// Rate at which one message arrives within its target, in bit/s; 0: bulk, or the size is not known.
    pub need_bit_per_s: u64,
    /// In force, in bytes; 0: bulk, or not known yet.
    pub size_bytes: u64,
    /// In force, in microseconds; 0: bulk.
    pub target_us: u64,
    /// Messages of the program since it connected.
    pub messages: u64,
    /// Those that were transferred within the target less the policy's overhead.
    pub in_time: u64,
}

impl Request {
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        put_head(&mut bytes, self.kind.byte(), self.sequence, &self.class, REQUEST_CLASS);
        bytes[16..24].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.target_us.to_le_bytes());
        bytes
    }

    /// `None`: these are not the bytes of a request.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
        let head = Head::read(bytes, REQUEST_CLASS)?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.byte() == head.code)?;
        let (size_bytes, target_us) = (u64_at(bytes, 16), u64_at(bytes, 24));
        let is_empty = head.class.is_empty() && size_bytes == 0 && target_us == 0;
        let has_padding = bytes[12..16] == [0; 4];
        let request = Self { kind, sequence: head.sequence, class: head.class, size_bytes, target_us };
        (has_padding && (kind == Kind::State || is_empty)).then_some(request)
    }
}

impl Reply {
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        put_head(&mut bytes, self.outcome.byte(), self.sequence, &self.class, REPLY_CLASS);
        bytes[12..16].copy_from_slice(&self.sockets.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.paced.to_le_bytes());
        let numbers = [
            self.rate_bit_per_s,
            self.need_bit_per_s,
            self.size_bytes,
            self.target_us,
            self.messages,
            self.in_time,
        ];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[24 + 8 * at..32 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// `None`: these are not the bytes of a reply.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPLY_BYTES] = bytes.try_into().ok()?;
        let head = Head::read(bytes, REPLY_CLASS)?;
        let reply = Self {
            outcome: Outcome::ALL.into_iter().find(|outcome| outcome.byte() == head.code)?,
            sequence: head.sequence,
            class: head.class,
            sockets: u32_at(bytes, 12),
            paced: u32_at(bytes, 16),
            rate_bit_per_s: u64_at(bytes, 24),
            need_bit_per_s: u64_at(bytes, 32),
            size_bytes: u64_at(bytes, 40),
            target_us: u64_at(bytes, 48),
            messages: u64_at(bytes, 56),
            in_time: u64_at(bytes, 64),
        };
        (bytes[20..24] == [0; 4]).then_some(reply)
    }
}

/// What both messages begin with.
struct Head {
    code: u8,
    sequence: u32,
    class: String,
}

impl Head {
    /// `class`: where the name begins; it is the last field.
    fn read(bytes: &[u8], class: usize) -> Option<Self> {
        let length = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        let (name, padding) = bytes[class..].split_at_checked(length)?;
        let name = std::str::from_utf8(name).ok()?;
        let is_valid = bytes[..4] == MAGIC && bytes[4] == VERSION && padding.iter().all(|byte| *byte == 0);
        let head = Self { code: bytes[5], sequence: u32_at(bytes, 8), class: name.to_owned() };
        (is_valid && is_name(name)).then_some(head)
    }
}

/// A name that is too long is left out; check it with [`is_name`].
fn put_head(bytes: &mut [u8], code: u8, sequence: u32, name: &str, class: usize) {
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[5] = code;
    bytes[8..12].copy_from_slice(&sequence.to_le_bytes());
    if is_name(name) {
        bytes[6..8].copy_from_slice(&(name.len() as u16).to_le_bytes());
        bytes[class..class + name.len()].copy_from_slice(name.as_bytes());
    }
}

/// Whether this can be a class, or is empty.
pub fn is_name(text: &str) -> bool {
    text.len() <= CLASS_BYTES_MAX && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Request> {
        let stated = ("[a-zä€]{0,64}", any::<u64>(), any::<u64>());
        (0..3usize, any::<u32>(), stated).prop_map(|(kind, sequence, (class, size_bytes, target_us))| {
            let kind = Kind::ALL[kind];
            match kind {
                Kind::State => Request { kind, sequence, class, size_bytes, target_us },
                _ => Request { kind, sequence, class: String::new(), size_bytes: 0, target_us: 0 },
            }
        })
    }

    proptest! {
        #[test]
        fn request_survives_a_round_trip(request in request()) {
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
        }

        #[test]
        fn any_bytes_are_refused_or_written_the_same(
            request in request(),
            changes in proptest::collection::vec((0..REQUEST_BYTES, any::<u8>()), 0..4),
            length in 0..=REQUEST_BYTES + 1,
        ) {
            let mut bytes = request.encode().to_vec();
            changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
            if let Some(read) = Request::decode(&bytes) {
                prop_assert_eq!(&read.encode()[..], &bytes[..]);
            }
            bytes.resize(length, 0);
            prop_assert_eq!(Request::decode(&bytes).is_some() && length != REQUEST_BYTES, false);
        }

        #[test]
        fn reply_survives_a_round_trip(
            numbers in any::<[u64; 6]>(),
            which in 0..3usize,
            class in "[a-z]{0,64}",
        ) {
            let reply = Reply {
                outcome: Outcome::ALL[which],
                sequence: numbers[0] as u32,
                class,
                sockets: numbers[1] as u32,
                paced: numbers[2] as u32,
                rate_bit_per_s: numbers[0],
                need_bit_per_s: numbers[1],
                size_bytes: numbers[2],
                target_us: numbers[3],
                messages: numbers[4],
                in_time: numbers[5],
            };
            prop_assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn names_of_classes_are_bounded() {
        assert!(is_name("") && is_name("alarm") && is_name(&"€".repeat(64)));
        assert!(!is_name(&"a".repeat(CLASS_BYTES_MAX + 1)) && !is_name("a b") && !is_name("a\n"));
    }
}
