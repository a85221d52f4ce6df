//! Settings of the kernel that a plan's variants are measured with.

use std::collections::BTreeMap;

use base::plan::Plan;
use run::tuning::VariantTunings;
use tune::catalogue::find;
use tune::setting::Values;

use crate::exit::Failure;
use crate::hosts::HostArgs;

/// The settings of a plan's variants, by the variants' names.
/// Errors: an unknown setting, a value out of range; hosts of a lab, of which none is named.
pub fn of_plan(plan: &Plan, hosts: &HostArgs) -> Result<VariantTunings, Failure> {
    let mut tunings = VariantTunings::new();
    for variant in &plan.variants {
        let Some(wish) = &variant.tune else { continue };
        let refuse =
            |why: String| Failure::usage(format!("variant '{}': tune.settings: {why}", variant.name));
        let mut settings = BTreeMap::new();
        for (name, value) in &wish.settings {
            let setting = find(name).map_err(|unknown| refuse(unknown.to_string()))?;
            if settings.insert(setting.name.to_owned(), value.clone()).is_some() {
                return Err(refuse(format!(
                    "{} is set twice, by its full and by its short name",
                    setting.name
                )));
            }
            // Only the host knows its congestion controls.
            let known = match setting.values {
                Values::CongestionControl => vec![value.clone()],
                _ => Vec::new(),
            };
            setting.check(value, &known).map_err(|error| refuse(error.to_string()))?;
        }
        let is_in_lab = hosts.lab.is_some() || (plan.lab.is_some() && !hosts.names_hosts());
        if wish.hosts.is_empty() && is_in_lab {
            return Err(Failure::usage(format!(
                "variant '{}': the settings would be those of this machine, outside of the lab; add \
                 tune.hosts, the lab's hosts that are to have them",
                variant.name
            )));
        }
        let mut wish = wish.clone();
        wish.settings = settings;
        tunings.insert(variant.name.clone(), wish);
    }
    Ok(tunings)
}
