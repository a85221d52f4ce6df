//! Reading recordings back in turn, as a server does for its viewers: by a model, and from the disk.

use std::path::Path;

use nix::libc::{EINVAL, EOPNOTSUPP};
use serde::{Deserialize, Serialize};
use sys::clock::monotonic_ns;
use sys::disk::{DirectFile, Extent};

use crate::recording::Located;
use crate::{AgeingError, Result};

/// What a viewer's content is read in.
pub const READ_BYTES: u64 = 2 << 20;

/// A rotating disk, as simple as can be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DiskModel {
    /// From one piece to the next, wherever they are: seek and half a rotation.
    pub seek_s: f64,
    pub rate_bit_per_s: f64,
}

/// Rates of reading all recordings, a read of each in turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    pub mean_bit_per_s: f64,
    /// The least within a second; `None`: it took no two seconds.
    pub worst_second_bit_per_s: Option<f64>,
}

/// The rates that `model` reads these files at. Each read begins with a seek, since the last one was of
/// another file, and takes a further one for every further piece.
pub(crate) fn modelled(files: &[Located], model: DiskModel) -> Rates {
    rates(turns(files).map(|(file, offset)| {
        let pieces = pieces(&file.extents, offset, READ_BYTES) as f64;
        pieces * model.seek_s + READ_BYTES as f64 * 8.0 / model.rate_bit_per_s
    }))
}

/// The rates that the disk itself gives, past the page cache; `None`: the file system has no direct I/O.
///
/// # Errors
/// A read fails, or it is stopped.
pub(crate) fn measured(files: &[Located], is_stopped: &dyn Fn() -> bool) -> Result<Option<Rates>> {
    let mut took_s = Vec::new();
    // One for all files, because its memory is a read's.
    let mut direct: Option<DirectFile> = None;
    for (file, offset) in turns(files) {
        if is_stopped() {
            return Err(AgeingError::Stopped);
        }
        let Some((path, at)) = place_of(file, offset) else { continue };
        let file = match &mut direct {
            Some(file) => file.read_from(path).map(|()| file),
            None => DirectFile::open(path, READ_BYTES as usize, false).map(|file| direct.insert(file)),
        };
        let file = match file {
            Err(error) if is_without_direct(&error) => return Ok(None),
            opened => opened?,
        };
        let begin_ns = monotonic_ns();
        file.read_at(at)?;
        took_s.push(monotonic_ns().saturating_sub(begin_ns) as f64 / 1e9);
    }
    Ok(Some(rates(took_s.into_iter())))
}

/// Whether opening failed since the file system has no direct I/O: EINVAL of open(2), EOPNOTSUPP of others.
fn is_without_direct(error: &sys::Error) -> bool {
    let sys::Error::File { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(EINVAL | EOPNOTSUPP))
}

/// Every whole read of every file, one of each in turn: the file, and the offset in it. Viewers are at
/// different places: each file begins further on than the one before, and ends where it began.
fn turns(files: &[Located]) -> impl Iterator<Item = (&Located, u64)> {
    let reads = |file: &Located| file.spans.iter().map(|(.., len)| len).sum::<u64>() / READ_BYTES;
    let most = files.iter().map(reads).max().unwrap_or(0);
    let count = files.len().max(1) as u64;
    (0..most).flat_map(move |turn| {
        (0_u64..).zip(files).filter(move |(_, file)| turn < reads(file)).map(move |(number, file)| {
            let read = (turn + number * reads(file) / count) % reads(file);
            (file, read * READ_BYTES)
        })
    })
}

/// The file, and the offset in it, at which the content from `offset` is.
fn place_of(file: &Located, mut offset: u64) -> Option<(&Path, u64)> {
    for (path, start, len) in &file.spans {
        if offset < *len {
            return Some((path, start + offset));
        }
        offset -= len;
    }
    None
}

/// In how many pieces `len` bytes from `offset` lie; at least 1.
fn pieces(extents: &[Extent], offset: u64, len: u64) -> usize {
    let touches = |extent: &&Extent| {
        extent.offset_bytes < offset + len && extent.offset_bytes + extent.len_bytes > offset
    };
    extents.iter().filter(touches).count().max(1)
}

