//! Asks and answers over loopback within this process, and says how often and how fast: for comparing with
//! others.
//!
//! `requests tcp|udp block|spin FLOWS SECONDS [SIZE] [RATE_PER_S] [THREADS]`; RATE 0 is a closed loop.

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use transfer::flow::{FlowSocket, ThreadReport, room_for};
use transfer::requests::{self, RequestEnd, RequestSide, RequestSpec};
use transfer::settings::Waiting;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let number = |at: usize, default: u64| word(at).parse().unwrap_or(default);
    let (flows, seconds) = (number(2, 1) as usize, number(3, 2));
    room_for(2 * flows)?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..flows {
        let (one, other) = if word(0) == "udp" { datagrams()? } else { streams()? };
        near.push(one);
        far.push(other);
    }
    let start_ns = monotonic_ns() + 20_000_000;
    let size_bytes = number(4, 14) as u32;
    let order = RequestSpec {
        side: RequestSide::Requester,
        size_bytes,
        answer_bytes: size_bytes,
        waiting: if word(1) == "spin" { Waiting::Spin } else { Waiting::Block },
        rate_per_s: word(5).parse().ok().filter(|rate| *rate > 0.0),
        end: RequestEnd::AtNs(start_ns + seconds * 1_000_000_000),
        omit_until_ns: None,
        threads: number(6, 0) as u32,
        silence_max: Duration::from_secs(5),
        recorder: None,
    };
    let answerer = RequestSpec { side: RequestSide::Responder, end: RequestEnd::Peer, ..order.clone() };
    let answering = requests::start(far, &answerer, start_ns)?;
    let asking = requests::start(near, &order, start_ns)?;
    let asked = asking.finish(Deadline::after(Duration::from_secs(seconds + 5)));
    answering.stop();
    let answered = answering.finish(Deadline::after(Duration::from_secs(1)));
    let told = asked.responses.ok_or("a requester tells of its responses")?;
    let times = told.times;
    let us = |percent| times.percentile_ns(percent).unwrap_or(0) as f64 / 1e3;
    let cpu = |threads: &[ThreadReport]| {
        threads.iter().map(|t| t.cpu_ns).sum::<u64>() as f64 / 1e3 / told.answered.max(1) as f64
    };
    println!(
        "{:.0}/s, p50 {:.1} p90 {:.1} p99 {:.1} p99.9 {:.1} us; {} unanswered, {} late by up to \
         {:.3} ms; CPU {:.2} + {:.2} us",
        told.answered as f64 / told.elapsed_s,
        us(50.0),
        us(90.0),
        us(99.0),
        us(99.9),
        told.unanswered,
        told.late,
        told.late_ms_max,
        cpu(&asked.threads),
        cpu(&answered.threads),
    );
    let of_one = asked.flows.iter().zip(&answered.flows).next();
    println!("  {:?}", of_one.map(|(one, other)| (&one.ended, &other.ended)));
    Ok(())
}

fn streams() -> Result<(FlowSocket, FlowSocket), Box<dyn Error>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    Ok((FlowSocket::Tcp(one.try_into()?), FlowSocket::Tcp(other.try_into()?)))
}

fn datagrams() -> Result<(FlowSocket, FlowSocket), Box<dyn Error>> {
    let here = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (here()?, here()?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok((FlowSocket::Udp(one.try_into()?), FlowSocket::Udp(other.try_into()?)))
}
