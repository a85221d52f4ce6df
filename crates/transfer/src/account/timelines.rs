//! The calls of a stretch of the time one by one, as the ends report them.

use base::outcome::{Figure, MARKS_MAX, Marks};

use super::super::report::{DirectionReport, EndReport, TransferReport};
use super::tables::name;

/// Names of calls and states, and threads, of a timeline at most.
const LAYERS_MAX: usize = 200;
/// Timelines of a trial at most: both ends of both directions of one client.
const TIMELINES_MAX: usize = 4;

pub(super) fn of(report: &TransferReport) -> Vec<Figure> {
    let of_way = |way: &DirectionReport| {
        let ends = [("sender", way.sender.as_ref()), ("receiver", way.receiver.as_ref())];
        ends.map(|(side, end)| titled(&format!("calls of the {side} {}", name(way)), end?))
    };
    report.directions.iter().flat_map(of_way).flatten().take(TIMELINES_MAX).collect()
}

fn titled(what: &str, end: &EndReport) -> Option<Figure> {
    let timeline = end.timeline.as_ref().filter(|figure| is_bounded(figure))?;
    Some(Figure { title: format!("Timeline: {what}"), ..timeline.clone() })
}

/// Whether it is as an end of kagiri makes it: another program may report anything.
fn is_bounded(figure: &Figure) -> bool {
    let spans = figure.layers.iter().map(|layer| match &layer.marks {
        Marks::Spans { at } if at.iter().flatten().all(|value| value.is_finite()) => at.len(),
        Marks::Across { y, .. } if y.is_finite() => 0,
        _ => MARKS_MAX + 1,
    });
    figure.layers.len() <= LAYERS_MAX && spans.fold(0, usize::saturating_add) <= MARKS_MAX
}
