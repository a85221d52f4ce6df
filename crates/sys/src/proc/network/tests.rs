use super::*;
use proptest::prelude::*;

const DEV: &[u8] = b"Inter-|   Receive                                                |  Transmit\n \
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls \
 carrier compressed\n    \
 lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       \
 0          0\n  \
 eth0: 355534453    8483    1    2    0     0          0         0   530459    5047    3    4    0     0 \
 0          0\n\
eth01:7 0 0 0 0 0 0 0 8 0 0 0 0 0 0 0\n";

const SOFTNET: &[u8] = b"00000014 00000000 00000000 00000000 00000000 00000000\n\
0000212c 00000001 00000002 00000000 00000000 00000000\n";

const SOCKSTAT: &[u8] = b"sockets: used 17\nTCP: inuse 1 orphan 0 tw 5 alloc 2 mem 80\nUDP: inuse 0 mem 3\n\
UDPLITE: inuse 0\nRAW: inuse 0\nFRAG: inuse 0 memory 0\n";

const SNMP: &[u8] = b"Ip: Forwarding DefaultTTL\nIp: 2 64\n\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs \
OutSegs RetransSegs InErrs OutRsts InCsumErrors\n\
Tcp: 1 200 120000 -1 80 5 1 59 0 8991 5349 7 0 70 0\n";

const NETSTAT: &[u8] = b"TcpExt: SyncookiesSent RcvPruned ListenOverflows ListenDrops TCPTimeouts \
                         TCPMemoryPressures TCPToZeroWindowAdv\n\
TcpExt: 0 1 2 3 4 5 809\nIpExt: InNoRoutes\nIpExt: 9\n";

#[test]
fn device_line_is_parsed_among_others() {
    let eth0 = parse_device(DEV, b"eth0").unwrap();
    let expected = NetDeviceReading {
        rx_bytes: 355_534_453,
        rx_dropped: 2,
        tx_bytes: 530_459,
        tx_packets: 5047,
        tx_dropped: 4,
    };
    assert_eq!(eth0, expected);
    // Old kernels leave no blank after a colon, and one name may begin another.
    assert_eq!(parse_device(DEV, b"eth01").unwrap().tx_bytes, 8);
    assert_eq!(parse_device(DEV, b"eth"), None);
    assert_eq!(parse_device(b"lo: 1 2 3", b"lo"), None);
}

#[test]
fn missing_device_is_named() {
    let error = NetDevice::open(Path::new("/"), "nosuch0").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("nosuch0"));
}

#[test]
fn loopback_counts_sent_bytes() {
    let mut own = NetDevice::open(Path::new("/"), "lo").unwrap();
    let pid = i32::try_from(std::process::id()).unwrap();
    let mut by_pid = NetDevice::open_of_pid(Path::new("/"), pid, "lo").unwrap();
    let before = own.read().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
    assert!(own.read().unwrap().tx_bytes >= before.tx_bytes + 1028);
    assert!(by_pid.read().unwrap().rx_bytes >= before.rx_bytes + 1028);
}

#[test]
fn softnet_counts_are_summed_over_cpus() {
    let expected = SoftnetReading { processed: 0x14 + 0x212c, dropped: 1, squeezed: 2 };
    assert_eq!(parse_softnet(SOFTNET), Some(expected));
    assert_eq!(parse_softnet(b""), None);
    assert_eq!(parse_softnet(b"12 zz\n"), None);
}

#[test]
fn socket_memory_is_in_bytes() {
    let reading = parse_sockstat(SOCKSTAT, 4096);
    assert_eq!(reading.tcp_bytes, Some(80 * 4096));
    assert_eq!(reading.tcp_allocated, Some(2));
    assert_eq!(parse_sockstat(b"TCP: inuse 1\n", 4096).tcp_bytes, None);
}

#[test]
fn tcp_counters_by_name() {
    let mut reading = TcpCountersReading::default();
    parse_tcp(SNMP, b"Tcp:", &mut reading);
    assert_eq!(reading.segments_sent, Some(5349));
    assert_eq!(reading.segments_retransmitted, Some(7));
    assert_eq!((reading.opened_active, reading.opened_passive), (Some(80), Some(5)));
    assert_eq!(reading.timeouts, None);
    parse_tcp(NETSTAT, b"TcpExt:", &mut reading);
    assert_eq!(reading.timeouts, Some(4));
}

#[test]
fn network_counters_of_this_machine_are_read() {
    let root = Path::new("/");
    Softnet::open(root).unwrap().read().unwrap();
    assert!(SocketMemory::open(root).unwrap().read().unwrap().tcp_bytes.is_some());
    let tcp = TcpCounters::open(root).unwrap().read().unwrap();
    assert!(tcp.segments_sent.is_some() && tcp.timeouts.is_some());
}

#[test]
fn connections_are_counted_at_both_ends() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut opened = OpenedConnections::open_of_thread().unwrap();
    let before = opened.read().unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let _ends: Vec<_> =
        (0..3).map(|_| (std::net::TcpStream::connect(to).unwrap(), listener.accept())).collect();
    // Other tests may open some, too.
    assert!(opened.read().unwrap().unwrap() >= before + 6);
}

proptest! {
    #[test]
    fn arbitrary_input_never_panics(text: Vec<u8>, name: Vec<u8>) {
        parse_device(&text, &name);
        parse_softnet(&text);
        parse_sockstat(&text, u64::MAX);
        parse_tcp(&text, &name, &mut TcpCountersReading::default());
    }

    #[test]
    fn damaged_samples_do_not_panic(cut in 0usize..600, byte: u8, at in 0usize..600) {
        for sample in [DEV, SOFTNET, SOCKSTAT, SNMP, NETSTAT] {
            let mut text = sample[..cut.min(sample.len())].to_vec();
            if let Some(place) = text.get_mut(at) { *place = byte; }
            parse_device(&text, b"eth0");
            parse_softnet(&text);
            parse_sockstat(&text, 4096);
            parse_tcp(&text, b"Tcp:", &mut TcpCountersReading::default());
        }
    }
}
