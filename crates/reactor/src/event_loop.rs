//! One `epoll(7)` loop for each thread.

use std::collections::VecDeque;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::net::{Epoll, Event, Events, Interest, NetError};
use sys::span::{SpanName, time};

use super::slab::{Token, TokenMap};
use super::stop::StopHandle;
use super::timers::Timers;

/// A program that an [`EventLoop`] drives.
///
/// After each wait the loop calls `before_events`, `on_ready` for each event (urgent classes first),
/// `on_resume` for each queued token, `on_timer` for each timer that has expired, and `after_events`.
pub trait StateMachine {
    /// A watched descriptor is ready. A token of a [`Slab`](super::Slab) may have been removed since the
    /// wait.
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, event: Event);

    /// A timer that [`Reactor::set_timer`] set has expired. One that is set to the past here expires in this
    /// round: use [`Reactor::resume`] for work that is to let others go first.
    fn on_timer(&mut self, reactor: &mut Reactor, token: Token);

    /// The stop handle was stopped; called once, and the loop ends.
    fn on_stop(&mut self, reactor: &mut Reactor);

    /// The turn of a token that [`Reactor::resume`] queued.
    fn on_resume(&mut self, _reactor: &mut Reactor, _token: Token) {}

    /// Another thread called [`StopHandle::wake`].
    fn on_wake(&mut self, _reactor: &mut Reactor) {}

    /// A wait is over.
    fn before_events(&mut self, _reactor: &mut Reactor) {}

    /// All that the last wait brought has been handled.
    fn after_events(&mut self, _reactor: &mut Reactor) {}

    /// When `after_events` is to be called at the latest: for machines that keep
    /// [`Timeouts`](super::Timeouts) or schedules of their own.
    fn next_deadline_ns(&self) -> Option<u64> {
        None
    }
}

/// Registers descriptors with a loop. Copies register with the same loop.
#[derive(Clone, Debug)]
pub struct Registry {
    epoll: Arc<Epoll>,
}

impl Registry {
    /// Watches `what`: its events carry `token`. Closing the descriptor ends the watch.
    /// Errors: [`NetError`]: watched already, or more than the kernel watches (`max_user_watches`).
    pub fn watch(&self, what: &impl AsFd, token: Token, interest: Interest) -> Result<(), NetError> {
        self.epoll.add(what, token.raw(), interest)
    }

    /// Changes the token or the interest of a watched descriptor.
    pub fn change_watch(&self, what: &impl AsFd, token: Token, interest: Interest) -> Result<(), NetError> {
        self.epoll.modify(what, token.raw(), interest)
    }

    /// Ends the watch of a descriptor that stays open.
    pub fn unwatch(&self, what: &impl AsFd) -> Result<(), NetError> {
        self.epoll.delete(what)
    }
}

/// What a machine may do to its loop. It is also the loop's [`Registry`].
#[derive(Debug)]
pub struct Reactor {
    registry: Registry,
    stop: Arc<StopHandle>,
    timers: Timers,
    resumes: VecDeque<Token>,
    queued: TokenMap<Option<Token>>,
    now_ns: u64,
    is_finished: bool,
}

impl Reactor {
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Sets the timer of `token`, in place of the one it has.
    pub fn set_timer(&mut self, token: Token, due_ns: u64) {
        self.timers.set(token, due_ns);
    }

    pub fn clear_timer(&mut self, token: Token) {
        self.timers.clear(token);
    }

    /// When the next timer expires, for a machine that waits in a call of its own.
    pub fn next_timer_ns(&mut self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// Queues `token` for [`StateMachine::on_resume`] after the events of this wait, or else after the next,
    /// which then does not block. A queued token is not queued again.
    #[inline]
    pub fn resume(&mut self, token: Token) {
        // The slot's earlier value may still be queued: it is another token.
        if self.queued.entry(token).replace(token) != Some(token) {
            self.resumes.push_back(token);
        }
    }

    /// Whether a token is queued, so that the next wait does not block.
    #[inline]
    pub fn has_resumes(&self) -> bool {
        !self.resumes.is_empty()
    }

    /// The monotonic clock when the last wait ended.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Ends [`EventLoop::run`] after this round, without `on_stop`.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }
}

/// The loop of one thread. See the [crate's example](crate).
pub struct EventLoop {
    reactor: Reactor,
    events: Events,
    wait_span: Option<&'static SpanName>,
}

impl EventLoop {
    /// A loop that `stop` wakes and ends, and that takes at most `events_max` events a wait.
    pub fn new(stop: Arc<StopHandle>, events_max: usize) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        epoll.add(&*stop, Token::STOP.raw(), Interest::READ | Interest::EDGE)?;
        let reactor = Reactor {
            registry: Registry { epoll: Arc::new(epoll) },
            stop,
            timers: Timers::default(),
            resumes: VecDeque::new(),
            queued: TokenMap::default(),
            now_ns: monotonic_ns(),
            is_finished: false,
        };
        Ok(Self { reactor, events: Events::with_capacity(events_max), wait_span: None })
    }

