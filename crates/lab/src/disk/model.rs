//! Parameters of disk models, with presets. Pure data.

use std::fmt;

use base::units::{BitRate, ByteSize, Span};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, de};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    #[error("there is no disk model `{0}`; use {names}, or a table with `kind`", names = preset_names())]
    UnknownPreset(String),
    #[error("disk model: `{key}` {problem}")]
    Parameter { key: &'static str, problem: &'static str },
}

/// Access times of a disk. In a lab file: the name of a preset, or a table with `kind`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum DiskModel {
    /// Seek and rotation; sequential accesses are cheap.
    Rotating(Rotating),
    /// Every access costs the same.
    Flash(Flash),
}

/// A disk with platters and one head.
///
/// An access costs `seek_min + (seek_max - seek_min) * sqrt(distance / whole disk)` (Ruemmler and Wilkes, "An
/// introduction to disk drive modeling", 1994, without the linear part of long seeks), then what is missing
/// until the first sector passes, then the bytes at the rate of their zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotating {
    pub rpm: u32,
    /// Rate at the outer edge, where the addresses begin.
    pub rate: BitRate,
    /// Rate at the inner edge, where the addresses end; default: `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_inner: Option<BitRate>,
    /// Track-to-track seek time. No seek within a track.
    pub seek_min: Span,
    /// Full-stroke seek time.
    pub seek_max: Span,
    /// Bytes to read ahead while the head is idle.
    #[serde(default)]
    pub read_ahead: ByteSize,
    /// Bytes of read-ahead buffer; serves `buffer / (2 * read_ahead)` streams, at least one.
    #[serde(default)]
    pub buffer: ByteSize,
    /// Bytes of write cache; 0: none. A flush waits for it.
    #[serde(default)]
    pub write_cache: ByteSize,
    /// Rate of the interface, and so of buffer and cache.
    #[serde(default = "sata")]
    pub interface: BitRate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// From request to first byte; 0 for sequential reads.
    pub read_latency: Span,
    /// From last byte to response.
    pub write_latency: Span,
    /// Of all reads together.
    pub rate_read: BitRate,
    /// Of all writes together.
    pub rate_write: BitRate,
    /// Accesses that can wait for their latency at the same time.
    pub channels: u32,
}

/// 3 Gbit/s on the wire, 8b/10b coded (Serial ATA 2.0).
fn sata() -> BitRate {
    BitRate::from_bit_per_s(2_400_000_000)
}

const MB: u64 = 8_000_000;

