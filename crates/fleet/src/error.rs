#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("cannot use the fleet's setting {key} = {value}: {why}")]
    Setting { key: String, value: String, why: String },
    #[error("cannot {what} {endpoint}: {why}")]
    Open { what: &'static str, endpoint: String, why: String },
    #[error("the fleet's bus failed to {what}: {why}; is the coordinator's router still running?")]
    Bus { what: &'static str, why: String },
    #[error("{0}")]
    Missing(String),
    #[error("interrupted while waiting for hosts")]
    Interrupted,
    #[error(transparent)]
    Clock(#[from] crate::clock::ClockError),
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: std::io::Error },
}
