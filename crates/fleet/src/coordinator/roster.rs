//! Which agents are there: a set of instances by name, so that hearing twice of one changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::part::{Live, Progress};

use crate::protocol::{self, Tell, is_name};

/// Lines that wait to be shown; beyond, somebody floods.
const LINES_MAX: usize = 1000;

/// A part of which nothing was heard for so long is lost: its agent tells of each twice a second.
const SILENT: Duration = Duration::from_secs(3);

/// What is known of one agent.
#[derive(Debug, Default, Clone)]
pub struct Known {
    /// The instances that call themselves so; more than one is a mistake of their owner.
    pub instances: BTreeSet<String>,
    /// The parts' progress, as last told.
    pub progress: BTreeMap<String, Progress>,
    /// When each part was last told of, or was placed.
    pub heard: BTreeMap<String, Instant>,
    /// The numbers that the parts see, as last told.
    pub live: BTreeMap<String, Live>,
    /// How late its last start was.
    pub start_late_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    agents: BTreeMap<String, Known>,
    /// The instances that work for the run.
    chosen: BTreeMap<String, String>,
    /// Agents that speak other messages than this coordinator, and which.
    foreign: BTreeMap<String, String>,
    /// Rises with each arrival and departure.
    changes: u64,
    lines: Vec<(String, String)>,
}

/// The agents that are there.
#[derive(Debug, Clone, Default)]
pub struct Roster(Arc<(Mutex<State>, Condvar)>);

impl Roster {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An agent's token came or went.
    pub fn token(&self, key: &str, is_there: bool) {
        let is_one = |(name, instance): &(&str, &str)| is_name(name) && is_name(instance);
        let Some((name, instance)) = protocol::agent_of(key).filter(is_one) else { return };
        let mut state = self.state();
        if let Some(version) = protocol::foreign_version(key) {
            match is_there {
                true => drop(state.foreign.insert(name.to_owned(), protocol::plain(version))),
                false => drop(state.foreign.remove(name)),
            }
            return;
        }
        let agents = &mut state.agents;
        if is_there {
            agents.entry(name.to_owned()).or_default().instances.insert(instance.to_owned());
        } else if let Some(known) = agents.get_mut(name) {
            known.instances.remove(instance);
            if known.instances.is_empty() {
                agents.remove(name);
            }
        }
        state.changes += 1;
        self.0.1.notify_all();
    }

    /// An agent told something of a run.
    pub fn told(&self, name: &str, tell: Tell, of_run: &str) {
        let mut state = self.state();
        match tell {
            Tell::Beat { run, parts, live, start_late_ns } if run == of_run => {
                if let Some(known) = state.agents.get_mut(name) {
                    let now = Instant::now();
                    // Of those that were placed alone: an agent could make up names without end.
                    known
                        .heard
                        .iter_mut()
                        .filter(|(part, _)| parts.contains_key(*part))
                        .for_each(|(_, at)| *at = now);
                    known.progress = parts.into_iter().map(plain).collect();
                    known.live = live;
                    known.start_late_ns = start_late_ns;
                }
            }
            Tell::Line { run, text } if run == of_run && state.lines.len() < LINES_MAX => {
                state.lines.push((name.to_owned(), protocol::plain(&text)));
            }
            // Of a run that is over.
            Tell::Beat { .. } | Tell::Line { .. } => {}
        }
    }

    /// The lines that agents have told since the last look, with their names.
    pub fn take_lines(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.state().lines)
    }

    /// The names that are there.
    pub fn names(&self) -> Vec<String> {
        self.state().agents.keys().cloned().collect()
    }

    /// Agents that speak other messages, with the version of these.
    pub fn foreign(&self) -> BTreeMap<String, String> {
        self.state().foreign.clone()
    }

    /// What is known of an agent; nothing of one that is not there.
    pub fn known(&self, name: &str) -> Option<Known> {
        self.state().agents.get(name).cloned()
    }

    /// Whether an agent is there, in the one instance that is given.
    pub fn is_there(&self, name: &str, instance: &str) -> bool {
        self.state().agents.get(name).is_some_and(|known| known.instances.contains(instance))
    }

    /// From now on this instance of that name is the one that is asked, whoever else comes under it.
    pub fn choose(&self, name: &str, instance: &str) {
        self.state().chosen.insert(name.to_owned(), instance.to_owned());
    }

    /// The instance that is to be asked: the chosen one, or else the only one; none while it is not there.
    pub fn asked(&self, name: &str) -> Option<String> {
        let state = self.state();
        let instances = &state.agents.get(name)?.instances;
        match state.chosen.get(name) {
            Some(chosen) => instances.get(chosen).cloned(),
            None => instances.first().filter(|_| instances.len() == 1).cloned(),
        }
    }

    /// Why a placed part counts as lost: its agent is there, and has not told of it for too long.
    pub fn silent(&self, name: &str, part: &str) -> Option<String> {
        self.silent_at(name, part, Instant::now())
    }

    fn silent_at(&self, name: &str, part: &str, now: Instant) -> Option<String> {
        let state = self.state();
        let known = state.agents.get(name)?;
        let is_old = |heard: &Instant| now.saturating_duration_since(*heard) > SILENT;
        known.heard.get(part).filter(|heard| is_old(heard))?;
        Some(match known.heard.values().all(is_old) {
            true => format!("its agent has told nothing for {} s", SILENT.as_secs()),
            false => format!("its agent no longer tells of part '{part}'"),
        })
    }

    /// How a part is, as was last told.
    pub fn progress(&self, name: &str, part: &str) -> Option<Progress> {
        self.state().agents.get(name)?.progress.get(part).cloned()
    }

    /// The numbers that a part sees, as was last told.
    pub fn live(&self, name: &str, part: &str) -> Live {
        let state = self.state();
        let known = state.agents.get(name).and_then(|known| known.live.get(part));
        known.cloned().unwrap_or_default()
    }

    /// How late an agent's last start was, as was last told.
    pub fn start_late_ns(&self, name: &str) -> Option<u64> {
        self.state().agents.get(name)?.start_late_ns
    }

    /// Forget how parts were: they are about to start anew, and to be told of from now on.
    pub fn forget_progress(&self, name: &str, parts: &[&str]) {
        if let Some(known) = self.state().agents.get_mut(name) {
            known.progress.retain(|part, _| !parts.contains(&part.as_str()));
            known.heard.extend(parts.iter().map(|part| ((*part).to_owned(), Instant::now())));
            known.start_late_ns = None;
        }
    }

    /// Wait for an arrival or departure after the given count of them; returns the new count.
    pub fn wait_change(&self, since: u64, within: Duration) -> u64 {
        let state = self.state();
        let waited = self.0.1.wait_timeout_while(state, within, |state| state.changes == since);
        waited.unwrap_or_else(PoisonError::into_inner).0.changes
    }
}

