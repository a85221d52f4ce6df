//! The disk's time, without a clock: physical limits, and the averages that follow from the parameters.

use lab::disk::{Direction, DiskModel, Rotating, ServiceTime};
use proptest::prelude::*;

const SIZE: u64 = 8 << 30;

fn rotating(name: &str) -> Rotating {
    match DiskModel::preset(name).unwrap() {
        DiskModel::Rotating(disk) => disk,
        DiskModel::Flash(_) => panic!("{name} does not turn"),
    }
}

fn head(disk: Rotating) -> ServiceTime {
    ServiceTime::new(&DiskModel::Rotating(disk), SIZE).unwrap()
}

fn turn_ns(disk: &Rotating) -> u64 {
    60_000_000_000 / u64::from(disk.rpm)
}

/// Neither reads ahead nor caches writes.
fn bare(disk: Rotating) -> Rotating {
    Rotating { read_ahead: "0".parse().unwrap(), write_cache: "0".parse().unwrap(), ..disk }
}

fn media_ns(disk: &Rotating, bytes: u64) -> u64 {
    (bytes as f64 / disk.rate.byte_per_s() as f64 * 1e9) as u64
}

#[test]
fn random_read_takes_seek_half_turn_and_transfer() {
    for name in ["hdd-7200", "hdd-5400", "ivdr-2006"] {
        for disk in [rotating(name), bare(rotating(name))] {
            let (min, max) = (disk.seek_min.ns() as f64, disk.seek_max.ns() as f64);
            // The mean of sqrt(|x - y|) over two places drawn evenly is 8/15.
            let expected =
                min + (max - min) * 8.0 / 15.0 + turn_ns(&disk) as f64 / 2.0 + media_ns(&disk, 4096) as f64;
            let mut head = head(disk);
            let mut random = fastrand::Rng::with_seed(7);
            let draws = 20_000;
            let mut now = 0;
            for _ in 0..draws {
                now = head.access(now, Direction::Read, random.u64(0..SIZE / 4096) * 4096, 4096);
            }
            let mean = now as f64 / f64::from(draws);
            assert!((mean / expected - 1.0).abs() < 0.02, "{name}: {mean} ns, expected {expected} ns");
        }
    }
}

#[test]
fn sequential_reads_reach_the_media_rate() {
    for think_ns in [0, 20_000, 300_000] {
        let disk = rotating("hdd-7200");
        let mut head = head(disk.clone());
        let (piece, pieces) = (128 << 10, 800);
        let mut now = 0;
        for index in 0..pieces {
            now = think_ns + head.access(now, Direction::Read, index * piece, piece);
        }
        let best = media_ns(&disk, piece * pieces);
        assert!(now >= best, "{think_ns}");
        // The first rotation, and the last think time.
        assert!(now <= best + turn_ns(&disk) + think_ns + 1_000_000, "{think_ns}: {now} of {best}");
        assert_eq!(head.effort().seeks, 0);
    }
}

#[test]
fn slow_host_is_served_from_the_buffer() {
    let disk = rotating("ivdr-2006");
    let mut head = head(disk.clone());
    // 64 KiB every 21 ms: 25 Mbit/s.
    let mut longest = 0;
    for index in 0..2000 {
        let now = index * 21_000_000;
        longest = longest.max(head.access(now, Direction::Read, index * 65_536, 65_536) - now);
    }
    assert!(longest <= turn_ns(&disk) + media_ns(&disk, 65_536) + 1_000, "{longest}");
    assert!(head.effort().hits > 1900, "{:?}", head.effort());
}

#[test]
fn pausing_writer_without_cache_loses_a_turn_each_time() {
    let disk = bare(rotating("hdd-7200"));
    let mut head = head(disk.clone());
    let (piece, pieces) = (64 << 10, 100);
    let mut now = 0;
    for index in 0..pieces {
        now = 50_000 + head.access(now, Direction::Write, index * piece, piece);
    }
    let per_piece = now / pieces;
    assert!(per_piece.abs_diff(turn_ns(&disk) + media_ns(&disk, piece)) < turn_ns(&disk) / 10, "{per_piece}");
}

