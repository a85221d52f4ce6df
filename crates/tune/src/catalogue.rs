//! The settings that kagiri knows, the most used first. Sources: tcp(7), udp(7), socket(7) and
//! ip-sysctl.rst and net.rst in the documentation of Linux.

use base::near;

use crate::setting::{Affects, INT_MAX, Scope, Setting, Values};

/// No setting has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown setting '{name}'{}", hint(*near))]
pub struct UnknownSetting {
    pub name: String,
    /// The nearest name, if one is near.
    pub near: Option<&'static str>,
}

fn hint(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"))
}

/// The setting of a name: `net.ipv4.tcp_wmem`, `net/ipv4/tcp_wmem`, `tcp_wmem`.
/// Errors: there is none; names the nearest one.
pub fn find(name: &str) -> Result<&'static Setting, UnknownSetting> {
    let dotted = name.trim().replace('/', ".");
    let is_meant = |setting: &&Setting| {
        setting.name.eq_ignore_ascii_case(&dotted) || setting.short_name().eq_ignore_ascii_case(&dotted)
    };
    SETTINGS
        .iter()
        .find(is_meant)
        .ok_or_else(|| UnknownSetting { name: name.trim().to_owned(), near: nearest(&dotted) })
}

fn nearest(name: &str) -> Option<&'static str> {
    // Only the last part of a full name is compared: a wrong `net.core.` is near, too.
    let last = name.rsplit('.').next().unwrap_or(name);
    let near = near::nearest(last, SETTINGS.iter().map(Setting::short_name))?;
    SETTINGS.iter().find(|setting| setting.short_name() == near).map(|setting| setting.name)
}

const fn number(min: i64, max: i64) -> Values {
    Values::Number { min, max }
}

const SWITCH: Values = number(0, 1);
const THREE: Values = Values::Three { min: 1, max: INT_MAX };
const PACKETS: Values = number(1, INT_MAX);
const PERCENT: Values = number(0, 1000);

