//! Requests from elsewhere: over TLS, and from network namespaces.

use std::path::Path;
use std::time::Duration;

use kagiri_tests::{Console, Ended, Live, Namespaces, World};
use nix::sys::signal::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// Prints the status of a request, and then its body: URL, method, body, token, file of authorities.
const CLIENT: &str = "import sys, urllib.request, urllib.error, ssl\n\
    url, method, body, token, ca = sys.argv[1:]\n\
    head = {'Authorization': 'Bearer ' + token}\n\
    request = urllib.request.Request(url, body.encode() or None, head, method=method)\n\
    context = ssl.create_default_context(cafile=ca) if ca else None\n\
    try: answer = urllib.request.urlopen(request, context=context, timeout=60)\n\
    except urllib.error.HTTPError as error: answer = error\n\
    print(answer.status)\n\
    print(answer.read().decode())";

/// A request by Python, which can run in a namespace and speaks TLS.
pub fn by_python(net: Option<&Namespaces>, world: &World, words: &[&str]) -> (i64, Value) {
    let mut python = std::process::Command::new("python3");
    python.args(["-c", CLIENT]).args(words).current_dir(world.path(""));
    let python = net.map(|net| net.on("a", &python)).unwrap_or(python);
    let ended = Live::start(python).end(PATIENCE).code(0);
    let (status, text) = ended.stdout.split_once('\n').expect("a status");
    (status.parse().expect("a number"), serde_json::from_str(text).unwrap_or(Value::Null))
}

/// A console on host `a` of a network of namespaces: its port is there, so requests come from there, too.
pub struct Inside<'a> {
    world: &'a World,
    net: &'a Namespaces,
    console: Console,
}

impl<'a> Inside<'a> {
    pub fn start(world: &'a World, net: &'a Namespaces) -> Self {
        Self::start_with(world, net, &world.data())
    }

    /// `data`: the folder of its results.
    pub fn start_with(world: &'a World, net: &'a Namespaces, data: &Path) -> Self {
        let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.env("KAGIRI_DATA", data);
        Self { world, net, console: Console::of(Live::start(net.on_with_mounts("a", &command))) }
    }

    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (i64, Value) {
        let url = format!("http://{}/api/v1{path}", self.console.address);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        by_python(Some(self.net), self.world, &[&url, method, &body, &self.console.token, ""])
    }

    #[track_caller]
    pub fn answered(&self, method: &str, path: &str, body: &Value, status: i64) -> Value {
        let (found, answer) = self.ask(method, path, body);
        assert_eq!(found, status, "{method} {path}: {answer:#}");
        answer
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.answered("GET", path, &Value::Null, 200)
    }

    /// A command of another program, for this console.
    pub fn command(&self, words: &[&str]) -> Ended {
        let mut command = self.world.command(words);
        command.env("KAGIRI_CONSOLE", format!("http://{}", self.console.address));
        command.env("KAGIRI_TOKEN", &self.console.token);
        Live::start(self.net.on_with_mounts("a", &command)).end(PATIENCE)
    }

    /// Ends the server by a signal.
    pub fn end(self, signal: Signal) -> Ended {
        self.console.end(signal)
    }
}