#[test]
fn cached_writes_reach_the_media_rate_and_flush_waits() {
    let disk = rotating("hdd-7200");
    let mut head = head(disk.clone());
    let (piece, pieces) = (1 << 20, 200);
    let mut now = 0;
    for index in 0..pieces {
        now = 50_000 + head.access(now, Direction::Write, index * piece, piece);
    }
    let best = media_ns(&disk, piece * pieces);
    let cache = media_ns(&disk, disk.write_cache.bytes());
    assert!(now >= best - cache, "{now} of {best}");
    let flushed = head.flush(now);
    assert!(flushed >= best, "the cache is on the platter: {flushed} of {best}");
    assert!(flushed <= best + turn_ns(&disk) + 1_000_000, "{flushed} of {best}");
    assert_eq!(head.flush(flushed), flushed);
}

#[test]
fn scattered_cached_writes_complete_at_once_and_are_sorted() {
    let disk = rotating("hdd-7200");
    let mut head = head(disk.clone());
    let mut random = fastrand::Rng::with_seed(3);
    let writes = 200;
    let (mut now, mut last) = (0, 0);
    for _ in 0..writes {
        last = random.u64(0..SIZE / 4096) * 4096;
        now = head.access(now, Direction::Write, last, 4096);
    }
    assert!(now < 10_000_000, "they fit into the cache: {now}");
    // Data that is not on the platter yet is read from the cache.
    let read = head.access(now, Direction::Read, last, 4096);
    assert!(read < now + 100_000, "{}", read - now);
    now = read;
    let each = (head.flush(now) - now) / writes;
    // Sorted by place, seeks are short; half a turn each remains.
    assert!(each > turn_ns(&disk) / 4 && each < disk.seek_max.ns() / 2 + turn_ns(&disk) / 2, "{each}");
}

#[test]
fn fragments_cost_seeks() {
    let disk = rotating("ivdr-2006");
    let film = 12 << 20;
    let read = |extents: &[(u64, u64)]| {
        let mut head = head(disk.clone());
        let mut now = 0;
        for &(start, bytes) in extents {
            for offset in (start..start + bytes).step_by(131_072) {
                now = head.access(now, Direction::Read, offset, (start + bytes - offset).min(131_072));
            }
        }
        (now, head.effort().seeks)
    };
    let (whole, _) = read(&[(0, film)]);
    let apart: Vec<(u64, u64)> = (0..7).map(|part| (part * (SIZE / 7), film / 7)).collect();
    let (pieces, seeks) = read(&apart);
    assert_eq!(seeks, 6);
    let each = (pieces - whole) / 6;
    let seek = disk.seek_min.ns() + ((disk.seek_max.ns() - disk.seek_min.ns()) as f64 / 7f64.sqrt()) as u64;
    assert!(each >= seek - turn_ns(&disk) / 6 && each <= seek + turn_ns(&disk), "{each} ns for {seek} ns");
}

#[test]
fn read_ahead_serves_several_streams() {
    let disk = rotating("hdd-7200");
    let mut head = head(disk);
    // Four readers take turns, 64 KiB each 100 ms: the head has time to fill all their buffers.
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..100u64 {
        for stream in 0..4u64 {
            let now = (round * 4 + stream) * 25_000_000 + random.u64(0..1_000_000);
            head.access(now, Direction::Read, stream * (SIZE / 4) + round * 65_536, 65_536);
        }
    }
    assert!(head.effort().hits > 300, "{:?}", head.effort());
}

