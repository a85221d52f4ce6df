//! Figures as plain data: what a workload shows of a trial, or of all trials of a variant. How they are drawn
//! is the report's business.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most marks that a figure keeps: more would overlap, and enlarge every stored run.
pub const MARKS_MAX: usize = 2000;

/// Digits that a number of a figure keeps: finer than any screen.
const DIGITS: i32 = 5;

/// A figure: two axes and what lies between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What is to be seen in it and how it came about, in sentences.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, the lowest first.
    pub layers: Vec<Layer>,
}

/// An axis of a figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Axis {
    /// What it shows.
    pub quantity: String,
    /// Its unit as printed; empty for a count.
    pub unit: String,
    /// Whether equal distances are equal ratios; values that are not above 0 are then left out.
    pub is_log: bool,
    /// Where it begins; at zero (or, if it is logarithmic, at its least value) without it.
    pub from: Option<f64>,
    /// Where it ends; at its greatest value without it.
    pub to: Option<f64>,
}

/// Marks of one kind and meaning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Layer {
    /// What they mean, for the legend; empty for none.
    pub name: String,
    /// How they differ from others.
    pub tone: Tone,
    /// The marks.
    pub marks: Marks,
}

/// Colours by rank, which light, dark and print each have their own of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    /// What the figure is about.
    #[default]
    First,
    /// What it is held against, or what went wrong.
    Second,
    /// A third kind.
    Third,
    /// A fourth kind.
    Fourth,
    /// A fifth kind.
    Fifth,
    /// A sixth kind.
    Sixth,
    /// What stands behind: bounds, predictions.
    Soft,
}

/// What is drawn; all numbers are in the units of the axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum Marks {
    /// Points: x, y.
    Points {
        /// One each.
        at: Vec<[f64; 2]>,
    },
    /// A line through points: x, y; an unknown y breaks it.
    Line {
        /// In drawing order.
        at: Vec<(f64, Option<f64>)>,
    },
    /// A line that holds each value until the next point: x, y; an unknown y breaks it.
    Steps {
        /// In ascending x.
        at: Vec<(f64, Option<f64>)>,
    },
    /// An area: x, its lower and its upper edge.
    Band {
        /// In ascending x.
        at: Vec<[f64; 3]>,
    },
    /// Upright bars from zero: x, y.
    Bars {
        /// One each.
        at: Vec<[f64; 2]>,
        /// How wide each is.
        width: f64,
    },
    /// Lying spans: row (y), where it begins and where it ends (x).
    Spans {
        /// One each.
        at: Vec<[f64; 3]>,
    },
    /// Cells of an even grid, coloured by value.
    Cells {
        /// The left edge of the first column and the right edge of the last.
        across: [f64; 2],
        /// The lower edge of the first row and the upper edge of the last.
        upward: [f64; 2],
        /// Column by column from the left, each from the bottom; all are equally long. An unknown value is
        /// left empty.
        columns: Vec<Vec<Option<f64>>>,
        /// What the colour shows.
        quantity: String,
        /// Its unit.
        unit: String,
    },
    /// A straight line across the figure.
    Across {
        /// At this height.
        y: f64,
        /// What it is.
        label: String,
    },
    /// A straight line down the figure.
    Down {
        /// At this place.
        x: f64,
        /// What it is.
        label: String,
    },
}

impl Default for Marks {
    fn default() -> Self {
        Self::Points { at: Vec::new() }
    }
}

impl Axis {
    /// A linear axis that begins at zero.
    pub fn of(quantity: &str, unit: &str) -> Self {
        Self { quantity: quantity.to_owned(), unit: unit.to_owned(), ..Self::default() }
    }

    pub fn log(quantity: &str, unit: &str) -> Self {
        Self { is_log: true, ..Self::of(quantity, unit) }
    }

    #[must_use]
    pub fn between(self, from: f64, to: f64) -> Self {
        Self { from: Some(from), to: Some(to), ..self }
    }
}

impl Layer {
    pub fn new(name: &str, tone: Tone, marks: Marks) -> Self {
        Self { name: name.to_owned(), tone, marks }
    }
}

impl Figure {
    /// The figure as it is stored: without numbers that are not finite, with no more marks than can be
    /// distinguished (thinned evenly) and no more digits than can be seen. `None` if only straight lines
    /// would be left.
    #[must_use]
    pub fn kept(mut self) -> Option<Self> {
        let drawn = self.layers.iter().filter(|layer| !layer.marks.is_rule()).count();
        let most = MARKS_MAX / drawn.max(1);
        let layers = std::mem::take(&mut self.layers);
        let kept = |layer: Layer| Some(Layer { marks: layer.marks.kept(most)?, ..layer });
        self.layers = layers.into_iter().filter_map(kept).collect();
        for end in [&mut self.x.from, &mut self.x.to, &mut self.y.from, &mut self.y.to] {
            *end = end.filter(|end| end.is_finite());
        }
        self.layers.iter().any(|layer| !layer.marks.is_rule()).then_some(self)
    }
}

impl Marks {
    fn is_rule(&self) -> bool {
        matches!(self, Self::Across { .. } | Self::Down { .. })
    }

