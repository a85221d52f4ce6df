//! `SOCK_SEQPACKET` sockets of files (unix(7)): connections that keep the bounds of messages, and whose peer
//! the kernel names.

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{MsgFlags, getsockopt, send};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::journal::{EntryId, Journal, Undo};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// A listener to which every user of this host may connect. Its file is removed when it is dropped, and by
/// the journal after a crash.
#[derive(Debug)]
pub struct SeqPacketListener {
    socket: Socket,
    journal: Journal,
    entry: EntryId,
}

impl SeqPacketListener {
    /// Binds `path`; the folders above it are made, which only this user may change, and stay. A file without
    /// a listener, as left by a killed program, is replaced.
    ///
    /// # Errors
    /// Those of `bind(2)`: a listener has the path, or it is over 107 bytes; the journal cannot be written.
    pub fn bind(journal: &Journal, path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            std::fs::create_dir_all(folder)?;
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755))?;
        }
        let address = SockAddr::unix(path)?;
        if is_left_behind(path, &address)? {
            std::fs::remove_file(path)?;
        }
        if std::fs::symlink_metadata(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.set_nonblocking(true)?;
        let entry = journal.record(Undo::RemoveFile { path: path.to_owned() }).map_err(io::Error::other)?;
        // From here on dropping undoes it.
        let this = Self { socket, journal: journal.clone(), entry };
        this.socket.bind(&address)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
        this.socket.listen(BACKLOG)?;
        Ok(this)
    }

    /// Takes the next connection; `None` if none waits.
    ///
    /// # Errors
    /// Those of `accept(2)`: this process or the system has no descriptor left.
    pub fn accept(&self) -> io::Result<Option<SeqPacketConnection>> {
        match self.socket.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(true)?;
                Ok(Some(SeqPacketConnection(socket)))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for SeqPacketListener {
    fn drop(&mut self) {
        self.journal.undo(self.entry);
    }
}

/// Whether a path is a socket whose program is gone.
fn is_left_behind(path: &Path, address: &SockAddr) -> io::Result<bool> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let probe = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    probe.set_nonblocking(true)?;
    Ok(is_socket && probe.connect(address).is_err_and(refused))
}

/// The process that connected, as the kernel has recorded it then (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    /// 0: it is not visible from this process's namespace.
    pub pid: i32,
    /// The effective user.
    pub uid: u32,
}

/// A connection of which no call blocks.
#[derive(Debug)]
pub struct SeqPacketConnection(Socket);

impl SeqPacketConnection {
    pub fn peer(&self) -> io::Result<PeerProcess> {
        let found = getsockopt(&self.0, PeerCredentials)?;
        Ok(PeerProcess { pid: found.pid(), uid: found.uid() })
    }

    /// Takes the next message, cut off at the buffer's end; `None` if none waits. A length of 0 means that
    /// the peer has closed the connection.
    ///
    /// # Errors
    /// Those of `recv(2)`: the connection is broken.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends one message, at once or not at all.
    ///
    /// # Errors
    /// Those of `send(2)`; [`io::ErrorKind::WouldBlock`] when the peer does not read.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        send(self.0.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn connect(path: &Path) -> io::Result<Socket> {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(socket)
    }

    #[test]
    fn messages_keep_their_bounds_and_the_kernel_names_the_peer() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal")).unwrap();
        let path = folder.path().join("sockets/one");
        let listener = SeqPacketListener::bind(&journal, &path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(listener.accept().unwrap().is_none());
        let client = connect(&path).unwrap();
        let server = loop {
            if let Some(server) = listener.accept().unwrap() {
                break server;
            }
        };
        let own =
            PeerProcess { pid: nix::unistd::getpid().as_raw(), uid: nix::unistd::Uid::effective().as_raw() };
        assert_eq!(server.peer().unwrap(), own);
        let mut buffer = [0; 8];
        assert_eq!(server.receive(&mut buffer).unwrap(), None);
        client.send(b"abc").unwrap();
        client.send(b"0123456789").unwrap();
        assert_eq!(server.receive(&mut buffer).unwrap(), Some(3));
        assert_eq!(server.receive(&mut buffer).unwrap(), Some(8), "cut off");
        server.send(b"answer").unwrap();
        drop(client);
        assert!(matches!(server.receive(&mut buffer), Ok(Some(0)) | Err(_)));
        let taken = SeqPacketListener::bind(&journal, &path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists() && journal.pending() == 1);
        drop(listener);
        assert!(!path.exists() && journal.pending() == 0);
    }

    #[test]
    fn file_of_a_killed_program_is_replaced_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal")).unwrap();
        let path = folder.path().join("one");
        let left = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        left.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        drop(left);
        drop(SeqPacketListener::bind(&journal, &path).unwrap());
        std::fs::write(&path, "text").unwrap();
        assert!(SeqPacketListener::bind(&journal, &path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
    }
}
