//! Commands on the console of another host. The witness of their answers is the same command without
//! `--console`, in the folder of the console's results.

mod resume;
mod tune;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use kagiri_tests::{Authority, Console, Ended, Live, World, beside_others, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(90);

/// Bytes over loopback for some time, slowly, so that other tests are not disturbed.
fn write_plan(world: &World, name: &str, repeats: u32, time: &str) -> String {
    let text = format!(
        "name = '{name}'\nworkload = 'transfer'\nrepeats = {repeats}\n[transfer]\nrate = '20Mbit/s'\n\
         time = '{time}'\n"
    );
    world.write(&format!("{name}.toml"), text);
    format!("{name}.toml")
}

/// Starts a command on a console, from a host that has no runs.
fn start(away: &World, console: &Console, words: &[&str]) -> Live {
    let mut command = away.command(words);
    command.env("KAGIRI_CONSOLE", url(console)).env("KAGIRI_TOKEN", &console.token);
    Live::start(command)
}

fn url(console: &Console) -> String {
    format!("http://{}", console.address)
}

fn ask(away: &World, console: &Console, words: &[&str]) -> Ended {
    let ended = start(away, console, words).end(PATIENCE);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    assert!(!away.data().exists(), "{words:?} used the results of this host");
    ended
}

/// The newest run of the console's folder.
fn newest(world: &World) -> Value {
    world.run(&["runs", "list", "--json"]).code(0).json()[0].clone()
}

#[test]
fn run_is_followed_and_its_answer_is_that_of_the_console() {
    let _beside = beside_others();
    let (world, away) = (World::new(), World::new());
    let console = Console::start(&world);
    let plan = write_plan(&away, "first", 1, "1s");
    let ended = ask(&away, &console, &["run", &plan, "--full", "--out", "out"]).code(0);
    let id = newest(&world)["run"].as_str().expect("an id").to_owned();
    let shown = world.run(&["runs", "show", &id]).code(0).stdout;
    let ended = ended.says(&["has the plan as job", "1 trial, about", "measuring", "pass"]);
    let (answer, report) = ended.stdout.rsplit_once("Report: ").expect("a report");
    assert_eq!(answer, shown);
    assert_eq!(report.trim(), format!("out/{id}.html"));
    let stored = world.run(&["runs", "show", &id, "--json"]).code(0).stdout;
    assert_eq!(std::fs::read_to_string(away.path("out").join(format!("{id}.json"))).ok(), Some(stored));
    assert!(!world.data().join("reports").join("out").exists());

    // What the command line says beside the plan is measured, and its exit code is that of a run here.
    let hard =
        ["run", &plan, "--repeat", "2", "--require", "goodput>=900Mbit/s", "--json", "--json-lines=lines"];
    let ended = ask(&away, &console, &hard).code(3);
    let second = newest(&world)["run"].as_str().expect("an id").to_owned();
    assert_eq!(ended.stdout, world.run(&["runs", "show", &second, "--json"]).code(0).stdout);
    assert_eq!(ended.json()["plan"]["repeats"], 2);
    let lines = std::fs::read_to_string(away.path("lines")).expect("the lines");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().all(|line| line["run"] == second.as_str()), "{lines:?}");
    let trials = lines.iter().filter(|line| line["event"] == "trial").count();
    assert!(trials >= 2 && lines.last().is_some_and(|line| line["event"] == "end"), "{lines:?}");
    let brief = ask(&away, &console, &["run", &plan, "--quiet"]).code(0);
    assert!(brief.stderr.is_empty(), "{}", brief.stderr);
    assert!(
        brief.stdout.contains(&format!("kagiri --console {} runs show", url(&console))),
        "{}",
        brief.stdout
    );

