//! Which agents have joined: a set of instances by name, so that a repeated token changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::part::{Live, Progress};

use crate::protocol::{self, Notification, is_name};

/// Later lines are dropped until the next read: an agent is flooding.
const LINES_MAX: usize = 1000;

/// A part without heartbeat for so long is lost; agents send two heartbeats a second.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Default, Clone)]
pub struct MemberState {
    /// More than one instance of a name is a mistake of their owner.
    pub instances: BTreeSet<String>,
    pub progress: BTreeMap<String, Progress>,
    /// Time of the last heartbeat, or of placement, by part.
    pub last_heartbeat: BTreeMap<String, Instant>,
    pub live: BTreeMap<String, Live>,
    pub start_late_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    agents: BTreeMap<String, MemberState>,
    pinned: BTreeMap<String, String>,
    /// Since when a name has more than one instance.
    duplicates: BTreeMap<String, Instant>,
    /// Protocol version of the agents that use another one.
    other_versions: BTreeMap<String, String>,
    changes: u64,
    lines: Vec<LogLine>,
}

/// An agent's message for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub host: String,
    pub text: String,
    /// Whether the user needs it in order to go on, even if he asked for quiet.
    pub is_needed: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Membership(Arc<(Mutex<State>, Condvar)>);

impl Membership {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn update_presence(&self, key: &str, is_present: bool) {
        let is_one = |(name, instance): &(&str, &str)| is_name(name) && is_name(instance);
        let Some((name, instance)) = protocol::parse_agent_key(key).filter(is_one) else { return };
        let mut state = self.state();
        if let Some(version) = protocol::other_version(key) {
            match is_present {
                true => drop(state.other_versions.insert(name.to_owned(), protocol::sanitize(version))),
                false => drop(state.other_versions.remove(name)),
            }
            return;
        }
        let State { agents, duplicates, .. } = &mut *state;
        if is_present {
            agents.entry(name.to_owned()).or_default().instances.insert(instance.to_owned());
        } else if let Some(known) = agents.get_mut(name) {
            known.instances.remove(instance);
            if known.instances.is_empty() {
                agents.remove(name);
            }
        }
        match agents.get(name).is_some_and(|known| known.instances.len() > 1) {
            true => drop(duplicates.entry(name.to_owned()).or_insert_with(Instant::now)),
            false => drop(duplicates.remove(name)),
        }
        state.changes += 1;
        self.0.1.notify_all();
    }

    pub fn record_notification(&self, name: &str, notification: Notification, of_run: &str) {
        let mut state = self.state();
        match notification {
            Notification::Heartbeat { run, parts, live, start_late_ns } if run == of_run => {
                if let Some(known) = state.agents.get_mut(name) {
                    let now = Instant::now();
                    // Only parts that were placed: an agent could invent names without end.
                    known
                        .last_heartbeat
                        .iter_mut()
                        .filter(|(part, _)| parts.contains_key(*part))
                        .for_each(|(_, at)| *at = now);
                    known.progress = parts.into_iter().map(sanitized).collect();
                    known.live = live;
                    known.start_late_ns = start_late_ns;
                }
            }
            Notification::Log { run, text, needed } if run == of_run && state.lines.len() < LINES_MAX => {
                let (host, text) = (name.to_owned(), protocol::sanitize(&text));
                state.lines.push(LogLine { host, text, is_needed: needed });
            }
            // Of another run.
            Notification::Heartbeat { .. } | Notification::Log { .. } => {}
        }
    }

    pub fn take_lines(&self) -> Vec<LogLine> {
        std::mem::take(&mut self.state().lines)
    }

    pub fn names(&self) -> Vec<String> {
        self.state().agents.keys().cloned().collect()
    }

    pub fn other_versions(&self) -> BTreeMap<String, String> {
        self.state().other_versions.clone()
    }

    pub fn known(&self, name: &str) -> Option<MemberState> {
        self.state().agents.get(name).cloned()
    }

    pub fn is_present(&self, name: &str, instance: &str) -> bool {
        self.state().agents.get(name).is_some_and(|known| known.instances.contains(instance))
    }

    /// For how long a name has had more than one agent. A host that was cut off and joins again has two until
    /// its old link counts as dead.
    pub fn duplicate_for(&self, name: &str) -> Option<Duration> {
        self.state().duplicates.get(name).map(Instant::elapsed)
    }

    pub fn pin_instance(&self, name: &str, instance: &str) {
        self.state().pinned.insert(name.to_owned(), instance.to_owned());
    }

    /// The pinned instance, else the only one; `None` while it is absent.
    pub fn active_instance(&self, name: &str) -> Option<String> {
        let state = self.state();
        let instances = &state.agents.get(name)?.instances;
        match state.pinned.get(name) {
            Some(pinned) => instances.get(pinned).cloned(),
            None => instances.first().filter(|_| instances.len() == 1).cloned(),
        }
    }

    /// Why a placed part counts as lost: its agent is present but has sent no heartbeat of it for too long.
    pub fn heartbeat_overdue(&self, name: &str, part: &str) -> Option<String> {
        self.heartbeat_overdue_at(name, part, Instant::now())
    }

    fn heartbeat_overdue_at(&self, name: &str, part: &str, now: Instant) -> Option<String> {
        let state = self.state();
        let known = state.agents.get(name)?;
        let is_old =
            |last_heartbeat: &Instant| now.saturating_duration_since(*last_heartbeat) > HEARTBEAT_TIMEOUT;
        known.last_heartbeat.get(part).filter(|last_heartbeat| is_old(last_heartbeat))?;
        Some(match known.last_heartbeat.values().all(is_old) {
            true => format!("its agent has sent no heartbeat for {} s", HEARTBEAT_TIMEOUT.as_secs()),
            false => format!("its agent's heartbeats no longer contain part '{part}'"),
        })
    }

