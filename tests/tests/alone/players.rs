//! Real players play what kagiri makes and serves, and agree with its verdicts. Real servers are measured.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kagiri_tests::{
    Live, Namespaces, Nginx, World, alone, is_root, need_programs, need_root, wait_until, with_verdict,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);
const SPAWN: &str = "http://";

/// Make a film; returns how many frames the program says it has.
fn make(world: &World, name: &str, words: &[&str]) -> u64 {
    let said = world.run(&[&["content", "make", name][..], words].concat()).code(0).stdout;
    let frames = said.split(" frames").next().and_then(|before| before.rsplit(' ').next());
    frames.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no number of frames in {said}"))
}

/// Serve the world's folder with the embedded server and an access log.
fn serve(world: &World) -> (Live, String) {
    let log = world.path("access.log");
    let words = ["content", "serve", ".", "--listen", "127.0.0.1:0", "--access-log"];
    let mut live = world.start(&[&words[..], &[log.to_str().expect("text")]].concat());
    live.wait_for(SPAWN, Duration::from_secs(10));
    let url = live.stdout().split(" at ").nth(1).expect("a ready line").trim().to_owned();
    (live, url)
}

fn run(program: &str, words: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    let ended = Live::start(command).end(PATIENCE);
    (ended.status.success(), ended.stdout, ended.stderr)
}

#[test]
fn ffmpeg_decodes_every_frame_of_every_kind_of_content() {
    need_programs!("ffmpeg", "ffprobe");
    let _alone = alone();
    let world = World::new();
    let kinds: [(&str, &[&str]); 4] = [
        ("mpeg2-vbr.ts", &[]),
        ("mpeg2-cbr.ts", &["--cbr"]),
        ("h264-vbr.ts", &["--codec", "h264"]),
        ("h264-cbr.ts", &["--codec", "h264", "--cbr"]),
    ];
    let (_live, url) = serve(&world);
    for (name, words) in kinds {
        let frames = make(&world, name, &[words, &["--duration", "6s"]].concat());
        let url = format!("{url}{name}");
        let count = [
            "-v",
            "error",
            "-count_frames",
            "-select_streams",
            "v",
            "-show_entries",
            "stream=nb_read_frames",
        ];
        let (worked, counted, said) = run("ffprobe", &[&count[..], &["-of", "csv=p=0", &url]].concat());
        assert!(worked && said.is_empty(), "{name}: {said}");
        // Once for the stream, and once for the program that it belongs to.
        let counted = counted.split([',', '\n']).find(|count| !count.is_empty());
        assert_eq!(counted.and_then(|count| count.parse().ok()), Some(frames), "{name}");
        let (worked, _, said) = run("ffmpeg", &["-v", "error", "-i", &url, "-f", "null", "-"]);
        assert!(worked && said.is_empty(), "{name}: {said}");
        // The container keeps its clock: the times of the pictures end where the film ends.
        let times = ["-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0", &url];
        let seconds: f64 = run("ffprobe", &times).1.trim().parse().unwrap();
        assert!((seconds - 6.0).abs() < 0.1, "{name}: {seconds} s");
    }
}

