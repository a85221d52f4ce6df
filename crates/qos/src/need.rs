//! The rate that a class needs to meet its target.

/// Share of the time for transfer that a message may take when it is planned; the rest is for variation.
pub const KAPPA: f64 = 0.85;

/// One class of urgent messages, as planned or as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Size of a message (as planned, or the 90th percentile of recent ones), in bytes.
    pub message_bytes: f64,
    /// Longest response time, in seconds.
    pub target_s: f64,
    /// Part of a response that is not transfer: least round-trip time and time in the server, in seconds.
    pub overhead_s: f64,
    /// Messages on their way at the same time.
    pub concurrency: f64,
}

impl Demand {
    /// Time that is left for the transfer, in seconds; `None`: the overhead alone takes the target.
    pub fn transfer_s(&self) -> Option<f64> {
        let left = self.target_s - self.overhead_s;
        (left > 0.0).then_some(left)
    }

    /// The rate at which all messages, sent at once, take [`KAPPA`] of the time for transfer, in bit/s:
    /// d = n 8 S / (kappa (T - b)). `None`: no rate meets the target.
    pub fn need_bit_per_s(&self) -> Option<f64> {
        Some(self.concurrency * 8.0 * self.message_bytes / (KAPPA * self.transfer_s()?))
    }

    /// Response time of messages that are sent at once and share `bit_per_s`, in seconds.
    pub fn response_s(&self, bit_per_s: f64) -> f64 {
        self.overhead_s + self.concurrency * 8.0 * self.message_bytes / bit_per_s
    }
}

/// The rate that one message of this size needs, in bit/s, of which `transfer_s` seconds may be transfer; 0:
/// nothing is to be sent, or no rate is enough.
pub fn message_need_bit_per_s(message_bytes: f64, transfer_s: f64) -> f64 {
    let demand = Demand { message_bytes, target_s: transfer_s, overhead_s: 0.0, concurrency: 1.0 };
    demand.need_bit_per_s().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn need_leaves_the_margin_of_kappa() {
        let demand = Demand { message_bytes: 250e3, target_s: 0.5, overhead_s: 0.1, concurrency: 2.0 };
        let need = demand.need_bit_per_s().unwrap();
        assert!((need - 4e6 / (0.85 * 0.4)).abs() < 1.0, "{need}");
        assert!((demand.response_s(need) - (0.1 + 0.85 * 0.4)).abs() < 1e-9);
        assert_eq!(Demand { overhead_s: 0.5, ..demand }.need_bit_per_s(), None);
    }
}
