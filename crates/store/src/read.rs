//! Reading runs: the whole of one, or a list.

use std::collections::BTreeMap;

use base::doubt::{Doubt, DoubtNote};
use base::metric::Metrics;
use base::outcome::{Capacity, Certainty, Limit, LoadMetric, Resource, Run, State, Trial};
use base::series::Series;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::owner::{Life, Owner};
use crate::{Store, StoreError, series, word};

/// Which runs to list; the default is all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    pub workload: Option<String>,
    pub name: Option<String>,
    /// Only runs that ended like this.
    pub state: Option<State>,
    /// Only runs that began then or later.
    pub since: Option<Timestamp>,
    pub count_max: Option<usize>,
}

/// One line of a list of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// The run's id.
    pub run: String,
    /// What its owner calls it.
    pub name: String,
    /// Which workload.
    pub workload: String,
    /// How it ended; `interrupted` also when its process died.
    pub state: State,
    /// When it began.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// When it ended.
    #[schemars(with = "Option<String>")]
    pub ended_at: Option<Timestamp>,
    /// The capacity of the first variant, in `unit`; `None` while unknown.
    pub capacity: Option<f64>,
    /// Within which it lies; the second bound is `None` while nothing above it has failed.
    #[serde(default)]
    pub interval: [Option<f64>; 2],
    /// The load's unit.
    pub unit: String,
    /// The result of the first variant, if it is not a capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<LoadMetric>,
    /// What set the capacity.
    pub limit: Resource,
    /// Certainty of the limit; `unknown` of no resource if it was not found.
    pub certainty: Certainty,
    /// How many trials are stored.
    pub trials: u32,
    /// Whether its trials were evaluated; not of a run whose process died before.
    #[serde(skip)]
    pub is_evaluated: bool,
}

impl RunSummary {
    /// Takes over the result of the run.
    pub fn set_result(&mut self, run: &Run) {
        self.capacity = run.capacity.value;
        self.interval = run.capacity.interval;
        self.unit.clone_from(&run.capacity.unit);
        self.finding = run.variants.first().and_then(|first| first.findings.first().cloned());
        (self.limit, self.certainty) = (run.limit.resource, run.limit.certainty);
        self.is_evaluated = !run.variants.is_empty();
    }
}

const OWNER_COLUMNS: &str = "owner_pid, owner_start, owner_boot, owner_pid_space";
const SELECT_SUMMARY: &str = "SELECT id, name, workload, state, started_at, ended_at, capacity_value, \
     capacity_unit, capacity, variants, limit_found, (SELECT count(*) FROM trial WHERE trial.run = run.id) \
     AS trials, owner_pid, owner_start, owner_boot, owner_pid_space FROM run \
     WHERE (?1 IS NULL OR workload = ?1) AND (?2 IS NULL OR name = ?2) AND (?3 IS NULL OR started_us >= ?3) \
     ORDER BY started_us DESC, id DESC";

fn bad(column: &str, problem: impl std::fmt::Display) -> rusqlite::Error {
    let text = format!("{column}: {problem}").into();
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, text)
}

fn word_of<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    word::from_word(row.get_ref(column)?.as_str()?).map_err(|error| bad(column, error))
}

fn json_of<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| bad(column, error))
}

fn time_of(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| text.parse().map_err(|error| bad(column, error))).transpose()
}

fn time_in(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    time_of(row, column)?.ok_or_else(|| bad(column, "it is missing"))
}

fn owner_of(row: &Row<'_>) -> rusqlite::Result<Option<Owner>> {
    let Some(pid) = row.get("owner_pid")? else { return Ok(None) };
    Ok(Some(Owner {
        pid,
        start_ticks: row.get("owner_start")?,
        boot: row.get("owner_boot")?,
        pid_space: row.get("owner_pid_space")?,
    }))
}

/// The process that may still work on a run that is stored as running; `None`: it has ended, or the run was
/// imported.
pub(crate) fn measuring(row: &Row<'_>) -> rusqlite::Result<Option<Owner>> {
    let (state, owner) = (word_of(row, "state")?, owner_of(row)?);
    Ok(if abandoned(state, owner.as_ref()) || state != State::Running { None } else { owner })
}