/// Mean and worst second of reads of [`READ_BYTES`] that took these times, one after the other.
fn rates(took_s: impl Iterator<Item = f64>) -> Rates {
    let (mut at_s, mut reads) = (0.0, 0_u64);
    let mut seconds: Vec<f64> = Vec::new();
    for took_s in took_s {
        let end_s = at_s + took_s;
        // A read that spans seconds counts in each by its share.
        let (mut second, mut from_s) = (at_s.floor(), at_s);
        while from_s < end_s {
            let to_s = (second + 1.0).min(end_s);
            let index = second as usize;
            seconds.resize(seconds.len().max(index + 1), 0.0);
            seconds[index] += (to_s - from_s) / took_s;
            (from_s, second) = (to_s, second + 1.0);
        }
        at_s = end_s;
        reads += 1;
    }
    let bits = |reads: f64| reads * READ_BYTES as f64 * 8.0;
    // The last second is not whole.
    let whole = at_s.floor() as usize;
    let worst = seconds.iter().take(whole).copied().reduce(f64::min).filter(|_| whole >= 2);
    Rates {
        mean_bit_per_s: if at_s > 0.0 { bits(reads as f64) / at_s } else { 0.0 },
        worst_second_bit_per_s: worst.map(bits),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const MODEL: DiskModel = DiskModel { seek_s: 0.012, rate_bit_per_s: 110e6 };

    fn file(pieces: &[(u64, u64)]) -> Located {
        let mut offset_bytes = 0;
        let extents = pieces.iter().map(|(at, len)| {
            let extent =
                Extent { offset_bytes, disk_offset_bytes: Some(*at), len_bytes: *len, unwritten: false };
            offset_bytes += len;
            extent
        });
        let extents = extents.collect();
        Located { spans: vec![(PathBuf::from("/f"), 0, offset_bytes)], extents }
    }

    #[test]
    fn contiguous_files_cost_one_seek_a_read_and_scattered_ones_one_a_piece() {
        let whole = [file(&[(0, 32 << 20)]), file(&[(64 << 20, 32 << 20)])];
        let read_s = READ_BYTES as f64 * 8.0 / 110e6;
        let fresh = modelled(&whole, MODEL);
        let expected = READ_BYTES as f64 * 8.0 / (read_s + 0.012);
        assert!((fresh.mean_bit_per_s / expected - 1.0).abs() < 1e-9, "{fresh:?}");
        let worst = fresh.worst_second_bit_per_s.unwrap();
        assert!((worst / expected - 1.0).abs() < 0.01, "every second is as good: {fresh:?}");

        // The first half of a file lies in pieces of 256 KiB.
        let mut pieces: Vec<_> = (0..64).map(|piece| (piece << 20, 256 << 10)).collect();
        pieces.push((1 << 30, 16 << 20));
        let aged = modelled(&[file(&pieces)], MODEL);
        let scattered = READ_BYTES as f64 * 8.0 / (read_s + 8.0 * 0.012);
        assert!((aged.worst_second_bit_per_s.unwrap() / scattered - 1.0).abs() < 0.01, "{aged:?}");
        let mean = 32.0 * 8.0 * f64::from(1 << 20) / (16.0 * read_s + 8.0 * 0.012 + 64.0 * 0.012);
        assert!((aged.mean_bit_per_s / mean - 1.0).abs() < 1e-9, "{aged:?}");
    }

    #[test]
    fn only_missing_direct_io_leaves_this_disks_rates_unknown() {
        let lost = Located { spans: vec![(PathBuf::from("/nowhere/f"), 0, READ_BYTES)], extents: Vec::new() };
        let error = measured(&[lost], &|| false).unwrap_err();
        assert!(error.to_string().contains("/nowhere/f"), "{error}");
        let refused = |code| sys::Error::File {
            action: "open",
            path: PathBuf::from("/f"),
            source: std::io::Error::from_raw_os_error(code),
        };
        assert!([EINVAL, EOPNOTSUPP].into_iter().all(|code| is_without_direct(&refused(code))));
        assert!(!is_without_direct(&refused(nix::libc::EMFILE)));
    }

    #[test]
    fn worst_second_of_less_than_two_is_unknown() {
        assert_eq!(rates([0.5, 0.6].into_iter()).worst_second_bit_per_s, None);
        let rates = rates([0.5, 0.5, 1.0, 0.25].into_iter());
        assert_eq!(rates.worst_second_bit_per_s, Some(READ_BYTES as f64 * 8.0));
    }

    #[test]
    fn content_of_a_pool_is_found_across_its_segments() {
        let path = PathBuf::from("/segments");
        let spans = vec![(path.clone(), 64 << 20, 16 << 20), (path.clone(), 0, 4 << 20)];
        let located = Located { spans, extents: Vec::new() };
        assert_eq!(place_of(&located, 2 << 20), Some((path.as_path(), 66 << 20)));
        assert_eq!(place_of(&located, 18 << 20), Some((path.as_path(), 2 << 20)));
        assert_eq!(place_of(&located, 20 << 20), None);
        let mut offsets: Vec<_> = turns(&[located]).map(|(_, offset)| offset / READ_BYTES).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..10).collect::<Vec<_>>(), "each read once");
    }
}