    for words in [
        &["runs", "list", "--all"][..],
        &["runs", "list", "--json"],
        &["runs", "show", "last~1"],
        &["runs", "show", &id, "--plan"],
        &["runs", "compare", "last", "last~1"],
        &["runs", "compare", "last", &id, "--json"],
        &["runs", "export", "--format", "trials-csv"],
        &["report", "last", "-o", "-"],
    ] {
        let there = ask(&away, &console, words).code(0);
        assert_eq!(there.stdout, world.run(words).code(0).stdout, "{words:?}");
    }
    let exported = away.path("out").join(format!("{id}.json"));
    let beside = ["runs", "compare", exported.to_str().expect("UTF-8"), "last"];
    assert_eq!(ask(&away, &console, &beside).code(0).stdout, world.run(&beside).code(0).stdout);
    let dry = ask(&away, &console, &["run", &plan, "--dry-run"]).code(0);
    assert_eq!(dry.json(), away.run(&["run", &plan, "--dry-run"]).code(0).json());
    assert_eq!(console.get("/jobs").as_array().map(Vec::len), Some(3));
}

#[test]
fn wrong_input_is_one_message_and_nothing_is_done_here() {
    let (world, away) = (World::new(), World::new());
    world.import_fixture();
    let console = Console::start(&world);
    let plan = write_plan(&away, "plan", 1, "1s");
    away.write("bad.toml", "workload = 'transfer'\n[transfer]\ntime = 'long'\n");
    away.write("hosts.toml", "workload = 'transfer'\n[place]\nserver = 'nas'\n");
    for (words, parts) in [
        (&["run", "bad.toml"][..], &["bad.toml:3: transfer.time", &url(&console)][..]),
        (&["run", "hosts.toml"], &["--fleet"]),
        (&["run", "none.toml"], &["none.toml", "cannot read"]),
        (&["run", &plan, "--require", "nonsense>=4"], &["nonsense"]),
        (&["run", "--resume", "last"], &["was measured to its end", &url(&console)]),
        (&["run", "--resume", "nothing"], &["no run 'nothing'", &url(&console)]),
        (&["run", &plan, "--listen", "tcp/127.0.0.1:7447"], &["Hosts", "does not work on console"]),
        (&["runs", "show", "nothing"], &["no run 'nothing'", &url(&console)]),
        (&["report", "nothing"], &["no run 'nothing'"]),
        (&["runs", "rm", "last"], &["does not work on console", "KAGIRI_CONSOLE"]),
        (&["transfer"], &["does not work on console"]),
        (&["survey"], &["does not work on console"]),
        (&["qos", "clear"], &["does not work on console"]),
        (&["undo"], &["does not work on console"]),
        (&["serve"], &["does not work on console"]),
        (&["run", &plan, "--console-ca", "none.pem"], &["none.pem", "No such file"]),
        (&["run", &plan, "--console", "http://10.0.0.1:7890"], &["clear text"]),
        (&["run", &plan, "--console-token", "none"], &["none", "No such file"]),
    ] {
        ask(&away, &console, words).fails(2, parts);
    }
    assert_eq!(console.get("/jobs"), json!([]));
    assert_eq!(console.get("/runs")["runs"].as_array().map(Vec::len), Some(1), "no run was removed");
    // About this program itself.
    ask(&away, &console, &["completions", "bash"]).code(0);

    let with = |words: &[&str], token: &str| {
        let mut command = away.command(words);
        command.env("KAGIRI_TOKEN", token);
        Live::start(command).end(PATIENCE)
    };
    let there = url(&console);
    with(&["runs", "list", "--console", &there], "wrong")
        .fails(2, &["refuses the token", &there, "console/token"]);
    with(&["runs", "list", "--console", &there], "").fails(2, &["KAGIRI_TOKEN", "--console-token"]);
    with(&["runs", "list", "--console-ca", "a.pem"], "wrong").fails(2, &["--console URL"]);
    // The address that 'kagiri serve' prints: no message repeats its token.
    let printed = format!("{there}/#token=5ec4e7");
    let refused = with(&["runs", "list", "--console", &printed], "wrong").fails(2, &["KAGIRI_TOKEN"]);
    assert!(!refused.stderr.contains("5ec4e7"), "{}", refused.stderr);
    with(&["undo", "--console", &printed], "wrong").fails(2, &["does not work on console"]);
    let token = away.write("token", &console.token);
    let by_file = ["runs", "list", "--console", &there, "--console-token", "token"];
    set_mode(&token, 0o644);
    with(&by_file, "").fails(2, &["chmod 600"]);
    set_mode(&token, 0o600);
    with(&by_file, "wrong").code(0);
    console.end(Signal::SIGINT).code(0);
    with(&by_file, "").fails(1, &["connection refused", &there, "kagiri serve"]);
}

