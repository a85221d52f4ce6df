//! Executes the commands of a program. Attributes are bound by reference: what counts is a variable's last
//! value.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::near::did_you_mean;

use crate::attributes::{Attributes, integer};
use crate::error::{Problem, WmlError};
use crate::expand::{Composite, Expansion};
use crate::lexer::shortened;
use crate::model::{Fileset, Number, Process, Program, Quit, Thread};
use crate::syntax::{Attribute, Command, FlowopCall, ThreadBlock, Value, What, parse};
use crate::variables::Variables;

/// `load` within loaded programs.
const LOADS_DEEP: u32 = 8;
const LOADS_MAX: u32 = 64;
const ENTRIES_MAX: u64 = 1 << 31;
const INSTANCES_MAX: u64 = 1_000_000;
/// What `nice` adds to a nice value, and the levels of I/O.
const NICE: std::ops::RangeInclusive<i64> = -20..=19;
const IO_PRIORITY: std::ops::RangeInclusive<i64> = 0..=7;
/// Seconds: a year.
const SECONDS_MAX: u64 = 31_536_000;

/// A variable that is set from outside: its name and the value that counts.
pub type Override = (String, Value);

/// How a program is evaluated.
pub struct Evaluation<'a> {
    /// Count like overrides, but the program need not know them.
    pub presets: Vec<Override>,
    pub overrides: Vec<Override>,
    /// The text of a personality of this name, for `load`.
    pub load: &'a dyn Fn(&str) -> Option<&'static str>,
}

/// What is defined, to be evaluated when all variables are known.
enum Definition {
    Files { is_set: bool, attributes: Vec<Attribute> },
    Process { attributes: Vec<Attribute>, threads: Vec<ThreadBlock> },
}

struct Deferred {
    file: Rc<str>,
    line: u32,
    what: Definition,
}

struct Evaluator<'a> {
    evaluation: &'a Evaluation<'a>,
    variables: Variables,
    definitions: Vec<Deferred>,
    composites: BTreeMap<String, Rc<Composite>>,
    program: Program,
    seconds: Option<(Rc<str>, u32, Value)>,
    rate: Option<(Rc<str>, u32, Value)>,
    loads: u32,
}

impl Program {
    /// Evaluates the commands of `file`.
    ///
    /// # Errors
    /// The line at fault, and what was expected there.
    pub fn evaluate(file: &str, commands: &[Command], evaluation: &Evaluation<'_>) -> Result<Self, WmlError> {
        let mut evaluator = Evaluator {
            evaluation,
            variables: Variables::new(&evaluation.presets, &evaluation.overrides),
            definitions: Vec::new(),
            composites: BTreeMap::new(),
            program: Self::default(),
            seconds: None,
            rate: None,
            loads: 0,
        };
        let file: Rc<str> = file.into();
        evaluator.commands(&file, commands, 0)?;
        evaluator.finish(&file)
    }
}

