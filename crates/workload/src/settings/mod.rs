//! The settings of a workload, declared once: its struct gives the keys of a plan, the defaults, the ranges,
//! the flags of the command line with their help, the JSON schema and the reference page.
//!
//! A field's doc comment is its help. Ranges of numbers are `#[schemars(range(min = .., max = ..))]`, of
//! quantities with a unit `extend("x-min" = "100ms", "x-max" = "1h")`. `extend("x-flag" = {..})` says how the
//! flag differs from the key with dashes, see [`Flag`]; `false` gives a key or a whole table none.
//! `extend("x-unset" = "..")` says what is done when an optional setting is left out, `extend("x-aliases" =
//! ["key"])` names further keys that plans may use.

mod declaration;
mod page;
mod read;

pub use declaration::{Choice, Declaration, Flag, Kind, Settings, declarations, schema};
pub use page::{page, value_name};
pub use read::{one, read};
