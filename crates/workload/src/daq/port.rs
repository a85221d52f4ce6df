//! Where the builders of a host listen, as a standing part of a run: kind `daq.port`.
//!
//! It lives as long as its variant, so that sources find the builders of every trial at the same place. It listens at
//! nothing itself: the builders of a trial do, and share the port with it.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use base::part::{Endpoints, HostContext, Part, PartError, PartSpec, Progress};
use serde_json::{Value, json};
use sys::net::{NetError, Reserved};

use super::task::{PortFacts, PortTask};
use crate::watch;

struct PortPart {
    task: PortTask,
    reserved: Vec<Reserved>,
}

/// Make the part from its settings ([`PortTask`]), acquiring nothing yet.
///
/// # Errors
/// A usage error that names the key at fault.
pub fn build(spec: &PartSpec) -> Result<Box<dyn Part>, PartError> {
    let task = serde_json::from_value(spec.settings.clone()).map_err(PartError::usage)?;
    Ok(Box::new(PortPart { task, reserved: Vec::new() }))
}

impl PortPart {
    /// Where the first builder listens; port 0: wherever it is free.
    fn address(&self, host: &HostContext) -> Result<SocketAddr, PartError> {
        if let Some(listen) = &self.task.settings.listen {
            let address = listen.parse::<SocketAddr>().map_err(PartError::usage)?;
            if address.ip().is_unspecified() {
                return Err(PartError::usage(format!(
                    "daq.listen: {address} is every address; name the one at which sources and front ends reach this host"
                )));
            }
            return Ok(address);
        }
        let address = match (host.address, self.task.sources_elsewhere) {
            (_, false) => IpAddr::from(Ipv4Addr::LOCALHOST),
            (Some(address), true) => address,
            (None, true) => {
                return Err(PartError::new(
                    "the sources are on other hosts, and it is not known at which address they reach this one; \
                     run an agent here with --address, and place the builder on it",
                ));
            }
        };
        Ok((address, 0).into())
    }

    /// Tells people where to point their front ends.
    fn say(&self, host: &HostContext, facts: &PortFacts) {
        let front_ends = self.task.settings.front_ends;
        if front_ends == 0 {
            return;
        }
        for (address, group) in facts.addresses.iter().zip(&facts.groups) {
            host.say(format!(
                "builder at {address}, orders at {group}, run {}; waiting for {front_ends} front ends",
                facts.run
            ));
        }
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

/// A group of the block that everybody may use within a site (RFC 2365, section 6.1), and a port of those that nobody is
/// given by the kernel without asking.
fn random_group(random: &mut fastrand::Rng) -> SocketAddrV4 {
    let address = Ipv4Addr::new(239, 255, random.u8(..), random.u8(1..255));
    SocketAddrV4::new(address, random.u16(20_000..32_000))
}

impl Part for PortPart {
    fn prepare(&mut self, _: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        let first = self.address(host)?;
        host.permit.peer(first)?;
        let mut random = fastrand::Rng::with_seed(sys::random::number());
        let mut facts = PortFacts { addresses: Vec::new(), groups: Vec::new(), run: random.u32(1..) };
        self.reserved.clear();
        for number in 0..self.task.settings.builders {
            let mut address = first;
            if first.port() > 0 {
                let port = u32::from(first.port()) + number;
                address.set_port(u16::try_from(port).map_err(|_| {
                    PartError::usage(format!("daq.listen: from {first} on there are no {} ports", number + 1))
                })?);
            }
            let reserved = Reserved::bind(address).map_err(|error| cannot_listen(address, &error))?;
            facts.addresses.push(reserved.local_addr());
            facts.groups.push(random_group(&mut random));
            self.reserved.push(reserved);
        }
        let at = facts.addresses.first().copied().unwrap_or(first);
        let device = (!at.ip().is_loopback()).then(|| sys::proc::interface_with(at.ip()).ok()).flatten();
        let watch = watch::this_program(host, device, at.port());
        self.say(host, &facts);
        let mut told = serde_json::to_value(&facts).map_err(PartError::new)?;
        told["watch"] = serde_json::to_value(watch).map_err(PartError::new)?;
        told["pid"] = json!(std::process::id());
        Ok(told)
    }

    fn start(&mut self, _: u64) -> Result<(), PartError> {
        Ok(())
    }

    fn progress(&mut self) -> Progress {
        Progress::Running { done: None }
    }

    fn stop(&mut self) -> Result<Value, PartError> {
        self.reserved.clear();
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::daq::settings::DaqSettings;

    fn port(settings: DaqSettings) -> Box<dyn Part> {
        let task = PortTask { settings, sources_elsewhere: false };
        let settings = serde_json::to_value(task).unwrap();
        build(&PartSpec { kind: "daq.port".into(), name: "port".into(), host: "here".into(), settings })
            .unwrap()
    }

    fn host(said: &Arc<Mutex<Vec<String>>>) -> HostContext {
        let said = said.clone();
        let say = Arc::new(move |line: &str| said.lock().unwrap().push(line.to_owned()));
        HostContext { say, ..HostContext::here("/".into(), "/".into(), "/".into()) }
    }

    #[test]
    fn ports_are_kept_and_front_ends_are_told_of_them() {
        let said = Arc::default();
        let settings = DaqSettings { builders: 2, front_ends: 3, ..DaqSettings::default() };
        let mut part = port(settings.clone());
        let told = part.prepare(&Endpoints::new(), &host(&said)).unwrap();
        let facts: PortFacts = serde_json::from_value(told.clone()).unwrap();
        assert_eq!((facts.addresses.len(), facts.groups.len()), (2, 2));
        assert!(facts.groups.iter().all(|group| group.ip().is_multicast()));
        assert_eq!(told["watch"]["pids"][0], std::process::id());
        assert!(facts.addresses.iter().all(|address| TcpListener::bind(address).is_err()), "they are kept");
        let line = format!(
            "builder at {}, orders at {}, run {}; waiting for 3 front ends",
            facts.addresses[1], facts.groups[1], facts.run
        );
        assert_eq!(said.lock().unwrap()[1], line);
        part.stop().unwrap();

        let listen = Some(facts.addresses[0].to_string());
        let mut part = port(DaqSettings { listen, builders: 1, front_ends: 0, ..settings.clone() });
        let told = part.prepare(&Endpoints::new(), &host(&said)).unwrap();
        assert_eq!(told["addresses"][0], facts.addresses[0].to_string());
        assert_eq!(said.lock().unwrap().len(), 2, "nobody needs to be told");

        for listen in ["0.0.0.0:7500", "192.0.2.99:7500"] {
            let mut part = port(DaqSettings { listen: Some(listen.into()), ..settings.clone() });
            let error = part.prepare(&Endpoints::new(), &host(&said)).unwrap_err();
            assert!(error.usage && error.message.contains("daq.listen"), "{error}");
        }
    }
}
