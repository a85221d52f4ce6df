//! A run as one JSON document: to carry away, to read again, and its schema.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use base::json_memory::estimate;
use base::outcome::{Run, SCHEMA};
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;

use crate::StoreError;

/// A document larger than this is refused unread: the series of a day fit into it many times.
pub const IMPORT_BYTES_MAX: u64 = 1 << 30;
/// Memory for reading a small document; a larger one may take [`MEMORY_PER_BYTE`] of each byte of its text.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
const MEMORY_PER_BYTE: u64 = 5;
/// Lists of plain numbers are below these names.
const SAMPLE_NAMES: [&str; 2] = ["series", "figures"];

/// The document of a run: one line of JSON, `schema` first, with a newline at its end.
pub fn export(run: &Run) -> Result<Vec<u8>, StoreError> {
    let mut bytes = serde_json::to_vec(run).map_err(|error| StoreError::NotStorable {
        what: format!("run {}", run.run),
        problem: error.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(match String::from_utf8(bytes) {
        Ok(text) => printable_json(text).into_bytes(),
        Err(error) => error.into_bytes(),
    })
}

/// The same JSON with U+007F to U+009F escaped, which JSON lets stand in strings and some terminals obey.
pub fn printable_json(text: String) -> String {
    let is_control = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !text.contains(is_control) {
        return text;
    }
    let escaped = |c: char| if is_control(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(escaped).collect()
}

/// Read what [`export`] wrote. Keys that this version does not know are passed over: within a schema number
/// fields are only added.
///
/// # Errors
/// Too large, of a newer schema, cut off, or not a run: with the line and column (counted from 1, in bytes).
pub fn read_export(document: &[u8]) -> Result<Run, StoreError> {
    let bytes = document.len() as u64;
    if bytes > IMPORT_BYTES_MAX {
        return Err(StoreError::TooLarge { bytes, bytes_max: IMPORT_BYTES_MAX });
    }
    let memory_bytes_max = MEMORY_BYTES_MIN + MEMORY_PER_BYTE * bytes;
    estimate(document, &SAMPLE_NAMES, memory_bytes_max).map_err(|error| match error.is_data() {
        true => StoreError::NotAnExport {
            problem: "it would take far more memory than its size".to_owned(),
            line: error.line(),
            column: error.column(),
        },
        false => explain(document, &error),
    })?;
    match serde_json::from_slice::<Run>(document) {
        Ok(run) if run.schema == SCHEMA => Ok(run),
        Ok(run) if run.schema > SCHEMA => Err(newer(run.schema.into())),
        Ok(run) => Err(StoreError::NotAnExport {
            problem: format!("its schema is {}, which never was one", run.schema),
            line: 1,
            column: 1,
        }),
        Err(error) => Err(explain(document, &error)),
    }
}

/// Read an exported run from a file, at most [`IMPORT_BYTES_MAX`] of it.
///
/// # Errors
/// As [`read_export`], or a file that cannot be read.
pub fn read_export_file(path: &Path) -> Result<Run, StoreError> {
    let file_error = |source| StoreError::File { path: path.to_owned(), source };
    // Before it is opened: opening a pipe waits for its other end.
    let found = path.metadata().map_err(file_error)?;
    if !found.is_file() {
        return Err(file_error(io::Error::other("it is not a regular file")));
    }
    let mut document = Vec::new();
    File::open(path)
        .and_then(|file| file.take(IMPORT_BYTES_MAX + 1).read_to_end(&mut document))
        .map_err(file_error)?;
    read_export(&document)
}

fn newer(found: u64) -> StoreError {
    StoreError::NewerDocument { found, known: SCHEMA }
}

/// The reader's complaint in plain words. A newer document may differ in anything but its `schema`.
fn explain(document: &[u8], error: &serde_json::Error) -> StoreError {
    #[derive(Deserialize)]
    struct Probe {
        schema: u64,
    }
    if let Ok(Probe { schema }) = serde_json::from_slice(document)
        && schema > SCHEMA.into()
    {
        return newer(schema);
    }
    let (line, column) = (error.line(), error.column());
    let problem = match error.classify() {
        Category::Eof => "it ends in the middle, as if it had been cut off".to_owned(),
        _ => {
            let text = error.to_string();
            let place = format!(" at line {line} column {column}");
            text.strip_suffix(&place).unwrap_or(&text).to_owned()
        }
    };
    StoreError::NotAnExport { problem, line, column }
}

/// The JSON schema (draft 2020-12) of an exported run.
pub fn json_schema() -> Value {
    schemars::schema_for!(Run).into()
}
