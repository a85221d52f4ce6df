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
    let mut taken = vec![Place { x: left, y: title.1, anchor: Anchor::Start }.room(title.0)];
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
        let lines: Vec<Room> = marks
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .filter_map(|(_, mark)| line_room(mark, plane))
            .collect();
        let meets = |place: &Place, rooms: &[Room]| {
            let room = place.room(label);
            rooms.iter().filter(|taken| taken.meets(&room)).count()
        };
        // A label across a line can be read, one across another cannot.
        let worst = |place: &Place| (meets(place, &taken), meets(place, &lines));
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

/// The room of a straight line across or down the panel.
fn line_room(mark: &Mark, plane: &Plane) -> Option<Room> {
    let ([left, right], [bottom, top]) = (plane.x.range, plane.y.range);
    let thin = |at: f64| [at - 1.0, at + 1.0];
    match mark {
        Mark::Rule { y, .. } => Some(Room { x: [left, right], y: thin(plane.y.at(*y)) }),
        Mark::Drop { x, .. } => Some(Room { x: thin(plane.x.at(*x)), y: [top, bottom] }),
        _ => None,
    }
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
    fn rule_near_the_bottom_is_labelled_above() {
        let found = texts(&[rule(1.0, "least")]);
        assert!(number(&found[0], "y") < 198.0, "{found:?}");
    }

    #[test]
    fn hostile_labels_are_escaped() {
        assert!(!texts(&[rule(1.0, "</text><script>")])[0].contains("<script"));
    }
}
