//! Programs in WML; what is accepted is evaluated, with and without overridden variables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wml::syntax::{parse, parse_value};
use wml::{Evaluation, Number, Program};

const LOADED: &str = "set $nfiles=10\ndefine fileset name=a,path=$dir,size=4k,entries=$nfiles,prealloc=80\n";

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let lines = text.lines().count() as u32 + 1;
    let commands = match parse("a.f", &text) {
        Ok(commands) => commands,
        Err(error) => {
            assert!((1..=lines).contains(&error.line) && !error.problem.is_empty(), "{error}");
            return;
        }
    };
    let load = |name: &str| (name == "b").then_some(LOADED);
    let evaluate = |overrides| {
        let presets = vec![("dir".to_owned(), parse_value("/x"))];
        Program::evaluate("a.f", &commands, &Evaluation { presets, overrides, load: &load })
    };
    let overrides = vec![("nfiles".to_owned(), parse_value(&text))];
    let _ = evaluate(overrides);
    match evaluate(Vec::new()) {
        Err(error) => assert!(error.file != "a.f" || (1..=lines).contains(&error.line), "{error}"),
        Ok(program) => {
            assert!(program.threads() <= 1_000_000);
            assert_eq!(evaluate(Vec::new()).as_ref(), Ok(&program));
            let mut rng = fastrand::Rng::with_seed(1);
            for set in &program.filesets {
                let size = set.size.draw(&mut rng);
                assert!(set.size.constant().is_none_or(|constant| constant == size));
                if let Number::Random(size) = &set.size {
                    assert!(size.sample(&mut rng) >= size.min);
                }
            }
        }
    }
});
