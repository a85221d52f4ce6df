//! The verdict against mplayer's frame counter over links of known rates.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base::verdict::Verdict;
use mpegts::RateMode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stream::settings::Depth;
use sys::clock::Deadline;

use super::fixture::{Fixture, Server};
use super::play::{Play, play};
use super::{Found, Settings};
use crate::fleet::fixture::Fixture as Labs;
use crate::fleet::link::{CONTENT_BYTES, FRAME_BYTES};
use crate::noise::{Meter, Noise};
use crate::record::Row;
use crate::suite;

/// Rates of the link. A film of 25 Mbit/s does not pass through 25 Mbit/s: its headers need 4 % more.
const RATES_MBIT: [u32; 3] = [30, 25, 20];
const TIMES: u32 = 3;
const FILM_BIT_PER_S: f64 = 25e6;
const FRAMES_PER_S: f64 = 25.0;
/// A counter that is slower than this share of its rate does not count normally.
const NORMAL: f64 = 0.98;
/// From the start of mplayer to the start of the hold.
const SETTLE_S: f64 = 4.0;
/// The last part of the hold, over which mplayer's counter is read.
const READ_SHARE: f64 = 1.0 / 3.0;
/// Limit of mplayer's receive buffer: the kernel's default (tcp_rmem of tcp(7)).
const RECEIVE_BUFFER_BYTES: u32 = 6 << 20;
/// mplayer's own default for HTTP.
const CACHE_KIB: u32 = 320;
const LINK_BUFFER_KIB: u32 = 256;
const SERVER: &str = "server";
const PLAYER: &str = "player";

/// What one player made of the film.
struct Played {
    frames_per_s: f64,
    /// Whether the film plays as it should; `None`: not known.
    plays: Option<bool>,
    words: String,
    noise: Noise,
}

/// The times of one pair, s.
#[derive(Clone, Copy)]
struct Times {
    hold_s: u32,
}

impl Times {
    /// From mplayer's start to the last part of its hold, and to its end.
    fn read(self) -> (f64, f64) {
        let to_s = SETTLE_S + f64::from(self.hold_s);
        (to_s - READ_SHARE * f64::from(self.hold_s), to_s)
    }

    /// Of a film that does not end before.
    fn film_s(self) -> u32 {
        self.read().1 as u32 + 10
    }
}

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let times = Times { hold_s: settings.pace.full_or(hold_s(), 4) };
    let film = fixture.film(times.film_s(), RateMode::Cbr)?;
    let labs = Labs::open(fixture.dir.clone(), fixture.kagiri.clone())?;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let (mut same, mut ours_true, mut theirs_true, mut all) = (0, 0, 0, 0);
    for mbit_per_s in RATES_MBIT {
        let lab = labs.lab("bench-mplayer", &lab_text(mbit_per_s))?;
        let mut server = fixture.embedded_on(&lab, SERVER)?;
        let truth = Some(content_bit_per_s(mbit_per_s) >= FILM_BIT_PER_S);
        let mut row = Row::new(format!("frames per second at {mbit_per_s} Mbit/s"), "");
        for number in 0..settings.pace.full_or(TIMES, 1) {
            let (ours, theirs) = suite::pair(number, |is_ours| {
                settings.pace.await_quiet()?;
                match is_ours {
                    true => lab.within(PLAYER, || ours(fixture, &mut server, &film, times))?,
                    false => lab.within(PLAYER, || theirs(&mut server, &film, times))?,
                }
            })?;
            row.pair(ours.frames_per_s, theirs.frames_per_s);
            row.noise.extend([ours.noise, theirs.noise]);
            same += u32::from(ours.plays == theirs.plays);
            ours_true += u32::from(ours.plays == truth);
            theirs_true += u32::from(theirs.plays == truth);
            all += 1;
            notes.push(format!("{mbit_per_s} Mbit/s: {}, {}", theirs.words, ours.words));
            eprintln!("  {}", notes.last().map_or("", String::as_str));
        }
        rows.push(row);
        server.stop();
        notes.extend(lab.down()?.1);
    }
    let goal = format!("{all} of {all}");
    let count = |what, count: u32| Row::single(what, "", count.into()).goal_ours(&goal);
    let counts = [
        count("same verdict", same),
        count("our verdict as the link's rate requires", ours_true),
        count("mplayer's counter as the link's rate requires", theirs_true),
    ];
    rows.splice(0..0, counts);
    Ok(Found::about(format!(
        "One stream of 25 Mbit/s (CBR, MPEG-2) from `kagiri content serve`, over a link of a lab between \
             the server's and the player's host, whose rate includes headers: 1448 bytes of content in 1514. \
             30 Mbit/s carry the film, 25 and 20 do not. `mplayer -vo null -nosound -vc null` (peer), and \
             one of our players (parse) and its verdict (ours), one at a time, for {} s. {} s are long \
             enough to use up, over 25 Mbit/s, all that the receive buffer (at most {} MiB), mplayer's cache \
             ({CACHE_KIB} KiB) and the link's buffer ({LINK_BUFFER_KIB} KiB) hold, before its last third, \
             in which mplayer's frames are counted. mplayer counts normally from {NORMAL} of {FRAMES_PER_S} \
             frames per second.",
        times.hold_s,
        hold_s(),
        RECEIVE_BUFFER_BYTES >> 20,
    ))
    .with_rows(rows)
    .with_notes(notes))
}

