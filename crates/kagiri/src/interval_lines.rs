//! Lines about what passed in each interval of a trial, as the intervals end (`kagiri transfer -i 1`). Pure:
//! clock and counters are passed in.

use base::format::quantity;
use base::part::Live;
use base::units::Span;

/// Live values of a transfer: bytes so far, and the word before them.
const COUNTERS: [(&str, &str); 2] = [("passed_up_bytes", "up"), ("passed_down_bytes", "down")];
/// A last interval shorter than this share of a whole one is not shown: its rate would be noise.
const SHARE_MIN: f64 = 0.5;

/// The intervals of the trials of a run.
#[derive(Debug, Clone)]
pub struct IntervalLines {
    every_s: f64,
    trial: Option<Seen>,
}

/// What was seen of a trial. Times in s.
#[derive(Debug, Clone, Copy)]
struct Seen {
    began_s: f64,
    /// When the current interval began, and the bytes until then.
    from: (f64, [f64; 2]),
    last: (f64, [f64; 2]),
}

impl IntervalLines {
    pub fn new(every: Span) -> Self {
        Self { every_s: every.s(), trial: None }
    }

    /// Counters at `now_s`; a line if an interval has ended. An interval is as long as measured, as the
    /// counters are read when they are.
    pub fn look(&mut self, now_s: f64, live: &Live) -> Option<String> {
        let bytes = COUNTERS.map(|(name, _)| live.get(name).copied().unwrap_or(0.0));
        let now = (now_s, bytes);
        let is_idle = bytes.iter().sum::<f64>() <= 0.0;
        match &mut self.trial {
            Some(seen) if !is_idle => {
                seen.last = now;
                (now_s - seen.from.0 >= self.every_s).then(|| seen.close())
            }
            // The first interval begins when the first bytes pass.
            _ => {
                self.trial = Some(Seen { began_s: now_s, from: now, last: now });
                None
            }
        }
    }

    /// The trial has ended: a line for the last interval, if it is long enough.
    pub fn end(&mut self) -> Option<String> {
        let mut seen = self.trial.take()?;
        (seen.last.0 - seen.from.0 >= self.every_s * SHARE_MIN).then(|| seen.close())
    }
}

impl Seen {
    fn close(&mut self) -> String {
        let (from, to) = (std::mem::replace(&mut self.from, self.last), self.last);
        let length_s = (to.0 - from.0).max(1e-9);
        let ways = COUNTERS.iter().enumerate().filter_map(|(at, (_, way))| {
            let bytes = to.1[at] - from.1[at];
            let rate = quantity(Some(bytes * 8.0 / length_s), "bit/s");
            (to.1[at] > 0.0).then(|| format!("{way} {} at {rate}", quantity(Some(bytes), "B")))
        });
        let ways = ways.collect::<Vec<_>>().join(", ");
        format!("{:>6.1} to {:>5.1} s  {ways}", from.0 - self.began_s, to.0 - self.began_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(up: f64, down: f64) -> Live {
        [("passed_up_bytes".to_owned(), up), ("passed_down_bytes".to_owned(), down)].into()
    }

    #[test]
    fn interval_ends_when_it_is_seen_and_a_rest_is_shown_at_the_end() {
        let mut lines = IntervalLines::new(Span::from_s(1));
        // Idle until 10.2 s.
        for (now_s, up) in [(10.0, 0.0), (10.2, 0.0), (10.3, 1e6), (10.9, 100e6)] {
            assert_eq!(lines.look(now_s, &live(up, 0.0)), None, "{now_s}");
        }
        let first = lines.look(11.2, &live(125e6, 0.0)).unwrap();
        assert_eq!(first, "   0.0 to   1.0 s  up 125 MB at 1 Gbit/s");
        assert_eq!(lines.look(11.9, &live(150e6, 0.0)), None);
        assert_eq!(lines.end().as_deref(), Some("   1.0 to   1.7 s  up 25 MB at 285.7 Mbit/s"));
        assert_eq!(lines.end(), None);
    }

    #[test]
    fn both_directions_stand_in_one_line() {
        let mut lines = IntervalLines::new(Span::from_ms(500));
        lines.look(0.0, &live(0.0, 0.0));
        let line = lines.look(0.5, &live(1e6, 2e6)).unwrap();
        assert_eq!(line, "   0.0 to   0.5 s  up 1 MB at 16 Mbit/s, down 2 MB at 32 Mbit/s");
        lines.look(0.7, &live(1e6, 3e6));
        assert_eq!(lines.end(), None, "less than half an interval is no rate");
    }
}