/// Whether a run was measured to its end.
pub(crate) fn is_complete(row: &Row<'_>) -> rusqlite::Result<bool> {
    Ok(word_of::<State>(row, "state")? == State::Complete)
}

/// Whether no process works on a run any more; a run without an owner was imported.
fn abandoned(state: State, owner: Option<&Owner>) -> bool {
    state == State::Running && owner.is_none_or(|owner| owner.life() == Life::Dead)
}

impl Store {
    /// A run by its whole id, with everything that was stored of it. A run whose process died before it could
    /// finish comes back as interrupted, with the reason and a doubt.
    pub fn load(&self, run_id: &str) -> Result<Run, StoreError> {
        self.load_of(run_id, Parts::All)
    }

    /// As [`Self::load`], without the trials' series, which are most of a run.
    pub fn load_without_series(&self, run_id: &str) -> Result<Run, StoreError> {
        self.load_of(run_id, Parts::WithoutSeries)
    }

    fn load_of(&self, run_id: &str, parts: Parts) -> Result<Run, StoreError> {
        let mut run = self.load_rows(run_id, parts)?;
        let owner = self
            .db
            .query_row(&format!("SELECT {OWNER_COLUMNS} FROM run WHERE id = ?1"), [run_id], owner_of)
            .map_err(|error| self.sql(error))?;
        if abandoned(run.state, owner.as_ref()) {
            run.state = State::Interrupted;
            run.failure.get_or_insert_with(|| match &owner {
                Some(owner) => format!("its process ({}) ended before the run did", owner.pid),
                None => "it was exported before it had ended".to_owned(),
            });
            if !run.doubts.iter().any(|note| note.doubt == Doubt::Interrupted) {
                run.doubts.push(DoubtNote::from(Doubt::Interrupted));
            }
        }
        Ok(run)
    }

    /// The run as its rows say, whether or not its process lives.
    pub(crate) fn load_as_written(&self, run_id: &str) -> Result<Run, StoreError> {
        self.load_rows(run_id, Parts::All)
    }

    fn load_rows(&self, run_id: &str, parts: Parts) -> Result<Run, StoreError> {
        // One view of all tables, while another process may add trials.
        let view = self.db.unchecked_transaction().map_err(|error| self.sql(error))?;
        let run = view
            .prepare_cached("SELECT * FROM run WHERE id = ?1")
            .and_then(|mut select| select.query_row([run_id], run_of).optional())
            .map_err(|error| self.sql(error))?;
        let mut run = run.ok_or_else(|| StoreError::NoRun { text: run_id.to_owned() })?;
        run.trials = trials(&view, run_id, parts).map_err(|error| self.sql(error))?;
        Ok(run)
    }

    /// The runs that match, newest first.
    pub fn list(&self, filter: &Filter) -> Result<Vec<RunSummary>, StoreError> {
        let since = filter.since.map(Timestamp::as_microsecond);
        let mut found = Vec::new();
        let mut collect = || {
            let mut select = self.db.prepare_cached(SELECT_SUMMARY)?;
            let mut rows = select.query(params![filter.workload, filter.name, since])?;
            while let Some(row) = rows.next()? {
                let run = summary_of(row)?;
                if filter.state.is_none_or(|state| state == run.state) {
                    found.push(run);
                }
                if filter.count_max.is_some_and(|max| found.len() >= max) {
                    break;
                }
            }
            Ok(())
        };
        if filter.count_max != Some(0) {
            collect().map_err(|error| self.sql(error))?;
        }
        Ok(found)
    }
}

/// What to load of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    All,
    WithoutSeries,
}

/// Of a variant's outcome what a list shows.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    findings: Vec<LoadMetric>,
}

