//! Errors show the file, the line, and what was expected there.

use super::evaluate;

/// A program, and what its error says.
const CASES: &[(&str, &str)] = &[
    ("set nfiles=3", "a.f:1: expected a variable such as $nfiles, or 'mode', found 'nfiles'"),
    ("\nset $a 3", "a.f:2: expected '=' after the variable, found the number 3"),
    ("set $a=", "a.f:1: expected a value: a number, a word, a variable or a text in quotes, found the end"),
    ("set $a=1\nfrobnicate", "a.f:2: expected a command: set, define"),
    ("define tree name=a", "a.f:1: expected file, fileset, process or flowop, found 'tree'"),
    ("define fileset name=a,colour=3", "a.f:1: expected an attribute of a fileset (name, path, size"),
    ("define file name=a,dirwidth=3", "a.f:1: expected an attribute of a file (name"),
    ("define fileset name=a,\n  entries=1,\n  entries=2", "a.f:3: the attribute 'entries' is given twice"),
    ("define fileset entries=1", "a.f:1: a fileset needs a name: name=..."),
    ("define fileset name=a,entries=$n", "a.f:1: entries: the variable $n is not set; set it before"),
    ("define fileset name=a,entries=many", "a.f:1: entries: expected a number, found 'many'"),
    ("define fileset name=a,prealloc=101", "a.f:1: prealloc=101 is more than 100 %"),
    ("define fileset name=a\ndefine file name=a", "a.f:2: 'a' is defined twice"),
    ("define fileset name=a,size=9223372036854775808", "a.f:1: expected a number below 2^63"),
    ("define process name=p { flowop read }", "a.f:1: expected thread, or '}' at the end of the process"),
    ("define process name=p { thread name=t { read } }", "a.f:1: expected flowop, or '}'"),
    ("define process name=p { thread name=t {", "a.f:1: expected flowop, or '}' at the end of the flowops"),
    (
        "define process name=p {\n thread name=t {\n flowop raed name=r } }",
        "a.f:3: expected a flowop (read, write",
    ),
    (
        "define process name=p { thread name=t { flowop read fd=128 } }",
        "a.f:1: fd=128: a thread has the slots 0 to 127",
    ),
    ("define process name=p,instances=1000001 { }", "a.f:1: instances=1000001 is more than 1000000"),
    (
        "set $a=randvar(type=normal)\ndefine fileset name=b,size=$a",
        "a.f:2: size: expected the type uniform, gamma",
    ),
    ("set $a=randvar(type=uniform,min=5,mean=2)\ndefine fileset name=b,size=$a", "must not be below its min"),
    ("set $a=randvar(type=tabular,randtable={{90,1,2}})\ndefine fileset name=b,size=$a", "make 90, not 100"),
    (
        "set $a=randvar(type=tabular,randtable={{100,5,2}})\ndefine fileset name=b,size=$a",
        "low is above high",
    ),
    (
        "set $a=cvar(type=cvar-odd)\ndefine fileset name=b,size=$a",
        "a.f:2: size: expected the type cvar-gamma",
    ),
    ("set $a=cvar(type=cvar-normal,parameters=mean)\ndefine fileset name=b,size=$a", "name:number"),
    (
        "set $a=cvar(type=cvar-normal,parameters=meen:3)\ndefine fileset name=b,size=$a",
        "has no parameter 'meen'",
    ),
    ("set $a=cvar(type=cvar-gamma,parameters=gamma:0)\ndefine fileset name=b,size=$a", "must be above 0"),
    (
        "set $a=randvar(type=gamma,mean=3)\ndefine fileset name=b,entries=$a",
        "entries: expected a number, found randvar",
    ),
    ("set $a=3 - 5", "a.f:1: 3 - 5 is no number from 0 to 2^63"),
    ("set $a=3 / 0", "a.f:1: 3 / 0 is no number"),
    ("set mode quit soon", "a.f:1: expected timeout, firstdone or alldone, found 'soon'"),
    ("defien fileset name=a", "found 'defien'; did you mean 'define'?"),
    ("define filset name=a", "found 'filset'; did you mean 'fileset'?"),
    ("define fileset name=a,entrys=3", "found 'entrys'; did you mean 'entries'?"),
    ("define process name=p { thread name=t { flowop raed name=r } }", "did you mean 'read'?"),
    ("define process name=p { thred name=t { } }", "found 'thred'; did you mean 'thread'?"),
    (
        "define process name=p { thread name=t { flowop read name=r,fd=1\nflowopp write name=w } }",
        "a.f:2: expected ',' and a further attribute, or the end of the list, behind 'fd', found 'flowopp'; \
         did you mean 'flowop'?",
    ),
    (
        "define fileset name=a\n entries=3",
        "a.f:2: expected ',' and a further attribute, or the end of the list, behind 'name', found \
         'entries'; \
         is a comma missing?",
    ),
    ("load nothing", "a.f:1: there is no personality 'nothing' to load"),
    ("eventgen 5", "a.f:1: expected rate=EVENTS, found the number 5"),
    ("echo \"open", "a.f:1: expected '\"' at the end of the text that begins here"),
    ("set $a=$b\nset $b=$a\ndefine fileset name=$a", "a.f:3: name: the variable refers to itself"),
    (
        "set $a=randvar(mean=$a)\ndefine fileset name=b,size=$a",
        "a.f:1: size: mean: expected a number, found randvar",
    ),
];

