//! The agents that joined at the endpoint of `--fleet`, as they were last listed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A list that is not older is not made again.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Agents {
    known: Mutex<Known>,
    /// Held while they are listed.
    pub listing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    listed: Option<Instant>,
    agents: Vec<Agent>,
    problem: Option<String>,
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.listed.is_some_and(|at| at.elapsed() < FRESH)
    }
}

#[derive(Clone)]
pub struct Agent {
    /// As `kagiri fleet list --json` has it.
    pub description: Value,
    /// Whether the last list had it.
    pub is_present: bool,
}

impl Agents {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn all(&self) -> Vec<Agent> {
        self.lock().agents.clone()
    }

    /// Agents that the last list had; `None`: there is no fresh one.
    pub fn count(&self) -> Option<usize> {
        let known = self.lock();
        let is_known = known.is_fresh() && known.problem.is_none();
        is_known.then(|| known.agents.iter().filter(|agent| agent.is_present).count())
    }

    /// Why the last list could not be made.
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    pub fn are_fresh(&self) -> bool {
        self.lock().is_fresh()
    }

    /// Takes over a list, or why there is none. An agent that was known before stays, as one that is lost.
    pub fn update(&self, listed: Result<Vec<Value>, String>) {
        let mut known = self.lock();
        known.listed = Some(Instant::now());
        match listed {
            Ok(present) => {
                known.problem = None;
                let mut all: Vec<Agent> =
                    present.into_iter().map(|description| Agent { description, is_present: true }).collect();
                for before in std::mem::take(&mut known.agents) {
                    if !all.iter().any(|agent| agent.description["name"] == before.description["name"]) {
                        all.push(Agent { is_present: false, ..before });
                    }
                }
                known.agents = all;
            }
            Err(problem) => known.problem = Some(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agent_that_left_is_lost_until_it_comes_back() {
        let agents = Agents::default();
        assert_eq!(agents.count(), None);
        let names = |all: &[&str]| Ok(all.iter().map(|name| json!({ "name": name })).collect());
        agents.update(names(&["nas", "pc-1"]));
        assert_eq!((agents.count(), agents.are_fresh()), (Some(2), true));
        agents.update(names(&["pc-1"]));
        assert_eq!((agents.count(), agents.all().len()), (Some(1), 2));
        agents.update(Err("the port is in use".to_owned()));
        assert_eq!((agents.count(), agents.problem().is_some()), (None, true));
        agents.update(names(&["nas", "pc-1"]));
        assert_eq!((agents.count(), agents.all().len(), agents.problem()), (Some(2), 2, None));
    }
}
