//! Messages between a host and the coordinator, little-endian; docs/qos.md has the layout. A message has one
//! form only: what is read is written as the same bytes.

use crate::policy::CLASSES_MAX;

/// Longest message: a report on all classes that a policy can have.
pub const MESSAGE_BYTES_MAX: usize = REPORT_BYTES + CLASSES_MAX * CLASS_BYTES;
/// Longest name of a host, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 64;
/// Largest rate in a message, in bit/s; no link is faster.
const RATE_MAX: f32 = 1e14;

const MAGIC: [u8; 4] = *b"KGQH";
pub const VERSION: u8 = 1;
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REPORT: u8 = 3;
const GRANT: u8 = 4;
/// Up to the classes.
const REPORT_BYTES: usize = 59;
const CLASS_BYTES: usize = 16;
const UNKNOWN: u32 = u32::MAX;

/// The first message of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Random; distinguishes hosts of one name, and stays when a host connects again.
    pub id: u64,
    /// [`super::digest`] of its policy.
    pub digest: [u8; 16],
    pub name: String,
}

/// Whether the coordinator takes a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    Accepted,
    OtherPolicy,
    OtherVersion,
    TooManyHosts,
}

impl Welcome {
    const ALL: [Self; 4] = [Self::Accepted, Self::OtherPolicy, Self::OtherVersion, Self::TooManyHosts];

    fn byte(self) -> u8 {
        match self {
            Self::Accepted => 0,
            Self::OtherPolicy => 1,
            Self::OtherVersion => 2,
            Self::TooManyHosts => 3,
        }
    }
}

/// What a class of the policy did on a host. Rates in bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ClassReport {
    pub delivered_bit_per_s: f32,
    pub datagrams_bit_per_s: f32,
    /// What its messages on their way need; 0: bulk.
    pub active_need_bit_per_s: f32,
    /// TCP sockets with data on its way or waiting.
    pub active: u16,
    /// Those with data that waits to be sent.
    pub backlogged: u16,
}

/// What a host saw in a tick. Rates in bit/s.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    pub sequence: u32,
    /// The last grant that came, and how long ago that was; 0: none has come.
    pub grant: u32,
    pub since_grant_us: u32,
    pub is_late: bool,
    pub queue_us: Option<u32>,
    pub base_us: u32,
    pub target_us: u32,
    pub inflight_bytes: u32,
    pub slack_bytes: u32,
    pub delivered_segments: u32,
    pub retransmitted_segments: u32,
    /// What bulk may send now.
    pub bulk_bit_per_s: f32,
    /// What the largest message needs.
    pub message_need_bit_per_s: f32,
    /// In the order of the policy.
    pub classes: Vec<ClassReport>,
}

/// What a host may send. Rates in bit/s.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Grant {
    pub sequence: u32,
    /// The report that it answers. The grant holds from when that was sent.
    pub report: u32,
    pub lease_ms: u16,
    /// Hosts that share the bottleneck.
    pub hosts: u16,
    /// What the bottleneck carries of all hosts.
    pub capacity_bit_per_s: Option<f32>,
    /// All bulk of the host.
    pub bulk_bit_per_s: f32,
    /// In the order of the policy; 0: bulk that has sent nothing, or an urgent class without limit.
    pub classes: Vec<f32>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Report(Report),
    Grant(Grant),
}

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Of a message whose first bytes are right.
    #[error("it speaks version {0} of the protocol, not {VERSION}; install the same kagiri on all hosts")]
    Version(u8),
    #[error("it is no message of hosts on one bottleneck")]
    Other,
}

impl Message {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        match self {
            Self::Hello(hello) => {
                bytes.push(HELLO);
                bytes.extend(hello.id.to_le_bytes());
                bytes.extend(hello.digest);
                bytes.extend(hello.name.as_bytes());
            }
            Self::Welcome(welcome) => bytes.extend([WELCOME, welcome.byte()]),
            Self::Report(report) => {
                bytes.extend([REPORT, u8::from(report.is_late)]);
                report.put(&mut bytes);
            }
            Self::Grant(grant) => {
                bytes.extend([GRANT, u8::from(grant.capacity_bit_per_s.is_some())]);
                grant.put(&mut bytes);
            }
        }
        bytes
    }

    /// # Errors
    /// These are not the bytes of a message of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        if bytes.len() > MESSAGE_BYTES_MAX || reader.array() != Some(MAGIC) {
            return Err(Malformed::Other);
        }
        match reader.array() {
            Some([VERSION]) => Self::read(&mut reader).ok_or(Malformed::Other),
            Some([version]) => Err(Malformed::Version(version)),
            None => Err(Malformed::Other),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let [kind] = reader.array()?;
        let message = match kind {
            HELLO => Self::Hello(Hello {
                id: u64::from_le_bytes(reader.array()?),
                digest: reader.array()?,
                name: name(std::mem::take(&mut reader.0))?,
            }),
            WELCOME => {
                let [code] = reader.array()?;
                Self::Welcome(Welcome::ALL.into_iter().find(|welcome| welcome.byte() == code)?)
            }
            REPORT => Self::Report(Report::read(reader)?),
            GRANT => Self::Grant(Grant::read(reader)?),
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }
}