impl Evaluator<'_> {
    /// Executes commands; `false` once the program has ended.
    fn commands(&mut self, file: &Rc<str>, commands: &[Command], depth: u32) -> Result<bool, WmlError> {
        for command in commands {
            if !self.command(file, command, depth)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn command(&mut self, file: &Rc<str>, command: &Command, depth: u32) -> Result<bool, WmlError> {
        let line = command.line;
        let wrong = |problem: Problem| problem.of_file(file);
        self.variables.step(line, 1).map_err(wrong)?;
        match &command.what {
            What::Set { name, value } => self.variables.set(line, name, value.clone()).map_err(wrong)?,
            What::Compute { name, left, sign, right } => {
                self.compute(line, name, [left, right], *sign).map_err(wrong)?;
            }
            What::Mode { what, value } => self.mode(line, what, value.as_deref()).map_err(wrong)?,
            What::DefineFiles { is_set, attributes } => {
                self.variables.step(line, attributes.len() as u64).map_err(wrong)?;
                let what = Definition::Files { is_set: *is_set, attributes: attributes.clone() };
                self.definitions.push(Deferred { file: file.clone(), line, what });
            }
            What::DefineProcess { attributes, threads } => {
                let flowops = threads.iter().flat_map(|thread| &thread.flowops);
                let weight: usize = flowops.map(|flowop| flowop.attributes.len() + 1).sum();
                self.variables.step(line, weight as u64).map_err(wrong)?;
                let what = Definition::Process { attributes: attributes.clone(), threads: threads.clone() };
                self.definitions.push(Deferred { file: file.clone(), line, what });
            }
            What::DefineFlowop { attributes, flowops } => {
                let weight: usize = flowops.iter().map(|flowop| flowop.attributes.len() + 1).sum();
                self.variables.step(line, weight as u64).map_err(wrong)?;
                self.define_composite(line, attributes, flowops).map_err(wrong)?;
            }
            What::DefineRandom { attributes } => self.define_random(line, attributes).map_err(wrong)?,
            What::EventGenerator { rate } => self.rate = Some((file.clone(), line, rate.clone())),
            What::Echo(pieces) | What::Usage(pieces) => {
                let text = self.variables.pieces(line, pieces).map_err(wrong)?;
                self.variables.step(line, text.len() as u64 / 64).map_err(wrong)?;
                self.program.messages.push(text);
            }
            What::Load(name) => self.load(file, line, name, depth)?,
            What::Foreach { name, values, body } => {
                for value in values {
                    self.variables.set(line, name, value.clone()).map_err(wrong)?;
                    if !self.commands(file, body, depth)? {
                        return Ok(false);
                    }
                }
            }
            What::Run { seconds } | What::PrintRun { seconds, .. } => {
                self.program.runs = true;
                self.seconds = seconds.clone().map(|seconds| (file.clone(), line, seconds));
                // It ends its program, not the one that loaded it, which may set variables and the time.
                return Ok(false);
            }
            What::Quit => return Ok(false),
            What::Ignored { name, why } => {
                let is_news = !self.program.notes.iter().any(|(_, note)| note.starts_with(name.as_str()));
                if is_news && name != "create" {
                    self.program.notes.push((line, format!("{name} has no effect: {why}")));
                }
            }
        }
        Ok(true)
    }

    fn load(&mut self, file: &Rc<str>, line: u32, name: &str, depth: u32) -> Result<(), WmlError> {
        let wrong = |text: String| Problem::new(line, text).of_file(file);
        self.loads += 1;
        if depth >= LOADS_DEEP || self.loads > LOADS_MAX {
            return Err(wrong("too many programs are loaded".to_owned()));
        }
        let name = shortened(name);
        let plain = name.strip_suffix(".f").unwrap_or(&name);
        let text = (self.evaluation.load)(plain).ok_or_else(|| {
            wrong(format!("there is no personality '{name}' to load; list them with --list"))
        })?;
        let loaded: Rc<str> = format!("{plain}.f").into();
        self.commands(&loaded, &parse(&loaded, text)?, depth + 1).map(|_| ())
    }

    fn compute(&mut self, line: u32, name: &str, operands: [&Value; 2], sign: char) -> Result<(), Problem> {
        let [left, right] = operands.map(|operand| integer(&self.variables, line, operand));
        let (left, right) = (left?, right?);
        let computed = match sign {
            '+' => left.checked_add(right),
            '-' => left.checked_sub(right),
            '*' => left.checked_mul(right),
            _ => left.checked_div(right),
        };
        match computed.filter(|number| i64::try_from(*number).is_ok()) {
            Some(number) => self.variables.set(line, name, Value::Integer(number)),
            None => Err(Problem::new(line, format!("{left} {sign} {right} is no number from 0 to 2^63"))),
        }
    }

    fn mode(&mut self, line: u32, what: &str, value: Option<&str>) -> Result<(), Problem> {
        self.program.quit = match (what, value) {
            ("quit", Some("timeout")) => Quit::Timeout,
            ("quit", Some("firstdone")) => Quit::FirstDone,
            ("quit", Some("alldone")) => Quit::AllDone,
            ("nousestats" | "noallocate", _) => return Ok(()),
            ("quit", other) => {
                let found = format!("'{}'", shortened(other.unwrap_or_default()));
                return Err(Problem::expected(line, "timeout, firstdone or alldone", &found));
            }
            (other, _) => {
                let found = format!("'{}'", shortened(other));
                return Err(Problem::expected(line, "the mode quit or nousestats", &found));
            }
        };
        Ok(())
    }

    fn define_random(&mut self, line: u32, attributes: &[Attribute]) -> Result<(), Problem> {
        let name = attributes.iter().find(|attribute| attribute.name == "name");
        let name = match name.and_then(|attribute| attribute.value.as_ref()) {
            Some(Value::Variable(name)) => name.clone(),
            Some(text @ Value::Text(_)) => self.variables.text(line, text)?,
            _ => return Err(Problem::new(line, "a random variable needs a name: name=$...")),
        };
        let rest = attributes.iter().filter(|attribute| attribute.name != "name").cloned().collect();
        self.variables.set(line, &name, Value::Random(rest))
    }

    fn define_composite(
        &mut self,
        line: u32,
        attributes: &[Attribute],
        flowops: &[FlowopCall],
    ) -> Result<(), Problem> {
        let name = Attributes::new(&self.variables, line, "a composite", attributes, &["name"], true)?
            .name("a composite flowop")?;
        let composite = Composite { attributes: attributes.to_vec(), flowops: flowops.to_vec() };
        match self.composites.insert(name.clone(), Rc::new(composite)) {
            None => Ok(()),
            Some(_) => Err(Problem::new(line, format!("the flowop '{}' is defined twice", shortened(&name)))),
        }
    }

    fn finish(mut self, main: &Rc<str>) -> Result<Program, WmlError> {
        if let Some(name) = self.variables.unknown_overrides().next() {
            let known = self.variables.names();
            let known: Vec<String> = known.into_iter().map(|(name, _)| name).collect();
            let near = did_you_mean(name, known.iter().map(String::as_str));
            let problem =
                format!("the program sets no variable '{name}'; it sets {}{near}", known.join(", "));
            return Err(WmlError { file: main.to_string(), line: 1, problem });
        }
        for Deferred { file, line, what } in std::mem::take(&mut self.definitions) {
            let made = match &what {
                Definition::Files { is_set, attributes } => self.fileset(line, *is_set, attributes),
                Definition::Process { attributes, threads } => self.process(line, attributes, threads),
            };
            made.map_err(|problem| problem.of_file(&file))?;
        }
        if let Some((file, line, value)) = &self.seconds {
            let seconds = integer(&self.variables, *line, value);
            self.program.seconds = Some(seconds.map_err(|problem| problem.of_file(file))?.min(SECONDS_MAX));
        }
        if let Some((file, line, value)) = &self.rate {
            let rate = integer(&self.variables, *line, value).map_err(|problem| problem.of_file(file))?;
            self.program.event_rate = Some(rate).filter(|rate| *rate > 0);
        }
        self.program.variables = self.variables.names();
        Ok(self.program)
    }

    fn fileset(&mut self, line: u32, is_set: bool, attributes: &[Attribute]) -> Result<(), Problem> {
        const SHARED: [&str; 11] = [
            "name",
            "path",
            "size",
            "prealloc",
            "paralloc",
            "reuse",
            "trusttree",
            "readonly",
            "writeonly",
            "cached",
            "entries",
        ];
        const OF_SETS: [&str; 4] = ["dirwidth", "dirdepthrv", "dirgamma", "leafdirs"];
        let known = [&SHARED[..], if is_set { &OF_SETS } else { &[] }].concat();
        let what = if is_set { "a fileset" } else { "a file" };
        let given = Attributes::new(&self.variables, line, what, attributes, &known, false)?;
        let name = given.name(what)?;
        if self.program.filesets.iter().any(|other| other.name == name) {
            return Err(Problem::new(line, format!("'{}' is defined twice", shortened(&name))));
        }
        let leaf_dirs = given.integer("leafdirs")?.unwrap_or(0);
        let entries = given.integer("entries")?.unwrap_or(if is_set && leaf_dirs > 0 { 0 } else { 1 });
        if entries.saturating_add(leaf_dirs) > ENTRIES_MAX {
            return Err(Problem::new(line, format!("a fileset has at most {ENTRIES_MAX} entries")));
        }
        let prealloc_percent = match given.value("prealloc")? {
            None if given.flag("prealloc")? => 100,
            None | Some(Value::Bool(false)) => 0,
            Some(Value::Bool(true)) => 100,
            Some(_) => given.integer("prealloc")?.unwrap_or(0),
        };
        if prealloc_percent > 100 {
            return Err(Problem::new(line, format!("prealloc={prealloc_percent} is more than 100 %")));
        }
        for flag in ["paralloc", "reuse", "trusttree", "cached"] {
            given.flag(flag)?;
        }
        let fileset = Fileset {
            path: given.text("path")?.unwrap_or_default(),
            is_single: !is_set,
            size: given.number("size")?.unwrap_or(Number::Constant(if is_set { 1024 } else { 0 })),
            entries: if is_set { entries } else { 1 },
            leaf_dirs,
            dir_width: if is_set { given.number("dirwidth")? } else { None }.unwrap_or(Number::Constant(0)),
            dir_depth: if is_set { given.number("dirdepthrv")? } else { None },
            dir_gamma: given.integer("dirgamma")?.unwrap_or(1500),
            prealloc_percent,
            is_read_only: given.flag("readonly")?,
            is_write_only: given.flag("writeonly")?,
            name,
            line,
        };
        self.program.filesets.push(fileset);
        Ok(())
    }

    fn process(
        &mut self,
        line: u32,
        attributes: &[Attribute],
        blocks: &[ThreadBlock],
    ) -> Result<(), Problem> {
        const OF_PROCESSES: &[&str] = &["name", "instances", "nice"];
        const OF_THREADS: &[&str] = &["name", "instances", "memsize", "ioprio", "useism"];
        let given = Attributes::new(&self.variables, line, "a process", attributes, OF_PROCESSES, false)?;
        let instances = |given: &Attributes<'_>, line| {
            let instances = given.integer("instances")?.unwrap_or(1);
            match instances > INSTANCES_MAX {
                true => {
                    Err(Problem::new(line, format!("instances={instances} is more than {INSTANCES_MAX}")))
                }
                false => Ok(instances),
            }
        };
        let (name, of_process) = (given.name("a process")?, instances(&given, line)?);
        let nice = given.bounded("nice", NICE)?.and_then(|nice| i32::try_from(nice).ok()).unwrap_or(0);
        let mut threads = Vec::new();
        for block in blocks {
            let line = block.line;
            let given =
                Attributes::new(&self.variables, line, "a thread", &block.attributes, OF_THREADS, false)?;
            let (name, instances) = (given.name("a thread")?, instances(&given, line)?);
            let memory_bytes = given.integer("memsize")?.unwrap_or(0);
            let io_priority =
                given.bounded("ioprio", IO_PRIORITY)?.and_then(|level| u8::try_from(level).ok());
            let mut expansion = Expansion::new(&mut self.variables, &self.composites);
            let flowops = expansion.flowops(&block.flowops)?;
            threads.push(Thread { name, instances, memory_bytes, nice, io_priority, flowops, line });
        }
        self.program.processes.push(Process { name, instances: of_process, threads });
        let all = self.program.threads();
        match all > INSTANCES_MAX {
            true => {
                Err(Problem::new(line, format!("the program has {all} threads, more than {INSTANCES_MAX}")))
            }
            false => Ok(()),
        }
    }
}
