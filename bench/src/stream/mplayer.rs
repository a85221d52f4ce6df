//! The verdict against mplayer's frame counter at limited rates.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use base::verdict::Verdict;
use mpegts::RateMode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stream::settings::Depth;
use sys::clock::Deadline;

use super::fixture::Fixture;
use super::play::{Play, play};
use super::{Found, Settings};
use crate::record::Row;

const FRAMES_PER_S: f64 = 25.0;
/// mplayer starts with full buffers; its counter is read from here on.
const SETTLE_S: f64 = 4.0;
/// A counter that is slower than this share of its rate does not count normally: over ten seconds less than
/// one frame in fifty is missing.
const NORMAL: f64 = 0.98;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let film = fixture.film(120, RateMode::Cbr)?;
    let hold_s = settings.pace.full_or(16, 4);
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut agree = Row::new("same verdict", "of all");
    let (mut same, mut all) = (0.0, 0.0);
    for mbit_per_s in [30u64, 25, 20] {
        let mut row = Row::new(format!("frames per second at {mbit_per_s} Mbit/s"), "");
        for _ in 0..settings.pace.full_or(3, 1) {
            settings.pace.await_quiet()?;
            let mut server = fixture.nginx(Some(mbit_per_s * 1_000_000 / 8))?;
            let theirs = watch(&server.url(&film)?, f64::from(hold_s));
            let wanted = Play {
                film: film.clone(),
                streams: 1,
                depth: Depth::Parse,
                hold_s,
                warm_up_s: None,
                parsing: 1,
            };
            let played = play(fixture, &mut server, &wanted);
            server.stop();
            let (theirs, played) = (theirs?, played?);
            let held_s = played.judgement.hold_s.1 - played.judgement.hold_s.0;
            let ours = played.metric("frames_played").context("no frames were counted")? / held_s;
            row.pair(ours, theirs);
            row.noise.push(played.noise);
            let normal = theirs >= NORMAL * FRAMES_PER_S;
            let agreed = match played.judgement.verdict {
                Verdict::Pass => normal,
                Verdict::Fail => !normal,
                // The players were at fault: no verdict on the server.
                Verdict::Invalid => false,
            };
            same += f64::from(u8::from(agreed));
            all += 1.0;
            let mplayer = if normal { "normal" } else { "slow" };
            notes.push(format!(
                "{mbit_per_s} Mbit/s: mplayer counts {theirs:.2}/s ({mplayer}), our verdict is {}{}",
                played.judgement.verdict,
                played.judgement.reasons.first().map_or(String::new(), |reason| format!(" ({reason})")),
            ));
        }
        rows.push(row);
    }
    agree.ours.push(same);
    rows.insert(0, agree.goal_ours(&format!("{all} of {all}")));
    Ok(Found::about(
        "One stream of 25 Mbit/s (CBR, MPEG-2) from nginx with limit_rate (content bytes, without \
             headers): `mplayer -vo null -nosound -vc null`, its frame counter over wall time after 4 s \
             (peer), then one of our players (parse) and its verdict (ours). mplayer counts normally from \
             0.98 of 25 frames per second.",
    )
    .with_rows(rows)
    .with_notes(notes))
}

/// Frames per second that mplayer counts, from [`SETTLE_S`] on.
fn watch(url: &str, hold_s: f64) -> anyhow::Result<f64> {
    let mut child = Command::new("mplayer")
        .args(["-vo", "null", "-nosound", "-vc", "null", "-noconsolecontrols", url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot start mplayer; is it installed?")?;
    let mut output = child.stdout.take().context("mplayer has no output")?;
    let began = Instant::now();
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        let mut text = String::new();
        while let Ok(bytes) = output.read(&mut buffer)
            && bytes > 0
        {
            text.push_str(&String::from_utf8_lossy(&buffer[..bytes]));
            // Status lines end in a carriage return; one that is cut off is read with its rest.
            let Some(end) = text.rfind('\r') else { continue };
            if let Some(frames) = frames(&text[..end]) {
                seen.push((began.elapsed().as_secs_f64(), frames));
            }
            text.drain(..end);
        }
        seen
    });
    let deadline = Deadline::after(Duration::from_secs_f64(SETTLE_S + hold_s));
    while deadline.pause(Duration::from_millis(50)) && child.try_wait()?.is_none() {}
    // mplayer reads the network in a second process, which would outlive a kill of the first.
    let group = Pid::from_raw(-child.id().cast_signed());
    // A group that is gone already has ended by itself.
    let _ = kill(group, Signal::SIGKILL);
    child.wait()?;
    let seen = reader.join().map_err(|_| anyhow::anyhow!("mplayer's reader died"))?;
    let first = seen.iter().find(|(at, _)| *at >= SETTLE_S).context("mplayer showed no frame")?;
    let last = seen.last().context("mplayer showed no frame")?;
    // A counter that stands still at the end stood still until mplayer was ended.
    let span_s = (SETTLE_S + hold_s - first.0).max(last.0 - first.0);
    Ok((last.1 - first.1) / span_s)
}

/// The last frame number in mplayer's status lines: `V:  10.0 271/271 ??% ...`.
pub fn frames(text: &str) -> Option<f64> {
    let line = text.rsplit(['\r', '\n']).find(|line| line.contains("V:") && line.contains('/'))?;
    let counter = line.split_once("V:")?.1.split_whitespace().find(|word| word.contains('/'))?;
    counter.split('/').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::frames;

    #[test]
    fn mplayers_counter_is_read() {
        let text = "Playing x.\nV:   9.9 270/270 ??% ??% ??,?% 0 0\r\nV:  10.0 271/271 ??%\r";
        assert_eq!(frames(text), Some(271.0));
        assert_eq!(frames("Exiting... (End of file)"), None);
    }
}
