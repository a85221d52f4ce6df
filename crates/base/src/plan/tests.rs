//! Plans read and written.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Plan, PlanError> {
    Plan::from_toml(text, |workload, settings| match workload {
        "stream" => Ok(settings),
        other => Err(PlanError::of_key("workload", format!("there is no workload '{other}'"))),
    })
}

#[test]
fn variant_overrides_shared_settings() {
    let plan = read(
        "workload = 'stream'\n[stream]\nhold = '10s'\nserver.kind = 'embedded'\n\
         [[variant]]\nname = 'slow'\nstream.server.cost_ns_per_byte = 44.8\n[[variant]]\n",
    )
    .unwrap();
    assert_eq!(
        plan.variants[0].settings,
        json!({"hold": "10s", "server": {"kind": "embedded", "cost_ns_per_byte": 44.8}})
    );
    assert_eq!(plan.variants[1].name, "variant 2");
    assert_eq!(plan.variants[1].settings["server"], json!({"kind": "embedded"}));
}

#[test]
fn plan_of_one_variant_equals_its_text() {
    let text = "workload = 'stream'\nname = 'n'\n[[variant]]\nname = 'v'\nstream.hold = '10s'\n";
    assert_eq!(Plan::of_one("stream", "n", "v", json!({ "hold": "10s" })), read(text).unwrap());
}

#[test]
fn plan_round_trips_through_toml() {
    let text = "workload = 'stream'\nrepeats = 3\n[stream]\nhold = '10s'\n[[variant]]\nname = 'a'\n";
    let plan = read(text).unwrap();
    assert_eq!(read(&plan.to_toml().unwrap()).unwrap(), plan);
}

#[test]
fn policy_of_a_variant_takes_what_it_leaves_out_from_the_plan() {
    let text = "workload = 'stream'\n[qos]\nhosts = ['robot-*', 'background']\n[[variant]]\nname = 'none'\n\
                [[variant]]\nname = 'all'\nqos.policy = 'a.toml'\n[[variant]]\nname = 'one'\n\
                qos = { policy = 'b.toml', hosts = 'robot-1' }\n";
    let plan = read(text).unwrap();
    let policies = plan.variants.iter().map(|variant| variant.qos.as_ref());
    let found: Vec<_> = policies.map(|qos| qos.map(|qos| (qos.policy.as_str(), qos.hosts().hosts))).collect();
    let of = |policy, hosts: &str| Some((policy, hosts.to_owned()));
    assert_eq!(found, [None, of("a.toml", "robot-*, background"), of("b.toml", "robot-1")]);
    assert_eq!(read(&plan.to_toml().unwrap()).unwrap(), plan);
    let plain = read("workload = 'stream'\nqos.policy = 'a.toml'\n").unwrap();
    let plain = plain.variants[0].qos.as_ref().unwrap();
    assert_eq!((plain.hosts().hosts.as_str(), plain.coordinator()), (crate::part::HERE, None));
    let led = read("workload = 'stream'\nqos = { policy = 'a.toml', coordinator = ' desk ' }\n").unwrap();
    let coordinator = led.variants[0].qos.as_ref().unwrap().coordinator();
    assert_eq!(coordinator.map(|wish| wish.hosts).as_deref(), Some("desk"));
    assert_eq!(read(&led.to_toml().unwrap()).unwrap(), led);
}

#[test]
fn kernel_settings_of_a_variant_are_added_to_those_of_the_plan() {
    let text = "workload = 'stream'\n[tune]\nhosts = ['nas']\nsettings.tcp_sack = 0\n[[variant]]\n\
                name = 'now'\n[[variant]]\nname = 'new'\n\
                tune.settings.'net.ipv4.tcp_wmem' = '4096 16384 8MiB'\n";
    let plan = read(text).unwrap();
    let settings = |at: usize| {
        let tune = plan.variants[at].tune.as_ref().unwrap();
        assert_eq!(tune.hosts().hosts, "nas");
        tune.settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(settings(0), ["tcp_sack=0"]);
    assert_eq!(settings(1), ["net.ipv4.tcp_wmem=4096 16384 8MiB", "tcp_sack=0"]);
    assert_eq!(read(&plan.to_toml().unwrap()).unwrap(), plan);
    assert!(read("workload = 'stream'\n").unwrap().variants[0].tune.is_none());
}

#[test]
fn plan_has_at_most_1000_variants() {
    let with = |count: usize| {
        let variants = (0..count).map(|at| format!("[[variant]]\nname = 'v{at}'\n"));
        read(&variants.fold("workload = 'stream'\n".to_owned(), |text, one| text + &one))
    };
    assert_eq!(with(1000).unwrap().variants.len(), 1000);
    let error = with(10_000).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("variant"));
    assert!(error.to_string().contains("10000 variants, and at most 1000"), "{error}");
}

#[test]
fn plan_error_gives_line_and_expectation() {
    for (text, part) in [
        (
            "workload = 'stream'\nrepeat = 3\n",
            "line 2: repeat: unknown key; did you mean 'repeats'? The keys are",
        ),
        ("workload = 'stream'\nrepeats = 0\n", "line 2: repeats: 0 is not within"),
        ("workload = 'stream'\nschema = 9\n", "line 2: schema: the plan has schema 9"),
        ("workload = 'stream'\n\nname = \n", "line 3:"),
        ("name = 'x'\n", "missing field `workload`"),
        ("[workload]\nkind = 'stream'\n", "line 1: workload: invalid type: map, expected a string"),
        ("workload = 'stream'\nrepeats = 'two'\n", "line 2: repeats: invalid type"),
        (
            "workload = 'stream'\n[qos]\npolice = 'a'\n",
            "line 3: qos.police: unknown key; did you mean 'policy'?",
        ),
        ("workload = 'stream'\n[qos]\npolicy = 5\n", "line 3: qos.policy: expected the file"),
        ("workload = 'stream'\n[qos]\nhosts = [5]\n", "line 3: qos.hosts: expected a list"),
        ("workload = 'stream'\n[qos]\ncoordinator = ['a']\n", "line 3: qos.coordinator: expected the name"),
        ("workload = 'stream'\n[[variant]]\nqos = 'a.toml'\n", "line 3: qos: expected a table"),
        (
            "workload = 'stream'\n[tune]\nsetting = 'a'\n",
            "line 3: tune.setting: unknown key; did you mean 'settings'?",
        ),
        ("workload = 'stream'\n[tune]\nsettings = 5\n", "line 3: tune.settings: expected a table"),
        ("workload = 'stream'\n[tune]\nhosts = ['']\n", "line 3: tune.hosts: a host has no name"),
        ("workload = 'stream'\ntune.settings.net.x = 1\n", "tune.settings.net: expected a text or a number"),
        ("workload = 'stream'\n[[variant]]\ntune = 'a'\n", "line 3: tune: expected a table"),
        ("workload = 'dream'\n", "there is no workload 'dream'"),
        ("workload = 'stream'\nrequire = ['quick']\n", "line 2: require"),
        ("workload = 'stream'\n[[variant]]\nname='a'\n[[variant]]\nname='a'\n", "two variants"),
        (
            "workload = 'stream'\n[[variant]]\nhost = 'a'\n",
            "line 3: host: in variant 'variant 1': unknown key; expected one of name, place",
        ),
    ] {
        let message = read(text).unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(workload|=|'stream'|\n|\\[|\\]|variant|é|#|\\PC){0,30}") {
        let _ = read(&text);
    }
}
