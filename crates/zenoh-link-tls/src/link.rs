//! One link: what zenoh reads and writes.

use std::any::Any;
use std::io;
use std::ops::Deref;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsStream;
use zenoh_link_commons::{LinkAuthId, LinkUnicastTrait};
use zenoh_protocol::core::{Locator, Priority};
use zenoh_protocol::transport::BatchSize;
use zenoh_result::ZResult;
use zenoh_runtime::ZRuntime;

use crate::{SecuredStream, Socket};

/// For the last TLS record to a peer that reads slowly.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

pub(crate) struct TlsLink {
    // Used by one task of zenoh each; the locks only prove it.
    reader: Mutex<ReadHalf<TlsStream<Socket>>>,
    writer: Mutex<WriteHalf<TlsStream<Socket>>>,
    source: Locator,
    destination: Locator,
    auth_id: LinkAuthId,
    on_error: Box<dyn Fn(&io::Error) + Send + Sync>,
    _guard: Box<dyn Any + Send + Sync>,
}

impl TlsLink {
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new(mut secured: SecuredStream, source: Locator, destination: Locator) -> io::Result<Self> {
        let socket = match &mut secured.stream {
            TlsStream::Client(stream) => stream.get_mut().0,
            TlsStream::Server(stream) => stream.get_mut().0,
        };
        socket.move_to(ZRuntime::RX.deref())?;
        let (reader, writer) = split(secured.stream);
        Ok(Self {
            reader: Mutex::new(reader),
            writer: Mutex::new(writer),
            source,
            destination,
            auth_id: LinkAuthId::Tls(secured.peer),
            on_error: secured.on_error,
            _guard: secured.guard,
        })
    }

    fn failed<T>(&self, what: &str, result: io::Result<T>) -> ZResult<T> {
        result.map_err(|error| {
            (self.on_error)(&error);
            zenoh_result::zerror!("cannot {what} {}: {error}", self.destination).into()
        })
    }
}

#[async_trait]
impl LinkUnicastTrait for TlsLink {
    fn get_mtu(&self) -> BatchSize {
        BatchSize::MAX
    }

    fn get_src(&self) -> &Locator {
        &self.source
    }

    fn get_dst(&self) -> &Locator {
        &self.destination
    }

    fn is_reliable(&self) -> bool {
        true
    }

    fn is_streamed(&self) -> bool {
        true
    }

    fn get_interface_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn get_auth_id(&self) -> &LinkAuthId {
        &self.auth_id
    }

    async fn write(&self, buffer: &[u8], _: Option<Priority>) -> ZResult<usize> {
        let mut writer = self.writer.lock().await;
        let written = async {
            let bytes = writer.write(buffer).await?;
            writer.flush().await.map(|()| bytes)
        };
        self.failed("write to", written.await)
    }

    async fn write_all(&self, buffer: &[u8], _: Option<Priority>) -> ZResult<()> {
        let mut writer = self.writer.lock().await;
        let written = async {
            writer.write_all(buffer).await?;
            writer.flush().await
        };
        self.failed("write to", written.await)
    }

    async fn read(&self, buffer: &mut [u8], _: Option<Priority>) -> ZResult<usize> {
        let read = self.reader.lock().await.read(buffer).await;
        self.failed("read from", read)
    }

    async fn read_exact(&self, buffer: &mut [u8], _: Option<Priority>) -> ZResult<()> {
        let read = self.reader.lock().await.read_exact(buffer).await;
        self.failed("read from", read.map(drop))
    }

    async fn close(&self) -> ZResult<()> {
        let shut_down = async { self.writer.lock().await.shutdown().await };
        // A peer that is gone needs no close.
        let _ = timeout(CLOSE_WITHIN, shut_down).await;
        Ok(())
    }
}
