//! Shaped links and delay lines against what was asked for.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base::statistics::quantile;
use fleet::clock::DatagramAddress;
use sys::clock::{Deadline, monotonic_ns};
use sys::net::DatagramSocket;

use super::fixture::{Fixture, Lab};
use super::{Found, Settings};
use crate::noise::{Meter, Noise};
use crate::record::Row;

/// What a full frame has on the link, and what of it is content: 1500 bytes with Ethernet's 14; without the
/// 52 of IPv4 and TCP with time stamps (RFC 7323).
pub const FRAME_BYTES: f64 = 1514.0;
pub const CONTENT_BYTES: f64 = 1448.0;
const RATES_MBIT: [u32; 3] = [10, 100, 1000];
const DELAYS_MS: [u32; 3] = [1, 10, 40];
const WITHIN: Duration = Duration::from_secs(10);
const FROM: &str = "sender";
const TO: &str = "taker";

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let mut found = Found::about(
        "Rates: one TCP stream fills the link, and the taker's content is counted over 3 s after 1 \
                   s, full frames taken for granted (1448 bytes of content in 1514). Delays: single \
                   datagrams, one every 2 ms, from before they are sent to the kernel's stamp on arrival; \
                   both hosts read one clock, so that it is the delay in one direction. There is no peer.",
    );
    for mbit in RATES_MBIT {
        let lab = pair(fixture, &format!("rate = \"{mbit}Mbit/s\""))?;
        let mut row = Row::new(format!("link of {mbit} Mbit/s: off by"), "%");
        for _ in 0..settings.pace.full_or(settings.repeat, 1) {
            settings.pace.await_quiet()?;
            let (bit_per_s, noise) = rate(&lab)?;
            row.ours.push(100.0 * (bit_per_s / (f64::from(mbit) * 1e6) - 1.0));
            row.noise.push(noise);
        }
        found.rows.push(row.goal_ours("within 1 %"));
    }
    for ms in DELAYS_MS {
        let lab = pair(fixture, &format!("delay = \"{ms}ms\""))?;
        settings.pace.await_quiet()?;
        let (off_ms, noise) = delays(&lab, f64::from(ms), settings.pace.full_or(1000, 50))?;
        let p99 = quantile(&off_ms, 0.99).context("nothing came")?;
        found.notes.push(format!("line of {ms} ms: 99 of 100 datagrams are less than {p99:.3} ms late"));
        let mut row = Row::new(format!("line of {ms} ms: off by"), "ms");
        row.ours = off_ms;
        row.noise.push(noise);
        found.rows.push(row.goal_ours("within 0.2 ms"));
    }
    Ok(found)
}

fn pair<'a>(fixture: &'a Fixture, link: &str) -> anyhow::Result<Lab<'a>> {
    let text = format!(
        "agents = false\n[host.{FROM}]\n[host.{TO}]\n[[link]]\nbetween = [\"{FROM}\", \"{TO}\"]\n{link}\n"
    );
    fixture.lab("bench-link", &text)
}

/// What a link carries, Ethernet headers included.
fn rate(lab: &Lab) -> anyhow::Result<(f64, Noise)> {
    let address = lab.address(TO)?;
    let listener = lab.within(TO, || TcpListener::bind((address.as_str(), 0)))??;
    let place = listener.local_addr()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let send = || -> anyhow::Result<()> {
            let mut stream = lab.within(FROM, || TcpStream::connect_timeout(&place, WITHIN))??;
            stream.set_write_timeout(Some(WITHIN))?;
            let content = vec![0; 256 << 10];
            while !over.load(Ordering::Relaxed) {
                stream.write_all(&content)?;
            }
            Ok(())
        };
        let sender = scope.spawn(send);
        let taken = take(&listener);
        over.store(true, Ordering::Relaxed);
        // It ends with its next write; that this meets a closed connection is no failure.
        drop(sender.join());
        taken
    })
}

fn take(listener: &TcpListener) -> anyhow::Result<(f64, Noise)> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(WITHIN))?;
    let mut buffer = vec![0; 256 << 10];
    let mut count = |within: Duration| -> anyhow::Result<(u64, f64)> {
        let (began, mut bytes) = (Instant::now(), 0);
        while began.elapsed() < within {
            let taken = stream.read(&mut buffer)?;
            ensure!(taken > 0, "the sender has gone");
            bytes += taken as u64;
        }
        Ok((bytes, began.elapsed().as_secs_f64()))
    };
    count(Duration::from_secs(1))?;
    let meter = Meter::start(0)?;
    let (bytes, took_s) = count(Duration::from_secs(3))?;
    let noise = meter.finish(0)?;
    Ok((bytes as f64 * 8.0 * FRAME_BYTES / CONTENT_BYTES / took_s, noise))
}

/// How much later than asked for single datagrams come, ms.
fn delays(lab: &Lab, ms: f64, count: u32) -> anyhow::Result<(Vec<f64>, Noise)> {
    let (from, to) = (lab.address(FROM)?, lab.address(TO)?);
    let taker = DatagramAddress::Udp(format!("{to}:0").parse()?);
    let mut taker = lab.within(TO, || DatagramSocket::bind(&taker))??;
    taker.enable_stamps()?;
    let DatagramAddress::Udp(place) = taker.local_address()? else { anyhow::bail!("no UDP address") };
    let sender = lab.within(FROM, || UdpSocket::bind((from.as_str(), 0)))??;
    let meter = Meter::start(0)?;
    let mut off_ms = Vec::new();
    for number in 0..=count {
        let sent_ns = monotonic_ns();
        sender.send_to(&sent_ns.to_le_bytes(), place)?;
        let deadline = Deadline::after(WITHIN);
        let mut buffer = [0; 8];
        let came = loop {
            if let Some(datagram) = taker.receive(&mut buffer)? {
                break datagram;
            }
            ensure!(deadline.pause(Duration::from_micros(200)), "a datagram did not come");
        };
        // The first finds out the neighbour's address, twice through the line.
        if number > 0 {
            off_ms.push(came.at_monotonic_ns.saturating_sub(u64::from_le_bytes(buffer)) as f64 / 1e6 - ms);
        }
        deadline.pause(Duration::from_millis(2));
    }
    Ok((off_ms, meter.finish(0)?))
}
