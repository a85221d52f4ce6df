//! Rates and priorities in front of an interface: tc-htb(8).

use std::collections::BTreeMap;
use std::io;

use crate::journal::{EntryId, Journal, Undo};
use crate::netlink::NamespaceId;
use crate::netlink::traffic_control::{ClassRates, ClassReading, TrafficControl};
use crate::{Error, Result};

/// The upper byte of our handles ("k"), shown as `6bxx:` by tc(8); the lower one is random, so that two
/// programs do not take each other's for their own. The kernel itself assigns handles from 0x8000 on.
const HANDLE_PREFIX: u32 = 0x6b00;

/// The rates of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HtbClass {
    /// What it has before others may borrow, bit/s.
    pub rate_bit_per_s: u64,
    /// The most that it may send, bit/s; at least its rate.
    pub ceil_bit_per_s: u64,
    /// Classes of a lower number borrow first, and wait less; 0 to 7.
    pub priority: u8,
}

/// An HTB at the root of an interface: rates and priorities by classes, each with bytes counted. Packets
/// belong to the class whose number is their socket's priority ([`Htb::socket_priority`]), others to the
/// default class. Dropping it deletes it, and the kernel takes its own choice again.
#[derive(Debug)]
pub struct Htb {
    journal: Journal,
    entry: EntryId,
    control: TrafficControl,
    interface: String,
    device: u32,
    handle: u32,
    /// The parent of each class, 0: the discipline.
    parents: BTreeMap<u16, u16>,
}

impl Htb {
    /// Makes one in front of `interface`, in the network namespace of this thread. Until it exists, packets
    /// of the class `default_minor` are sent without limit.
    /// Errors: no such interface, no right, the kernel lacks HTB (`CONFIG_NET_SCH_HTB`), or another program
    /// has configured a queueing discipline there, which is left as it is.
    pub fn create(journal: &Journal, interface: &str, default_minor: u16) -> Result<Self> {
        let failed = |error| Error::call(format!("shape {interface}"), error);
        let device = nix::net::if_::if_nametoindex(interface).map_err(|error| failed(error.into()))?;
        let mut control = TrafficControl::open().map_err(failed)?;
        // A foreign one need not get into the journal; the kernel checks again when it is asked.
        refuse_foreign(&mut control, device, interface)?;
        let mut random = [0];
        getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error)))?;
        let handle = (HANDLE_PREFIX | u32::from(random[0])) << 16;
        let namespace = NamespaceId::of_this_thread().map_err(failed)?;
        let entry =
            journal.record(Undo::DeleteHtb { namespace, interface: interface.to_owned(), device, handle })?;
        if let Err(error) = control.add_htb(device, handle, default_minor) {
            journal.done(entry)?;
            if error.kind() == io::ErrorKind::AlreadyExists {
                refuse_foreign(&mut control, device, interface)?;
            }
            return Err(match error.kind() {
                io::ErrorKind::NotFound => Error::Refused(format!(
                    "cannot shape {interface}: this kernel lacks HTB; load the module sch_htb, or leave out \
                     the interface"
                )),
                _ => failed(error),
            });
        }
        Ok(Self {
            journal: journal.clone(),
            entry,
            control,
            interface: interface.to_owned(),
            device,
            handle,
            parents: BTreeMap::new(),
        })
    }

    /// Adds class `minor` (from 1) below class `parent`, or at the top.
    /// Errors: the class exists, or the parent does not; wrong rates.
    pub fn add_class(&mut self, minor: u16, parent: Option<u16>, class: HtbClass) -> Result<()> {
        if minor == 0 || self.parents.contains_key(&minor) {
            return Err(Error::Refused(format!(
                "class {minor} of {} exists already, or has no valid number",
                self.interface
            )));
        }
        let parent = parent.unwrap_or(0);
        if parent != 0 && !self.parents.contains_key(&parent) {
            return Err(Error::Refused(format!(
                "{} has no class {parent} to add {minor} to",
                self.interface
            )));
        }
        self.set(minor, parent, class, true)?;
        self.parents.insert(minor, parent);
        Ok(())
    }

    /// Changes the rates of a class. Takes effect at once, also for packets that wait.
    /// Errors: no such class, wrong rates, or another program has deleted or replaced the discipline.
    pub fn set_class(&mut self, minor: u16, class: HtbClass) -> Result<()> {
        let Some(parent) = self.parents.get(&minor).copied() else {
            return Err(Error::Refused(format!("{} has no class {minor}", self.interface)));
        };
        self.set(minor, parent, class, false)
    }

    /// Removes a class without children. Its sockets' packets belong to the default class then.
    pub fn remove_class(&mut self, minor: u16) -> Result<()> {
        let removed = self.control.delete_class(self.device, self.handle | u32::from(minor));
        removed.map_err(|error| Error::call(format!("remove class {minor} of {}", self.interface), error))?;
        self.parents.remove(&minor);
        Ok(())
    }

    /// The `SO_PRIORITY` by which a socket's packets belong to class `minor`.
    pub fn socket_priority(&self, minor: u16) -> u32 {
        self.handle | u32::from(minor)
    }

    /// The classes by number, as the kernel has them: to see that a rate is in force and what it let through.
    /// Empty if another program has deleted or replaced the discipline.
    pub fn read(&mut self) -> Result<BTreeMap<u16, ClassReading>> {
        let classes = self.control.classes(self.device);
        let classes =
            classes.map_err(|error| Error::call(format!("read the classes of {}", self.interface), error))?;
        let of_ours = |class: &ClassReading| class.class & 0xffff_0000 == self.handle;
        Ok(classes.into_iter().filter(of_ours).map(|class| (class.class as u16, class)).collect())
    }

    fn set(&mut self, minor: u16, parent: u16, class: HtbClass, is_new: bool) -> Result<()> {
        let rates = ClassRates {
            bytes_per_s: class.rate_bit_per_s / 8,
            ceil_bytes_per_s: class.ceil_bit_per_s / 8,
            priority: class.priority.into(),
        };
        if rates.bytes_per_s == 0 || class.ceil_bit_per_s < class.rate_bit_per_s || class.priority > 7 {
            return Err(Error::Refused(format!(
                "class {minor} of {}: the rate must be at least 8 bit/s and at most the ceiling, the \
                 priority at most 7; not {class:?}",
                self.interface
            )));
        }
        let numbers = (self.handle | u32::from(minor), self.handle | u32::from(parent));
        let set = self.control.set_class(self.device, numbers, rates, is_new);
        set.map_err(|error| {
            Error::call(format!("set the rate of class {minor} of {}", self.interface), error)
        })
    }
}