#[test]
fn flash_is_limited_by_latency_then_by_its_bus() {
    let model = DiskModel::preset("ssd-sata").unwrap();
    let mut head = ServiceTime::new(&model, SIZE).unwrap();
    let transfer = 4096 * 1_000_000_000 / 540_000_000;
    let mut now = 0;
    for index in 0..100 {
        now = head.access(now, Direction::Read, index * 40_960, 4096);
    }
    assert!((now / 100).abs_diff(80_000 + transfer) < 10);
    let start = now;
    for index in 0..3200 {
        now = head.access(start, Direction::Read, index * 40_960, 4096);
    }
    let per = (now - start) / 3200;
    assert!(per.abs_diff(transfer) < transfer / 10, "{per} ns each on the bus");
    let written = head.access(now, Direction::Write, 0, 4096);
    assert_eq!(head.flush(now), written);
}

fn accesses() -> impl Strategy<Value = Vec<(u64, bool, u64, u64)>> {
    prop::collection::vec((0..30_000_000u64, any::<bool>(), 0..SIZE / 512, 1..2048u64), 1..200)
}

fn models() -> impl Strategy<Value = DiskModel> {
    (prop::sample::select(DiskModel::presets().collect::<Vec<_>>()), any::<bool>(), any::<bool>()).prop_map(
        |(name, plain, zoned)| match DiskModel::preset(name).unwrap() {
            DiskModel::Rotating(mut disk) => {
                if zoned {
                    let half = disk.rate.bit_per_s() / 2;
                    disk.rate_inner = Some(base::units::BitRate::from_bit_per_s(half));
                }
                DiskModel::Rotating(if plain { bare(disk) } else { disk })
            }
            flash @ DiskModel::Flash(_) => flash,
        },
    )
}

proptest! {
    #[test]
    fn accesses_complete_in_order_and_not_early(model in models(), list in accesses()) {
        let mut head = ServiceTime::new(&model, SIZE).unwrap();
        let (mut now, mut last) = (0u64, 0u64);
        for (pause, write, sector, sectors) in list {
            now += pause;
            let (offset, bytes) = (sector * 512, (sectors * 512).min(SIZE - sector * 512));
            let direction = if write { Direction::Write } else { Direction::Read };
            let done = head.access(now, direction, offset, bytes);
            let fastest = match &model {
                DiskModel::Rotating(disk) => disk.interface.byte_per_s(),
                DiskModel::Flash(disk) if write => disk.rate_write.byte_per_s(),
                DiskModel::Flash(disk) => disk.rate_read.byte_per_s(),
            };
            prop_assert!(done - now >= bytes * 1_000_000_000 / fastest);
            if model.is_rotating() {
                prop_assert!(done >= last, "answered in order");
                last = done;
            }
        }
        let flushed = head.flush(now);
        prop_assert!(flushed >= now);
        prop_assert_eq!(head.flush(flushed), flushed);
    }

    /// Data from the medium takes at least its transfer time, however it is divided into accesses.
    #[test]
    fn no_pattern_reads_faster_than_the_media(
        model in models(),
        starts in prop::collection::vec(0..64u64, 1..40),
    ) {
        let DiskModel::Rotating(disk) = &model else { return Ok(()) };
        let mut head = ServiceTime::new(&model, SIZE).unwrap();
        let mut now = 0;
        let mut seen = std::collections::BTreeSet::new();
        for start in starts {
            now = head.access(now, Direction::Read, start << 20, 1 << 20);
            seen.insert(start);
        }
        prop_assert!(now >= media_ns(disk, (seen.len() as u64) << 20));
    }

    #[test]
    fn no_access_panics(
        model in models(),
        list in prop::collection::vec((any::<u64>(), any::<bool>(), any::<u64>(), any::<u64>()), 0..50),
    ) {
        let mut head = ServiceTime::new(&model, SIZE).unwrap();
        let mut now = 0u64;
        for (pause, write, offset, bytes) in list {
            now = now.saturating_add(pause % (1 << 50));
            let direction = if write { Direction::Write } else { Direction::Read };
            head.access(now, direction, offset, bytes);
            head.flush(now);
        }
    }
}
