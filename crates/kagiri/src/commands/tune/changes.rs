//! Settings that are changed, and restored or kept.

use serde::Serialize;
use sys::journal::{Journal, Outcome, UndoResult};
use sys::shaping::Sysctl;
use tune::kernel::{Kernel, Reading, absence};
use tune::setting::Setting;

use super::assignment::Assignment;
use crate::exit::Failure;

/// What became of a changed setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has its value before again.
    Restored,
    /// It had the value already, and nothing was changed.
    Unchanged,
    /// Another program has changed it since: it has that program's value.
    LeftAlone,
    /// It has the new value, as was asked for.
    Kept,
    NotRestored,
}

/// A setting, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    pub name: &'static str,
    pub scope: &'static str,
    pub before: String,
    pub value: String,
    pub outcome: State,
    /// More about the outcome.
    pub note: Option<String>,
}

impl Ended {
    /// A line about it.
    pub fn text(&self) -> String {
        let Self { name, before, value, note, .. } = self;
        let note = note.as_deref().unwrap_or_default();
        match self.outcome {
            State::Restored => format!("{name}: restored to {before} (was {value})"),
            State::Unchanged => format!("{name}: was {value} already; nothing was changed"),
            State::LeftAlone => {
                format!("{name}: left alone, another program has changed it: {note} (before: {before})")
            }
            State::Kept => format!("{name}: {value} (before: {before})"),
            State::NotRestored => format!("{name}: not restored to {before}: {note}"),
        }
    }
}

struct Changed {
    setting: &'static Setting,
    value: String,
    sysctl: Sysctl,
}

/// Changed settings. Dropping them restores them.
pub struct Changes {
    all: Vec<Changed>,
}

impl Changes {
    /// Sets all, or none.
    /// Errors: the kernel refuses one; those before it are restored.
    pub fn make(journal: &Journal, assignments: &[Assignment]) -> Result<Self, Failure> {
        let mut all = Vec::new();
        for one in assignments {
            let Some(sysctl) = Sysctl::set(journal, one.setting.name, &one.value)? else {
                return Err(Failure::usage(format!("{}: {}", one.setting.name, absence(one.setting))));
            };
            all.push(Changed { setting: one.setting, value: one.value.clone(), sysctl });
        }
        Ok(Self { all })
    }

    /// Lines about what was set.
    pub fn lines(&self) -> Vec<String> {
        let line = |one: &Changed| {
            let (name, before, value) = (one.setting.name, one.sysctl.original(), &one.value);
            let (scope, affects) = (one.setting.scope.name(), one.setting.affects.name());
            format!("{name}: {before} -> {value} ({scope}; affects {affects})")
        };
        self.all.iter().map(line).collect()
    }

    /// Settings that another program has changed since.
    pub fn changed_by_others<'a>(
        &'a self,
        kernel: &'a Kernel,
    ) -> impl Iterator<Item = (&'static str, String)> + 'a {
        self.all.iter().filter_map(|one| match kernel.read(one.setting) {
            Reading::Value(now) if now != one.value => Some((one.setting.name, now)),
            _ => None,
        })
    }

    /// Restores all, the last first.
    pub fn restore(self) -> Vec<Ended> {
        let restore = |one: Changed| {
            let (setting, value, before) = (one.setting, one.value, one.sysctl.original().to_owned());
            let (outcome, note) = state(one.sysctl.restore());
            Ended { name: setting.name, scope: setting.scope.name(), before, value, outcome, note }
        };
        let mut ended: Vec<Ended> = self.all.into_iter().rev().map(restore).collect();
        ended.reverse();
        ended
    }

    /// Leaves all as they are now.
    /// Errors: the journal cannot be written; those that are not kept are restored.
    pub fn keep(self) -> Result<Vec<Ended>, Failure> {
        let keep = |one: Changed| -> Result<Ended, Failure> {
            let (setting, value, before) = (one.setting, one.value, one.sysctl.original().to_owned());
            one.sysctl.keep()?;
            let outcome = if before == value { State::Unchanged } else { State::Kept };
            Ok(Ended { name: setting.name, scope: setting.scope.name(), before, value, outcome, note: None })
        };
        self.all.into_iter().map(keep).collect()
    }
}

fn state(undone: Option<UndoResult>) -> (State, Option<String>) {
    match undone.map(|undone| undone.outcome) {
        None => (State::Unchanged, None),
        Some(Outcome::Done) => (State::Restored, None),
        Some(Outcome::AlreadyGone) => (State::Restored, Some("it had this value already".to_owned())),
        Some(Outcome::NotOurs(found)) => (State::LeftAlone, Some(found)),
        Some(Outcome::Failed(why)) => (State::NotRestored, Some(why)),
    }
}
