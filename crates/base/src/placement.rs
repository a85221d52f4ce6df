//! Where parts run: a plan names hosts, one by one or by a pattern, for each role of its workload.
//!
//! ```toml
//! [place]
//! server = "nas"
//! viewers = "pc-[1-20]"                                     # all twenty, or the run does not begin
//! sources = { hosts = "daq-*", count = 200, at_least = 190 } # 200 are expected, 190 will do
//! ```

mod pattern;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::part::HERE;
use crate::plan_error::PlanError;
use pattern::{expand, matches};

/// A side of a workload that a plan can place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Role {
    /// Its key in `[place]`.
    pub name: &'static str,
    /// Whether several hosts may share it.
    pub many: bool,
    /// Its meaning in one sentence.
    pub meaning: &'static str,
}

/// What a plan says of one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Written", into = "Written")]
pub struct Wish {
    /// Names, separated by commas. `*` stands for anything, `?` for one character, `[1-20]` for numbers.
    pub hosts: String,
    /// How many hosts are expected; those that the pattern spells out unless given.
    pub count: Option<u32>,
    /// With how many the run may begin; all that are expected unless given.
    pub at_least: Option<u32>,
}

/// A wish as it is written: mostly a text.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Written {
    Hosts(String),
    Whole(Whole),
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Whole {
    hosts: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<u32>,
}

impl From<Written> for Wish {
    fn from(written: Written) -> Self {
        match written {
            Written::Hosts(hosts) => Self { hosts, count: None, at_least: None },
            Written::Whole(Whole { hosts, count, at_least }) => Self { hosts, count, at_least },
        }
    }
}

impl From<Wish> for Written {
    fn from(wish: Wish) -> Self {
        match wish {
            Wish { hosts, count: None, at_least: None } => Self::Hosts(hosts),
            Wish { hosts, count, at_least } => Self::Whole(Whole { hosts, count, at_least }),
        }
    }
}

impl Wish {
    /// Whether a host of this name is wished for. This host is meant only where it is named.
    pub fn matches(&self, host: &str) -> bool {
        match host == HERE {
            true => self.alternatives().any(|pattern| pattern == HERE),
            false => self.alternatives().any(|pattern| matches(pattern.as_bytes(), host.as_bytes())),
        }
    }

    /// What is wished for of other hosts; nothing where only this one is named.
    pub fn of_others(&self) -> Option<Self> {
        if !self.matches(HERE) {
            return Some(self.clone());
        }
        let others: Vec<&str> = self.alternatives().filter(|pattern| *pattern != HERE).collect();
        let fewer = |count: Option<u32>| count.map(|count| count.saturating_sub(1));
        let others =
            Self { hosts: others.join(", "), count: fewer(self.count), at_least: fewer(self.at_least) };
        (!others.hosts.is_empty()).then_some(others)
    }

    fn alternatives(&self) -> impl Iterator<Item = &str> {
        // A comma within brackets separates ranges, not names.
        let mut depth = 0;
        let split = move |c: char| {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            c == ',' && depth == 0
        };
        self.hosts.split(split).map(str::trim).filter(|name| !name.is_empty())
    }

    /// The hosts that the pattern spells out; `None` where it leaves open how many there are.
    pub fn spelled_out(&self) -> Option<Vec<String>> {
        let mut all = Vec::new();
        for pattern in self.alternatives() {
            if pattern.contains(['*', '?']) {
                return None;
            }
            all.extend(expand(pattern)?);
        }
        Some(all)
    }

    /// How many hosts are expected; `None`: not specified.
    pub fn expected(&self) -> Option<u32> {
        self.count.or_else(|| Some(self.spelled_out()?.len() as u32))
    }

    /// With how many the run may begin.
    pub fn enough(&self) -> u32 {
        self.at_least.or(self.expected()).unwrap_or(1).max(1)
    }

    fn check(&self, role: &Role) -> Result<(), PlanError> {
        let wrong = |problem: String| Err(PlanError::of_key(&format!("place.{}", role.name), problem));
        if self.alternatives().next().is_none() {
            return wrong("names no host".into());
        }
        let ranges = self.alternatives().filter(|pattern| pattern.contains('['));
        if let Some(bad) =
            ranges.into_iter().find(|pattern| !pattern.contains(['*', '?']) && expand(pattern).is_none())
        {
            return wrong(format!("'{bad}' is not a pattern; write a range as in pc-[1-20] or pc-[1,3,7-9]"));
        }
        if !role.many && self.expected().unwrap_or(1) > 1 {
            return wrong(format!("'{}' names several hosts, but the role takes one", self.hosts));
        }
        match (self.expected(), self.at_least) {
            (Some(expected), Some(least)) if least > expected => {
                wrong(format!("at_least is {least}, but only {expected} hosts are expected"))
            }
            _ => Ok(()),
        }
    }
}

/// What a plan says of all roles; those that it leaves out run here.
pub type Wishes = BTreeMap<String, Wish>;

/// Check wishes against the roles that a workload has.
///
/// # Errors
/// A role that there is not, or a wish that cannot be met, with its key.
pub fn check(wishes: &Wishes, roles: &[Role]) -> Result<(), PlanError> {
    for (name, wish) in wishes {
        let Some(role) = roles.iter().find(|role| role.name == name) else {
            let known: Vec<_> = roles.iter().map(|role| role.name).collect();
            let problem = format!("unknown role '{name}'; known: {}", known.join(", "));
            return Err(PlanError::of_key(&format!("place.{name}"), problem));
        };
        wish.check(role)?;
    }
    Ok(())
}

