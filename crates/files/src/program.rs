//! The program of a run: a personality or a file, with the variables that the settings override.

use base::plan::PlanError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wml::syntax::{Piece, Value, parse, parse_value};
use wml::{Evaluation, Program, WmlError};

use crate::engine::Compiled;
use crate::personalities;

/// The variable that gives the number of threads.
pub const THREADS: &str = "nthreads";
/// The variable that gives the directory.
const DIR: &str = "dir";

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SetValue {
    Integer(u64),
    Bool(bool),
    /// As it stands behind `set $name =`.
    Text(String),
}

impl SetValue {
    fn value(&self) -> Value {
        match self {
            Self::Integer(number) => Value::Integer(*number),
            Self::Bool(is_set) => Value::Bool(*is_set),
            Self::Text(text) => parse_value(text),
        }
    }
}

/// The text of a program and its name in messages; crosses to the host that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub name: String,
    pub text: String,
}

pub struct Ready {
    pub program: Program,
    pub compiled: Compiled,
}

impl Source {
    /// # Errors
    /// It cannot be read.
    pub fn of_file(path: &str) -> Result<Self, PlanError> {
        let text = sys::file::read_text(path.as_ref(), wml::TEXT_BYTES_MAX as u64);
        let text = text.map_err(|error| PlanError::of_key("wml", format!("cannot read {path}: {error}")))?;
        Ok(Self { name: path.to_owned(), text })
    }

    /// # Errors
    /// There is none of that name.
    pub fn of_personality(name: &str) -> Result<Self, PlanError> {
        let name = name.trim_end_matches(".f");
        let text = personalities::text(name).ok_or_else(|| {
            let names = personalities::ALL.iter().map(|(name, _)| *name);
            let near: Vec<&str> =
                names.filter(|known| known.contains(name) || name.contains(known)).collect();
            let near =
                if near.is_empty() { String::new() } else { format!("; similar: {}", near.join(", ")) };
            PlanError::of_key("personality", format!("there is no personality '{name}'; see --list{near}"))
        })?;
        Ok(Self { name: format!("{name}.f"), text: text.to_owned() })
    }

    /// Evaluates the program; `threads` overrides its number of threads.
    ///
    /// # Errors
    /// The line at fault.
    pub fn evaluate<'a>(
        &self,
        set: impl Iterator<Item = (&'a String, &'a SetValue)>,
        threads: Option<u64>,
    ) -> Result<Ready, WmlError> {
        let mut overrides: Vec<(String, Value)> =
            set.map(|(name, value)| (name.clone(), value.value())).collect();
        if let Some(threads) = threads {
            overrides.retain(|(name, _)| name != THREADS);
            overrides.push((THREADS.to_owned(), Value::Integer(threads)));
        }
        // The folder of the run is the root of all paths.
        let presets = vec![(DIR.to_owned(), Value::Text(vec![Piece::Text("/".to_owned())]))];
        overrides.retain(|(name, _)| name != DIR);
        let evaluation = Evaluation { presets, overrides, load: &personalities::text };
        let program = Program::evaluate(&self.name, &parse(&self.name, &self.text)?, &evaluation)?;
        let compiled = Compiled::new(&self.name, &program)?;
        Ok(Ready { program, compiled })
    }
}
