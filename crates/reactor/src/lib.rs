//! The data-plane engine of clients and servers: one event loop per thread, nothing allocated per event.
//!
//! A program is a [`StateMachine`]: the loop calls it for each ready descriptor and each expired timer. The
//! machine keeps its connections in a [`Slab`], whose [`Token`]s carry a generation, so that an event of a
//! closed connection never reaches the one that reuses its slot. Everything is generic over the machine's
//! type: there is no dynamic call between the kernel's answer and the machine.
//!
//! An echo server:
//!
//! ```no_run
//! use reactor::{Accepted, Acceptor, EventLoop, Reactor, Slab, StateMachine, StopHandle, Token};
//! use sys::net::{Event, Interest, ListenOptions, Listener, Moved, TcpSocket};
//!
//! const LISTENER: Token = Token::single(1);
//! struct Echo { acceptor: Acceptor, peers: Slab<TcpSocket> }
//!
//! impl StateMachine for Echo {
//!     fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
//!         while token == LISTENER && let Accepted::Connection(socket, _) = self.acceptor.accept(reactor) {
//!             let token = self.peers.insert(socket);
//!             let _ = reactor.watch(&self.peers[token], token, Interest::READ);
//!         }
//!         let (Some(peer), mut bytes) = (self.peers.get(token), [0; 4096]) else { return };
//!         match peer.recv(&mut bytes) {
//!             Ok(Moved::Bytes(n)) => drop(peer.send(&bytes[..n], false)),
//!             Ok(Moved::WouldBlock) => {}
//!             Ok(Moved::End) | Err(_) => drop(self.peers.remove(token)),
//!         }
//!     }
//!     fn on_timer(&mut self, reactor: &mut Reactor, _: Token) { self.acceptor.on_timer(reactor) }
//!     fn on_stop(&mut self, _: &mut Reactor) {}
//! }
//!
//! let stop = std::sync::Arc::new(StopHandle::new()?);
//! let mut events = EventLoop::new(stop, 256)?;
//! let listener = Listener::bind("127.0.0.1:7".parse().unwrap(), &ListenOptions::default())?;
//! let acceptor = Acceptor::new(listener, LISTENER, events.reactor())?;
//! events.run(&mut Echo { acceptor, peers: Slab::new(0) })?;
//! # Ok::<(), sys::net::NetError>(())
//! ```

mod acceptor;
mod connector;
mod event_loop;
mod info_sampler;
mod slab;
mod stop;
mod threads;
mod timeouts;
mod timers;

pub use acceptor::{ACCEPTS_MAX, Accepted, Acceptor};
pub use connector::{Backoff, ConnectOutcome, ConnectSettings, Connector};
pub use event_loop::{EventLoop, Reactor, Registry, StateMachine};
pub use info_sampler::InfoSampler;
pub use slab::{Slab, Token};
pub use stop::StopHandle;
pub use threads::{ThreadControl, ThreadError, ThreadGroup, ThreadSpec};
pub use timeouts::{TimeoutKind, Timeouts};
pub use timers::Timers;