/// (name, meaning, unit, values, default, scope, affects), as a row of the table.
const fn row(
    name: &'static str,
    (meaning, unit): (&'static str, &'static str),
    (values, default): (Values, &'static str),
    (scope, affects): (Scope, Affects),
) -> Setting {
    Setting { name, meaning, unit, values, default, scope, affects }
}

const OWN_NEW: (Scope, Affects) = (Scope::Namespace, Affects::NewSockets);
const OWN_ALL: (Scope, Affects) = (Scope::Namespace, Affects::All);
const HOST_NEW: (Scope, Affects) = (Scope::Host, Affects::NewSockets);
const HOST_ALL: (Scope, Affects) = (Scope::Host, Affects::All);

pub const SETTINGS: &[Setting] = &[
    row(
        "net.ipv4.tcp_wmem",
        ("Send buffer of a TCP connection: minimum, size at the start, largest that it grows to.", "bytes"),
        (THREE, "4096 16384, and 64 KiB to 4 MiB by the host's memory"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_rmem",
        (
            "Receive buffer of a TCP connection: minimum, size at the start, largest that it grows to.",
            "bytes",
        ),
        (THREE, "4096 131072, and 128 KiB to 32 MiB by the host's memory (6 MiB before Linux 6.16)"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_congestion_control",
        ("How TCP adapts its rate to the network.", ""),
        (Values::CongestionControl, "cubic"),
        OWN_NEW,
    ),
    row(
        "net.ipv4.tcp_notsent_lowat",
        ("Unsent bytes from which on a connection accepts no more data from its program.", "bytes"),
        (number(0, u32::MAX as i64), "4294967295"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_slow_start_after_idle",
        ("Whether a connection starts slowly again after it was idle for a retransmission timeout.", ""),
        (SWITCH, "1"),
        OWN_ALL,
    ),
    row(
        "net.core.wmem_max",
        ("Largest send buffer that a program may set (SO_SNDBUF).", "bytes"),
        (number(4608, INT_MAX), "4194304 (212992 before Linux 6.17)"),
        HOST_NEW,
    ),
    row(
        "net.core.rmem_max",
        ("Largest receive buffer that a program may set (SO_RCVBUF).", "bytes"),
        (number(2304, INT_MAX), "4194304 (212992 before Linux 6.17)"),
        HOST_NEW,
    ),
    row(
        "net.core.rmem_default",
        ("Receive buffer of sockets other than TCP whose program sets none; UDP above all.", "bytes"),
        (number(2304, INT_MAX), "212992"),
        HOST_NEW,
    ),
    row(
        "net.core.wmem_default",
        ("Send buffer of sockets other than TCP whose program sets none.", "bytes"),
        (number(4608, INT_MAX), "212992"),
        HOST_NEW,
    ),
    row(
        "net.core.netdev_max_backlog",
        ("Received packets that may wait for a CPU; more are dropped.", "packets"),
        (PACKETS, "1000"),
        HOST_ALL,
    ),
    row(
        "net.core.somaxconn",
        ("Connections that may wait for a program's accept(), at most.", "connections"),
        (number(1, 65_535), "4096"),
        OWN_NEW,
    ),
    row(
        "net.ipv4.tcp_limit_output_bytes",
        ("Bytes of a connection that may wait in this host's queues below TCP.", "bytes"),
        (number(1, INT_MAX), "4194304 (1048576 before Linux 6.10)"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_tso_rtt_log",
        ("Larger bursts for short round trips: 2^N us is where they end; 0: no such bursts.", ""),
        (number(0, 31), "9"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_min_tso_segs",
        ("Segments of a burst, at least.", "segments"),
        (number(1, 255), "2"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_autocorking",
        ("Whether small writes wait for a packet of theirs that is still in this host's queues.", ""),
        (SWITCH, "1"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_moderate_rcvbuf",
        ("Whether the kernel adapts receive buffers up to tcp_rmem.", ""),
        (SWITCH, "1"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_adv_win_scale",
        ("Share of the receive buffer for the kernel's own data; no effect since Linux 6.6.", ""),
        (number(-31, 31), "1"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_mtu_probing",
        ("Whether TCP searches for the path's packet size: 0 never, 1 after a black hole, 2 always.", ""),
        (number(0, 2), "0"),
        OWN_NEW,
    ),
    row(
        "net.ipv4.tcp_ecn",
        ("Explicit congestion notification: 0 never, 1 requested, 2 if the peer requests it.", ""),
        (number(0, 5), "2"),
        OWN_NEW,
    ),
    row(
        "net.ipv4.tcp_sack",
        ("Whether TCP reports and uses selective acknowledgements.", ""),
        (SWITCH, "1"),
        OWN_NEW,
    ),
    row(
        "net.ipv4.tcp_no_metrics_save",
        ("Whether new connections ignore what earlier ones to the same host have measured.", ""),
        (SWITCH, "0"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_pacing_ss_ratio",
        ("Pacing rate in slow start, of window per round trip.", "%"),
        (PERCENT, "200"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_pacing_ca_ratio",
        ("Pacing rate after slow start, of window per round trip.", "%"),
        (PERCENT, "120"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.tcp_max_syn_backlog",
        ("Connections to a listener that may be half open.", "connections"),
        (number(1, INT_MAX), "128 to 4096 by the host's memory"),
        OWN_NEW,
    ),
    row(
        "net.ipv4.udp_rmem_min",
        ("Receive buffer that every UDP socket has even if udp_mem is used up.", "bytes"),
        (number(1, INT_MAX), "4096"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.udp_wmem_min",
        ("Send buffer that every UDP socket has even if udp_mem is used up.", "bytes"),
        (number(1, INT_MAX), "4096"),
        OWN_ALL,
    ),
    row(
        "net.ipv4.udp_mem",
        (
            "Memory of all UDP sockets: pressure above the second, datagrams are dropped at the third.",
            "pages",
        ),
        (THREE, "by the host's memory"),
        HOST_ALL,
    ),
    row(
        "net.ipv4.tcp_mem",
        ("Memory of all TCP sockets: buffers shrink above the second; the third is the limit.", "pages"),
        (THREE, "by the host's memory"),
        HOST_ALL,
    ),
    row(
        "net.core.netdev_budget",
        ("Packets that a CPU takes in one round of receiving, at most.", "packets"),
        (PACKETS, "300"),
        HOST_ALL,
    ),
    row(
        "net.core.netdev_budget_usecs",
        ("Time of one round of receiving, at most.", "us"),
        (number(1, INT_MAX), "two ticks of the kernel (2000 to 20000)"),
        HOST_ALL,
    ),
    row(
        "net.core.default_qdisc",
        ("Queueing discipline of an interface that comes up.", ""),
        (Values::QueueingDiscipline, "pfifo_fast (many distributions: fq_codel)"),
        (Scope::Host, Affects::NewInterfaces),
    ),
    row(
        "SO_SNDBUF",
        ("Fixed send buffer of a socket; the kernel no longer adapts it.", "bytes"),
        (number(1, INT_MAX), "not set; net.core.wmem_max is its largest value"),
        (Scope::Socket, Affects::All),
    ),
    row(
        "SO_RCVBUF",
        ("Fixed receive buffer of a socket; the kernel no longer adapts it.", "bytes"),
        (number(1, INT_MAX), "not set; net.core.rmem_max is its largest value"),
        (Scope::Socket, Affects::All),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_have_a_path() {
        let short: BTreeSet<_> = SETTINGS.iter().map(Setting::short_name).collect();
        assert_eq!(short.len(), SETTINGS.len());
        for setting in SETTINGS.iter().filter(|setting| setting.scope != Scope::Socket) {
            assert!(setting.name.starts_with("net."), "{}", setting.name);
            assert!(setting.meaning.ends_with('.'), "{}", setting.name);
        }
    }

    #[test]
    fn setting_is_found_by_each_of_its_names() {
        for name in ["net.ipv4.tcp_wmem", "net/ipv4/tcp_wmem", "tcp_wmem", " TCP_WMEM "] {
            assert_eq!(find(name).map(|setting| setting.name), Ok("net.ipv4.tcp_wmem"), "{name}");
        }
    }

    #[test]
    fn unknown_name_suggests_the_nearest() {
        for (name, near) in [
            ("tcp_wmen", Some("net.ipv4.tcp_wmem")),
            ("net.core.tcp_rmem", Some("net.ipv4.tcp_rmem")),
            ("net.ipv4.tcp_congestion", Some("net.ipv4.tcp_congestion_control")),
            ("tcp_congestoin_control", Some("net.ipv4.tcp_congestion_control")),
            ("kernel.panic", None),
            ("", None),
        ] {
            // Without a setting of that name, at most a near one is named.
            let unknown = find(name).map(|setting| setting.name).unwrap_err();
            assert_eq!(unknown.near, near, "{name}");
            assert_eq!(unknown.to_string().contains("did you mean"), near.is_some());
        }
    }
}
