//! The builder's UDP port: answers to clock questions, and with UDP the fragments.

use std::net::SocketAddr;

use sys::clock::monotonic_ns;
use sys::net::{NetError, UdpPort};

use super::told::Told;
use super::worker::Worker;
use crate::daq::settings::Carrier;
use crate::daq::theory::packets;
use crate::daq::wire::HEADER_BYTES_MAX;

/// Datagrams taken before connections have their turn.
const DATAGRAMS_AT_ONCE: usize = 256;
/// What the kernel counts for a datagram that waits, and the most that is asked for.
const DATAGRAM_BYTES: u64 = 4096;
const RECEIVE_BYTES_MAX: u64 = 256 << 20;

/// What the kernel counts for all datagrams of the events under way, bytes: each takes a page with its bookkeeping.
fn datagrams_bytes(told: &Told) -> u64 {
    let fragment_bytes = told.sizes.mean_bytes().round() as u32;
    let datagrams = packets(fragment_bytes, Carrier::Udp) * u64::from(told.sources());
    (datagrams * u64::from(told.window()) * DATAGRAM_BYTES).clamp(1 << 20, RECEIVE_BYTES_MAX)
}

/// The builder's UDP port.
///
/// # Errors
/// The port is taken, no descriptors.
pub(super) fn udp_port(told: &Told) -> Result<UdpPort, NetError> {
    let udp = UdpPort::bind(told.address)?;
    if told.settings.protocol == Carrier::Udp {
        // What is not to be had is told as drops.
        let _ = udp.set_receive_buffer(datagrams_bytes(told));
    }
    Ok(udp)
}

impl Worker {
    /// Takes the datagrams that wait: answers to questions, and parts of fragments.
    pub(super) fn read_datagrams(&mut self, woke_ns: u64) {
        let mut datagram = [0; 2 * HEADER_BYTES_MAX + 2048];
        for _ in 0..DATAGRAMS_AT_ONCE {
            let Ok(Some((bytes, from))) = self.udp.receive(&mut datagram) else { break };
            let now_ns = monotonic_ns();
            (self.assembly.now_ns, self.assembly.read_late_ns) = (now_ns, now_ns.saturating_sub(woke_ns));
            self.take_datagram(&datagram[..bytes], from, now_ns);
        }
        self.settle();
    }

    /// Datagrams that found no room; unknown where the kernel does not tell, and of no interest where none carry fragments.
    pub(super) fn datagrams_dropped(&self) -> Option<u64> {
        let carries = self.told.settings.protocol == Carrier::Udp;
        carries.then(|| self.udp.dropped().ok().map(u64::from)).flatten()
    }

    /// Says something to one address by UDP; lost is lost.
    pub(super) fn say_by_udp(&self, bytes: &[u8], to: SocketAddr) {
        let _ = self.udp.send_to(bytes, to);
    }
}
