//! What urgent classes send and need.

use super::observer::ClassSeen;
use super::settings::{ClassSettings, Settings, WATCH_S};
use crate::need::KAPPA;
use crate::rank::{self, Class, Urgent};

/// Ticks over which the rate of a class is a mean.
const TICKS: usize = 4;
/// A class that sent within this time is expected to send again: at an estimated capacity, bulk keeps what
/// one message needs free.
const EXPECTED_NS: u64 = 10_000_000_000;
/// Time constant of the long mean of a rate, in seconds.
const LONG_S: f64 = 2.0;
/// The messages of a class are sparse if it needs this multiple of what it sends in the long mean, and sends
/// in less than this share of the ticks.
const SPARSE: f64 = 2.0;
const SPARSE_TICKS: f64 = 0.75;

/// What a bulk socket has at least beside a message of a class that lends: a segment every 46 ms.
const LENT_SOCKET_MIN: f64 = 250e3;

/// One class of the policy over time. Rates in bit/s.
#[derive(Debug, Clone, Copy)]
struct Activity {
    /// Of the last ticks, with their durations in seconds.
    rates: [(f64, f64); TICKS],
    next: usize,
    long: f64,
    /// Share of the ticks in which it sends, in the long mean.
    busy: f64,
    last_ns: Option<u64>,
}

impl Default for Activity {
    fn default() -> Self {
        // Not sparse before it has shown so.
        Self { rates: [(0.0, 0.0); TICKS], next: 0, long: 0.0, busy: 1.0, last_ns: None }
    }
}

impl Activity {
    fn observe(&mut self, now_ns: u64, dt_s: f64, seen: &ClassSeen) {
        self.rates[self.next] = (seen.delivered_bit_per_s, dt_s);
        self.next = (self.next + 1) % TICKS;
        let is_busy = seen.active > 0 || seen.delivered_bit_per_s > 0.0;
        let weight = (dt_s / LONG_S).min(1.0);
        self.long += (seen.delivered_bit_per_s - self.long) * weight;
        self.busy += (f64::from(u8::from(is_busy)) - self.busy) * weight;
        if is_busy {
            self.last_ns = Some(now_ns);
        }
    }

    fn mean(&self) -> f64 {
        let (bits, s) =
            self.rates.iter().fold((0.0, 0.0), |(bits, s), (rate, of)| (bits + rate * of, s + of));
        if s > 0.0 { bits / s } else { 0.0 }
    }

    fn is_expected(&self, now_ns: u64) -> bool {
        self.last_ns.is_some_and(|last| now_ns.saturating_sub(last) < EXPECTED_NS)
    }
}

/// The classes of the policy at one tick, and what is allocated to urgent ones. Rates in bit/s.
#[derive(Debug)]
pub struct Ranking {
    pub classes: Vec<Class>,
    /// The most that each may send.
    pub limits: Vec<Option<f64>>,
    /// What bulk leaves to all of them.
    pub urgent: f64,
    /// What messages on their way need beyond it: bulk leaves this, too, until they have arrived.
    pub for_messages: f64,
    /// The same while what sparse messages need is kept free.
    pub urgent_held: f64,
    /// What sparse messages need beyond what they send.
    pub sparse: f64,
}

impl Ranking {
    /// Whether a message is on its way for which bulk does not make room at once.
    pub fn has_message_without_room(&self) -> bool {
        let is = |class: &Class| matches!(class, Class::Urgent(of) if of.is_active && !of.lends);
        self.classes.iter().any(is)
    }
}

/// Share of a class's need that must be free before messages begin that may take `transfer_s`, if others
/// follow after `follow_s`.
fn early_share(transfer_s: f64, follow_s: f64) -> f64 {
    (1.0 - (1.0 - KAPPA) * transfer_s / follow_s).clamp(0.0, 1.0)
}

/// What bulk leaves to a class for good: a watched one is left what it needs once it sends.
fn lasting(class: &Class, kept: f64) -> f64 {
    match class {
        Class::Urgent(urgent) if urgent.lends => {
            urgent.sent.max(urgent.early_share * urgent.full_need).min(kept)
        }
        _ => kept,
    }
}

#[derive(Debug, Clone, Default)]
pub struct Activities {
    classes: Vec<Activity>,
    watched: Vec<bool>,
}

impl Activities {
    /// Sets which classes of the policy are watched between ticks.
    pub fn set_watched(&mut self, classes: Vec<bool>) {
        self.watched = classes;
    }

    /// Takes a tick of the policy's classes.
    pub fn observe(&mut self, now_ns: u64, dt_s: f64, seen: &[ClassSeen]) {
        self.classes.resize(seen.len(), Activity::default());
        for (class, seen) in self.classes.iter_mut().zip(seen) {
            class.observe(now_ns, dt_s, seen);
        }
    }

