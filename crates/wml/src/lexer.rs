//! From the text to tokens.

use crate::error::Problem;

/// A piece of a text in quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// The value of this variable.
    Variable(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    Quoted(Vec<Piece>),
    Integer(u64),
    Variable(String),
    /// One of `= , { } ( ) * +`.
    Mark(char),
    End,
}

impl Token {
    /// As it is called in an error.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Word(word) => format!("'{}'", shortened(word)),
            Self::Quoted(_) => "a text in quotes".to_owned(),
            Self::Integer(number) => format!("the number {number}"),
            Self::Variable(name) => format!("the variable ${}", shortened(name)),
            Self::Mark(mark) => format!("'{mark}'"),
            Self::End => "the end of the file".to_owned(),
        }
    }
}

/// A foreign word is quoted, but not at any length.
pub(crate) fn shortened(word: &str) -> String {
    const SHOWN: usize = 60;
    match word.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &word[..end]),
        None => word.to_owned(),
    }
}

pub(crate) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
}

fn starts_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'-' | b'_')
}

fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b':' | b';' | b'-')
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), at: 0, line: 1 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => self.line += 1,
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                    continue;
                }
                byte if byte.is_ascii_whitespace() => {}
                _ => return,
            }
            self.at += 1;
        }
    }

    fn taken(&mut self, is_taken: impl Fn(u8) -> bool) -> String {
        let from = self.at;
        while self.peek().is_some_and(&is_taken) {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.text[from..self.at]).into_owned()
    }

    /// The next token and its line.
    pub(crate) fn next(&mut self) -> Result<(Token, u32), Problem> {
        self.skip_blanks();
        let line = self.line;
        let Some(byte) = self.peek() else { return Ok((Token::End, line)) };
        let token = match byte {
            b'=' | b',' | b'{' | b'}' | b'(' | b')' | b'*' | b'+' => {
                self.at += 1;
                Token::Mark(char::from(byte))
            }
            b'"' => self.quoted()?,
            b'$' => Token::Variable(self.variable(true)?),
            b'0'..=b'9' => self.integer()?,
            byte if starts_word(byte) => Token::Word(self.taken(is_in_word)),
            _ => {
                let rest = String::from_utf8_lossy(&self.text[self.at..self.text.len().min(self.at + 8)]);
                let found = rest.chars().next().unwrap_or('?').escape_default().to_string();
                return Err(Problem::expected(line, "a word, a number, a variable or a text", &found));
            }
        };
        Ok((token, line))
    }

    /// `$name`, `${name}` or `$(name)`; outside of quotes also `$name.attribute`.
    fn variable(&mut self, has_member: bool) -> Result<String, Problem> {
        self.at += 1;
        let close = match self.peek() {
            Some(b'{') => Some(b'}'),
            Some(b'(') => Some(b')'),
            _ => None,
        };
        self.at += usize::from(close.is_some());
        let mut name = self.taken(is_in_name);
        let is_member = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
        if has_member && self.peek() == Some(b'.') && is_member(self.text.get(self.at + 1)) {
            self.at += 1;
            name = format!("{name}.{}", self.taken(is_in_name));
        }
        if name.is_empty() {
            return Err(Problem::new(self.line, "expected the name of a variable after '$'"));
        }
        if let Some(close) = close {
            if self.peek() != Some(close) {
                let close = char::from(close);
                return Err(Problem::new(self.line, format!("expected '{close}' after the variable {name}")));
            }
            self.at += 1;
        }
        Ok(name)
    }

    /// Digits, and k, m or g for powers of 1024.
    fn integer(&mut self) -> Result<Token, Problem> {
        let text = self.taken(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
        let digits = text.trim_end_matches(['k', 'm', 'g']);
        let shift = match &text[digits.len()..] {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            _ => 99,
        };
        if shift == 99 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let expected = "a whole number, with k, m or g for powers of 1024";
            return Err(Problem::expected(self.line, expected, &format!("'{}'", shortened(&text))));
        }
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        match number.filter(|number| i64::try_from(*number).is_ok()) {
            Some(number) => Ok(Token::Integer(number)),
            None => {
                Err(Problem::expected(self.line, "a number below 2^63", &format!("'{}'", shortened(&text))))
            }
        }
    }

    fn quoted(&mut self) -> Result<Token, Problem> {
        let begin = self.line;
        self.at += 1;
        let (mut pieces, mut text) = (Vec::new(), Vec::new());
        let flush = |text: &mut Vec<u8>, pieces: &mut Vec<Piece>| {
            if !text.is_empty() {
                pieces.push(Piece::Text(String::from_utf8_lossy(&std::mem::take(text)).into_owned()));
            }
        };
        loop {
            let Some(byte) = self.peek() else {
                return Err(Problem::new(begin, "expected '\"' at the end of the text that begins here"));
            };
            match byte {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'n') => text.push(b'\n'),
                        Some(other) => {
                            self.line += u32::from(other == b'\n');
                            text.push(other);
                        }
                        None => continue,
                    }
                }
                b'$' if self
                    .text
                    .get(self.at + 1)
                    .is_some_and(|&next| is_in_name(next) || matches!(next, b'{' | b'(')) =>
                {
                    flush(&mut text, &mut pieces);
                    pieces.push(Piece::Variable(self.variable(false)?));
                    continue;
                }
                byte => {
                    self.line += u32::from(byte == b'\n');
                    text.push(byte);
                }
            }
            self.at += 1;
        }
        self.at += 1;
        flush(&mut text, &mut pieces);
        Ok(Token::Quoted(pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Token>, Problem> {
        let mut lexer = Lexer::new(text);
        let mut found = Vec::new();
        loop {
            match lexer.next()?.0 {
                Token::End => return Ok(found),
                token => found.push(token),
            }
        }
    }

    #[test]
    fn numbers_have_suffixes_and_bounds() {
        for (text, number) in [("0", 0), ("12k", 12 << 10), ("3m", 3 << 20), ("2g", 2 << 30)] {
            assert_eq!(tokens(text).unwrap(), [Token::Integer(number)], "{text}");
        }
        for text in ["1.5", "12K", "1kk", "9223372036854775808", "9999999999g", "1x"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn variables_are_substituted_in_quotes_only_as_written() {
        let text = |text: &str| Piece::Text(text.to_owned());
        let variable = |name: &str| Piece::Variable(name.to_owned());
        let quoted = tokens(r#""a $b.c ${d}e \$f\n""#).unwrap();
        let pieces = vec![text("a "), variable("b"), text(".c "), variable("d"), text("e $f\n")];
        assert_eq!(quoted, [Token::Quoted(pieces)]);
        assert_eq!(
            tokens("$(x) $y.mean").unwrap(),
            [Token::Variable("x".into()), Token::Variable("y.mean".into())]
        );
        for text in ["\"open", "${x", "$", "%"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lines_are_counted_through_comments_and_quotes() {
        let mut lexer = Lexer::new("# one\n\"a\nb\" # two\nword");
        assert_eq!(lexer.next().unwrap().1, 2);
        assert_eq!(lexer.next().unwrap(), (Token::Word("word".into()), 4));
    }
}
