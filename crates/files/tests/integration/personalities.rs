//! Every ready program runs on small files and ends with a result.

use files::engine::report::Ended;
use files::personalities::{ALL, text};

use super::{Outcome, run_in};

/// Small values of variables that personalities have.
const SMALL: [(&str, &str); 16] = [
    ("nfiles", "60"),
    ("ndirs", "40"),
    ("filesize", "32k"),
    ("logfilesize", "1m"),
    ("nthreads", "2"),
    ("ndbwriters", "2"),
    ("numactivevids", "3"),
    ("numpassivevids", "8"),
    ("usermode", "1000"),
    ("repintval", "0"),
    ("eventrate", "0"),
    ("thinktime", "0"),
    ("meandirwidth", "10"),
    ("meanfilesize", "4k"),
    // Fewer than the slots without a file: one program creates so many ahead of the deletes.
    ("count", "20"),
    ("fileindex", "randvar(type=uniform,mean=30)"),
];

#[test]
fn every_personality_runs_and_counts() {
    for strict in [false, true] {
        for (name, program) in ALL {
            let set: Vec<(&str, &str)> = SMALL
                .into_iter()
                .filter(|(variable, _)| program.contains(&format!("set ${variable}=")))
                .collect();
            // On a busy machine, threads may begin after a short run has ended.
            let mut runs = [100_000_000, 3_000_000_000].into_iter().map(|hold_ns| {
                run_in(tempfile::tempdir().unwrap(), program, &set, |settings| {
                    (settings.is_strict, settings.hold_ns) = (strict, hold_ns);
                })
            });
            let is_counted =
                |outcome: &Outcome| outcome.report.rows.iter().any(|row| row.is_counted && row.all_count > 0);
            let outcome = runs.find(is_counted).unwrap_or_else(|| panic!("{name} counted nothing"));
            let is_direct = name.ends_with("direct") || name == "oltp";
            match &outcome.report.ended {
                Ended::Time | Ended::Done => {}
                // filebench skips deletes, so that its files run out.
                Ended::Exhausted(_) if strict => {}
                // Not every file system has direct I/O.
                Ended::Failed(why) if is_direct && why.contains("Invalid argument") => {}
                other => panic!("{name}, strict {strict}: {other:?}"),
            }
            assert!(outcome.report.rows.iter().all(|row| row.errors.is_empty() || is_direct), "{name}");
        }
    }
    assert!(text("fileserver").is_some());
}
