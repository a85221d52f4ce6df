//! What the tests of every crate need: one set of features for the dependencies (see `Cargo.toml`), and
//! [`skip`].

/// A test cannot run here, for the reason `why`: it says so and ends. Where every test is demanded
/// (`KAGIRI_TESTS_ALL`, as `make test` sets it), that is a failure.
///
/// # Panics
/// When every test is demanded.
pub fn skip(why: &str) {
    assert!(std::env::var_os("KAGIRI_TESTS_ALL").is_none(), "the test cannot run here: {why}");
    eprintln!("skipped: {why}");
}
