use super::*;
use crate::observe::{Counters, SocketUse};

fn socket(is_tcp: bool) -> SocketUse {
    SocketUse {
        local: "10.0.0.1:5000".parse().unwrap(),
        peer: "10.0.0.2:80".parse().unwrap(),
        is_tcp,
        busy_us: if is_tcp { 1_000_000 } else { 0 },
        rwnd_limited_us: 0,
        sndbuf_limited_us: 0,
        notsent_bytes_max: 0,
        delivery_bytes_per_s: Some(1_000_000),
        rtt_min_us: Some(40_000),
        send_buffer_bytes: Some(32_768),
        receive_buffer_bytes: Some(212_992),
        drops: 0,
    }
}

fn values() -> Values {
    [
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_notsent_lowat", "4294967295"),
        ("net.core.rmem_default", "212992"),
        ("net.core.netdev_max_backlog", "1000"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into()
}

fn seen(sockets: Vec<SocketUse>, counters: &[(&str, &str, u64)]) -> Observation {
    let mut all = Counters::default();
    for (group, name, value) in counters {
        all.set(group, name, *value);
    }
    Observation { length_s: 5.0, sockets, counters: all, missing: Vec::new() }
}

fn only(seen: &Observation) -> Statement {
    let statements = advise(seen, &values());
    assert_eq!(statements.len(), 1, "{statements:#?}");
    statements.into_iter().next().unwrap()
}

#[test]
fn small_shares_are_not_the_limit() {
    let mut one = socket(true);
    one.sndbuf_limited_us = 3000;
    let statement = only(&seen(vec![one, socket(true), socket(false)], &[]));
    assert_eq!(statement.finding, Finding::NotTheLimit);
    assert!(statement.text.contains("Buffers are not the limit"), "{}", statement.text);
    assert!(statement.text.contains("send-buffer-limited 0.15 %"), "{}", statement.text);
    assert!(statement.text.contains("TCP_INFO of 2 sockets, 5 s"), "{}", statement.text);
    assert_eq!(statement.counters[0].value, 2_000_000);
    let shares = buffer_shares(&seen(vec![socket(true)], &[])).unwrap();
    assert_eq!(shares.bandwidth_delay_bytes, Some(40_000));
}

#[test]
fn nothing_seen_is_unknown() {
    let mut idle = socket(true);
    idle.busy_us = 0;
    let statement = only(&seen(vec![idle], &[]));
    assert_eq!(statement.finding, Finding::Unknown);
    let statement =
        advise(&seen(vec![], &[("Udp", "InDatagrams", 0), ("Udp", "RcvbufErrors", 0)]), &values());
    assert!(statement.iter().all(|one| one.finding == Finding::Unknown), "{statement:?}");
    assert_eq!(statement.len(), 2);
}

#[test]
fn fixed_send_buffer_is_told_from_a_full_one() {
    let mut fixed = socket(true);
    fixed.sndbuf_limited_us = 400_000;
    let statement = only(&seen(vec![fixed.clone(), socket(true)], &[]));
    assert_eq!((statement.finding, statement.setting.as_deref()), (Finding::Limit, Some("SO_SNDBUF")));
    assert!(
        statement.text.contains("the connection to 10.0.0.2:80: send-buffer-limited 20 %"),
        "{statement:?}"
    );
    assert_eq!(statement.proposal, None);
    fixed.send_buffer_bytes = Some(4_194_304);
    let statement = only(&seen(vec![fixed], &[]));
    assert_eq!(statement.setting.as_deref(), Some("net.ipv4.tcp_wmem"));
    assert_eq!(statement.proposal.as_deref(), Some("4096 16384 8388608"));
}

#[test]
fn one_limited_connection_among_many_is_found() {
    let mut limited = socket(true);
    limited.rwnd_limited_us = 900_000;
    let mut all = vec![socket(true); 99];
    all.push(limited);
    let statement = only(&seen(all, &[]));
    assert_eq!((statement.finding, &*statement.subject), (Finding::Limit, "receive window"));
    assert!(statement.text.contains("10.0.0.2:80") && statement.proposal.is_none(), "{statement:?}");
}

#[test]
fn unsent_data_is_a_delay() {
    let mut one = socket(true);
    one.notsent_bytes_max = 2_000_000;
    let statements = advise(&seen(vec![one], &[]), &values());
    assert_eq!(statements[0].finding, Finding::Delay);
    assert_eq!(statements[0].proposal.as_deref(), Some("131072"));
    assert_eq!(statements[1].finding, Finding::NotTheLimit);
}

#[test]
fn full_udp_buffers_name_their_socket_and_counter() {
    let mut one = socket(false);
    one.drops = 900;
    let counters = [("Udp", "InDatagrams", 100), ("Udp", "RcvbufErrors", 1000), ("Udp6", "RcvbufErrors", 1)];
    let statements = advise(&seen(vec![one.clone()], &counters), &values());
    let statement = &statements[0];
    assert_eq!(
        (statement.finding, statement.setting.as_deref()),
        (Finding::Limit, Some("net.core.rmem_default"))
    );
    for part in ["1001 datagrams dropped, 100 read (Udp RcvbufErrors", "port 5000: 900"] {
        assert!(statement.text.contains(part), "{}", statement.text);
    }
    assert_eq!(statement.proposal.as_deref(), Some("851968"));
    one.receive_buffer_bytes = Some(4096);
    let statements = advise(&seen(vec![one], &counters), &values());
    assert_eq!((statements[0].setting.as_deref(), &statements[0].proposal), (Some("SO_RCVBUF"), &None));
}

#[test]
fn counters_of_the_host_name_their_settings() {
    for (counters, finding, setting) in [
        (vec![("Tcp", "OutSegs", 10_000), ("Tcp", "RetransSegs", 500)], Finding::Limit, None),
        (vec![("Tcp", "OutSegs", 10_000), ("Tcp", "RetransSegs", 5)], Finding::NotTheLimit, None),
        (softnet(3, 0), Finding::Limit, Some("net.core.netdev_max_backlog")),
        (softnet(0, 0), Finding::NotTheLimit, None),
        (vec![("TcpExt", "TCPRcvQDrop", 2)], Finding::Limit, Some("net.ipv4.tcp_rmem")),
        (vec![("TcpExt", "TCPMemoryPressures", 2)], Finding::Limit, Some("net.ipv4.tcp_mem")),
        (vec![("Udp", "SndbufErrors", 2)], Finding::Limit, Some("net.core.wmem_default")),
    ] {
        let statements = advise(&seen(vec![socket(true)], &counters), &values());
        let found = statements.iter().find(|one| one.subject != "TCP buffers").unwrap();
        assert_eq!((found.finding, found.setting.as_deref()), (finding, setting), "{found:?}");
        assert!(!found.counters.is_empty() && found.text.contains('('), "{found:?}");
    }
    // Too few segments show no loss.
    let few = [("Tcp", "OutSegs", 10), ("Tcp", "RetransSegs", 5)];
    assert_eq!(advise(&seen(vec![socket(true)], &few), &values()).len(), 1);
}

fn softnet(dropped: u64, squeezed: u64) -> Vec<(&'static str, &'static str, u64)> {
    let group = "softnet_stat";
    vec![(group, "processed", 100), (group, "dropped", dropped), (group, "time_squeeze", squeezed)]
}
