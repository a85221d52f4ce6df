//! Waiting for fragments without being woken by each.

use sys::clock::sleep_until_ns;
use sys::net::{Events, NetError};

use super::worker::Worker;

/// While so many fragments have to come before there is anything to do, the thread naps for half of the time that they
/// took last, between so long and so long: otherwise each of them would wake it, and on a machine that sends them too, waking
/// takes the sender longer than sending.
const NAP_FRAGMENTS_MIN: u64 = 12;
const NAP_NS: (u64, u64) = (20_000, 50_000);

impl Worker {
    /// Waits for something to happen; naps while many fragments are still to come.
    pub(super) fn wait(&self, ready: &mut Events, now_ns: u64, until_ns: u64) -> Result<usize, NetError> {
        let awaited = match &self.grants {
            Some(grants) if !self.is_push => grants.awaited(),
            _ => self.assembly.table.missing(),
        };
        let nap_ns = (awaited * self.pace_ns / 2).min(NAP_NS.1);
        let nap_until_ns = now_ns + nap_ns;
        if awaited >= NAP_FRAGMENTS_MIN && nap_ns >= NAP_NS.0 && nap_until_ns < until_ns {
            sleep_until_ns(nap_until_ns);
            let found = self.epoll.wait_until(ready, nap_until_ns)?;
            if found > 0 {
                return Ok(found);
            }
        }
        self.epoll.wait_until(ready, until_ns)
    }
}
