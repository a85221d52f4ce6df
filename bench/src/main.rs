//! Side-by-side benchmarks against other tools.
fn main() {}
