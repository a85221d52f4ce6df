//! `kagiri daq` against independent witnesses: planted losses and the kernel's counters.

use kagiri_tests::{FLEET_PATIENCE, Fleet, Live, UpLab, World, metric, need_root};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::daq::{PATIENCE, addresses};

/// The cause that is reported for losses on the builder's link, though its port has room for all fragments;
/// and how often the kernel counted segments again, and timeouts.
fn through_a_lossy_link(loss: &str, time: &str, sources: &str) -> (Value, f64, f64) {
    let world = World::new();
    let text = format!(
        "[host.source]\ncount = 2\n[host.builder]\n[switch.s]\n[[link]]\nbetween = ['source-*', 's']\n\
         [[link]]\nfrom = 'builder'\nto = 's'\nrate = '1Gbit/s'\nbuffer = '1MiB'\nloss = '{loss}'\n"
    );
    let lab = UpLab::new(&world, "lossy", &text);
    let place = ["--place", "builder=builder", "--place", "sources=source-*", "--sources", sources];
    let known = ["--link", "1Gbit/s", "--buffer", "1MiB", "--time", time, "--timeout", "20s", "--json", "-q"];
    let document = lab.run("daq", &[&place[..], &known].concat()).json();
    let trial = document["trials"][0].clone();
    let (again, timeouts) = (metric(&trial, "retransmits"), metric(&trial, "timeouts"));
    (trial, again, timeouts)
}

#[test]
fn a_lossy_link_is_told_by_its_losses_and_not_as_a_full_buffer() {
    need_root!();
    for (loss, time, cause) in
        [("1%", "4s", "lost, tail-loss probe"), ("12%", "12s", "lost, retransmission timeout")]
    {
        let is_told = |(trial, ..): &(Value, f64, f64)| trial["account"].to_string().contains(cause);
        // Chance decides which segments are lost.
        let mut tries = std::iter::repeat_with(|| through_a_lossy_link(loss, time, "40")).take(3);
        let (trial, again, timeouts) = tries.find(is_told).expect(cause);
        assert!(again > 0.0 && (loss == "1%" || timeouts > 0.0), "{again} {timeouts}: {trial}");
        let account = trial["account"].to_string();
        let limit = &trial["account"]["limit"];
        assert_eq!(
            (limit["resource"].as_str(), limit["certainty"].as_str()),
            (Some("network"), Some("confirmed"))
        );
        assert!(account.contains("loses packets") && !account.contains("overflowed the port"), "{account}");
    }
}

#[test]
fn the_line_for_front_ends_is_printed_even_if_quiet() {
    let world = World::new();
    let mut live = world.start(&["daq", "--sources", "2", "--front-ends", "2", "--json", "--quiet"]);
    let (builder, group, run) = addresses(&mut live);
    assert!(builder.starts_with("127.0.0.1:") && group.starts_with("239."), "{builder} {group}");
    assert!(run.parse::<u32>().is_ok_and(|run| run > 0), "{run}");
    assert!(live.stderr().contains("waiting for 2 front ends, up to 30 s"), "{}", live.stderr());
    live.signal(Signal::SIGINT);
    live.end(PATIENCE).code(130);
}

#[test]
fn the_line_of_a_builder_on_another_host_is_printed_even_if_quiet() {
    let fleet = Fleet::new();
    let agent = fleet.agent("daq");
    let plan = "workload = 'daq'\n[place]\nbuilder = 'daq'\n[daq]\nsources = 2\nfront_ends = 2\n";
    let mut command = fleet.run_command(plan, "20s");
    command.arg("--quiet");
    let mut live = Live::start(command);
    let (builder, ..) = addresses(&mut live);
    assert!(live.stderr().contains(&format!("daq: builder at {builder}, ")), "{}", live.stderr());
    // It listens already.
    std::net::TcpStream::connect(&builder).expect("the builder listens");
    live.signal(Signal::SIGINT);
    let pid = live.end(FLEET_PATIENCE).code(130).pid;
    fleet.end(vec![agent], &[pid]);
}

/// At 30 % both ways some hellos are lost until the builder's deadline, and some handshakes take seconds.
#[test]
fn sources_hold_out_on_a_link_that_loses_a_third() {
    need_root!();
    // Ten sources, so that an event may end within the hold.
    let (trial, again, timeouts) = through_a_lossy_link("30%", "12s", "10");
    assert!(again > 0.0 && timeouts > 0.0, "{again} {timeouts}: {trial}");
    let account = trial["account"].to_string();
    assert!(!account.contains("broke off") && trial["verdict"] != "invalid", "{trial}");
    // Whether an event is whole in time is chance; each source has sent.
    assert!(metric(&trial, "fragments_sent") >= 10.0, "{trial}");
}
