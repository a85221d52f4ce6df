//! Names of a fleet's members.

use std::fmt;
use std::str::FromStr;

use super::IdentityError;

/// Limit of a DNS label (RFC 1035, 2.3.4).
const NAME_LENGTH_MAX: usize = 63;
/// Limit of a certificate's common name (RFC 5280, appendix A.1), with `coordinator@`.
const COMMON_NAME_LENGTH_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberKind {
    Agent,
    Coordinator,
    Router,
}

/// Written `NAME`, `coordinator@NAME` or `router@NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    pub kind: MemberKind,
    pub name: String,
}

impl Member {
    pub fn new(kind: MemberKind, name: &str) -> Result<Self, IdentityError> {
        let member = Self { kind, name: name.to_owned() };
        check_name(name)?;
        if kind == MemberKind::Agent && name == "coordinator" {
            return Err(IdentityError::Usage(
                "no host can have the name 'coordinator', which is that of the coordinator's bundle".into(),
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
            MemberKind::Agent => write!(f, "{name}"),
            MemberKind::Coordinator => write!(f, "coordinator@{name}"),
            MemberKind::Router => write!(f, "router@{name}"),
        }
    }
}

impl FromStr for Member {
    type Err = IdentityError;
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        match text.split_once('@') {
            None => Self::new(MemberKind::Agent, text),
            Some(("coordinator", name)) => Self::new(MemberKind::Coordinator, name),
            Some(("router", name)) => Self::new(MemberKind::Router, name),
            Some((other, _)) => Err(IdentityError::Usage(format!(
                "'{text}' is no member: '{other}' is neither 'coordinator' nor 'router'"
            ))),
        }
    }
}

/// Names serve as keys, as folders and in certificates (RFC 1123, 2.1).
fn check_name(name: &str) -> Result<(), IdentityError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    let label = |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    match name.len() <= NAME_LENGTH_MAX && name.chars().all(fits) && name.split('.').all(label) {
        true => Ok(()),
        false => Err(IdentityError::Usage(format!(
            "'{name}' cannot be a host's name: at most {NAME_LENGTH_MAX} lower-case letters, digits, '-' and \
             '.', such as pc-1 or pc-1.lab"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_names_are_host_names() {
        for name in ["a", "pc-1", "pc-1.lab.example", "10.0.0.1", &"a".repeat(63)] {
            assert!(Member::new(MemberKind::Agent, name).is_ok(), "{name}");
        }
        let bad =
            ["", "PC", "-a", "a-", "a..b", ".a", "a.", "a/b", "a b", "*", "a@b", "ä", "..", &"a".repeat(64)];
        for name in bad {
            assert!(Member::new(MemberKind::Agent, name).is_err(), "{name}");
        }
        assert!(Member::new(MemberKind::Agent, "coordinator").is_err());
        assert!(Member::new(MemberKind::Coordinator, &"a".repeat(53)).is_err());
    }

    #[test]
    fn member_survives_a_round_trip() {
        for text in ["pc-1", "coordinator@pc-1", "router@r1.site"] {
            assert_eq!(text.parse::<Member>().unwrap().to_string(), text);
        }
        assert!("root@pc".parse::<Member>().is_err());
    }
}
