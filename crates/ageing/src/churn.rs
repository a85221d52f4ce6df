//! Recording and deleting, as a file system sees it over years.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pool::Pool;

use crate::recording::{Place, Stored, Writing};
use crate::report::Growth;
use crate::{AgeingError, Result, Severity};

/// What each writer writes before it is the next one's turn.
const CHUNK_BYTES: usize = 64 << 10;
/// Written at least and at most, in multiples of the space.
const PASSES: (f64, f64) = (2.0, 4.0);
/// The layout is steady when half a pass changes the number of pieces by less than this share.
const STEADY: f64 = 0.05;
/// Batches of deletions without room for what is to be written.
const BATCHES_MAX: usize = 10_000;

/// Watches and ends the ageing from another thread.
pub struct Monitor<'a> {
    /// When it says so, the ageing ends with [`AgeingError::Stopped`].
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Bytes written so far.
    pub written_bytes: &'a AtomicU64,
    /// Takes one line about what is being done now.
    pub say: &'a (dyn Fn(&str) + Sync),
}

/// The files on the file system, and what makes and deletes them.
pub(crate) struct Churn<'a> {
    pub(crate) place: Place,
    severity: Severity,
    capacity_bytes: u64,
    /// Of all files beside a pool, those under way as long as they will be. What the file system itself says
    /// is free depends on the moment, and ageing would differ each time.
    used_bytes: u64,
    random: fastrand::Rng,
    content: Vec<u8>,
    files: Vec<Stored>,
    pub(crate) deleted: u64,
    monitor: &'a Monitor<'a>,
}

struct UnderWay {
    writing: Writing,
    due_bytes: u64,
}