/// Which hosts have which role, in their natural order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement(BTreeMap<String, Vec<String>>);

impl Placement {
    /// Give the hosts that are there to those that are wished for. A role may end with fewer than it wishes
    /// for; whether these are enough is the caller's to see ([`Wish::enough`]).
    pub fn of(wishes: &Wishes, hosts: &[String]) -> Self {
        let mut hosts: Vec<&String> = hosts.iter().collect();
        hosts.sort_by(|a, b| natural(a, b));
        let of_wish = |wish: &Wish| {
            let found = hosts.iter().filter(|host| wish.matches(host)).map(|host| (*host).clone());
            found.take(wish.count.unwrap_or(u32::MAX) as usize).collect()
        };
        Self(wishes.iter().map(|(role, wish)| (role.clone(), of_wish(wish))).collect())
    }

    /// The hosts of a role; [`HERE`] for one that the plan leaves out.
    pub fn hosts(&self, role: &str) -> Vec<&str> {
        match self.0.get(role) {
            Some(hosts) => hosts.iter().map(String::as_str).collect(),
            None => vec![HERE],
        }
    }

    pub fn host(&self, role: &str) -> &str {
        self.0.get(role).and_then(|hosts| hosts.first()).map_or(HERE, String::as_str)
    }
}

/// Names in the order in which people count: pc-2 before pc-10.
fn natural(a: &str, b: &str) -> Ordering {
    let key = |name: &str| {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (head, number) = name.split_at(name.len() - digits);
        (head.to_owned(), number.parse::<u64>().ok(), name.to_owned())
    };
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROLES: &[Role] = &[
        Role { name: "server", many: false, meaning: "" },
        Role { name: "viewers", many: true, meaning: "" },
    ];

    fn wish(hosts: &str) -> Wish {
        Wish { hosts: hosts.into(), count: None, at_least: None }
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn patterns_name_hosts() {
        for (pattern, yes, no) in [
            ("nas", "nas", "nas2"),
            ("pc-*", "pc-10", "mac-1"),
            ("pc-?", "pc-1", "pc-10"),
            ("pc-[1-20]", "pc-20", "pc-21"),
            ("node[08-10]", "node09", "node9"),
            ("r[1,3,7-9]-a, nas", "r8-a", "r4-a"),
            ("a*b*c", "axbbc", "axbb"),
            ("n[0-1][0-9]", "n07", "n7"),
            ("pc-[1-3]1", "pc-31", "pc-3"),
            ("pc-[1-2]*", "pc-1a", "pc-10"),
        ] {
            assert!(wish(pattern).matches(yes), "{pattern} {yes}");
            assert!(!wish(pattern).matches(no), "{pattern} {no}");
        }
        assert_eq!(wish("r[1,3]-a, nas").spelled_out().unwrap(), ["r1-a", "r3-a", "nas"]);
        assert_eq!((wish("pc-[1-20]").expected(), wish("pc-*").expected()), (Some(20), None));
        assert_eq!((wish("pc-[1-20]").enough(), wish("pc-*").enough()), (20, 1));
    }

    #[test]
    fn hosts_are_assigned_in_natural_order_and_default_to_here() {
        let wishes = Wishes::from([("viewers".into(), Wish { count: Some(2), ..wish("pc-*") })]);
        let placement = Placement::of(&wishes, &hosts(&["pc-10", "nas", "pc-9", "pc-1"]));
        assert_eq!(placement.hosts("viewers"), ["pc-1", "pc-9"]);
        assert_eq!(placement.host("server"), HERE);
    }

    #[test]
    fn wildcards_do_not_match_this_host() {
        assert!(!wish("*").matches(HERE) && wish("pc-1, here").matches(HERE));
        assert_eq!(wish("pc-1, here").of_others(), Some(wish("pc-1")));
        assert_eq!((wish("here").of_others(), wish("*").of_others()), (None, Some(wish("*"))));
    }

    #[test]
    fn pattern_with_too_many_names_is_rejected() {
        for text in ["a[0-99999][0-99999]", &format!("a[{}1-2]", "0".repeat(70_000)), "a[0-100000]"] {
            assert_eq!(wish(text).spelled_out(), None);
            assert!(!wish(text).matches("b1"));
        }
    }

    #[test]
    fn invalid_placements_are_rejected_with_reason() {
        for (role, wish, said) in [
            ("players", wish("pc-1"), "unknown role 'players'; known: server, viewers"),
            ("server", wish("a,b"), "place.server: 'a,b' names several hosts"),
            ("viewers", wish(" , "), "names no host"),
            ("viewers", wish("pc-[9-1]"), "'pc-[9-1]' is not a pattern"),
            ("viewers", Wish { at_least: Some(3), ..wish("a,b") }, "at_least is 3"),
        ] {
            let error = check(&Wishes::from([(role.to_owned(), wish)]), ROLES).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_pattern_panics_and_what_is_spelled_out_matches(text in "[a-c1-3\\[\\]\\-,*? ]{0,12}",
            name in "[a-c1-3]{0,6}") {
            let wish = wish(&text);
            let _ = wish.matches(&name);
            let _ = check(&Wishes::from([("viewers".to_owned(), wish.clone())]), ROLES);
            if let Some(all) = wish.spelled_out() {
                prop_assert!(all.iter().take(20).all(|one| wish.matches(one)));
            }
        }
    }
}
