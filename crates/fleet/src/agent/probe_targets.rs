//! Which addresses an agent sends clock probes to: the coordinator that it joined, and others only with its
//! policy's permission.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use base::part::PartError;
use base::permit::Permit;

use crate::clock::{self, DatagramAddress};

/// Policies name clock probes by this kind of part.
pub const PERMIT_KIND: &str = "fleet.clock";
const PROBES_MAX: u32 = 1024;
const WITHIN_MAX: std::time::Duration = std::time::Duration::from_secs(5);

pub fn bounded_batch(batch: clock::BatchRequest) -> clock::BatchRequest {
    clock::BatchRequest { count: batch.count.min(PROBES_MAX), within: batch.within.min(WITHIN_MAX), ..batch }
}

/// The address that probes go to. A coordinator alone cannot make an agent send datagrams anywhere, or
/// create sockets in any folder. `joined` holds the addresses of the endpoint `join`; the first one replaces
/// an unspecified address. `permit` decides about other addresses, as of a coordinator behind a router.
pub fn permitted_target(
    target: DatagramAddress,
    join: &str,
    joined: &[IpAddr],
    permit: impl FnOnce() -> Result<Arc<dyn Permit>, PartError>,
) -> Result<DatagramAddress, PartError> {
    match target {
        DatagramAddress::Udp(mut address) => {
            if let (true, Some(ip)) = (address.ip().is_unspecified(), joined.first()) {
                address.set_ip(*ip);
            }
            if !joined.contains(&address.ip().to_canonical()) {
                permit()?.peer(address)?;
            }
            Ok(DatagramAddress::Udp(address))
        }
        DatagramAddress::Unix(path) if path.file_name().is_some() && path.parent() == folder_of(join) => {
            Ok(DatagramAddress::Unix(path))
        }
        DatagramAddress::Unix(path) => Err(PartError::new(format!(
            "clocks are not compared over {}: it is not in the folder of the socket that the agent joined, \
             {join}",
            path.display()
        ))),
    }
}

fn folder_of(join: &str) -> Option<&Path> {
    let place = join.strip_prefix("unixsock-stream/")?;
    Path::new(place.split(['?', '#']).next()?).parent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Grant, HostInfo, Policy};

    const LAB: &str = "unixsock-stream//run/kagiri/lab/a/bus.sock";

    fn to(target: DatagramAddress, join: &str, joined: &[IpAddr]) -> Result<DatagramAddress, PartError> {
        let policy = Policy::default_for(&HostInfo { host: "nas".into(), data_dir: "/data".into() });
        permitted_target(target, join, joined, || {
            let grant = Grant::new(Arc::new(policy), "desk", PERMIT_KIND, Vec::new())?;
            Ok(Arc::new(grant) as Arc<dyn Permit>)
        })
    }

    fn udp(address: &str) -> DatagramAddress {
        DatagramAddress::Udp(address.parse().unwrap())
    }

    #[test]
    fn probes_go_to_the_joined_coordinator_or_where_the_policy_permits() {
        let (joined, ips) =
            ("tls/service:7447", ["203.0.113.5".parse().unwrap(), "2001:db8::5".parse().unwrap()]);
        for (target, goes_to) in [
            ("0.0.0.0:9", "203.0.113.5:9"),
            ("203.0.113.5:53", "203.0.113.5:53"),
            ("[2001:db8::5]:53", "[2001:db8::5]:53"),
            ("10.1.2.3:53", "10.1.2.3:53"),
            ("[::ffff:203.0.113.5]:53", "[::ffff:203.0.113.5]:53"),
        ] {
            assert_eq!(to(udp(target), joined, &ips).unwrap(), udp(goes_to));
        }
        for stranger in ["198.51.100.7:53", "224.0.0.1:9", "255.255.255.255:9", "[2001:db8::1]:53"] {
            let why = to(udp(stranger), joined, &ips).unwrap_err().message;
            assert!(why.contains(PERMIT_KIND) && why.contains(stranger.split(':').next().unwrap()), "{why}");
        }
        assert!(to(udp("0.0.0.0:9"), LAB, &[]).is_err(), "the agent joined over a UNIX socket");
    }

    #[test]
    fn probe_sockets_stay_in_the_joined_folder() {
        let unix = |path: &str| DatagramAddress::Unix(path.into());
        let clock = unix("/run/kagiri/lab/a/clock.sock");
        assert_eq!(to(clock.clone(), LAB, &[]).unwrap(), clock);
        for elsewhere in [
            "/etc/cron.d/x",
            "/run/kagiri/lab/b/clock.sock",
            "/run/kagiri/lab/a/../a/x",
            "/run/kagiri/lab/a/..",
        ] {
            let why = to(unix(elsewhere), LAB, &[]).unwrap_err().message;
            assert!(why.contains(elsewhere), "{why}");
        }
        assert!(to(clock, "tcp/127.0.0.1:7447", &[]).is_err());
    }

    #[test]
    fn batch_size_and_time_are_bounded() {
        let endless = clock::BatchRequest { count: u32::MAX, good_ns: 0, within: std::time::Duration::MAX };
        assert_eq!(
            bounded_batch(endless),
            clock::BatchRequest { count: PROBES_MAX, good_ns: 0, within: WITHIN_MAX }
        );
        assert_eq!(bounded_batch(clock::BatchRequest::default()), clock::BatchRequest::default());
    }
}
