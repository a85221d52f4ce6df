//! Charts as SVG inside an HTML page, coloured by the page's style sheet, so that the same
//! figure serves light, dark and print.
//!
//! Marks carry class names, never colours: `s1`..`s6` are the series colours (Okabe and Ito 2008,
//! distinguishable for the colour-blind), `pass`, `fail` and `invalid` also differ in shape. Coordinates are
//! in CSS pixels of the figure's own width.

mod axis;
mod figure;
mod labels;
mod mark;
mod scale;
mod screen;
mod series;

pub use axis::{Axis, Reading, Tick};
pub use figure::{Figure, Frame, Legend, Panel, legend, wide};
pub use mark::{Mark, Shape};
pub use scale::{Linear, ticks};
pub use screen::{Screen, for_screens, on_screens};
pub use series::thinned;
