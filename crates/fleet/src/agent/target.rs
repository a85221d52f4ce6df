//! Where an agent lets itself be sent with clock probes: to the coordinator that it joined, and elsewhere only as its
//! owner's policy says.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use base::part::PartError;
use base::permit::Permit;

use crate::clock::{self, DatagramAddress};

/// What policies know clock probes by, beside the kinds of parts.
pub const KIND: &str = "fleet.clock";
/// More probes show nothing more.
const PROBES_MAX: u32 = 1024;
/// Longer than this no batch may take.
const WITHIN_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// The batch that is asked for, within bounds.
pub fn bounded(batch: clock::Ask) -> clock::Ask {
    clock::Ask { count: batch.count.min(PROBES_MAX), within: batch.within.min(WITHIN_MAX), ..batch }
}

/// Where probes go, if they may: the coordinator's own word is not enough to send datagrams anywhere, or to make
/// sockets in any folder. `joined` are the addresses of the endpoint `join`; one that listens on all addresses is asked at
/// the first. `permit` is asked for where the coordinator is behind a router, and its address is another.
///
/// # Errors
/// They may not go there.
pub fn allowed(
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
            "clocks are not compared over {}: it is not in the folder of the socket that was joined, {join}",
            path.display()
        ))),
    }
}

/// The folder of the socket that was joined.
fn folder_of(join: &str) -> Option<&Path> {
    let place = join.strip_prefix("unixsock-stream/")?;
    Path::new(place.split(['?', '#']).next()?).parent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Grant, Owner, Policy};

    const LAB: &str = "unixsock-stream//run/kagiri/lab/a/bus.sock";

    /// What an agent without a policy file says.
    fn to(target: DatagramAddress, join: &str, joined: &[IpAddr]) -> Result<DatagramAddress, PartError> {
        let policy = Policy::built_in(&Owner { host: "nas".into(), data_dir: "/data".into() });
        allowed(target, join, joined, || {
            let grant = Grant::new(Arc::new(policy), "desk", KIND, Vec::new())?;
            Ok(Arc::new(grant) as Arc<dyn Permit>)
        })
    }

    fn udp(address: &str) -> DatagramAddress {
        DatagramAddress::Udp(address.parse().unwrap())
    }

    #[test]
    fn datagrams_go_to_who_was_joined_and_where_the_policy_lets_them() {
        let (joined, ips) =
            ("tls/desk:7447", ["203.0.113.5".parse().unwrap(), "2001:db8::5".parse().unwrap()]);
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
            assert!(why.contains(KIND) && why.contains(stranger.split(':').next().unwrap()), "{why}");
        }
        assert!(to(udp("0.0.0.0:9"), LAB, &[]).is_err(), "nobody is joined over a network there");
    }

    #[test]
    fn sockets_are_made_in_the_folder_that_was_joined_alone() {
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
    fn a_batch_has_bounds() {
        let endless = clock::Ask { count: u32::MAX, good_ns: 0, within: std::time::Duration::MAX };
        assert_eq!(bounded(endless), clock::Ask { count: PROBES_MAX, good_ns: 0, within: WITHIN_MAX });
        assert_eq!(bounded(clock::Ask::default()), clock::Ask::default());
    }
}
