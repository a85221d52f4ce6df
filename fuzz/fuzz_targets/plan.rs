//! Plans in TOML, for every workload there is; a plan that is accepted is written and read again unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use run::registry::BUILT_IN;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let plan = match BUILT_IN.read_plan(&text) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.line.is_none_or(|line| line <= text.lines().count() + 1), "{error}");
            return;
        }
    };
    let offered = BUILT_IN.workload(&plan.workload).expect("a plan names a workload that there is");
    for variant in &plan.variants {
        let configured = offered.configure(&variant.settings).unwrap_or_else(|error| panic!("{error}"));
        let _ = configured.load_plan();
    }
    if let Ok(written) = plan.to_toml() {
        let again = BUILT_IN.read_plan(&written).unwrap_or_else(|error| panic!("{error}\n{written}"));
        assert_eq!(again.variants.len(), plan.variants.len());
    }
});
