//! Rates of a link that change during a trial.

use base::units::Span;

use super::raw::LinkFile;
use super::{Queue, RATE_RANGE, Step, is_possible};

/// Longer schedules are a typing error.
const STEPS_MAX: usize = 1000;
const AFTER_MAX_S: u64 = 86_400;

/// The steps of a link, or the problem with them.
pub(super) fn check(file: &LinkFile) -> Result<Vec<Step>, String> {
    let Some(steps) = &file.steps else { return Ok(Vec::new()) };
    let steps = steps.get_ref();
    if file.rate.is_none() || file.rate_up.is_some() || file.rate_down.is_some() {
        return Err(
            "both directions change, so the link needs rate, without rate_up and rate_down".to_owned()
        );
    }
    if file.queue.as_ref().is_some_and(|queue| *queue.get_ref() != Queue::Tbf) {
        return Err("only the rate of a token bucket changes; leave out queue".to_owned());
    }
    if steps.is_empty() || steps.len() > STEPS_MAX {
        return Err(format!("there are {}, and 1 to {STEPS_MAX} are possible", steps.len()));
    }
    for step in steps {
        if !is_possible(step.rate) {
            return Err(format!("rate: {} is not within {RATE_RANGE}", step.rate));
        }
        if step.after > Span::from_s(AFTER_MAX_S) {
            return Err(format!("after: {} is more than 24h", step.after));
        }
    }
    match steps.windows(2).find(|pair| pair[0].after >= pair[1].after) {
        Some([first, second, ..]) => {
            Err(format!("{} follows {}; write them in the order of their times", second.after, first.after))
        }
        _ => Ok(steps.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Lab;

    fn read(keys: &str) -> Result<Lab, String> {
        let text = format!("name='x'\n[host.a]\n[host.b]\n[[link]]\nbetween=['a','b']\n{keys}\n");
        Lab::read(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn steps_need_one_rate_and_ascending_times() {
        let steps = "steps = [{ after = '1s', rate = '20Mbit/s' }, { after = '2500ms', rate = '5Mbit/s' }]";
        let lab = read(&format!("rate = '50Mbit/s'\n{steps}")).unwrap();
        let found: Vec<_> =
            lab.links[0].steps.iter().map(|step| (step.after.s(), step.rate.bit_per_s())).collect();
        assert_eq!(found, [(1.0, 20_000_000), (2.5, 5_000_000)]);
        for (keys, part) in [
            (steps.to_owned(), "needs rate"),
            (format!("rate_up = '50Mbit/s'\n{steps}"), "needs rate"),
            (format!("rate = '50Mbit/s'\nqueue = 'htb'\n{steps}"), "leave out queue"),
            ("rate = '50Mbit/s'\nsteps = []".to_owned(), "there are 0"),
            ("rate = '50Mbit/s'\nsteps = [{ after = '1s', rate = '1bit/s' }]".to_owned(), "8kbit/s"),
            ("rate = '50Mbit/s'\nsteps = [{ after = '25h', rate = '1Mbit/s' }]".to_owned(), "24h"),
            (
                "rate = '50Mbit/s'\nsteps = [{ after = '2s', rate = '1Mbit/s' }, { after = '2s', rate = \
                 '2Mbit/s' }]"
                    .to_owned(),
                "in the order",
            ),
        ] {
            let error = read(&keys).unwrap_err();
            assert!(error.contains(part) && error.contains("line "), "{keys}: {error}");
        }
    }
}
