//! The fleet: clocks, identities, policies, agents and coordinators over loopback. `process` is a process of
//! its own for what counts process-wide.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod clock_estimate;
mod clock_namespaces;
mod clock_probes;
mod common;
mod fleet;
mod identity;
mod identity_access;
mod identity_common;
mod identity_endpoint;
mod leaving;
mod malformed_traffic;
mod policy;
mod policy_grant;
mod scripted_agent;
