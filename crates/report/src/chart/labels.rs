//! Where the labels of straight lines stand, so that none is written over another.

use maud::{Markup, html};

use super::mark::{Mark, Plane};
use super::scale::px;

/// The usual width of a letter.
const LETTER_PX: f64 = 6.5;
/// From the top of a label's letters to its base line, and below it.
const ABOVE_PX: f64 = 10.0;
const BELOW_PX: f64 = 3.0;
/// Between a label and the line that it is of, or the one above it.
const APART_PX: f64 = 4.0;
const LINE_PX: f64 = 14.0;
/// Half the size of a point.
const POINT_PX: f64 = 5.0;
/// Lines of labels that are tried within a panel.
const ROWS: u32 = 5;

/// Left, top, right and bottom of what is taken, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Room {
    x: [f64; 2],
    y: [f64; 2],
}

impl Room {
    fn meets(&self, other: &Self) -> bool {
        let meet = |a: [f64; 2], b: [f64; 2]| a[0] < b[1] && b[0] < a[1];
        meet(self.x, other.x) && meet(self.y, other.y)
    }
}

/// Which end or middle of a label lies at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// Where a label is written: its base line, and which part of it lies there.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    x: f64,
    y: f64,
    anchor: Anchor,
}

impl Place {
    fn room(&self, label: &str) -> Room {
        let wide = width(label);
        let left = match self.anchor {
            Anchor::Start => self.x,
            Anchor::Middle => self.x - wide / 2.0,
            Anchor::End => self.x - wide,
        };
        Room { x: [left, left + wide], y: [self.y - ABOVE_PX, self.y + BELOW_PX] }
    }

    fn svg(&self, label: &str) -> Markup {
        let anchor = match self.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        html! { text class="note" x=(px(self.x)) y=(px(self.y)) text-anchor=(anchor) { (label) } }
    }
}

fn width(label: &str) -> f64 {
    label.chars().count() as f64 * LETTER_PX
}

/// The label of each mark, in the marks' order: empty for one without. `title` stands at the left, with its
/// base line at this height.
pub(super) fn placed(marks: &[Mark], plane: &Plane, title: (&str, f64)) -> Vec<Markup> {
    let left = plane.x.range[0];
    let Room { x: [from, to], y } = Place { x: left, y: title.1, anchor: Anchor::Start }.room(title.0);
    // It is written in bold.
    let mut taken = vec![Room { x: [from, from + (to - from) * 1.2], y }];
    taken.extend(marks.iter().filter_map(|mark| text_room(mark, plane)));
    let mut found = vec![html! {}; marks.len()];
    // What stands above the panel has least choice.
    let is_drop = |mark: &Mark| matches!(mark, Mark::Drop { .. });
    let order = |drops: bool| marks.iter().enumerate().filter(move |(_, mark)| is_drop(mark) == drops);
    for (at, mark) in order(true).chain(order(false)) {
        let (label, places) = match mark {
            Mark::Drop { x, label, .. } => (label, of_drop(plane.x.at(*x), label, plane)),
            Mark::Rule { y, label, .. } => (label, of_rule(plane.y.at(*y), plane)),
            _ => continue,
        };
        if label.is_empty() {
            continue;
        }
        let labels = |room: &Room| taken.iter().filter(|taken| taken.meets(room)).count();
        let others = || marks.iter().enumerate().filter(|(other, _)| *other != at);
        let drawn = |room: &Room| others().filter(|(_, mark)| runs_through(mark, room, plane)).count();
        // A label across a line can be read, one across another cannot.
        let worst = |place: &Place| {
            let room = place.room(label);
            (labels(&room), drawn(&room))
        };
        let Some(best) = places.into_iter().min_by_key(|place| worst(place)) else { continue };
        taken.push(best.room(label));
        found[at] = best.svg(label);
    }
    found
}

fn text_room(mark: &Mark, plane: &Plane) -> Option<Room> {
    let Mark::Text { at, offset, text, .. } = mark else { return None };
    let (x, y) = (plane.x.at(at.0) + offset.0, plane.y.at(at.1) + offset.1);
    Some(Place { x, y, anchor: Anchor::Start }.room(text))
}

