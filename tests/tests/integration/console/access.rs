//! `kagiri serve`: who gets in, what every answer has, and what of the stored runs it serves.

use std::time::Duration;

use kagiri_tests::{Authority, Console, World, http_request};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::request::by_python;

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn only_who_has_the_token_gets_in_and_no_page_of_others() {
    let world = World::new();
    let console = Console::start(&world);
    let (at, bearer) = (console.address, format!("Bearer {}", console.token));
    let wrong = format!("Bearer {}", "0".repeat(64));
    let status = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        http_request(at, method, path, headers, body).status
    };
    let none: &[(&str, &str)] = &[];
    for headers in [
        none,
        &[("Authorization", "Bearer ")],
        &[("Authorization", wrong.as_str())],
        &[("Cookie", "kagiri_session=1.2.3")],
    ] {
        for path in ["/api/v1/session", "/api/v1/jobs", "/api/v1/runs", "/api/v1/none", "/metrics", "/api"] {
            assert_eq!(status("GET", path, headers, ""), 401, "{path} {headers:?}");
        }
    }
    let login = json!({ "token": "0".repeat(64) }).to_string();
    assert_eq!(status("POST", "/api/v1/session", &[], &login), 401);
    assert_eq!(status("POST", "/api/v1/session", &[], "{"), 422);

    // A session: it needs the header that pages of others cannot send.
    let login = json!({ "token": console.token }).to_string();
    let opened = http_request(at, "POST", "/api/v1/session", &[], &login);
    assert_eq!(opened.status, 204);
    let cookie = opened.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().expect("a cookie");
    let with = |more: &[(&'static str, &str)], method: &str| {
        let headers: Vec<(&str, &str)> =
            [("Cookie", cookie)].into_iter().chain(more.iter().copied()).collect();
        status(method, "/api/v1/jobs", &headers, "{\"toml\": \"\"}")
    };
    let (own, foreign) = (format!("http://{at}"), "http://evil.example");
    assert_eq!(with(&[], "GET"), 200);
    assert_eq!(with(&[], "POST"), 403);
    assert_eq!(with(&[("X-Kagiri", "1")], "POST"), 422);
    assert_eq!(with(&[("X-Kagiri", "1"), ("Origin", own.as_str())], "POST"), 422);
    assert_eq!(with(&[("X-Kagiri", "1"), ("Origin", foreign)], "POST"), 403);
    assert_eq!(with(&[("X-Kagiri", "1"), ("Origin", "null")], "POST"), 403);
    // DNS rebinding: the name of another server, which leads here.
    for path in ["/", "/api/v1/session"] {
        let headers = [("Host", "evil.example"), ("Authorization", bearer.as_str())];
        assert_eq!(status("GET", path, &headers, ""), 421, "{path}");
    }
    let local = format!("localhost:{}", at.port());
    assert_eq!(
        status("GET", "/api/v1/session", &[("Host", local.as_str()), ("Authorization", bearer.as_str())], ""),
        200
    );
    // Logged out.
    let close = [("Cookie", cookie), ("X-Kagiri", "1")];
    assert_eq!(status("DELETE", "/api/v1/session", &close, ""), 204);
    assert_eq!(with(&[], "GET"), 401);
}

#[test]
fn answers_are_bounded_private_and_in_words() {
    let world = World::new();
    let console = Console::start(&world);
    let page = http_request(console.address, "GET", "/", &[], "");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").contains("default-src 'none'"), "{:?}", page.headers);
    assert_eq!((page.header("x-frame-options"), page.header("x-content-type-options")), ("DENY", "nosniff"));
    let answer = console.ask("GET", "/console", &Value::Null);
    assert_eq!(answer.header("cache-control"), "no-store");
    let large = json!({ "toml": "#".repeat((1 << 20) + 1) });
    for (method, path, body, expected, word) in [
        ("POST", "/plans/check", &large, 413, "1 MiB"),
        ("GET", "/none", &Value::Null, 404, "openapi.json"),
        ("PUT", "/jobs", &Value::Null, 405, "method"),
        ("GET", "/runs?limit=x", &Value::Null, 400, "limit"),
        ("GET", "/runs/last", &Value::Null, 404, "last"),
        ("GET", "/jobs/none", &Value::Null, 404, "none"),
        ("POST", "/jobs", &json!({ "tomll": "" }), 422, "tomll"),
        ("POST", "/settings/set", &json!({ "settings": {}, "for_s": 1 }), 422, "settings"),
        ("GET", "/compare?ids=a", &Value::Null, 422, "2 to"),
    ] {
        let mut answer = console.ask(method, path, body);
        assert_eq!(answer.status, expected, "{method} {path}");
        let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(word), "{method} {path}: {message}");
    }
    // A report that fails is shown in its frame, also after its user has logged out.
    for (token, status) in [(console.token.as_str(), 404), ("none", 401)] {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), ("Accept", "text/html,*/*")];
        let mut report = http_request(console.address, "GET", "/api/v1/runs/none/report", &headers, "");
        assert_eq!((report.status, report.header("x-frame-options")), (status, "SAMEORIGIN"));
        assert!(report.text().contains("<p>"), "{:?}", report.headers);
    }
    let metrics = |path: &str| {
        let bearer = format!("Bearer {}", console.token);
        http_request(console.address, "GET", path, &[("Authorization", bearer.as_str())], "").text()
    };
    let text = metrics("/metrics");
    assert!(
        text.contains("kagiri_jobs{state=\"running\"} 0\n") && text.contains("kagiri_viewers 0\n"),
        "{text}"
    );
    // A second server on the same data would follow the same jobs.
    world.run(&["serve", "--listen", "127.0.0.1:0"]).fails(1, &["another 'kagiri serve'", "KAGIRI_DATA"]);
    let open = ["serve", "--listen", "0.0.0.0:0"];
    world.run(&open).fails(2, &["clear text", "--tls"]);
    let ended = console.end(Signal::SIGINT).code(0);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn token_survives_a_restart_and_a_readable_one_is_refused() {
    let world = World::new();
    let first = Console::start(&world);
    let token = first.token.clone();
    first.end(Signal::SIGTERM).code(0);
    let second = Console::start(&world);
    assert_eq!(second.token, token);
    second.end(Signal::SIGKILL);
    let file = world.data().join("console/token");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("chmod");
    world.run(&["serve", "--listen", "127.0.0.1:0"]).fails(1, &["other users can read", "remove the file"]);
    std::fs::remove_file(&file).expect("a token");
    assert_ne!(Console::start(&world).token, token);
}