    #[must_use]
    pub fn with_wait_span(mut self, name: &'static SpanName) -> Self {
        self.wait_span = Some(name);
        self
    }

    /// For watching and setting timers before the loop runs.
    pub fn reactor(&mut self) -> &mut Reactor {
        &mut self.reactor
    }

    /// Drives `machine` until it is stopped or calls [`Reactor::finish`].
    pub fn run(&mut self, machine: &mut impl StateMachine) -> Result<(), NetError> {
        while !self.reactor.is_finished {
            if self.reactor.stop.is_stopped() {
                machine.on_stop(&mut self.reactor);
                return Ok(());
            }
            self.poll_once(machine, u64::MAX)?;
        }
        Ok(())
    }

    /// Waits once, at most until `until_ns` (0: not at all; `u64::MAX`: without limit), and handles what has
    /// happened. Returns the number of events.
    pub fn poll_once(&mut self, machine: &mut impl StateMachine, until_ns: u64) -> Result<usize, NetError> {
        let Self { reactor, events, wait_span } = self;
        let timeout = reactor.timeout(machine.next_deadline_ns(), until_ns);
        match wait_span {
            Some(name) => time(name, || reactor.registry.epoll.wait(events, timeout))?,
            None => reactor.registry.epoll.wait(events, timeout)?,
        };
        reactor.now_ns = monotonic_ns();
        machine.before_events(reactor);
        let tokens = || events.iter().map(|event| (Token::from_raw(event.token), event));
        for (token, event) in tokens().filter(|(token, _)| token.is_urgent()) {
            match token {
                Token::STOP if reactor.stop.is_stopped() => {}
                Token::STOP => machine.on_wake(reactor),
                token => machine.on_ready(reactor, token, event),
            }
        }
        for (token, event) in tokens().filter(|(token, _)| !token.is_urgent()) {
            machine.on_ready(reactor, token, event);
        }
        // What is queued while these are handled waits for the next round, so that events come between.
        for _ in 0..reactor.resumes.len() {
            let Some(token) = reactor.resumes.pop_front() else { break };
            reactor.queued.entry(token).take_if(|queued| *queued == token);
            machine.on_resume(reactor, token);
        }
        while let Some(token) = reactor.timers.pop_expired(reactor.now_ns) {
            machine.on_timer(reactor, token);
        }
        machine.after_events(reactor);
        Ok(events.len())
    }
}

impl Deref for Reactor {
    type Target = Registry;
    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl Reactor {
    fn timeout(&mut self, deadline_ns: Option<u64>, until_ns: u64) -> Option<Duration> {
        if self.has_resumes() || until_ns == 0 {
            return Some(Duration::ZERO);
        }
        let next_ns = self.timers.next_ns().into_iter().chain(deadline_ns).fold(until_ns, u64::min);
        (next_ns != u64::MAX).then(|| Duration::from_nanos(next_ns.saturating_sub(monotonic_ns())))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sys::net::{ListenOptions, Listener, Moved, SocketOptions, TcpSocket};

    use super::super::Slab;
    use super::*;

    const URGENT: Token = Token::single(Token::URGENT);

    /// Writes down what it is called for.
    #[derive(Default)]
    struct Log {
        calls: Vec<(&'static str, Option<Token>)>,
        resumes_left: u32,
        deadline_ns: Option<u64>,
    }

    impl StateMachine for Log {
        fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
            self.calls.push(("ready", Some(token)));
            reactor.resume(token);
            reactor.resume(token);
        }
        fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
            self.calls.push(("timer", Some(token)));
            reactor.finish();
        }
        fn on_stop(&mut self, _: &mut Reactor) {
            self.calls.push(("stop", None));
        }
        fn on_resume(&mut self, reactor: &mut Reactor, token: Token) {
            self.calls.push(("resume", Some(token)));
            if self.resumes_left > 0 {
                self.resumes_left -= 1;
                reactor.resume(token);
            }
        }
        fn on_wake(&mut self, _: &mut Reactor) {
            self.calls.push(("wake", None));
        }
        fn next_deadline_ns(&self) -> Option<u64> {
            self.deadline_ns
        }
    }

    fn pair() -> (TcpSocket, TcpSocket) {
        let listener =
            Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &ListenOptions::default()).unwrap();
        let client =
            TcpSocket::connect_start(listener.local_addr(), None, &SocketOptions::default()).unwrap();
        loop {
            if let Some((server, _)) = listener.accept().unwrap() {
                return (client, server);
            }
        }
    }

