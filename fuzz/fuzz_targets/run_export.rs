//! Exported runs from elsewhere: read, written again, explained, and shown on a screen and a page.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use report::html::{Extras, page};
use report::terminal::{Style, differences, summary};
use run::explain::{LoadTable, explain};
use run::registry::BUILT_IN;
use store::{compare, export, read_export};

const STYLE: Style = Style { colour: false, width: 80, unicode: true };

fuzz_target!(|data: &[u8]| {
    let run = match read_export(data) {
        Ok(run) => run,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = export(&run).expect("what was read can be written");
    let again = read_export(&written).unwrap_or_else(|error| panic!("what was written is not read: {error}"));
    assert_eq!(export(&again).ok().as_ref(), Some(&written));
    let table = LoadTable::from_trials(&run.trials, BTreeMap::new(), &run.capacity.unit);
    let _ = explain(&table);
    let specs = BUILT_IN.workloads().iter().flat_map(|workload| workload.metrics()).copied();
    let specs = specs.collect::<Vec<_>>();
    let _ = report::export::trials_csv(&run);
    let _ = report::export::series_csv(&run);
    let extras = Extras { specs: &specs, ..Extras::default() };
    let _ = page(&run, &extras);
    let _ = summary(&run, &extras, STYLE, None);
    let _ = differences(&compare(&[run, again], &specs), STYLE);
});
