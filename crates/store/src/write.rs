//! Writing runs: as they happen, or whole.

use base::outcome::{Run, Trial};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::Serialize;

use crate::owner::Owner;
use crate::word::{finite, json, word};
use crate::{Store, StoreError, document, id, read, series};

const INSERT_RUN: &str = "INSERT INTO run (id, schema, kagiri, name, workload, state, failure, started_at, \
     started_us, ended_at, capacity_value, capacity_unit, limit_resource, environment, plan, capacity, \
     limit_found, saturation, variants, requirements, doubts) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";
const UPDATE_RUN: &str = "UPDATE run SET (schema, kagiri, name, workload, state, failure, started_at, \
     started_us, ended_at, capacity_value, capacity_unit, limit_resource, environment, plan, capacity, \
     limit_found, saturation, variants, requirements, doubts) = \
     (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21) WHERE id \
     = ?1";
const SET_OWNER: &str =
    "UPDATE run SET (owner_pid, owner_start, owner_boot, owner_pid_space) = (?2, ?3, ?4, ?5) WHERE id = ?1";
const SELECT_OWNER: &str =
    "SELECT state, owner_pid, owner_start, owner_boot, owner_pid_space FROM run WHERE id = ?1";
const INSERT_TRIAL: &str = "INSERT INTO trial (run, number, variant, repetition, phase, load, verdict, \
     started_at, hold_from_s, hold_to_s, reasons, doubts, account) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const UPDATE_TRIAL: &str = "UPDATE trial SET (variant, repetition, phase, load, verdict, started_at, \
     hold_from_s, hold_to_s, reasons, doubts, account) = (?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
     WHERE run = ?1 AND number = ?2";
const INSERT_METRIC: &str = "INSERT INTO metric (run, trial, name, value) VALUES (?1, ?2, ?3, ?4)";
const INSERT_SERIES: &str =
    "INSERT INTO series (run, trial, position, name, unit, at_s, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    pub run: String,
    /// Whether it was new; `false` when the store held the very same run.
    pub new: bool,
}

impl Store {
    /// Store a run that begins (its state is [`base::outcome::State::Running`]), with the trials it already
    /// has. This process becomes its owner: once it has died, the run is shown as interrupted.
    ///
    /// # Errors
    /// An id that is taken ([`StoreError::Exists`]) or impossible, numbers that are not finite, a full disk.
    pub fn begin(&mut self, run: &Run) -> Result<(), StoreError> {
        self.insert(run, Some(&Owner::current()))
    }

    /// Take over a run that broke off: it runs again, and this process becomes its owner. Stored trials that
    /// `run` does not have are removed.
    ///
    /// # Errors
    /// No such run; one that is complete ([`StoreError::Ended`]); one whose process may still measure it
    /// ([`StoreError::Measured`]); a full disk.
    pub fn resume(&mut self, run: &Run) -> Result<(), StoreError> {
        check_order(run)?;
        self.write(|step, at| {
            step.check_broken_off(&run.run, at)?;
            step.put_run(UPDATE_RUN, run).map_err(at)?;
            step.set_owner(&run.run, &Owner::current(), at)?;
            let stored: Vec<u32> = step.trial_numbers(&run.run).map_err(|error| at(error.into()))?;
            let is_kept = |number: &u32| run.trials.iter().any(|trial| trial.number == *number);
            for number in stored.iter().filter(|number| !is_kept(number)) {
                let row = params![run.run, number];
                step.execute("DELETE FROM trial WHERE run = ?1 AND number = ?2", row).map_err(at)?;
            }
            Ok(())
        })
    }

