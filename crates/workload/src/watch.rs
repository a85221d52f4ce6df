//! What the sampler watches while a part of a run serves others, as far as all workloads have it in common.

use base::outcome::{Ceiling, Resource};
use base::part::{HostContext, Watch};

/// This program serves at `port`, and is reached through `device`; without one, from this host alone.
pub fn this_program(host: &HostContext, device: Option<String>, port: u16) -> Watch {
    let own = std::process::id();
    let mut watch = Watch {
        pids: vec![own],
        tcp_port: device.is_some().then_some(port),
        network_device: device,
        own_pids: vec![own],
        ceilings: host.ceilings.clone(),
        ..Watch::default()
    };
    lower_to_link(&mut watch);
    watch
}

/// The network carries no more than the watched device, if the kernel knows its rate.
pub fn lower_to_link(watch: &mut Watch) {
    let rate = watch.network_device.as_deref().map(|device| sys::netlink::rate_of(device, None));
    if let Some(Ok(Some(bits))) = rate {
        lower(watch, Resource::Network, bits as f64, "the rate of the link");
    }
}

/// Of several ceilings of one resource the lowest holds.
pub fn lower(watch: &mut Watch, resource: Resource, value: f64, source: &str) {
    if watch.ceilings.get(&resource).is_none_or(|known| value <= known.value) {
        watch.ceilings.insert(resource, Ceiling { value, source: source.to_owned() });
    }
}