impl Drop for Htb {
    fn drop(&mut self) {
        // What cannot be deleted stays in the journal, which reports it.
        self.journal.undo(self.entry);
    }
}

/// What the kernel gives to new interfaces, and to the queues of mq.
fn default_qdisc() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/net/core/default_qdisc").ok()?;
    Some(text.trim().to_owned())
}

fn refuse_foreign(control: &mut TrafficControl, device: u32, interface: &str) -> Result<()> {
    let root = control.root_of(device).map_err(|e| Error::call(format!("look at {interface}"), e))?;
    let is_fq = root.as_ref().is_some_and(|root| root.kind == "fq")
        || root.as_ref().is_some_and(|root| root.kind == "mq") && default_qdisc().as_deref() == Some("fq");
    if is_fq {
        return Err(Error::Refused(format!(
            "{interface} has fq, which paces its TCP sockets: without it they would not be paced any more"
        )));
    }
    // Handle 0: the kernel's own choice.
    let Some(root) = root.filter(|root| root.handle != 0) else { return Ok(()) };
    let (kind, number) = (root.kind, root.handle >> 16);
    let remedy = match kind == "htb" && number & 0xff00 == HANDLE_PREFIX {
        true => "if another kagiri made it, end that one, or run 'kagiri undo'".to_owned(),
        false => format!("remove it ('tc qdisc del dev {interface} root'), or leave out the interface"),
    };
    Err(Error::Refused(format!(
        "{interface} has the queueing discipline {kind} {number:x}: already, which is not replaced; {remedy}"
    )))
}
