//! At a server of kagiri.

use std::sync::Arc;

use sys::clock::monotonic_ns;

use super::{ClientError, Passed, STEP, Task, hold_s, report};
use crate::control::{Control, StopHandle};
use crate::flow::Protocol;
use crate::native::message::{SessionOrder, VERSION};
use crate::native::session_id::SessionId;
use crate::native::{Client, ClientOrder, PROGRAM};
use crate::report::TransferReport;
use crate::settings::TransferSettings;

/// A client with its flows open.
pub struct Ready {
    task: Task,
    client: Client,
}

impl Ready {
    pub(super) fn prepare(
        task: Task,
        control: Control,
        name: SessionId,
        stop_handle: Arc<StopHandle>,
    ) -> Result<Self, ClientError> {
        let session = order(&task.settings, task.key.clone());
        let order = ClientOrder { server: task.server, session, step: STEP };
        let client = Client::prepare(control, name, order, stop_handle)?;
        Ok(Self { task, client })
    }

    pub(super) fn passed(&self) -> Passed {
        self.client.passed()
    }

    pub(super) fn run(self, at_ns: u64) -> TransferReport {
        let mut report = report(&self.task, "kagiri", self.client.server_link());
        let end = self.client.run(at_ns);
        report.engine = end.engines.join("; ");
        report.directions = end.directions;
        report.broken = end.broken;
        report.stopped = end.stopped;
        report.responses = end.responses;
        report.clock = end.clock;
        report.hold_s = hold_s(&self.task.settings, monotonic_ns().saturating_sub(at_ns) as f64 / 1e9);
        report
    }
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
