//! At a server of kagiri.

use std::sync::Arc;

use super::{ClientError, Ready, STEP, Task, hold_s, report};
use crate::control::{Control, StopHandle};
use crate::flow::Protocol;
use crate::native::message::{SessionOrder, VERSION};
use crate::native::session_id::SessionId;
use crate::native::{Client, ClientOrder, PROGRAM};
use crate::settings::TransferSettings;

/// Opens the flows.
pub(super) fn prepare(
    task: Task,
    control: Control,
    name: SessionId,
    stop_handle: Arc<StopHandle>,
) -> Result<Ready, ClientError> {
    let session = order(&task.settings, task.key.clone());
    let order = ClientOrder { server: task.server, session, step: STEP };
    let client = Client::prepare(control, name, order, stop_handle)?;
    let passed = client.passed.clone();
    let run = move |at_ns| {
        let mut report = report(&task, "kagiri", client.server_link);
        client.run(at_ns, &mut report);
        report.hold_s = hold_s(&task.settings, at_ns);
        report
    };
    Ok(Ready { peer: "kagiri", passed, run: Box::new(run) })
}

fn order(settings: &TransferSettings, key: Option<String>) -> SessionOrder {
    let ns = |span: base::units::Span| u64::try_from(span.duration().as_nanos()).unwrap_or(u64::MAX);
    let size_bytes = match (settings.protocol, settings.size) {
        // The engines know what is cheapest.
        (Protocol::Tcp, None) => 0,
        _ => u32::try_from(settings.size_bytes()).unwrap_or(u32::MAX),
    };
    SessionOrder {
        protocol_version: VERSION,
        program: PROGRAM.to_owned(),
        key,
        protocol: settings.protocol,
        direction: settings.direction,
        flows: u32::try_from(settings.flows).unwrap_or(u32::MAX),
        time_ns: ns(settings.time),
        bytes: settings.bytes.map(|bytes| bytes.bytes()),
        omit_ns: ns(settings.omit),
        mode: settings.mode,
        size_bytes,
        rate_bit_per_s: settings.rate.map(|rate| rate.bit_per_s()),
        engine: settings.engine,
        threads: settings.threads,
        congestion_control: settings.congestion_control.clone(),
        send_buffer_bytes: settings.send_buffer.or(settings.window).map(|buffer| buffer.bytes()),
        receive_buffer_bytes: settings.receive_buffer.or(settings.window).map(|buffer| buffer.bytes()),
        no_delay: settings.no_delay,
        requests: settings.requests.clone(),
        calls: settings.calls,
        beat_ns: settings.interval_ns(),
    }
}
