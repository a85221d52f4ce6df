//! Progress of long work on one file.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use base::format;
use indicatif::{ProgressBar, ProgressStyle};
use mpegts::Progress;

use crate::{output, stop};

/// How often a line is printed without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows progress on standard error.
pub struct FileProgress {
    bar: Option<ProgressBar>,
    /// When the next line is due, without a terminal.
    next_line: Option<Duration>,
    began: Instant,
    bytes_done: u64,
}

impl FileProgress {
    pub fn begin(what: &str, quiet: bool) -> Self {
        if !quiet {
            output::say(what);
        }
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let style =
                ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left");
            let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            stop::bar_begins(&bar);
            bar
        });
        let next_line = (!quiet && !terminal).then_some(LINE_EVERY);
        Self { bar, next_line, began: Instant::now(), bytes_done: 0 }
    }

    pub fn update(&mut self, progress: Progress) {
        self.bytes_done = progress.bytes_done;
        if let Some(bar) = &self.bar {
            if let Some(total) = progress.bytes_total {
                bar.set_length(total);
            }
            bar.set_position(progress.bytes_done);
        }
        let elapsed = self.began.elapsed();
        if let Some(line) = self.next_line.as_mut().and_then(|next| line_if_due(next, elapsed, progress)) {
            output::say(&line);
        }
    }

    /// Ends the display. Returns duration and rate.
    pub fn end(self) -> String {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.began.elapsed().as_secs_f64();
        format!("{}, {}", format::duration(seconds), rate(self.bytes_done, seconds))
    }
}

fn line_if_due(next: &mut Duration, elapsed: Duration, progress: Progress) -> Option<String> {
    if elapsed < *next {
        return None;
    }
    *next = elapsed + LINE_EVERY;
    let seconds = elapsed.as_secs_f64();
    let done = progress.bytes_done;
    let so_far = format!(
        "  {} in {}, {}",
        format::quantity(Some(done as f64), "B"),
        format::duration(seconds),
        rate(done, seconds)
    );
    let total = progress.bytes_total.filter(|total| *total >= done && done > 0);
    Some(match total {
        Some(total) => {
            let left_s = seconds * (total - done) as f64 / done as f64;
            format!(
                "{so_far}, {} % done, about {} left",
                done * 100 / total,
                format::duration_rounded_up(left_s)
            )
        }
        None => so_far,
    })
}

fn rate(bytes: u64, seconds: f64) -> String {
    // What took no measurable time has no rate.
    format::quantity(Some(bytes as f64 / seconds.max(0.001)), "B/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_every_ten_seconds_shows_time_left() {
        let mut next = LINE_EVERY;
        let at = |bytes_done, bytes_total| Progress { bytes_done, bytes_total, frames_done: 0 };
        let mut due =
            |s: u64, progress| line_if_due(&mut next, Duration::from_secs(s), progress).unwrap_or_default();
        assert_eq!(due(9, at(90_000_000, Some(400_000_000))), "");
        let line = "  100 MB in 10 s, 10 MB/s, 25 % done, about 30 s left";
        assert_eq!(due(10, at(100_000_000, Some(400_000_000))), line);
        assert_eq!(due(19, at(190_000_000, Some(400_000_000))), "");
        assert_eq!(due(21, at(210_000_000, None)), "  210 MB in 21 s, 10 MB/s");
        assert_eq!(due(40, at(0, Some(5))), "  0 B in 40 s, 0 B/s", "no guess without a rate");
    }
}
