//! What the console asks the commands: the check of a plan, which is that of `kagiri run`, with its cost and
//! its hosts; and what a command is for.

use std::path::Path;

use base::outcome::Run;
use base::part::HERE;
use base::plan::Plan;
use run::engine::{self, ConfiguredVariant};
use run::registry::BUILT_IN;
use web::{CheckedPlan, Commands, PlanLength, PlanProblem, Targets, TuneOptions};

use crate::commands::run::with_absolute_paths;
use crate::commands::tune::auto;
use crate::estimate::Estimate;
use crate::hosts::{self, HostArgs};
use crate::placement_check::Places;
use crate::progress::length_words;
use crate::resume;
use crate::session::{check_plan, run_environment};

pub struct KnownCommands {
    /// Where the agents join.
    hosts: HostArgs,
    /// The whole command line.
    program: clap::Command,
}

impl KnownCommands {
    pub fn new(hosts: HostArgs, program: clap::Command) -> Self {
        Self { hosts, program }
    }
}

impl Commands for KnownCommands {
    fn check_plan(&self, text: &str, folder: &Path) -> Result<CheckedPlan, PlanProblem> {
        self.checked(&with_absolute_paths(read(text)?, folder).map_err(of_plan)?)
    }

    fn plan_length(&self, text: &str) -> Result<PlanLength, PlanProblem> {
        let plan = read(text)?;
        Ok(length(&plan, &configured(&plan)?))
    }

    fn check_stored(&self, run: &Run) -> Result<CheckedPlan, PlanProblem> {
        let plan = resume::plan_of(run).map_err(of_plan)?;
        if let Some(lab) = &plan.lab {
            std::fs::metadata(lab).map_err(|error| {
                of_plan(format!(
                    "cannot read the plan's lab {lab}: {error}; restore it ('kagiri runs show {} --json' has \
                     its text in environment.lab)",
                    run.run
                ))
            })?;
        }
        let checked = self.checked(&plan)?;
        run::resume::check_files(run, &run_environment(&plan)).map_err(|error| of_plan(error.message))?;
        Ok(checked)
    }

    fn check_tune(&self, text: &str, options: &TuneOptions) -> Result<(), PlanProblem> {
        let plan = BUILT_IN.read_plan(text).map_err(of_plan)?;
        auto::check(&plan, options.metric.as_deref(), &options.settings, options.blocks)
            .map_err(|(field, why)| PlanProblem { field: Some(field.to_owned()), ..of_plan(why) })
    }

    fn summary(&self, command: &str) -> Option<String> {
        let mut found = &self.program;
        for word in command.split(' ') {
            found = found.find_subcommand(word)?;
        }
        found.get_about().map(ToString::to_string)
    }
}

impl KnownCommands {
    /// Checks a plan whose paths are absolute.
    fn checked(&self, plan: &Plan) -> Result<CheckedPlan, PlanProblem> {
        let targets = targets(plan);
        // Where only this machine measures, nothing listens for agents.
        let hosts = if targets.uses_fleet() { self.hosts.clone() } else { HostArgs::default() };
        check_plan(plan, &hosts, Places::Plan).map_err(of_plan)?;
        let variants = configured(plan)?;
        let changes = |variant: &base::plan::Variant| variant.qos.is_some() || variant.tune.is_some();
        Ok(CheckedPlan {
            length: length(plan, &variants),
            needs_root: plan.lab.is_some() || plan.variants.iter().any(changes),
            targets,
            name: plan.name.clone(),
            workload: plan.workload.clone(),
        })
    }
}

/// Errors: the text is no plan; with its key and line.
fn read(text: &str) -> Result<Plan, PlanProblem> {
    BUILT_IN.read_plan(text).map_err(|error| PlanProblem {
        message: error.without_line(),
        field: error.key.clone(),
        line: error.line,
    })
}

/// The variants of a plan, as they would be measured.
fn configured(plan: &Plan) -> Result<Vec<ConfiguredVariant<'_>>, PlanProblem> {
    let workload = BUILT_IN.workload(&plan.workload).map_err(of_plan)?;
    engine::configure(plan, workload).map_err(|error| of_plan(error.message))
}

