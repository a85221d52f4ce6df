//! Modelled disks: what is measured through the kernel against what the parameters say.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::disk::{Direction, Disk, DiskModel, DiskSpec, Rotating, ServiceTime};
use lab::supervisor::Program;
use nix::fcntl::{FallocateFlags, fallocate};
use sys::disk::{DirectFile, FileSystem, ImageSpec, drop_file_cache};
use sys::journal::Journal;

use super::{Found, Settings};
use crate::record::Row;
use crate::tools;

const MODELS: [&str; 3] = ["hdd-7200", "ivdr-2006", "ssd-sata"];
const SIZE: u64 = 4 << 30;
const REQUEST: u64 = 1 << 20;
/// The film in pieces: 12 MiB in 7 extents.
const EXTENTS: u64 = 7;
const EXTENT_BYTES: u64 = 12 * REQUEST / EXTENTS / 4096 * 4096;
/// From the beginning of one to that of the next.
const APART_BYTES: u64 = 256 << 20;
/// How much of it is read at a time.
const AT_ONCE: usize = 128 << 10;

type Measure = fn(&Bench<'_>) -> anyhow::Result<f64>;

pub fn measure(settings: &Settings) -> anyhow::Result<Found> {
    let mut found = Found::about(
        "A disk that `kagiri lab` makes from a preset (a FUSE file whose server answers when the \
             model says, a loop device with direct I/O on it, ext4) against what the preset's parameters say \
             (peer).",
    );
    let journals = settings.dir.join("journal");
    // A bench that was interrupted leaves its disk behind.
    Journal::leftovers(&journals, Duration::ZERO)?
        .journals
        .into_iter()
        .for_each(|leftover| drop(leftover.replay()));
    for name in MODELS {
        let model = DiskModel::preset(name)?;
        let bench = Bench::make(settings, name, &model)?;
        let (read, write, random) = (rate(&model, false), rate(&model, true), random_reads_per_s(&model));
        let on_device: Measure = |b| b.read_sequentially(b.disk.device_path(), 1 << 30);
        let cases: [(&str, &str, f64, Measure); 5] = [
            ("sequential read of 1 MiB each, block device", "MB/s", read, on_device),
            ("sequential read of 1 MiB each, file on ext4, past the cache", "MB/s", read, |b| {
                b.read_sequentially(&b.file, 0)
            }),
            ("sequential read, file on ext4, through the cache", "MB/s", read, |b| b.read_cached()),
            ("sequential write of 1 MiB each and fdatasync, file on ext4", "MB/s", write, |b| {
                b.write_sequentially()
            }),
            ("4 KiB random reads, block device", "1/s", random, |b| b.read_randomly()),
        ];
        for (what, unit, expected, measure) in cases {
            found.rows.push(bench.repeated(what, unit, expected, measure)?);
        }
        if let DiskModel::Rotating(disk) = &model {
            found.rows.extend(bench.fragments(&model, disk)?);
        }
        let counters = bench.disk.counters()?.context("a modelled disk has counters")?;
        found.notes.push(format!(
            "{name}: answers were {:.0} us later than modelled on average, {:.1} ms at the most",
            counters.late_ns_mean as f64 / 1e3,
            counters.late_ns_max as f64 / 1e6
        ));
    }
    Ok(found)
}

fn rate(model: &DiskModel, write: bool) -> f64 {
    let rate = match model {
        DiskModel::Rotating(disk) => disk.rate,
        DiskModel::Flash(disk) if write => disk.rate_write,
        DiskModel::Flash(disk) => disk.rate_read,
    };
    rate.byte_per_s() as f64 / 1e6
}

fn random_reads_per_s(model: &DiskModel) -> f64 {
    let transfer_s = 4096.0 / rate(model, false) / 1e6;
    1.0 / match model {
        // The mean of sqrt(|x - y|) over two places drawn evenly is 8/15.
        DiskModel::Rotating(disk) => {
            disk.seek_min.s()
                + (disk.seek_max.s() - disk.seek_min.s()) * 8.0 / 15.0
                + turn_s(disk) / 2.0
                + transfer_s
        }
        DiskModel::Flash(disk) => disk.random_read_ns(4096) as f64 / 1e9,
    }
}

fn turn_s(disk: &Rotating) -> f64 {
    60.0 / f64::from(disk.rpm)
}

/// A mounted disk with a file that takes about two seconds to read.
struct Bench<'a> {
    // Dropped in this order.
    disk: Disk,
    _journal: Journal,
    settings: &'a Settings,
    name: &'static str,
    file: PathBuf,
    file_bytes: u64,
}

