//! Sentences on where a program's time went.

use base::timeline::{CallState, CallTimes, IN_PROCESS, LITTLE};

use crate::text::plain;
use base::format::{duration, number};

/// What was watched, for how long, and where most of the time went.
pub fn watched(times: &CallTimes) -> String {
    let calls: u64 = times.calls.iter().map(|row| row.count).sum();
    let processes = counted(times.processes, "process", "processes");
    let threads = counted(times.threads, "thread", "threads");
    let ended = |text: &str| {
        plain(text)
            .replace("it ended with exit status: ", "exit status ")
            .replace("it ended with signal: ", "ended by signal ")
    };
    let ended = times.ended.as_deref().map_or_else(String::new, |text| format!("; {}", ended(text)));
    format!(
        "{}: {}, {processes}, {threads}, {}{ended}.{}",
        plain(&times.target),
        duration(times.wall_s),
        counted(calls, "call", "calls"),
        most(times)
    )
}

/// The call that took the most time, and how much; if all calls took little, also their sum.
fn most(times: &CallTimes) -> String {
    let ended = times.calls.first().map(|row| {
        let state = if row.state == CallState::Ready { "not blocked" } else { row.state.name() };
        (&row.name, state, row.wall_share)
    });
    let unfinished =
        times.unfinished.first().map(|row| (&row.name, "unfinished, not in the table", row.wall_share));
    let both = ended.into_iter().chain(unfinished);
    let Some((name, state, share)) = both.max_by(|one, other| one.2.total_cmp(&other.2)) else {
        return String::new();
    };
    let share = match share {
        // Of threads that wait side by side.
        share if share > 1.0 => format!("{share:.1} times the elapsed time (sum over threads)"),
        share => format!("{} % of the elapsed time", number(100.0 * share)),
    };
    let rest = match times.wall_share() {
        all if all < LITTLE => {
            format!(" All traced calls: {} %; the rest was outside traced calls.", number(100.0 * all))
        }
        _ => String::new(),
    };
    format!(" Most time: {} ({state}), {share}.{rest}", plain(name))
}

pub fn traced(times: &CallTimes) -> String {
    let within = times.backend == IN_PROCESS;
    let (how, one, many, nothing) = match within {
        true => ("Timed inside the program, by its own spans", "span", "spans", "an empty one"),
        false => ("Traced by", "call", "kernel records", "an empty call"),
    };
    let cost = match (times.cost_ns_per_call, times.cost) {
        (Some(ns), Some(cost)) => format!(
            "which added about {ns:.0} ns to each {one} ({nothing}: {:.0} ns untraced, {:.0} ns traced; \
             medians of {} batches)",
            cost.untraced_ns, cost.traced_ns, cost.batches
        ),
        _ => "at a cost below the noise".to_owned(),
    };
    let because = times.backend_because.as_deref();
    let because = because.map_or_else(String::new, |because| format!(" ({})", plain(because)));
    let by = if within { String::new() } else { format!(" {}", plain(&times.backend)) };
    let lost = match times.events_lost {
        0 => format!("none of the {} {many} was lost", times.events_counted),
        lost => format!("{lost} of the {} {many} were lost", times.events_counted),
    };
    format!("{how}{by}{because}, {cost}; {lost}.")
}

/// How it was traced, as briefly as can be: with what, at which cost, and what was lost.
pub fn traced_briefly(times: &CallTimes) -> String {
    let within = times.backend == IN_PROCESS;
    let (how, one) = match within {
        true => ("Timed by the program's own spans".to_owned(), "span"),
        false => (format!("Traced by {}", plain(&times.backend)), "call"),
    };
    let cost = match times.cost_ns_per_call {
        Some(ns) => format!("which added about {ns:.0} ns to each {one}"),
        None => "at a cost below the noise".to_owned(),
    };
    let lost = match times.events_lost {
        0 => String::new(),
        lost => format!("; {lost} of {} records were lost", times.events_counted),
    };
    format!("{how}, {cost}{lost}.")
}

/// What a reader of the table may stumble over.
pub fn notes(times: &CallTimes) -> Vec<String> {
    let mut notes = Vec::new();
    let unfinished = times.unfinished.iter().map(|row| {
        let all_the_time = if row.began_before > 0 { "for the whole traced time, " } else { "" };
        let longest = format!("{all_the_time}{} s", number(row.longest_s));
        format!("{} × {} (longest: {longest})", row.count, plain(&row.name))
    });
    let unfinished: Vec<String> = unfinished.collect();
    if !unfinished.is_empty() {
        notes.push(format!("Unfinished, not in the table: {}.", unfinished.join(", ")));
    }
    if times.calls.iter().any(|row| row.preempted > Some(0)) {
        notes.push(
            "Blocked: the thread was switched out inside the call. CPU taken: blocked calls that did not \
             wait, because the scheduler gave their CPU to another thread."
                .to_owned(),
        );
    }
    if times.calls.iter().any(|row| row.state == CallState::Unknown) {
        notes.push(
            "Unknown: this system does not report whether the thread was switched out inside the call."
                .to_owned(),
        );
    }
    if times.calls.iter().any(|row| row.name == "pselect6") {
        notes.push("The C library's select() calls pselect6.".to_owned());
    }
    notes
}

fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
