//! From the reports of a trial to the verdict, with the reasons as sentences. Pure.

use base::doubt::Doubt;
use base::format::{count, number, quantity};
use base::limit_rules::{BUSIEST_SECOND, BUSIEST_SECOND_SIGN};
use base::outcome::Limit;
use base::series::Series;
use base::verdict::Verdict;
use base::workload::Judgement;

use crate::limit;
use crate::metrics::{self, most_urgent};
use crate::presentation::ExchangeDoubt;
use crate::report::{BackgroundReport, ClassReport, ClientsReport};
use crate::settings::{Class, ExchangeSettings};

/// With more messages late, the clients did not offer what they were meant to.
const LATE_SHARE_MAX: f64 = 0.1;
/// With more messages late, response times may be the clients' own.
const LATE_SHARE_SIGN: f64 = 0.01;
/// Messages that a 99th percentile needs.
const MESSAGES_MIN: u64 = 100;

#[must_use]
pub fn judge(
    settings: &ExchangeSettings,
    load: u64,
    report: &ClientsReport,
    background: Option<&BackgroundReport>,
) -> Judgement {
    let classes = settings.classes_at(load);
    let pairs = pairs(&classes, report);
    let missed: Vec<String> =
        pairs.iter().flat_map(|(class, own)| missed(settings, class, own, classes.len() > 1)).collect();
    let late = pairs.iter().map(|(_, own)| late_share(own)).fold(0.0, f64::max);
    let is_full = report.busiest.is_some_and(|share| BUSIEST_SECOND.is_used_up(share));
    let broke = report.broke_off.clone();
    let mut reasons: Vec<String> = broke.iter().cloned().collect();
    if report.stopped && broke.is_none() {
        reasons.push("the trial was ended before its time".to_owned());
    }
    let is_saturated = late > LATE_SHARE_MAX || (is_full && !missed.is_empty());
    if late > LATE_SHARE_MAX {
        reasons.push(format!(
            "the clients sent {} of the messages late: they could not offer the load",
            quantity(Some(100.0 * late), "%")
        ));
    } else if is_saturated {
        reasons.push("the clients' threads were full, so the clients may be at fault".to_owned());
    }
    let verdict = match () {
        () if broke.is_some() || report.stopped || is_saturated => Verdict::Invalid,
        () if missed.is_empty() => Verdict::Pass,
        () => Verdict::Fail,
    };
    reasons.extend(missed);
    let account = crate::account::of(settings, &classes, report, background);
    let is_full_link = account.limit.as_ref().and_then(|limit| limit.evidence.first());
    let is_full_link = is_full_link.is_some_and(|first| first.values.contains_key(Limit::LINK_PERCENT));
    let mut doubts: Vec<Doubt> = doubts(report, &pairs, late).into_iter().map(Doubt::from).collect();
    doubts.extend(background.into_iter().flat_map(of_background).map(Doubt::from));
    let mut metrics = metrics::of(&classes, report, background);
    metrics.insert("link_used_ratio".to_owned(), limit::link_share(settings, report, background));
    Judgement {
        reasons,
        // Other programs on a host fill no link.
        is_definite: is_full_link && verdict == Verdict::Fail,
        metrics,
        series: series(&classes, report, background),
        doubts,
        account,
        ..Judgement::new(verdict, report.hold_s)
    }
}

fn pairs<'a>(classes: &'a [Class], report: &'a ClientsReport) -> Vec<(&'a Class, &'a ClassReport)> {
    let own = |class: &'a Class| Some((class, report.classes.iter().find(|one| one.name == class.name)?));
    classes.iter().filter_map(own).collect()
}

fn late_share(report: &ClassReport) -> f64 {
    report.late as f64 / report.due().max(1) as f64
}

