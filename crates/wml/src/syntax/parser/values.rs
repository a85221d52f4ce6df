//! Values: numbers, words, texts, random variables and tables.

use super::{Parsed, Parser};
use crate::error::Problem;
use crate::lexer::Token;
use crate::syntax::{Piece, Value};

impl Parser<'_> {
    pub(super) fn value(&mut self) -> Parsed<Value> {
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
    pub(super) fn optional_value(&mut self) -> Parsed<Option<Value>> {
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

    pub(super) fn text(&mut self) -> Parsed<Vec<Piece>> {
        match &self.token {
            Token::Quoted(_) | Token::Word(_) => match self.advance()? {
                Token::Quoted(pieces) => Ok(pieces),
                Token::Word(word) => Ok(vec![Piece::Text(word)]),
                _ => Ok(Vec::new()),
            },
            _ => Err(self.expected("a text in quotes")),
        }
    }
}
