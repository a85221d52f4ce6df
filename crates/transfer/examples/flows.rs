//! Moves bytes over loopback within this process, and says how fast and at what cost: for comparing engines.
//!
//! `flows tcp|udp write|splice copy|discard FLOWS SECONDS [SIZE] [BIT_PER_S] [THREADS]`

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use transfer::flow::{
    self, End, Engine, FlowSocket, FlowSpec, GroupReport, GroupSetting, Mode, Side, Stamp, room_for,
};

type Pair = (FlowSocket, FlowSocket);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let number = |at: usize, default: u64| word(at).parse().unwrap_or(default);
    let udp = word(0) == "udp";
    let engine = if word(1) == "write" { Engine::Write } else { Engine::Splice };
    let mode = if word(2) == "discard" { Mode::Discard } else { Mode::Copy };
    let (flows, seconds) = (number(3, 1) as usize, number(4, 2));
    room_for(2 * flows)?;
    let pairs =
        (0..flows).map(|_| if udp { datagrams() } else { streams() }).collect::<Result<Vec<Pair>, _>>()?;
    let start_ns = monotonic_ns() + 50_000_000;
    let end_ns = start_ns + seconds * 1_000_000_000;
    let order = |side, end_ns| FlowSpec {
        side,
        mode,
        size_bytes: number(5, if udp { 1470 } else { 0 }) as u32,
        end: End::AtNs(end_ns),
        rate_bit_per_s: Some(number(6, 0)),
        stamp: Stamp::Counted64,
    };
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for (one, other) in pairs {
        senders.push((one, order(Side::Sender, end_ns)));
        receivers.push((other, order(Side::Receiver, end_ns + 20_000_000)));
    }
    let setting =
        GroupSetting { threads: number(7, 0) as u32, engine: Some(engine), ..GroupSetting::default() };
    let receiving = flow::start(receivers, &setting, start_ns)?;
    let sending = flow::start(senders, &setting, start_ns)?;
    let deadline = Deadline::after(Duration::from_secs(seconds + 5));
    let (sent, received) = (sending.finish(deadline), receiving.finish(deadline));
    say(&sent, &received, seconds as f64);
    Ok(())
}

fn say(sent: &GroupReport, received: &GroupReport, seconds: f64) {
    let cpu_s = |report: &GroupReport| report.threads.iter().map(|t| t.cpu_ns).sum::<u64>() as f64 / 1e9;
    let bytes: u64 = received.flows.iter().map(|flow| flow.count.bytes).sum();
    let count = |of: fn(&flow::FlowCount) -> u64, report: &GroupReport| {
        report.flows.iter().map(|flow| of(&flow.count)).sum::<u64>()
    };
    let gb = bytes as f64 / 1e9;
    let (sending, receiving) = (cpu_s(sent), cpu_s(received));
    println!(
        "{:.2} Gbit/s, {:.3} CPU-s/GB ({:.3} + {:.3}), {} of {} datagrams lost, {} overflowed, {} | {}",
        gb * 8.0 / seconds,
        (sending + receiving) / gb,
        sending / gb,
        receiving / gb,
        count(|c| c.datagrams, sent).saturating_sub(count(|c| c.datagrams, received)),
        count(|c| c.datagrams, sent),
        count(|c| c.overflowed.unwrap_or(0), received),
        sent.engine,
        received.engine,
    );
    println!("  least of a flow {:?}", received.flows.iter().map(|flow| flow.count.bytes).min());
    for flow in sent.flows.iter().chain(&received.flows).take(1) {
        println!("  {:?}, overslept {} ns, {:?}", flow.ended, flow.count.overslept_ns, flow.congestion);
    }
}

fn streams() -> Result<Pair, Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    Ok((FlowSocket::Tcp(one.try_into()?), FlowSocket::Tcp(other.try_into()?)))
}

fn datagrams() -> Result<Pair, Box<dyn Error>> {
    let (one, other) =
        (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok((FlowSocket::Udp(one.try_into()?), FlowSocket::Udp(other.try_into()?)))
}
