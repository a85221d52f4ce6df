//! What is shown of event building, and the resource that only a port has.

use base::limit_rules::LOSS;
use base::outcome::ResourceSpec;
use base::workload::Presentation;

/// The buffer of a switch's port.
pub static PORT_BUFFER: ResourceSpec = ResourceSpec {
    name: "buffer",
    label: "the buffer of the port",
    unit: "B",
    unit_suffix: "bytes",
    remedy: "a smaller burst (daq: --pattern grant, a smaller --credit, --stagger), or a larger port buffer",
    rule: LOSS,
};

pub static PRESENTATION: Presentation =
    Presentation { target: "builder", resources: &[&PORT_BUFFER], ..Presentation::DEFAULT };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_buffer_limits_from_one_lost_event_in_a_hundred() {
        for (share, is_used_up) in [(0.009, false), (0.01, true), (0.02, true)] {
            assert_eq!(PORT_BUFFER.rule.is_used_up(share), is_used_up, "{share}");
        }
    }
}
