use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const HEAD: &str = "[bottleneck]\ninterface = \"eth0\"\ncapacity = \"50Mbit/s\"\n";

fn with_classes(classes: &str) -> String {
    format!("{HEAD}{classes}")
}

fn class_text(name: &str, rest: &str) -> String {
    format!("[[class]]\nname = \"{name}\"\npriority = 1\n{rest}\n")
}

fn refused(text: &str) -> PlanError {
    Policy::parse(text).expect_err(text)
}

#[test]
fn example_of_the_documentation_is_accepted() {
    let text = with_classes(
        "[[class]]\nname = \"alarm\"\nmatch = { process = \"alarmd\" }\npriority = 1\ntarget = \"500ms\"\n\
         size = \"250kB\"\ninterval = \"1.5s\"\nclients = 3\noverhead = \"10ms\"\n\
         [[class]]\nname = \"bulk\"\npriority = 5\nfloor = \"2Mbit/s\"\nceiling = \"20Mbit/s\"\n\
         weight = 2\n[class.match]\ncommand = \"rsync -a\"\ncgroup = \"/system.slice\"\nuser = 1000\n\
         port = \"5000-5010\"\npeer = \"10.1.2.3/16\"\n",
    );
    let policy = Policy::parse(&text).unwrap();
    assert_eq!(policy.bottleneck.capacity, Capacity::Given("50Mbit/s".parse().unwrap()));
    let [alarm, bulk] = &policy.classes[..] else { panic!("two classes") };
    assert!(alarm.is_urgent() && !bulk.is_urgent());
    assert_eq!(
        (alarm.clients, alarm.interval, alarm.overhead),
        (3, Some(Span::from_ms(1500)), Span::from_ms(10))
    );
    assert_eq!((bulk.clients, bulk.weight, bulk.size), (1, 2.0, None));
    assert_eq!(bulk.matches.port, Some(Ports { first: 5000, last: 5010 }));
    assert_eq!(bulk.matches.peer, Some("10.1.0.0/16".parse().unwrap()));
    let estimated = text.replace("50Mbit/s", "estimate");
    assert_eq!(Policy::parse(&estimated).unwrap().bottleneck.capacity, Capacity::Estimate);
}

#[test]
fn coordinator_of_several_hosts_is_a_word() {
    let text = with_classes(&class_text("a", "match = { process = \"x\" }"));
    let with = |endpoint: &str| {
        let line = format!("[bottleneck]\ncoordinator = \"{endpoint}\"");
        Policy::parse(&text.replace("[bottleneck]", &line))
    };
    let policy = with("tls/desk.example:7448").unwrap();
    assert_eq!(policy.bottleneck.coordinator.as_deref(), Some("tls/desk.example:7448"));
    let error = with("tls/desk example").unwrap_err();
    assert_eq!((error.line, error.key.as_deref()), (Some(2), Some("bottleneck.coordinator")));
    assert!(error.problem.contains("tls/desk.example:7448"), "{error:?}");
    with("").unwrap_err();
}

