//! Policies of `kagiri qos`: their files, and those that a plan's variants are measured under.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use base::part::HERE;
use base::plan::Plan;
use qos::policy::{Policy, TEXT_BYTES_MAX};
use run::companions::VariantPolicy;

use crate::exit::Failure;
use crate::hosts::HostArgs;

/// Reads a policy, and returns its text too. A policy that cannot be used is a usage error with its file,
/// line and key.
pub fn read(path: &Path) -> Result<(Policy, String), Failure> {
    let file = path.display();
    let text = sys::file::read_text(path, TEXT_BYTES_MAX as u64).map_err(|error| {
        let message = format!("cannot read the policy {file}: {error}; an example is plans/qos/robots.toml");
        match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::OutOfMemory => Failure::runtime(message),
            _ => Failure::usage(message),
        }
    })?;
    let policy = Policy::parse(&text).map_err(|error| {
        let line = error.line.map(|line| format!("{line}:")).unwrap_or_default();
        Failure::usage(format!("{file}:{line} {}", error.without_line()))
    })?;
    Ok((policy, text))
}

/// The policies of a plan's variants, by the variants' names.
/// Errors: a policy that cannot be used; hosts of a lab, of which none is named.
pub fn of_plan(plan: &Plan, hosts: &HostArgs) -> Result<BTreeMap<String, VariantPolicy>, Failure> {
    let mut policies = BTreeMap::new();
    for variant in &plan.variants {
        let Some(wish) = &variant.qos else { continue };
        let (policy, text) = read(Path::new(&wish.policy))?;
        let is_in_lab = hosts.lab.is_some() || (plan.lab.is_some() && !hosts.names_hosts());
        if wish.hosts.is_empty() && is_in_lab {
            return Err(Failure::usage(format!(
                "variant '{}': the policy would be in force on this machine, outside of the lab; add \
                 qos.hosts, the lab's hosts that are to enforce it",
                variant.name
            )));
        }
        let coordinator = wish.coordinator();
        if is_in_lab && coordinator.as_ref().is_some_and(|wish| wish.matches(HERE)) {
            return Err(Failure::usage(format!(
                "variant '{}': qos.coordinator would run on this machine, outside of the lab; name a host of \
                 the lab",
                variant.name
            )));
        }
        let (file, hosts) = (wish.policy.clone(), wish.hosts());
        policies.insert(variant.name.clone(), VariantPolicy { file, text, policy, hosts, coordinator });
    }
    Ok(policies)
}