type Preset = (&'static str, fn() -> DiskModel);

const PRESETS: [Preset; 4] = [
    // A desktop drive of the 2010s.
    ("hdd-7200", || DiskModel::Rotating(hdd(7200, 150, 800, 15_000, 16 << 20))),
    // A notebook or archive drive of the same years.
    ("hdd-5400", || DiskModel::Rotating(hdd(5400, 100, 1_000, 20_000, 8 << 20))),
    // A removable drive of 2006 that delivers 110 Mbit/s.
    ("ivdr-2006", || {
        let slow = hdd(5400, 0, 2_000, 18_000, 2 << 20);
        DiskModel::Rotating(Rotating { rate: BitRate::from_bit_per_s(110_000_000), ..slow })
    }),
    ("ssd-sata", || {
        DiskModel::Flash(Flash {
            read_latency: micros(80),
            write_latency: micros(40),
            rate_read: BitRate::from_bit_per_s(540 * MB),
            rate_write: BitRate::from_bit_per_s(500 * MB),
            channels: 32,
        })
    }),
];

fn micros(us: u64) -> Span {
    Span::from_duration(std::time::Duration::from_micros(us))
}

fn hdd(rpm: u32, rate_mb_s: u64, seek_min_us: u64, seek_max_us: u64, cache_bytes: u64) -> Rotating {
    Rotating {
        rpm,
        rate: BitRate::from_bit_per_s(rate_mb_s * MB),
        rate_inner: None,
        seek_min: micros(seek_min_us),
        seek_max: micros(seek_max_us),
        read_ahead: ByteSize::from_bytes(cache_bytes / 16),
        buffer: ByteSize::from_bytes(cache_bytes),
        write_cache: ByteSize::from_bytes(cache_bytes / 2),
        interface: sata(),
    }
}

fn preset_names() -> String {
    DiskModel::presets().collect::<Vec<_>>().join(", ")
}

impl DiskModel {
    pub fn preset(name: &str) -> Result<Self, ModelError> {
        let found = PRESETS.iter().find(|(known, _)| *known == name);
        found.map(|(_, make)| make()).ok_or_else(|| ModelError::UnknownPreset(name.to_owned()))
    }

    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    pub fn is_rotating(&self) -> bool {
        matches!(self, Self::Rotating(_))
    }

    pub fn check(&self) -> Result<(), ModelError> {
        let wrong = |key, problem| Err(ModelError::Parameter { key, problem });
        let slow = |rate: BitRate| rate.byte_per_s() < 1_000;
        match self {
            Self::Rotating(disk) => match disk {
                _ if !(60..=100_000).contains(&disk.rpm) => wrong("rpm", "must be 60 to 100000"),
                _ if slow(disk.rate) => wrong("rate", "must be at least 1kB/s"),
                _ if disk.rate_inner.is_some_and(slow) => wrong("rate_inner", "must be at least 1kB/s"),
                _ if disk.rate_inner.is_some_and(|inner| inner > disk.rate) => {
                    wrong("rate_inner", "must not exceed `rate`: the outer tracks are the longer ones")
                }
                _ if disk.seek_min > disk.seek_max => wrong("seek_min", "must not exceed `seek_max`"),
                _ if disk.seek_max > Span::from_s(10) => wrong("seek_max", "must be at most 10s"),
                _ if disk.interface < disk.rate => wrong("interface", "must not be slower than `rate`"),
                _ => Ok(()),
            },
            Self::Flash(disk) => match disk {
                _ if slow(disk.rate_read) => wrong("rate_read", "must be at least 1kB/s"),
                _ if slow(disk.rate_write) => wrong("rate_write", "must be at least 1kB/s"),
                _ if disk.read_latency > Span::from_s(10) => wrong("read_latency", "must be at most 10s"),
                _ if disk.write_latency > Span::from_s(10) => wrong("write_latency", "must be at most 10s"),
                _ if !(1..=4096).contains(&disk.channels) => wrong("channels", "must be 1 to 4096"),
                _ => Ok(()),
            },
        }
    }
}

impl Flash {
    /// Time of a random read of `bytes` on an idle disk, in ns.
    pub fn random_read_ns(&self, bytes: u64) -> u64 {
        self.read_latency.ns() + super::mechanism::transfer_ns(bytes, self.rate_read.byte_per_s())
    }
}

impl<'de> Deserialize<'de> for DiskModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrTable)
    }
}

/// Distinguished by their form, so that an error names the wrong key.
struct NameOrTable;

impl<'de> de::Visitor<'de> for NameOrTable {
    type Value = DiskModel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a disk model ({}) or a table with `kind`", preset_names())
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<DiskModel, E> {
        DiskModel::preset(name).map_err(E::custom)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<DiskModel, A::Error> {
        #[derive(Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        enum Table {
            Rotating(Rotating),
            Flash(Flash),
        }
        let model = match Table::deserialize(MapAccessDeserializer::new(map))? {
            Table::Rotating(disk) => DiskModel::Rotating(disk),
            Table::Flash(disk) => DiskModel::Flash(disk),
        };
        model.check().map_err(de::Error::custom)?;
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound_and_survive_json() {
        for name in DiskModel::presets() {
            let model = DiskModel::preset(name).unwrap();
            model.check().unwrap();
            let text = serde_json::to_string(&model).unwrap();
            assert_eq!(serde_json::from_str::<DiskModel>(&text).unwrap(), model, "{text}");
            assert_eq!(serde_json::from_str::<DiskModel>(&format!("\"{name}\"")).unwrap(), model);
        }
    }

    #[test]
    fn invalid_model_is_rejected_with_its_key() {
        let flash = r#""kind":"flash","read_latency":"80us","write_latency":"40us","rate_read":"540MB/s""#;
        for (text, part) in [
            (r#""floppy""#.to_owned(), "hdd-7200, hdd-5400"),
            ("7".to_owned(), "the name of a disk model"),
            (format!("{{{flash},\"rate_write\":\"5MB/s\",\"channels\":0}}"), "`channels` must be"),
            (format!("{{{flash},\"rate_write\":\"5\",\"channels\":1}}"), "the unit is missing"),
            (format!("{{{flash},\"channels\":1}}"), "rate_write"),
            (format!("{{{flash},\"rate_write\":\"5MB/s\",\"channels\":1,\"heads\":2}}"), "heads"),
            (r#"{"kind":"tape"}"#.to_owned(), "tape"),
        ] {
            let message = serde_json::from_str::<DiskModel>(&text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        let DiskModel::Rotating(disk) = DiskModel::preset("hdd-7200").unwrap() else { unreachable!() };
        let inner = Rotating { rate_inner: Some("1GB/s".parse().unwrap()), ..disk };
        assert!(DiskModel::Rotating(inner).check().unwrap_err().to_string().contains("rate_inner"));
    }
}