impl<'a> Churn<'a> {
    pub(crate) fn new(
        place: Place,
        severity: Severity,
        seed: u64,
        capacity_bytes: u64,
        monitor: &'a Monitor<'a>,
    ) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        // Of random bytes, so that no file system makes less of them.
        let mut content = vec![0; 2 * CHUNK_BYTES];
        random.fill(&mut content);
        let files = Vec::new();
        Self { place, severity, capacity_bytes, used_bytes: 0, random, content, files, deleted: 0, monitor }
    }

    pub(crate) fn files(&self) -> u64 {
        self.files.len() as u64
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.files.iter().map(Stored::len_bytes).sum()
    }

    /// Records and deletes until the layout is steady.
    pub(crate) fn run(&mut self) -> Result<Growth> {
        let began = Instant::now();
        let capacity = self.capacity_bytes as f64;
        let mut growth = Growth::default();
        let mut written_bytes = 0_u64;
        let mut next_look = capacity / 2.0;
        let mut writers: Vec<Option<UnderWay>> = (0..self.severity.writers()).map(|_| None).collect();
        while !growth.is_steady && (written_bytes as f64) < PASSES.1 * capacity {
            for writer in &mut writers {
                written_bytes += self.turn(writer)?;
            }
            if written_bytes as f64 >= next_look {
                next_look += capacity / 2.0;
                let pieces_per_mib = self.pieces_per_mib()?;
                let before = growth.pieces_per_mib.last().map(|(_, before)| *before);
                let passes = written_bytes as f64 / capacity;
                growth.pieces_per_mib.push((passes, pieces_per_mib));
                let is_close = |before: f64| (pieces_per_mib - before).abs() < STEADY * before;
                growth.is_steady = passes >= PASSES.0 && before.is_some_and(is_close);
                (self.monitor.say)(&format!(
                    "ageing: {passes:.1} times the space written, {pieces_per_mib:.2} extents per MiB"
                ));
            }
        }
        for UnderWay { writing, .. } in writers.into_iter().flatten() {
            let stored = self.place.finish(writing)?;
            self.files.push(stored);
        }
        growth.written_bytes = written_bytes;
        growth.took_s = began.elapsed().as_secs_f64();
        Ok(growth)
    }

    /// A writer's next chunk; returns how many bytes it wrote.
    fn turn(&mut self, writer: &mut Option<UnderWay>) -> Result<u64> {
        if (self.monitor.is_stopped)() {
            return Err(AgeingError::Stopped);
        }
        let mut under_way = match writer.take() {
            Some(under_way) => under_way,
            None => {
                let (due_bytes, is_recording) =
                    self.severity.next_file(&mut self.random, self.capacity_bytes);
                let fill = (self.capacity_bytes as f64 * self.severity.fill()) as u64;
                self.make_room(due_bytes, is_recording, fill)?;
                self.take(due_bytes, is_recording);
                UnderWay { writing: self.place.begin(is_recording)?, due_bytes }
            }
        };
        let left_bytes = under_way.due_bytes - under_way.writing.len_bytes();
        let chunk_bytes = left_bytes.min(CHUNK_BYTES as u64);
        self.append(&mut under_way.writing, chunk_bytes as usize)?;
        match under_way.writing.len_bytes() >= under_way.due_bytes {
            true => {
                let stored = self.place.finish(under_way.writing)?;
                self.files.push(stored);
            }
            false => *writer = Some(under_way),
        }
        Ok(chunk_bytes)
    }

    fn append(&mut self, writing: &mut Writing, bytes: usize) -> Result<()> {
        let start = self.random.usize(..=self.content.len() - bytes);
        let is_in_pool = matches!(writing, Writing::InPool { .. });
        for _ in 0..BATCHES_MAX {
            match writing.append(&self.content[start..start + bytes]) {
                Ok(()) => {
                    self.monitor.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    return Ok(());
                }
                // Others under way took the room.
                Err(error) if error.is_full() => {
                    if !self.delete_some(is_in_pool)? {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(AgeingError::Full { path: self.place.dir().to_path_buf() })
    }

    /// Deletes files at random until there is room for this many bytes beside what is used, `fill_bytes` in
    /// all; for a recording in the pool, until that has them.
    fn make_room(&mut self, bytes: u64, is_recording: bool, fill_bytes: u64) -> Result<()> {
        loop {
            let pool = self.place.pool();
            let (free_bytes, is_in_pool) = match pool.filter(|_| is_recording) {
                Some(pool) => (pool.free_bytes(), true),
                None => {
                    let used_bytes = self.used_bytes + pool.map_or(0, Pool::total_bytes);
                    (fill_bytes.saturating_sub(used_bytes), false)
                }
            };
            // Without a file of its own left, the file system has the last word.
            if free_bytes >= bytes || !self.delete_some(is_in_pool)? {
                return Ok(());
            }
        }
    }

    fn take(&mut self, bytes: u64, is_recording: bool) {
        if self.place.pool().is_none() || !is_recording {
            self.used_bytes += bytes;
        }
    }

    /// Deletes a few files at random, of the pool or of the others; `false`: there is none.
    fn delete_some(&mut self, is_in_pool: bool) -> Result<bool> {
        let mut deleted = 0;
        let wanted = self.random.usize(1..=self.severity.deleted_max());
        while deleted < wanted {
            let of_kind = self.files.iter().filter(|file| file.is_in_pool() == is_in_pool).count();
            if of_kind == 0 {
                break;
            }
            let nth = self.random.usize(..of_kind);
            let index =
                (0..self.files.len()).filter(|&index| self.files[index].is_in_pool() == is_in_pool).nth(nth);
            let Some(index) = index else { break };
            let stored = self.files.swap_remove(index);
            self.place.remove(&stored)?;
            if !is_in_pool {
                self.used_bytes = self.used_bytes.saturating_sub(stored.len_bytes());
            }
            deleted += 1;
        }
        self.deleted += deleted as u64;
        // Deleted space is given anew only when its deletion is on the disk.
        if deleted > 0 && !is_in_pool {
            self.place.sync()?;
        }
        Ok(deleted > 0)
    }

    /// Extents per MiB of all files that are there.
    fn pieces_per_mib(&self) -> Result<f64> {
        let (mut pieces, mut bytes) = (0_usize, 0_u64);
        for file in &self.files {
            pieces += self.place.locate(file)?.extents.len();
            bytes += file.len_bytes();
        }
        Ok(pieces as f64 / (bytes.max(1) as f64 / f64::from(1 << 20)))
    }

    /// Deletes files at random until this many bytes of the space are free, or none is left.
    pub(crate) fn free(&mut self, bytes: u64) -> Result<()> {
        self.make_room(bytes, false, self.capacity_bytes)
    }

    /// Records `count` files of `bytes` each at the same time, a chunk of each in turn. They are not deleted
    /// by what follows.
    pub(crate) fn record(&mut self, count: usize, bytes: u64) -> Result<Vec<Stored>> {
        // In a pool, whole segments are taken.
        let room_bytes = match self.place.pool() {
            Some(pool) => bytes.next_multiple_of(pool.segment_bytes()) * count as u64,
            None => bytes * count as u64,
        };
        let fill = (self.capacity_bytes as f64 * self.severity.fill()) as u64;
        self.make_room(room_bytes, true, fill)?;
        let mut writing = Vec::with_capacity(count);
        for _ in 0..count {
            writing.push(self.place.begin(true)?);
        }
        for _ in 0..bytes.div_ceil(CHUNK_BYTES as u64) {
            for writing in &mut writing {
                if (self.monitor.is_stopped)() {
                    return Err(AgeingError::Stopped);
                }
                self.append(writing, CHUNK_BYTES)?;
            }
        }
        let stored: Result<Vec<Stored>> = writing.into_iter().map(|one| self.place.finish(one)).collect();
        self.place.sync()?;
        stored
    }
}
