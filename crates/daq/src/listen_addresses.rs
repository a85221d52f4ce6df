//! The addresses at which the builders of a host listen, as a standing part of a run: kind `daq.port`.
//!
//! It lives as long as its variant, so that the builders of every trial have the same addresses. It only
//! reserves the ports; the builders of a trial listen.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use base::part::{HostContext, PartError};
use sys::net::{NetError, PortReservation};

use super::part_settings::{PortEndpoint, PortTask};
use workload::part::{self, Part, Peers};
use workload::watch;

pub struct PortPart {
    task: PortTask,
    reserved: Vec<PortReservation>,
}

impl PortPart {
    /// The first builder's address; port 0: any free port.
    fn address(&self, host: &HostContext) -> Result<SocketAddr, PartError> {
        if let Some(listen) = &self.task.settings.listen {
            let address = listen.parse::<SocketAddr>().map_err(PartError::usage)?;
            if address.ip().is_unspecified() {
                return Err(PartError::usage(format!(
                    "daq.listen: {address} means all addresses; use the one at which sources and front ends \
                     reach this host"
                )));
            }
            return Ok(address);
        }
        let elsewhere = self.task.sources_elsewhere;
        Ok((part::server_address(host, elsewhere, "sources", "builder")?, 0).into())
    }
}

/// Why builders cannot listen at an address.
fn cannot_listen(address: SocketAddr, error: &NetError) -> PartError {
    match error.kind() {
        ErrorKind::AddrNotAvailable => PartError::usage(format!(
            "daq.listen: no interface of this machine has the address {}",
            address.ip()
        )),
        _ => PartError::new(error),
    }
}

/// A group of the site-local block (RFC 2365, section 6.1), and a port below the kernel's ephemeral range.
fn random_group(random: &mut fastrand::Rng) -> SocketAddrV4 {
    let address = Ipv4Addr::new(239, 255, random.u8(..), random.u8(1..255));
    SocketAddrV4::new(address, random.u16(20_000..32_000))
}

impl Part for PortPart {
    const KIND: &'static str = "daq.port";
    type Task = PortTask;
    type Endpoint = PortEndpoint;
    type Report = ();

    fn new(task: PortTask) -> Result<Self, PartError> {
        Ok(Self { task, reserved: Vec::new() })
    }

    fn prepare(&mut self, _: &Peers<'_>, host: &HostContext) -> Result<PortEndpoint, PartError> {
        let first = self.address(host)?;
        host.permit.peer(first)?;
        let mut random = fastrand::Rng::with_seed(sys::random::number());
        let (mut addresses, mut groups) = (Vec::new(), Vec::new());
        self.reserved.clear();
        for number in 0..self.task.settings.builders {
            let mut address = first;
            if first.port() > 0 {
                let port = u32::from(first.port()) + number;
                address.set_port(u16::try_from(port).map_err(|_| {
                    PartError::usage(format!("daq.listen: {first} leaves no room for {} ports", number + 1))
                })?);
            }
            let reserved = PortReservation::bind(address).map_err(|error| cannot_listen(address, &error))?;
            addresses.push(reserved.local_addr());
            groups.push(random_group(&mut random));
            self.reserved.push(reserved);
        }
        let at = addresses.first().copied().unwrap_or(first);
        let device = (!at.ip().is_loopback()).then(|| sys::proc::interface_with(at.ip()).ok()).flatten();
        let watch = watch::this_program(host, device, at.port());
        let run = random.u32(1..);
        Ok(PortEndpoint { addresses, groups, run, watch, pid: std::process::id() })
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.reserved.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use base::part::Endpoints;

    use super::*;
    use crate::settings::DaqSettings;

    fn port(settings: DaqSettings) -> PortPart {
        PortPart::new(PortTask { settings, sources_elsewhere: false }).unwrap()
    }

    fn prepare(part: &mut PortPart, host: &HostContext) -> Result<PortEndpoint, PartError> {
        part.prepare(&Peers::new(&Endpoints::new()), host)
    }

    #[test]
    fn ports_are_reserved() {
        let host = HostContext::here("/".into(), "/".into(), "/".into());
        let settings = DaqSettings { builders: 2, front_ends: 3, ..DaqSettings::default() };
        let mut part = port(settings.clone());
        let facts = prepare(&mut part, &host).unwrap();
        assert_eq!((facts.addresses.len(), facts.groups.len()), (2, 2));
        assert!(facts.groups.iter().all(|group| group.ip().is_multicast()));
        assert_eq!(facts.watch.pids[0], std::process::id());
        assert!(facts.addresses.iter().all(|address| TcpListener::bind(address).is_err()), "they are kept");
        part.stop().unwrap();

        let listen = Some(facts.addresses[0].to_string());
        let mut part = port(DaqSettings { listen, builders: 1, front_ends: 0, ..settings.clone() });
        let again = prepare(&mut part, &host).unwrap();
        assert_eq!(again.addresses[0], facts.addresses[0]);

        for listen in ["0.0.0.0:7500", "192.0.2.99:7500"] {
            let mut part = port(DaqSettings { listen: Some(listen.into()), ..settings.clone() });
            let error = prepare(&mut part, &host).unwrap_err();
            assert!(error.usage && error.message.contains("daq.listen"), "{error}");
        }
    }
}