/// Whether a line or a point would be drawn within the room.
fn runs_through(mark: &Mark, room: &Room, plane: &Plane) -> bool {
    let ([left, right], [bottom, top]) = (plane.x.range, plane.y.range);
    let around = |at: f64, px: f64| [at - px, at + px];
    let point = |&(x, y): &(f64, f64), px| {
        Room { x: around(plane.x.at(x), px), y: around(plane.y.at(y), px) }.meets(room)
    };
    match mark {
        Mark::Rule { y, .. } => Room { x: [left, right], y: around(plane.y.at(*y), 1.0) }.meets(room),
        Mark::Drop { x, .. } => Room { x: around(plane.x.at(*x), 1.0), y: [top, bottom] }.meets(room),
        Mark::Point { at, .. } => point(at, POINT_PX),
        Mark::Dots { at, .. } => at.iter().any(|at| point(at, 2.0)),
        Mark::Line { points, .. } => segments(points, plane).any(|[from, to]| crosses(from, to, room)),
        Mark::Step { points, .. } => segments(points, plane).any(|[from, to]| {
            let corner = (to.0, from.1);
            crosses(from, corner, room) || crosses(corner, to, room)
        }),
        _ => false,
    }
}

/// The parts of a line from point to point, in pixels.
fn segments(points: &[(f64, Option<f64>)], plane: &Plane) -> impl Iterator<Item = [(f64, f64); 2]> {
    let place = |(x, y): (f64, Option<f64>)| Some((plane.x.at(x), plane.y.at(y?)));
    points.windows(2).filter_map(move |pair| Some([place(pair[0])?, place(pair[1])?]))
}

fn crosses(from: (f64, f64), to: (f64, f64), room: &Room) -> bool {
    let ((x0, y0), (x1, y1)) = if from.0 <= to.0 { (from, to) } else { (to, from) };
    let within = [x0.max(room.x[0]), x1.min(room.x[1])];
    if within[0] > within[1] {
        return false;
    }
    let height = |x: f64| if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y0 };
    let [one, other] = if x1 > x0 { within.map(height) } else { [y0, y1] };
    one.min(other) < room.y[1] && one.max(other) > room.y[0]
}

/// Over the line's upper end, or beside it within the panel, the best first.
fn of_drop(x: f64, label: &str, plane: &Plane) -> Vec<Place> {
    let ([left, right], top) = (plane.x.range, plane.y.range[1]);
    let mut places =
        vec![Place { x: within(x, label, [left, right]), y: top - APART_PX, anchor: Anchor::Middle }];
    for row in 1..=ROWS {
        let y = top + f64::from(row) * LINE_PX;
        let after = Place { x: x + APART_PX, y, anchor: Anchor::Start };
        let before = Place { x: x - APART_PX, y, anchor: Anchor::End };
        let fits = |place: &Place| {
            let room = place.room(label);
            room.x[0] >= left && room.x[1] <= right
        };
        places.extend([after, before].into_iter().filter(fits));
    }
    places
}

/// Above or below the line, at its right or its left end, the best first.
fn of_rule(y: f64, plane: &Plane) -> Vec<Place> {
    let ([left, right], [bottom, _]) = (plane.x.range, plane.y.range);
    let (above, below) = (y - APART_PX, y + ABOVE_PX + APART_PX);
    let ends = [(right - APART_PX, Anchor::End), (left + APART_PX, Anchor::Start)];
    let places = ends.into_iter().flat_map(|(x, anchor)| [above, below].map(|y| Place { x, y, anchor }));
    places.filter(|place| place.y + BELOW_PX <= bottom).collect()
}

/// Where the middle of a label may lie so that it stays over the panel, by the usual width of its letters.
fn within(x: f64, label: &str, [left, right]: [f64; 2]) -> f64 {
    let half = width(label) / 2.0;
    if right - left <= half * 2.0 { (left + right) / 2.0 } else { x.clamp(left + half, right - half) }
}

