//! From the rates of classes to rates of sockets.

use super::observer::{ClassSeen, Observer, SocketSample};
use super::settings::{CHANGE_MIN, ClassSettings, Settings, SocketRate};
use crate::SOCKET_RATE_MIN;
use crate::allocate::{Share, weighted_max_min};
use crate::rank::Class;
use crate::split::{Parts, Sending};

/// A smaller change of what a socket would have if it sent is not worth a system call: programs may hold many
/// connections that rest. Once it sends, it has its exact rate a tick later.
const IDLE_CHANGE_MIN: f64 = 0.25;

pub struct Rates {
    /// Sockets whose rate changes.
    pub changed: Vec<SocketRate>,
    /// Rate of each socket that begins to send, by class, in bit/s; `None`: sockets of the class have none.
    pub of_class: Vec<Option<f64>>,
}

/// What the rates of sockets come from. Rates in bit/s, by class of the policy.
pub struct Allocation<'a> {
    /// Of all bulk.
    pub bulk: f64,
    /// Parts of it that a coordinator of several hosts has decided.
    pub leased: Option<&'a [f64]>,
    /// The most that urgent classes may send; `None`: no limit, or bulk.
    pub limits: &'a [Option<f64>],
    pub classes: &'a [Class],
    pub seen: &'a [ClassSeen],
    /// What UDP sockets send: it counts against ceilings.
    pub datagrams: &'a [f64],
}

/// Rates of sockets that differ from what they were given before.
///
/// A bulk class's part of all bulk is by weight; its active sockets share it evenly, and its idle sockets get
/// the same rate, so that they do not start unlimited. An urgent class's rate is split by what its messages
/// need.
pub fn rates(
    allocation: &Allocation<'_>,
    settings: &Settings,
    observer: &mut Observer,
    samples: &[SocketSample],
) -> Rates {
    let mut of_class = bulk_rates(allocation, settings, samples);
    let parts = urgent_parts(allocation);
    for (rate, parts) in of_class.iter_mut().zip(&parts) {
        *rate = rate.or(parts.map(|(parts, _)| parts.idle));
    }
    let needs: Vec<f64> = samples
        .iter()
        .map(|sample| match parts.get(settings.policy_class(sample.class)).copied().flatten() {
            Some((_, unknown)) if sample.is_active() => {
                let base_s = observer.base_s(sample.peer).unwrap_or(0.0);
                let need = settings.classes[sample.class].message_need(base_s);
                if need > 0.0 { need } else { unknown }
            }
            _ => 0.0,
        })
        .collect();
    let mut sums = vec![0.0; of_class.len()];
    for (sample, need) in samples.iter().zip(&needs) {
        if let Some(sum) = sums.get_mut(settings.policy_class(sample.class)) {
            *sum += need;
        }
    }
    let mut changed = Vec::new();
    for (sample, need) in samples.iter().zip(needs) {
        let class = settings.policy_class(sample.class);
        let Some(socket) = observer.sockets.get_mut(&sample.id) else { continue };
        let of_active = |(parts, _): (Parts, f64)| (parts.active * need / sums[class]).max(SOCKET_RATE_MIN);
        let of_active = parts.get(class).copied().flatten().filter(|_| need > 0.0).map(of_active);
        let Some(bit_per_s) = of_active.or(of_class.get(class).copied().flatten()) else {
            // A socket that comes back to a class that is paced gets its rate anew.
            socket.rate_bit_per_s = None;
            continue;
        };
        let change_min = if sample.is_active() { CHANGE_MIN } else { IDLE_CHANGE_MIN };
        let is_same = |old: f64| (bit_per_s / old - 1.0).abs() < change_min;
        if !socket.rate_bit_per_s.is_some_and(is_same) {
            socket.set_rate(bit_per_s);
            changed.push(SocketRate { id: sample.id, bit_per_s });
        }
    }
    Rates { changed, of_class }
}

/// What sockets of urgent classes get that have a limit, and what a message of unknown size counts for.
fn urgent_parts(allocation: &Allocation<'_>) -> Vec<Option<(Parts, f64)>> {
    let classes = allocation.classes.iter().zip(allocation.seen).zip(allocation.limits);
    let parts = |((class, seen), limit): ((&Class, &ClassSeen), &Option<f64>)| {
        let Class::Urgent(urgent) = class else { return None };
        let sending = Sending {
            limit: (*limit)?,
            clients: urgent.clients,
            message_need: urgent.message_need,
            active_need: urgent.active_need,
            sockets: seen.sockets,
            active: seen.active,
        };
        Some((sending.parts(), urgent.message_need.max(1.0)))
    };
    classes.map(parts).collect()
}