#[test]
fn help_shows_the_options_of_a_console_where_it_does_the_command() {
    let world = World::new();
    for (words, is_shown) in [
        (&["run"][..], true),
        (&["runs", "list"], true),
        (&["runs", "export"], true),
        (&["report"], true),
        (&["qos", "status"], true),
        (&["tune", "advise"], true),
        (&["tune", "list"], true),
        (&["runs", "rm"], false),
        (&["qos", "run"], false),
        (&["tune", "set"], false),
        (&["transfer"], false),
        (&["content", "serve"], false),
        (&["undo"], false),
        (&["serve"], false),
    ] {
        let help = world.run(&[words, &["--help"]].concat()).code(0).stdout;
        for option in ["--console <URL>", "--console-token <FILE>", "--console-ca <FILE>"] {
            assert_eq!(help.contains(option), is_shown, "{words:?}: {help}");
        }
    }
    let whole = world.run(&["--help"]).code(0).stdout;
    let words: Vec<&str> = whole.split_whitespace().collect();
    assert!(words.join(" ").contains("runs export, report, qos status, tune advise, tune list"), "{whole}");
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("a file of the test");
}

/// Serves one connection, with a fixed answer.
fn server_that_answers(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(answer.as_bytes());
    });
    format!("http://{address}")
}

