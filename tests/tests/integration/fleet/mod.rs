//! Coordinators and agents, and the ways to start them.

mod admission;
mod deploy;
mod deploy_ssh;
mod killed;
mod malformed_traffic;
mod network_partition;
mod slurm;
mod socket;