/// Rate of each bulk socket, by class of the policy.
fn bulk_rates(
    allocation: &Allocation<'_>,
    settings: &Settings,
    samples: &[SocketSample],
) -> Vec<Option<f64>> {
    let Allocation { bulk, leased, datagrams, .. } = *allocation;
    let mut sockets = vec![0usize; settings.classes.len()];
    let mut active = vec![0usize; settings.classes.len()];
    for sample in samples.iter().filter(|sample| sample.class < settings.classes.len()) {
        sockets[sample.class] += 1;
        active[sample.class] += usize::from(sample.is_active());
    }
    let any_active =
        settings.classes.iter().zip(&active).any(|(class, &active)| is_bulk(class) && active > 0);
    // A class without active sockets needs no part, unless no class has any.
    let counts = if any_active { &active } else { &sockets };
    let most = |at: usize, ceiling: f64| {
        let left = ceiling - datagrams.get(at).copied().unwrap_or(0.0);
        left.max(SOCKET_RATE_MIN)
    };
    let share = |(at, (class, &count)): (usize, (&ClassSettings, &usize))| match *class {
        ClassSettings::Bulk { weight, floor, ceiling } if count > 0 => {
            let most = most(at, ceiling);
            Share { weight, least: floor.min(most), most }
        }
        _ => Share { weight: 1.0, least: 0.0, most: 0.0 },
    };
    let shares: Vec<Share> = settings.classes.iter().zip(counts).enumerate().map(share).collect();
    let parts = leased
        .and_then(|leased| leased_parts(leased, settings, counts))
        .unwrap_or_else(|| weighted_max_min(bulk, &shares));
    let of_socket = |(at, class): (usize, &ClassSettings)| {
        if !is_bulk(class) {
            return None;
        }
        // An idle class: as if one of its sockets became active.
        let (part, count) = match counts[at] {
            0 => (idle_part(class, bulk, &parts), 1),
            count => (parts[at], count),
        };
        Some((part / count as f64).max(SOCKET_RATE_MIN))
    };
    settings.classes.iter().enumerate().map(of_socket).collect()
}

/// The parts of the classes; `None` if one has sockets and no part: they became active after the report that
/// the coordinator decided on.
fn leased_parts(leased: &[f64], settings: &Settings, counts: &[usize]) -> Option<Vec<f64>> {
    let part = |at: usize| leased.get(at).copied().unwrap_or(0.0);
    let is_missing = |at: usize| is_bulk(&settings.classes[at]) && counts[at] > 0 && part(at) <= 0.0;
    let classes = 0..settings.classes.len();
    (!classes.clone().any(is_missing)).then(|| classes.map(part).collect())
}

fn is_bulk(class: &ClassSettings) -> bool {
    matches!(class, ClassSettings::Bulk { .. })
}

/// Part that a class without active sockets starts with: an even share.
fn idle_part(class: &ClassSettings, bulk: f64, parts: &[f64]) -> f64 {
    let ceiling = match class {
        ClassSettings::Bulk { ceiling, .. } => *ceiling,
        ClassSettings::Urgent { .. } | ClassSettings::Program { .. } => f64::INFINITY,
    };
    let classes = parts.iter().filter(|part| **part > 0.0).count() + 1;
    (bulk / classes as f64).min(ceiling)
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn idle_sockets_are_set_for_large_changes_alone_and_exactly_once_they_send() {
        let bulk = ClassSettings::Bulk { weight: 1.0, floor: 0.0, ceiling: f64::INFINITY };
        let settings = Settings {
            period_s: Settings::PERIOD_S,
            delay_s: 0.0,
            start_bit_per_s: 5e6,
            given_bit_per_s: None,
            classes: vec![bulk],
        };
        let sending = |id| SocketSample { unacked: 1, ..sample(id) };
        let mut observer = Observer::default();
        let mut changed = |bulk: f64, samples: [SocketSample; 2]| -> Vec<(u64, f64)> {
            observer.observe(0, 0.05, bulk, &settings, &samples);
            let allocation =
                Allocation { bulk, leased: None, limits: &[], classes: &[], seen: &[], datagrams: &[] };
            let rates = rates(&allocation, &settings, &mut observer, &samples);
            rates.changed.iter().map(|rate| (rate.id, rate.bit_per_s)).collect()
        };
        assert_eq!(changed(5e6, [sending(1), sample(2)]), [(1, 5e6), (2, 5e6)]);
        assert_eq!(changed(5.5e6, [sending(1), sample(2)]), [(1, 5.5e6)]);
        assert_eq!(changed(6.5e6, [sending(1), sample(2)]), [(1, 6.5e6), (2, 6.5e6)]);
        assert_eq!(changed(7e6, [sending(1), sample(2)]), [(1, 7e6)]);
        assert_eq!(changed(14.2e6, [sending(1), sending(2)]), [(2, 7.1e6)]);
    }
}
