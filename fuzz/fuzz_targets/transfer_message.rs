//! Messages of the other end of kagiri's own transfer: a report with any numbers can be judged and printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transfer::judge::judge;
use transfer::native::message::{ClientMessage, ServerMessage};
use transfer::report::TransferReport;
use transfer::settings::TransferSettings;

fuzz_target!(|data: &[u8]| {
    let _ = serde_json::from_slice::<ClientMessage>(data);
    let Ok(ServerMessage::Report { directions, engines }) = serde_json::from_slice(data) else { return };
    let engine = engines.into_iter().map(|(_, engine)| engine).collect();
    let report = TransferReport { directions, engine, ..TransferReport::default() };
    let judgement = judge(&TransferSettings::default(), &report);
    assert!(judgement.metrics.values().flatten().all(|value| !value.is_nan()));
});
