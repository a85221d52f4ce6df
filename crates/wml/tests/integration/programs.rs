//! What programs of both dialects mean.

use wml::{Kind, Law, Number, Operation, Quit};

use super::evaluate;

#[test]
fn program_of_the_1_5_dialect_is_understood() {
    let text = r#"
        # a comment
        set $dir=/tmp
        set $n=2k
        set $size=randvar(type=gamma, mean=16k, gamma=1500, round=512)
        set mode quit firstdone
        define fileset name=set1,path=$dir,size=$size,entries=$n,
            dirwidth=20,prealloc=80,paralloc
        define process name=p,instances=2 {
          thread name=t,memsize=10m,instances=3 {
            flowop createfile name=create,filesetname=set1,fd=1
            flowop appendfilerand name=append,iosize=16k,fd=1,iters=4
            flowop closefile name=close,fd=1
            flowop finishoncount name=finish,value=100,target=close
          }
        }
        eventgen rate=50
        echo "made $n files of $size"
        run 30
        define fileset name=never,entries=$unset
    "#;
    let program = evaluate(text, &[]).unwrap();
    let set = &program.filesets[0];
    assert_eq!((set.entries, set.prealloc_percent, set.path.as_str()), (2048, 80, "/data"), "dir is preset");
    let Number::Random(size) = &set.size else { panic!("{set:?}") };
    assert_eq!((&size.law, size.round), (&Law::Gamma { low: 0.0, shape: 1.5, scale: 16_384.0 / 1.5 }, 512));
    assert_eq!((program.threads(), program.quit, program.seconds), (6, Quit::FirstDone, Some(30)));
    assert_eq!((program.event_rate, program.filesets.len()), (Some(50), 1));
    assert_eq!(program.messages, ["made 2048 files of randvar(...)"]);
    let flowops = &program.processes[0].threads[0].flowops;
    assert_eq!(flowops.len(), 4);
    assert_eq!(flowops[1].operation, Operation::Kind(Kind::AppendFileRandom));
    assert_eq!((flowops[1].iterations.constant(), flowops[1].fd), (Some(4), 1));
    assert_eq!(flowops[3].target.as_deref(), Some("close"));
}