    /// See [`Figure::kept`].
    fn kept(self, most: usize) -> Option<Self> {
        match self {
            Self::Points { at } => kept_rows(at, most).map(|at| Self::Points { at }),
            Self::Band { at } => kept_rows(at, most).map(|at| Self::Band { at }),
            Self::Spans { at } => kept_rows(at, most).map(|at| Self::Spans { at }),
            Self::Bars { at, width } => {
                kept_rows(at, most).filter(|_| width.is_finite()).map(|at| Self::Bars { at, width })
            }
            Self::Line { at } => kept_way(at, most).map(|at| Self::Line { at }),
            Self::Steps { at } => kept_way(at, most).map(|at| Self::Steps { at }),
            Self::Cells { across, upward, columns, quantity, unit } => {
                let edges = across.iter().chain(&upward);
                let columns = kept_cells(columns, most);
                let is_known = columns.iter().flatten().any(Option::is_some);
                (is_known && edges.into_iter().all(|edge| edge.is_finite())).then_some(Self::Cells {
                    across,
                    upward,
                    columns,
                    quantity,
                    unit,
                })
            }
            Self::Across { y, label } => y.is_finite().then(|| Self::Across { y: rounded(y), label }),
            Self::Down { x, label } => x.is_finite().then(|| Self::Down { x: rounded(x), label }),
        }
    }
}

fn kept_rows<const N: usize>(rows: Vec<[f64; N]>, most: usize) -> Option<Vec<[f64; N]>> {
    let finite = rows.into_iter().filter(|row| row.iter().all(|value| value.is_finite()));
    Some(thinned(finite.map(|row| row.map(rounded)).collect(), most)).filter(|kept| !kept.is_empty())
}

fn kept_way(way: Vec<(f64, Option<f64>)>, most: usize) -> Option<Vec<(f64, Option<f64>)>> {
    let finite = way.into_iter().filter(|(x, _)| x.is_finite());
    let known = |(x, y): (f64, Option<f64>)| (rounded(x), y.filter(|y| y.is_finite()).map(rounded));
    let kept = thinned(finite.map(known).collect(), most);
    kept.iter().any(|(_, y)| y.is_some()).then_some(kept)
}

/// Rows that lie one on another become one, with the greatest of their values, until the grid is small
/// enough.
fn kept_cells(columns: Vec<Vec<Option<f64>>>, most: usize) -> Vec<Vec<Option<f64>>> {
    let columns = thinned(columns, most);
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    let rows_most = (most / columns.len().max(1)).max(1);
    let together = rows.div_ceil(rows_most).max(1);
    let greatest = |cells: &[Option<f64>]| {
        let known = cells.iter().flatten().copied().filter(|value| value.is_finite());
        known.max_by(f64::total_cmp).map(rounded)
    };
    columns.iter().map(|column| column.chunks(together).map(greatest).collect()).collect()
}

/// At most `most` of them, evenly, with the first and the last.
fn thinned<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let n = all.len();
    if n <= most || most < 2 {
        return all.into_iter().take(most.max(1)).collect();
    }
    let mut next = 0;
    let mut taken = 0;
    let is_next = |(at, one): (usize, T)| {
        let is = at == next;
        if is {
            taken += 1;
            next = taken * (n - 1) / (most - 1);
        }
        is.then_some(one)
    };
    all.into_iter().enumerate().filter_map(is_next).collect()
}

fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let factor = 10f64.powi(DIGITS - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * factor).round() / factor;
    // The least numbers there are have no such factor, and the greatest would be rounded beyond what there
    // is.
    if factor.is_normal() && rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(marks: Marks) -> Figure {
        Figure { layers: vec![Layer::new("a", Tone::First, marks)], ..Figure::default() }
    }

    #[test]
    fn non_finite_numbers_are_dropped_from_stored_figures() {
        let at = vec![[1.0, f64::NAN], [2.0, f64::INFINITY], [3.0, 4.0]];
        let kept = figure(Marks::Points { at }).kept().unwrap();
        assert_eq!(kept.layers[0].marks, Marks::Points { at: vec![[3.0, 4.0]] });
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Figure>(&text).unwrap(), kept);
        assert_eq!(figure(Marks::Line { at: vec![(1.0, Some(f64::NAN))] }).kept(), None);
        assert_eq!(figure(Marks::Across { y: 1.0, label: String::new() }).kept(), None, "nothing but a line");
    }

    #[test]
    fn many_marks_are_thinned_evenly_with_both_ends() {
        let at = (0..100_000).map(|i| [f64::from(i), 1.0]).collect();
        let kept = figure(Marks::Points { at }).kept().unwrap();
        let Marks::Points { at } = &kept.layers[0].marks else { panic!("{kept:?}") };
        assert_eq!((at.len(), at[0][0], at[at.len() - 1][0]), (MARKS_MAX, 0.0, 99_999.0));
        let widest = at.windows(2).map(|pair| pair[1][0] - pair[0][0]).fold(0.0, f64::max);
        assert!(widest <= 60.0, "{widest}");
    }

    #[test]
    fn fine_grid_is_reduced_to_maxima() {
        let mut columns = vec![vec![Some(1.0); 1000]; 20];
        columns[3][777] = Some(9.0);
        columns[4] = vec![None; 1000];
        let cells = Marks::Cells {
            across: [0.0, 20.0],
            upward: [0.0, 1000.0],
            columns,
            quantity: "delay".into(),
            unit: "us".into(),
        };
        let kept = figure(cells).kept().unwrap();
        let Marks::Cells { columns, .. } = &kept.layers[0].marks else { panic!("{kept:?}") };
        assert!(columns.len() * columns[0].len() <= MARKS_MAX);
        assert!(columns[3].contains(&Some(9.0)) && columns[4].iter().all(Option::is_none));
    }

    #[test]
    fn five_digits_are_kept() {
        let values = [123_456.7, 0.000_123_456, -2.0, 0.0, f64::MAX, f64::MIN_POSITIVE];
        let expected = [123_460.0, 0.000_123_46, -2.0, 0.0, f64::MAX, f64::MIN_POSITIVE];
        let close = |(a, b): (f64, f64)| a == b || ((a - b) / b).abs() < 1e-9;
        assert!(values.map(rounded).into_iter().zip(expected).all(close), "{:?}", values.map(rounded));
    }
}