#[test]
fn stored_runs_are_listed_annotated_compared_and_shown() {
    let world = World::new();
    world.import_fixture();
    let console = Console::start(&world);
    let list = console.get("/runs");
    let id = list["runs"][0]["id"].as_str().expect("a run").to_owned();
    assert!(list["runs"][0]["answer"].as_str().is_some_and(|answer| answer.contains("streams")), "{list}");
    let note = json!({ "tags": ["night", " night "], "note": "after the update" });
    let kept = console.answered("PATCH", &format!("/runs/{id}"), &note, 200);
    assert_eq!(kept, json!({ "tags": ["night"], "note": "after the update" }));
    for (wanted, count) in [("q=UPDATE", 1), ("tag=night", 1), ("tag=day", 0), ("workload=none", 0)] {
        let found = console.get(&format!("/runs?{wanted}"));
        assert_eq!(found["runs"].as_array().map(Vec::len), Some(count), "{wanted}");
    }
    assert_eq!(console.get("/tags"), json!(["night"]));
    assert_eq!(console.get(&format!("/runs/{id}"))["run"], id.as_str());
    let toml = console.get(&format!("/runs/{id}/plan"))["toml"].as_str().map(str::to_owned).expect("a plan");
    assert_eq!(console.answered("POST", "/plans/check", &json!({ "toml": toml }), 200)["valid"], true);
    let mut report = console.ask("GET", &format!("/runs/{id}/report"), &Value::Null);
    let policy = report.header("content-security-policy").to_owned();
    assert!(policy.starts_with("sandbox allow-scripts") && policy.contains("default-src 'none'"), "{policy}");
    assert!(report.text().contains("<html"));
    let export = console.ask("GET", &format!("/runs/{id}/export"), &Value::Null);
    assert!(export.header("content-disposition").contains(&id), "{:?}", export.headers);

    // The same run under another id is equal to the first.
    let mut other = console.get(&format!("/runs/{id}/export"));
    other["run"] = json!("20261122-000000-copy");
    let file = world.write("copy.json", other.to_string());
    world.run(&["runs", "import", file.to_str().expect("UTF-8")]).code(0);
    let compared = console.get(&format!("/compare?ids={id},20261122-000000-copy"));
    assert_eq!(compared["rows"][0]["metric"], "capacity", "{compared}");
    assert_ne!(compared["verdict"], "worse");
    assert!(compared["words"].as_str().is_some_and(|words| words.contains("Capacity")), "{compared}");
    console.answered("DELETE", "/runs/20261122-000000-copy", &Value::Null, 204);
    console.answered("DELETE", "/runs/20261122-000000-copy", &Value::Null, 404);
}

#[test]
fn store_of_a_newer_version_is_a_message_and_the_rest_works() {
    let world = World::new();
    world.import_fixture();
    let database = rusqlite::Connection::open(world.data().join("runs.sqlite")).expect("the store");
    database.pragma_update(None, "user_version", 99).expect("a number");
    drop(database);
    let console = Console::start(&world);
    let problem = console.get("/console")["store_problem"].as_str().unwrap_or_default().to_owned();
    assert!(problem.contains("layout 99"), "{problem}");
    assert!(console.answered("GET", "/runs", &Value::Null, 503)["error"]["message"] == problem.as_str());
    assert!(console.get("/plans").as_array().is_some_and(|plans| plans.len() > 10));
}

#[test]
fn tls_serves_beyond_loopback_with_a_secure_cookie() {
    let world = World::new();
    let authority = Authority::new();
    let certified = authority.certify("localhost");
    let (cert, key) =
        (world.write("cert.pem", &certified.certificate_pem), world.write("key.pem", &certified.key_pem));
    let ca = world.write("ca.pem", authority.pem());
    let [cert, key, ca] = [&cert, &key, &ca].map(|path| path.to_str().expect("UTF-8"));
    let mut server = world.start(&["serve", "--listen", "0.0.0.0:0", "--tls", cert, "--key", key]);
    server.wait_for("/#token=", PATIENCE);
    let printed = server.stdout();
    let (place, token) = printed.trim().split_once("/#token=").expect("an address with a token");
    let port = place.rsplit_once(':').expect("a port").1;
    let url = format!("https://localhost:{port}/api/v1/session");
    assert_eq!(by_python(None, &world, &[&url, "GET", "", token, ca]), (200, json!({ "user": "local" })));
    world.run(&["serve", "--listen", "127.0.0.1:0", "--tls", ca, "--key", key]).code(1);
}