    /// Ranks the classes of the policy as they are now, with what may be allocated in bit/s; `None`: not
    /// known. Floors and ceilings of urgent classes are divided by `hosts`.
    pub fn ranking(
        &self,
        now_ns: u64,
        allocatable: Option<f64>,
        settings: &Settings,
        seen: &[ClassSeen],
        datagrams: &[f64],
        hosts: f64,
    ) -> Ranking {
        let mut classes = self.ranked(now_ns, settings, seen, datagrams, hosts);
        self.lend(allocatable, settings, seen, &mut classes);
        let is_given = settings.given_bit_per_s.is_some();
        let held = rank::held(allocatable.unwrap_or(f64::INFINITY), &classes, is_given);
        let limits = rank::limits(allocatable, &classes, &held);
        // An estimate is of what is sent: what may be sent does not fill the link yet.
        let at_once = if is_given { &limits[..] } else { &[] };
        let kept = rank::kept_from_bulk(&classes, &held, at_once);
        // What is learned of the link must not depend on which messages are on their way.
        let lasting: Vec<f64> = match is_given {
            true => kept.clone(),
            false => classes.iter().zip(&kept).map(|(class, kept)| lasting(class, *kept)).collect(),
        };
        let (sparse, urgent_held) = self.sparse(&classes, &rank::wanted(&classes), &lasting);
        let for_messages = kept.iter().zip(&lasting).map(|(kept, lasting)| kept - lasting).sum();
        Ranking { urgent: lasting.iter().sum(), for_messages, urgent_held, sparse, classes, limits }
    }

    /// The classes of the policy as they are ranked. `datagrams`: what their UDP sockets send, in bit/s.
    fn ranked(
        &self,
        now_ns: u64,
        settings: &Settings,
        seen: &[ClassSeen],
        datagrams: &[f64],
        hosts: f64,
    ) -> Vec<Class> {
        let mut classes = Vec::with_capacity(seen.len());
        for (at, (class, seen)) in settings.classes.iter().zip(seen).enumerate() {
            let of_datagrams = datagrams.get(at).copied().unwrap_or(0.0);
            classes.push(match *class {
                ClassSettings::Urgent { target_s, rank, .. } => {
                    let follow_s = settings.period_s + settings.delay_s + seen.base_s;
                    let own = class.message_need(seen.base_s);
                    let ceiling = rank.ceiling / hosts;
                    Class::Urgent(Urgent {
                        priority: rank.priority,
                        weight: rank.weight,
                        floor: rank.floor / hosts,
                        ceiling: ceiling - of_datagrams.min(ceiling),
                        clients: rank.clients,
                        message_need: own,
                        full_need: rank.clients * own,
                        active_need: seen.active_need,
                        is_active: seen.active > 0,
                        sent: self.classes.get(at).map_or(0.0, Activity::mean),
                        early_share: early_share(target_s - seen.base_s, follow_s),
                        is_expected: settings.given_bit_per_s.is_some()
                            || self.classes.get(at).is_some_and(|class| class.is_expected(now_ns)),
                        lends: false,
                    })
                }
                ClassSettings::Bulk { weight, floor, .. } => {
                    Class::Bulk { weight, floor, is_active: seen.active > 0 || of_datagrams > 0.0 }
                }
                ClassSettings::Program { .. } => break,
            });
        }
        // Programs that state their own need belong to a class.
        let programs = settings.classes.iter().filter_map(|class| match class {
            ClassSettings::Program { class: of, .. } => Some((*of, class)),
            _ => None,
        });
        let mut stated = vec![0.0; classes.len()];
        for (of, program) in programs {
            let Some(Class::Urgent(urgent)) = classes.get_mut(of) else { continue };
            let need = program.message_need(seen[of].base_s);
            stated[of] += need;
            urgent.message_need = urgent.message_need.max(need);
            urgent.full_need = urgent.full_need.max(stated[of]);
        }
        classes
    }

    /// Watched classes lend what they need, if it is much more than what they send, and if bulk sockets are
    /// not slowed so far beside a message that the pacing of their next segment outlasts it.
    fn lend(&self, allocatable: Option<f64>, settings: &Settings, seen: &[ClassSeen], classes: &mut [Class]) {
        let is_bulk = |class: &Class| matches!(class, Class::Bulk { .. });
        let of_bulk = classes.iter().zip(seen).filter(|(class, _)| is_bulk(class));
        let bulk_sockets: usize = of_bulk.map(|(_, seen)| seen.active).sum();
        let least = LENT_SOCKET_MIN * bulk_sockets as f64;
        let is_enough = |need: f64| allocatable.is_none_or(|allocatable| allocatable - need >= least);
        let of_classes = self.watched.iter().zip(&self.classes).zip(seen).enumerate();
        for (at, ((is_watched, activity), seen)) in of_classes {
            let (Some(Class::Urgent(urgent)), Some((target_s, _))) =
                (classes.get_mut(at), settings.classes[at].message())
            else {
                continue;
            };
            let is_known = settings.given_bit_per_s.is_some();
            let is_sparse = is_known || activity.busy < SPARSE_TICKS;
            let is_lent = *is_watched && is_sparse && is_enough(urgent.message_need);
            if is_lent && urgent.need() + urgent.next_message() > SPARSE * activity.long {
                urgent.lends = true;
                // Less is sent in front of what the message has left to send.
                urgent.early_share = early_share(target_s - seen.base_s, WATCH_S);
            }
        }
    }

