//! Making ten minutes of content.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use mpegts::{RateMode, index_path, load_index};

use super::{Fixture, Found, Settings};
use crate::noise::Meter;
use crate::record::Row;
use crate::tools;

const LONG: Duration = Duration::from_secs(300);

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let duration_s = settings.pace.full_or(600, 20);
    let source = fixture.film(10, RateMode::Vbr)?;
    let (made, copied, looped) =
        (fixture.dir.join("made.ts"), fixture.dir.join("copied.ts"), fixture.dir.join("looped.ts"));
    let what = format!("{duration_s} s of 25 Mbit/s");
    let mut against_loop = Row::new(format!("{what}: make, against ffmpeg -stream_loop -c copy"), "s");
    let mut against_copy = Row::new(format!("{what}: make, against cp of the same file"), "s");
    for pair in 0..settings.pairs {
        settings.pace.await_quiet()?;
        let meter = Meter::start(0)?;
        let duration = format!("{duration_s}s");
        let make = || {
            timed(
                Command::new(&fixture.kagiri)
                    .args(["content", "make", "--quiet", "--replace", "--duration"])
                    .arg(&duration)
                    .arg(&made),
                &made,
            )
        };
        let copy = || timed(Command::new("cp").arg(&made).arg(&copied), &copied);
        let repeat = (duration_s / 10 - 1).to_string();
        let repeated = || {
            let mut command = Command::new("ffmpeg");
            command.args(["-v", "error", "-y", "-stream_loop", &repeat, "-i"]).arg(&source);
            timed(command.args(["-c", "copy", "-f", "mpegts"]).arg(&looped), &looped)
        };
        let (ours, peer, disk) = if pair.is_multiple_of(2) {
            let ours = make()?;
            (ours, repeated()?, copy()?)
        } else {
            let peer = repeated()?;
            (make()?, peer, copy()?)
        };
        against_loop.pair(ours, peer);
        against_copy.pair(ours, disk);
        let noise = meter.finish(0)?;
        against_loop.noise.push(noise);
        against_copy.noise.push(noise);
    }
    let frames = load_index(&made)?.frame_count();
    let expected = duration_s * 25;
    let mut counted = vec![exactly("frames in our index", frames as f64, expected)];
    counted.push(exactly("frames that ffprobe decodes", ffprobe(&made)?, expected));
    // mplayer counts two frames too few in every file, whichever program made it: so compare with ffmpeg's
    // film of as many frames.
    let mut shown = Row::new("frames that mplayer counts, in ours and in ffmpeg's film", "frames");
    shown.pair(mplayer(&made)?, mplayer(&looped)?);
    counted.push(shown.goal_ratio("1: the same number"));
    for path in [&made, &copied, &looped, &index_path(&made)] {
        // Gigabytes that are no longer needed; a file that cannot be removed is made again next time.
        let _ = std::fs::remove_file(path);
    }
    let mut rows = vec![against_loop.goal_ours("<= 5 s"), against_copy];
    rows.extend(counted);
    Ok(Found::about(
        "`kagiri content make --duration 600s` (MPEG-2, VBR, with its index and hashes; ours) \
             against ffmpeg repeating ten encoded seconds without encoding (the fastest way with common \
             tools: the same pictures and sizes again and again, no index), and against cp of the finished \
             file, which is what these bytes cost on this disk. All go through the page cache; the disk is \
             synchronised before each.",
    )
    .with_rows(rows))
}

fn exactly(what: &str, value: f64, expected: u32) -> Row {
    Row::single(what, "frames", value).goal_ours(&format!("{expected} exactly"))
}

/// How long a command takes that writes `path`, on a disk that has nothing else to write.
fn timed(command: &mut Command, path: &Path) -> anyhow::Result<f64> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    tools::run(&mut Command::new("sync"), LONG, &[0])?;
    Ok(tools::run(command, LONG, &[0])?.took_s)
}

fn ffprobe(path: &Path) -> anyhow::Result<f64> {
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-count_frames", "-select_streams", "v:0"]);
    command.args(["-show_entries", "stream=nb_read_frames", "-of", "default=nw=1:nk=1"]).arg(path);
    let ran = tools::run(&mut command, LONG, &[0])?;
    anyhow::ensure!(ran.stderr.trim().is_empty(), "ffprobe found errors: {}", ran.stderr);
    let last = ran.stdout.lines().last().context("ffprobe printed nothing")?;
    last.trim().parse().with_context(|| format!("ffprobe printed '{last}'"))
}

/// mplayer's own frame counter at the end, unpaced.
fn mplayer(path: &Path) -> anyhow::Result<f64> {
    let mut command = Command::new("mplayer");
    command.args(["-benchmark", "-vo", "null", "-nosound", "-vc", "null"]).arg(path);
    let ran = tools::run(&mut command, LONG, &[0])?;
    super::mplayer::frames(&ran.stdout).context("mplayer printed no frame counter")
}
