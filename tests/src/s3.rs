//! Measurements of a real S3 server, with an object of another user below the prefix that is measured.

use std::process::Command;
use std::time::Duration;

use s3_server::{Config, Faults, Server};

use crate::{Ended, Live, World};

const PRECIOUS: &str = "shared/precious";
pub const S3_SECRET: &str = "a-secret-that-is-never-shown";
/// Small objects and few workers.
const SMALL: [&str; 8] =
    ["files", "s3://test/shared", "--threads", "4", "--objects", "60", "--object-size", "4k"];

/// A server on a port of loopback.
pub fn s3_server(faults: Faults) -> Server {
    let server = Server::start(Config { secret_key: S3_SECRET.to_owned(), faults, ..Config::default() });
    let server = server.expect("a port of loopback");
    server.put("test", PRECIOUS, b"not kagiri's").expect("a bucket");
    server
}

/// It has the object of the other user, and no other.
#[track_caller]
pub fn is_s3_untouched(server: &Server) {
    assert_eq!(server.keys("test").into_keys().collect::<Vec<_>>(), [PRECIOUS]);
}

/// The arguments of a small measurement, and more.
pub fn s3_words<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SMALL[..], more].concat()
}

/// kagiri with the credentials of a server in its environment.
pub fn s3_command(world: &World, server: &Server, arguments: &[&str]) -> Command {
    let mut command = world.command(arguments);
    let config = server.config();
    command.env("AWS_ACCESS_KEY_ID", &config.access_key).env("AWS_SECRET_ACCESS_KEY", &config.secret_key);
    command.env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT_URL", server.endpoint());
    command
}

/// Runs it to its end; then nothing is left behind.
pub fn s3_measure(world: &World, command: Command, patience: Duration) -> Ended {
    let ended = Live::start(command).end(patience);
    world.assert_nothing_left(ended.pid);
    ended
}
