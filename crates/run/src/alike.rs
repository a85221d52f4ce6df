//! Whether the hosts of one role have the same configuration, as a comparable result needs.

use std::collections::BTreeMap;

use base::doubt::Doubt;
use serde_json::Value;

/// The differences among `hosts` by their reported configuration: the hosts that differ from most others.
pub(crate) fn differences(hosts: &[&str], facts: &BTreeMap<String, Value>) -> Vec<Doubt> {
    let mut by_key: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for host in hosts {
        let configuration = facts.get(*host).and_then(|facts| facts["configuration"].as_object());
        for (key, value) in configuration.into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            by_key.entry(key).or_default().entry(value).or_default().push((*host).to_owned());
        }
    }
    let mut doubts = Vec::new();
    for (what, by_value) in by_key {
        let most = by_value.iter().max_by_key(|(_, hosts)| hosts.len()).map(|(value, _)| *value);
        let Some(most) = most else { continue };
        for (theirs, hosts) in by_value.iter().filter(|(value, _)| **value != most) {
            doubts.push(Doubt::HostsDiffer {
                hosts: hosts.clone(),
                what: what.to_owned(),
                theirs: (*theirs).to_owned(),
                others: most.to_owned(),
            });
        }
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hosts_that_differ_from_most_are_named() {
        let facts =
            |control: &str| json!({ "configuration": { "congestion control": control, "kernel": "6" } });
        let all = [("pc-1", "bbr"), ("pc-2", "cubic"), ("pc-3", "bbr")];
        let all = all.map(|(name, control)| (name.to_owned(), facts(control))).into();
        let said: Vec<_> =
            differences(&["pc-1", "pc-2", "pc-3"], &all).iter().map(ToString::to_string).collect();
        assert_eq!(said, ["congestion control is cubic on pc-2, but bbr on most hosts"]);
        assert!(differences(&["pc-1", "pc-3", "here"], &all).is_empty());
    }
}