#[test]
fn wrong_policy_is_refused_with_line_key_and_advice() {
    let one = |rest: &str| with_classes(&class_text("a", rest));
    let x = "match = { process = \"x\" }";
    let with = |rest: &str| one(&format!("{x}\n{rest}"));
    for (text, line, key, part) in [
        (HEAD.to_owned(), None, "class", "add [[class]]"),
        (String::new(), Some(1), "", "missing field `bottleneck`; add it here"),
        (one("match = {}"), Some(7), "class.match", "at least one of process"),
        (one("match = { proces = \"x\" }"), Some(7), "match", "unknown field `proces`, expected one of"),
        (one("match = \"x\""), Some(7), "match", "{ process = \"rsync\" }"),
        (
            one("match = { process = \"longer-than-the-kernel-keeps\" }"),
            Some(7),
            "class.match.process",
            "ps -o comm",
        ),
        (one("match = { cgroup = \"system.slice\" }"), Some(7), "class.match.cgroup", "/proc/PID/cgroup"),
        (one("match = { user = -1 }"), Some(7), "class.match.user", "or a name"),
        (one("match = { port = 0 }"), Some(7), "class.match.port", "1 to 65535"),
        (one("match = { port = \"10-5\" }"), Some(7), "class.match.port", "5000-5010"),
        (one("match = { peer = \"nas\" }"), Some(7), "class.match.peer", "10.0.0.0/24"),
        (with("target = \"0s\""), Some(8), "class.target", "500ms"),
        (with("congestion_control = \"fast lane\""), Some(8), "class.congestion_control", "\"cubic\""),
        (with("target = \"-5ms\""), Some(8), "target", "must not be negative"),
        (with("target = 500"), Some(8), "target", "the unit is missing"),
        (with("deadline = \"5ms\""), Some(8), "deadline", "unknown field `deadline`"),
        (with("size = \"1kB\""), Some(8), "class.size", "add target"),
        (with("target = \"1s\"\nsize = \"0B\""), Some(9), "class.size", "one message"),
        (with("target = \"1s\"\nclients = 0"), Some(9), "class.clients", "1 to 1000000"),
        (with("clients = \"two\""), Some(8), "clients", "expected a whole number"),
        (with("weight = \"1\""), Some(8), "weight", "expected a number"),
        (with("weight = 0.0"), Some(8), "class.weight", "the usual weight is 1"),
        (with("weight = nan"), Some(8), "class.weight", "the usual weight is 1"),
        (with("floor = \"3Mbit/s\"\nceiling = \"2Mbit/s\""), Some(9), "class.ceiling", "lower the floor"),
        (with("ceiling = \"1kbit/s\""), Some(8), "class.ceiling", "raise it"),
        (with("floor = \"49Mbit/s\""), Some(4), "class.floor", "97 %"),
        (HEAD.replace("50Mbit/s", "0bit/s"), Some(3), "bottleneck.capacity", "slowest link"),
        (HEAD.replace("50Mbit/s", "99Tbit/s"), Some(3), "bottleneck.capacity", "slowest link"),
        (HEAD.replace("50Mbit/s", "guess"), Some(3), "capacity", "or \"estimate\""),
        (HEAD.replace("\"50Mbit/s\"", "50"), Some(3), "capacity", "\"50Mbit/s\", in quotes"),
        (HEAD.replace("eth0", "eth 0"), Some(2), "bottleneck.interface", "ip link"),
        (HEAD.replace("eth0", "longer-than-ifnamsiz"), Some(2), "bottleneck.interface", "ip link"),
        (format!("class = 3\n{HEAD}"), Some(1), "class", "sequence"),
        ("[bottleneck\n".to_owned(), Some(1), "", "unclosed"),
    ] {
        // Without a class, the absence of one would be found first.
        let text = if text.contains("class") || text == HEAD || line.is_none() || text.is_empty() {
            text
        } else {
            text + &class_text("a", x)
        };
        let error = refused(&text);
        assert!(error.problem.contains(part), "{text}\n{error}");
        assert_eq!((error.line, error.key.as_deref().unwrap_or_default()), (line, key), "{text}\n{error}");
    }
    let classes: String = (0..=CLASSES_MAX).map(|n| class_text(&format!("c{n}"), x)).collect();
    assert!(refused(&with_classes(&classes)).problem.contains("more than 64"));
    assert!(refused(&"#".repeat(TEXT_BYTES_MAX + 1)).problem.contains("1 MiB"));
}

#[test]
fn same_name_and_overlapping_matches_are_refused() {
    let two = |a: &str, b: &str| {
        with_classes(&(class_text("a", &format!("match = {a}")) + &class_text("b", &format!("match = {b}"))))
    };
    for (a, b) in [
        ("{ process = \"x\" }", "{ process = \"x\" }"),
        ("{ process = \"x\" }", "{ process = \"x\", port = 80 }"),
        ("{ port = \"70-90\" }", "{ port = 80 }"),
        ("{ peer = \"10.0.0.0/8\" }", "{ peer = \"10.1.2.3\" }"),
        ("{ cgroup = \"/a\" }", "{ cgroup = \"/a/b\" }"),
        ("{ cgroup = \"/\" }", "{ process = \"x\" }"),
        ("{ command = \"rsync\" }", "{ command = \"rsync -a\" }"),
        ("{ user = 5 }", "{ user = 5, peer = \"::1\" }"),
    ] {
        let error = refused(&two(a, b));
        assert_eq!((error.line, error.key.as_deref()), (Some(11), Some("class.match")), "{a} {b}: {error}");
    }
    for (a, b) in [
        ("{ process = \"x\" }", "{ process = \"y\" }"),
        ("{ process = \"x\", port = 80 }", "{ process = \"x\", port = 443 }"),
        ("{ process = \"x\" }", "{ port = 80 }"),
        ("{ peer = \"10.0.0.0/8\" }", "{ peer = \"::/0\" }"),
        ("{ cgroup = \"/a\" }", "{ cgroup = \"/ab\" }"),
        ("{ cgroup = \"/a\" }", "{ cgroup = \"/\" }"),
        ("{ command = \"rsync\" }", "{ command = \"scp\" }"),
        ("{ user = 5 }", "{ user = \"robot\" }"),
    ] {
        Policy::parse(&two(a, b)).unwrap_or_else(|error| panic!("{a} {b}: {error}"));
    }
    let same_name = class_text("a", "match = { port = 1 }") + &class_text("a", "match = { user = 1 }");
    assert!(refused(&with_classes(&same_name)).problem.contains("rename one of them"));
}

