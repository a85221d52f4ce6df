//! How long the timeline's page takes to draw a frame, in a real browser without a screen and without a GPU.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use base::timeline::{CallSpan, CallState, CallTimes, CpuLane, CpuSpan, Picture, ThreadLane};
use observe::timeline::pftrace;
use serde::Deserialize;

use crate::noise::Meter;
use crate::record::Row;
use crate::suite::{Found, Pace};

const BROWSER: &str = "chromium";
const PATIENCE: Duration = Duration::from_secs(120);
/// Spans in all, and lanes of threads.
const SPANS: u64 = 1_000_000;
const LANES: u64 = 8;
/// What the page's own script is watched by. It is put in front of it, so that it comes to stand between the
/// page and the browser.
const WATCH: &str = r#"<script>
const browsers = requestAnimationFrame.bind(window), drawn = [];
window.requestAnimationFrame = draw => browsers(at => {
  const from = performance.now();
  draw(at);
  drawn.push(performance.now() - from);
});
</script>"#;
/// What moves the picture as its reader would, and says how long every frame took: the script alone, and from
/// frame to frame with all that the browser does to show it.
const DRIVE: &str = r#"<script>
addEventListener('load', async () => {
  const ready = performance.now(), canvas = document.querySelector('.lanes');
  const box = canvas.getBoundingClientRect();
  const frame = () => new Promise(browsers);
  async function drive(frames, deltaY, shiftKey) {
    drawn.length = 0;
    let last = await frame(), gaps = [];
    for (let i = 0; i < frames; i++) {
      canvas.dispatchEvent(new WheelEvent('wheel', {
        deltaY, shiftKey, clientX: box.left + box.width * 0.6, clientY: box.top + 50, cancelable: true,
      }));
      const at = await frame();
      gaps.push(at - last);
      last = at;
    }
    return { script: drawn.slice(), frame: gaps };
  }
  const whole = await drive(120, 60, true), zooming = await drive(120, -20, false);
  const deep = await drive(120, 60, true);
  console.log('kagiri-frames ' + JSON.stringify({ ready, whole, zooming, deep }));
});
</script>"#;

/// The times that the page reports, ms.
#[derive(Deserialize)]
struct Frames {
    /// From the beginning of the navigation to the picture.
    ready: f64,
    whole: Motion,
    zooming: Motion,
    deep: Motion,
}

#[derive(Deserialize)]
struct Motion {
    script: Vec<f64>,
    frame: Vec<f64>,
}

/// Draws a million spans, and exports them.
pub(super) fn measure(dir: &Path, pace: &Pace) -> anyhow::Result<Found> {
    let picture = picture();
    let page = report::timeline::page(&times(), &picture);
    let (megabytes, exported) = (page.len() as f64 / 1e6, pftrace::encode(&picture).len());
    let page = page.replacen("<style>", &format!("{WATCH}<style>"), 1).replacen(
        "</body>",
        &format!("{DRIVE}</body>"),
        1,
    );
    let file = dir.join("frames.html");
    std::fs::write(&file, page)?;
    pace.await_quiet()?;
    let meter = Meter::start(0)?;
    let frames = frames_of(&file, dir)?;
    let noise = meter.finish(0)?;
    let row = |what: String, unit: &str, values: Vec<f64>| Row {
        ours: values,
        noise: vec![noise],
        ..Row::new(what, unit)
    };
    let mut rows = Vec::new();
    for (view, motion) in
        [("the whole", frames.whole), ("zooming in", frames.zooming), ("zoomed in", frames.deep)]
    {
        rows.push(row(format!("{view}: from frame to frame"), "ms", motion.frame).goal_ours("<= 50"));
        rows.push(row(format!("{view}: the page's script"), "ms", motion.script));
    }
    rows.push(row("until the first frame".into(), "ms", vec![frames.ready]));
    rows.push(row("the page".into(), "MB", vec![megabytes]));
    let of_span = exported as f64 / picture.spans() as f64;
    rows.push(row("Perfetto's format, a span".into(), "B", vec![of_span]).goal_ours("<= 40"));
    Ok(Found::about(format!(
        "The page with {SPANS} spans in {LANES} lanes of threads and 4 of CPUs, moved by the wheel in \
             {BROWSER} without a screen or GPU, 1200 x 900 pixels. A frame comes at most every 16.7 ms."
    ))
    .with_rows(rows)
    .with_versions(&[BROWSER]))
}

