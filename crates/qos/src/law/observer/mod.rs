//! From samples of sockets to what the law decides on.

mod ack_delay;
mod base_rtt;
mod history;
mod socket;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use base::statistics::quantile;
use sys::netlink::ByCookie;

pub use history::{History, Tick};
pub use socket::SocketSample;

use super::settings::{ClassSettings, Settings};
use ack_delay::AckDelay;
use base_rtt::BaseRtt;
use socket::{Progress, Socket};

/// Segments that a bulk socket must have delivered in two ticks before its round-trip time counts.
const SEGMENTS_MIN: u32 = 4;
/// Below this number of bulk sockets the least round-trip time counts, not the 25th percentile.
const SOCKETS_MIN: usize = 4;

/// Sockets and peers, as far as the law remembers them.
#[derive(Debug, Clone, Default)]
pub struct Observer {
    pub sockets: ByCookie<Socket>,
    /// Number of observations.
    ticks: u64,
    peers: HashMap<IpAddr, Peer>,
}

#[derive(Debug, Clone, Default)]
struct Peer {
    base: BaseRtt,
    ack_delay: AckDelay,
}

/// One tick as seen from all sockets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    pub tick: Tick,
    /// Delay by the queue from round-trip times, in seconds; `None`: no socket has a sample.
    pub queue_s: Option<f64>,
    /// Round-trip time without a queue, in seconds: of the farthest peer.
    pub base_s: f64,
    /// On their way, of all sockets.
    pub inflight_bits: f64,
    /// Two segments of every socket that has data on its way.
    pub slack_bits: f64,
    pub bulk_active: usize,
    /// Active bulk sockets with data that waits to be sent.
    pub bulk_backlogged: usize,
    /// By class of the policy.
    pub classes: Vec<ClassSeen>,
}

/// Sockets of a class of the policy at one tick.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClassSeen {
    pub sockets: usize,
    /// With data on its way, or that waits to be sent.
    pub active: usize,
    /// With data that waits to be sent.
    pub backlogged: usize,
    /// What the messages that are on their way need to meet their targets, in bit/s; 0: bulk.
    pub active_need: f64,
    pub delivered_bit_per_s: f64,
    /// Round-trip time without a queue, in seconds, of the farthest peer of its sockets.
    pub base_s: f64,
}

impl Observer {
    /// Compares the samples with those of the tick before.
    pub fn observe(
        &mut self,
        now_ns: u64,
        duration_s: f64,
        capacity: f64,
        settings: &Settings,
        samples: &[SocketSample],
    ) -> Observation {
        let mut seen = Observation { tick: Tick { duration_s, ..Tick::default() }, ..Observation::default() };
        seen.classes.resize(settings.classes.len(), ClassSeen::default());
        let progress = self.update_sockets(samples);
        self.update_peers(samples);
        self.update_ack_delays(settings, &progress);
        seen.queue_s = self.queue_s(now_ns, capacity, settings, &progress);
        seen.base_s = self.peers.values().filter_map(|peer| peer.base.value_s()).fold(0.0, f64::max);
        for one in &progress {
            let is_bulk = is_bulk(settings, one.sample.class);
            let rate = if is_bulk { &mut seen.tick.bulk_bit_per_s } else { &mut seen.tick.urgent_bit_per_s };
            *rate += one.delivered_bit_per_s;
            if let Some(class) = seen.classes.get_mut(settings.policy_class(one.sample.class)) {
                class.delivered_bit_per_s += one.delivered_bit_per_s;
            }
            seen.tick.delivered_segments += u64::from(one.delivered_segments);
            seen.tick.retransmitted_segments += u64::from(one.retransmitted_segments);
        }
        for sample in samples {
            seen.inflight_bits += 8.0 * sample.inflight_bytes() as f64;
            if sample.unacked > 0 {
                seen.slack_bits += 2.0 * 8.0 * f64::from(sample.mss);
            }
            if sample.is_active() && is_bulk(settings, sample.class) {
                seen.bulk_active += 1;
                seen.bulk_backlogged += usize::from(sample.notsent_bytes > 0);
            }
        }
        self.count(settings, samples, &mut seen.classes);
        seen
    }

    /// Counts the sockets of each class of the policy as they are at the moment of the samples.
    pub fn count(&self, settings: &Settings, samples: &[SocketSample], classes: &mut [ClassSeen]) {
        for class in &mut *classes {
            *class = ClassSeen { delivered_bit_per_s: class.delivered_bit_per_s, ..ClassSeen::default() };
        }
        // Many sockets have the same peer.
        let mut peer: Option<(IpAddr, f64)> = None;
        for sample in samples {
            let Some(settings_of) = settings.classes.get(sample.class) else { continue };
            let Some(class) = classes.get_mut(settings.policy_class(sample.class)) else { continue };
            let known = peer.filter(|(peer, _)| *peer == sample.peer);
            let base_s = known.map_or_else(|| self.base_s(sample.peer).unwrap_or(0.0), |(_, base_s)| base_s);
            peer = Some((sample.peer, base_s));
            class.sockets += 1;
            class.base_s = class.base_s.max(base_s);
            if sample.is_active() {
                class.active += 1;
                class.backlogged += usize::from(sample.notsent_bytes > 0);
                class.active_need += settings_of.message_need(base_s);
            }
        }
    }

