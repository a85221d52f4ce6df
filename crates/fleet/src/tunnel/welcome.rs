//! The acceptor's first byte inside TLS: whether the member may join.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Welcome {
    Admitted,
    NotListed,
    TooManyLinks,
}

impl Welcome {
    pub async fn send(self, link: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let code = match self {
            Self::Admitted => 0,
            Self::NotListed => 1,
            Self::TooManyLinks => 2,
        };
        link.write_all(&[code]).await?;
        link.flush().await
    }

    /// Waits to be admitted.
    /// Errors: The acceptor refuses this member, or the connection ends.
    pub async fn receive(link: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        match link.read_u8().await? {
            0 => Ok(()),
            1 => Err(io::Error::other("this host is not in the coordinator's list of members")),
            2 => Err(io::Error::other("this host has too many links to the coordinator")),
            other => Err(io::Error::other(format!("the coordinator answers with the unknown code {other}"))),
        }
    }
}
