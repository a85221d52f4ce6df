//! The acceptor's first bytes inside TLS: whether the member may join, and its secret.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(super) const SECRET_BYTES: usize = 32;
/// A member's password for zenoh.
pub(super) type Secret = [u8; SECRET_BYTES];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Welcome {
    /// In a fleet with passwords, the secret is not used.
    Admitted(Secret),
    NotListed,
    TooManyLinks,
}

impl Welcome {
    pub async fn send(self, link: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut frame = [0; 1 + SECRET_BYTES];
        match self {
            Self::Admitted(secret) => frame[1..].copy_from_slice(&secret),
            Self::NotListed => frame[0] = 1,
            Self::TooManyLinks => frame[0] = 2,
        }
        link.write_all(&frame).await?;
        link.flush().await
    }

    /// Reads the secret.
    /// Errors: The acceptor refuses this member, or the connection ends.
    pub async fn receive(link: &mut (impl AsyncRead + Unpin)) -> io::Result<Secret> {
        let mut frame = [0; 1 + SECRET_BYTES];
        link.read_exact(&mut frame).await?;
        let mut secret = [0; SECRET_BYTES];
        secret.copy_from_slice(&frame[1..]);
        match frame[0] {
            0 => Ok(secret),
            1 => Err(io::Error::other("this host is not in the coordinator's list of members")),
            2 => Err(io::Error::other("this host has too many links to the coordinator")),
            other => Err(io::Error::other(format!("the coordinator answers with the unknown code {other}"))),
        }
    }
}
