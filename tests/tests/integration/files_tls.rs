//! `kagiri files s3://...` over TLS to a real S3 server behind nginx, with a certificate of a private
//! authority.

use std::process::Command;
use std::time::{Duration, Instant};

use kagiri_tests::{
    Authority, Nginx, World, beside_others, is_s3_untouched, need_programs, s3_command, s3_measure,
    s3_server, s3_words,
};
use s3_server::{Faults, Server};

const PATIENCE: Duration = Duration::from_secs(60);
/// A certificate that is refused is found within this time.
const SOON: Duration = Duration::from_secs(10);

/// kagiri toward `nginx`, trusting the authority of `bundle`.
fn command(world: &World, server: &Server, nginx: &Nginx, bundle: &str, words: &[&str]) -> Command {
    let mut command = s3_command(world, server, words);
    command.env("AWS_ENDPOINT_URL", format!("https://{}", nginx.authority())).env("AWS_CA_BUNDLE", bundle);
    command
}

#[test]
fn private_authority_is_trusted_if_the_environment_names_it() {
    need_programs!("nginx");
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults::default());
    let authority = Authority::new();
    let nginx = Nginx::before(server.addr(), &authority.certify("127.0.0.1"));
    world.write("authority.pem", authority.pem());
    let words = s3_words(&["--time", "1s", "--mix", "get=2,put=1,head=1", "--json"]);
    let command = command(&world, &server, &nginx, "authority.pem", &words);
    let document = s3_measure(&world, command, PATIENCE).code(0).json();
    is_s3_untouched(&server);
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], "pass", "{trial:#}");
    let requests = trial["metrics"]["requests"].as_f64().expect("a number of requests");
    // Every request that the server had came over TLS.
    let seen = nginx.tls_requests();
    assert!(requests > 20.0 && seen.len() as f64 > requests, "{requests} of {}", seen.len());
    assert_eq!(seen.len(), server.log().len());
    let is_well =
        |line: &&String| line.starts_with("TLSv1.") && (line.contains(" 200") || line.contains(" 204"));
    let wrong: Vec<&String> = seen.iter().filter(|line| !is_well(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn certificate_of_another_authority_or_name_is_refused_by_its_reason() {
    need_programs!("nginx");
    let _beside = beside_others();
    let world = World::new();
    let server = s3_server(Faults::default());
    let authority = Authority::new();
    let nginx = Nginx::before(server.addr(), &authority.certify("127.0.0.1"));
    world.write("authority.pem", authority.pem());
    world.write("other.pem", Authority::new().pem());
    let words = s3_words(&["--time", "1s"]);
    let check = |nginx: &Nginx, bundle: &str, parts: &[&str]| {
        let began = Instant::now();
        s3_measure(&world, command(&world, &server, nginx, bundle, &words), SOON).fails(1, parts);
        assert!(began.elapsed() < SOON);
    };
    let untrusted = ["the server's certificate is not trusted", "AWS_CA_BUNDLE"];
    check(&nginx, "other.pem", &untrusted);
    check(&nginx, "", &untrusted);
    check(&nginx, "missing.pem", &["AWS_CA_BUNDLE: missing.pem: No such file", "certificates in PEM"]);
    let misnamed = Nginx::before(server.addr(), &authority.certify("store.example"));
    check(&misnamed, "authority.pem", &["certificate is for another name", "AWS_ENDPOINT_URL"]);
    assert_eq!(server.log().len(), 0, "no request was sent to a server that is not trusted");
}
