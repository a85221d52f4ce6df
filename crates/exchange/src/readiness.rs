//! When a socket that epoll watches edge-triggered is to be read again. Pure.

use sys::net::{Event, Moved};

/// Whether a socket may have something to read, by its events and by what its reads returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Readiness {
    may_read: bool,
    is_peer_done: bool,
}

impl Readiness {
    /// Nothing is known of the socket yet.
    pub(crate) const UNKNOWN: Self = Self { may_read: true, is_peer_done: false };

    /// An event of the socket.
    pub(crate) fn after_event(&mut self, event: Event) {
        self.after_signs(event.is_readable(), event.is_peer_done());
    }

    /// What events of the socket said.
    pub(crate) const fn after_signs(&mut self, is_readable: bool, is_peer_done: bool) {
        self.may_read |= is_readable;
        self.is_peer_done |= is_peer_done;
    }

    pub(crate) const fn may_read(self) -> bool {
        self.may_read
    }

    /// What a read with room for `room` bytes returned.
    ///
    /// A read that left room took all there was: later data cause a new event (epoll(7), question 9). The
    /// peer's end causes none if it came before the last event, which then told of it.
    pub(crate) const fn after_read(&mut self, moved: Moved, room: usize) {
        self.may_read = match moved {
            Moved::Bytes(bytes) => bytes >= room || self.is_peer_done,
            Moved::WouldBlock => false,
            Moved::End => true,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use sys::net::{Epoll, Events, Interest, TcpSocket};

    use super::*;

    /// A socket that epoll watches, and its peer.
    struct Watched {
        epoll: Epoll,
        events: Events,
        socket: TcpSocket,
        peer: TcpStream,
        readiness: Readiness,
    }

    impl Watched {
        fn new() -> Self {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = TcpSocket::try_from(listener.accept().unwrap().0).unwrap();
            let epoll = Epoll::new().unwrap();
            epoll.add(&socket, 0, Interest::READ | Interest::EDGE).unwrap();
            Self { epoll, events: Events::with_capacity(4), socket, peer, readiness: Readiness::UNKNOWN }
        }

        fn wait(&mut self) -> bool {
            self.epoll.wait(&mut self.events, Some(Duration::from_millis(200))).unwrap();
            self.events.iter().for_each(|event| self.readiness.after_event(event));
            !self.events.is_empty()
        }

        fn read(&mut self, room: usize) -> Moved {
            let moved = self.socket.recv(&mut vec![0; room]).unwrap();
            self.readiness.after_read(moved, room);
            moved
        }
    }

    #[test]
    fn short_read_waits_for_an_event_which_later_data_cause() {
        let mut watched = Watched::new();
        watched.peer.write_all(b"12345").unwrap();
        assert!(watched.wait() && watched.readiness.may_read());
        assert_eq!((watched.read(4), watched.readiness.may_read()), (Moved::Bytes(4), true));
        assert_eq!((watched.read(4), watched.readiness.may_read()), (Moved::Bytes(1), false));
        watched.peer.write_all(b"6").unwrap();
        assert!(watched.wait() && watched.readiness.may_read());
        assert_eq!((watched.read(1), watched.readiness.may_read()), (Moved::Bytes(1), true));
        assert_eq!((watched.read(1), watched.readiness.may_read()), (Moved::WouldBlock, false));
    }

    #[test]
    fn end_behind_data_is_read_although_it_causes_no_further_event() {
        let mut watched = Watched::new();
        watched.peer.write_all(b"123").unwrap();
        watched.peer.shutdown(std::net::Shutdown::Write).unwrap();
        // Over loopback the end has come with the call.
        assert!(watched.wait());
        assert_eq!((watched.read(4), watched.readiness.may_read()), (Moved::Bytes(3), true));
        assert!(!watched.wait(), "the end was reported with the data");
        assert_eq!((watched.read(4), watched.readiness.may_read()), (Moved::End, true));
    }

    #[test]
    fn end_after_a_read_causes_an_event() {
        let mut watched = Watched::new();
        watched.peer.write_all(b"123").unwrap();
        assert!(watched.wait());
        assert_eq!((watched.read(4), watched.readiness.may_read()), (Moved::Bytes(3), false));
        watched.peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(watched.wait() && watched.readiness.may_read());
        assert_eq!(watched.read(4), Moved::End);
    }
}
