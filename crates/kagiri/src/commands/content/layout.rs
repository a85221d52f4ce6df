//! `kagiri content layout`: where files lie on their disk.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use base::format::{UNKNOWN, number, plural, quantity};
use clap::Args;
use serde_json::{Value, json};
use sys::disk::{Extent, extents};

use super::pool_folder::{self, PoolFileLayout};
use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// Files that are looked at.
const FILES_MAX: usize = 100_000;
/// Rows of the table; the answer fits 15 lines.
const ROWS_MAX: usize = 10;
const MIB: f64 = 1_048_576.0;

/// Show in how many pieces files lie on their disk: each jump from one to the next costs a rotating disk a
/// seek.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri content layout film.ts\n  \
    kagiri content layout films/ --json\n\n\
    Read from the file system (FIEMAP); pieces that follow each other on the disk count as one.\n\
    Files in the segment pool of a served directory are shown under the names by which they are served.")]
pub struct Layout {
    /// File, or directory with all files below it
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Print one JSON document with every file
    #[arg(long)]
    json: bool,
}

struct FileLayout {
    path: PathBuf,
    bytes: u64,
    /// `None`: the file system does not say.
    extents: Option<Vec<Extent>>,
}

impl FileLayout {
    fn in_pool(path: PathBuf, layout: PoolFileLayout) -> Self {
        Self { path, bytes: layout.bytes, extents: layout.extents }
    }

    fn pieces(&self) -> Option<u64> {
        self.extents.as_ref().map(|extents| extents.len() as u64)
    }

    fn pieces_per_mib(&self) -> Option<f64> {
        self.pieces().filter(|_| self.bytes > 0).map(|pieces| pieces as f64 / (self.bytes as f64 / MIB))
    }

    fn largest_bytes(&self) -> Option<u64> {
        self.extents.as_ref()?.iter().map(|extent| extent.len_bytes).max()
    }

    fn json(&self) -> Value {
        json!({
            "path": self.path,
            "bytes": self.bytes,
            "extents": self.pieces(),
            "extents_per_mib": self.pieces_per_mib(),
            "largest_extent_bytes": self.largest_bytes(),
        })
    }

    fn row(&self) -> Vec<String> {
        let known = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), number);
        vec![
            self.path.display().to_string(),
            quantity(Some(self.bytes as f64), "B"),
            known(self.pieces().map(|pieces| pieces as f64)),
            known(self.pieces_per_mib()),
            quantity(self.largest_bytes().map(|bytes| bytes as f64), "B"),
        ]
    }
}

impl Layout {
    pub fn run(self) -> Outcome {
        let mut files = self.files()?;
        // The most scattered in front; what is unknown comes last.
        files.sort_by(|a, b| {
            b.pieces_per_mib().partial_cmp(&a.pieces_per_mib()).unwrap_or(std::cmp::Ordering::Equal)
        });
        if self.json {
            let all: Vec<_> = files.iter().map(FileLayout::json).collect();
            let document = json!({ "schema": 1, "files": all });
            output::print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
            return Ok(Code::Measured);
        }
        output::print(&answer(&self.path, &files))?;
        Ok(Code::Measured)
    }
}

