//! What the law reads of a socket, and what follows from two successive samples of it.

use std::net::IpAddr;

/// ACKs beyond this number have replaced the smoothed round-trip time completely.
const ACKS_MAX: u32 = 60;
/// Share that an ACK leaves of the smoothed round-trip time (RFC 6298, alpha = 1/8).
const SMOOTHING: f64 = 7.0 / 8.0;

/// One TCP socket at one moment: fields of `struct tcp_info` (linux/tcp.h), as sock_diag(7) returns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketSample {
    /// Identifies the socket as long as it exists, such as its cookie.
    pub id: u64,
    pub peer: IpAddr,
    /// Index of its class in [`crate::law::Settings::classes`].
    pub class: usize,
    /// When it was read, on the monotonic clock.
    pub time_ns: u64,
    /// `tcpi_rtt`: smoothed round-trip time.
    pub srtt_us: u32,
    /// `tcpi_min_rtt`.
    pub min_rtt_us: u32,
    /// `tcpi_segs_in`: segments received; wraps.
    pub segs_in: u32,
    /// `tcpi_delivered`: segments that arrived at the receiver, in order or not; wraps.
    pub delivered: u32,
    /// `tcpi_snd_mss`, in bytes.
    pub mss: u32,
    /// `tcpi_unacked`, in segments, as all below.
    pub unacked: u32,
    /// `tcpi_sacked`.
    pub sacked: u32,
    /// `tcpi_lost`.
    pub lost: u32,
    /// `tcpi_retrans`: retransmitted and on their way.
    pub retrans: u32,
    /// `tcpi_total_retrans`: retransmitted so far; wraps.
    pub total_retrans: u32,
    /// `tcpi_notsent_bytes`.
    pub notsent_bytes: u32,
}

impl SocketSample {
    /// Whether data is on its way or waits to be sent.
    pub fn is_active(&self) -> bool {
        self.unacked > 0 || self.notsent_bytes > 0
    }

    /// Bytes on their way.
    pub fn inflight_bytes(&self) -> u64 {
        let gone = self.sacked.saturating_add(self.lost);
        let segments = self.unacked.saturating_sub(gone).saturating_add(self.retrans);
        u64::from(segments) * u64::from(self.mss)
    }
}

/// A socket over its last ticks.
#[derive(Debug, Clone)]
pub struct Socket {
    last: SocketSample,
    /// Segments delivered in the tick before.
    delivered_before: u32,
    /// Rate that it was given last, in bit/s.
    pub rate_bit_per_s: Option<f64>,
    /// The lowest that it was given since the last sample.
    lowest_bit_per_s: Option<f64>,
    /// Rates in force in the last tick and in the one before.
    in_force: [Option<f64>; 2],
    /// The last observation of it.
    pub tick: u64,
}

/// What a socket did since the sample before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    pub sample: SocketSample,
    /// Round-trip time of the latest ACKs, in seconds; `None`: no ACK arrived.
    pub rtt_s: Option<f64>,
    /// Time from one segment to the next by the rates in force, in seconds: 0 if nothing waits to be sent, or
    /// the socket has no rate.
    pub spacing_s: f64,
    pub acks: u32,
    pub delivered_segments: u32,
    /// Segments delivered in this tick and the one before.
    pub delivered_in_two: u32,
    pub retransmitted_segments: u32,
    pub delivered_bit_per_s: f64,
}

impl Progress {
    /// Whether anything happened, or waits to be sent. Most of many sockets rest.
    pub fn has_any(&self) -> bool {
        self.acks > 0
            || self.delivered_segments > 0
            || self.retransmitted_segments > 0
            || self.spacing_s > 0.0
    }
}

impl Socket {
    pub fn new(sample: SocketSample) -> Self {
        Self {
            last: sample,
            delivered_before: 0,
            rate_bit_per_s: None,
            lowest_bit_per_s: None,
            in_force: [None; 2],
            tick: 0,
        }
    }

    pub fn set_rate(&mut self, bit_per_s: f64) {
        self.rate_bit_per_s = Some(bit_per_s);
        self.lowest_bit_per_s = Some(self.lowest_bit_per_s.map_or(bit_per_s, |lowest| lowest.min(bit_per_s)));
    }