    /// The stored run of an id, if it broke off and can be continued.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub fn load_broken_off(&mut self, run_id: &str) -> Result<Run, StoreError> {
        self.check_broken_off(run_id)?;
        self.load(run_id)
    }

    /// Checks that a run broke off and can be continued.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub fn check_broken_off(&mut self, run_id: &str) -> Result<(), StoreError> {
        self.write(|step, at| step.check_broken_off(run_id, at))
    }

    /// Store what is known of a run beside its trials while it is measured.
    ///
    /// # Errors
    /// No such run, numbers that are not finite, a full disk.
    pub fn note(&mut self, run: &Run) -> Result<(), StoreError> {
        self.write(|step, at| match step.put_run(UPDATE_RUN, run).map_err(at)? {
            0 => Err(StoreError::NoRun { text: run.run.clone() }),
            _ => Ok(()),
        })
    }

    /// Store one trial that ended, for good: it is on disk when this returns.
    ///
    /// # Errors
    /// No such run, a number that is taken, numbers that are not finite, a full disk. The trials before stay.
    pub fn add_trial(&mut self, run_id: &str, trial: &Trial) -> Result<(), StoreError> {
        self.write(|step, at| step.add_trial(run_id, trial, at))
    }

    /// Store how a run ended: everything of it but its trials' series, which are as [`Self::add_trial`] wrote
    /// them (trials that are not stored yet are stored whole). May also be called while the run goes on.
    ///
    /// # Errors
    /// No such run, numbers that are not finite, a full disk: then the run stays as it was, with its trials.
    pub fn finish(&mut self, run: &Run) -> Result<(), StoreError> {
        check_order(run)?;
        self.write(|step, at| {
            if step.put_run(UPDATE_RUN, run).map_err(at)? == 0 {
                return Err(StoreError::NoRun { text: run.run.clone() });
            }
            for trial in &run.trials {
                if step.put_trial(UPDATE_TRIAL, &run.run, trial).map_err(at)? == 0 {
                    step.add_trial(&run.run, trial, at)?;
                } else {
                    step.0
                        .prepare_cached("DELETE FROM metric WHERE run = ?1 AND trial = ?2")
                        .and_then(|mut delete| delete.execute(params![run.run, trial.number]))
                        .map_err(|error| at(error.into()))?;
                    step.put_metrics(&run.run, trial).map_err(at)?;
                }
            }
            Ok(())
        })
    }

    /// Store a whole run at once, as one without an owner.
    pub fn save(&mut self, run: &Run) -> Result<(), StoreError> {
        self.insert(run, None)
    }

    /// Store an exported run. The very same run a second time changes nothing.
    ///
    /// # Errors
    /// As [`crate::read_export`] and [`Self::save`]; [`StoreError::Conflict`] for other content under a known
    /// id.
    pub fn import(&mut self, document: &[u8]) -> Result<Imported, StoreError> {
        let run = document::read_export(document)?;
        match self.save(&run) {
            Ok(()) => Ok(Imported { run: run.run, new: true }),
            Err(StoreError::Exists { run: id }) => {
                if self.load_as_written(&id)? == run || self.load(&id)? == run {
                    return Ok(Imported { run: id, new: false });
                }
                Err(StoreError::Conflict { run: id })
            }
            Err(error) => Err(error),
        }
    }

    /// Remove runs with all their trials: all of them, or none.
    ///
    /// # Errors
    /// No such run; a run whose process may still measure it ([`StoreError::Measured`]).
    pub fn delete(&mut self, run_ids: &[String]) -> Result<(), StoreError> {
        self.write(|step, at| {
            for run_id in run_ids {
                let owner = step
                    .0
                    .query_row(SELECT_OWNER, [run_id], read::measuring)
                    .optional()
                    .map_err(|error| at(error.into()))?;
                match owner {
                    None => return Err(StoreError::NoRun { text: run_id.clone() }),
                    Some(Some(owner)) => {
                        return Err(StoreError::Measured { run: run_id.clone(), pid: owner.pid });
                    }
                    Some(None) => {}
                }
                step.execute("DELETE FROM run WHERE id = ?1", [run_id]).map_err(at)?;
            }
            Ok(())
        })
    }

    fn insert(&mut self, run: &Run, owner: Option<&Owner>) -> Result<(), StoreError> {
        id::check(run)?;
        check_order(run)?;
        self.write(|step, at| {
            step.put_run(INSERT_RUN, run).map_err(|problem| match problem {
                Problem::Taken => StoreError::Exists { run: run.run.clone() },
                other => at(other),
            })?;
            owner.map_or(Ok(()), |owner| step.set_owner(&run.run, owner, at))?;
            run.trials.iter().try_for_each(|trial| step.add_trial(&run.run, trial, at))
        })
    }

    /// All of `work`, or nothing of it.
    fn write(
        &mut self,
        work: impl FnOnce(&Step<'_>, &dyn Fn(Problem) -> StoreError) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let path = self.path().to_owned();
        let at = |problem| match problem {
            Problem::Value(error) => error,
            Problem::Sql(error) => StoreError::from_sql(&path, error),
            // Both are answered where they can arise.
            Problem::Taken | Problem::Orphan => {
                StoreError::Damaged { path: path.clone(), detail: "its rows contradict each other".into() }
            }
        };
        // Immediate: the lock is waited for here, and never found taken in the middle.
        let transaction = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| at(error.into()))?;
        let step = Step(transaction);
        work(&step, &at)?;
        step.0.commit().map_err(|error| at(error.into()))
    }
}

/// Trials are read back in the order of their numbers, so this must be the order that they have.
fn check_order(run: &Run) -> Result<(), StoreError> {
    match run.trials.windows(2).find(|pair| pair[0].number >= pair[1].number) {
        None => Ok(()),
        Some(pair) => Err(StoreError::NotStorable {
            what: format!("run {}", run.run),
            problem: format!("its trial {} stands after trial {}", pair[1].number, pair[0].number),
        }),
    }
}

/// Why a row could not be written.
enum Problem {
    /// There is a row of that key.
    Taken,
    /// There is no run for it.
    Orphan,
    Value(StoreError),
    Sql(rusqlite::Error),
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Value(error)
    }
}

