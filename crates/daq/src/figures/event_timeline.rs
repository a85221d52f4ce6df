//! Single events, fragment by fragment.

use base::format::quantity;
use base::outcome::{Axis, Figure, Layer, Marks, Tone};

use super::NS_PER_MS;
use crate::report::{BuilderReport, EventPicture};

/// A typical event and the slowest one.
pub(super) fn waterfalls(builders: &[&BuilderReport]) -> Vec<Option<Figure>> {
    // Of several builders that with the worst event.
    let worst_of = |builder: &&&BuilderReport| {
        builder.pictures.iter().map(|picture| (!picture.complete, picture.took_ns)).max()
    };
    let Some(builder) = builders.iter().max_by_key(worst_of) else { return Vec::new() };
    let mut pictures: Vec<&EventPicture> = builder.pictures.iter().collect();
    pictures.sort_by_key(|picture| (!picture.complete, picture.took_ns));
    pictures.dedup_by_key(|picture| picture.event);
    let worst = pictures.len().saturating_sub(1);
    pictures.iter().enumerate().map(|(at, picture)| waterfall(picture, at == worst && worst > 0)).collect()
}

fn waterfall(picture: &EventPicture, is_worst: bool) -> Option<Figure> {
    let ms = |ns: f64| ns / NS_PER_MS;
    let spans = picture.arrivals.iter().map(|arrival| {
        [f64::from(arrival.source), ms(arrival.sent_ns as f64), ms(arrival.arrived_ns as f64)]
    });
    let took_ms = ms(picture.took_ns as f64);
    let how = match (is_worst, picture.complete) {
        (true, true) => "slowest",
        (true, false) => "given up",
        (false, true) => "typical",
        (false, false) => "typical, given up",
    };
    let came = picture.arrivals.len();
    Some(Figure {
        title: format!("Event {}, {how}: {}", picture.event, quantity(Some(took_ms / 1e3), "s")),
        note: format!(
            "Each line is one of {came} fragments, from its send time to its arrival, after the \
             trigger was due."
        ),
        x: Axis::of("time after the trigger", "ms"),
        y: Axis::of("source", ""),
        layers: vec![
            Layer::new(
                "",
                if is_worst { Tone::Second } else { Tone::First },
                Marks::Spans { at: spans.collect() },
            ),
            Layer::new(
                "",
                Tone::Soft,
                Marks::Down {
                    x: took_ms,
                    label: if picture.complete { "complete" } else { "given up" }.into(),
                },
            ),
        ],
    })
}

pub(super) fn heat(builders: &[&BuilderReport]) -> Option<Figure> {
    let builder = builders.iter().find(|builder| !builder.heat.is_empty())?;
    let cells = |(_, delays): &(u64, Vec<Option<u32>>)| {
        delays.iter().map(|delay| delay.map(|us| f64::from(us) / 1e3)).collect::<Vec<_>>()
    };
    let mut columns: Vec<_> = builder.heat.iter().map(cells).collect();
    // Sources may have come late: those that were not there yet are as unknown as those that did not come.
    let rows = columns.iter().map(Vec::len).max()?;
    columns.iter_mut().for_each(|column| column.resize(rows, None));
    let first = builder.sources_seen.iter().map(|seen| seen.source).min().unwrap_or(0);
    let (first, rows) = (f64::from(first), rows as f64);
    let (from, to) = (builder.heat.first()?.0, builder.heat.last()?.0);
    let count = columns.len();
    Some(Figure {
        title: "Delay by source and event".into(),
        note: format!(
            "{count} events from {from} to {to}, one per column, the slowest included. With many sources a \
             row shows the slowest of several; empty cells: the fragment did not arrive."
        ),
        x: Axis::of("events, in their order", "").between(0.0, count as f64),
        y: Axis::of("source", "").between(first, first + rows),
        layers: vec![Layer::new(
            "",
            Tone::First,
            Marks::Cells {
                across: [0.0, count as f64],
                upward: [first, first + rows],
                columns,
                quantity: "delay".into(),
                unit: "ms".into(),
            },
        )],
    })
}
