//! A second thread for the only connection that carries messages: it waits in `recv`, which saves the wait
//! for readiness. The event loop has the connection back when another one carries messages, when it is
//! silent, or when its replies do not fit into the socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use reactor::ThreadControl;

use super::connection::{Buffers, Connection, Served};

/// Longest wait within a read: how long the thread may need to notice that its return is requested.
const CALL_WAIT: Duration = Duration::from_millis(50);
/// Waits without a byte until the connection goes back.
const SILENT_WAITS_MAX: u32 = 20;

/// The event loop's end. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct ReceiveThread {
    hand_over: Sender<Connection>,
    returned: Receiver<(Connection, Served)>,
    is_requested: Arc<AtomicBool>,
}

/// The thread's end.
#[derive(Debug)]
pub(super) struct ThreadEnd {
    handed_over: Receiver<Connection>,
    give_back: Sender<(Connection, Served)>,
    is_requested: Arc<AtomicBool>,
}

pub(super) fn pair() -> (ReceiveThread, ThreadEnd) {
    let ((hand_over, handed_over), (give_back, returned)) = (channel(), channel());
    let is_requested = Arc::<AtomicBool>::default();
    (
        ReceiveThread { hand_over, returned, is_requested: is_requested.clone() },
        ThreadEnd { handed_over, give_back, is_requested },
    )
}

impl ReceiveThread {
    /// Hands over a connection that the event loop no longer watches and that waits for a message. Returns it
    /// if its reads cannot wait, or if the thread has ended.
    pub(super) fn hand_over(&self, connection: Connection) -> Option<Connection> {
        if connection.socket.set_wait(Some(CALL_WAIT)).is_err() {
            return Some(connection);
        }
        self.is_requested.store(false, Ordering::Release);
        self.hand_over.send(connection).err().map(|unsent| unsent.0)
    }

    /// Asks for the connection.
    pub(super) fn request_return(&self) {
        self.is_requested.store(true, Ordering::Release);
    }

    /// A connection that has come back, and how far it has come.
    pub(super) fn take_returned(&self) -> Option<(Connection, Served)> {
        self.returned.try_recv().ok()
    }
}

impl Drop for ReceiveThread {
    fn drop(&mut self) {
        self.request_return();
    }
}

impl ThreadEnd {
    /// Serves what is handed over, until the event loop has ended.
    pub(super) fn run(&self, control: &ThreadControl, buffers: &mut Buffers) {
        while let Ok(mut connection) = self.handed_over.recv() {
            let served = self.serve(&mut connection, control, buffers);
            if self.give_back.send((connection, served)).is_err() {
                return;
            }
            control.stop_handle().wake();
        }
    }

    fn serve(&self, connection: &mut Connection, control: &ThreadControl, buffers: &mut Buffers) -> Served {
        let mut silent_waits = 0;
        while silent_waits < SILENT_WAITS_MAX {
            if self.is_requested.load(Ordering::Acquire) || control.is_stopped() {
                break;
            }
            match connection.serve_waiting(buffers) {
                (Served::Waits(None), _) if !connection.is_idle() => break,
                (Served::Waits(None), true) => silent_waits = 0,
                (Served::Waits(None), false) => silent_waits += 1,
                (served, _) => return served,
            }
        }
        Served::Waits(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use reactor::{ThreadGroup, ThreadSpec};
    use sys::clock::Deadline;

    use super::*;
    use crate::wire::{HEADER_BYTES, MessageHeader, ReplyHeader};

    #[test]
    fn lent_connection_is_served_until_it_is_requested_or_ends() {
        let (receive_thread, thread_end) = pair();
        let mut group = ThreadGroup::new(0).unwrap();
        let run = move |control: &ThreadControl| {
            let mut buffers = Buffers::new(0, None);
            thread_end.run(control, &mut buffers);
            buffers.messages
        };
        group.spawn(ThreadSpec::default(), run).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut peer = Some(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut connection = Connection::new(listener.accept().unwrap().0.try_into().unwrap());
        for ends in [false, true] {
            assert!(receive_thread.hand_over(connection).is_none());
            let mut stream = peer.take().unwrap();
            for number in 0..5 {
                let header = MessageHeader { bytes: 24, reply_bytes: 24, number };
                stream.write_all(&header.to_bytes()).unwrap();
                let mut reply = [0; HEADER_BYTES as usize];
                stream.read_exact(&mut reply).unwrap();
                assert_eq!(ReplyHeader::from_bytes(&reply).unwrap().number, number);
            }
            assert!(receive_thread.take_returned().is_none());
            match ends {
                true => drop(stream),
                false => {
                    receive_thread.request_return();
                    peer = Some(stream);
                }
            }
            let deadline = Deadline::after(Duration::from_secs(5));
            let (returned, served) = loop {
                if let Some(returned) = receive_thread.take_returned() {
                    break returned;
                }
                assert!(!deadline.passed(), "it did not come back");
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(served, if ends { Served::Over } else { Served::Waits(None) });
            connection = returned;
        }
        drop(receive_thread);
        let ended = group.finish(Deadline::after(Duration::from_secs(5)));
        assert_eq!(ended.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [10]);
    }
}
