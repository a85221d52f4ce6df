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
/// The agent that is killed, and the one that stays.
const VICTIM: &str = "victim";
const OTHER: &str = "other";
/// Connections of strangers, over which no TLS comes.
const STRANGERS: u32 = 100;

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
        changed(&mut coordinator, started_ns, true)?;
        let from_ns = monotonic_ns();
        agent.signal(Signal::SIGKILL)?;
        killed.ours.push(seconds(from_ns, changed(&mut coordinator, from_ns, false)?));
        drop(agent);

        let started_ns = monotonic_ns();
        let agent = hall.agent(VICTIM, VICTIM)?;
        changed(&mut coordinator, started_ns, true)?;
        let from_ns = monotonic_ns();
        link(&hall, "down")?;
        cut.ours.push(seconds(from_ns, changed(&mut coordinator, from_ns, false)?));
        let from_ns = monotonic_ns();
        link(&hall, "up")?;
        back.ours.push(seconds(from_ns, changed(&mut coordinator, from_ns, true)?));
        cut.noise.push(meter.finish(0)?);
        drop(agent);

        let from_ns = monotonic_ns();
        strangers(&hall)?;
        let _agent = hall.agent(VICTIM, VICTIM)?;
        late.ours.push(seconds(from_ns, changed(&mut coordinator, from_ns, true)?));
    }
    let killed = killed.goal_each("<= 1 s, each");
    let cut = cut.goal_each("<= 3 s, each");
    Ok(Found::about(
        "Two real agents on hosts of a lab and a coordinator on another, over TLS. One agent is \
                   killed, started again, cut off by taking its host's port on the switch down, and let in \
                   again; then it is started once more, after strangers connected. Times are from before the \
                   signal, the command or the strangers until the coordinator's roster no longer has (or \
                   has) its name. There is no peer.",
    )
    .with_rows([killed, cut, back, late]))
}

fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}

/// When the victim joined (`has_come`) or was missed.
fn changed(coordinator: &mut Child, since_ns: u64, has_come: bool) -> anyhow::Result<u64> {
    event(coordinator, WITHIN, |event| {
        let Event::Changed { at_ns, came, gone } = event else { return None };
        let names = if has_come { came } else { gone };
        (at_ns > since_ns && names.iter().any(|name| name == VICTIM)).then_some(at_ns)
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
