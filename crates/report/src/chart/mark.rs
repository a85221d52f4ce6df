//! What is drawn inside a panel.

use maud::{Markup, html};

use super::scale::{Linear, px};

/// The form of a point: verdicts differ in form as well as in colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Circle,
    Cross,
    Diamond,
    /// A triangle that points down.
    Triangle,
}

/// One mark; all positions are in the panel's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Mark {
    /// A line through points; `None` breaks it.
    Line {
        /// The points in drawing order.
        points: Vec<(f64, Option<f64>)>,
        class: &'static str,
    },
    /// A line that holds each value until the next point.
    Step {
        /// The points in ascending x.
        points: Vec<(f64, Option<f64>)>,
        class: &'static str,
    },
    /// One point with a text for those who point at it.
    Point {
        at: (f64, f64),
        shape: Shape,
        class: &'static str,
        /// What it says when pointed at.
        label: String,
    },
    /// The area between two values over a range of x.
    Band {
        x: [f64; 2],
        /// From and to in y; `None` for the panel's whole height.
        y: Option<[f64; 2]>,
        class: &'static str,
    },
    /// A horizontal bar from zero, centred on a row.
    Bar {
        y: f64,
        value: f64,
        class: &'static str,
        /// What it says when pointed at.
        label: String,
    },
    /// A horizontal interval with end strokes.
    Whisker { y: f64, x: [f64; 2], class: &'static str },
    /// A straight line across the panel at one y, with a label at one of its ends.
    Rule { y: f64, class: &'static str, label: String },
    /// A straight line down the panel at one x.
    Drop {
        x: f64,
        class: &'static str,
        /// What it is, written at or near its top; may be empty.
        label: String,
    },
    /// Many points as one mark, each without a text of its own.
    Dots { at: Vec<(f64, f64)>, class: &'static str },
    /// Many straight strokes as one mark.
    Strokes { at: Vec<[(f64, f64); 2]>, class: &'static str },
    /// Many boxes as one mark.
    Boxes {
        /// Two opposite corners each.
        at: Vec<[(f64, f64); 2]>,
        class: &'static str,
    },
    /// The area between two lines over the same places: x, lower and upper y.
    Area {
        /// In ascending x.
        at: Vec<(f64, f64, f64)>,
        class: &'static str,
    },
    /// A text beside a place.
    Text {
        at: (f64, f64),
        /// Pixels to the right of and below it.
        offset: (f64, f64),
        class: &'static str,
        text: String,
    },
}

/// The scales of a panel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plane {
    pub x: Linear,
    pub y: Linear,
}

impl Plane {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }
}

impl Mark {
    /// The mark as SVG, without the label of a straight line.
    pub(super) fn svg(&self, plane: &Plane) -> Markup {
        let ([left, right], [bottom, top]) = (plane.x.range, plane.y.range);
        match self {
            Self::Line { points, class } => path(class, &line(points, plane)),
            Self::Step { points, class } => path(class, &step(points, plane)),
            Self::Point { at, shape, class, label } => point(plane.at(*at), *shape, class, label),
            Self::Band { x, y, class } => {
                let (x0, x1) = (plane.x.at(x[0]), plane.x.at(x[1]));
                let (y0, y1) = y.map_or((bottom, top), |y| (plane.y.at(y[0]), plane.y.at(y[1])));
                html! { rect class=(class) x=(px(x0.min(x1))) y=(px(y0.min(y1))) width=(px((x1 - x0).abs()))
                height=(px((y1 - y0).abs())) {} }
            }
            Self::Bar { y, value, class, label } => {
                let half = ((plane.y.at(1.0) - plane.y.at(0.0)).abs() * 0.3).min(9.0);
                let (x0, x1) = (plane.x.at(0.0), plane.x.at(*value));
                html! { rect class=(class) x=(px(x0)) y=(px(plane.y.at(*y) - half))
                    width=(px((x1 - x0).max(1.0)))
                height=(px(half * 2.0)) rx="2" { title { (label) } } }
            }
            Self::Whisker { y, x, class } => {
                let (x0, x1, y) = (plane.x.at(x[0]), plane.x.at(x[1]), plane.y.at(*y));
                let ends = [x0, x1].map(|x| format!("M{} {}v8", px(x), px(y - 4.0))).concat();
                path(class, &format!("M{} {}H{}{ends}", px(x0), px(y), px(x1)))
            }
            // The panel places their labels, all together.
            Self::Rule { y, class, .. } => {
                path(class, &format!("M{} {}H{}", px(left), px(plane.y.at(*y)), px(right)))
            }
            Self::Drop { x, class, .. } => {
                path(class, &format!("M{} {}V{}", px(plane.x.at(*x)), px(bottom), px(top)))
            }
            Self::Dots { at, class } => path(class, &strokes(at.iter().map(|&at| [at, at]), plane)),
            Self::Strokes { at, class } => path(class, &strokes(at.iter().copied(), plane)),
            Self::Boxes { at, class } => path(class, &boxes(at, plane)),
            Self::Area { at, class } => {
                let upper = at.iter().map(|&(x, _, high)| (x, high));
                let round = upper.chain(at.iter().rev().map(|&(x, low, _)| (x, low)));
                let points: Vec<_> = round.map(|(x, y)| (x, Some(y))).collect();
                path(class, &(line(&points, plane) + "z"))
            }
            Self::Text { at, offset, class, text } => {
                let (x, y) = plane.at(*at);
                html! { text class=(class) x=(px(x + offset.0)) y=(px(y + offset.1)) { (text) } }
            }
        }
    }
}

fn path(class: &str, d: &str) -> Markup {
    html! { path class=(class) d=(d) {} }
}

/// Path data of a line with breaks.
fn line(points: &[(f64, Option<f64>)], plane: &Plane) -> String {
    let (mut d, mut pen_down) = (String::new(), false);
    for &(x, y) in points {
        if let Some(y) = y {
            let (x, y) = plane.at((x, y));
            d += &format!("{}{} {}", if pen_down { "L" } else { "M" }, px(x), px(y));
        }
        pen_down = y.is_some();
    }
    d
}

/// Path data of a step line with breaks.
fn step(points: &[(f64, Option<f64>)], plane: &Plane) -> String {
    let (mut d, mut pen_down) = (String::new(), false);
    for &(x, y) in points {
        let at = px(plane.x.at(x));
        match (y.map(|y| px(plane.y.at(y))), pen_down) {
            (Some(y), false) => d += &format!("M{at} {y}"),
            (Some(y), true) => d += &format!("H{at}V{y}"),
            (None, true) => d += &format!("H{at}"),
            (None, false) => {}
        }
        pen_down = y.is_some();
    }
    d
}

/// Path data of single strokes; one without length is a dot where its ends are round.
fn strokes(ends: impl Iterator<Item = [(f64, f64); 2]>, plane: &Plane) -> String {
    let mut d = String::new();
    for [from, to] in ends {
        let ((x0, y0), (x1, y1)) = (plane.at(from), plane.at(to));
        d += &match y0 == y1 {
            true => format!("M{} {}H{}", px(x0), px(y0), px(x1)),
            false => format!("M{} {}L{} {}", px(x0), px(y0), px(x1), px(y1)),
        };
    }
    d
}

/// Path data of boxes.
fn boxes(corners: &[[(f64, f64); 2]], plane: &Plane) -> String {
    let mut d = String::new();
    for &[from, to] in corners {
        let ((x0, y0), (x1, y1)) = (plane.at(from), plane.at(to));
        d += &format!("M{} {}H{}V{}H{}z", px(x0), px(y0), px(x1), px(y1), px(x0));
    }
    d
}

fn point((x, y): (f64, f64), shape: Shape, class: &str, label: &str) -> Markup {
    let at = format!("{} {}", px(x), px(y));
    html! {
        @match shape {
            Shape::Circle => circle class=(class) cx=(px(x)) cy=(px(y)) r="4" { title { (label) } },
            Shape::Cross => path class=(class) d=(format!("M{at}m-4 -4l8 8m0 -8l-8 8")) { title { (label) } },
            Shape::Diamond => path class=(class)
                d=(format!("M{at}m0 -5l5 5l-5 5l-5 -5z")) { title { (label) } },
            Shape::Triangle => path class=(class) d=(format!("M{at}l-4 -7h8z")) { title { (label) } },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANE: Plane = Plane {
        x: Linear { domain: [0.0, 10.0], range: [0.0, 100.0] },
        y: Linear { domain: [0.0, 10.0], range: [100.0, 0.0] },
    };

    #[test]
    fn unknown_values_break_a_line_and_are_not_drawn_as_zero() {
        let points = [(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(4.0))];
        assert_eq!(line(&points, &PLANE), "M0 90L10 80M30 60");
        assert_eq!(step(&points, &PLANE), "M0 90H10V80H20M30 60");
    }

    #[test]
    fn hostile_labels_are_escaped() {
        let mark = Mark::Point {
            at: (1.0, 1.0),
            shape: Shape::Cross,
            class: "fail",
            label: "</title><script>".into(),
        };
        assert!(!mark.svg(&PLANE).into_string().contains("<script"));
    }
}
