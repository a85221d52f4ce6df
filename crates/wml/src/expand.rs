//! Flowops with their values; composites are expanded in place.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::near::did_you_mean;

use crate::attributes::Attributes;
use crate::error::Problem;
use crate::lexer::shortened;
use crate::model::{Flowop, Kind, Number, Operation};
use crate::syntax::{Attribute, FlowopCall, Piece, Value};
use crate::variables::Variables;

/// Composites within composites.
const DEPTH_MAX: u32 = 16;
/// Slots for open files of a thread.
const SLOTS: u64 = 128;

const KNOWN: &[&str] = &[
    "name",
    "filesetname",
    "iosize",
    "workingset",
    "random",
    "opennext",
    "fd",
    "srcfd",
    "dsync",
    "directio",
    "noreadahead",
    "indexed",
    "iters",
    "target",
    "value",
    "blocking",
    "highwater",
];

/// A flowop that the program defines.
pub(crate) struct Composite {
    pub attributes: Vec<Attribute>,
    pub flowops: Vec<FlowopCall>,
}

pub(crate) struct Expansion<'a> {
    variables: &'a mut Variables,
    composites: &'a BTreeMap<String, Rc<Composite>>,
    depth: u32,
}

impl<'a> Expansion<'a> {
    pub(crate) fn new(variables: &'a mut Variables, composites: &'a BTreeMap<String, Rc<Composite>>) -> Self {
        Self { variables, composites, depth: 0 }
    }

    pub(crate) fn flowops(&mut self, calls: &[FlowopCall]) -> Result<Vec<Flowop>, Problem> {
        calls.iter().map(|call| self.flowop(call)).collect()
    }

    fn flowop(&mut self, call: &FlowopCall) -> Result<Flowop, Problem> {
        let line = call.line;
        self.variables.step(line, 1 + call.attributes.len() as u64)?;
        let (operation, mut flowop) = match (Kind::from_word(&call.kind), self.composites.get(&call.kind)) {
            (Some(kind), _) => (Operation::Kind(kind), self.plain(call, false)?),
            (None, Some(composite)) => {
                let composite = composite.clone();
                let flowop = self.plain(call, true)?;
                (Operation::Composite(self.composite(call, &composite)?), flowop)
            }
            (None, None) => {
                let words: Vec<&str> = Kind::ALL.iter().map(|(word, _)| *word).collect();
                let own = self.composites.keys().map(String::as_str);
                let known = words.into_iter().chain(own).collect::<Vec<_>>().join(", ");
                let own = self.composites.keys().map(String::as_str);
                let near = did_you_mean(&call.kind, Kind::ALL.iter().map(|(word, _)| *word).chain(own));
                let found = format!("'{}'{near}", shortened(&call.kind));
                return Err(Problem::expected(line, &format!("a flowop ({known})"), &found));
            }
        };
        flowop.operation = operation;
        Ok(flowop)
    }

    fn plain(&self, call: &FlowopCall, is_composite: bool) -> Result<Flowop, Problem> {
        let line = call.line;
        let given = Attributes::new(self.variables, line, "a flowop", &call.attributes, KNOWN, is_composite)?;
        let slot = |name: &str| match given.integer(name)? {
            Some(slot) if slot >= SLOTS => {
                Err(Problem::new(line, format!("{name}={slot}: a thread has the slots 0 to {}", SLOTS - 1)))
            }
            slot => Ok(slot.map(|slot| slot as u32)),
        };
        Ok(Flowop {
            name: given.text("name")?.unwrap_or_else(|| call.kind.clone()),
            operation: Operation::Composite(Vec::new()),
            iterations: given.number("iters")?.unwrap_or(Number::Constant(1)),
            fileset: given.text("filesetname")?,
            fd: slot("fd")?.unwrap_or(0),
            source_fd: slot("srcfd")?,
            io_bytes: given.number("iosize")?,
            working_set: given.number("workingset")?,
            is_random: given.flag("random")?,
            opens_next: given.flag("opennext")?,
            is_dsync: given.flag("dsync")?,
            is_direct: given.flag("directio")?,
            is_without_read_ahead: given.flag("noreadahead")?,
            index: given.number("indexed")?,
            target: given.text("target")?,
            value: given.number("value")?,
            is_blocking: given.flag("blocking")?,
            high_water: given.integer("highwater")?.unwrap_or(0),
            line,
        })
    }

    fn composite(&mut self, call: &FlowopCall, composite: &Composite) -> Result<Vec<Flowop>, Problem> {
        let line = call.line;
        if self.depth >= DEPTH_MAX {
            let problem = format!(
                "composites are nested more than {DEPTH_MAX} times; does '{}' call itself?",
                call.kind
            );
            return Err(Problem::new(line, problem));
        }
        let mut parameters = BTreeMap::new();
        for parameter in composite.attributes.iter().filter(|attribute| attribute.name.starts_with('$')) {
            let given = call.attributes.iter().find(|attribute| attribute.name == parameter.name);
            let value = given.and_then(|attribute| attribute.value.as_ref()).or(parameter.value.as_ref());
            let Some(value) = value else {
                let problem =
                    format!("the flowop '{}' needs a value for {}", call.kind, shortened(&parameter.name));
                return Err(Problem::new(line, problem));
            };
            // In the surroundings of the call.
            let value = match self.variables.resolve(line, value)? {
                text @ Value::Text(_) => Value::Text(vec![Piece::Text(self.variables.text(line, text)?)]),
                other => other.clone(),
            };
            parameters.insert(parameter.name.trim_start_matches('$').to_owned(), value);
        }
        let is_known = |name: &str| composite.attributes.iter().any(|known| known.name == name);
        let unknown = call.attributes.iter().find(|one| one.name.starts_with('$') && !is_known(&one.name));
        if let Some(unknown) = unknown {
            let problem = format!("the flowop '{}' has no parameter {}", call.kind, shortened(&unknown.name));
            return Err(Problem::new(line, problem));
        }
        self.variables.enter(parameters);
        self.depth += 1;
        let flowops = self.flowops(&composite.flowops);
        self.depth -= 1;
        self.variables.leave();
        flowops
    }
}