    pub fn progress(&self, name: &str, part: &str) -> Option<Progress> {
        self.state().agents.get(name)?.progress.get(part).cloned()
    }

    pub fn live(&self, name: &str, part: &str) -> Live {
        let state = self.state();
        let known = state.agents.get(name).and_then(|known| known.live.get(part));
        known.cloned().unwrap_or_default()
    }

    pub fn start_late_ns(&self, name: &str) -> Option<u64> {
        self.state().agents.get(name)?.start_late_ns
    }

    pub fn reset_progress(&self, name: &str, parts: &[&str]) {
        if let Some(known) = self.state().agents.get_mut(name) {
            known.progress.retain(|part, _| !parts.contains(&part.as_str()));
            known.last_heartbeat.extend(parts.iter().map(|part| ((*part).to_owned(), Instant::now())));
            known.start_late_ns = None;
        }
    }

    /// Waits for an arrival or departure after the count `since`. Returns the new count.
    pub fn wait_change(&self, since: u64, within: Duration) -> u64 {
        let state = self.state();
        let waited = self.0.1.wait_timeout_while(state, within, |state| state.changes == since);
        waited.unwrap_or_else(PoisonError::into_inner).0.changes
    }
}

fn sanitized((part, progress): (String, Progress)) -> (String, Progress) {
    let progress = match progress {
        Progress::Failed(error) => Progress::Failed(protocol::sanitize_error(error)),
        progress => progress,
    };
    (part, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_is_present_while_one_instance_is() {
        let membership = Membership::default();
        for instance in ["a", "a", "b"] {
            membership.update_presence(&protocol::agent_key("nas", instance), true);
        }
        membership.update_presence(&protocol::agent_key("nas", "a"), false);
        assert!(membership.is_present("nas", "b") && !membership.is_present("nas", "a"));
        membership.update_presence(&protocol::agent_key("nas", "b"), false);
        assert!(membership.names().is_empty());
    }

    #[test]
    fn invalid_host_names_are_ignored() {
        let membership = Membership::default();
        for name in ["here", "a\u{1b}[2Jb", "a b", &"a".repeat(60_000)] {
            membership.update_presence(&protocol::agent_key(name, "7f"), true);
            membership.update_presence(&format!("kagiri/9/agent/{name}/7f"), true);
        }
        membership.update_presence("kagiri/9\u{1b}[2J/agent/nas/7f", true);
        assert!(membership.names().is_empty());
        assert_eq!(membership.other_versions(), BTreeMap::from([("nas".to_owned(), "9 [2J".to_owned())]));
    }

    #[test]
    fn notification_of_another_run_is_ignored() {
        let membership = Membership::default();
        membership.update_presence(&protocol::agent_key("nas", "a"), true);
        let beat = |run: &str| Notification::Heartbeat {
            run: run.into(),
            parts: BTreeMap::from([("server".to_owned(), Progress::Finished)]),
            live: BTreeMap::new(),
            start_late_ns: None,
        };
        membership.record_notification("nas", beat("old"), "new");
        assert_eq!(membership.progress("nas", "server"), None);
        membership.record_notification("nas", beat("new"), "new");
        assert_eq!(membership.progress("nas", "server"), Some(Progress::Finished));
    }

    #[test]
    fn line_keeps_whether_the_user_needs_it() {
        let membership = Membership::default();
        for (run, needed) in [("new", false), ("old", true), ("new", true)] {
            let log = Notification::Log { run: run.into(), text: format!("{run} {needed}"), needed };
            membership.record_notification("nas", log, "new");
        }
        let line = |text: &str, is_needed| LogLine { host: "nas".into(), text: text.into(), is_needed };
        assert_eq!(membership.take_lines(), [line("new false", false), line("new true", true)]);
        assert!(membership.take_lines().is_empty());
    }

    #[test]
    fn second_agent_of_a_name_gets_no_requests() {
        let membership = Membership::default();
        let token = |instance: &str, is_present| {
            membership.update_presence(&protocol::agent_key("nas", instance), is_present)
        };
        token("b", true);
        assert_eq!(membership.active_instance("nas").as_deref(), Some("b"), "the only one");
        membership.pin_instance("nas", "b");
        token("a", true);
        assert_eq!(membership.active_instance("nas").as_deref(), Some("b"));
        token("b", false);
        assert_eq!(membership.active_instance("nas"), None, "replaced by another instance");
    }

    #[test]
    fn part_without_heartbeats_is_lost() {
        let membership = Membership::default();
        membership.update_presence(&protocol::agent_key("nas", "a"), true);
        let begun = Instant::now();
        assert_eq!(
            membership.heartbeat_overdue_at("nas", "server", begun + HEARTBEAT_TIMEOUT * 2),
            None,
            "it was never placed"
        );
        membership.reset_progress("nas", &["server", "viewers"]);
        assert_eq!(membership.heartbeat_overdue("nas", "server"), None, "it was just placed");
        let later = Instant::now() + HEARTBEAT_TIMEOUT + Duration::from_millis(1);
        let why = membership.heartbeat_overdue_at("nas", "server", later).unwrap();
        assert_eq!(why, "its agent has sent no heartbeat for 3 s");
        // The agent's heartbeats continue without one of its parts.
        membership.state().agents.get_mut("nas").unwrap().last_heartbeat.insert("viewers".into(), later);
        let why = membership.heartbeat_overdue_at("nas", "server", later).unwrap();
        assert!(why.contains("no longer contain part 'server'"), "{why}");
        assert_eq!(membership.heartbeat_overdue_at("nas", "viewers", later), None);
    }
}
