//! Running other programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use sys::clock::Deadline;

/// How often a program that runs is looked at. Its run time is known to this.
const LOOK: Duration = Duration::from_millis(1);

/// What a program wrote, how long it ran, and how it ended.
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    /// From its start to its end, s.
    pub took_s: f64,
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
}

/// The program under test: the one named, or the one beside this program.
pub fn kagiri(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let path = match named {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("kagiri"),
    };
    let missing = "build it: cargo build --release --package kagiri";
    path.canonicalize().with_context(|| format!("{}: {missing}", path.display()))
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, it runs longer than `within` (and is ended), or it ends with a code that is not in
/// `codes`.
pub fn run(command: &mut Command, within: Duration, codes: &[i32]) -> anyhow::Result<Ran> {
    let name = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}; is it installed?"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || collect(out));
    let err = std::thread::spawn(move || collect(err));
    let deadline = Deadline::after(within);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if !deadline.pause(LOOK) {
            child.kill()?;
            child.wait()?;
            bail!("{name} ran longer than {} s and was ended", within.as_secs());
        }
    };
    let took_s = began.elapsed().as_secs_f64();
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let ran = Ran { stdout: text(out), stderr: text(err), took_s, code: status.code() };
    if !ran.code.is_some_and(|code| codes.contains(&code)) {
        bail!("{name} ended with {status}: {}", ran.stderr.lines().last().unwrap_or_default());
    }
    Ok(ran)
}

fn collect(pipe: Option<impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // A pipe that breaks has given what there is.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The versions of programs, by name; one that is not installed is left out.
pub fn versions(names: &[&str]) -> BTreeMap<String, String> {
    names.iter().filter_map(|&name| Some((name.to_owned(), version(Path::new(name))?))).collect()
}

pub fn version(program: &Path) -> Option<String> {
    let argument = match program.to_str() {
        Some("nginx") => "-v",
        Some("mplayer" | "ffmpeg" | "ffprobe") => "-version",
        _ => "--version",
    };
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    // Such as `nginx/1.22.1` and `debian/4.1.0`.
    let version = |word: &str| word.rsplit('/').next().unwrap_or(word).trim_end_matches(',').to_owned();
    let is_version = |word: &String| word.starts_with(|c: char| c.is_ascii_digit());
    text.split_whitespace().map(version).find(is_version)
}