impl<'a> Bench<'a> {
    fn make(settings: &'a Settings, name: &'static str, model: &DiskModel) -> anyhow::Result<Self> {
        let journal = Journal::open(&settings.dir.join("journal"))?;
        let (image, target) = (settings.dir.join(format!("{name}.img")), settings.dir.join(name));
        let image = ImageSpec { image, size_bytes: SIZE, file_system: FileSystem::Ext4, target };
        let spec = DiskSpec { image, model: Some(model.clone()) };
        let program = Program { path: settings.kagiri.clone(), arguments: Vec::new() };
        let disk = Disk::create(&journal, &spec, &program)?;
        let seconds = settings.pace.full_or(2.0, 0.3);
        let file_bytes = (rate(model, false) * seconds) as u64 * 1_000_000 / REQUEST * REQUEST;
        let file = disk.target().join("film");
        let this = Self { disk, _journal: journal, settings, name, file, file_bytes };
        this.quickly(|this| {
            File::create(&this.file)?;
            this.write_requests()
        })?;
        Ok(this)
    }

    /// Does something while the disk takes no time.
    fn quickly<T>(&self, work: impl FnOnce(&Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.disk.set_paced(false)?;
        let done = work(self);
        self.disk.set_paced(true)?;
        done
    }

    fn repeated(
        &self,
        what: &str,
        unit: &str,
        expected: f64,
        measure: impl Fn(&Self) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Row> {
        let mut row = Row::new(format!("{}: {what}", self.name), unit);
        for _ in 0..self.settings.pairs {
            let (value, noise) = self.settings.pace.measured(|| measure(self))?;
            row.pair(value, expected);
            row.noise.push(noise);
        }
        Ok(row.goal_ratio("0.9 to 1.1"))
    }

    fn read_sequentially(&self, path: &Path, from: u64) -> anyhow::Result<f64> {
        let mut file = DirectFile::open(path, REQUEST as usize, false)?;
        let began = Instant::now();
        for offset in (from..from + self.file_bytes).step_by(REQUEST as usize) {
            file.read_at(offset)?;
        }
        Ok(self.file_bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
    }

    fn read_cached(&self) -> anyhow::Result<f64> {
        drop_file_cache(&self.file)?;
        let mut buffer = vec![0; REQUEST as usize];
        let began = Instant::now();
        let mut file = File::open(&self.file)?;
        while file.read(&mut buffer)? > 0 {}
        Ok(self.file_bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
    }

    fn write_requests(&self) -> anyhow::Result<f64> {
        let mut file = DirectFile::open(&self.file, REQUEST as usize, true)?;
        let began = Instant::now();
        for offset in (0..self.file_bytes).step_by(REQUEST as usize) {
            file.write_at(offset, 7)?;
        }
        file.sync()?;
        Ok(self.file_bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
    }

    fn write_sequentially(&self) -> anyhow::Result<f64> {
        self.write_requests()
    }

    fn read_randomly(&self) -> anyhow::Result<f64> {
        let mut file = DirectFile::open(self.disk.device_path(), 4096, false)?;
        let last_for = Duration::from_secs_f64(self.settings.pace.full_or(3.0, 0.3));
        let (began, mut reads) = (Instant::now(), 0);
        while began.elapsed() < last_for {
            file.read_at(fastrand::u64(0..SIZE / 4096) * 4096)?;
            reads += 1;
        }
        Ok(f64::from(reads) / began.elapsed().as_secs_f64())
    }

    /// 12 MiB in one piece and in seven, read 128 KiB at a time.
    fn fragments(&self, model: &DiskModel, disk: &Rotating) -> anyhow::Result<Vec<Row>> {
        let (whole, pieces) = (self.disk.target().join("whole"), self.disk.target().join("pieces"));
        self.quickly(|_| {
            let bytes = vec![7; EXTENT_BYTES as usize];
            let one = File::create(&whole)?;
            one.write_all_at(&bytes.repeat(EXTENTS as usize), 0)?;
            one.sync_all()?;
            // One long file of which all but the pieces is cut out.
            let many = File::create(&pieces)?;
            fallocate(&many, FallocateFlags::empty(), 0, (EXTENTS * APART_BYTES).cast_signed())?;
            for index in (0..EXTENTS).rev() {
                many.write_all_at(&bytes, index * APART_BYTES)?;
                many.sync_all()?;
                let cut = (index * APART_BYTES + EXTENT_BYTES, APART_BYTES - EXTENT_BYTES);
                if index + 1 < EXTENTS {
                    let collapse = FallocateFlags::FALLOC_FL_COLLAPSE_RANGE;
                    fallocate(&many, collapse, cut.0.cast_signed(), cut.1.cast_signed())?;
                }
            }
            many.set_len(EXTENTS * EXTENT_BYTES)?;
            many.sync_all().map_err(Into::into)
        })?;
        let starts = extents(&pieces)?;
        let modelled_s = modelled_s(model, &starts)?;
        // The first access finds the head anywhere, and is not counted.
        let mb = (EXTENTS * EXTENT_BYTES - AT_ONCE as u64) as f64 / 1e6;
        let whole_row =
            self.repeated("12 MiB in one extent", "MB/s", rate(model, false), |_| Ok(mb / read_s(&whole)?))?;
        let what = format!("12 MiB in {} extents, against the model without a clock", starts.len());
        let pieces_row = self.repeated(&what, "MB/s", mb / modelled_s, |_| Ok(mb / read_s(&pieces)?))?;
        let seeks_s: f64 = starts
            .windows(2)
            .map(|pair| pair[0].abs_diff(pair[1]) as f64 / SIZE as f64)
            .map(|distance| disk.seek_min.s() + (disk.seek_max.s() - disk.seek_min.s()) * distance.sqrt())
            .sum();
        let count = (starts.len() - 1) as f64;
        let what = format!("what each of {count:.0} further extents costs, against its seek and half a turn");
        let mut each = Row::new(format!("{}: {what}", self.name), "ms");
        for (pieces, whole) in pieces_row.ours.iter().zip(&whole_row.ours) {
            each.pair(1e3 * (mb / pieces - mb / whole) / count, 1e3 * (seeks_s / count + turn_s(disk) / 2.0));
        }
        each.noise.clone_from(&pieces_row.noise);
        Ok(vec![whole_row, pieces_row, each])
    }
}

/// How long the model alone takes for a file whose extents begin at `starts`.
fn modelled_s(model: &DiskModel, starts: &[u64]) -> anyhow::Result<f64> {
    let mut head = ServiceTime::new(model, SIZE)?;
    let bytes = EXTENTS * EXTENT_BYTES / starts.len() as u64;
    let (mut now_ns, mut began_ns) = (0, None);
    for start in starts {
        for offset in (0..bytes).step_by(AT_ONCE) {
            now_ns =
                head.access(now_ns, Direction::Read, start + offset, (bytes - offset).min(AT_ONCE as u64));
            began_ns.get_or_insert(now_ns);
        }
    }
    Ok((now_ns - began_ns.unwrap_or(0)) as f64 / 1e9)
}

/// How long it takes to read a file that is not in memory.
fn read_s(path: &Path) -> anyhow::Result<f64> {
    let length = std::fs::metadata(path)?.len();
    let mut file = DirectFile::open(path, AT_ONCE, false)?;
    // The head stands anywhere; what counts begins when it has arrived.
    file.read_at(0)?;
    let began = Instant::now();
    for offset in (0..length / AT_ONCE as u64).skip(1) {
        file.read_at(offset * AT_ONCE as u64)?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Where a file's extents begin on the disk, in bytes, by filefrag(8).
fn extents(path: &Path) -> anyhow::Result<Vec<u64>> {
    let mut command = Command::new("filefrag");
    command.args(["-v", "-b4096"]).arg(path);
    let ran = tools::run(&mut command, Duration::from_secs(30), &[0])?;
    // `   0:        0..     447:      34816..     35263:    448:             last,eof`
    let start = |line: &str| line.split(':').nth(2)?.split("..").next()?.trim().parse::<u64>().ok();
    let mut starts: Vec<u64> =
        ran.stdout.lines().skip(3).filter_map(start).map(|block| block * 4096).collect();
    starts.dedup();
    anyhow::ensure!(starts.len() > 1, "filefrag found one extent only: {}", ran.stdout);
    Ok(starts)
}
