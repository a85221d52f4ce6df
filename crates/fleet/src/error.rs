//! What can go wrong between hosts.

/// Why hosts do not work together; the message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// zenoh refused its settings: a mistake of this program, or a file that cannot be used.
    #[error("cannot use the fleet's setting {key} = {value}: {why}")]
    Setting {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
        /// zenoh's own words.
        why: String,
    },
    /// The coordinator cannot listen, or its router cannot be reached.
    #[error("cannot {what} {endpoint}: {why}")]
    Open {
        /// "listen on", "join".
        what: &'static str,
        /// Where.
        endpoint: String,
        /// zenoh's reason.
        why: String,
    },
    /// The bus failed later.
    #[error("the fleet's bus failed to {what}: {why}; is the coordinator's router still there?")]
    Bus {
        /// What was being done.
        what: &'static str,
        /// zenoh's own words.
        why: String,
    },
    /// Not all hosts that a plan needs are there.
    #[error("{0}")]
    Missing(String),
    /// Ctrl-C while waiting.
    #[error("interrupted while waiting for hosts")]
    Interrupted,
    /// Clocks cannot be compared.
    #[error(transparent)]
    Clock(#[from] crate::clock::ClockError),
    /// No random numbers, no threads.
    #[error("cannot {what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}