/// A rate as it can be in a message.
pub(super) fn rate(bit_per_s: f64) -> f32 {
    match bit_per_s > 0.0 {
        true => (bit_per_s as f32).min(RATE_MAX),
        false => 0.0,
    }
}

/// A name is what a terminal can show in a word.
fn name(bytes: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(bytes).ok()?;
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    (!name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain)).then(|| name.to_owned())
}

impl Report {
    fn put(&self, bytes: &mut Vec<u8>) {
        let numbers = [
            self.sequence,
            self.grant,
            self.since_grant_us,
            self.queue_us.unwrap_or(UNKNOWN),
            self.base_us,
            self.target_us,
            self.inflight_bytes,
            self.slack_bytes,
            self.delivered_segments,
            self.retransmitted_segments,
        ];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        for rate in [self.bulk_bit_per_s, self.message_need_bit_per_s] {
            bytes.extend(rate.to_le_bytes());
        }
        bytes.extend((self.classes.len() as u32).to_le_bytes());
        for class in &self.classes {
            bytes.extend(class.delivered_bit_per_s.to_le_bytes());
            bytes.extend(class.datagrams_bit_per_s.to_le_bytes());
            bytes.extend(class.active_need_bit_per_s.to_le_bytes());
            bytes.extend(class.active.to_le_bytes());
            bytes.extend(class.backlogged.to_le_bytes());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let is_late = reader.flag()?;
        let [sequence, grant, since_grant_us, queue_us, base_us, target_us] = reader.numbers()?;
        let [inflight_bytes, slack_bytes, delivered_segments, retransmitted_segments] = reader.numbers()?;
        let [bulk_bit_per_s, message_need_bit_per_s] = reader.rates()?;
        let count = reader.count()?;
        let mut classes = Vec::with_capacity(count);
        for _ in 0..count {
            let [delivered_bit_per_s, datagrams_bit_per_s, active_need_bit_per_s] = reader.rates()?;
            let (active, backlogged) =
                (u16::from_le_bytes(reader.array()?), u16::from_le_bytes(reader.array()?));
            classes.push(ClassReport {
                delivered_bit_per_s,
                datagrams_bit_per_s,
                active_need_bit_per_s,
                active,
                backlogged,
            });
        }
        Some(Self {
            sequence,
            grant,
            since_grant_us,
            is_late,
            queue_us: (queue_us != UNKNOWN).then_some(queue_us),
            base_us,
            target_us,
            inflight_bytes,
            slack_bytes,
            delivered_segments,
            retransmitted_segments,
            bulk_bit_per_s,
            message_need_bit_per_s,
            classes,
        })
    }
}

impl Grant {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.report.to_le_bytes());
        bytes.extend(self.lease_ms.to_le_bytes());
        bytes.extend(self.hosts.to_le_bytes());
        bytes.extend(self.capacity_bit_per_s.unwrap_or(0.0).to_le_bytes());
        bytes.extend(self.bulk_bit_per_s.to_le_bytes());
        bytes.extend((self.classes.len() as u32).to_le_bytes());
        self.classes.iter().for_each(|rate| bytes.extend(rate.to_le_bytes()));
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let is_known = reader.flag()?;
        let [sequence, report] = reader.numbers()?;
        let (lease_ms, hosts) = (u16::from_le_bytes(reader.array()?), u16::from_le_bytes(reader.array()?));
        let [capacity, bulk_bit_per_s] = reader.rates()?;
        let count = reader.count()?;
        let classes: Option<Vec<f32>> = (0..count).map(|_| reader.rate()).collect();
        let capacity_bit_per_s = is_known.then_some(capacity);
        let grant =
            Self { sequence, report, lease_ms, hosts, capacity_bit_per_s, bulk_bit_per_s, classes: classes? };
        (is_known || capacity.to_bits() == 0).then_some(grant)
    }
}

/// The bytes that are left.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn numbers<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u32::from_le_bytes(self.array()?);
        }
        Some(numbers)
    }

    fn rates<const N: usize>(&mut self) -> Option<[f32; N]> {
        let mut rates = [0.0; N];
        for rate in &mut rates {
            *rate = self.rate()?;
        }
        Some(rates)
    }

    fn rate(&mut self) -> Option<f32> {
        let rate = f32::from_le_bytes(self.array()?);
        (rate.is_sign_positive() && (0.0..=RATE_MAX).contains(&rate)).then_some(rate)
    }

    /// Of classes.
    fn count(&mut self) -> Option<usize> {
        let [count] = self.numbers()?;
        usize::try_from(count).ok().filter(|count| *count <= CLASSES_MAX)
    }
}

#[cfg(test)]
mod tests;
