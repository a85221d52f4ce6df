//! A TCP sender (Reno with slow start, pacing) and its receiver, which acknowledges as Linux does.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use qos::law::SocketSample;

pub const MSS: u32 = 1448;
const WINDOW_FIRST: f64 = 10.0;
/// How long a receiver waits for a second segment.
const DELAYED_ACK_US: u64 = 40_000;

/// Messages of one urgent flow.
#[derive(Clone, Copy)]
pub struct Schedule {
    pub bytes: f64,
    pub every_us: u64,
    pub offset_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    AcknowledgesEach,
    AcknowledgesEverySecond,
}

pub struct Flow {
    pub class: usize,
    /// `None`: as the simulator's fields say, each flow at another time.
    pub schedule: Option<Schedule>,
    pub is_managed: bool,
    pub pacing_bit_per_s: f64,
    /// The pacing timer: a change of the rate does not move it.
    pub may_send_us: f64,
    pub window: f64,
    pub threshold: f64,
    pub inflight: u32,
    /// Bytes that wait to be sent; infinite for bulk.
    pub backlog_bytes: f64,
    pub acks: VecDeque<(u64, u64)>,
    pub losses: VecDeque<u64>,
    pub recovery_until_us: u64,
    /// A segment that the receiver has not acknowledged: when it came, and its round-trip time.
    pub pending: Option<(u64, u64)>,
    pub srtt_us: f64,
    pub min_rtt_us: u32,
    pub segs_in: u32,
    pub delivered: u32,
    pub total_retrans: u32,
    /// Messages: when sent, and the number of segments after which each is complete.
    pub messages: VecDeque<(u64, u64)>,
    pub segments_queued: u64,
    pub segments_done: u64,
}

impl Flow {
    pub fn new(class: usize, is_managed: bool) -> Self {
        Self {
            class,
            schedule: None,
            is_managed,
            pacing_bit_per_s: f64::INFINITY,
            may_send_us: 0.0,
            window: WINDOW_FIRST,
            threshold: f64::INFINITY,
            inflight: 0,
            backlog_bytes: 0.0,
            acks: VecDeque::new(),
            losses: VecDeque::new(),
            recovery_until_us: 0,
            pending: None,
            srtt_us: 0.0,
            min_rtt_us: 0,
            segs_in: 0,
            delivered: 0,
            total_retrans: 0,
            messages: VecDeque::new(),
            segments_queued: 0,
            segments_done: 0,
        }
    }

    /// A segment arrives; the time that a message took, if it is complete.
    ///
    /// Linux acknowledges every second segment, or after 40 ms, and the sender measures from the first of
    /// those that an ACK covers. An answer carries an ACK at once.
    pub fn arrive(&mut self, now_us: u64, rtt_us: u64, receiver: Receiver) -> Option<u64> {
        self.segments_done += 1;
        let (segments, rtt_us) = match self.pending.take() {
            Some((since_us, rtt_us)) => (2, rtt_us + now_us - since_us),
            None => (1, rtt_us),
        };
        let is_answered = self.messages.front().is_some_and(|(_, last)| self.segments_done >= *last);
        match segments == 2 || is_answered || receiver == Receiver::AcknowledgesEach {
            true => self.acknowledge(segments, rtt_us),
            false => self.pending = Some((now_us, rtt_us)),
        }
        let (sent_us, _) = is_answered.then(|| self.messages.pop_front()).flatten()?;
        Some(now_us - sent_us)
    }

    pub fn wait_for_second(&mut self, now_us: u64) {
        if let Some((_, rtt_us)) = self.pending.take_if(|(since_us, _)| now_us >= *since_us + DELAYED_ACK_US)
        {
            self.acknowledge(1, rtt_us + DELAYED_ACK_US);
        }
    }

    fn acknowledge(&mut self, segments: u32, rtt_us: u64) {
        let used = f64::from(self.inflight);
        self.inflight = self.inflight.saturating_sub(segments);
        self.delivered = self.delivered.wrapping_add(segments);
        self.segs_in = self.segs_in.wrapping_add(1);
        let rtt = rtt_us as f64;
        self.srtt_us = if self.srtt_us == 0.0 { rtt } else { self.srtt_us * 7.0 / 8.0 + rtt / 8.0 };
        self.min_rtt_us = match self.min_rtt_us {
            0 => rtt_us as u32,
            least => least.min(rtt_us as u32),
        };
        let segments = f64::from(segments);
        if self.window < self.threshold && 2.0 * used >= self.window {
            self.window += segments;
        } else if used >= self.window - 1.0 {
            self.window += segments / self.window;
        }
    }

    pub fn lose(&mut self, now_us: u64) {
        self.inflight = self.inflight.saturating_sub(1);
        self.total_retrans = self.total_retrans.wrapping_add(1);
        self.backlog_bytes += f64::from(MSS);
        if now_us >= self.recovery_until_us {
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = self.threshold;
            self.recovery_until_us = now_us + self.srtt_us as u64;
        }
    }

    pub fn sample(&self, id: usize, now_us: u64) -> SocketSample {
        SocketSample {
            id: id as u64,
            peer: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            class: self.class,
            time_ns: now_us * 1000,
            srtt_us: self.srtt_us as u32,
            min_rtt_us: self.min_rtt_us,
            segs_in: self.segs_in,
            delivered: self.delivered,
            mss: MSS,
            unacked: self.inflight,
            sacked: 0,
            lost: 0,
            retrans: 0,
            total_retrans: self.total_retrans,
            notsent_bytes: self.backlog_bytes.min(1e6) as u32,
        }
    }
}