/// Calls as a busy server makes them: in eight threads, of a few kinds, some of which wait; nothing is so
/// regular that drawing it is easy.
fn picture() -> Picture {
    let mut random = fastrand::Rng::with_seed(7);
    let of_cpus = SPANS / 5;
    let calls_of_lane = (SPANS - of_cpus) / LANES;
    let mut length_ns = 0;
    let mut lane = |thread: u32| {
        let mut at_ns = 0;
        let calls = (0..calls_of_lane).map(|_| {
            let is_blocked = random.u8(..10) == 0;
            let from_ns = at_ns + random.u64(300..4000);
            let to_ns = from_ns + if is_blocked { random.u64(5_000..200_000) } else { random.u64(300..9000) };
            at_ns = to_ns;
            length_ns = length_ns.max(to_ns);
            let state = if is_blocked { CallState::Blocked } else { CallState::Ready };
            CallSpan { from_ns, to_ns, name: random.u16(..4), state, unfinished: false, returned: 1460 }
        });
        ThreadLane { thread, process: 100, name: format!("worker-{thread}"), calls: calls.collect() }
    };
    let threads = (100..).take(LANES as usize).map(&mut lane).collect();
    let step_ns = length_ns * 4 / of_cpus;
    let spans = |what: fn(u64) -> u32| -> Vec<CpuSpan> {
        let of_lane = 0..of_cpus / 4;
        of_lane
            .map(|n| CpuSpan {
                from_ns: n * step_ns,
                to_ns: n * step_ns + step_ns * (n % 7) / 8,
                what: what(n),
            })
            .collect()
    };
    let cpu =
        |cpu| CpuLane { cpu, runs: spans(|n| (n % LANES) as u32), softirqs: spans(|n| 2 + (n % 2) as u32) };
    let names = ["recvfrom", "sendto", "epoll_wait", "write"].map(String::from);
    Picture { length_ns, names: names.into(), threads, cpus: vec![cpu(0), cpu(1)], ..Picture::default() }
}

/// The page's tables are of no interest here.
fn times() -> CallTimes {
    CallTimes {
        target: "a million spans".into(),
        ended: None,
        wall_s: 1.0,
        processes: 1,
        threads: LANES,
        calls: Vec::new(),
        softirqs: Vec::new(),
        unfinished: Vec::new(),
        backend: "bpf".into(),
        backend_because: None,
        events_counted: SPANS,
        events: SPANS,
        events_lost: 0,
        calls_lost: 0,
        cost_ns_per_call: None,
        cost: None,
        doubts: Vec::new(),
    }
}

struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens the page and waits for its times.
fn frames_of(page: &Path, dir: &Path) -> anyhow::Result<Frames> {
    let profile = dir.join("browser");
    let mut command = Command::new(BROWSER);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--window-size=1200,900",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display())).arg(format!("file://{}", page.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut browser =
        Browser(command.spawn().with_context(|| format!("cannot start {BROWSER}; is it installed?"))?);
    let errors = browser.0.stderr.take().context("its errors are piped")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once("kagiri-frames ") {
                let _ = sender.send(rest.to_owned());
            }
        }
    });
    let line = lines.recv_timeout(PATIENCE).with_context(|| format!("{BROWSER} reported nothing"))?;
    // The browser writes the place in its source behind.
    let text = line.rsplit_once('}').map_or(line.as_str(), |(text, _)| text);
    Ok(serde_json::from_str(&format!("{text}}}"))?)
}
