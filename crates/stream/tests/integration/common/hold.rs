//! Players put through their phases as the engine does it.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::part::{AnyPart, Endpoints, HERE, HostContext, PartError, PartSpec, Progress};
use base::verdict::Verdict;
use base::workload::Judgement;
use httpd::{Server, ServerConfig};
use mpegts::{ContentSpec, make_file};
use serde_json::Value;
use stream::judge::{Players, judge};
use stream::report::ViewerReport;
use stream::viewer::part::Viewers;
use workload::part::{self, Part};

use crate::content_common::go_on;

/// No test waits longer than this beyond what a hold takes.
const GUARD: Duration = Duration::from_secs(60);

pub fn host() -> HostContext {
    let here = std::env::temp_dir();
    let say = Arc::new(|line: &str| eprintln!("{line}"));
    HostContext { say, ..HostContext::here(here.clone(), here, "unused".into()) }
}

pub fn part(settings: &Value) -> Box<dyn AnyPart> {
    let (kind, name) = (Viewers::KIND.to_owned(), "viewers".to_owned());
    let spec = PartSpec { kind, name, host: HERE.into(), settings: settings.clone(), report_items: 0 };
    (part::kind::<Viewers>().build)(&spec).expect("settings")
}

/// Prepare, start, wait to the end, stop, judge.
pub fn hold(settings: &Value) -> Result<(ViewerReport, Judgement), PartError> {
    let mut part = part(settings);
    part.prepare(&Endpoints::new(), &host())?;
    start(part.as_mut())?;
    wait(part.as_mut());
    let report: ViewerReport = serde_json::from_value(part.stop()?).expect("a report");
    let judgement = judge(&report, Players::Trusted);
    Ok((report, judgement))
}

/// Tries until a trial is valid, a few times: on a busy machine players can be late.
pub fn until_valid<T>(mut attempt: impl FnMut() -> (T, Judgement)) -> (T, Judgement) {
    for _ in 1..5 {
        let (report, judgement) = attempt();
        if judgement.verdict != Verdict::Invalid {
            return (report, judgement);
        }
        eprintln!("once more: {:?}", judgement.reasons);
    }
    attempt()
}

/// Start in a moment; once more where this thread was kept off the CPU until the moment had passed.
pub fn start(part: &mut dyn AnyPart) -> Result<(), PartError> {
    let give_up = Instant::now() + GUARD;
    loop {
        let at_ns = sys::clock::monotonic_ns() + 20_000_000;
        match part.start(at_ns) {
            Err(error) if error.message.contains("has passed") && Instant::now() < give_up => {}
            started => return started,
        }
    }
}

pub fn wait(part: &mut dyn AnyPart) {
    let give_up = Instant::now() + GUARD;
    while !matches!(part.progress(), Progress::Finished) {
        assert!(Instant::now() < give_up, "the players do not end: {:?}", part.progress());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Content of 25 Mbit/s in a file `film.ts`, served by the embedded server, and its URL.
pub fn served(directory: &Path, duration_s: f64) -> (Server, String) {
    let spec = ContentSpec { duration_s, ..ContentSpec::default() };
    make_file(&spec, &directory.join("film.ts"), &mut go_on).unwrap();
    let server = Server::start(ServerConfig::loopback(directory)).unwrap();
    let url = format!("http://{}/film.ts", server.local_addr());
    (server, url)
}