    /// Need in bit/s that is kept free of bulk for classes of sparse messages, and what all urgent classes
    /// are to have then: `wanted` for these, `kept` for others.
    fn sparse(&self, classes: &[Class], wanted: &[f64], kept: &[f64]) -> (f64, f64) {
        let (mut sparse, mut all) = (0.0, 0.0);
        for (((class, of), wanted), kept) in self.classes.iter().zip(classes).zip(wanted).zip(kept) {
            if let Class::Urgent(urgent) = of
                && urgent.lends
            {
                // Messages are not to meet the queue of a search.
                sparse += (urgent.message_need - class.long).max(0.0);
                all += kept;
                continue;
            }
            let is_sparse = class.busy < SPARSE_TICKS && *wanted > SPARSE * class.long;
            sparse += if is_sparse { wanted - class.long } else { 0.0 };
            all += if is_sparse { *wanted } else { *kept };
        }
        (sparse, all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Rank;
    use super::*;

    const TICK_NS: u64 = 50_000_000;

    fn settings(target_s: f64) -> Settings {
        let rank = Rank { clients: 2.0, ..Rank::default() };
        Settings {
            period_s: 0.05,
            delay_s: 0.0,
            start_bit_per_s: 5e6,
            given_bit_per_s: None,
            classes: vec![ClassSettings::Urgent { target_s, message_bytes: 50e3, rank }],
        }
    }

    #[test]
    fn class_is_expected_for_ten_seconds_and_sparse_if_it_needs_more_than_it_sends() {
        let mut activities = Activities::default();
        let sending = ClassSeen { sockets: 1, active: 1, delivered_bit_per_s: 8e6, ..ClassSeen::default() };
        let of = |activities: &Activities, now_ns| {
            let Class::Urgent(urgent) = activities.ranked(now_ns, &settings(0.08), &[sending], &[], 1.0)[0]
            else {
                panic!("an urgent class")
            };
            urgent
        };
        assert!(!of(&activities, 0).is_expected);
        activities.observe(0, 0.05, &[sending]);
        (1..4).for_each(|tick| activities.observe(tick * TICK_NS, 0.05, &[ClassSeen::default()]));
        let urgent = of(&activities, 4 * TICK_NS);
        assert!(urgent.is_expected && (urgent.sent - 2e6).abs() < 1.0);
        assert!(!of(&activities, EXPECTED_NS + TICK_NS).is_expected);
        // 0.15 x 80 ms of the 50 ms until the next tick.
        assert!((urgent.early_share - 0.76).abs() < 1e-9 && urgent.full_need == 2.0 * urgent.message_need);
        let class = [Class::Urgent(urgent)];
        let sparse = |activities: &Activities| activities.sparse(&class, &[6e6], &[9e6]);
        assert_eq!(sparse(&activities).1, 9e6, "it may be the first of many");
        (4..40).for_each(|tick| activities.observe(tick * TICK_NS, 0.05, &[ClassSeen::default()]));
        assert_eq!(sparse(&activities).1, 6e6);
        (40..400).for_each(|tick| activities.observe(tick * TICK_NS, 0.05, &[sending]));
        assert_eq!(sparse(&activities), (0.0, 9e6));
    }

    #[test]
    fn stated_need_of_programs_counts_for_their_class() {
        let mut settings = settings(0.5);
        let program = |message_bytes| ClassSettings::Program { class: 0, target_s: 0.5, message_bytes };
        settings.classes.extend([program(100e3), program(300e3)]);
        let seen = [ClassSeen::default(); 3];
        let classes = Activities::default().ranked(0, &settings, &seen, &[], 1.0);
        assert_eq!(classes.len(), 1);
        let Class::Urgent(urgent) = classes[0] else { panic!("an urgent class") };
        let of = |bytes: f64| 8.0 * bytes / (KAPPA * 0.5);
        assert!((urgent.message_need - of(300e3)).abs() < 1.0 && (urgent.full_need - of(400e3)).abs() < 1.0);
        assert_eq!(urgent.early_share, 0.0);
    }
}
