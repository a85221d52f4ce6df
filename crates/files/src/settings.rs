//! The settings of `files`, as they stand in a plan's `[files]` table and on the command line.

use std::collections::BTreeMap;

use base::plan::{LoadPlan, PlanError};
use base::units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wml::Quit;
use workload::settings::Settings;

use crate::program::{Ready, SetValue, Source, THREADS};

/// A program whose end is a number of operations may take so long.
const UNTIL_DONE: Span = Span::from_s(3600);
/// Time of a run, unless the settings or the program say it.
const TIME: Span = Span::from_s(60);

/// What must hold for a number of threads to pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// Longest accepted 99th percentile of the operations' latency.
    #[schemars(extend("x-min" = "1us", "x-max" = "1h", "x-unset" = "none", "x-flag" = {"name": "p99-max"}))]
    pub p99_max: Option<Span>,
    /// Least accepted rate, in operations per second.
    #[schemars(range(min = 0.0), extend("x-unset" = "none; with a --rate, 99 % of it",
        "x-flag" = {"name": "ops-per-s-min", "rare": true}))]
    pub ops_per_s_min: Option<f64>,
}

/// The search for the most threads that meet the objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ThreadSearch {
    /// Search for the most threads that meet the objective, up to N (1000 if omitted).
    #[schemars(range(min = 1, max = 30_000), extend("x-flag" = {"name": "search", "missing": "1000",
        "requires": "objective.p99_max"}))]
    pub max: u64,
    /// End the search when the passing and the failing number differ by at most PERCENT.
    #[schemars(range(min = 0.1, max = 50.0),
        extend("x-flag" = {"name": "resolution", "requires": "search.max", "rare": true}))]
    pub resolution_percent: f64,
}

impl Default for ThreadSearch {
    fn default() -> Self {
        Self { max: 1000, resolution_percent: 5.0 }
    }
}

/// The settings of `files`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesSettings {
    /// Directory on the storage to be measured. kagiri works in a folder of its own in it, which it removes
    /// afterwards.
    #[schemars(extend("x-flag" = {"positional": true, "value": "DIR"}))]
    pub dir: Option<String>,
    /// Ready program to run; --list shows all.
    #[schemars(extend("x-flag" = {"value": "NAME"}))]
    pub personality: String,
    /// Program to run: a file in WML, filebench's language.
    #[schemars(extend("x-unset" = "the personality",
        "x-flag" = {"value": "FILE", "file": true, "conflicts": ["personality"]}))]
    pub wml: Option<String>,
    /// Variables of the program, in place of the values that it sets.
    #[schemars(extend("x-flag" = false))]
    pub set: BTreeMap<String, SetValue>,
    /// Number of threads: the variable nthreads of the program.
    #[schemars(range(min = 1, max = 30_000),
        extend("x-unset" = "as the program sets it", "x-flag" = {"conflicts": ["search.max"]}))]
    pub threads: Option<u64>,
    /// Duration of the run.
    #[schemars(extend("x-min" = "100ms", "x-max" = "24h",
        "x-unset" = "as the program's run command says, else 60s", "x-flag" = {"short": "t"}))]
    pub time: Option<Span>,
    /// Warm-up before --time begins, which the results leave out.
    #[schemars(extend("x-min" = "0s", "x-max" = "1h"))]
    pub omit: Span,
    /// Operations per second of all threads, begun on schedule whether or not earlier ones have ended (open
    /// loop); latency counts from the intended start.
    #[schemars(range(min = 0.1, max = 100_000_000.0),
        extend("x-unset" = "each thread goes on as soon as it can", "x-flag" = {"value": "N"}))]
    pub rate: Option<f64>,
    /// Reproduce filebench's choice of files and its counting, so that results compare.
    pub strict: bool,
    /// Drop the files from the page cache before each trial.
    pub cold: bool,
    /// Longest wait after the run until everything that was written is durable (syncfs).
    #[schemars(extend("x-min" = "0s", "x-max" = "24h", "x-flag" = {"rare": true}))]
    pub durable_within: Span,
    /// What must hold for a number of threads to pass.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub objective: Objective,
    /// The search for the most threads that meet the objective.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub search: Option<ThreadSearch>,
}

impl Default for FilesSettings {
    fn default() -> Self {
        Self {
            dir: None,
            personality: "fileserver".to_owned(),
            wml: None,
            set: BTreeMap::new(),
            threads: None,
            time: None,
            omit: Span::from_s(0),
            rate: None,
            strict: false,
            cold: false,
            durable_within: Span::from_s(60),
            objective: Objective::default(),
            search: None,
        }
    }
}

