//! A program that takes the CPUs during a trial: the trial is invalid, and its load is measured again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kagiri_tests::{World, alone, undisturbed};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
/// Threads for each CPU: one more thread gets 2 % of it.
const THREADS: usize = 48;

/// Threads that use all CPUs until it is dropped.
struct Burner {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burner {
    fn start() -> Self {
        let end = Arc::<AtomicBool>::default();
        let cpus = std::thread::available_parallelism().expect("the number of CPUs").get();
        let burn = |_| {
            let end = Arc::clone(&end);
            std::thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..THREADS * cpus).map(burn).collect();
        Self { end, threads }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn fixed_load_is_measured_again_after_others_used_the_cpus() {
    let _alone = alone();
    let world = World::new();
    let verdicts = |document: &Value| {
        let trials = document["trials"].as_array().expect("trials").iter();
        trials.map(|trial| trial["verdict"].clone()).collect::<Vec<_>>()
    };
    let measure = || {
        let burner = Burner::start();
        // An eighth of what a slow core moves, and several times what a fiftieth of a fast one does.
        let words = ["transfer", "--rate", "2Gbit/s", "--omit", "1s", "--time", "1s", "--json"];
        let mut live = world.start(&words);
        live.wait_for(" invalid ", PATIENCE);
        drop(burner);
        live.end(PATIENCE)
    };
    let (ended, document) = undisturbed(|it| verdicts(it) == [json!("invalid"), json!("pass")], measure);
    eprintln!("{}", ended.stderr);
    ended.code(0);
    assert_eq!(verdicts(&document), ["invalid", "pass"], "{}", document["trials"]);
    let (first, second) = (&document["trials"][0], &document["trials"][1]);
    // Either the sampler saw the full host, or the sender knows that it was woken too late.
    let reasons = first["reasons"].to_string();
    assert!(["other programs", "woken too late"].iter().any(|why| reasons.contains(why)), "{first}");
    assert!(first["doubts"].to_string().contains("noisy_neighbour"), "{first}");
    assert_eq!((&first["load"], &first["phase"]), (&second["load"], &second["phase"]));
    // The result is that of the valid trial.
    let rate = second["metrics"]["goodput_bit_per_s"].as_f64().expect("a rate");
    let found = document["variants"][0]["findings"][0]["values"].clone();
    assert_eq!(found, json!([rate]), "{}", document["variants"][0]);
}
