//! The rate at which a link is held: tc-tbf(8), tc-htb(8).

use std::io;

use nix::sys::socket::SockProtocol;

use super::queue::{MESSAGE_BYTES, ROOT};
use super::{Netlink, attributes, in_namespace_of, u32_at, u64_at};

/// Attributes within `TCA_OPTIONS` (`linux/pkt_sched.h`): for both disciplines the first holds their
/// parameters.
const PARAMETERS: u16 = 1;
const TBF_RATE64: u16 = 4;
const HTB_CEIL64: u16 = 7;
/// `struct tc_ratespec`: 8 bytes about packets, then bytes per second. `struct tc_tbf_qopt` begins with one;
/// `struct tc_htb_opt` with two, of which the second is the most that a class may send.
const TBF_RATE: usize = 8;
const HTB_CEIL: usize = 12 + 8;

/// The most that `link` sends, in bit/s: the rate of a token bucket at its root, or the sum of the ceilings
/// of an HTB's topmost classes. `None`: nothing holds it, or something that this does not know. The link is
/// looked for in the network namespace of process `namespace_of`, or in this process's own.
/// Errors: There is no such link, or the namespace cannot be entered.
pub fn rate_of(link: &str, namespace_of: Option<i32>) -> io::Result<Option<u64>> {
    in_namespace_of(namespace_of, || {
        let device = nix::net::if_::if_nametoindex(link)?;
        let mut netlink = Netlink::open(SockProtocol::NetlinkRoute)?;
        let (mut bucket, mut classes) = (None, None);
        netlink.dump((libc::RTM_GETQDISC, libc::RTM_NEWQDISC), &[0; MESSAGE_BYTES], &mut |payload| {
            bucket = bucket.or_else(|| of_bucket(payload, device));
        })?;
        let mut request = [0; MESSAGE_BYTES];
        // Classes are listed for one link only.
        request[4..8].copy_from_slice(&device.to_ne_bytes());
        netlink.dump((libc::RTM_GETTCLASS, libc::RTM_NEWTCLASS), &request, &mut |payload| {
            let sum = |ceiling: u64| classes.map_or(ceiling, |others: u64| others.saturating_add(ceiling));
            classes = of_class(payload, device).map(sum).or(classes);
        })?;
        Ok(bucket.or(classes).map(|bytes: u64| bytes.saturating_mul(8)))
    })
}

/// Bytes per second of a token bucket at the root of `device`.
pub(super) fn of_bucket(payload: &[u8], device: u32) -> Option<u64> {
    rate(payload, device, (b"tbf\0", TBF_RATE, TBF_RATE64))
}

/// Bytes per second that a topmost HTB class of `device` may send.
pub(super) fn of_class(payload: &[u8], device: u32) -> Option<u64> {
    rate(payload, device, (b"htb\0", HTB_CEIL, HTB_CEIL64))
}

fn rate(payload: &[u8], device: u32, (name, place, wide): (&[u8], usize, u16)) -> Option<u64> {
    let inside = payload.get(MESSAGE_BYTES..)?;
    if u32_at(payload, 4)? != device || u32_at(payload, 12)? != ROOT {
        return None;
    }
    let of = |kind: u16| attributes(inside).find(|(found, _)| *found == kind).map(|(_, content)| content);
    if of(libc::TCA_KIND)? != name {
        return None;
    }
    let options = of(libc::TCA_OPTIONS)?;
    let option =
        |kind: u16| attributes(options).find(|(found, _)| *found == kind).map(|(_, content)| content);
    // A rate beyond 32 bits stands in an attribute of its own.
    let narrow = || u32_at(option(PARAMETERS)?, place).map(u64::from);
    option(wide).and_then(|content| u64_at(content, 0)).or_else(narrow).filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::queue::tests::attribute;

    fn message(device: u32, parent: u32, name: &[u8], options: &[u8]) -> Vec<u8> {
        let mut payload = vec![0; MESSAGE_BYTES];
        payload[4..8].copy_from_slice(&device.to_ne_bytes());
        payload[12..16].copy_from_slice(&parent.to_ne_bytes());
        payload.extend(attribute(libc::TCA_KIND, name));
        payload.extend(attribute(libc::TCA_OPTIONS, options));
        payload
    }

    fn parameters(bytes: usize, place: usize, rate: u32) -> Vec<u8> {
        let mut content = vec![0; bytes];
        content[place..place + 4].copy_from_slice(&rate.to_ne_bytes());
        attribute(PARAMETERS, &content)
    }

    #[test]
    fn rate_is_parsed_at_the_kernels_offset() {
        let bucket = message(5, ROOT, b"tbf\0", &parameters(36, TBF_RATE, 15_250_000));
        assert_eq!(of_bucket(&bucket, 5), Some(15_250_000));
        assert_eq!(
            (of_bucket(&bucket, 6), of_class(&bucket, 5)),
            (None, None),
            "another link's, or another kind"
        );
        let inner = message(5, 1 << 16, b"tbf\0", &parameters(36, TBF_RATE, 1));
        assert_eq!(of_bucket(&inner, 5), None, "a bucket within another queue");

        let class = message(5, ROOT, b"htb\0", &parameters(44, HTB_CEIL, 20_000_000));
        assert_eq!(of_class(&class, 5), Some(20_000_000));
        let wide =
            [parameters(44, HTB_CEIL, u32::MAX), attribute(HTB_CEIL64, &12_500_000_000_u64.to_ne_bytes())];
        assert_eq!(of_class(&message(5, ROOT, b"htb\0", &wide.concat()), 5), Some(12_500_000_000));
        assert_eq!(of_bucket(&message(5, ROOT, b"tbf\0", &[]), 5), None);
    }

    #[test]
    fn loopback_has_no_rate_and_no_link_is_an_error() {
        assert_eq!(rate_of("lo", None).unwrap(), None);
        assert!(rate_of("no-such-link", None).is_err());
    }
}