impl Settings for FilesSettings {
    fn check(&self) -> Result<(), PlanError> {
        if self.search.is_some() && self.objective.p99_max.is_none() {
            return Err(PlanError::of_key("search", "it needs an objective: `objective.p99_max`"));
        }
        let most = self.search.as_ref().map(|search| search.max);
        let ready = self.ready(self.threads.or(most))?;
        if self.rate.is_some() && ready.compiled.counted_per_round().is_none_or(|counted| counted <= 0.0) {
            let problem =
                "the program's number of operations per round is random, so they cannot be scheduled";
            return Err(PlanError::of_key("rate", problem));
        }
        Ok(())
    }
}

impl FilesSettings {
    /// # Errors
    /// There is no such personality, or the file cannot be read.
    pub fn source(&self) -> Result<Source, PlanError> {
        match &self.wml {
            Some(path) => Source::of_file(path),
            None => Source::of_personality(&self.personality),
        }
    }

    /// The program, with `threads` in place of its own number.
    ///
    /// # Errors
    /// What is wrong, under the key that is to blame.
    pub fn ready(&self, threads: Option<u64>) -> Result<Ready, PlanError> {
        let source = self.source()?;
        source.evaluate(self.set.iter(), threads).map_err(|error| {
            if threads.is_some() && error.problem.contains(&format!("no variable '{THREADS}'")) {
                let key = if self.search.is_some() { "search.max" } else { "threads" };
                let problem = format!("{} has no variable ${THREADS}: its threads are fixed", source.name);
                return PlanError::of_key(key, problem);
            }
            PlanError::of_key(if self.wml.is_some() { "wml" } else { "personality" }, error.to_string())
        })
    }

    pub(crate) fn load_plan(&self) -> LoadPlan {
        // A plan that was checked has a program.
        let program = self.ready(self.threads).ok().map(|ready| ready.program);
        let by_program = || {
            let program = program.as_ref()?;
            let until_done = (program.quit != Quit::Timeout).then_some(UNTIL_DONE);
            program.seconds.map(Span::from_s).or(until_done)
        };
        let time = self.time.or_else(by_program).unwrap_or(TIME);
        // Without a search, the load is the program's own number of threads.
        let threads = program.as_ref().map_or(1, wml::Program::threads);
        let search = self.search.as_ref();
        LoadPlan {
            load_first: 1,
            load_max: search.map_or(threads, |search| search.max),
            fixed: search.is_none().then_some(threads),
            hold: time,
            search_hold: time,
            confirmations: 2,
            ramp_down: false,
            resolution: search.map_or(0.05, |search| search.resolution_percent / 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: serde_json::Value) -> Result<FilesSettings, PlanError> {
        workload::settings::read(&settings)
    }

    #[test]
    fn load_is_the_program_s_number_of_threads_and_time_its_own() {
        let plan = read(json!({ "time": "5s" })).unwrap().load_plan();
        assert_eq!((plan.fixed, plan.hold), (Some(50), Span::from_s(5)));
        let set = json!({ "set": { "nthreads": 7, "nfiles": "2k" } });
        assert_eq!(read(set).unwrap().load_plan().fixed, Some(7));
        assert_eq!(read(json!({ "threads": 3 })).unwrap().load_plan().fixed, Some(3));
        let search = json!({ "search": { "max": 64 }, "objective": { "p99_max": "20ms" } });
        let plan = read(search).unwrap().load_plan();
        assert_eq!((plan.fixed, plan.load_max), (None, 64));
        let until_done = read(json!({ "personality": "createfiles" })).unwrap().load_plan();
        assert_eq!(until_done.hold, UNTIL_DONE);
    }

    #[test]
    fn wrong_settings_name_their_key() {
        for (settings, key, words) in [
            (json!({ "personality": "fileserve" }), "personality", "similar: fileserver"),
            (json!({ "set": { "nfile": 3 } }), "personality", "sets no variable 'nfile'"),
            (json!({ "set": { "nfiles": "many" } }), "personality", "expected a number, found 'many'"),
            (json!({ "wml": "/nowhere/x.f" }), "wml", "cannot read /nowhere/x.f"),
            (json!({ "search": {} }), "search", "objective"),
            (json!({ "threads": 5, "personality": "compflow_demo" }), "threads", "no variable $nthreads"),
            (json!({ "threads": 0 }), "threads", "not within 1 to 30000"),
        ] {
            let error = read(settings).unwrap_err();
            assert_eq!(error.key.as_deref(), Some(key), "{error:?}");
            assert!(error.problem.contains(words), "{error:?}");
        }
    }
}
