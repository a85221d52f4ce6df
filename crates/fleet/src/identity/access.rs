//! zenoh's settings for credentials: TLS, passwords and access control.

use std::time::Duration;

use serde_json::{Value, json};

use super::credentials::{Credentials, Role};
use super::name::{Member, MemberKind};
use crate::protocol::{MESSAGE_BYTES_MAX, coordinator_key, notification_key, request_key};

/// A zenoh setting: path and JSON value.
pub type ZenohSetting = (String, String);

/// A link without traffic for this long is dead. zenoh sends a keep-alive four times within it, which is the
/// whole load of an idle agent. TCP retransmits 0.2, 0.6, 1.4 and 3 s after a short outage: this lease
/// covers the first three and still reports a dead link within 3 s.
pub(crate) const LEASE: Duration = Duration::from_millis(2500);

impl Credentials {
    /// zenoh's settings for the holder in a fleet with passwords: `transport/auth/usrpwd/...`.
    pub(crate) fn zenoh_json(&self, role: Role) -> Vec<ZenohSetting> {
        let mut all = Vec::new();
        if let Some(login) = &self.login {
            all.push(("transport/auth/usrpwd/user", json!(login.user)));
            all.push(("transport/auth/usrpwd/password", json!(login.password)));
        }
        if let (Role::Coordinator, Some(users)) = (role, &self.users) {
            all.push(("transport/auth/usrpwd/dictionary_file", json!(users)));
        }
        all.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
    }
}

/// TLS of an external router. A connection ends when an agent's certificate expires.
fn router_tls(passwords: bool) -> [(&'static str, Value); 6] {
    [
        ("transport/link/tls/root_ca_certificate", json!("ca.pem")),
        ("transport/link/tls/verify_name_on_connect", json!(true)),
        ("transport/link/tls/enable_mtls", json!(!passwords)),
        // A password login has no certificate that could expire.
        ("transport/link/tls/close_link_on_expiration", json!(!passwords)),
        ("transport/link/tls/listen_certificate", json!("cert.pem")),
        ("transport/link/tls/listen_private_key", json!("key.pem")),
    ]
}

/// zenoh's access control for the listening side: denies all but what agents need, each under its own name.
///
/// An agent may announce itself, answer requests, and send notifications; it may see the coordinator and its
/// leases. It can neither send requests nor use another name. Without credentials (loopback, a lab) names
/// are not verified, and an agent may use any.
pub fn access_control(credentials: Option<&Credentials>) -> ZenohSetting {
    let value = match credentials {
        Some(credentials) => rules(&credentials.members, property(credentials.uses_passwords())),
        None => rules_of_anybody(),
    };
    ("access_control".into(), value.to_string())
}

/// zenoh's filter that drops messages longer than [`MESSAGE_BYTES_MAX`] unread.
pub fn low_pass_filter() -> ZenohSetting {
    ("low_pass_filter".into(), long_messages().to_string())
}

fn long_messages() -> Value {
    json!([{
        "id": "long",
        "flows": ["ingress"],
        "messages": ["put", "delete", "query", "reply"],
        "key_exprs": ["**"],
        "size_limit": MESSAGE_BYTES_MAX,
    }])
}

fn rule(id: &str, flow: &str, messages: &[&str], key: &str) -> Value {
    json!({"id": id, "permission": "allow", "flows": [flow], "messages": messages, "key_exprs": [key]})
}

/// What every agent may receive and subscribe to.
fn common() -> [Value; 4] {
    let coordinator = coordinator_key("**");
    [
        rule("asked", "egress", &["query"], &request_key("*", "*")),
        rule("heard", "egress", &["declare_subscriber"], &notification_key("*")),
        rule("led", "egress", &["put", "liveliness_token"], &coordinator),
        rule(
            "listens",
            "ingress",
            &["declare_subscriber", "declare_liveliness_subscriber", "liveliness_query"],
            &coordinator,
        ),
    ]
}

/// What the agent of this name may send. Few rules, because zenoh 1.10 copies the rules of all members for
/// each new session: no member subscribes to tokens below the one key or sends requests below the other.
fn own(name: &str) -> [Value; 2] {
    let id = |what: &str| format!("{what} {name}");
    // Of any protocol version, so that a wrong one can be reported.
    let there = format!("kagiri/*/agent/{name}/**");
    let mut answers = rule(&id("is"), "ingress", &["liveliness_token", "declare_queryable", "reply"], &there);
    answers["key_exprs"] = json!([there, request_key(name, "*")]);
    [answers, rule(&id("tells"), "ingress", &["put"], &notification_key(name))]
}

fn ids(rules: &[Value]) -> Value {
    rules.iter().map(|rule| rule["id"].clone()).collect()
}

fn policy(rules: &[Value], subjects: Value) -> Value {
    json!({"rules": ids(rules), "subjects": subjects})
}

fn denied_but(rules: Vec<Value>, subjects: Vec<Value>, policies: Vec<Value>) -> Value {
    json!({
        "enabled": true,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    })
}

fn rules_of_anybody() -> Value {
    let rules = [&common()[..], &own("*")[..]].concat();
    let policies = vec![policy(&rules, json!(["anybody"]))];
    denied_but(rules, vec![json!({"id": "anybody"})], policies)
}

/// By what zenoh knows a member.
fn property(uses_passwords: bool) -> &'static str {
    if uses_passwords { "usernames" } else { "cert_common_names" }
}