#[test]
fn what_is_no_console_or_another_version_is_said() {
    let away = World::new();
    const OTHER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    const MOVED: &str = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    const SHORT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{";
    for (answer, code, part) in [
        (OTHER, 1, "cannot be read"),
        (MISSING, 2, "not as a console"),
        (MOVED, 1, "not as a console"),
        (SHORT, 1, "broke off"),
        ("SSH-2.0-OpenSSH\r\n", 1, "broke off"),
    ] {
        let mut command = away.command(&["runs", "list", "--console", &server_that_answers(answer)]);
        command.env("KAGIRI_TOKEN", "token");
        Live::start(command).end(PATIENCE).fails(code, &["console http://127.0.0.1:", part]);
    }
    // A console of another version: it is named, and then its list, which lacks something, is refused.
    let facts = "{\"version\":\"0.0.1\",\"host\":\"old\"}";
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for body in [facts, "{\"runs\":[{\"id\":\"a\"}],\"next\":null}"] {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    let mut command = away.command(&["runs", "list", "--console", &format!("http://{address}")]);
    command.env("KAGIRI_TOKEN", "token");
    let ended = Live::start(command).end(PATIENCE);
    ended.fails(1, &["note: ", "runs kagiri 0.0.1", "summary", "use the same version"]);
}

#[test]
fn interrupted_run_is_stopped_there_and_keeps_what_it_measured() {
    let _beside = beside_others();
    let (world, away) = (World::new(), World::new());
    let console = Console::start(&world);
    let mut first = start(&away, &console, &["run", &write_plan(&away, "first", 100, "1s"), "--full"]);
    first.wait_for("measuring", PATIENCE);
    let mut second = start(&away, &console, &["run", &write_plan(&away, "second", 1, "1s")]);
    second.wait_for("place 1 in its queue: waits for 'first'", PATIENCE);
    second.signal(Signal::SIGINT);
    second.end(PATIENCE).fails(130, &["stopped before it began"]);
    first.wait_for("pass", PATIENCE);
    first.signal(Signal::SIGINT);
    let ended = first.end(PATIENCE).code(130).says(&["stopping the run"]);
    let stored = newest(&world);
    assert_eq!((&stored["state"], &stored["name"]), (&json!("interrupted"), &json!("first")), "{stored}");
    assert!(stored["trials"].as_u64().is_some_and(|trials| trials >= 1), "{stored}");
    let id = stored["run"].as_str().expect("an id");
    let ended = ended.says(&[&format!("Go on with 'kagiri --console {} run --resume {id}'", url(&console))]);
    let shown = world.run(&["runs", "show", "last"]).code(0).stdout;
    let (answer, _) = shown.split_once("Go on with it:").expect("how to go on");
    assert_eq!(ended.stdout, answer);
    let states: Vec<Value> = jobs(&console).iter().map(|job| job["state"].clone()).collect();
    assert_eq!(states, [json!("interrupted"), json!("interrupted")]);
}

fn jobs(console: &Console) -> Vec<Value> {
    console.get("/jobs").as_array().expect("jobs").clone()
}

#[test]
fn console_that_dies_is_waited_for_and_then_reported_with_how_to_get_the_result() {
    let _beside = beside_others();
    let (world, away) = (World::new(), World::new());
    let console = Console::start(&world);
    let address = console.address.to_string();
    let plan = write_plan(&away, "survives", 1, "8s");
    let mut run = start(&away, &console, &["run", &plan, "--full"]);
    run.wait_for("measuring", PATIENCE);
    console.end(Signal::SIGKILL);
    run.wait_for("trying again", PATIENCE);
    let console = Console::of(world.start(&["serve", "--listen", &address]));
    let ended = run.end(PATIENCE).code(0).says(&["lost console", "reached console", "pass"]);
    assert_eq!(ended.stdout, world.run(&["runs", "show"]).code(0).stdout);
    // No progress is shown twice.
    assert_eq!(
        json!(ended.stderr.matches("measuring").count()),
        newest(&world)["trials"],
        "{}",
        ended.stderr
    );

    let mut run = start(&away, &console, &["run", &plan]);
    run.wait_for("measuring", PATIENCE);
    let token = console.token.clone();
    let job = jobs(&console)[0].clone();
    let id = job["run"].as_str().expect("a run").to_owned();
    console.end(Signal::SIGKILL);
    let ended =
        run.end(PATIENCE).fails(1, &["connection refused", "get its result when the console is back"]);
    let advice = format!("kagiri --console http://{address} runs show {id}");
    assert!(ended.stderr.trim_end().ends_with(&advice), "{}", ended.stderr);
    let console = Console::of(world.start(&["serve", "--listen", &address]));
    assert_eq!(console.token, token);
    console.until(job["id"].as_str().expect("an id"), &["ended"]);
    let words: Vec<&str> = advice.split(' ').skip(1).collect();
    let shown = ask(&away, &console, &words).code(0).stdout;
    assert_eq!(shown, world.run(&["runs", "show", &id]).code(0).stdout);
    wait_until("nothing runs", PATIENCE, || jobs(&console).iter().all(|job| job["ended"].is_string()));
}

#[test]
fn certificate_of_the_console_is_checked() {
    let (world, away) = (World::new(), World::new());
    world.import_fixture();
    let authority = Authority::new();
    let certified = authority.certify("localhost");
    let (cert, key) =
        (world.write("cert.pem", &certified.certificate_pem), world.write("key.pem", &certified.key_pem));
    away.write("ca.pem", authority.pem());
    away.write("other.pem", Authority::new().pem());
    let [cert, key] = [&cert, &key].map(|path| path.to_str().expect("UTF-8"));
    let mut server = world.start(&["serve", "--listen", "127.0.0.1:0", "--tls", cert, "--key", key]);
    server.wait_for("/#token=", PATIENCE);
    let printed = server.stdout();
    let (place, token) = printed.trim().split_once("/#token=").expect("an address with a token");
    let port = place.rsplit_once(':').expect("a port").1;
    let list = |address: &str, more: &[&str]| {
        let mut command = away.command(&[&["runs", "list", "--console", address], more].concat());
        command.env("KAGIRI_TOKEN", token);
        Live::start(command).end(PATIENCE)
    };
    let address = format!("https://localhost:{port}");
    let listed = list(&address, &["--console-ca", "ca.pem"]).code(0);
    assert_eq!(listed.stdout, world.run(&["runs", "list"]).code(0).stdout);
    list(&address, &[]).fails(2, &["not trusted", &address, "--console-ca"]);
    list(&address, &["--console-ca", "other.pem"]).fails(2, &["not trusted"]);
    let by_number = format!("https://127.0.0.1:{port}");
    list(&by_number, &["--console-ca", "ca.pem"]).fails(2, &["another name", &by_number]);
    let plain = format!("http://127.0.0.1:{port}");
    list(&plain, &[]).fails(1, &[&plain, "broke off"]);
}