#[cfg(test)]
mod tests {
    use super::super::mark::Shape;
    use super::super::scale::Linear;
    use super::*;

    const PLANE: Plane = Plane {
        x: Linear { domain: [0.0, 100.0], range: [0.0, 400.0] },
        y: Linear { domain: [0.0, 100.0], range: [200.0, 0.0] },
    };

    fn rule(y: f64, label: &str) -> Mark {
        Mark::Rule { y, class: "meets", label: label.to_owned() }
    }

    fn drop_at(x: f64, label: &str) -> Mark {
        Mark::Drop { x, class: "meets", label: label.to_owned() }
    }

    fn texts(marks: &[Mark]) -> Vec<String> {
        placed(marks, &PLANE, ("Goodput (Mbit/s)", -22.0))
            .into_iter()
            .map(maud::PreEscaped::into_string)
            .collect()
    }

    fn number(text: &str, name: &str) -> f64 {
        text.split(&format!(" {name}=\""))
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn label_stays_within_its_panel() {
        let label = "97 predicted";
        assert_eq!([0.0, 200.0, 400.0].map(|x| within(x, label, [0.0, 400.0])), [39.0, 200.0, 361.0]);
        assert_eq!(within(9.0, label, [0.0, 10.0]), 5.0, "a panel narrower than its label");
    }

    #[test]
    fn single_label_has_its_default_position() {
        let found = texts(&[rule(50.0, "ceiling"), drop_at(30.0, ""), drop_at(50.0, "")]);
        assert_eq!((number(&found[0], "x"), number(&found[0], "y")), (396.0, 96.0));
        assert_eq!(found[1..], ["", ""]);
        let found = texts(&[drop_at(50.0, "cliff")]);
        assert_eq!((number(&found[0], "x"), number(&found[0], "y")), (200.0, -4.0));
    }

    #[test]
    fn no_label_is_written_over_another() {
        let found = texts(&[rule(100.0, "link"), drop_at(97.0, "predicted cliff: 72")]);
        assert_eq!(number(&found[1], "y"), -4.0, "over its line's end");
        assert!(number(&found[0], "y") > 10.0 || number(&found[0], "x") < 100.0, "{found:?}");
        let found =
            texts(&[drop_at(50.0, "taken: 48"), drop_at(51.0, "taken: 49"), drop_at(52.0, "taken: 50")]);
        let heights: Vec<f64> = found.iter().map(|text| number(text, "y")).collect();
        assert!(heights[0] < heights[1], "{heights:?}");
        assert!(
            heights[1] != heights[2] || found[1].contains("start") != found[2].contains("start"),
            "{found:?}"
        );
    }

    #[test]
    fn label_of_a_rule_avoids_points_and_lines() {
        let at_the_end =
            |x: f64| Mark::Point { at: (x, 50.0), shape: Shape::Circle, class: "pass", label: String::new() };
        let place = |other: Mark| {
            let found = texts(&[rule(50.0, "capacity 50"), other]);
            (number(&found[0], "x") > 200.0, number(&found[0], "y") < 100.0)
        };
        assert_eq!(place(at_the_end(1.0)), (true, true));
        assert_eq!(place(at_the_end(97.0)), (false, true), "to the left end");
        let slope = |from: f64, to: f64| Mark::Line {
            points: vec![(0.0, Some(from)), (100.0, Some(to))],
            class: "fit",
        };
        assert_eq!(place(slope(52.0, 52.0)), (true, false), "below the rule");
        assert_eq!(place(slope(0.0, 53.0)), (false, true), "it runs through both places at the right end");
        assert_eq!(place(slope(0.0, 20.0)), (true, true));
    }

    #[test]
    fn rule_near_the_bottom_is_labelled_above() {
        let found = texts(&[rule(1.0, "least")]);
        assert!(number(&found[0], "y") < 198.0, "{found:?}");
    }

    #[test]
    fn hostile_labels_are_escaped() {
        assert!(!texts(&[rule(1.0, "</text><script>")])[0].contains("<script"));
    }
}
