//! Client of a policy in force (`kagiri qos run`): a program states its class, the size of its messages and
//! their target itself, and reads what its sockets get. Never required: a policy manages programs without it.
//!
//! ```
//! use std::time::Duration;
//!
//! let mut client = kagiri_qos::Client::connect();
//! let stated = kagiri_qos::Statement {
//!     class: "alarm",
//!     size_bytes: Some(250_000),
//!     target: Some(Duration::from_millis(500)),
//! };
//! match client.state(&stated) {
//!     Ok(report) => println!("class {}, target {:?}", report.class, report.target),
//!     Err(error) => println!("on its own: {error}"),
//! }
//! ```
//!
//! No call takes longer than the client's deadline, raises a signal, or ends the program. `c_abi` is the same
//! for C and languages that call C (`include/kagiri_qos.h`).

mod c_abi;
mod client;
mod socket;
pub mod wire;

pub use client::{Client, Error, FOLDER, Report, Statement};
