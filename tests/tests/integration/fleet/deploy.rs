//! The files under `deploy/`: what their own tools say of them, and that they fit each other and this
//! program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use kagiri_tests::{World, need_programs, program, workspace};
use serde_json::Value;

fn deploy(name: &str) -> PathBuf {
    workspace().join("deploy").join(name)
}

fn read(name: &str) -> String {
    let path = deploy(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Everything a tool has to say; it must succeed.
#[track_caller]
fn satisfied(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

/// The options of a verb that the program knows (`--join`, ...).
fn options(verb: &str) -> BTreeSet<String> {
    let help = World::new().run(&[verb, "--help"]).code(0).stdout;
    let words = help.split(|c: char| c.is_whitespace() || "=,[]<>".contains(c));
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

/// The options in a text that calls a verb.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || "=,[]\"'".contains(c));
    words.filter(|word| word.len() > 2 && word.starts_with("--")).map(str::to_owned).collect()
}

#[test]
fn scripts_are_sound() {
    need_programs!("bash", "shellcheck");
    let scripts =
        ["slurm/kagiri.sbatch", "ssh/fleet-start", "ssh/fleet-stop", "ssh/common.bash", "ssh/agent-host"];
    let paths: Vec<PathBuf> = scripts.iter().map(|name| deploy(name)).collect();
    for path in &paths {
        satisfied(Command::new("bash").arg("-n").arg(path));
    }
    let mut shellcheck = Command::new("shellcheck");
    shellcheck.args(["--external-sources", "--source-path=SCRIPTDIR"]).args(&paths);
    let said = satisfied(&mut shellcheck);
    assert_eq!(said, "");
}

#[test]
fn the_service_is_valid_and_locked_up() {
    need_programs!("systemd-analyze");
    let unit = read("systemd/kagiri-agent.service");
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).expect("it starts something");
    assert_eq!(named(start).difference(&options("agent")).next(), None, "{start}");
    // systemd looks whether the program is there: this build's is.
    let world = World::new();
    let unit = unit.replace("/usr/local/bin/kagiri", &program().display().to_string());
    let path = world.write("kagiri-agent.service", unit);
    let analyze = || {
        let mut command = Command::new("systemd-analyze");
        command.env("SYSTEMD_LOG_COLOR", "0");
        command
    };
    assert_eq!(satisfied(analyze().arg("verify").arg(&path)), "");
    // systemd's own scale, times ten: from 0, shut off, to 100, unprotected.
    satisfied(analyze().args(["security", "--no-pager", "--offline=true", "--threshold=20"]).arg(&path));
}

fn documents(name: &str) -> Vec<Value> {
    let text = read(&format!("kubernetes/{name}"));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn texts(value: &Value) -> Vec<String> {
    let words = value.as_array().map(Vec::as_slice).unwrap_or_default();
    words.iter().map(|word| word.as_str().expect("a text").to_owned()).collect()
}

fn names(value: &Value) -> BTreeSet<String> {
    let all = value.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

/// What holds for every pod: no right that it does not need, nothing mounted that is not there, bounded
/// memory.
fn check_pod(file: &str, workload: &Value) {
    let template = &workload["spec"]["template"];
    let pod = &template["spec"];
    assert_eq!(template["metadata"]["labels"], workload["metadata"]["labels"], "{file}: found by its label");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{file}");
    assert_eq!(pod["automountServiceAccountToken"], false, "{file}");
    let volumes = names(&pod["volumes"]);
    let first = pod["initContainers"].as_array().map(Vec::as_slice).unwrap_or_default();
    for container in first.iter().chain(pod["containers"].as_array().expect("containers")) {
        let place = format!("{file}: {}", container["name"]);
        assert_eq!(
            container["securityContext"]["capabilities"]["drop"],
            serde_json::json!(["ALL"]),
            "{place}"
        );
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false, "{place}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{place}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{place}: its memory is bounded");
        let mounted = names(&container["volumeMounts"]);
        assert_eq!(mounted.difference(&volumes).next(), None, "{place}: mounts what is not there");
        let arguments = texts(&container["args"]);
        let Some(verb) = arguments.first() else { continue };
        let unknown: Vec<_> = named(&arguments.join(" ")).difference(&options(verb)).cloned().collect();
        assert_eq!(unknown, [""; 0], "{place}: the program does not know these options of '{verb}'");
        let declared = names(&container["env"]);
        for used in arguments.iter().filter_map(|word| Some(word.split_once("$(")?.1.split_once(')')?.0)) {
            assert!(declared.contains(used), "{place}: ${used} is not set");
        }
    }
}

#[test]
fn the_pods_fit_their_service_and_this_program() {
    let of_kind = |documents: &[Value], kind: &str| {
        documents.iter().find(|one| one["kind"] == kind).cloned().unwrap_or_else(|| panic!("no {kind}"))
    };
    let coordinator = documents("coordinator.yaml");
    let (service, run) = (of_kind(&coordinator, "Service"), of_kind(&coordinator, "Job"));
    let agents = of_kind(&documents("job-indexed.yaml"), "Job");
    let standing = documents("daemonset.yaml");
    for (file, workload) in [
        ("coordinator.yaml", &run),
        ("job-indexed.yaml", &agents),
        ("daemonset.yaml", &of_kind(&standing, "DaemonSet")),
    ] {
        check_pod(file, workload);
    }
    assert_eq!(service["spec"]["selector"], run["spec"]["template"]["metadata"]["labels"]);
    let port = service["spec"]["ports"][0]["port"].as_u64().expect("a port");
    // Clock probes go to the bus's own number.
    assert_eq!(service["spec"]["ports"][1]["port"].as_u64(), Some(port));
    assert_eq!(service["spec"]["ports"][1]["protocol"], "UDP");
    let listens = texts(&run["spec"]["template"]["spec"]["containers"][0]["args"]);
    assert!(listens.contains(&format!("tls/0.0.0.0:{port}")), "{listens:?}");
    let name = service["metadata"]["name"].as_str().expect("a name");
    for workload in [&agents, &of_kind(&standing, "DaemonSet")] {
        let joins = texts(&workload["spec"]["template"]["spec"]["containers"][0]["args"]).join(" ");
        assert!(
            joins.contains(&format!("--join=tls/{name}")) && joins.contains(&format!(":{port}")),
            "{joins}"
        );
    }
    assert_eq!(
        agents["spec"]["completions"], agents["spec"]["parallelism"],
        "a run needs its hosts together"
    );
}

#[test]
fn every_pod_gets_its_own_bundle_and_no_other() {
    need_programs!("tar");
    let world = World::new();
    let words =
        ["fleet", "init", "fleet", "--coordinator", "kagiri-coordinator", "--host", "agent-1,storage-1"];
    world.run(&words).code(0);
    // As coordinator.yaml says it is made.
    let pack = "cd fleet/bundles && tar -cf ../bundles.tar --exclude=coordinator *";
    assert!(read("kubernetes/coordinator.yaml").contains(pack), "the comment says how");
    satisfied(Command::new("sh").args(["-c", pack]).current_dir(world.path("")));
    let packed = satisfied(Command::new("tar").arg("-tf").arg(world.path("fleet/bundles.tar")));
    assert!(!packed.contains("coordinator"), "that bundle commands the agents: {packed}");
    // Pods of a Job are numbered, those of a DaemonSet called as their nodes.
    for (file, name) in [("job-indexed.yaml", "agent-1"), ("daemonset.yaml", "storage-1")] {
        let first = &documents(file)[0]["spec"]["template"]["spec"]["initContainers"][0];
        let out = world.path(file);
        std::fs::create_dir(&out).expect("a folder");
        let place = |word: &String| match word.as_str() {
            "/bundles/bundles.tar" => world.path("fleet/bundles.tar").display().to_string(),
            "/bundle" => out.display().to_string(),
            "$(KAGIRI_NAME)" => name.to_owned(),
            other => other.to_owned(),
        };
        let command: Vec<String> = texts(&first["command"]).iter().map(place).collect();
        satisfied(Command::new(&command[0]).args(&command[1..]));
        for part in ["ca.pem", "cert.pem", "key.pem", "policy.toml"] {
            let own = std::fs::read(world.path("fleet/bundles").join(name).join(part)).expect("made by init");
            assert!(std::fs::read(out.join(part)).expect("unpacked") == own, "{file}: {part}");
        }
    }
}

#[test]
fn the_container_is_built_from_what_there_is() {
    let text = read("Containerfile");
    let copied =
        text.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--"));
    let mut there = 0;
    for source in copied.flat_map(|line| line.split(' ').rev().skip(1).collect::<Vec<_>>()) {
        assert!(Path::new(&workspace()).join(source).exists(), "{source} is not there to be copied");
        there += 1;
    }
    assert!(there >= 4, "the sources are copied");
}
