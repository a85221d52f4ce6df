//! Witnesses against a limit: CPU time that others took can make a load fail, whatever else was nearly used
//! up.

use base::outcome::{Certainty, Evidence, Limit, Resource};

use super::analysis::Analysis;
use super::words;

/// A counter by which CPU time was lost, from which value on it counts, whether it counts only where it is
/// higher than at lower loads, and its sentence.
struct Witness {
    counter: &'static str,
    from: f64,
    must_rise: bool,
    sentence: &'static str,
}

/// The counters' names stand in [`Limit::WITNESSES`], too. Steal always counts: the hypervisor takes the time
/// from the target and from what measures it. Waits and others' load are usual on a busy host that carries
/// its load.
const WITNESSES: [Witness; 3] = [
    Witness { counter: "steal_percent", from: 10.0, must_rise: false, sentence: "the hypervisor took {}" },
    Witness {
        counter: "cpu_wait_percent",
        from: 20.0,
        must_rise: true,
        sentence: "the server's threads waited for a CPU for {}",
    },
    Witness { counter: "other_cpu_percent", from: 50.0, must_rise: true, sentence: "other programs used {}" },
];
/// A counter must exceed its median at lower loads by this factor to have risen.
const RISE: f64 = 1.2;

/// The limit, no longer confirmed if CPU time was lost at the load whose counters confirm it.
pub fn weigh(analysis: &Analysis, mut limit: Limit) -> Limit {
    let is_other = !matches!(limit.resource, Resource::Cpu | Resource::Player | Resource::None);
    if !is_other || limit.certainty != Certainty::Confirmed {
        return limit;
    }
    let against: Vec<Evidence> = WITNESSES.iter().filter_map(|witness| evidence(analysis, witness)).collect();
    if !against.is_empty() {
        limit.certainty = Certainty::Predicted;
        let at = limit.evidence.len().min(1);
        limit.evidence.splice(at..at, against);
    }
    limit
}

fn evidence(analysis: &Analysis, witness: &Witness) -> Option<Evidence> {
    let value = analysis.counter_at_critical(witness.counter).filter(|value| *value >= witness.from)?;
    let below = analysis.counter_below(witness.counter).filter(|_| witness.must_rise);
    if below.is_some_and(|below| value <= RISE * below) {
        return None;
    }
    let lost = witness.sentence.replace("{}", &words::amount(Resource::Cpu, value));
    let statement = format!("at {} {lost}, which may be why it failed", analysis.critical_text());
    Some(Evidence::counted(Resource::Cpu, statement).with(witness.counter, value))
}
