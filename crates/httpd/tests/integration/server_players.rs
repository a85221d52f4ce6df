//! Real programs read from the server.

use crate::server_common;
use std::path::Path;
use std::process::{Command, Stdio};

use server_common::*;

fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    assert!(output.is_ok() || std::env::var_os("KAGIRI_TESTS_ALL").is_none(), "{program} is missing");
    let output = output.ok()?;
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn video(path: &Path) -> bool {
    let source = [
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=320x240:rate=25",
        "-t",
        "4",
        "-c:v",
        "mpeg2video",
    ];
    let target = ["-b:v", "2M", "-f", "mpegts", path.to_str().expect("a UTF-8 path")];
    run("ffmpeg", &[&source[..], &target[..]].concat()).is_some()
}

#[test]
fn ffprobe_counts_every_frame_over_http() {
    let dir = tempfile::tempdir().unwrap();
    if !video(&dir.path().join("v.ts")) {
        return features::skip("needs ffmpeg");
    }
    let server = start(dir.path(), |_| ());
    let url = format!("http://{}/v.ts", server.local_addr());
    let count = ["-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames", "-of", "csv=p=0"];
    let frames = run("ffprobe", &[&count[..], &[&url]].concat()).expect("ffprobe comes with ffmpeg");
    assert_eq!(frames.split([',', '\n']).find(|s| !s.is_empty()), Some("100"), "{frames}");
    // Seeking uses ranges.
    let late = ["-v", "error", "-ss", "3", "-i", &url, "-f", "framemd5", "-"];
    let hashes = run("ffmpeg", &late).unwrap();
    let frames = hashes.lines().filter(|line| !line.starts_with('#')).count();
    assert!((20..=30).contains(&frames), "{hashes}");
    assert!(server.stats().requests > 2, "{:?}", server.stats());
}
#[test]
fn curl_downloads_resumes_and_uploads() {
    let dir = tempfile::tempdir().unwrap();
    let content = pattern(3_000_000);
    std::fs::write(dir.path().join("f"), &content).unwrap();
    let server = start(dir.path(), |c| c.upload = true);
    let local = tempfile::tempdir().unwrap();
    let copy = local.path().join("copy");
    std::fs::write(&copy, &content[..1_000_000]).unwrap();
    let base = format!("http://{}", server.local_addr());
    let (from, file) = (format!("{base}/f"), copy.to_str().unwrap());
    if run("curl", &["-sf", "-C", "-", "-o", file, &from]).is_none() {
        return features::skip("needs curl");
    }
    assert!(std::fs::read(&copy).unwrap() == content);
    run("curl", &["-sf", "-T", file, &format!("{base}/put")]);
    run("curl", &["-sf", "-H", "Transfer-Encoding: chunked", "-T", file, &format!("{base}/chunked")]);
    for name in ["put", "chunked"] {
        assert!(std::fs::read(dir.path().join(name)).unwrap() == content, "{name}");
    }
}