#[test]
fn error_names_file_line_and_what_was_expected() {
    for (text, error) in CASES {
        let found = evaluate(text, &[]).expect_err(text).to_string();
        assert!(found.contains(error), "{text}\n found: {found}\n expected: {error}");
    }
}

#[test]
fn loaded_program_s_error_names_it() {
    let error = evaluate("load shared\ndefine fileset name=a", &[]).unwrap_err();
    assert_eq!((error.file.as_str(), error.line), ("a.f", 2));
    let error = evaluate("load shared\nset $nfiles=none", &[]).unwrap_err();
    assert_eq!((error.file.as_str(), error.line), ("shared.f", 2));
}

#[test]
fn unknown_override_lists_the_variables() {
    let error = evaluate("set $nfiles=3\nset $size=4k", &[("nfile", "5")]).unwrap_err();
    assert!(error.problem.contains("sets no variable 'nfile'; it sets nfiles, size"), "{error}");
    assert!(error.problem.ends_with("; did you mean 'nfiles'?"), "{error}");
}

#[test]
fn composites_that_call_themselves_are_refused_in_bounded_time() {
    let error = evaluate(
        "define flowop name=a { flowop a name=b }\n\
         define process name=p { thread name=t { flowop a name=c } }",
        &[],
    );
    assert!(error.unwrap_err().problem.contains("does 'a' call itself?"));
    let mut doubling = "define flowop name=c0 { flowop stat name=s }\n".replace("stat", "statfile");
    for depth in 1..16 {
        let below = depth - 1;
        doubling += &format!(
            "define flowop name=c{depth} {{ flowop c{below} name=a\n flowop c{below} name=b\n \
             flowop c{below} name=c }}\n"
        );
    }
    doubling += "define process name=p { thread name=t { flowop c15 name=all } }";
    let error = evaluate(&doubling, &[]).unwrap_err();
    assert!(error.problem.contains("more than 1000000 steps"), "{error}");
}

#[test]
fn growth_is_bounded() {
    let nested = "randvar(mean=".repeat(50_000);
    assert!(
        evaluate(&format!("set $a={nested}"), &[]).unwrap_err().problem.contains("nested more than 8 times")
    );
    let mut doubling = "set $v0=\"ab\"\n".to_owned();
    for n in 1..40 {
        doubling += &format!("set $v{n}=\"${{v{0}}}${{v{0}}}\"\n", n - 1);
    }
    let error = evaluate(&format!("{doubling}echo \"$v30\""), &[]).unwrap_err();
    assert!(error.problem.contains("longer than 64 KiB"), "{error}");
    let values = (0..2000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let loops = format!("foreach $a in {values} {{ foreach $b in {values} {{ set $c=$b }} }}");
    assert!(evaluate(&loops, &[]).unwrap_err().problem.contains("steps to read"));
    assert!(evaluate(&" ".repeat((1 << 20) + 1), &[]).unwrap_err().problem.contains("at most 1024 KiB"));
}
