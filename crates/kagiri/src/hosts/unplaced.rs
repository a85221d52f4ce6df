//! Hosts that are named while nothing is placed on them: this machine would be measured in their stead, unsaid.

use std::path::Path;

use base::names::first_of;
use base::placement::Role;
use base::plan::Plan;
use fleet::identity::Credentials;
use lab::keeper::read_file;
use lab::state::State;

use super::{HostArgs, lab_dir, wishes};
use crate::exit::Failure;

/// How a verb says where its parts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// `--place ROLE=HOSTS`
    Options,
    /// `[place]`
    Plan,
}

/// Hosts that an error lists.
const NAMED_MAX: usize = 12;

impl HostArgs {
    /// Refuse hosts that are named, by these arguments or by the plan's lab, and on which nothing is placed.
    ///
    /// # Errors
    /// What names them, the hosts that there are as far as that is known, and how parts are placed there; or credentials
    /// that nobody would be asked for.
    pub fn check_used(&self, plan: &Plan, places: Places) -> Result<(), Failure> {
        if !wishes(plan).is_empty() {
            self.check_joined(plan, places)?;
            return self.check_credentials();
        }
        let Some((named, hosts)) = self.named(plan)? else { return Ok(()) };
        let workload = run::registry::workload(&plan.workload).map_err(Failure::usage)?;
        let example = example(workload.roles(), &hosts, places);
        let known = match (hosts.is_empty(), plan.lab.is_some() || self.lab.is_some()) {
            (false, true) => format!("its hosts are {}; ", first_of(&hosts, NAMED_MAX)),
            (false, false) => format!("its hosts are called {}; ", first_of(&hosts, NAMED_MAX)),
            (true, _) => format!("'kagiri fleet list{}' shows who joins; ", self.words()),
        };
        Err(Failure::Usage(format!(
            "{named}: nothing is placed there, so this machine alone would be measured; {known}place a side of the \
             measurement on them, for example {example}"
        )))
    }

    /// Refuse a side of the measurement that stays outside of the lab in which the other side is: nobody reaches it there.
    fn check_joined(&self, plan: &Plan, places: Places) -> Result<(), Failure> {
        if self.lab.is_none() && (plan.lab.is_none() || self.names_hosts()) {
            return Ok(());
        }
        let workload = run::registry::workload(&plan.workload).map_err(Failure::usage)?;
        for variant in &plan.variants {
            let is_inside =
                |role: &str| variant.place.get(role).is_some_and(|wish| wish.of_others().is_some());
            let joined = workload.joined(&variant.settings);
            let outside = joined.iter().find(|role| !is_inside(role));
            if let (Some(role), true) = (outside, joined.iter().any(|role| is_inside(role))) {
                return Err(Failure::Usage(outside_of_lab(role, places)));
            }
        }
        Ok(())
    }

    /// What names hosts, and their names as far as they can be known before any has joined.
    fn named(&self, plan: &Plan) -> Result<Option<(String, Vec<String>)>, Failure> {
        if let Some(lab) = &self.lab {
            let state = State::read(&lab_dir(lab)?)?;
            let hosts = state.into_iter().flat_map(|state| state.hosts).map(|host| host.name);
            return Ok(Some((format!("--lab {lab}"), hosts.collect())));
        }
        if let (Some(file), false) = (&plan.lab, self.names_hosts()) {
            let hosts = read_file(Path::new(file))?.hosts.into_iter().map(|host| host.name);
            return Ok(Some((format!("lab = \"{file}\""), hosts.collect())));
        }
        let wait = self.wait.map(|wait| format!(" --wait {wait}")).unwrap_or_default();
        let said = self.words() + &wait;
        let members = match &self.credentials {
            Some(dir) => Credentials::load(dir).map_err(Failure::usage)?.hosts(),
            None => Vec::new(),
        };
        Ok((!said.is_empty()).then(|| (said.trim_start().to_owned(), members)))
    }

    /// The words that say where hosts are met, as they were written, each after a space.
    fn words(&self) -> String {
        let credentials = self.credentials.as_ref().map(|dir| dir.display().to_string());
        let all = [("--listen", &self.listen), ("--via", &self.via), ("--credentials", &credentials)];
        all.into_iter().filter_map(|(word, value)| Some(format!(" {word} {}", value.as_ref()?))).collect()
    }
}

/// What is wrong with a role that is placed nowhere while others are in a lab.
fn outside_of_lab(role: &str, places: Places) -> String {
    let (verb, option) = match role.ends_with('s') {
        true => ("are", format!("--place '{role}=...'")),
        false => ("is", format!("--place {role}=...")),
    };
    let mend = match places {
        Places::Options => option,
        Places::Plan => format!("place.{role} = \"...\""),
    };
    format!("{role} {verb} not placed on a host of the lab: add {mend}")
}

/// How parts could be placed on these hosts.
pub fn example(roles: &[Role], hosts: &[String], places: Places) -> String {
    let one = |(role, pattern): (&Role, String)| match places {
        // A shell would look for files of that name.
        Places::Options if pattern.contains('*') => format!("--place '{}={pattern}'", role.name),
        Places::Options => format!("--place {}={pattern}", role.name),
        Places::Plan => format!("place.{} = \"{pattern}\"", role.name),
    };
    let mut taken = Vec::new();
    let placed: Vec<String> =
        roles.iter().map(|role| one((role, fitting(role, roles, hosts, &mut taken)))).collect();
    match places {
        Places::Options => placed.join(" "),
        Places::Plan => format!("in the plan: {}", placed.join(", ")),
    }
}

/// The host that is called like the role, or else one that is not called like another: all of a numbered group for a
/// role that many share.
fn fitting(role: &Role, roles: &[Role], hosts: &[String], taken: &mut Vec<String>) -> String {
    let is_like = |host: &str, role: &Role| host.starts_with(role.name.trim_end_matches('s'));
    let free = || hosts.iter().filter(|host| !taken.contains(host));
    let own = free().find(|host| is_like(host, role));
    let neutral = || free().find(|host| roles.iter().all(|role| !is_like(host, role)));
    let Some(host) = own.or_else(neutral).or(free().next()).or(hosts.first()) else {
        return "HOST".to_owned();
    };
    let stem = host.trim_end_matches(|c: char| c.is_ascii_digit());
    let group: Vec<String> = hosts.iter().filter(|other| other.starts_with(stem)).cloned().collect();
    if role.many && stem.ends_with('-') && group.len() > 1 {
        taken.extend(group);
        return format!("{stem}*");
    }
    taken.push(host.clone());
    host.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: &[Role] = &[
        Role { name: "server", many: false, meaning: "" },
        Role { name: "viewers", many: true, meaning: "" },
    ];

    #[test]
    fn the_example_places_roles_on_hosts_that_are_there() {
        for (hosts, options) in [
            (&["server", "viewer"][..], "--place server=server --place viewers=viewer"),
            (&["a", "b"], "--place server=a --place viewers=b"),
            (&["viewer-1", "viewer-2", "nas"], "--place server=nas --place 'viewers=viewer-*'"),
            (&["robot-1", "robot-2", "server"], "--place server=server --place 'viewers=robot-*'"),
            (&["only"], "--place server=only --place viewers=only"),
            (&[], "--place server=HOST --place viewers=HOST"),
        ] {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            assert_eq!(example(ROLES, &hosts, Places::Options), options);
        }
        let plan = example(ROLES, &["a".to_owned(), "b".to_owned()], Places::Plan);
        assert_eq!(plan, "in the plan: place.server = \"a\", place.viewers = \"b\"");
    }
}