fn length(plan: &Plan, variants: &[ConfiguredVariant<'_>]) -> PlanLength {
    let estimate = Estimate::of_plan(plan, variants);
    let bound = estimate.upper_bound();
    PlanLength { s: bound.s(), words: length_words(&bound, estimate.is_search()) }
}

/// A problem of the whole plan.
fn of_plan(problem: impl std::fmt::Display) -> PlanProblem {
    PlanProblem { message: problem.to_string(), field: None, line: None }
}

/// The hosts of a plan; a lab is on this machine.
fn targets(plan: &Plan) -> Targets {
    if plan.lab.is_some() {
        return Targets { is_here: true, ..Targets::default() };
    }
    let roles = BUILT_IN.workload(&plan.workload).map(|workload| workload.roles()).unwrap_or_default();
    let is_here = plan.variants.iter().any(|variant| {
        let is_placed_elsewhere = |role: &base::placement::Role| {
            variant.place.get(role.name).is_some_and(|wish| !wish.matches(HERE))
        };
        let policy = variant.qos.as_ref().map(|qos| qos.hosts());
        let tuning = variant.tune.as_ref().map(|tune| tune.hosts());
        let is_changed = policy.into_iter().chain(tuning).any(|wish| wish.matches(HERE));
        is_changed || !roles.iter().all(is_placed_elsewhere)
    });
    let mut targets = Targets { is_here, ..Targets::default() };
    for wish in hosts::wishes(plan) {
        match wish.spelled_out() {
            Some(names) => targets.hosts.extend(names),
            None => targets.is_any = true,
        }
    }
    targets.hosts.sort();
    targets.hosts.dedup();
    targets
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn known() -> KnownCommands {
        KnownCommands::new(HostArgs::default(), crate::cli::Cli::command())
    }

    fn check(text: &str) -> Result<CheckedPlan, PlanProblem> {
        known().check_plan(text, Path::new("/nowhere"))
    }

    #[test]
    fn plan_has_its_cost_and_hosts() {
        let plan = check("workload = 'transfer'\nrepeats = 2\n[transfer]\ntime = '1s'\n").unwrap();
        assert!(plan.length.s.is_some_and(|s| s > 2.0 && s < 60.0), "{plan:?}");
        assert!(plan.length.words.contains("trial") && !plan.needs_root, "{plan:?}");
        assert_eq!(plan.targets, Targets { is_here: true, ..Targets::default() });
        let placed = "workload = 'transfer'\n[place]\nserver = 'nas'\nclients = 'pc-[1-2]'\n";
        let plan = check(placed).unwrap();
        assert_eq!(plan.targets.hosts, ["nas", "pc-1", "pc-2"]);
        let is_here = |more: &str| targets(&BUILT_IN.read_plan(&format!("{placed}{more}")).unwrap()).is_here;
        assert!(!is_here("") && !is_here("[tune]\nhosts = ['nas']\n"));
        // Settings of this machine are changed for a run of others.
        assert!(is_here("[tune]\nsettings.tcp_sack = 0\n") && is_here("[qos]\npolicy = 'a.toml'\n"));
    }

    #[test]
    fn stored_run_is_checked_as_its_plan_is_and_with_the_files_that_it_names() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/run.json");
        let mut stored = store::read_export_file(Path::new(file)).unwrap();
        let checked = known().check_stored(&stored).unwrap();
        assert_eq!((&checked.name, &checked.workload), (&stored.name, &stored.workload));
        assert_eq!(checked.targets, Targets { is_here: true, ..Targets::default() });
        let folder = tempfile::tempdir().unwrap();
        let lab = folder.path().join("lab.toml");
        let placed = format!(
            "workload = 'transfer'\nlab = '{}'\n[place]\nserver = 'a'\nclients = 'b'\n",
            lab.display()
        );
        stored.plan = serde_json::to_value(BUILT_IN.read_plan(&placed).unwrap()).unwrap();
        let text = "name = 'two'\n[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\nrate = '50Mbit/s'\n";
        stored.environment.insert("lab".to_owned(), text.into());
        let problem = || known().check_stored(&stored).unwrap_err().message;
        assert!(problem().contains("No such file") && problem().contains("environment.lab"), "{}", problem());
        std::fs::write(&lab, text.replace("50Mbit/s", "100Mbit/s")).unwrap();
        assert!(problem().contains("the plan's lab has changed"), "{}", problem());
        std::fs::write(&lab, text).unwrap();
        assert!(known().check_stored(&stored).unwrap().needs_root);
        stored.plan["lab"] = 7.into();
        assert!(known().check_stored(&stored).unwrap_err().message.contains("cannot be read"));
    }

    #[test]
    fn list_of_ready_plans_has_the_time_of_each() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans"));
        let list = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let mut listed = Vec::new();
        for row in list.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let names: Vec<&str> = cells[0].split(", ").map(|name| name.trim_matches('`')).collect();
            let times: Vec<&str> = cells[2].split(", ").collect();
            assert_eq!(names.len(), times.len(), "{row}");
            for (name, time) in names.into_iter().zip(times) {
                let text = std::fs::read_to_string(folder.join(format!("{name}.toml"))).unwrap();
                let length = known().plan_length(&text).unwrap();
                let expected = length.s.map_or("unknown".to_owned(), base::format::duration_rounded_up);
                assert_eq!(time, expected, "{name}");
                listed.push(format!("{name}.toml"));
            }
        }
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let plans = files.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".toml"));
        let mut plans: Vec<String> = plans.collect();
        plans.sort();
        listed.sort();
        assert_eq!(listed, plans);
    }

    #[test]
    fn every_workload_has_a_summary() {
        let known = known();
        for workload in BUILT_IN.workloads() {
            let summary = known.summary(workload.command());
            assert!(summary.is_some_and(|summary| summary.len() > 20), "{}", workload.command());
        }
    }

    #[test]
    fn problem_names_key_and_line() {
        let problem = check("workload = 'transfer'\n[transfer]\ntime = 'long'\n").unwrap_err();
        assert_eq!((problem.field.as_deref(), problem.line), (Some("transfer.time"), Some(3)), "{problem:?}");
        assert!(check("workload = 'none'\n").unwrap_err().message.contains("transfer"));
        assert!(check("name = ").unwrap_err().line.is_some());
    }
}