#[test]
fn priorities_are_those_of_the_process_and_of_the_thread() {
    let program = |nice: &str, level: &str| {
        evaluate(
            &format!(
                "set $level=3\ndefine process name=p,nice={nice} {{ thread name=a,ioprio={level} {{\
                 flowop hog name=h,value=1 }} thread name=b {{ flowop hog name=i,value=1 }} }}\nrun 1"
            ),
            &[],
        )
    };
    for (nice, expected) in [("5", 5), ("-5", -5), ("\"-20\"", -20)] {
        let program = program(nice, "$level").unwrap();
        let found: Vec<_> =
            program.processes[0].threads.iter().map(|thread| (thread.nice, thread.io_priority)).collect();
        assert_eq!(found, [(expected, Some(3)), (expected, None)], "nice={nice}");
    }
    for (nice, level, words) in [
        ("20", "0", "nice: expected a number from -20 to 19"),
        ("0", "8", "ioprio: expected a number from 0 to 7"),
        ("low", "0", "nice: expected a number"),
    ] {
        let error = program(nice, level).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn loader_has_the_last_word_on_variables_and_time() {
    let program = evaluate("load timed\nset $nfiles=100\nusage\nrun 3", &[]).unwrap();
    assert_eq!((program.filesets[0].entries, program.seconds), (100, Some(3)));
    let program = evaluate("load timed\nset $nfiles=100", &[]).unwrap();
    assert_eq!((program.filesets[0].entries, program.seconds, program.runs), (100, Some(60), true));
    let program = evaluate("load timed\nusage", &[]).unwrap();
    assert!(program.messages.is_empty() && program.notes.len() == 1, "{:?}", program.notes);
}

#[test]
fn dialect_of_the_prompt_is_understood() {
    let text = r#"
        load shared
        set $nfiles = 300
        define randvar name=$s, type=uniform, min=1k, mean=2k
        set $s.mean = 3k
        set $m = $nfiles * 4
        set $d = $m / 100
        define fileset name=c,entries=$m,dirwidth=$d
        define fileset name=b,size=$s,cached=true,reuse,entries=5
        usage "set \$dir=<dir>\n now $dir"
        create files
        stats clear
        system "sync"
        run 300
    "#;
    let program = evaluate(text, &[]).unwrap();
    assert_eq!(program.filesets[0].entries, 300, "a variable's last value counts, also in what was loaded");
    assert_eq!((program.filesets[1].entries, program.filesets[1].dir_width.constant()), (1200, Some(12)));
    let Number::Random(size) = &program.filesets[2].size else { panic!("{program:?}") };
    assert_eq!(size.law, Law::Uniform { low: 1024.0, high: 5120.0 });
    assert_eq!(program.messages, ["set $dir=<dir>\n now /data"]);
    assert_eq!((program.seconds, program.runs), (Some(300), true));
    let notes: Vec<&str> = program.notes.iter().map(|(_, note)| note.as_str()).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[1].starts_with("system has no effect: commands of programs are not executed"));
}

#[test]
fn override_takes_the_place_of_every_set() {
    let text = "set $n=1\ndefine fileset name=a,entries=$n,size=$s\nset $n=2\nset $s=1k";
    let program = evaluate(text, &[("n", "7"), ("s", "randvar(type=uniform,mean=4k)")]).unwrap();
    assert_eq!(program.filesets[0].entries, 7);
    assert_eq!(program.filesets[0].size.constant(), None);
    assert!(program.variables.contains(&("n".to_owned(), "7".to_owned())));
}

#[test]
fn composite_is_expanded_with_the_values_of_its_call() {
    let text = r"
        set $big=64k
        define flowop name=one,$set,$size=8k { flowop read name=r,filesetname=$set,iosize=$size }
        define flowop name=two,$set { flowop one name=inner,$set=$set,$size=$big,iters=2 }
        define process name=p { thread name=t {
            flowop one name=x,$set=a
            flowop two name=y,$set=b,iters=3
        } }
    ";
    let program = evaluate(text, &[]).unwrap();
    let flowops = &program.processes[0].threads[0].flowops;
    let Operation::Composite(one) = &flowops[0].operation else { panic!("{flowops:?}") };
    assert_eq!(
        (one[0].fileset.as_deref(), one[0].io_bytes.clone()),
        (Some("a"), Some(Number::Constant(8192)))
    );
    let Operation::Composite(two) = &flowops[1].operation else { panic!("{flowops:?}") };
    let Operation::Composite(inner) = &two[0].operation else { panic!("{two:?}") };
    assert_eq!((flowops[1].iterations.constant(), two[0].iterations.constant()), (Some(3), Some(2)));
    assert_eq!(
        (inner[0].fileset.as_deref(), inner[0].io_bytes.clone()),
        (Some("b"), Some(Number::Constant(65_536)))
    );
    let missing = "define flowop name=c,$set { flowop read name=r,filesetname=$set }\n\
        define process name=p { thread name=t { flowop c name=x } }";
    assert!(evaluate(missing, &[]).unwrap_err().problem.contains("needs a value for $set"));
    let unknown = missing.replace("name=x", "name=x,$set=a,$sat=b");
    assert!(evaluate(&unknown, &[]).unwrap_err().problem.contains("has no parameter $sat"));
}

#[test]
fn defaults_and_flags_are_filebench_s() {
    let text = "define fileset name=a\ndefine file name=b,size=5,prealloc=false\n\
        define fileset name=c,leafdirs=9,prealloc";
    let sets = evaluate(text, &[]).unwrap().filesets;
    let facts: Vec<_> = sets.iter().map(|set| (set.entries, set.prealloc_percent, set.is_single)).collect();
    assert_eq!(facts, [(1, 0, false), (1, 0, true), (0, 100, false)]);
    let text = "define process name=p { thread name=t { flowop read random,directio=0,fd=3 } }";
    let flowop = evaluate(text, &[]).unwrap().processes.remove(0).threads.remove(0).flowops.remove(0);
    assert_eq!(
        (flowop.is_random, flowop.is_direct, flowop.fd, flowop.name.as_str()),
        (true, false, 3, "read")
    );
    assert_eq!(evaluate("psrun -10 60", &[]).unwrap().seconds, Some(60));
    assert!(evaluate("foreach $x in 1,2 { echo \"$x\" }\nrun", &[]).unwrap().messages == ["1", "2"]);
}
