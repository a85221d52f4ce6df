//! Floor 5: the program.
fn main() {}
