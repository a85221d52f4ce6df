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

/// Operations per second of the first trial of a search; doubled as long as they are carried.
const RATE_FIRST: u64 = 1000;
const DURABLE_WITHIN: Span = Span::from_s(60);
const PERSONALITY: &str = "fileserver";

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

/// The search for the highest rate that meets the objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateSearch {
    /// Search for the highest rate of operations (open loop, as with --rate) that meets the objective, up to
    /// N per second (1000000 if omitted).
    #[schemars(range(min = 1, max = 100_000_000), extend("x-flag" = {"name": "search-rate",
        "missing": "1000000", "requires": "objective.p99_max", "conflicts": ["rate", "search.max"]}))]
    pub max: u64,
}

impl Default for RateSearch {
    fn default() -> Self {
        Self { max: 1_000_000 }
    }
}

/// The settings of `files`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesSettings {
    /// Directory on the storage to be measured, or s3://BUCKET/PREFIX. kagiri works in a folder (or prefix)
    /// of its own in it, which it removes afterwards.
    #[schemars(extend("x-unset" = "on a lab's host its mount, or else its disk",
        "x-flag" = {"positional": true, "value": "DIR"}))]
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
    /// The backend's view of DIR, if DIR is a mount of an object store: s3://BUCKET/PREFIX. What was written
    /// is then durable when the backend lists every file with its size.
    #[schemars(extend("x-unset" = "syncfs is asked, which knows nothing of a backend",
        "x-flag" = {"value": "s3://BUCKET/PREFIX", "rare": true}))]
    pub durable_at: Option<String>,
    /// Longest wait after the run until everything that was written is durable.
    #[schemars(extend("x-min" = "0s", "x-max" = "24h", "x-flag" = {"rare": true}))]
    pub durable_within: Span,
    /// Requests of a worker's round in their ratio: get, put, head, delete and list (object stores).
    #[schemars(extend("x-unset" = "the round of fileserver: put, get and put, get, delete, head",
        "x-flag" = {"value": "get=N,put=N,...", "group": "Object stores",
            "conflicts": ["personality", "wml"]}))]
    pub mix: Option<String>,
    /// Number of objects, shared out among the workers (object stores).
    #[schemars(range(min = 1, max = 100_000_000), extend("x-unset" = "1000, or what the workers need",
        "x-flag" = {"group": "Object stores"}))]
    pub objects: Option<u64>,
    /// Size of the objects: a size such as 128k or 16kB, or a random variable as in WML (object stores).
    #[schemars(extend("x-unset" = "randvar(type=gamma,mean=128k,gamma=1500)",
        "x-flag" = {"value": "SIZE", "group": "Object stores"}))]
    pub object_size: Option<String>,
    /// Longest time of one request (object stores).
    #[schemars(extend("x-min" = "10ms", "x-max" = "1h", "x-unset" = "30s",
        "x-flag" = {"group": "Object stores", "rare": true}))]
    pub request_within: Option<Span>,
    /// Send requests over unencrypted HTTP to addresses that are not private, too (object stores).
    #[schemars(extend("x-flag" = {"group": "Object stores", "rare": true}))]
    pub allow_http: bool,
    /// What must hold for a number of threads to pass.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub objective: Objective,
    /// The search for the most threads that meet the objective.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub search: Option<ThreadSearch>,
    /// The search for the highest rate that meets the objective.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub rate_search: Option<RateSearch>,
}

impl Default for FilesSettings {
    fn default() -> Self {
        Self {
            dir: None,
            personality: PERSONALITY.to_owned(),
            wml: None,
            set: BTreeMap::new(),
            threads: None,
            time: None,
            omit: Span::from_s(0),
            rate: None,
            strict: false,
            cold: false,
            durable_at: None,
            durable_within: DURABLE_WITHIN,
            mix: None,
            objects: None,
            object_size: None,
            request_within: None,
            allow_http: false,
            objective: Objective::default(),
            search: None,
            rate_search: None,
        }
    }
}