#[test]
fn first_matching_class_gets_the_socket() {
    let classes = class_text("video", "match = { port = 80 }")
        + &class_text("root", "match = { user = 0, cgroup = \"/\" }")
        + &class_text("peer", "match = { peer = \"10.0.0.0/8\", command = \"copy\" }");
    let policy = Policy::parse(&with_classes(&classes)).unwrap();
    let facts = SocketFacts {
        process: "cp",
        command: "cp copy",
        cgroup: "/user.slice",
        user_id: 0,
        user_name: Some("root"),
        local_port: 40_000,
        peer_port: 80,
        peer: "::ffff:10.0.0.2".parse().unwrap(),
    };
    assert_eq!(policy.class_of(&facts), Some(0));
    assert_eq!(policy.class_of(&SocketFacts { peer_port: 81, ..facts }), Some(1));
    assert_eq!(policy.class_of(&SocketFacts { peer_port: 81, user_id: 1, ..facts }), Some(2));
    let other: IpAddr = "11.0.0.2".parse().unwrap();
    assert_eq!(policy.class_of(&SocketFacts { peer_port: 81, user_id: 1, peer: other, ..facts }), None);
}

fn condition() -> impl Strategy<Value = Match> {
    let option = |values: &'static [&'static str]| proptest::option::of(proptest::sample::select(values));
    (
        option(&["x", "y"]),
        option(&["run", "run fast", "walk"]),
        option(&["/", "/a", "/a/b", "/ab"]),
        proptest::option::of(prop_oneof![
            (0u32..2).prop_map(User::Id),
            proptest::sample::select(&["u", "v"][..]).prop_map(|name| User::Name(name.to_owned()))
        ]),
        proptest::option::of(
            (1u16..4, 0u16..2).prop_map(|(first, more)| Ports { first, last: first + more }),
        ),
        option(&["10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8", "::/0"]),
    )
        .prop_map(|(process, command, cgroup, user, port, peer)| Match {
            process: process.map(str::to_owned),
            command: command.map(str::to_owned),
            cgroup: cgroup.map(str::to_owned),
            user,
            port,
            peer: peer.map(|peer| peer.parse().unwrap()),
        })
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = Policy::parse(&text);
        let _ = Policy::parse(&with_classes(&text));
    }

    #[test]
    fn line_of_an_error_is_in_the_text(key in "[a-z]{1,8}", value in "[ -~]{0,20}") {
        let text = with_classes(&class_text("a", &format!("match = {{ {key} = {value} }}")));
        if let Err(error) = Policy::parse(&text) {
            prop_assert!(error.line.is_none_or(|line| (1..=text.lines().count() + 1).contains(&line)));
            prop_assert!(!error.problem.is_empty());
        }
    }

    #[test]
    fn no_socket_matches_two_disjoint_classes(
        a in condition(),
        b in condition(),
        process in proptest::sample::select(&["x", "y"][..]),
        command in proptest::sample::select(&["run", "run fast", "walk and run", ""][..]),
        cgroup in proptest::sample::select(&["/", "/a", "/a/b/c", "/ab"][..]),
        user_id in 0u32..2,
        user_name in proptest::option::of(proptest::sample::select(&["u", "v"][..])),
        local_port in 1u16..6,
        peer_port in 1u16..6,
        peer in proptest::sample::select(&["10.0.0.1", "10.1.0.1", "11.0.0.1", "::1", "::ffff:10.1.0.1"][..]),
    ) {
        let peer = peer.parse().unwrap();
        let facts =
            SocketFacts { process, command, cgroup, user_id, user_name, local_port, peer_port, peer };
        let overlap = a.overlap(&b);
        prop_assert_eq!(overlap, b.overlap(&a));
        prop_assert!(overlap != Overlap::Disjoint || !(a.accepts(&facts) && b.accepts(&facts)));
    }
}
