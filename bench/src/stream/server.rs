//! The embedded server against nginx, as fast as one core can: a client of many connections that ask for the
//! same file again and again and drop it in the kernel, on a core of its own.

use std::time::Duration;

use anyhow::{Context, ensure};
use mpegts::RateMode;
use stream::http::url::Url;
use stream::http::{HeadReader, get};
use sys::clock::monotonic_ns;
use sys::net::{ConnectState, Epoll, Events, Interest, Moved, SocketOptions, TcpSocket};
use sys::thread::{pin_to_cpu, thread_cpu_ns};

use super::fixture::{Fixture, PLAYER_CPU, Server};
use super::{Found, Settings};
use crate::noise::{Meter, Noise};
use crate::record::Row;
use crate::suite::fill;

const CONNECTIONS: usize = 16;

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let film = fixture.film(60, RateMode::Vbr)?;
    let one = |server: &mut Server| -> anyhow::Result<([f64; 3], Noise)> {
        let how = Pull {
            url: server.url(&film)?,
            connections: CONNECTIONS,
            warm: Duration::from_secs(1),
            hold: Duration::from_secs(settings.pace.full_or(4, 1)),
        };
        let pulled = pull(server, &how)?;
        let values = [pulled.bit_per_cpu_s / 1e9, pulled.bit_per_s / 1e9, pulled.client_cpu_percent];
        Ok((values, pulled.noise))
    };
    let rows = [
        Row::new("content per second of server CPU", "Gbit/s"),
        Row::new("content per second", "Gbit/s"),
        Row::new("client's core", "%"),
    ];
    let [per_core, wall, client] = fill(rows, settings.pairs, |is_ours| {
        settings.pace.await_quiet()?;
        fixture.with_server(is_ours, one)
    })?;
    let per_core = per_core.goal_ratio("ratio >= 0.9");
    Ok(Found::about(format!(
        "`kagiri content serve` (ours) and nginx with sendfile and one worker (peer), each alone on core \
             0, serve the same 60 s film of 188 MB from memory over loopback to the same client on core 1: \
             {CONNECTIONS} connections that ask for it again and again and drop it in the kernel \
             (MSG_TRUNC). CPU by schedstat of all of the server's threads; the receiving side's softirq runs \
             partly on the server's core, so the figure is the cost of sending and part of receiving."
    ))
    .with_rows([per_core, wall, client]))
}

/// Dropped by one call at most, so that every connection has its turn.
const TURN_BYTES: usize = 4 << 20;

pub struct Pull {
    pub url: String,
    pub connections: usize,
    pub warm: Duration,
    pub hold: Duration,
}

pub struct Pulled {
    pub bit_per_s: f64,
    /// Content received per second of the server's CPU time, bit/s.
    pub bit_per_cpu_s: f64,
    /// CPU of the client, in % of its core.
    pub client_cpu_percent: f64,
    /// What else the machine did.
    pub noise: Noise,
}

struct Connection {
    socket: TcpSocket,
    head: HeadReader,
    body_left: u64,
    asked: bool,
}

pub fn pull(server: &mut Server, pull: &Pull) -> anyhow::Result<Pulled> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin_to_cpu(PLAYER_CPU)?;
            drive(server, pull)
        });
        thread.join().map_err(|_| anyhow::anyhow!("the client's thread died"))?
    })
}

fn drive(server: &mut Server, pull: &Pull) -> anyhow::Result<Pulled> {
    let url = Url::parse(&pull.url)?;
    let address = format!("{}:{}", url.host(), url.port()).parse().context("the URL needs an address")?;
    let request = get(&url, 0, None);
    let epoll = Epoll::new()?;
    let mut connections = Vec::new();
    for token in 0..pull.connections {
        let socket = TcpSocket::connect_start(address, None, &SocketOptions::default())?;
        epoll.add(&socket, token as u64, Interest::WRITE)?;
        connections.push(Connection { socket, head: HeadReader::default(), body_left: 0, asked: false });
    }
    let mut client = Client { epoll, connections, request, buffer: vec![0; 16 << 10], received_bytes: 0 };
    client.until(monotonic_ns() + pull.warm.as_nanos() as u64)?;
    let meter = Meter::start(server.cpu_ns())?;
    let (from_ns, from_bytes) = (monotonic_ns(), client.received_bytes);
    let (server_ns, client_ns) = (server.cpu_ns(), thread_cpu_ns());
    client.until(from_ns + pull.hold.as_nanos() as u64)?;
    let (server_ns, client_ns) = (server.cpu_ns() - server_ns, thread_cpu_ns() - client_ns);
    let wall_ns = (monotonic_ns() - from_ns) as f64;
    let bits = 8.0 * (client.received_bytes - from_bytes) as f64;
    let noise = meter.finish(server.cpu_ns())?;
    ensure!(bits > 0.0 && server_ns > 0, "the server sent nothing");
    Ok(Pulled {
        bit_per_s: bits * 1e9 / wall_ns,
        bit_per_cpu_s: bits * 1e9 / server_ns as f64,
        client_cpu_percent: 100.0 * client_ns as f64 / wall_ns,
        noise,
    })
}

struct Client {
    epoll: Epoll,
    connections: Vec<Connection>,
    request: Vec<u8>,
    buffer: Vec<u8>,
    received_bytes: u64,
}

impl Client {
    fn until(&mut self, deadline_ns: u64) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(self.connections.len());
        while monotonic_ns() < deadline_ns {
            self.epoll.wait_until(&mut events, deadline_ns)?;
            for event in events.iter() {
                self.step(event.token as usize)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, token: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[token];
        if !connection.asked {
            if connection.socket.connect_result()? == ConnectState::InProgress {
                return Ok(());
            }
            self.epoll.modify(&connection.socket, token as u64, Interest::READ)?;
            return connection.ask(&self.request);
        }
        if connection.body_left == 0 {
            return self.read_head(token);
        }
        let turn_bytes = usize::try_from(connection.body_left).unwrap_or(TURN_BYTES).min(TURN_BYTES);
        match connection.socket.recv_discard(turn_bytes)? {
            Moved::Bytes(bytes) => {
                self.received_bytes += bytes as u64;
                connection.body_left -= bytes as u64;
                if connection.body_left == 0 { connection.ask(&self.request) } else { Ok(()) }
            }
            Moved::WouldBlock => Ok(()),
            Moved::End => anyhow::bail!("the server closed a connection in the middle of an answer"),
        }
    }

    fn read_head(&mut self, token: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[token];
        let bytes = match connection.socket.recv(&mut self.buffer)? {
            Moved::Bytes(bytes) => bytes,
            Moved::WouldBlock => return Ok(()),
            Moved::End => anyhow::bail!("the server closed a connection between answers"),
        };
        if let Some((head, of_head)) = connection.head.feed(&self.buffer[..bytes])? {
            let of_body = (bytes - of_head) as u64;
            connection.body_left = head.body_bytes()? - of_body;
            self.received_bytes += of_body;
        }
        Ok(())
    }
}

impl Connection {
    fn ask(&mut self, request: &[u8]) -> anyhow::Result<()> {
        // A request is far smaller than the send buffer, which is empty here.
        let sent = self.socket.send(request, false)?;
        ensure!(sent == Moved::Bytes(request.len()), "a request did not fit into the send buffer");
        self.asked = true;
        Ok(())
    }
}
