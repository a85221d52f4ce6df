//! Who may use the console: the login token, sessions, and checks of each request.

pub mod headers;
pub mod origin;
mod token;

pub use token::{SESSION_S, Token};
