//! The grammar, by recursive descent.

use super::{Attribute, Command, FlowopCall, Piece, ThreadBlock, Value, What};
use crate::error::Problem;
use crate::lexer::{Lexer, Token};

/// `foreach` within `foreach`, or random variables within their attributes.
const NESTING_MAX: u32 = 8;
/// Words that begin a command.
const COMMANDS: &str = "set, define, create, run, psrun, eventgen, echo, sleep, system, enable, domultisync, \
    list, debug, version, quit, usage, load, foreach, stats, warmup, shutdown, log or help";

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
                let found = format!("'{}'", crate::lexer::shortened(other));
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
                let found = format!("'{}'", crate::lexer::shortened(other));
                Err(Problem::expected(line, "file, fileset, process or flowop", &found))
            }
        }
    }

    fn thread(&mut self) -> Parsed<ThreadBlock> {
        let line = self.line;
        if !self.is_word("thread") {
            return Err(self.expected("thread, or '}' at the end of the process"));
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
                return Err(self.expected("flowop, or '}' at the end of the flowops"));
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
                return Ok(attributes);
            }
            self.advance()?;
        }
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

    fn value(&mut self) -> Parsed<Value> {
        if self.is_mark('{') {
            return self.table();
        }
        match &self.token {
            Token::Integer(_) | Token::Word(_) | Token::Quoted(_) | Token::Variable(_) => {}
            _ => return Err(self.expected("a value: a number, a word, a variable or a text in quotes")),
        }
        Ok(match self.advance()? {
            Token::Integer(number) => Value::Integer(number),
            Token::Quoted(pieces) => Value::Text(pieces),
            Token::Variable(name) => Value::Variable(name),
            Token::Word(word) if self.is_mark('(') && (word == "randvar" || word == "cvar") => {
                self.advance()?;
                self.nest()?;
                let attributes = self.attributes()?;
                self.nesting -= 1;
                self.mark(')', "at the end of the random variable")?;
                if word == "cvar" { Value::Custom(attributes) } else { Value::Random(attributes) }
            }
            Token::Word(word) => match word.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => Value::Text(vec![Piece::Text(word)]),
            },
            Token::Mark(_) | Token::End => Value::Bool(false),
        })
    }

    /// A value, if the next token can be one: commands begin with words.
    fn optional_value(&mut self) -> Parsed<Option<Value>> {
        match self.token {
            Token::Integer(_) | Token::Variable(_) => self.value().map(Some),
            _ => Ok(None),
        }
    }

    fn table(&mut self) -> Parsed<Value> {
        self.mark('{', "before the table")?;
        let mut rows = Vec::new();
        loop {
            self.mark('{', "before a row of the table")?;
            let mut row = [0; 3];
            for (at, cell) in row.iter_mut().enumerate() {
                if at > 0 {
                    self.mark(',', "between percent, low and high")?;
                }
                *cell = match self.advance()? {
                    Token::Integer(number) => number,
                    other => return Err(Problem::expected(self.line, "a whole number", &other.name())),
                };
            }
            rows.push(row);
            self.mark('}', "at the end of a row of the table")?;
            if !self.is_mark(',') {
                break;
            }
            self.advance()?;
        }
        self.mark('}', "at the end of the table")?;
        Ok(Value::Table(rows))
    }

    fn text(&mut self) -> Parsed<Vec<Piece>> {
        match &self.token {
            Token::Quoted(_) | Token::Word(_) => match self.advance()? {
                Token::Quoted(pieces) => Ok(pieces),
                Token::Word(word) => Ok(vec![Piece::Text(word)]),
                _ => Ok(Vec::new()),
            },
            _ => Err(self.expected("a text in quotes")),
        }
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
