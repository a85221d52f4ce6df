//! Figures in base units: times in seconds, which are then drawn with the prefix that suits them.

use base::outcome::{Axis, Figure, Layer, Marks};

/// The figure with milliseconds, microseconds and nanoseconds as seconds.
pub(super) fn in_base_units(figure: &Figure) -> Figure {
    let (x, x_factor) = axis(&figure.x);
    let (y, y_factor) = axis(&figure.y);
    let scaled = |layer: &Layer| Layer { marks: marks(&layer.marks, x_factor, y_factor), ..layer.clone() };
    Figure { x, y, layers: figure.layers.iter().map(scaled).collect(), ..figure.clone() }
}

/// A unit and how many of its base unit it is.
fn base_of(unit: &str) -> (&str, f64) {
    match unit {
        "ms" => ("s", 1e-3),
        "us" | "µs" => ("s", 1e-6),
        "ns" => ("s", 1e-9),
        unit => (unit, 1.0),
    }
}

fn axis(axis: &Axis) -> (Axis, f64) {
    let (unit, factor) = base_of(&axis.unit);
    let scaled = |end: Option<f64>| end.map(|end| end * factor);
    (Axis { unit: unit.to_owned(), from: scaled(axis.from), to: scaled(axis.to), ..axis.clone() }, factor)
}

fn marks(marks: &Marks, fx: f64, fy: f64) -> Marks {
    let pair = |at: &Vec<[f64; 2]>| at.iter().map(|[x, y]| [x * fx, y * fy]).collect();
    let line = |at: &Vec<(f64, Option<f64>)>| at.iter().map(|(x, y)| (x * fx, y.map(|y| y * fy))).collect();
    match marks {
        Marks::Points { at } => Marks::Points { at: pair(at) },
        Marks::Line { at } => Marks::Line { at: line(at) },
        Marks::Steps { at } => Marks::Steps { at: line(at) },
        Marks::Band { at } => {
            Marks::Band { at: at.iter().map(|[x, low, high]| [x * fx, low * fy, high * fy]).collect() }
        }
        Marks::Bars { at, width } => Marks::Bars { at: pair(at), width: width * fx },
        Marks::Spans { at } => {
            Marks::Spans { at: at.iter().map(|[row, from, to]| [row * fy, from * fx, to * fx]).collect() }
        }
        Marks::Cells { across, upward, columns, quantity, unit } => {
            let (unit, factor) = base_of(unit);
            let scaled = |column: &Vec<Option<f64>>| {
                column.iter().map(|value| value.map(|value| value * factor)).collect()
            };
            Marks::Cells {
                across: across.map(|x| x * fx),
                upward: upward.map(|y| y * fy),
                columns: columns.iter().map(scaled).collect(),
                quantity: quantity.clone(),
                unit: unit.to_owned(),
            }
        }
        Marks::Across { y, label } => Marks::Across { y: y * fy, label: label.clone() },
        Marks::Down { x, label } => Marks::Down { x: x * fx, label: label.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_seconds() {
        let cells = Marks::Cells {
            across: [0.0, 2.0],
            upward: [0.0, 3.0],
            columns: vec![vec![Some(4.0), None]],
            quantity: "delay".into(),
            unit: "ms".into(),
        };
        let figure = Figure {
            x: Axis::of("time", "us").between(0.0, 50.0),
            y: Axis::of("share", "%"),
            layers: [Marks::Points { at: vec![[10.0, 7.0]] }, cells]
                .map(|marks| Layer { marks, ..Layer::default() })
                .into(),
            ..Figure::default()
        };
        let found = in_base_units(&figure);
        assert_eq!((found.x.unit.as_str(), found.y.unit.as_str()), ("s", "%"));
        assert!((found.x.to.unwrap() - 50e-6).abs() < 1e-12);
        let Marks::Points { at } = &found.layers[0].marks else { panic!("{:?}", found.layers[0]) };
        assert!((at[0][0] - 10e-6).abs() < 1e-12 && (at[0][1] - 7.0).abs() < 1e-12, "{at:?}");
        let Marks::Cells { columns, unit, .. } = &found.layers[1].marks else { panic!() };
        assert_eq!((columns[0][0].map(|s| (s * 1e6).round()), unit.as_str()), (Some(4000.0), "s"));
    }
}