    fn event_loop() -> (EventLoop, Arc<StopHandle>) {
        let stop = Arc::new(StopHandle::new().unwrap());
        (EventLoop::new(stop.clone(), 16).unwrap(), stop)
    }

    #[test]
    fn urgent_events_come_first_and_resumes_once_after_them() {
        let (mut events, _stop) = event_loop();
        let mut slab = Slab::new(0);
        let (client, server) = pair();
        let (other_client, other_server) = pair();
        let token = slab.insert(());
        events.reactor().watch(&server, token, Interest::READ | Interest::EDGE).unwrap();
        events.reactor().watch(&other_server, URGENT, Interest::READ | Interest::EDGE).unwrap();
        for socket in [&client, &other_client] {
            assert_eq!(socket.send(b"x", false).unwrap(), Moved::Bytes(1));
        }
        let mut log = Log { resumes_left: 1, ..Log::default() };
        assert_eq!(events.poll_once(&mut log, u64::MAX).unwrap(), 2);
        let (urgent, token) = (Some(URGENT), Some(token));
        let expected = [("ready", urgent), ("ready", token), ("resume", urgent), ("resume", token)];
        assert_eq!(std::mem::take(&mut log.calls), expected);
        // The one that was queued again keeps the loop from blocking.
        assert_eq!(events.poll_once(&mut log, u64::MAX).unwrap(), 0);
        assert_eq!(log.calls, [("resume", urgent)]);
    }

    #[test]
    fn resume_of_a_removed_value_does_not_hide_that_of_the_next() {
        let (mut events, _stop) = event_loop();
        let mut slab = Slab::new(0);
        let first = slab.insert(());
        events.reactor().resume(first);
        slab.remove(first);
        let second = slab.insert(());
        events.reactor().resume(second);
        let mut log = Log::default();
        events.poll_once(&mut log, 0).unwrap();
        assert_eq!(log.calls, [("resume", Some(first)), ("resume", Some(second))]);
    }

    #[test]
    fn wait_ends_at_the_earliest_of_timer_deadline_and_limit() {
        for (timer_ms, deadline_ms, until_ms) in
            [(5, 60_000, 60_000), (60_000, 5, 60_000), (60_000, 60_000, 5)]
        {
            let (mut events, _stop) = event_loop();
            let start_ns = monotonic_ns();
            let after = |ms: u64| start_ns + ms * 1_000_000;
            let mut log = Log { deadline_ns: Some(after(deadline_ms)), ..Log::default() };
            events.reactor().set_timer(URGENT, after(timer_ms));
            events.poll_once(&mut log, after(until_ms)).unwrap();
            assert!((after(5)..after(30_000)).contains(&monotonic_ns()));
            assert_eq!(log.calls.len(), usize::from(timer_ms == 5));
        }
    }

    #[test]
    fn finish_ends_the_loop() {
        let (mut events, _stop) = event_loop();
        events.reactor().set_timer(URGENT, 0);
        let mut log = Log::default();
        events.run(&mut log).unwrap();
        assert_eq!(log.calls, [("timer", Some(URGENT))]);
    }

    #[test]
    fn wake_reaches_every_loop_and_stop_ends_them() {
        let stop = Arc::new(StopHandle::new().unwrap());
        let run = || {
            let mut events = EventLoop::new(stop.clone(), 4).unwrap();
            move || {
                let mut log = Log::default();
                events.run(&mut log).unwrap();
                log.calls
            }
        };
        let threads: Vec<_> = [run(), run()].into_iter().map(std::thread::spawn).collect();
        std::thread::sleep(Duration::from_millis(20));
        stop.wake();
        std::thread::sleep(Duration::from_millis(20));
        stop.stop();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), [("wake", None), ("stop", None)]);
        }
    }
}
