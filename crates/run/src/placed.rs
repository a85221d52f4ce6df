//! The hosts of a variant's roles, and the error if there are too few.

use base::part::HERE;
use base::placement::{Placement, Role, Wish, Wishes};
use fleet::Bus;

use crate::run_error::RunError;

/// Assigns the available hosts to the roles.
/// Errors: A role has too few hosts: names the available and the lost ones, and how to continue with fewer.
pub fn placement(wishes: &Wishes, roles: &[Role], bus: &dyn Bus) -> Result<Placement, RunError> {
    let placement = Placement::of(wishes, &bus.hosts());
    for (role, wish) in wishes {
        let found = placement.hosts(role);
        if (found.len() as u32) < wish.enough() {
            let is_shared = roles.iter().any(|known| known.name == role && known.many);
            let key = format!("place.{role}");
            return Err(RunError::new(too_few(&key, wish, &found, &bus.unusable(), is_shared)));
        }
    }
    Ok(placement)
}

/// The available hosts that a key of the plan names.
/// Errors: There are too few of them.
pub fn hosts_of(key: &str, wish: &Wish, bus: &dyn Bus) -> Result<Vec<String>, RunError> {
    let placement = Placement::of(&Wishes::from([(key.to_owned(), wish.clone())]), &bus.hosts());
    let found = placement.hosts(key);
    match (found.len() as u32) < wish.enough() {
        true => Err(RunError::new(too_few(key, wish, &found, &bus.unusable(), false))),
        false => Ok(found.into_iter().map(str::to_owned).collect()),
    }
}

fn too_few(key: &str, wish: &Wish, found: &[&str], unusable: &[(String, String)], is_shared: bool) -> String {
    let needed = match wish.enough() {
        1 => "a host".to_owned(),
        several => format!("{several} hosts"),
    };
    let left = match found {
        [] => "none is available".to_owned(),
        [HERE] => "only this host is available".to_owned(),
        [only] => format!("only {only} is available"),
        several => format!("only {} are available", several.join(", ")),
    };
    let others = unusable.iter().filter(|(host, _)| wish.matches(host));
    let others: String = others.map(|(_, why)| format!("; {why}")).collect();
    let fewer = match (is_shared, found.len()) {
        (true, 1..) => format!(
            ". To continue with fewer, set in a plan: {key} = {{ hosts = \"{}\", at_least = {} }}",
            wish.hosts,
            found.len()
        ),
        _ => String::new(),
    };
    format!("{key} = \"{}\" needs {needed}, but {left}{others}{fewer}", wish.hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_error_names_available_and_lost_hosts() {
        let wish = |hosts: &str| Wish { hosts: hosts.into(), count: None, at_least: None };
        let lost = [("pc-2", "pc-2: its agent ended"), ("nas", "nas: its agent ended")];
        let lost = lost.map(|(host, why)| (host.to_owned(), why.to_owned()));
        let expected = "place.viewers = \"pc-[1-2]\" needs 2 hosts, but only pc-1 is available; pc-2: its \
                        agent ended. To continue with fewer, set in a plan: place.viewers = { hosts = \
                        \"pc-[1-2]\", at_least = 1 }";
        assert_eq!(too_few("place.viewers", &wish("pc-[1-2]"), &["pc-1"], &lost, true), expected);
        let expected = "place.server = \"nas\" needs a host, but none is available; nas: its agent ended";
        assert_eq!(too_few("place.server", &wish("nas"), &[], &lost, false), expected);
    }
}
