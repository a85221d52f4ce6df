//! The state of a lab as its layout says, before anything is made.

use std::path::Path;

use super::SupervisorOptions;
use crate::error::{Error, Result};
use crate::file::{Host, Lab};
use crate::layout::{End, HostNetwork, Layout, Wire};
use crate::state::{BUS_SOCKET, EndState, HostState, InterfaceState, LinkState, ProcessId, SCHEMA, State};

pub(super) fn state(lab: &Lab, layout: &Layout, options: &SupervisorOptions, folder: &Path) -> Result<State> {
    let supervisor = ProcessId::own().ok_or_else(|| Error::Refused("cannot read /proc".to_owned()))?;
    let hosts =
        lab.hosts.iter().zip(&layout.host_networks).map(|(host, place)| host_state(host, place)).collect();
    Ok(State {
        schema: SCHEMA,
        lab: lab.name.clone(),
        file: options.file.clone(),
        supervisor,
        folder: folder.to_path_buf(),
        bus: folder.join(BUS_SOCKET),
        switches: layout.switches.clone(),
        hosts,
        links: layout.wires.iter().map(link_state).collect(),
        up_s: 0.0,
    })
}

fn host_state(host: &Host, place: &HostNetwork) -> HostState {
    let interface = |way: &crate::layout::Interface| InterfaceState {
        device: way.device.clone(),
        address: way.address,
        prefix_bits: way.subnet.prefix_bits(),
    };
    HostState {
        name: host.name.clone(),
        namespace: place.namespace.clone(),
        interfaces: place.interfaces.iter().map(interface).collect(),
        gateway: place.gateway,
        cgroup: Vec::new(),
        cpu_quota_percent: host.cpu_quota_percent,
        disk: None,
        mount: None,
        agent_pid: None,
    }
}

fn link_state(wire: &Wire) -> LinkState {
    let end = |end: &End| EndState {
        place: end.place.clone(),
        namespace: end.namespace.clone(),
        device: end.device.clone(),
    };
    let link = &wire.link;
    LinkState {
        number: wire.number,
        ends: [end(&wire.ends[0]), end(&wire.ends[1])],
        rate_up_bit_per_s: link.rate_up.map(|rate| rate.bit_per_s()),
        rate_down_bit_per_s: link.rate_down.map(|rate| rate.bit_per_s()),
        buffer_bytes: [link.rate_up, link.rate_down].map(|rate| rate.map(|rate| link.buffer_bytes(rate))),
        queue: link.queue,
        steps: link.steps.clone(),
        delay_s: link.delay.s(),
        loss: link.loss,
    }
}
