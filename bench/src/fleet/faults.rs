//! How soon an agent that is killed or cut off is named.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use sys::child::{Child, Signal};
use sys::clock::monotonic_ns;

use super::agents::{Hall, Transport, whole};
use super::fixture::{Fixture, event};
use super::helper_process::Event;
use super::{Found, Settings};
use crate::noise::Meter;
use crate::record::Row;
use crate::tools;

const WITHIN: Duration = Duration::from_secs(30);
/// Who is killed, and who stays.
const VICTIM: &str = "victim";
const OTHER: &str = "other";
/// Connections of strangers, over which no TLS comes.
const STRANGERS: u32 = 100;

/// Measures.
pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let members = [VICTIM, OTHER].map(str::to_owned).to_vec();
    let hall = Hall::make(fixture, Transport::Tls, &format!("[host.{VICTIM}]\n[host.{OTHER}]\n"), members)?;
    let mut coordinator = hall.coordinator(1, Duration::ZERO, 0)?;
    let _other = hall.agent(OTHER, OTHER)?;
    whole(&mut coordinator)?;
    let mut killed = Row::new("kill -9 of an agent: named after", "s");
    let mut cut = Row::new("its link taken down: named after", "s");
    let mut back = Row::new("its link up again: joined again after", "s");
    let mut late = Row::new(format!("{STRANGERS} strangers spoke nonsense and hung up: joined after"), "s");
    for _ in 0..settings.pace.full_or(settings.repeat, 2) {
        settings.pace.await_quiet()?;
        let meter = Meter::start(0)?;
        let started_ns = monotonic_ns();
        let agent = hall.agent(VICTIM, VICTIM)?;
        came(&mut coordinator, started_ns)?;
        let from_ns = monotonic_ns();
        agent.signal(Signal::SIGKILL)?;
        killed.ours.push(seconds(from_ns, gone(&mut coordinator, from_ns)?));
        drop(agent);

        let started_ns = monotonic_ns();
        let agent = hall.agent(VICTIM, VICTIM)?;
        came(&mut coordinator, started_ns)?;
        let from_ns = monotonic_ns();
        link(&hall, "down")?;
        cut.ours.push(seconds(from_ns, gone(&mut coordinator, from_ns)?));
        let from_ns = monotonic_ns();
        link(&hall, "up")?;
        back.ours.push(seconds(from_ns, came(&mut coordinator, from_ns)?));
        cut.noise.push(meter.finish(0)?);
        drop(agent);

        let from_ns = monotonic_ns();
        strangers(&hall)?;
        let _agent = hall.agent(VICTIM, VICTIM)?;
        late.ours.push(seconds(from_ns, came(&mut coordinator, from_ns)?));
    }
    let killed = killed.goal_each("<= 1 s, each", |s| s <= 1.0);
    let cut = cut.goal_each("<= 3 s, each", |s| s <= 3.0);
    Ok(Found {
        compared: "Two real agents on hosts of a lab and a coordinator on another, over TLS. One agent is \
                   killed, started again, cut off by taking its host's port on the switch down, and let in \
                   again; then it is started once more, after strangers connected. Times are from before the \
                   signal, the command or the strangers until the coordinator's roster no longer has (or \
                   has) its name. There is no peer."
            .to_owned(),
        rows: vec![killed, cut, back, late],
        ..Found::default()
    })
}

fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// When the victim joined.
fn came(coordinator: &mut Child, since_ns: u64) -> anyhow::Result<u64> {
    event(coordinator, WITHIN, |event| match event {
        Event::Changed { at_ns, came, .. } if at_ns > since_ns && came.iter().any(|name| name == VICTIM) => {
            Some(at_ns)
        }
        _ => None,
    })
}

/// When the victim was missed.
fn gone(coordinator: &mut Child, since_ns: u64) -> anyhow::Result<u64> {
    event(coordinator, WITHIN, |event| match event {
        Event::Changed { at_ns, gone, .. } if at_ns > since_ns && gone.iter().any(|name| name == VICTIM) => {
            Some(at_ns)
        }
        _ => None,
    })
}

/// Connects from another host, again and again, and says what is no TLS.
fn strangers(hall: &Hall) -> anyhow::Result<()> {
    let speak =
        || (0..STRANGERS).try_for_each(|_| TcpStream::connect(hall.address())?.write_all(&[b'x'; 1000]));
    Ok(hall.lab.within(OTHER, speak)??)
}

/// Takes the victim's port on the switch up or down.
fn link(hall: &Hall, how: &str) -> anyhow::Result<()> {
    let state = &hall.lab.state;
    let link = state.links.iter().find(|link| link.ends.iter().any(|end| end.place == VICTIM));
    let port = link.and_then(|link| link.ends.iter().find(|end| end.place != VICTIM)).context("no link")?;
    let mut ip = Command::new("ip");
    ip.args(["-n", &port.namespace, "link", "set", "dev", &port.device, how]);
    tools::run(&mut ip, WITHIN, &[0]).map(drop)
}
