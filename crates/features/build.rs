//! Empty: it makes the build dependencies of `Cargo.toml` count.

fn main() {}