impl Layout {
    fn files(&self) -> Result<Vec<FileLayout>, Failure> {
        let (mut found, mut dirs_with_pool) = (Vec::new(), Vec::new());
        let metadata = std::fs::symlink_metadata(&self.path);
        let is_dir = metadata.as_ref().is_ok_and(std::fs::Metadata::is_dir);
        if is_dir {
            files_below(&self.path, &mut found, &mut dirs_with_pool)?;
        } else {
            found.push(self.path.clone());
        }
        let mut pooled = Vec::new();
        for dir in dirs_with_pool {
            let layouts = pool_folder::layouts(&dir, |_| true)?;
            pooled.extend(
                layouts.into_iter().map(|layout| FileLayout::in_pool(dir.join(&layout.name), layout)),
            );
        }
        // The pool of a directory above, or that of the directory which has the file.
        if let Some((dir, name)) =
            pool_folder::directory_with_pool(&self.path).filter(|(_, name)| !name.is_empty())
        {
            let below = format!("{name}/");
            for layout in pool_folder::layouts(&dir, |other| other == name || other.starts_with(&below))? {
                let path = layout.name.strip_prefix(&below).map(|rest| self.path.join(rest));
                pooled.push(FileLayout::in_pool(path.unwrap_or_else(|| self.path.clone()), layout));
            }
        }
        if pooled.is_empty() {
            metadata.map_err(|error| {
                Failure::usage(format!(
                    "cannot look at {}: {error}; name a file or a directory",
                    self.path.display()
                ))
            })?;
        }
        // What is in both is served from the pool.
        let hidden: HashSet<_> = pooled.iter().map(|file| file.path.clone()).collect();
        let is_missing = |path: &Path| !is_dir && !pooled.is_empty() && !path.exists();
        found.retain(|path| !hidden.contains(path) && !is_missing(path));
        let plain = found.into_iter().map(layout_of).collect::<Result<Vec<_>, Failure>>()?;
        Ok(plain.into_iter().chain(pooled).collect())
    }
}

fn layout_of(path: PathBuf) -> Result<FileLayout, Failure> {
    let problem = |error: &dyn std::fmt::Display| {
        Failure::runtime(format!("cannot look at {}: {error}", path.display()))
    };
    let metadata = std::fs::metadata(&path).map_err(|error| problem(&error))?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!(
            "{} is no regular file; name a file or a directory",
            path.display()
        )));
    }
    let extents = extents(&path).map_err(|error| problem(&error))?;
    Ok(FileLayout { bytes: metadata.len(), extents, path })
}

/// Regular files, and directories with a pool, whose own files are left out; links are not followed.
fn files_below(dir: &Path, found: &mut Vec<PathBuf>, with_pool: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let problem = |error: std::io::Error| Failure::runtime(format!("cannot list {}: {error}", dir.display()));
    for entry in std::fs::read_dir(dir).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let kind = entry.file_type().map_err(problem)?;
        if kind.is_dir() && entry.file_name() == pool::FOLDER {
            with_pool.push(dir.to_path_buf());
        } else if kind.is_dir() {
            files_below(&entry.path(), found, with_pool)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
        if found.len() > FILES_MAX {
            return Err(Failure::usage(format!("more than {FILES_MAX} files; name a directory with fewer")));
        }
    }
    Ok(())
}

fn answer(path: &Path, files: &[FileLayout]) -> String {
    if files.is_empty() {
        return format!("{} has no files\n", path.display());
    }
    let known: Vec<_> = files.iter().filter(|file| file.extents.is_some()).collect();
    let pieces: u64 = known.iter().filter_map(|file| file.pieces()).sum();
    let bytes: u64 = known.iter().map(|file| file.bytes).sum();
    let mut text = match bytes {
        0 if known.is_empty() => "Extents are unknown: the file system does not support FIEMAP\n".to_owned(),
        0 => "All files are empty\n".to_owned(),
        _ => format!(
            "{} in {} of {}: {} per MiB\n",
            plural(pieces, "extent"),
            plural(known.len() as u64, "file"),
            quantity(Some(bytes as f64), "B"),
            number(pieces as f64 / (bytes as f64 / MIB))
        ),
    };
    let shown = files.len().min(ROWS_MAX);
    let rows: Vec<_> = files[..shown].iter().map(FileLayout::row).collect();
    text += &report::terminal::words_table(
        &["file", "size", "extents", "per MiB", "largest extent"],
        &rows,
        &output::style(),
    );
    if files.len() > shown {
        text += &format!(
            "and {}, less scattered; --json has all\n",
            plural((files.len() - shown) as u64, "more file")
        );
    }
    text
}
