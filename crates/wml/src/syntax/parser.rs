//! The grammar, by recursive descent.

mod values;

use base::near::{did_you_mean, nearest};

use super::{Attribute, Command, FlowopCall, ThreadBlock, Value, What};
use crate::error::Problem;
use crate::lexer::{Lexer, Token};

/// `foreach` within `foreach`, or random variables within their attributes.
const NESTING_MAX: u32 = 8;
/// Words that begin a command.
const COMMANDS: &str = "set, define, create, run, psrun, eventgen, echo, sleep, system, enable, domultisync, \
    list, debug, version, quit, usage, load, foreach, stats, warmup, shutdown, log or help";

/// Words that begin a block within a command.
const BLOCKS: [&str; 2] = ["thread", "flowop"];

fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or")
}

type Parsed<T> = Result<T, Problem>;

pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token and its line.
    token: Token,
    line: u32,
    nesting: u32,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Parsed<Self> {
        let mut lexer = Lexer::new(text);
        let (token, line) = lexer.next()?;
        Ok(Self { lexer, token, line, nesting: 0 })
    }

    pub(super) fn program(mut self) -> Parsed<Vec<Command>> {
        let mut commands = Vec::new();
        while self.token != Token::End {
            commands.push(self.command()?);
        }
        Ok(commands)
    }

    pub(super) fn only_value(&mut self) -> Parsed<Value> {
        let value = self.value()?;
        match self.token {
            Token::End => Ok(value),
            _ => Err(self.expected("the end of the value")),
        }
    }

    fn advance(&mut self) -> Parsed<Token> {
        let (token, line) = self.lexer.next()?;
        self.line = line;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn expected(&self, what: &str) -> Problem {
        Problem::expected(self.line, what, &self.token.name())
    }

    /// The error of a word that may have been meant for `wanted`.
    fn misspelt(&self, wanted: &str, what: &str) -> Problem {
        let near = match &self.token {
            Token::Word(word) => did_you_mean(word, [wanted]),
            _ => String::new(),
        };
        Problem::expected(self.line, what, &format!("{}{near}", self.token.name()))
    }

    fn is_mark(&self, mark: char) -> bool {
        self.token == Token::Mark(mark)
    }

    fn mark(&mut self, mark: char, why: &str) -> Parsed<()> {
        match self.is_mark(mark) {
            true => self.advance().map(drop),
            false => Err(self.expected(&format!("'{mark}' {why}"))),
        }
    }

    fn word(&mut self, what: &str) -> Parsed<String> {
        match &self.token {
            Token::Word(_) => match self.advance()? {
                Token::Word(word) => Ok(word),
                other => Err(Problem::expected(self.line, what, &other.name())),
            },
            _ => Err(self.expected(what)),
        }
    }

    fn is_word(&self, wanted: &str) -> bool {
        matches!(&self.token, Token::Word(word) if word == wanted)
    }

    fn command(&mut self) -> Parsed<Command> {
        let line = self.line;
        let word = self.word(&format!("a command: {COMMANDS}"))?;
        let ignored = |why: &'static str| What::Ignored { name: word.clone(), why };
        let what = match word.as_str() {
            "set" => self.set()?,
            "define" => self.define()?,
            "create" => {
                self.word("files, filesets or processes")?;
                ignored("a run creates its files")
            }
            "run" => What::Run { seconds: self.optional_value()? },
            "psrun" => self.print_run()?,
            "eventgen" => self.event_generator()?,
            "echo" => What::Echo(self.text()?),
            // Alone on its line it shows a text that the program has given before.
            "usage" if self.line > line || self.token == Token::End => {
                ignored("its text is shown in any case")
            }
            "usage" => What::Usage(self.text()?),
            "log" => {
                self.text()?;
                ignored("it has no log")
            }
            "system" => {
                self.text()?;
                ignored("commands of programs are not executed")
            }
            "sleep" | "debug" => {
                self.value()?;
                ignored("it does not change what is measured")
            }
            "load" => What::Load(self.word("the name of a personality")?),
            "foreach" => self.foreach()?,
            "enable" | "domultisync" | "list" | "stats" | "warmup" | "shutdown" | "help" | "version" => {
                self.rest_of(line)?;
                ignored("it does not change what is measured")
            }
            "quit" => What::Quit,
            other => {
                let near = did_you_mean(other, commands());
                let found = format!("'{}'{near}", crate::lexer::shortened(other));
                return Err(Problem::expected(line, &format!("a command: {COMMANDS}"), &found));
            }
        };
        Ok(Command { line, what })
    }

    /// Skips what stands behind a command on its line.
    fn rest_of(&mut self, line: u32) -> Parsed<()> {
        while self.line == line && self.token != Token::End {
            self.advance()?;
        }
        Ok(())
    }

    fn set(&mut self) -> Parsed<What> {
        if self.is_word("mode") {
            self.advance()?;
            let what = self.word("quit or nousestats")?;
            let value = match what.as_str() {
                "quit" => Some(self.word("timeout, firstdone or alldone")?),
                _ => None,
            };
            return Ok(What::Mode { what, value });
        }
        let name = self.variable("a variable such as $nfiles, or 'mode'")?;
        self.mark('=', "after the variable")?;
        let value = self.value()?;
        let sign = match &self.token {
            Token::Mark(sign @ ('*' | '+')) => *sign,
            Token::Word(word) if word == "-" => '-',
            Token::Word(word) if word == "/" => '/',
            _ => return Ok(What::Set { name, value }),
        };
        self.advance()?;
        Ok(What::Compute { name, left: value, sign, right: self.value()? })
    }

    fn variable(&mut self, what: &str) -> Parsed<String> {
        match &self.token {
            Token::Variable(_) => match self.advance()? {
                Token::Variable(name) => Ok(name),
                other => Err(Problem::expected(self.line, what, &other.name())),
            },
            _ => Err(self.expected(what)),
        }
    }

    fn define(&mut self) -> Parsed<What> {
        let line = self.line;
        let what = self.word("file, fileset, process or flowop")?;
        match what.as_str() {
            "file" | "fileset" => {
                Ok(What::DefineFiles { is_set: what == "fileset", attributes: self.attributes()? })
            }
            "randvar" => Ok(What::DefineRandom { attributes: self.attributes()? }),
            "process" => {
                let attributes = self.attributes()?;
                self.mark('{', "before the threads of the process")?;
                let mut threads = Vec::new();
                while !self.is_mark('}') {
                    threads.push(self.thread()?);
                }
                self.advance()?;
                Ok(What::DefineProcess { attributes, threads })
            }
            "flowop" => {
                let attributes = self.attributes()?;
                Ok(What::DefineFlowop { attributes, flowops: self.flowops()? })
            }
            other => {
                let near = did_you_mean(other, ["file", "fileset", "process", "flowop", "randvar"]);
                let found = format!("'{}'{near}", crate::lexer::shortened(other));
                Err(Problem::expected(line, "file, fileset, process or flowop", &found))
            }
        }
    }

    fn thread(&mut self) -> Parsed<ThreadBlock> {
        let line = self.line;
        if !self.is_word("thread") {
            return Err(self.misspelt("thread", "thread, or '}' at the end of the process"));
        }
        self.advance()?;
        let attributes = self.attributes()?;
        Ok(ThreadBlock { attributes, flowops: self.flowops()?, line })
    }

    fn flowops(&mut self) -> Parsed<Vec<FlowopCall>> {
        self.mark('{', "before the flowops")?;
        let mut flowops = Vec::new();
        while !self.is_mark('}') {
            let line = self.line;
            if !self.is_word("flowop") {
                return Err(self.misspelt("flowop", "flowop, or '}' at the end of the flowops"));
            }
            self.advance()?;
            let kind = self.word("the kind of the flowop")?;
            flowops.push(FlowopCall { kind, attributes: self.attributes()?, line });
        }
        self.advance()?;
        Ok(flowops)
    }

    /// A list with commas; it may be empty.
    fn attributes(&mut self) -> Parsed<Vec<Attribute>> {
        let mut attributes = Vec::new();
        if !matches!(self.token, Token::Word(_) | Token::Variable(_))
            || self.is_word("flowop")
            || self.is_word("thread")
        {
            return Ok(attributes);
        }
        loop {
            attributes.push(self.attribute()?);
            if !self.is_mark(',') {
                return self.end_of_list(attributes);
            }
            self.advance()?;
        }
    }

    /// Behind a list comes a mark or another command; another word is an attribute without its comma.
    fn end_of_list(&self, attributes: Vec<Attribute>) -> Parsed<Vec<Attribute>> {
        let (Token::Word(word), Some(last)) = (&self.token, attributes.last()) else { return Ok(attributes) };
        if BLOCKS.contains(&word.as_str()) || commands().any(|command| command == word) {
            return Ok(attributes);
        }
        let hint = match nearest(word, commands().chain(BLOCKS)) {
            Some(near) => format!("; did you mean '{near}'?"),
            None => "; is a comma missing?".to_owned(),
        };
        let expected = format!("',' and a further attribute, or the end of the list, behind '{}'", last.name);
        Err(Problem::expected(self.line, &expected, &format!("{}{hint}", self.token.name())))
    }

    fn attribute(&mut self) -> Parsed<Attribute> {
        let line = self.line;
        let name = match self.advance()? {
            Token::Word(name) => name,
            Token::Variable(name) => format!("${name}"),
            other => return Err(Problem::expected(line, "the name of an attribute", &other.name())),
        };
        let value = match self.is_mark('=') {
            true => {
                self.advance()?;
                Some(self.value()?)
            }
            false => None,
        };
        Ok(Attribute { name, value, line })
    }

    fn print_run(&mut self) -> Parsed<What> {
        let negative = |word: &str| word.strip_prefix('-').and_then(|digits| digits.parse().ok());
        let period = match &self.token {
            Token::Word(word) if word.starts_with('-') => match negative(word) {
                Some(period) => Some(period),
                None => return Err(self.expected("the period in seconds")),
            },
            Token::Integer(period) => Some(*period),
            _ => None,
        };
        if period.is_some() {
            self.advance()?;
        }
        Ok(What::PrintRun { period, seconds: self.optional_value()? })
    }

    fn event_generator(&mut self) -> Parsed<What> {
        if !self.is_word("rate") {
            return Err(self.expected("rate=EVENTS"));
        }
        self.advance()?;
        self.mark('=', "after rate")?;
        Ok(What::EventGenerator { rate: self.value()? })
    }

    /// Bounds the recursion of the parser.
    fn nest(&mut self) -> Parsed<()> {
        self.nesting += 1;
        match self.nesting > NESTING_MAX {
            true => Err(Problem::new(self.line, format!("it is nested more than {NESTING_MAX} times"))),
            false => Ok(()),
        }
    }

    fn foreach(&mut self) -> Parsed<What> {
        let name = self.variable("a variable such as $size")?;
        if !self.is_word("in") {
            return Err(self.expected("'in' after the variable of foreach"));
        }
        self.advance()?;
        let mut values = vec![self.value()?];
        while self.is_mark(',') {
            self.advance()?;
            values.push(self.value()?);
        }
        self.nest()?;
        self.mark('{', "before the commands of foreach")?;
        let mut body = Vec::new();
        while !self.is_mark('}') {
            body.push(self.command()?);
        }
        self.advance()?;
        self.nesting -= 1;
        Ok(What::Foreach { name, values, body })
    }
}
