//! The client where no policy is in force, or one that does not answer.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kagiri_qos::{Client, Error, Statement};

const PATIENCE: Duration = Duration::from_secs(30);

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn program_goes_on_without_a_policy() {
    let folder = folder("none");
    let mut client = Client::with(&folder, PATIENCE);
    let begun = Instant::now();
    let stated = Statement { class: "alarm", size_bytes: Some(1), target: Some(PATIENCE) };
    assert_eq!(client.state(&stated), Err(Error::NoPolicy));
    assert_eq!(client.rate(), Err(Error::NoPolicy));
    assert_eq!(client.withdraw(), Err(Error::NoPolicy));
    assert!(begun.elapsed() < PATIENCE, "it does not wait for one");
    assert_eq!(client.state(&Statement { class: "a b", ..stated }), Err(Error::Invalid));
    assert_eq!(client.state(&Statement { size_bytes: Some(0), ..stated }), Err(Error::Invalid));
}

#[test]
fn socket_of_another_kind_or_of_an_ended_policy_is_no_policy() {
    let folder = folder("ended");
    std::fs::create_dir_all(&folder).unwrap();
    let namespace = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    // A relative path would be longer than a socket's may be.
    let path = folder.join(format!("{namespace}-eth0"));
    if path.as_os_str().len() >= 107 {
        return features::skip("the path of the target folder is too long for a socket");
    }
    let stream = UnixListener::bind(&path).unwrap();
    assert_eq!(Client::with(&folder, PATIENCE).rate(), Err(Error::NoPolicy));
    drop(stream);
    assert_eq!(Client::with(&folder, PATIENCE).rate(), Err(Error::NoPolicy));
}
