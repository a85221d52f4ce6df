//! The shape of a set's tree: which directories there are, and where each file lies.

use fastrand::Rng;
use wml::{Distribution, Fileset, Law, Number};

/// Deeper trees would pass the longest path (PATH_MAX).
const DEPTH_MAX: u32 = 200;
/// From so many directories on, each gets files.
const DIRS_MAX: usize = 1 << 26;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dir {
    /// `None`: the root of the set.
    pub parent: Option<u32>,
    /// Its name, as a number.
    pub serial: u32,
}

/// A place in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub dir: u32,
    pub serial: u32,
}

#[derive(Debug, Default, PartialEq)]
pub struct Layout {
    /// The first is the root; parents stand before their children.
    pub dirs: Vec<Dir>,
    pub files: Vec<Place>,
    /// Places of directories that flowops make and remove.
    pub leaf_dirs: Vec<Place>,
    /// Size of each file.
    pub sizes: Vec<u64>,
    /// Whether each file, then each leaf directory, exists at the beginning.
    pub exists: Vec<bool>,
}

struct Shape<'a> {
    width: Number,
    depth: Number,
    set: &'a Fileset,
}

impl Layout {
    /// The same for the same set and seed.
    pub fn new(set: &Fileset, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut layout = Self { dirs: vec![Dir { parent: None, serial: 0 }], ..Self::default() };
        let (entries, leaf_dirs) = (set.entries as usize, set.leaf_dirs as usize);
        layout.files.reserve_exact(entries);
        match Shape::of(set) {
            None => {
                let place = |serial: usize| Place { dir: 0, serial: serial as u32 };
                layout.files.extend((1..=entries).map(place));
                layout.leaf_dirs.extend((entries + 1..=entries + leaf_dirs).map(place));
            }
            Some(shape) => shape.grow(&mut layout, &mut rng),
        }
        layout.sizes = (0..entries).map(|_| set.size.draw(&mut rng)).collect();
        let exists = (0..entries + leaf_dirs).map(|_| rng.u64(0..100) < set.prealloc_percent);
        layout.exists = exists.collect();
        layout
    }
}

impl<'a> Shape<'a> {
    /// `None`: all files lie in one directory.
    fn of(set: &'a Fileset) -> Option<Self> {
        let mean_width = match &set.dir_width {
            Number::Constant(0 | 1) => return None,
            Number::Constant(width) => *width as f64,
            // Only the depth is computed from it.
            Number::Random(_) => 20.0,
        };
        let gamma = |mean: f64| match set.dir_gamma {
            0 => Number::Constant(mean as u64),
            thousandths => {
                let shape = thousandths as f64 / 1000.0;
                let law = Law::Gamma { low: 0.0, shape, scale: mean / shape };
                Number::Random(Box::new(Distribution { law, round: 0, min: 0, max: None }))
            }
        };
        let width = match &set.dir_width {
            Number::Constant(_) => gamma(mean_width),
            random => random.clone(),
        };
        let mean_depth = ((set.entries + set.leaf_dirs).max(1) as f64).ln() / mean_width.ln();
        Some(Self { width, depth: set.dir_depth.clone().unwrap_or_else(|| gamma(mean_depth)), set })
    }

    /// Adds directories until every file and leaf directory has a place.
    fn grow(&self, layout: &mut Layout, rng: &mut Rng) {
        let (entries, leaf_dirs) = (self.set.entries as usize, self.set.leaf_dirs as usize);
        let mut serial = 0;
        while layout.files.len() < entries || layout.leaf_dirs.len() < leaf_dirs {
            serial += 1;
            // A directory, its level, and how many children it still gets.
            let mut open: Vec<(u32, u32, u64, u32)> = Vec::new();
            self.add(layout, rng, &mut open, Dir { parent: Some(0), serial }, 1);
            while let Some((dir, level, left, last)) = open.pop() {
                let is_done = layout.files.len() >= entries && layout.leaf_dirs.len() >= leaf_dirs;
                if left == 0 || is_done {
                    continue;
                }
                open.push((dir, level, left - 1, last + 1));
                self.add(layout, rng, &mut open, Dir { parent: Some(dir), serial: last + 1 }, level + 1);
            }
        }
    }

