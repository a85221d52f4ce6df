//! Panels of a figure, drawn to one SVG element.

use std::borrow::Cow;

use maud::{Markup, html};

use super::axis::Axis;
use super::labels;
use super::mark::{Mark, Plane, Shape};
use super::scale::{Linear, px};

/// Free space at the right of a panel, at least.
const MARGIN_PX: f64 = 12.0;
/// The widest that a figure of a tick is.
const DIGIT_PX: f64 = 7.7;

/// The width of a label of a tick, at most.
pub fn wide(label: &str) -> f64 {
    label.chars().count() as f64 * DIGIT_PX
}

/// Where a panel's plot area lies within the figure, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// One coordinate system with its marks.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    pub frame: Frame,
    pub x: Axis,
    pub y: Axis,
    /// Whether the horizontal axis is labelled (the lowest of stacked panels only).
    pub x_labels: bool,
    /// What lies behind the axes and their grid.
    pub backdrop: Vec<Mark>,
    /// What is drawn, the lowest first.
    pub marks: Vec<Mark>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Legend {
    pub class: &'static str,
    /// The form of a point; `None` for a line.
    pub shape: Option<Shape>,
    pub text: Cow<'static, str>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Unique within the page; letters, digits and dashes.
    pub id: String,
    pub width: f64,
    pub height: f64,
    /// Its name, for those who cannot see it.
    pub title: String,
    /// What is to be seen, for those who cannot see it.
    pub description: String,
    pub panels: Vec<Panel>,
    /// Its legend, drawn as text beneath.
    pub legend: Vec<Legend>,
}

impl Figure {
    /// The figure as an SVG element and its legend.
    pub fn svg(&self) -> Markup {
        html! { (self.picture()) (self.legend()) }
    }

    /// The SVG element without the legend.
    pub(super) fn picture(&self) -> Markup {
        let (title, description) = (format!("{}-t", self.id), format!("{}-d", self.id));
        html! {
            div.plot {
                svg viewBox=(format!("0 0 {} {}", px(self.width), px(self.height))) role="img"
                    aria-labelledby=(format!("{title} {description}"))
                    style=(format!("max-width:{}px", px(self.width))) {
                    title id=(title) { (self.title) }
                    desc id=(description) { (self.description) }
                    @for panel in &self.panels { (panel.svg()) }
                }
            }
        }
    }

    pub(super) fn legend(&self) -> Markup {
        if self.legend.is_empty() {
            html! {}
        } else {
            legend(&self.legend)
        }
    }
}

/// A legend by itself, for several figures that share one.
pub fn legend(entries: &[Legend]) -> Markup {
    // The same is in the text and in each figure's description.
    html! { ul.legend aria-hidden="true" { @for entry in entries { li { (entry.svg()) (entry.text) } } } }
}

/// Whether marks of these class names have an area, so that a line would not be known again.
fn is_area(class: &str) -> bool {
    ["band", "area", "heat"].iter().any(|word| class.contains(word))
}

impl Legend {
    fn svg(&self) -> Markup {
        let plane = Plane {
            x: Linear { domain: [0.0, 1.0], range: [1.0, 23.0] },
            y: Linear { domain: [0.0, 1.0], range: [6.0, 6.0] },
        };
        let mark = match self.shape {
            Some(shape) => {
                // A triangle hangs above its point.
                Mark::Point { at: (0.5, 0.0), shape, class: self.class, label: String::new() }
            }
            None if is_area(self.class) => Mark::Band { x: [0.0, 1.0], y: None, class: self.class },
            None => Mark::Line { points: vec![(0.0, Some(0.0)), (1.0, Some(0.0))], class: self.class },
        };
        let plane = match (&mark, self.shape) {
            (Mark::Band { .. }, _) => Plane { y: Linear { range: [11.0, 1.0], ..plane.y }, ..plane },
            (_, Some(Shape::Triangle)) => Plane { y: Linear { range: [10.0, 10.0], ..plane.y }, ..plane },
            _ => plane,
        };
        html! { svg width="24" height="12" viewBox="0 0 24 12" { (mark.svg(&plane)) } }
    }
}

impl Panel {
    fn plane(&self) -> Plane {
        let Frame { left, top, width, height } = self.frame;
        Plane {
            x: Linear { domain: self.x.domain, range: [left, left + width] },
            y: Linear { domain: self.y.domain, range: [top + height, top] },
        }
    }

    fn svg(&self) -> Markup {
        let plane = self.plane();
        let title = (self.y.title.as_str(), self.frame.top - self.lift());
        let labels = labels::placed(&self.marks, &plane, title);
        html! {
            g.panel data-x=(self.x.read(&plane.x)) data-y=(self.y.read(&plane.y)) data-xtitle=(self.x.title)
                data-ytitle=(self.y.title) {
                @for mark in &self.backdrop { (mark.svg(&plane)) }
                (self.y_axis(&plane))
                (self.x_axis(&plane))
                @for (mark, label) in self.marks.iter().zip(&labels) { (mark.svg(&plane)) (label) }
            }
        }
    }

    /// How far above the plot area the title of the vertical axis stands.
    fn lift(&self) -> f64 {
        // Labels of drops are written above the plot area, where the title would stand.
        let labelled = |mark: &Mark| matches!(mark, Mark::Drop { label, .. } if !label.is_empty());
        if self.marks.iter().any(labelled) { 22.0 } else { 8.0 }
    }

    fn y_axis(&self, plane: &Plane) -> Markup {
        let Frame { left, top, width, .. } = self.frame;
        html! {
            @for tick in &self.y.ticks {
                @let y = plane.y.at(tick.at);
                @if self.y.grid { path.grid d=(format!("M{} {}h{}", px(left), px(y), px(width))) {} }
                text.tick x=(px(left - 7.0)) y=(px(y + 3.5)) text-anchor="end" { (tick.label) }
            }
            @if !self.y.title.is_empty() {
                text.axis x=(px(left)) y=(px(top - self.lift())) { (self.y.title) }
            }
        }
    }

    fn x_axis(&self, plane: &Plane) -> Markup {
        let Frame { left, top, width, height } = self.frame;
        let bottom = top + height;
        html! {
            path.base d=(format!("M{} {}h{}", px(left), px(bottom), px(width))) {}
            @if self.x_labels {
                @for tick in &self.x.ticks {
                    @let x = plane.x.at(tick.at);
                    path.base d=(format!("M{} {}v4", px(x), px(bottom))) {}
                    // A label at the right end stays within the figure.
                    @let middle = x.min(left + width + MARGIN_PX - wide(&tick.label) / 2.0);
                    text.tick x=(px(middle)) y=(px(bottom + 16.0)) text-anchor="middle" { (tick.label) }
                }
                @if !self.x.title.is_empty() {
                    text.axis x=(px(left + width)) y=(px(bottom + 32.0)) text-anchor="end" { (self.x.title) }
                }
            }
        }
    }
}