impl Settings for FilesSettings {
    fn check(&self) -> Result<(), PlanError> {
        let key = if self.search.is_some() { "search" } else { "rate_search" };
        if self.is_search() && self.objective.p99_max.is_none() {
            return Err(PlanError::of_key(key, "it needs an objective: `objective.p99_max`"));
        }
        if self.rate_search.is_some() && (self.rate.is_some() || self.search.is_some()) {
            return Err(PlanError::of_key(key, "either `rate`, `search` or `rate_search`"));
        }
        let most = self.rate_search.as_ref().map(|search| search.max as f64).or(self.rate);
        if let Some((least, most)) =
            self.objective.ops_per_s_min.zip(most).filter(|(least, most)| least > most)
        {
            let rate = if self.rate.is_some() { "rate" } else { "rate_search.max" };
            let problem = format!("{least} operations per second cannot be done at a `{rate}` of {most}");
            return Err(PlanError::of_key("objective.ops_per_s_min", problem));
        }
        if let Some(target) = self.object_store() {
            return target.and_then(|_| self.check_objects());
        }
        self.refuse_keys_of_objects()?;
        self.backend().transpose()?;
        let most = self.search.as_ref().map(|search| search.max);
        let ready = self.ready(self.threads.or(most))?;
        if self.rate_of(1).is_some()
            && ready.compiled.counted_per_round().is_none_or(|counted| counted <= 0.0)
        {
            let problem =
                "the program's number of operations per round is random, so they cannot be scheduled";
            let key = if self.rate.is_some() { "rate" } else { "rate_search" };
            return Err(PlanError::of_key(key, problem));
        }
        Ok(())
    }
}

impl FilesSettings {
    pub(crate) fn is_search(&self) -> bool {
        self.search.is_some() || self.rate_search.is_some()
    }

    /// Threads of a trial with this load; `None`: as many as the program says.
    pub(crate) fn threads_of(&self, load: u64) -> Option<u64> {
        if self.search.is_some() { Some(load) } else { self.threads }
    }

    /// Operations per second of a trial with this load; `None`: a closed loop.
    pub(crate) fn rate_of(&self, load: u64) -> Option<f64> {
        if self.rate_search.is_some() { Some(load as f64) } else { self.rate }
    }

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
            let program = if self.wml.is_some() { "wml" } else { "personality" };
            let key = self.variable_to_blame(&source, threads).unwrap_or_else(|| program.to_owned());
            PlanError::of_key(&key, error.to_string())
        })
    }

    /// The key of the variable without which the program is right.
    fn variable_to_blame(&self, source: &Source, threads: Option<u64>) -> Option<String> {
        let is_to_blame = |name: &&String| {
            source.evaluate(self.set.iter().filter(|(other, _)| other != name), threads).is_ok()
        };
        self.set.keys().find(is_to_blame).map(|name| format!("set.{name}"))
    }

    pub(crate) fn load_plan(&self) -> LoadPlan {
        if self.object_store().is_some() {
            return self.plan_of(self.time.unwrap_or(TIME), self.workers());
        }
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
        self.plan_of(time, threads)
    }

    fn plan_of(&self, time: Span, threads: u64) -> LoadPlan {
        let (search, rates) = (self.search.as_ref(), self.rate_search.as_ref());
        let most = search.map(|search| search.max).or(rates.map(|search| search.max));
        LoadPlan {
            load_first: rates.map_or(1, |search| RATE_FIRST.min(search.max)),
            load_max: most.unwrap_or(threads),
            fixed: most.is_none().then_some(threads),
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
        let rates = json!({ "rate_search": { "max": 5000 }, "objective": { "p99_max": "20ms" } });
        let settings = read(rates).unwrap();
        let plan = settings.load_plan();
        assert_eq!((plan.fixed, plan.load_first, plan.load_max), (None, 1000, 5000));
        assert_eq!((settings.threads_of(7), settings.rate_of(7)), (None, Some(7.0)));
        let until_done = read(json!({ "personality": "createfiles" })).unwrap().load_plan();
        assert_eq!(until_done.hold, UNTIL_DONE);
    }

    #[test]
    fn wrong_settings_name_their_key() {
        for (settings, key, words) in [
            (json!({ "personality": "fileserve" }), "personality", "similar: fileserver"),
            (json!({ "set": { "nfile": 3 } }), "set.nfile", "sets no variable 'nfile'"),
            (json!({ "set": { "nfiles": "many" } }), "set.nfiles", "expected a number, found 'many'"),
            (json!({ "wml": "/nowhere/x.f" }), "wml", "cannot read /nowhere/x.f"),
            (
                json!({ "rate": 100, "objective": { "ops_per_s_min": 1000 } }),
                "objective.ops_per_s_min",
                "cannot be done at a `rate` of 100",
            ),
            (json!({ "search": {} }), "search", "objective"),
            (json!({ "rate_search": {} }), "rate_search", "objective"),
            (
                json!({ "rate_search": {}, "rate": 5, "objective": { "p99_max": "1s" } }),
                "rate_search",
                "either",
            ),
            (json!({ "threads": 5, "personality": "compflow_demo" }), "threads", "no variable $nthreads"),
            (json!({ "threads": 0 }), "threads", "not within 1 to 30000"),
        ] {
            let error = read(settings).unwrap_err();
            assert_eq!(error.key.as_deref(), Some(key), "{error:?}");
            assert!(error.problem.contains(words), "{error:?}");
        }
    }
}
