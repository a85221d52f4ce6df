//! The variables of a program, and what values they resolve to.

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::error::Problem;
use crate::lexer::{Piece, shortened};
use crate::syntax::{Attribute, Value};

/// Variables that refer to variables.
const REFERENCES_MAX: u32 = 32;
const TEXT_MAX: usize = 64 << 10;
/// Steps of an evaluation: bounds its time and memory.
const STEPS_MAX: u64 = 1_000_000;

pub(crate) struct Variables {
    values: BTreeMap<String, Value>,
    /// Take the place of what the program sets.
    overrides: BTreeMap<String, Overriding>,
    /// Parameters of the composites that are being expanded.
    parameters: Vec<BTreeMap<String, Value>>,
    steps: Cell<u64>,
}

struct Overriding {
    value: Value,
    /// Whether the program knows the variable.
    is_used: Cell<bool>,
}

type Resolved<T> = Result<T, Problem>;

impl Variables {
    /// `presets` are overrides that a program need not know.
    pub(crate) fn new(presets: &[(String, Value)], overrides: &[(String, Value)]) -> Self {
        let overriding =
            |value: &Value, is_used| Overriding { value: value.clone(), is_used: Cell::new(is_used) };
        let presets = presets.iter().map(|(name, value)| (name.clone(), overriding(value, true)));
        let overrides = overrides.iter().map(|(name, value)| (name.clone(), overriding(value, false)));
        let overrides = presets.chain(overrides).collect();
        Self { values: BTreeMap::new(), overrides, parameters: Vec::new(), steps: Cell::new(0) }
    }

    /// Counts work that the program causes.
    pub(crate) fn step(&self, line: u32, steps: u64) -> Resolved<()> {
        self.steps.set(self.steps.get().saturating_add(steps));
        match self.steps.get() > STEPS_MAX {
            true => Err(Problem::new(line, format!("the program takes more than {STEPS_MAX} steps to read"))),
            false => Ok(()),
        }
    }

    pub(crate) fn set(&mut self, line: u32, name: &str, value: Value) -> Resolved<()> {
        self.step(line, 1)?;
        if let Some(overriding) = self.overrides.get(name) {
            overriding.is_used.set(true);
        }
        let Some((variable, attribute)) = name.split_once('.') else {
            self.values.insert(name.to_owned(), value);
            return Ok(());
        };
        // `$name.mean` changes an attribute of a random variable.
        match self.values.get_mut(variable) {
            Some(Value::Random(attributes) | Value::Custom(attributes)) => {
                attributes.retain(|known| known.name != attribute);
                attributes.push(Attribute { name: attribute.to_owned(), value: Some(value), line });
                Ok(())
            }
            _ => Err(Problem::new(line, format!("${} is no random variable", shortened(variable)))),
        }
    }

    pub(crate) fn enter(&mut self, parameters: BTreeMap<String, Value>) {
        self.parameters.push(parameters);
    }

    pub(crate) fn leave(&mut self) {
        self.parameters.pop();
    }

    /// Overrides of variables that the program does not know.
    pub(crate) fn unknown_overrides(&self) -> impl Iterator<Item = &str> {
        let unused = self.overrides.iter().filter(|(_, overriding)| !overriding.is_used.get());
        unused.map(|(name, _)| name.as_str())
    }

    pub(crate) fn names(&self) -> Vec<(String, String)> {
        let known = self.values.iter().map(|(name, value)| {
            let value = self.overrides.get(name).map_or(value, |overriding| &overriding.value);
            (name.clone(), described(value))
        });
        known.collect()
    }

    fn get(&self, line: u32, name: &str) -> Resolved<&Value> {
        let local = self.parameters.last().and_then(|parameters| parameters.get(name));
        let overriding = || {
            let overriding = self.overrides.get(name)?;
            overriding.is_used.set(true);
            Some(&overriding.value)
        };
        local.or_else(overriding).or_else(|| self.values.get(name)).ok_or_else(|| {
            let name = shortened(name);
            Problem::new(
                line,
                format!("the variable ${name} is not set; set it before, or give --set {name}=..."),
            )
        })
    }

    /// The value, if it is a variable the one that it stands for.
    pub(crate) fn resolve<'a>(&'a self, line: u32, mut value: &'a Value) -> Resolved<&'a Value> {
        for _ in 0..REFERENCES_MAX {
            self.step(line, 1)?;
            match value {
                Value::Variable(name) => value = self.get(line, name)?,
                known => return Ok(known),
            }
        }
        Err(Problem::new(line, "the variable refers to itself"))
    }

    pub(crate) fn text(&self, line: u32, value: &Value) -> Resolved<String> {
        self.text_at(line, value, 0)
    }

    pub(crate) fn pieces(&self, line: u32, pieces: &[Piece]) -> Resolved<String> {
        self.pieces_at(line, pieces, 0)
    }

    fn text_at(&self, line: u32, value: &Value, depth: u32) -> Resolved<String> {
        match self.resolve(line, value)? {
            Value::Integer(number) => Ok(number.to_string()),
            Value::Bool(is_set) => Ok(is_set.to_string()),
            Value::Text(pieces) => self.pieces_at(line, pieces, depth),
            other => Err(Problem::expected(line, "a text", &described(other))),
        }
    }

    fn pieces_at(&self, line: u32, pieces: &[Piece], depth: u32) -> Resolved<String> {
        if depth > REFERENCES_MAX {
            return Err(Problem::new(line, "the variable refers to itself"));
        }
        let mut text = String::new();
        for piece in pieces {
            self.step(line, 1)?;
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Variable(name) => {
                    let value = self.get(line, name)?;
                    match self.resolve(line, value)? {
                        random @ (Value::Random(_) | Value::Custom(_) | Value::Table(_)) => {
                            text.push_str(&described(random));
                        }
                        plain => text.push_str(&self.text_at(line, plain, depth + 1)?),
                    }
                }
            }
            if text.len() > TEXT_MAX {
                return Err(Problem::new(line, format!("the text is longer than {} KiB", TEXT_MAX >> 10)));
            }
        }
        Ok(text)
    }
}

/// A value as an error names it.
pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        Value::Bool(is_set) => is_set.to_string(),
        Value::Text(pieces) => match &pieces[..] {
            [Piece::Text(text)] => shortened(text),
            _ => "a text".to_owned(),
        },
        Value::Variable(name) => format!("${}", shortened(name)),
        Value::Random(_) => "randvar(...)".to_owned(),
        Value::Custom(_) => "cvar(...)".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}
