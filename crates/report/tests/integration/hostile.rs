//! A run of a stranger, with control characters in every string that it can have: nothing that is printed of
//! it obeys them.

use base::outcome::Run;
use report::html::Extras;
use report::terminal::{
    Entry, Style, brief_explained, comparison, differences, explained, list_table, summary,
};
use serde_json::Value;

use crate::simulate;

/// Escape sequences by ESC and by CSI (U+009B), a bell, a carriage return, DEL, and a change of direction.
const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\u{7}\r\n\u{7f}\u{202e}";
/// Objects whose keys are names that anyone can choose.
const NAMED: [&str; 4] = ["metrics", "environment", "values", "settings"];

/// Calls `change` for each string and each free name below `value`, in the same order each time.
fn visit(value: &mut Value, below: &str, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, below, change)),
        Value::Object(members) => {
            let old = std::mem::take(members);
            for (mut key, mut member) in old {
                let name = key.clone();
                if NAMED.contains(&below) {
                    change(&mut key);
                }
                visit(&mut member, &name, change);
                members.insert(key, member);
            }
        }
        _ => {}
    }
}

/// The run with `HOSTILE` in every string but those that must be a word of a list, a time, or the like.
fn hostile(run: &Run) -> (Run, usize) {
    let mut document = serde_json::to_value(run).unwrap();
    let mut count = 0;
    visit(&mut document, "", &mut |_| count += 1);
    let mut changed = 0;
    for index in 0..count {
        let (mut tried, mut at) = (document.clone(), 0);
        visit(&mut tried, "", &mut |text| {
            if at == index {
                *text = format!("{HOSTILE}{text}{HOSTILE}");
            }
            at += 1;
        });
        // The order of the members may have changed with a name; the number of strings has not.
        if serde_json::from_value::<Run>(tried.clone()).is_ok() {
            document = tried;
            changed += 1;
        }
    }
    (serde_json::from_value(document).unwrap(), changed)
}

#[test]
fn control_characters_of_a_run_reach_no_output() {
    for (name, mut run) in simulate::all() {
        // A few trials and samples have every string that there can be.
        run.trials.truncate(3);
        for trial in &mut run.trials {
            trial.series.truncate(1);
            trial.series.iter_mut().for_each(|series| {
                series.at_s.truncate(3);
                series.values.truncate(3);
            });
        }
        let (bad, changed) = hostile(&run);
        assert!(changed > 30, "{name}: only {changed} strings could be changed");
        let style = Style { colour: false, width: 80, unicode: true };
        let entry = Entry::from(&bad);
        let texts = [
            ("summary", summary(&bad, &Extras::default(), style, Some("report\u{1b}.html"))),
            ("explained", explained(&bad, style)),
            ("brief_explained", brief_explained(&bad, style)),
            ("differences", differences(&store::compare::compare(&[run, bad.clone()], &[]), style)),
            ("comparison", comparison(&[&bad, &bad], style)),
            ("list", list_table(&[entry], style)),
            ("json", String::from_utf8(store::export(&bad).unwrap()).unwrap()),
        ];
        for (what, text) in texts {
            let found = text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
            // JSON may hold a change of direction: it is no control character.
            let found = found.filter(|c| what != "json" || c.is_control());
            assert_eq!(found, None, "{what} of {name}:\n{text:?}");
        }
        let json = store::export(&bad).unwrap();
        assert_eq!(store::read_export(&json).unwrap(), bad, "escaped, not lost");
    }
}
