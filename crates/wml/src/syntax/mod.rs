//! The syntax of a program: its commands, in the order of the text.

mod parser;

use crate::WmlError;
pub use crate::lexer::Piece;

/// `name=value`, or `name` alone, which means true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Of a composite's parameter `$name`, with the dollar sign.
    pub name: String,
    pub value: Option<Value>,
    pub line: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Integer(u64),
    Bool(bool),
    Text(Vec<Piece>),
    /// Bound by reference: a random variable is drawn at each use.
    Variable(String),
    /// `randvar(...)`
    Random(Vec<Attribute>),
    /// `cvar(...)`
    Custom(Vec<Attribute>),
    /// `{{percent, low, high}, ...}`
    Table(Vec<[u64; 3]>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowopCall {
    pub kind: String,
    pub attributes: Vec<Attribute>,
    pub line: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadBlock {
    pub attributes: Vec<Attribute>,
    pub flowops: Vec<FlowopCall>,
    pub line: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub line: u32,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Set {
        name: String,
        value: Value,
    },
    /// `set $name = $a * $b` of 1.4.9, with `+`, `-`, `*` or `/`; computed where it stands.
    Compute {
        name: String,
        left: Value,
        sign: char,
        right: Value,
    },
    /// `set mode quit timeout`
    Mode {
        what: String,
        value: Option<String>,
    },
    DefineFiles {
        is_set: bool,
        attributes: Vec<Attribute>,
    },
    DefineProcess {
        attributes: Vec<Attribute>,
        threads: Vec<ThreadBlock>,
    },
    DefineFlowop {
        attributes: Vec<Attribute>,
        flowops: Vec<FlowopCall>,
    },
    /// `define randvar name=$x, ...` of 1.4.9.
    DefineRandom {
        attributes: Vec<Attribute>,
    },
    EventGenerator {
        rate: Value,
    },
    Echo(Vec<Piece>),
    /// The text of `usage`, a command of 1.4.9.
    Usage(Vec<Piece>),
    /// `load NAME` of 1.4.9.
    Load(String),
    Foreach {
        name: String,
        values: Vec<Value>,
        body: Vec<Command>,
    },
    /// `run`, with its seconds.
    Run {
        seconds: Option<Value>,
    },
    /// `psrun`: a summary every `period` seconds.
    PrintRun {
        period: Option<u64>,
        seconds: Option<Value>,
    },
    Quit,
    /// Understood, but without an effect on what is run; why.
    Ignored {
        name: String,
        why: &'static str,
    },
}

/// Reads a text; `file` names it in errors.
///
/// # Errors
/// The first line that is not WML, and what was expected there.
pub fn parse(file: &str, text: &str) -> Result<Vec<Command>, WmlError> {
    if text.len() > crate::TEXT_BYTES_MAX {
        let problem = format!("a program has at most {} KiB", crate::TEXT_BYTES_MAX >> 10);
        return Err(WmlError { file: file.to_owned(), line: 1, problem });
    }
    parser::Parser::new(text).and_then(parser::Parser::program).map_err(|problem| problem.of_file(file))
}

/// Reads the value of a variable, as it stands behind `set $name =`. What is none is a text.
pub fn parse_value(text: &str) -> Value {
    let whole = |mut parser: parser::Parser<'_>| parser.only_value();
    let value = parser::Parser::new(text).and_then(whole);
    value.unwrap_or_else(|_| Value::Text(vec![Piece::Text(text.to_owned())]))
}