/// The conditions of the objective that did not hold for a class.
fn missed(
    settings: &ExchangeSettings,
    class: &Class,
    report: &ClassReport,
    is_one_of_many: bool,
) -> Vec<String> {
    let objective = &settings.objective;
    let of = if is_one_of_many { format!("{}: ", class.name) } else { String::new() };
    let mut missed = Vec::new();
    if report.due() == 0 {
        missed.push(format!("{of}no message was due in the judged time"));
        return missed;
    }
    let all = count(report.due() as f64);
    if let Some((target, ratio)) = class.target.zip(report.in_time_ratio())
        && 100.0 * ratio < objective.in_time_percent
    {
        missed.push(format!(
            "{of}{} of {all} messages were answered within {}, less than {} %",
            quantity(Some(100.0 * ratio), "%"),
            quantity(Some(target.s()), "s"),
            number(objective.in_time_percent)
        ));
    }
    let p99_ns = report.response.percentile_ns(99.0);
    if let Some((most, p99_ns)) = objective.p99_max.zip(p99_ns)
        && p99_ns > most.ns()
    {
        let took = quantity(Some(p99_ns as f64 / 1e9), "s");
        let most = quantity(Some(most.s()), "s");
        missed.push(format!("{of}99 % of the replies took up to {took}, more than {most}"));
    }
    let errors_percent = 100.0 * report.errors as f64 / report.due() as f64;
    if errors_percent > objective.errors_percent_max || report.answered == 0 {
        let faults: Vec<String> =
            report.faults.iter().map(|(fault, n)| format!("{fault}: {}", count(*n as f64))).collect();
        missed.push(format!(
            "{of}{} of {all} messages ended in an error ({})",
            count(report.errors as f64),
            faults.join(", ")
        ));
    }
    missed
}

fn doubts(report: &ClientsReport, pairs: &[(&Class, &ClassReport)], late: f64) -> Vec<ExchangeDoubt> {
    let mut doubts = Vec::new();
    if late > LATE_SHARE_SIGN {
        let most = pairs.iter().map(|(_, own)| own.late_ns_max).max().unwrap_or(0);
        doubts
            .push(ExchangeDoubt::MessagesLate { late_percent: 100.0 * late, late_ms_max: most as f64 / 1e6 });
    }
    let near = report.busiest.filter(|share| BUSIEST_SECOND_SIGN.is_used_up(*share));
    doubts.extend(near.map(|share| ExchangeDoubt::ClientsNearSaturation { cpu_percent: 100.0 * share }));
    let few = pairs.iter().filter(|(_, own)| (1..MESSAGES_MIN).contains(&own.answered));
    doubts.extend(few.map(|(class, own)| ExchangeDoubt::FewMessages {
        class: class.name.clone(),
        messages: own.answered,
    }));
    doubts
}

fn of_background(background: &BackgroundReport) -> Option<ExchangeDoubt> {
    match (&background.broke_off, &background.delivered) {
        (Some(why), _) => Some(ExchangeDoubt::BackgroundBroke { why: why.clone() }),
        (None, None) => Some(ExchangeDoubt::BackgroundUnknown),
        (None, Some(_)) => None,
    }
}

/// What was seen over time: response times, socket memory, and the background that arrived.
fn series(classes: &[Class], report: &ClientsReport, background: Option<&BackgroundReport>) -> Vec<Series> {
    let mut all = Vec::new();
    let urgent = most_urgent(classes).map(|class| class.name.as_str());
    for class in &report.classes {
        let is_urgent = urgent == Some(class.name.as_str());
        let names = is_urgent.then_some(String::new()).into_iter();
        let names = names.chain((report.classes.len() > 1).then(|| format!("{}_", class.name)));
        for prefix in names {
            let mut response = Series::new(format!("{prefix}response_mean_ms"), "ms");
            let mut longest = Series::new(format!("{prefix}response_max_ms"), "ms");
            for (at, slot) in class.slots.iter().enumerate() {
                let at_s = (at + 1) as f64 * report.slot_s;
                let known = (slot.answered > 0).then_some(slot.answered as f64);
                response.push(at_s, known.map(|n| slot.response_ns_sum as f64 / n / 1e6));
                longest.push(at_s, known.map(|_| slot.response_ns_max as f64 / 1e6));
            }
            let has_target = classes.iter().any(|known| known.name == class.name && known.target.is_some());
            all.extend(has_target.then(|| in_time(&prefix, class, report.slot_s)));
            let mut memory = Series::new(format!("{prefix}socket_memory_bytes"), "B");
            class.memory.iter().for_each(|one| memory.push(one.at_s, Some(one.total_bytes as f64)));
            all.extend([response, longest, memory]);
        }
        for client in &class.clients_memory {
            let name = format!("{}_{}_socket_memory_bytes", class.name, client.client + 1);
            let mut memory = Series::new(name, "B");
            client.samples.iter().for_each(|(at_s, bytes)| memory.push(*at_s, Some(*bytes as f64)));
            all.push(memory);
        }
    }
    if let Some(delivered) = background.and_then(|background| background.delivered.as_ref()) {
        let slot_s = delivered.slot_ns as f64 / 1e9;
        let mut arrived = Series::new("background_bit_per_s", "bit/s");
        for (at, bytes) in delivered.slots.iter().enumerate() {
            arrived.push((at + 1) as f64 * slot_s, Some(*bytes as f64 * 8.0 / slot_s));
        }
        all.push(arrived);
    }
    all
}