    pub fn base_s(&self, peer: IpAddr) -> Option<f64> {
        self.peers.get(&peer)?.base.value_s()
    }

    fn update_sockets(&mut self, samples: &[SocketSample]) -> Vec<Progress> {
        self.ticks += 1;
        let tick = self.ticks;
        let mut progress = Vec::new();
        let mut count = 0;
        for sample in samples {
            let socket = self.sockets.entry(sample.id).or_insert_with(|| Socket::new(*sample));
            // A socket that is listed twice counts once.
            if std::mem::replace(&mut socket.tick, tick) == tick {
                continue;
            }
            count += 1;
            progress.extend(socket.update(*sample).filter(Progress::has_any));
        }
        if count < self.sockets.len() {
            self.sockets.retain(|_, socket| socket.tick == tick);
        }
        progress
    }

    fn update_peers(&mut self, samples: &[SocketSample]) {
        let mut least: BTreeMap<IpAddr, u32> = BTreeMap::new();
        // A socket that has measured nothing yet has 0, or the largest number.
        for sample in samples.iter().filter(|sample| sample.srtt_us > 0 && sample.min_rtt_us < u32::MAX) {
            let of_peer = least.entry(sample.peer).or_insert(sample.min_rtt_us);
            *of_peer = (*of_peer).min(sample.min_rtt_us);
        }
        // A peer without a socket is forgotten: its path may be another one when it comes back.
        let of_one_peer = samples.chunk_by(|one, next| one.peer == next.peer);
        let present: HashSet<IpAddr> = of_one_peer.map(|samples| samples[0].peer).collect();
        self.peers.retain(|peer, _| present.contains(peer));
        for (peer, min_rtt_us) in least {
            self.peers.entry(peer).or_default().base.set_kernel_minimum(f64::from(min_rtt_us) * 1e-6);
        }
    }

    fn update_ack_delays(&mut self, settings: &Settings, progress: &[Progress]) {
        self.peers.values_mut().for_each(|peer| peer.ack_delay.forget());
        for one in progress.iter().filter(|one| one.spacing_s > 0.0 && is_bulk(settings, one.sample.class)) {
            if let Some(peer) = self.peers.get_mut(&one.sample.peer) {
                peer.ack_delay.observe(one);
            }
        }
    }

    /// Least delay by the queue over all peers, in seconds. Noise only adds.
    fn queue_s(
        &mut self,
        now_ns: u64,
        capacity: f64,
        settings: &Settings,
        progress: &[Progress],
    ) -> Option<f64> {
        let mut bulk: BTreeMap<IpAddr, Vec<f64>> = BTreeMap::new();
        let mut urgent: BTreeMap<IpAddr, f64> = BTreeMap::new();
        for one in progress {
            let Some(rtt_s) = one.rtt_s else { continue };
            match settings.classes.get(one.sample.class) {
                Some(ClassSettings::Bulk { .. }) if one.delivered_in_two >= SEGMENTS_MIN => {
                    let peer = self.peers.get(&one.sample.peer);
                    let wait_s = peer.map_or(0.0, |peer| peer.ack_delay.wait_s(one, rtt_s));
                    bulk.entry(one.sample.peer).or_default().push(rtt_s - wait_s);
                }
                Some(class) if one.delivered_segments > 0 => {
                    let Some((_, message_bytes)) = class.message() else { continue };
                    // Half of the time that the message itself takes on the link; at a lower rate than the
                    // link's it makes no queue.
                    let rate = self.sockets.get(&one.sample.id).and_then(|socket| socket.rate_bit_per_s);
                    let own_s = match rate.is_some_and(|rate| rate < capacity) {
                        true => 0.0,
                        false => 4.0 * message_bytes / capacity,
                    };
                    let least = urgent.entry(one.sample.peer).or_insert(f64::INFINITY);
                    *least = least.min(rtt_s - own_s);
                }
                _ => {}
            }
        }
        let mut least: BTreeMap<IpAddr, f64> = urgent;
        for (peer, rtts) in bulk {
            let q = if rtts.len() < SOCKETS_MIN { 0.0 } else { 0.25 };
            let typical_s = quantile(&rtts, q).unwrap_or(f64::INFINITY);
            let of_peer = least.entry(peer).or_insert(f64::INFINITY);
            *of_peer = of_peer.min(typical_s);
        }
        let queues = least.into_iter().filter_map(|(peer, rtt_s)| {
            let base = &mut self.peers.get_mut(&peer)?.base;
            base.observe(now_ns, rtt_s);
            Some((rtt_s - base.value_s()?).max(0.0))
        });
        queues.reduce(f64::min)
    }
}

pub fn is_bulk(settings: &Settings, class: usize) -> bool {
    matches!(settings.classes.get(class), Some(ClassSettings::Bulk { .. }))
}