    /// Compares with the last sample. `None`: no time has passed.
    pub fn update(&mut self, sample: SocketSample) -> Option<Progress> {
        let last = std::mem::replace(&mut self.last, sample);
        let elapsed_ns = sample.time_ns.checked_sub(last.time_ns).filter(|ns| *ns > 0)?;
        let delivered = sample.delivered.wrapping_sub(last.delivered);
        let before = std::mem::replace(&mut self.delivered_before, delivered);
        let lowest = self.lowest_bit_per_s.take();
        self.in_force = [self.rate_bit_per_s.map(|rate| lowest.unwrap_or(rate)), self.in_force[0]];
        Some(Progress {
            sample,
            rtt_s: latest_rtt_s(&last, &sample),
            spacing_s: self.spacing_s(&sample),
            acks: sample.segs_in.wrapping_sub(last.segs_in),
            delivered_segments: delivered,
            delivered_in_two: delivered.saturating_add(before),
            retransmitted_segments: sample.total_retrans.wrapping_sub(last.total_retrans),
            delivered_bit_per_s: 8e9 * f64::from(delivered) * f64::from(sample.mss) / elapsed_ns as f64,
        })
    }

    /// By the lower of the two rates: segments that are acknowledged now may have been sent at either, and a
    /// queue that is none costs bulk more than one that shows a tick later costs urgent messages.
    fn spacing_s(&self, sample: &SocketSample) -> f64 {
        let rate = self.in_force.into_iter().flatten().reduce(f64::min);
        let rate = rate.filter(|_| sample.notsent_bytes > 0);
        rate.map_or(0.0, |rate| 8.0 * f64::from(sample.mss) / rate)
    }
}

/// The round-trip time behind the change of the smoothed one.
///
/// The smoothed time is a moving average over ACKs, which a socket that is paced down receives rarely: it
/// shows a drained queue for half a second and longer.
fn latest_rtt_s(last: &SocketSample, sample: &SocketSample) -> Option<f64> {
    let acks = sample.segs_in.wrapping_sub(last.segs_in).min(ACKS_MAX);
    if acks == 0 || sample.srtt_us == 0 {
        return None;
    }
    let kept = if last.srtt_us == 0 { 0.0 } else { SMOOTHING.powi(acks as i32) };
    let rtt_us = (f64::from(sample.srtt_us) - f64::from(last.srtt_us) * kept) / (1.0 - kept);
    Some(rtt_us.max(f64::from(sample.min_rtt_us)) * 1e-6)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::sample;
    use super::*;

    #[test]
    fn latest_rtt_is_recovered_from_the_smoothed_one() {
        let mut socket = Socket::new(SocketSample { srtt_us: 100_000, ..sample(1) });
        // Ten ACKs at 20 ms.
        let srtt_us = (0..10).fold(100_000.0, |srtt: f64, _| srtt * 7.0 / 8.0 + 20_000.0 / 8.0);
        let next = SocketSample { srtt_us: srtt_us as u32, segs_in: 10, time_ns: 50_000_000, ..sample(1) };
        let rtt_s = socket.update(next).unwrap().rtt_s.unwrap();
        assert!((rtt_s - 0.02).abs() < 1e-4, "{rtt_s}");
        let silent = SocketSample { time_ns: 100_000_000, ..next };
        assert_eq!(socket.update(silent).unwrap().rtt_s, None);
        let many = SocketSample { time_ns: 150_000_000, segs_in: 10_010, srtt_us: 30_000, ..silent };
        let rtt_s = socket.update(many).unwrap().rtt_s.unwrap();
        assert!((rtt_s - 0.03).abs() < 1e-4, "{rtt_s}");
        // Never below the minimum that the kernel saw.
        let rounding =
            SocketSample { time_ns: 200_000_000, segs_in: 10_011, srtt_us: 10_000, min_rtt_us: 9000, ..many };
        assert_eq!(socket.update(rounding).unwrap().rtt_s, Some(0.009));
    }

    #[test]
    fn counters_wrap_and_rates_use_the_time_of_the_sample() {
        let mut socket =
            Socket::new(SocketSample { delivered: u32::MAX, total_retrans: u32::MAX, ..sample(1) });
        let next = SocketSample { delivered: 49, total_retrans: 1, time_ns: 100_000_000, ..sample(1) };
        let progress = socket.update(next).unwrap();
        assert_eq!((progress.delivered_segments, progress.retransmitted_segments), (50, 2));
        assert!((progress.delivered_bit_per_s - 50.0 * 1000.0 * 8.0 / 0.1).abs() < 1.0);
        let next = SocketSample { delivered: 52, time_ns: 150_000_000, ..next };
        assert_eq!(socket.update(next).unwrap().delivered_in_two, 53);
        assert_eq!(socket.update(next), None, "the same moment");
    }
}