/// An mplayer that plays without showing, and the frame that it has come to.
struct Mplayer {
    child: std::process::Child,
    frame: Arc<AtomicU64>,
    said: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl Mplayer {
    /// Start it. Never with `-benchmark`: that would not keep the pace.
    fn start(url: &str, home: &Path) -> Self {
        let mut child = Command::new("mplayer")
            .args(["-noconfig", "all", "-vo", "null", "-nosound", "-vc", "null", "-nolirc", url])
            .env("HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("mplayer starts");
        let (frame, said) = (Arc::<AtomicU64>::default(), Arc::<Mutex<String>>::default());
        let (counter, words) = (Arc::clone(&frame), Arc::clone(&said));
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let reader = std::thread::spawn(move || {
            let mut line = Vec::new();
            // The status line, "V:   3.4  60/ 60 ...", ends with a carriage return.
            while stdout.read_until(b'\r', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                let status = text.split("V:").last().filter(|_| text.contains("V:"));
                let count = status
                    .and_then(|status| status.split('/').next()?.split_whitespace().last()?.parse().ok());
                match count {
                    Some(count) => counter.store(count, Ordering::Relaxed),
                    None => words.lock().expect("no reader panics").push_str(&text),
                }
                line.clear();
            }
        });
        Self { child, frame, said, reader }
    }

    fn frame(&self) -> u64 {
        self.frame.load(Ordering::Relaxed)
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some() && self.reader.is_finished()
    }
}

impl Drop for Mplayer {
    fn drop(&mut self) {
        // mplayer reads the network in a second process, which would outlive a kill of the first.
        let group = nix::unistd::Pid::from_raw(-self.child.id().cast_signed());
        let _ = nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn trial(url: &str, verdict: &str) -> Value {
    trial_from(url, verdict, |command| command)
}

/// [`trial`], by a command that runs elsewhere.
fn trial_from(url: &str, verdict: &str, elsewhere: impl Fn(Command) -> Command) -> Value {
    let world = World::new();
    let words = ["stream", url, "--streams", "1", "--hold", "6s", "--json"];
    let measure = || {
        let ended = Live::start(elsewhere(world.command(&words))).end(PATIENCE);
        world.assert_nothing_left(ended.pid);
        ended
    };
    let (ended, document) = with_verdict(verdict, measure);
    ended.code(0);
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], verdict, "{}", trial["reasons"]);
    trial.clone()
}

#[test]
fn mplayer_agrees_with_the_verdict_at_full_and_at_limited_rate() {
    need_programs!("mplayer", "nginx");
    let _alone = alone();
    let world = World::new();
    let frames = make(&world, "film.ts", &["--duration", "20s", "--cbr"]);
    // 25 Mbit/s of film through 20 Mbit/s.
    let (full, limited) = (Nginx::start(&world.path(""), 0), Nginx::start(&world.path(""), 2_500_000));
    let mut at_full = Mplayer::start(&full.url("film.ts"), &world.path("tmp"));
    let at_limited = Mplayer::start(&limited.url("film.ts"), &world.path("tmp"));
    wait_until("mplayer has played the film", PATIENCE, || at_full.has_ended());
    let (quick, slow) = (at_full.frame(), at_limited.frame());
    // It does not count the last few, whose times it cannot tell.
    assert!(
        quick <= frames && quick + 3 >= frames,
        "{quick} of {frames} frames: {}",
        at_full.said.lock().unwrap()
    );
    assert!(
        slow > 0 && (slow as f64) < 0.92 * quick as f64,
        "while one played {quick} frames, the other {slow}"
    );
    drop(at_limited);
    trial(&full.url("film.ts"), "pass");
    trial(&limited.url("film.ts"), "fail");
}

#[test]
fn vlc_fetches_the_content() {
    need_programs!("cvlc", "setpriv");
    let _alone = alone();
    let world = World::new();
    make(&world, "film.ts", &["--duration", "5s", "--bitrate", "5Mbit/s"]);
    let (_live, url) = serve(&world);
    // VLC refuses to run as root.
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(if is_root() { "setpriv" } else { "cvlc" });
    if is_root() {
        std::os::unix::fs::chown(home.path(), Some(65534), Some(65534)).unwrap();
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cvlc"]);
    }
    command.args(["-I", "dummy", "--no-audio", "--vout", "dummy", "--play-and-exit"]);
    command.arg(format!("{url}film.ts")).arg("vlc://quit");
    command
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .current_dir("/")
        .stdin(Stdio::null());
    command.process_group(0);
    let ended = Live::start(command).end(PATIENCE);
    assert!(ended.status.success(), "{ended:?}");
    // Written once a second.
    let log = || std::fs::read_to_string(world.path("access.log")).unwrap_or_default();
    wait_until("the server's log names VLC", PATIENCE, || {
        log().contains("/film.ts") && log().contains("VLC")
    });
}

#[test]
fn a_server_that_is_already_there_is_found_by_its_port() {
    need_programs!("nginx");
    let _alone = alone();
    let world = World::new();
    make(&world, "film.ts", &["--duration", "20s"]);
    let nginx = Nginx::start(&world.path(""), 0);
    let trial = trial(&nginx.url("film.ts"), "pass");
    let metrics = &trial["metrics"];
    for name in ["server_cpu_percent", "server_memory_bytes", "network_bit_per_s"] {
        assert!(metrics[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {}", metrics[name]);
    }
    let (played, expected) = (metrics["frames_played"].as_f64(), metrics["frames_expected"].as_f64());
    assert_eq!(played, expected);
}

#[test]
fn nginx_can_be_the_server_that_is_made() {
    need_programs!("nginx");
    let _alone = alone();
    let world = World::new();
    make(&world, "film.ts", &["--duration", "20s"]);
    let words =
        ["stream", "--server", "nginx", "--content", "film.ts", "--streams", "2", "--hold", "3s", "--json"];
    let (ended, document) = with_verdict("pass", || world.measure(&words, PATIENCE));
    ended.code(0);
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], "pass", "{}", trial["reasons"]);
    assert!(trial["metrics"]["server_cpu_percent"].as_f64().is_some_and(|percent| percent > 0.0), "{trial}");
}

#[test]
fn the_load_of_a_server_elsewhere_is_absent_not_zero() {
    need_root!();
    need_programs!("ip");
    let _alone = alone();
    let world = World::new();
    make(&world, "film.ts", &["--duration", "15s"]);
    let net = Namespaces::new(&["server", "player"]);
    let listen = format!("{}:8080", net.address("server"));
    let serve = world.command(&["content", "serve", ".", "--open", "--listen", &listen]);
    let mut live = Live::start(net.on("server", &serve));
    live.wait_for(SPAWN, Duration::from_secs(10));
    let trial = trial_from(&format!("http://{listen}/film.ts"), "pass", |command| net.on("player", &command));
    for name in ["server_cpu_percent", "server_memory_bytes", "disk_bit_per_s"] {
        assert!(trial["metrics"][name].is_null(), "{name}: {}", trial["metrics"][name]);
    }
    // What came over the network is known from the players.
    assert!(
        trial["metrics"]["network_bit_per_s"].as_f64().is_some_and(|rate| rate > 20e6),
        "{}",
        trial["metrics"]
    );
    live.signal(nix::sys::signal::Signal::SIGTERM);
    live.end(PATIENCE).code(0);
}
