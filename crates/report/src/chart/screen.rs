//! Wide figures are drawn twice, for wide and for narrow screens: scaled down, no label could be read.

use maud::{Markup, html};

use super::Figure;

/// The screen that a figure is drawn for; the page's style sheet shows the one that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    Wide,
    Narrow,
}

impl Screen {
    /// What applies to this screen.
    pub const fn pick<T: Copy>(self, wide: T, narrow: T) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }

    /// Width of a figure, in pixels.
    pub const fn width(self) -> f64 {
        self.pick(960.0, 400.0)
    }
}

/// A figure for each screen, and its legend once.
pub fn for_screens(draw: impl Fn(Screen) -> Figure) -> Markup {
    on_screens(&draw(Screen::Wide), draw(Screen::Narrow))
}

/// The same of figures that are drawn.
pub fn on_screens(wide: &Figure, mut narrow: Figure) -> Markup {
    narrow.id += "-narrow";
    html! {
        div.wide { (wide.picture()) }
        div.narrow { (narrow.picture()) }
        (wide.legend())
    }
}