impl From<rusqlite::Error> for Problem {
    fn from(error: rusqlite::Error) -> Self {
        if let rusqlite::Error::SqliteFailure(code, _) = &error
            && code.code == ErrorCode::ConstraintViolation
        {
            match code.extended_code {
                rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY => return Self::Taken,
                rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY => return Self::Orphan,
                _ => {}
            }
        }
        Self::Sql(error)
    }
}

/// Rows written within one transaction.
struct Step<'a>(Transaction<'a>);

impl Step<'_> {
    fn execute(&self, sql: &str, row: impl rusqlite::Params) -> Result<usize, Problem> {
        Ok(Connection::prepare_cached(&self.0, sql)?.execute(row)?)
    }

    fn set_owner(
        &self,
        run: &str,
        owner: &Owner,
        at: &dyn Fn(Problem) -> StoreError,
    ) -> Result<(), StoreError> {
        let row = params![run, owner.pid, owner.start_ticks, owner.boot, owner.pid_space];
        self.execute(SET_OWNER, row).map(drop).map_err(at)
    }

    fn check_broken_off(&self, run: &str, at: &dyn Fn(Problem) -> StoreError) -> Result<(), StoreError> {
        let known = |row: &rusqlite::Row<'_>| Ok((read::measuring(row)?, read::is_complete(row)?));
        let found = self.0.query_row(SELECT_OWNER, [run], known).optional();
        match found.map_err(|error| at(error.into()))? {
            None => Err(StoreError::NoRun { text: run.to_owned() }),
            Some((Some(owner), _)) => Err(StoreError::Measured { run: run.to_owned(), pid: owner.pid }),
            Some((None, true)) => Err(StoreError::Ended { run: run.to_owned() }),
            Some((None, false)) => Ok(()),
        }
    }

    fn trial_numbers(&self, run: &str) -> rusqlite::Result<Vec<u32>> {
        let mut select = self.0.prepare_cached("SELECT number FROM trial WHERE run = ?1")?;
        select.query_map([run], |row| row.get(0))?.collect()
    }

    fn put_run(&self, sql: &str, run: &Run) -> Result<usize, Problem> {
        let what = |part| format!("the {part} of run {}", run.run);
        let row = params![
            run.run,
            run.schema,
            run.kagiri,
            run.name,
            run.workload,
            word(&run.state),
            run.failure,
            run.started_at.to_string(),
            run.started_at.as_microsecond(),
            run.ended_at.map(|at| at.to_string()),
            run.capacity.value,
            run.capacity.unit,
            word(&run.limit.resource),
            json(&what("environment"), &run.environment)?,
            json(&what("plan"), &run.plan)?,
            json(&what("capacity"), &run.capacity)?,
            json(&what("limit"), &run.limit)?,
            json(&what("saturation"), &run.saturation)?,
            json(&what("variants"), &run.variants)?,
            json(&what("requirements"), &run.requirements)?,
            json(&what("doubts"), &run.doubts)?,
        ];
        self.execute(sql, row)
    }

    fn add_trial(
        &self,
        run: &str,
        trial: &Trial,
        at: &dyn Fn(Problem) -> StoreError,
    ) -> Result<(), StoreError> {
        let whole = || {
            self.put_trial(INSERT_TRIAL, run, trial)?;
            self.put_metrics(run, trial)?;
            self.put_series(run, trial)
        };
        whole().map_err(|problem| match problem {
            Problem::Taken => StoreError::TrialExists { run: run.to_owned(), number: trial.number },
            Problem::Orphan => StoreError::NoRun { text: run.to_owned() },
            other => at(other),
        })
    }

    fn put_trial(&self, sql: &str, run: &str, trial: &Trial) -> Result<usize, Problem> {
        let what = |part: &str| format!("the {part} of trial {} of run {run}", trial.number);
        let row = params![
            run,
            trial.number,
            trial.variant,
            trial.repetition,
            word(&trial.phase),
            finite(&what("load"), trial.load)?,
            word(&trial.verdict),
            trial.started_at.to_string(),
            finite(&what("hold's beginning"), trial.hold_from_s)?,
            finite(&what("hold's end"), trial.hold_to_s)?,
            json(&what("reasons"), &trial.reasons)?,
            json(&what("doubts"), &trial.doubts)?,
            json(&what("account"), &trial.account)?,
        ];
        self.execute(sql, row)
    }

    fn put_metrics(&self, run: &str, trial: &Trial) -> Result<(), Problem> {
        for (name, value) in &trial.metrics {
            // As in JSON: what is not finite is unknown.
            let known = value.filter(|v| v.is_finite());
            self.execute(INSERT_METRIC, params![run, trial.number, name, known])?;
        }
        Ok(())
    }

    fn put_series(&self, run: &str, trial: &Trial) -> Result<(), Problem> {
        for (position, series) in trial.series.iter().enumerate() {
            let (at, values) = series::encode(series)?;
            let row = params![run, trial.number, position as i64, series.name, series.unit, at, values];
            self.execute(INSERT_SERIES, row)?;
        }
        Ok(())
    }
}