fn lab_text(mbit_per_s: u32) -> String {
    // Not bbr: see plans/labs/home-server-link.toml.
    format!(
        "agents = false\n[host.{SERVER}]\nsettings = {{ tcp_congestion_control = 'reno' }}\n\
         [host.{PLAYER}]\nsettings = {{ tcp_rmem = '4096 131072 {RECEIVE_BUFFER_BYTES}' }}\n[[link]]\n\
         between = ['{SERVER}', '{PLAYER}']\nrate = '{mbit_per_s}Mbit/s'\nbuffer = '{LINK_BUFFER_KIB}KiB'\n"
    )
}

/// Content that a link of this rate carries, in full frames.
fn content_bit_per_s(mbit_per_s: u32) -> f64 {
    f64::from(mbit_per_s) * 1e6 * CONTENT_BYTES / FRAME_BYTES
}

/// How long to hold, so that before the last part the slightest deficit has used up all that can be buffered.
fn hold_s() -> u32 {
    let buffered_bits = 8.0 * f64::from(RECEIVE_BUFFER_BYTES + ((CACHE_KIB + LINK_BUFFER_KIB) << 10));
    let deficits = RATES_MBIT.map(|rate| FILM_BIT_PER_S - content_bit_per_s(rate));
    let least = deficits.into_iter().filter(|deficit| *deficit > 0.0).fold(f64::INFINITY, f64::min);
    (buffered_bits / least / (1.0 - READ_SHARE)).ceil() as u32
}

/// One of our players.
fn ours(fixture: &Fixture, server: &mut Server, film: &Path, times: Times) -> anyhow::Result<Played> {
    let wanted = Play {
        film: film.to_owned(),
        streams: 1,
        depth: Depth::Parse,
        hold_s: times.hold_s,
        warm_up_s: None,
        parsing: 1,
    };
    let played = play(fixture, server, &wanted)?;
    let held_s = played.judgement.hold_s.1 - played.judgement.hold_s.0;
    let reason = played.judgement.reasons.first().map_or(String::new(), |reason| format!(" ({reason})"));
    Ok(Played {
        frames_per_s: played.metric("frames_played").context("no frames were counted")? / held_s,
        plays: match played.judgement.verdict {
            Verdict::Pass => Some(true),
            Verdict::Fail => Some(false),
            // The players were at fault: no verdict on the link.
            Verdict::Invalid => None,
        },
        words: format!("our verdict is {}{reason}", played.judgement.verdict),
        noise: played.noise,
    })
}

/// mplayer.
fn theirs(server: &mut Server, film: &Path, times: Times) -> anyhow::Result<Played> {
    let meter = Meter::start(server.cpu_ns())?;
    let frames_per_s = watch(&server.url(film)?, times.read())?;
    let noise = meter.finish(server.cpu_ns())?;
    let plays = frames_per_s >= NORMAL * FRAMES_PER_S;
    let words = format!("mplayer counts {frames_per_s:.2}/s ({})", if plays { "normal" } else { "slow" });
    Ok(Played { frames_per_s, plays: Some(plays), words, noise })
}