/// How a part is, with what it says made fit to be shown.
fn plain((part, progress): (String, Progress)) -> (String, Progress) {
    let progress = match progress {
        Progress::Failed(error) => Progress::Failed(protocol::plain_error(error)),
        progress => progress,
    };
    (part, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_there_as_long_as_one_instance_is() {
        let roster = Roster::default();
        for instance in ["a", "a", "b"] {
            roster.token(&protocol::agent_key("nas", instance), true);
        }
        roster.token(&protocol::agent_key("nas", "a"), false);
        assert!(roster.is_there("nas", "b") && !roster.is_there("nas", "a"));
        roster.token(&protocol::agent_key("nas", "b"), false);
        assert!(roster.names().is_empty());
    }

    #[test]
    fn who_calls_itself_what_no_host_can_be_called_is_not_there() {
        let roster = Roster::default();
        for name in ["here", "a\u{1b}[2Jb", "a b", &"a".repeat(60_000)] {
            roster.token(&protocol::agent_key(name, "7f"), true);
            roster.token(&format!("kagiri/9/agent/{name}/7f"), true);
        }
        roster.token("kagiri/9\u{1b}[2J/agent/nas/7f", true);
        assert!(roster.names().is_empty());
        assert_eq!(roster.foreign(), BTreeMap::from([("nas".to_owned(), "9 [2J".to_owned())]));
    }

    #[test]
    fn what_is_told_of_another_run_is_not_heard() {
        let roster = Roster::default();
        roster.token(&protocol::agent_key("nas", "a"), true);
        let beat = |run: &str| Tell::Beat {
            run: run.into(),
            parts: BTreeMap::from([("server".to_owned(), Progress::Finished)]),
            live: BTreeMap::new(),
            start_late_ns: None,
        };
        roster.told("nas", beat("old"), "new");
        assert_eq!(roster.progress("nas", "server"), None);
        roster.told("nas", beat("new"), "new");
        assert_eq!(roster.progress("nas", "server"), Some(Progress::Finished));
    }

    #[test]
    fn a_second_agent_of_a_name_is_not_asked() {
        let roster = Roster::default();
        let token = |instance: &str, is_there| roster.token(&protocol::agent_key("nas", instance), is_there);
        token("b", true);
        assert_eq!(roster.asked("nas").as_deref(), Some("b"), "the only one");
        roster.choose("nas", "b");
        token("a", true);
        assert_eq!(roster.asked("nas").as_deref(), Some("b"));
        token("b", false);
        assert_eq!(roster.asked("nas"), None, "another one in its place");
    }

    #[test]
    fn a_part_that_nobody_tells_of_any_more_is_lost() {
        let roster = Roster::default();
        roster.token(&protocol::agent_key("nas", "a"), true);
        let begun = Instant::now();
        assert_eq!(roster.silent_at("nas", "server", begun + SILENT * 2), None, "it was never placed");
        roster.forget_progress("nas", &["server", "viewers"]);
        assert_eq!(roster.silent("nas", "server"), None, "it was just placed");
        let later = Instant::now() + SILENT + Duration::from_millis(1);
        let why = roster.silent_at("nas", "server", later).unwrap();
        assert_eq!(why, "its agent has told nothing for 3 s");
        // Its agent goes on, with one part less.
        roster.state().agents.get_mut("nas").unwrap().heard.insert("viewers".into(), later);
        let why = roster.silent_at("nas", "server", later).unwrap();
        assert!(why.contains("no longer tells of part 'server'"), "{why}");
        assert_eq!(roster.silent_at("nas", "viewers", later), None);
    }
}
