//! What a run's parts may do on the coordinator's own host: all that the operating system permits, except
//! traffic with addresses that a URL, a redirect or a foreign plan mostly names by mistake or by malice.

use std::net::SocketAddr;
use std::path::Path;

use base::part::PartError;
use base::permit::{Everything, Permit, SystemChange};
use ipnet::IpNet;

use super::peers::{PeerRange, guarded};

#[derive(Debug, Clone, Default)]
pub struct OwnHost {
    asked: Vec<PeerRange>,
}

impl OwnHost {
    /// With link-local and metadata addresses that the user asked for. As in an agent's policy, a metadata
    /// service must be named by its own address.
    pub fn new(asked: &[IpNet]) -> Self {
        Self { asked: asked.iter().map(|net| PeerRange::Net(*net)).collect() }
    }
}

impl Permit for OwnHost {
    fn peer(&self, address: SocketAddr) -> Result<(), PartError> {
        let ip = address.ip().to_canonical();
        let is_asked = || self.asked.iter().any(|range| range.contains(ip, &[]));
        match guarded(ip).filter(|_| !is_asked()) {
            Some(what) => {
                Err(PartError::usage(format!("{ip} is {what}; if you mean it, add --allow-peer {ip}")))
            }
            None => Ok(()),
        }
    }

    fn rate(&self, bit_per_s: u64) -> Result<(), PartError> {
        Everything.rate(bit_per_s)
    }

    fn directory(&self, path: &Path) -> Result<(), PartError> {
        Everything.directory(path)
    }

    fn system_change(&self, kind: SystemChange) -> Result<(), PartError> {
        Everything.system_change(kind)
    }

    fn program(&self, program: &str) -> Result<(), PartError> {
        Everything.program(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_and_metadata_addresses_must_be_asked_for() {
        let refused = |ip: &str, asked: &[&str]| {
            let asked: Vec<IpNet> = asked.iter().map(|net| net.parse().unwrap()).collect();
            let address = SocketAddr::new(ip.parse().unwrap(), 80);
            OwnHost::new(&asked).peer(address).err().map(|error| (error.usage, error.message))
        };
        for (ip, what) in [
            ("169.254.169.254", "the metadata service of clouds"),
            ("::ffff:169.254.169.254", "the metadata service of clouds"),
            ("169.254.170.2", "the metadata service of clouds"),
            ("fd00:ec2::254", "the metadata service of clouds"),
            ("169.254.7.7", "a link-local address"),
            ("fe80::1", "a link-local address"),
            ("febf::1", "a link-local address"),
        ] {
            let (usage, message) = refused(ip, &[]).expect(ip);
            assert!(usage && message.contains(what) && message.contains("--allow-peer"), "{ip}: {message}");
            let host = ip.parse::<std::net::IpAddr>().unwrap().to_canonical();
            let net = IpNet::from(host).to_string();
            assert_eq!(refused(ip, &[net.as_str()]), None, "{ip} was asked for");
        }
        for ip in ["127.0.0.1", "::1", "10.0.0.2", "8.8.8.8", "0.0.0.0", "239.1.2.3", "fd00::1", "fec0::1"] {
            assert_eq!(refused(ip, &[]), None, "{ip}");
        }
        assert_eq!(refused("169.254.7.7", &["169.254.0.0/16"]), None);
        assert!(refused("169.254.169.254", &["169.254.0.0/16"]).is_some(), "its own address must be named");
    }
}
