//! Request targets: whatever is asked for stays beneath the root, and is written as it is read.
#![no_main]

use httpd::target::{parse, percent_encode};
use libfuzzer_sys::fuzz_target;
use std::os::unix::ffi::OsStrExt;
use std::path::Component;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(target) = parse(&text) {
        assert!(target.path.components().all(|part| matches!(part, Component::Normal(_))), "{target:?}");
        let _ = target.asks("json");
        let again = parse(&format!("/{}", percent_encode(target.path.as_os_str().as_bytes())));
        assert_eq!(again.map(|again| again.path), Ok(target.path), "a listing would link elsewhere");
    }
});
