//! What the other end of kagiri's own transfer says: whatever numbers a report has, it can be judged and told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workload::transfer::judge::judge;
use workload::transfer::native::message::{ClientSays, ServerSays};
use workload::transfer::report::TransferReport;
use workload::transfer::settings::TransferSettings;

fuzz_target!(|data: &[u8]| {
    let _ = serde_json::from_slice::<ClientSays>(data);
    let Ok(ServerSays::Report { ways, engines }) = serde_json::from_slice(data) else { return };
    let engine = engines.into_iter().map(|(_, engine)| engine).collect();
    let report = TransferReport { ways, engine, ..TransferReport::default() };
    let judgement = judge(&TransferSettings::default(), &report);
    assert!(judgement.metrics.values().flatten().all(|value| !value.is_nan()));
});
