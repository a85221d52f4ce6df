//! What holds for every text.

use proptest::prelude::*;
use wml::syntax::{parse, parse_value};

use super::evaluate;

const WORDS: [&str; 40] = [
    "set",
    "$n",
    "=",
    "5",
    "4k",
    "define",
    "fileset",
    "file",
    "process",
    "thread",
    "flowop",
    "name",
    "a",
    "{",
    "}",
    ",",
    "entries",
    "size",
    "run",
    "foreach",
    "in",
    "echo",
    "\"t $n\"",
    "randvar",
    "(",
    ")",
    "type",
    "gamma",
    "mean",
    "load",
    "shared",
    "read",
    "filesetname",
    "iters",
    "mode",
    "quit",
    "firstdone",
    "\n",
    "#",
    "cvar",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_a_line_of_it(text in ".{0,200}") {
        let lines = text.lines().count() as u32 + 1;
        if let Err(error) = parse("a.f", &text) {
            prop_assert!((1..=lines).contains(&error.line) && !error.problem.is_empty());
        }
        let _ = parse_value(&text);
    }

    #[test]
    fn any_order_of_words_is_evaluated_or_refused(words in proptest::collection::vec(0..WORDS.len(), 0..60)) {
        let text = words.iter().map(|at| WORDS[*at]).collect::<Vec<_>>().join(" ");
        match evaluate(&text, &[]) {
            Ok(program) => prop_assert_eq!(evaluate(&text, &[]), Ok(program)),
            Err(error) => prop_assert!(!error.problem.is_empty()),
        }
    }

    #[test]
    fn numbers_keep_their_value(number in 0..=i64::MAX as u64, n in 0..2_000_000_000u64) {
        let text = format!("set $n={n}\ndefine fileset name=a,size={number},entries=$n");
        let program = evaluate(&text, &[]).unwrap();
        prop_assert_eq!(program.filesets[0].size.constant(), Some(number));
        prop_assert_eq!(program.filesets[0].entries, n);
    }
}
