//! The picture before it is coded: a mosaic of flat blocks.
//!
//! Both coders code a picture without loss when every luma value is a multiple of 4 and every chroma value is
//! even (see `h264`), so the colours here are rounded to that.

use super::font::{self, GLYPH_COLUMNS, GLYPH_ROWS};

/// A colour as Y'CbCr after ITU-R BT.709, limited range: luma a multiple of 4, chroma even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Colour {
    pub(super) luma: u8,
    pub(super) cb: u8,
    pub(super) cr: u8,
}

impl Colour {
    pub(super) const fn grey(luma: u8) -> Self {
        Self { luma, cb: 128, cr: 128 }
    }
}

/// What a macroblock of 16x16 pixels shows: four flat luma blocks in reading order, one colour for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Macroblock {
    pub(super) luma: [u8; 4],
    pub(super) cb: u8,
    pub(super) cr: u8,
}

/// A rectangle in blocks of 8x8 pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// A picture in blocks of 8x8 pixels, kept by macroblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Canvas {
    mb_columns: usize,
    mb_rows: usize,
    macroblocks: Vec<Macroblock>,
}

impl Canvas {
    /// A canvas that covers `width` x `height` pixels, all in one colour.
    pub(super) fn new(width: u32, height: u32, colour: Colour) -> Self {
        let (mb_columns, mb_rows) = (width.div_ceil(16) as usize, height.div_ceil(16) as usize);
        let flat = Macroblock { luma: [colour.luma; 4], cb: colour.cb, cr: colour.cr };
        Self { mb_columns, mb_rows, macroblocks: vec![flat; mb_columns * mb_rows] }
    }

    pub(super) fn mb_rows(&self) -> usize {
        self.mb_rows
    }

    /// The macroblocks of row `row`, left to right.
    pub(super) fn row(&self, row: usize) -> &[Macroblock] {
        &self.macroblocks[row * self.mb_columns..][..self.mb_columns]
    }

    /// Paints one block. Its chroma is that of the whole macroblock. Outside the picture nothing happens.
    pub(super) fn set(&mut self, x: usize, y: usize, colour: Colour) {
        if x / 2 >= self.mb_columns || y / 2 >= self.mb_rows {
            return;
        }
        let mb = &mut self.macroblocks[y / 2 * self.mb_columns + x / 2];
        mb.luma[y % 2 * 2 + x % 2] = colour.luma;
        (mb.cb, mb.cr) = (colour.cb, colour.cr);
    }

    pub(super) fn fill(&mut self, area: Area, colour: Colour) {
        for y in area.y..area.y + area.height {
            for x in area.x..area.x + area.width {
                self.set(x, y, colour);
            }
        }
    }

    /// Writes `text` with its upper left corner at block (`x`, `y`), each dot `scale` blocks wide and high.
    pub(super) fn text(&mut self, x: usize, y: usize, scale: usize, colour: Colour, text: &str) {
        for (i, glyph) in text.chars().map(font::glyph).enumerate() {
            let left = x + i * (GLYPH_COLUMNS + 1) * scale;
            for (row, dots) in glyph.iter().enumerate() {
                for column in (0..GLYPH_COLUMNS).filter(|c| dots >> (GLYPH_COLUMNS - 1 - c) & 1 == 1) {
                    let dot =
                        Area { x: left + column * scale, y: y + row * scale, width: scale, height: scale };
                    self.fill(dot, colour);
                }
            }
        }
    }
}

pub(super) fn text_width(text: &str, scale: usize) -> usize {
    (text.chars().count() * (GLYPH_COLUMNS + 1)).saturating_sub(1) * scale
}

/// The height of a line in blocks.
pub(super) fn text_height(scale: usize) -> usize {
    GLYPH_ROWS * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_quarters_of_macroblocks() {
        let mut canvas = Canvas::new(64, 50, Colour::grey(16));
        assert_eq!((canvas.mb_columns, canvas.mb_rows()), (4, 4));
        canvas.set(3, 2, Colour { luma: 200, cb: 90, cr: 100 });
        canvas.set(8, 0, Colour::grey(40));
        canvas.set(0, 8, Colour::grey(40));
        assert_eq!(canvas.row(1)[1], Macroblock { luma: [16, 200, 16, 16], cb: 90, cr: 100 });
        let changed = (0..4).flat_map(|r| canvas.row(r)).filter(|m| m.luma != [16; 4]).count();
        assert_eq!(changed, 1);
    }

    #[test]
    fn text_is_painted() {
        let mut canvas = Canvas::new(64, 64, Colour::grey(16));
        canvas.text(0, 0, 1, Colour::grey(236), ":");
        let lit: u32 = (0..4)
            .flat_map(|r| canvas.row(r).to_vec())
            .map(|m| m.luma.iter().filter(|&&l| l == 236).count() as u32)
            .sum();
        assert_eq!(lit, font::glyph(':').iter().map(|r| r.count_ones()).sum::<u32>());
        assert_eq!((text_width("00", 2), text_height(3)), (22, 21));
    }
}
