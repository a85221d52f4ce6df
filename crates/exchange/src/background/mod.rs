//! The load beside the messages, as a part of a run: kind `exchange.background`. It ends when the server has
//! seen the last client leave, and then learns what arrived.

mod sender;

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use base::part::{HostContext, PartError, Progress};
use reactor::{ThreadGroup, ThreadSpec};
use serde::{Deserialize, Serialize};
use sys::clock::Deadline;
use sys::net::{NetError, TcpSocket, UdpFlow};
use workload::part::{self, Part, Peers};

use self::sender::{Flow, Pattern, Sender};
use crate::client::part::{greet, own_server};
use crate::report::BackgroundReport;
use crate::settings::{BackgroundKind, ExchangeSettings};
use crate::wire::{Hello, Purpose};

/// How long the server may take to say what arrived, behind all that is queued on the path.
const COUNT_WITHIN: Duration = Duration::from_secs(10);

/// A longer count is none of kagiri's server.
const COUNT_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackgroundTask {
    #[serde(deserialize_with = "part::settings")]
    pub settings: ExchangeSettings,
    /// The number of the trial at its server.
    pub trial: u64,
}

pub struct BackgroundPart {
    task: BackgroundTask,
    flows: Vec<Flow>,
    /// Brings the count when the trial ends.
    control: Option<TcpStream>,
    threads: Option<ThreadGroup<Result<BackgroundReport, NetError>>>,
}

impl Part for BackgroundPart {
    const KIND: &'static str = "exchange.background";
    type Task = BackgroundTask;
    type Endpoint = ();
    type Report = BackgroundReport;

    fn new(task: BackgroundTask) -> Result<Self, PartError> {
        Ok(Self { task, flows: Vec::new(), control: None, threads: None })
    }

    fn prepare(&mut self, peers: &Peers<'_>, host: &HostContext) -> Result<(), PartError> {
        let (server, key) = own_server(&self.task.settings, peers)?;
        let (background, trial) = (&self.task.settings.background, self.task.trial);
        host.permit.peer(server)?;
        host.permit.rate(background.rate.map_or(u64::MAX, |rate| rate.bit_per_s()))?;
        self.control = Some(greet(server, Hello { purpose: Purpose::Count, trial, key })?);
        for _ in 0..background.flows {
            self.flows.push(match background.kind {
                BackgroundKind::Udp => {
                    Flow::udp(UdpFlow::connect(server, None).map_err(PartError::new)?, trial, key)
                }
                _ => {
                    let stream = greet(server, Hello { purpose: Purpose::Background, trial, key })?;
                    Flow::tcp(TcpSocket::try_from(stream).map_err(PartError::new)?)
                }
            });
        }
        Ok(())
    }

    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        let control = self.control.as_ref().map(TcpStream::try_clone).transpose().map_err(PartError::new)?;
        let control = control.ok_or_else(|| PartError::new("the background was started unprepared"))?;
        let (flows, background) = (std::mem::take(&mut self.flows), &self.task.settings.background);
        let each_bit_per_s = background.rate.map(|rate| (rate.bit_per_s() / flows.len() as u64).max(1));
        let pause = background.on.zip(background.off).map(|(on, off)| (on.ns(), off.ns()));
        let pattern = Pattern { start_ns: at_monotonic_ns, each_bit_per_s, pause };
        let mut group = ThreadGroup::new(at_monotonic_ns).map_err(PartError::new)?;
        let spec = ThreadSpec { name: "exchange-load".into(), is_precise: true, ..ThreadSpec::default() };
        let work = move |thread: &reactor::ThreadControl| {
            let mut events = reactor::EventLoop::new(thread.stop_handle(), 256)?;
            let mut sender = Sender::new(flows, pattern, control, events.reactor())?;
            events.run(&mut sender)?;
            Ok(sender.into_report())
        };
        group.spawn(spec, work).map_err(PartError::new)?;
        self.threads = Some(group);
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        match self.threads.as_ref().is_some_and(ThreadGroup::is_finished) {
            true => Progress::Finished,
            false => Progress::Running { done: None },
        }
    }

    fn stop(&mut self) -> Result<BackgroundReport, PartError> {
        let mut report = BackgroundReport::default();
        if let Some(mut threads) = self.threads.take() {
            threads.stop();
            match threads.finish(Deadline::after(Duration::from_secs(1))).pop() {
                Some(Ok(Ok(sent))) => report = sent,
                Some(Ok(Err(error))) => report.broke_off = Some(error.to_string()),
                Some(Err(error)) => report.broke_off = Some(error.to_string()),
                None => {}
            }
        }
        if let Some(mut control) = self.control.take() {
            // A server that has answered already does not mind.
            let _ = control.shutdown(Shutdown::Write);
            let mut text = Vec::new();
            let read = control
                .set_nonblocking(false)
                .and_then(|()| control.set_read_timeout(Some(COUNT_WITHIN)))
                .and_then(|()| (&mut control).take(COUNT_BYTES_MAX).read_to_end(&mut text));
            report.delivered = read.ok().and_then(|_| serde_json::from_slice(&text).ok());
        }
        Ok(report)
    }
}
