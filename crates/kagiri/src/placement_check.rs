//! Rejects hosts that are named but not used: this machine would be measured instead, without notice.

use std::path::Path;

use base::names::first_of;
use base::placement::Role;
use base::plan::Plan;
use fleet::identity::Credentials;
use lab::state::State;
use lab::supervisor::read_lab_file;

use crate::exit::Failure;
use crate::hosts::{HostArgs, lab_dir, wishes};

/// Syntax in which the user places roles on hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// `--place ROLE=HOSTS`
    Options,
    /// `[place]`
    Plan,
}

/// Hosts listed in an error.
const NAMED_MAX: usize = 12;

/// Rejects hosts that the arguments or the plan's lab name and on which no role is placed, and credentials
/// without use.
pub fn check(args: &HostArgs, plan: &Plan, places: Places) -> Result<(), Failure> {
    if !wishes(plan).is_empty() {
        check_lab_roles(args, plan, places)?;
        return args.check_credentials();
    }
    let Some((named, hosts)) = named_hosts(args, plan)? else { return Ok(()) };
    let workload = run::registry::BUILT_IN.workload(&plan.workload).map_err(Failure::usage)?;
    let example = example(workload.roles(), &hosts, places);
    let known = match hosts.is_empty() {
        true => format!("'kagiri fleet list{}' lists the hosts that join", given_flags(args)),
        false => format!("its hosts are {}", first_of(&hosts, NAMED_MAX)),
    };
    Err(Failure::Usage(format!(
        "{named}: no role is placed on these hosts, so only this machine would be measured; {known}; place a \
         role, for example {example}"
    )))
}

/// Rejects a role outside of the lab that must reach a role inside, which no network connects.
fn check_lab_roles(args: &HostArgs, plan: &Plan, places: Places) -> Result<(), Failure> {
    if args.lab.is_none() && (plan.lab.is_none() || args.names_hosts()) {
        return Ok(());
    }
    let workload = run::registry::BUILT_IN.workload(&plan.workload).map_err(Failure::usage)?;
    for variant in &plan.variants {
        let is_inside = |role: &str| variant.place.get(role).is_some_and(|wish| wish.of_others().is_some());
        let joined = workload.configure(&variant.settings).map_err(Failure::usage)?.networked_roles();
        let outside = joined.iter().find(|role| !is_inside(role));
        if let (Some(role), true) = (outside, joined.iter().any(|role| is_inside(role))) {
            return Err(Failure::Usage(outside_of_lab(role, places)));
        }
    }
    Ok(())
}

/// The argument that names hosts, and the host names if they are known before any host joins.
fn named_hosts(args: &HostArgs, plan: &Plan) -> Result<Option<(String, Vec<String>)>, Failure> {
    if let Some(lab) = &args.lab {
        let state = State::read(&lab_dir(lab)?)?;
        let hosts = state.into_iter().flat_map(|state| state.hosts).map(|host| host.name);
        return Ok(Some((format!("--lab {lab}"), hosts.collect())));
    }
    if let (Some(file), false) = (&plan.lab, args.names_hosts()) {
        let hosts = read_lab_file(Path::new(file))?.hosts.into_iter().map(|host| host.name);
        return Ok(Some((format!("lab = \"{file}\""), hosts.collect())));
    }
    let wait = args.wait.map(|wait| format!(" --wait {wait}")).unwrap_or_default();
    let said = given_flags(args) + &wait;
    let members = match &args.credentials {
        Some(dir) => Credentials::load(dir).map_err(Failure::usage)?.hosts(),
        None => Vec::new(),
    };
    Ok((!said.is_empty()).then(|| (said.trim_start().to_owned(), members)))
}

/// The given arguments about hosts, each after a space.
fn given_flags(args: &HostArgs) -> String {
    let credentials = args.credentials.as_ref().map(|dir| dir.display().to_string());
    let all = [("--listen", &args.listen), ("--via", &args.via), ("--credentials", &credentials)];
    all.into_iter().filter_map(|(word, value)| Some(format!(" {word} {}", value.as_ref()?))).collect()
}

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

pub fn example(roles: &[Role], hosts: &[String], places: Places) -> String {
    let one = |(role, pattern): (&Role, String)| match places {
        // Quoted, so that the shell does not expand it.
        Places::Options if pattern.contains('*') => format!("--place '{}={pattern}'", role.name),
        Places::Options => format!("--place {}={pattern}", role.name),
        Places::Plan => format!("place.{} = \"{pattern}\"", role.name),
    };
    let mut taken = Vec::new();
    let placed: Vec<String> =
        roles.iter().map(|role| one((role, matching_host(role, roles, hosts, &mut taken)))).collect();
    match places {
        Places::Options => placed.join(" "),
        Places::Plan => format!("in the plan: {}", placed.join(", ")),
    }
}

/// The host whose name resembles the role, else one that resembles no role; a whole numbered group for a role
/// of many.
fn matching_host(role: &Role, roles: &[Role], hosts: &[String], taken: &mut Vec<String>) -> String {
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
    fn example_places_roles_on_known_hosts() {
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