fn summary_of(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    let written: State = word_of(row, "state")?;
    let state = if abandoned(written, owner_of(row)?.as_ref()) { State::Interrupted } else { written };
    let limit: Limit = json_of(row, "limit_found")?;
    let variants: Vec<Head> = json_of(row, "variants")?;
    let is_evaluated = !variants.is_empty();
    let first = variants.into_iter().next();
    Ok(RunSummary {
        run: row.get("id")?,
        name: row.get("name")?,
        workload: row.get("workload")?,
        state,
        started_at: time_in(row, "started_at")?,
        ended_at: time_of(row, "ended_at")?,
        capacity: row.get("capacity_value")?,
        interval: json_of::<Capacity>(row, "capacity")?.interval,
        unit: row.get("capacity_unit")?,
        finding: first.and_then(|first| first.findings.into_iter().next()),
        limit: limit.resource,
        certainty: limit.certainty,
        trials: row.get("trials")?,
        is_evaluated,
    })
}

fn run_of(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        schema: row.get("schema")?,
        kagiri: row.get("kagiri")?,
        run: row.get("id")?,
        name: row.get("name")?,
        workload: row.get("workload")?,
        state: word_of(row, "state")?,
        failure: row.get("failure")?,
        started_at: time_in(row, "started_at")?,
        ended_at: time_of(row, "ended_at")?,
        environment: json_of(row, "environment")?,
        plan: json_of(row, "plan")?,
        trials: Vec::new(),
        capacity: json_of(row, "capacity")?,
        limit: json_of(row, "limit_found")?,
        saturation: json_of(row, "saturation")?,
        variants: json_of(row, "variants")?,
        requirements: json_of(row, "requirements")?,
        doubts: json_of(row, "doubts")?,
    })
}

fn trials(view: &Connection, run_id: &str, parts: Parts) -> rusqlite::Result<Vec<Trial>> {
    let mut trials = BTreeMap::new();
    let mut select = view.prepare_cached("SELECT * FROM trial WHERE run = ?1")?;
    let mut rows = select.query([run_id])?;
    while let Some(row) = rows.next()? {
        let trial = trial_of(row)?;
        trials.insert(trial.number, trial);
    }
    let mut select = view.prepare_cached("SELECT trial, name, value FROM metric WHERE run = ?1")?;
    let mut rows = select.query([run_id])?;
    while let Some(row) = rows.next()? {
        trial_for(&mut trials, row)?.metrics.insert(row.get(1)?, row.get(2)?);
    }
    if parts == Parts::WithoutSeries {
        return Ok(trials.into_values().collect());
    }
    let mut select = view.prepare_cached(
        "SELECT trial, name, unit, at_s, value FROM series WHERE run = ?1 ORDER BY trial, position",
    )?;
    let mut rows = select.query([run_id])?;
    while let Some(row) = rows.next()? {
        trial_for(&mut trials, row)?.series.push(series_of(row)?);
    }
    Ok(trials.into_values().collect())
}

/// The trial that a row of `metric` or `series` belongs to.
fn trial_for<'a>(trials: &'a mut BTreeMap<u32, Trial>, row: &Row<'_>) -> rusqlite::Result<&'a mut Trial> {
    let number: u32 = row.get("trial")?;
    trials.get_mut(&number).ok_or_else(|| bad("trial", format!("there is no trial {number}")))
}

fn trial_of(row: &Row<'_>) -> rusqlite::Result<Trial> {
    Ok(Trial {
        number: row.get("number")?,
        variant: row.get("variant")?,
        repetition: row.get("repetition")?,
        phase: word_of(row, "phase")?,
        load: row.get("load")?,
        verdict: word_of(row, "verdict")?,
        reasons: json_of(row, "reasons")?,
        metrics: Metrics::new(),
        doubts: json_of(row, "doubts")?,
        started_at: time_in(row, "started_at")?,
        hold_from_s: row.get("hold_from_s")?,
        hold_to_s: row.get("hold_to_s")?,
        series: Vec::new(),
        account: json_of(row, "account")?,
    })
}

fn series_of(row: &Row<'_>) -> rusqlite::Result<Series> {
    let at_s = series::decode(row.get_ref("at_s")?.as_blob()?);
    let values = series::decode_values(row.get_ref("value")?.as_blob()?);
    Ok(Series {
        name: row.get("name")?,
        unit: row.get("unit")?,
        at_s: at_s.ok_or_else(|| bad("at_s", "its length is not a multiple of 8"))?,
        values: values.ok_or_else(|| bad("value", "its length is not a multiple of 8"))?,
    })
}