/// The share of messages in time, by the moment of their reply or error.
fn in_time(prefix: &str, class: &ClassReport, slot_s: f64) -> Series {
    let mut series = Series::new(format!("{prefix}in_time_percent"), "%");
    for (at, slot) in class.slots.iter().enumerate() {
        let ended = slot.answered + slot.errors;
        let share = (ended > 0).then(|| 100.0 * slot.in_time as f64 / ended as f64);
        series.push((at + 1) as f64 * slot_s, share);
    }
    series
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Two hundred messages of 100 ms; `errors` of them failed, `late` were sent late.
    fn report(in_time: u64, errors: u64, late: u64) -> ClientsReport {
        let mut class = ClassReport {
            name: "messages".to_owned(),
            clients: 1,
            answered: 200,
            in_time,
            errors,
            late,
            network_ns: 200 * 100_000_000,
            ..ClassReport::default()
        };
        class.response.record_ns_times(100_000_000, 200);
        class.faults.insert("no reply in time".to_owned(), errors);
        let server = "10.0.0.2:1".to_owned();
        ClientsReport { classes: vec![class], hold_s: (0.0, 1.0), server, ..ClientsReport::default() }
    }

    fn judged(settings: Value, report: &ClientsReport) -> Judgement {
        judge(&ExchangeSettings::read(settings).unwrap(), 1, report, None)
    }

    #[test]
    fn objective_decides_the_verdict() {
        for (settings, report, verdict, said) in [
            (json!({"target": "1s"}), report(200, 0, 0), Verdict::Pass, ""),
            (json!({"target": "1s"}), report(197, 0, 0), Verdict::Fail, "98.5 % of 200 messages"),
            (
                json!({"target": "1s", "objective": {"in_time_percent": 98.0}}),
                report(197, 0, 0),
                Verdict::Pass,
                "",
            ),
            (json!({}), report(200, 0, 0), Verdict::Pass, ""),
            (json!({}), report(200, 2, 0), Verdict::Fail, "2 of 202 messages ended in an error"),
            (json!({"objective": {"errors_percent_max": 1.0}}), report(200, 2, 0), Verdict::Pass, ""),
            (json!({"objective": {"p99_max": "50ms"}}), report(200, 0, 0), Verdict::Fail, "more than 50 ms"),
        ] {
            let found = judged(settings.clone(), &report);
            assert_eq!(found.verdict, verdict, "{settings}: {:?}", found.reasons);
            assert!(found.reasons.concat().contains(said), "{settings}: {:?}", found.reasons);
        }
    }

    #[test]
    fn saturated_clients_make_the_trial_invalid() {
        let late = judged(json!({"rate_per_s": 1.0}), &report(200, 0, 30));
        assert_eq!(late.verdict, Verdict::Invalid);
        assert!(late.reasons[0].contains("15 % of the messages late"), "{:?}", late.reasons);
        let full = |in_time| ClientsReport { busiest: Some(0.99), ..report(in_time, 0, 0) };
        assert_eq!(judged(json!({"target": "1s"}), &full(100)).verdict, Verdict::Invalid);
        let passes = judged(json!({"target": "1s"}), &full(200));
        assert_eq!((passes.verdict, passes.doubts.len()), (Verdict::Pass, 1), "what came was in time");
        let stopped = ClientsReport { stopped: true, ..report(200, 0, 0) };
        assert_eq!(judged(json!({}), &stopped).verdict, Verdict::Invalid);
    }

    #[test]
    fn failure_by_a_full_link_is_definite() {
        let mut full = report(100, 0, 0);
        full.classes[0].bytes = 120_000;
        let found = judged(json!({"target": "1s", "link": "1Mbit/s"}), &full);
        assert_eq!((found.verdict, found.is_definite), (Verdict::Fail, true), "{found:?}");
        assert!(!judged(json!({"target": "1s"}), &full).is_definite);
    }
}
