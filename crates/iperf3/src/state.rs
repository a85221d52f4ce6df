//! The single bytes by which the two ends of a test say how far they are.

/// A byte on the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    /// The server refuses: it is busy, or does not know this connection.
    AccessDenied = -1,
    /// The server gives up; two numbers follow ([`ServerError`](super::ServerError)).
    ServerError = -2,
    /// All streams are there; both ends set their clocks.
    TestStart = 1,
    TestRunning = 2,
    /// The client has reached the end.
    TestEnd = 4,
    /// The server asks for parameters.
    ParamExchange = 9,
    /// The server asks for the data streams.
    CreateStreams = 10,
    ServerTerminate = 11,
    ClientTerminate = 12,
    ExchangeResults = 13,
    /// The server has handed over its own.
    DisplayResults = 14,
    /// Between tests; never sent.
    IperfStart = 15,
    /// The client is content.
    IperfDone = 16,
}

impl State {
    const ALL: [Self; 13] = [
        Self::AccessDenied,
        Self::ServerError,
        Self::TestStart,
        Self::TestRunning,
        Self::TestEnd,
        Self::ParamExchange,
        Self::CreateStreams,
        Self::ServerTerminate,
        Self::ClientTerminate,
        Self::ExchangeResults,
        Self::DisplayResults,
        Self::IperfStart,
        Self::IperfDone,
    ];

    pub fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }

    /// What a byte means; `None` if iperf3 knows no such state.
    pub fn read(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.byte() == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_byte() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|&byte| State::read(byte).is_some()).collect();
        assert_eq!(known, [1, 2, 4, 9, 10, 11, 12, 13, 14, 15, 16, 254, 255]);
        assert!(State::ALL.into_iter().all(|state| State::read(state.byte()) == Some(state)));
    }
}