    /// Adds a directory: one with files, or one that gets directories.
    fn add(
        &self,
        layout: &mut Layout,
        rng: &mut Rng,
        open: &mut Vec<(u32, u32, u64, u32)>,
        dir: Dir,
        level: u32,
    ) {
        let number = layout.dirs.len() as u32;
        layout.dirs.push(dir);
        let width = self.width.draw(rng).max(1);
        if u64::from(level) < self.depth.draw(rng) && level < DEPTH_MAX && layout.dirs.len() < DIRS_MAX {
            open.push((number, level, width, 0));
            return;
        }
        let place = |serial: u64| Place { dir: number, serial: serial as u32 };
        let missing = |all: u64, made: usize| width.min(all - made as u64);
        let files = missing(self.set.entries, layout.files.len());
        layout.files.extend((1..=files).map(place));
        let leaf_dirs = missing(self.set.leaf_dirs, layout.leaf_dirs.len());
        layout.leaf_dirs.extend((files + 1..=files + leaf_dirs).map(place));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn set(entries: u64, width: u64, gamma: u64) -> Fileset {
        let text = format!(
            "define fileset name=a,size=16k,entries={entries},dirwidth={width},dirgamma={gamma},prealloc=80"
        );
        let commands = wml::syntax::parse("a.f", &text).unwrap();
        let nothing = |_: &str| None;
        let evaluation = wml::Evaluation { presets: Vec::new(), overrides: Vec::new(), load: &nothing };
        wml::Program::evaluate("a.f", &commands, &evaluation).unwrap().filesets.remove(0)
    }

    #[test]
    fn every_file_has_its_own_place_in_a_known_directory() {
        for (entries, width, gamma) in [(1, 0, 1500), (1000, 20, 1500), (1000, 20, 0), (500, 1_000_000, 1500)]
        {
            let layout = Layout::new(&set(entries, width, gamma), 3);
            let places: BTreeSet<(u32, u32)> =
                layout.files.iter().map(|place| (place.dir, place.serial)).collect();
            assert_eq!(
                (places.len() as u64, layout.sizes.len() as u64),
                (entries, entries),
                "{width} {gamma}"
            );
            assert!(layout.files.iter().all(|place| (place.dir as usize) < layout.dirs.len()));
            let is_parent_before =
                |(at, dir): (usize, &Dir)| dir.parent.is_none_or(|parent| (parent as usize) < at);
            assert!(layout.dirs.iter().enumerate().all(is_parent_before));
        }
    }

    #[test]
    fn mean_width_and_preallocation_are_as_asked() {
        let layout = Layout::new(&set(20_000, 20, 1500), 5);
        let leaves: BTreeSet<u32> = layout.files.iter().map(|place| place.dir).collect();
        let width = 20_000.0 / leaves.len() as f64;
        assert!((15.0..28.0).contains(&width), "{width} files a directory");
        let existing = layout.exists.iter().filter(|exists| **exists).count();
        assert!((15_600..16_400).contains(&existing), "{existing}");
        assert_eq!(layout, Layout::new(&set(20_000, 20, 1500), 5), "a seed repeats it");
        assert_ne!(layout, Layout::new(&set(20_000, 20, 1500), 6));
    }

    #[test]
    fn even_tree_without_gamma_has_equal_directories() {
        let layout = Layout::new(&set(1000, 10, 0), 1);
        let of_dir = |dir: u32| layout.files.iter().filter(|place| place.dir == dir).count();
        let counts: BTreeSet<usize> =
            (0..layout.dirs.len() as u32).map(of_dir).filter(|files| *files > 0).collect();
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [10]);
    }
}
