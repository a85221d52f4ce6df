//! Network namespaces with a shaped link into them: a network-limited server on one machine. network_namespaces(7),
//! veth(4), tc-tbf(8).
//!
//! Programs are put into a namespace with setns(2) before they run, not with `ip netns exec`, which mounts `/sys` anew.

mod namespace;
mod subnet;

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::journal::{EntryId, Journal, Outcome, Undo};
use crate::tool::Tool;
use crate::{Error, Result};

pub(crate) use namespace::end_processes_in;
pub use namespace::{Namespace, enter};
pub use subnet::Subnet;

const IP: Tool = Tool { program: "ip", package: "iproute2", purpose: "make network namespaces" };
const TC: Tool = Tool { program: "tc", package: "iproute2", purpose: "limit the rate of a link" };
const TOOL_FOR: Duration = Duration::from_secs(10);
const PREFIX: &str = "kagiri-";
const LINK_PREFIX: &str = "kg-";
/// The end of the link inside the namespace.
const INNER: &str = "eth0";

/// Where namespaces have their names, by the custom of `ip netns`.
const FOLDER: &str = "/run/netns";

/// Tells the namespaces of one process apart.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Whether a namespace's name says that this program made it.
pub(crate) fn is_our_namespace(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
}

/// Deletes interface `name` of this namespace, and its other end.
pub(crate) fn delete_link_if_ours(name: &str) -> std::result::Result<Outcome, String> {
    if !name.starts_with(LINK_PREFIX) {
        return Ok(Outcome::NotOurs("it is not named like an interface of ours".to_owned()));
    }
    let exists = || nix::net::if_::if_nametoindex(name).is_ok();
    if !exists() {
        return Ok(Outcome::AlreadyGone);
    }
    match IP.run(&["link", "delete", "dev", name], None, TOOL_FOR) {
        Ok(_) => Ok(Outcome::Done),
        // It vanishes by itself with the namespace that holds its other end.
        Err(_) if !exists() => Ok(Outcome::AlreadyGone),
        Err(error) => Err(error.to_string()),
    }
}

/// A limit on what one end of a link sends: a token bucket (tc-tbf(8)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The rate in bit/s, headers of IP and Ethernet included.
    pub rate_bit_per_s: u64,
    /// What may be sent at once, bytes; at least one packet, and at least rate / 8 / 250 for the timer.
    pub burst_bytes: u64,
    /// What may wait, bytes; more is dropped.
    pub buffer_bytes: u64,
}

/// A network namespace with one link to this one. Dropping it deletes both.
#[derive(Debug)]
pub struct Netns {
    journal: Journal,
    link: Option<EntryId>,
    namespace: Namespace,
    host_link: String,
    subnet: Subnet,
}

impl Netns {
    /// Makes a namespace `kagiri-PID-NAME` and a link into it. The host's end gets the first address of `subnet`, the
    /// end inside (`eth0`) the second.
    ///
    /// Errors: no rights, no `ip` program, or `subnet` overlaps an address or route of this host.
    pub fn create(journal: &Journal, name: &str, subnet: Subnet) -> Result<Self> {
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            return Err(Error::Refused(format!(
                "`{name}` cannot name a namespace: use 1 to 64 letters, digits and `-`"
            )));
        }
        subnet.refuse_if_used()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let full_name = format!("{PREFIX}{}-{name}", std::process::id());
        let namespace = Namespace::create(journal, &full_name)?;
        // At most 15 characters: "kg-", a process id (up to 7 digits), "-", a number.
        let host_link = format!("{LINK_PREFIX}{}-{}", std::process::id(), number % 1000);
        let mut this = Self { journal: journal.clone(), link: None, namespace, host_link, subnet };
        this.link()?;
        Ok(this)
    }

    fn link(&mut self) -> Result<()> {
        if nix::net::if_::if_nametoindex(self.host_link.as_str()).is_ok() {
            return Err(Error::Refused(format!("the network interface {} exists already", self.host_link)));
        }
        self.link = Some(self.journal.record(Undo::DeleteLink { name: self.host_link.clone() })?);
        let host = &self.host_link;
        let outside = |arguments: &[&str]| IP.run(arguments, None, TOOL_FOR);
        let inside = |arguments: &[&str]| IP.run(arguments, Some(self.descriptor()), TOOL_FOR);
        outside(&["link", "add", host, "type", "veth", "peer", "name", INNER, "netns", self.name()])?;
        let (host_address, inner_address) = (self.subnet.host(1), self.subnet.host(2));
        outside(&["address", "add", &self.subnet.with_prefix(host_address), "dev", host])?;
        outside(&["link", "set", "dev", host, "up"])?;
        inside(&["address", "add", &self.subnet.with_prefix(inner_address), "dev", INNER])?;
        inside(&["link", "set", "dev", "lo", "up"])?;
        inside(&["link", "set", "dev", INNER, "up"])?;
        Ok(())
    }

    /// The namespace's name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// The address of this host on the link.
    pub fn host_address(&self) -> Ipv4Addr {
        self.subnet.host(1)
    }

    /// The address inside the namespace.
    pub fn inner_address(&self) -> Ipv4Addr {
        self.subnet.host(2)
    }

    /// The name of the link's end on this host.
    pub fn host_link(&self) -> &str {
        &self.host_link
    }

    /// The name of the link's end inside.
    pub fn inner_link(&self) -> &str {
        INNER
    }

    /// The namespace as a descriptor for setns(2).
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        self.namespace.descriptor()
    }

    /// Limits what programs inside send: the way out of a server.
    pub fn shape(&self, shape: Shape) -> Result<()> {
        set_shape(INNER, shape, self.descriptor())
    }

    /// Runs `work` on a thread of its own inside the namespace, see [`Namespace::within`].
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespace.within(work)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        // The namespace goes after this. What cannot be deleted stays in the journal, which reports it.
        if let Some(link) = self.link.take() {
            self.journal.undo(link);
        }
    }
}

fn set_shape(link: &str, shape: Shape, namespace: Arc<OwnedFd>) -> Result<()> {
    if shape.rate_bit_per_s == 0 || shape.burst_bytes == 0 || shape.buffer_bytes < shape.burst_bytes {
        return Err(Error::Refused(format!(
            "cannot shape {link} to {} bit/s with a burst of {} B and a buffer of {} B: none may be zero, and the buffer \
             must hold a burst",
            shape.rate_bit_per_s, shape.burst_bytes, shape.buffer_bytes
        )));
    }
    let (rate, burst, limit) = (
        format!("{}bit", shape.rate_bit_per_s),
        format!("{}b", shape.burst_bytes),
        format!("{}b", shape.buffer_bytes),
    );
    let arguments =
        ["qdisc", "replace", "dev", link, "root", "tbf", "rate", &rate, "burst", &burst, "limit", &limit];
    TC.run(&arguments, Some(namespace), TOOL_FOR).map(drop)
}
