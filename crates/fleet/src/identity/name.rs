//! Names within a fleet.

use std::fmt;
use std::str::FromStr;

use super::IdentityError;

/// A host's name has at most as many characters as one label of the DNS (RFC 1035, 2.3.4).
const NAME_LENGTH_MAX: usize = 63;
/// A certificate's common name has at most 64 (RFC 5280, appendix A.1), and some begin with `coordinator@`.
const COMMON_NAME_LENGTH_MAX: usize = 64;

/// What a member of a fleet does in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Runs parts.
    Agent,
    /// Asks agents to run parts.
    Coordinator,
    /// An external router, which carries what the others say.
    Router,
}

/// Somebody that belongs to the fleet, written `NAME`, `coordinator@NAME` or `router@NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// What it does.
    pub kind: Kind,
    /// What its host is called.
    pub name: String,
}

impl Member {
    /// A member of that kind and name.
    ///
    /// # Errors
    /// The name cannot be one.
    pub fn new(kind: Kind, name: &str) -> Result<Self, IdentityError> {
        let member = Self { kind, name: name.to_owned() };
        check_name(name)?;
        if kind == Kind::Agent && name == "coordinator" {
            return Err(IdentityError::Usage(
                "no host can be called 'coordinator': that is the coordinator's own bundle".into(),
            ));
        }
        match member.to_string().len() > COMMON_NAME_LENGTH_MAX {
            true => Err(IdentityError::Usage(format!(
                "'{name}' is too long: '{member}' must not have more than {COMMON_NAME_LENGTH_MAX} characters"
            ))),
            false => Ok(member),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.kind {
            Kind::Agent => write!(f, "{name}"),
            Kind::Coordinator => write!(f, "coordinator@{name}"),
            Kind::Router => write!(f, "router@{name}"),
        }
    }
}

impl FromStr for Member {
    type Err = IdentityError;
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        match text.split_once('@') {
            None => Self::new(Kind::Agent, text),
            Some(("coordinator", name)) => Self::new(Kind::Coordinator, name),
            Some(("router", name)) => Self::new(Kind::Router, name),
            Some((other, _)) => Err(IdentityError::Usage(format!(
                "'{text}' is no member: '{other}' is neither 'coordinator' nor 'router'"
            ))),
        }
    }
}

/// Names are keys on the bus, folders, and names that certificates are checked against (RFC 1123, 2.1).
fn check_name(name: &str) -> Result<(), IdentityError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    let label = |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    match name.len() <= NAME_LENGTH_MAX && name.chars().all(fits) && name.split('.').all(label) {
        true => Ok(()),
        false => Err(IdentityError::Usage(format!(
            "'{name}' cannot be a host's name: at most {NAME_LENGTH_MAX} lower-case letters, digits, '-' and '.', \
             such as pc-1 or pc-1.lab"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hosts() {
        for name in ["a", "pc-1", "pc-1.lab.example", "10.0.0.1", &"a".repeat(63)] {
            assert!(Member::new(Kind::Agent, name).is_ok(), "{name}");
        }
        let bad =
            ["", "PC", "-a", "a-", "a..b", ".a", "a.", "a/b", "a b", "*", "a@b", "ä", "..", &"a".repeat(64)];
        for name in bad {
            assert!(Member::new(Kind::Agent, name).is_err(), "{name}");
        }
        assert!(Member::new(Kind::Agent, "coordinator").is_err());
        assert!(Member::new(Kind::Coordinator, &"a".repeat(53)).is_err());
    }

    #[test]
    fn a_member_reads_back_as_it_is_written() {
        for text in ["pc-1", "coordinator@pc-1", "router@r1.site"] {
            assert_eq!(text.parse::<Member>().unwrap().to_string(), text);
        }
        assert!("root@pc".parse::<Member>().is_err());
    }
}