fn rules(members: &[Member], property: &str) -> Value {
    let subjects = members.iter().map(|member| {
        let name = member.to_string();
        json!({"id": name, property: [name]})
    });
    let common = common().to_vec();
    let everything = ["ingress", "egress"].map(|flow| {
        let messages = [
            "put",
            "delete",
            "declare_subscriber",
            "query",
            "reply",
            "declare_queryable",
            "liveliness_token",
            "liveliness_query",
            "declare_liveliness_subscriber",
        ];
        rule(&format!("all {flow}"), flow, &messages, "kagiri/**")
    });
    let of = |agents: bool| -> Value {
        let those = members.iter().filter(|member| (member.kind == MemberKind::Agent) == agents);
        those.map(Member::to_string).collect()
    };
    // zenoh rejects a policy without subjects.
    let all = [policy(&common, of(true)), policy(&everything, of(false))];
    let mut policies: Vec<_> = all.into_iter().filter(|policy| policy["subjects"] != json!([])).collect();
    let mut rules = [&common[..], &everything[..]].concat();
    for member in members.iter().filter(|member| member.kind == MemberKind::Agent) {
        let own = own(&member.name);
        policies.push(policy(&own, json!([member.to_string()])));
        rules.extend(own);
    }
    denied_but(rules, subjects.collect(), policies)
}

/// Configuration of an external `zenohd` (JSON5), to be started in the folder of its bundle.
pub fn zenohd(members: &[Member], passwords: bool, router: &Member) -> String {
    let mut settings = router_tls(passwords).to_vec();
    if !passwords {
        // To connect to further routers.
        settings.push(("transport/link/tls/connect_certificate", json!("cert.pem")));
        settings.push(("transport/link/tls/connect_private_key", json!("key.pem")));
    }
    if passwords {
        settings.push(("transport/auth/usrpwd/dictionary_file", json!("users")));
    }
    settings.extend([
        ("mode", json!("router")),
        ("metadata", json!({"name": router.to_string()})),
        ("listen/endpoints", json!(["tls/[::]:7447"])),
        ("connect/endpoints", json!([])),
        ("scouting/multicast/enabled", json!(false)),
        ("scouting/gossip/enabled", json!(false)),
        ("adminspace/enabled", json!(false)),
        ("transport/unicast/max_sessions", json!(20_000)),
        ("transport/unicast/compression/enabled", json!(false)),
        ("transport/link/tx/lease", json!(LEASE.as_millis() as u64)),
        ("transport/link/rx/max_message_size", json!(MESSAGE_BYTES_MAX)),
        ("access_control", rules(members, property(passwords))),
    ]);
    let mut config = json!({});
    for (path, value) in settings {
        *path.split('/').fold(&mut config, |place, key| &mut place[key]) = value;
    }
    config["low_pass_filter"] = long_messages();
    format!(
        "// An external router of a kagiri fleet, made by 'kagiri fleet init'. Start it in this folder, as \
         the folder's\n\
         // owner: zenohd --config zenohd.json5\n\
         // To connect further routers, list them in connect.endpoints: \"tls/OTHER:7447\".\n{config:#}\n"
    )
}