/// Frames per second that mplayer counts between two moments, in s after its start.
fn watch(url: &str, (from_s, to_s): (f64, f64)) -> anyhow::Result<f64> {
    let mut child = Command::new("mplayer")
        .args(["-noconfig", "all", "-vo", "null", "-nosound", "-vc", "null", "-noconsolecontrols"])
        .args(["-cache", &CACHE_KIB.to_string(), url])
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
    let deadline = Deadline::after(Duration::from_secs_f64(to_s));
    let mut ended = None;
    while deadline.pause(Duration::from_millis(50)) && ended.is_none() {
        ended = child.try_wait()?;
    }
    // mplayer reads the network in a second process, which would outlive a kill of the first.
    let group = Pid::from_raw(-child.id().cast_signed());
    // A group that is gone already has ended by itself.
    let _ = kill(group, Signal::SIGKILL);
    child.wait()?;
    let seen = reader.join().map_err(|_| anyhow::anyhow!("mplayer's reader died"))?;
    ensure!(ended.is_none(), "mplayer ended before the film did");
    rate(&seen, from_s, to_s).context("mplayer showed no frame")
}

/// Frames per second between two moments, by a counter's readings (s, frames): between two of them, and after
/// the last, it stood still. `None`: there is no reading before the first moment.
fn rate(seen: &[(f64, f64)], from_s: f64, to_s: f64) -> Option<f64> {
    let count = |moment| seen.iter().rev().find(|(at, _)| *at <= moment).map(|(_, frames)| frames);
    Some((count(to_s)? - count(from_s)?) / (to_s - from_s))
}

/// The last frame number in mplayer's status lines: `V:  10.0 271/271 ??% ...`.
pub fn frames(text: &str) -> Option<f64> {
    let line = text.rsplit(['\r', '\n']).find(|line| line.contains("V:") && line.contains('/'))?;
    let counter = line.split_once("V:")?.1.split_whitespace().find(|word| word.contains('/'))?;
    counter.split('/').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mplayers_counter_is_read() {
        let text = "Playing x.\nV:   9.9 270/270 ??% ??% ??,?% 0 0\r\nV:  10.0 271/271 ??%\r";
        assert_eq!(frames(text), Some(271.0));
        assert_eq!(frames("Exiting... (End of file)"), None);
    }

    #[test]
    fn frames_are_counted_between_two_moments_only() {
        // Full speed from buffers for 10 s, then 20 frames per second, then a counter that stands still.
        let quick = (1..=250).map(|frame| (f64::from(frame) / 25.0, f64::from(frame)));
        let slow = (1..=400).map(|frame| (10.0 + f64::from(frame) / 20.0, 250.0 + f64::from(frame)));
        let seen: Vec<_> = quick.chain(slow).collect();
        let near = |from_s, to_s, expected: f64| {
            let found = rate(&seen, from_s, to_s).unwrap();
            assert!((found - expected).abs() < 0.2, "{from_s} to {to_s} s: {found}");
        };
        near(0.1, 10.0, 25.0);
        near(10.0, 30.0, 20.0);
        near(20.0, 40.0, 10.0);
        near(30.0, 40.0, 0.0);
        assert_eq!(rate(&seen, 0.0, 10.0), None);
        assert_eq!(rate(&[], 1.0, 2.0), None);
    }

    #[test]
    fn hold_outlasts_all_buffers() {
        // 25 Mbit/s are short by 66 bytes in 1514; 6 MiB and 576 KiB hold 55 Mbit.
        let deficit_bit_per_s = 25e6 * 66.0 / 1514.0;
        let used_up_s = 8.0 * 1024.0 * (6.0 * 1024.0 + 576.0) / deficit_bit_per_s;
        let times = Times { hold_s: hold_s() };
        let (from_s, to_s) = times.read();
        assert!(from_s - SETTLE_S >= used_up_s && used_up_s > 50.0, "{from_s} {used_up_s}");
        assert!(to_s - from_s > 25.0, "long enough to tell 25 from 23.9 frames per second: {to_s}");
        assert!(f64::from(times.film_s()) > to_s, "mplayer does not play a film twice");
        let carried = RATES_MBIT.map(|rate| content_bit_per_s(rate) >= FILM_BIT_PER_S);
        assert_eq!(carried, [true, false, false], "30 Mbit/s have room for the headers");
    }
}
