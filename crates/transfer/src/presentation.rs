//! What is shown of a transfer, and the resources that only a connection has.

use base::limit_rules::WAITING;
use base::outcome::ResourceSpec;
use base::workload::{Panel, Presentation};

/// The receiver's window: it had not room for more.
pub static WINDOW: ResourceSpec = ResourceSpec {
    name: "window",
    label: "the receiver's window",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a larger receive buffer (net.ipv4.tcp_rmem, --window)",
    rule: WAITING,
};

/// The sender's buffer: smaller than what the path could hold.
pub static SEND_BUFFER: ResourceSpec = ResourceSpec {
    name: "send_buffer",
    label: "the sender's buffer",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a larger send buffer (net.ipv4.tcp_wmem, --window)",
    rule: WAITING,
};

pub static PRESENTATION: Presentation = Presentation {
    live_rates: &[("goodput_up_bit_per_s", "up"), ("goodput_down_bit_per_s", "down")],
    panels_above: &[
        Panel { title: "goodput up", series: &["goodput_up_bit_per_s"], has_stalls: false },
        Panel { title: "goodput down", series: &["goodput_down_bit_per_s"], has_stalls: false },
    ],
    resources: &[&WINDOW, &SEND_BUFFER],
    ..Presentation::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_resource_limits_from_half_of_the_time() {
        for (resource, share, is_used_up) in [
            (&WINDOW, 0.4, false),
            (&WINDOW, 0.5, true),
            (&SEND_BUFFER, 0.4, false),
            (&SEND_BUFFER, 0.5, true),
        ] {
            assert_eq!(resource.rule.is_used_up(share), is_used_up, "{} {share}", resource.name);
        }
    }
}
