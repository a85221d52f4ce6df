//! A fleet of one machine that meets at a UNIX socket, in a folder that no other user may read: no port is
//! open.

use std::os::unix::fs::PermissionsExt;

use kagiri_tests::{FLEET_PATIENCE, Fleet, Live, SHORT_FILM, names, search_plan};

#[test]
fn agents_meet_at_a_socket_and_compare_clocks_beside_it() {
    let fleet = Fleet::at_socket();
    let folder = fleet.world.path("bus");
    let agents: Vec<Live> = ["nas", "pc-1"].map(|name| fleet.agent(name)).into();
    let plan = search_plan(SHORT_FILM).replace("hold = '2s'", "streams = 2\nhold = '2s'");
    let mut run = fleet.run(&plan.replace("count = 2", "count = 1"));
    run.wait_for("measuring 2 streams", FLEET_PATIENCE);
    assert!(names(&folder).contains(&"clock.sock".to_owned()), "{:?}", names(&folder));
    let ended = run.end(FLEET_PATIENCE);
    let document = fleet.stored();
    assert_eq!(document["state"], "complete", "{}", ended.stderr);
    for host in ["nas", "pc-1"] {
        let clock = &document["environment"]["hosts"][host]["clock"];
        assert_eq!(clock["offset_ns"].as_f64().map(|ns| ns.abs() < 1e6), Some(true), "one clock: {clock}");
    }
    assert!(!names(&folder).contains(&"clock.sock".to_owned()), "{:?}", names(&folder));
    fleet.end(agents, &[ended.pid]);
}

#[test]
fn a_socket_that_others_could_reach_or_that_is_none_is_refused() {
    let fleet = Fleet::at_socket();
    let folder = fleet.world.path("bus");
    let list = |endpoint: &str| fleet.world.run(&["fleet", "list", "--wait", "1s", "--listen", endpoint]);
    std::fs::write(folder.join("letter"), "dear").expect("a file");
    let beside = |name: &str| format!("unixsock-stream/{}", folder.join(name).display());
    list(&beside("letter")).fails(2, &["letter", "a file of this name exists"]);
    assert_eq!(std::fs::read_to_string(folder.join("letter")).expect("it stays"), "dear");
    list(&beside("clock.sock")).fails(2, &["clock.sock", "clocks are compared over"]);
    list(&fleet.endpoint).fails(1, &["no agent joined"]);
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("chmod");
    list(&fleet.endpoint).fails(2, &["other users can access", "mkdir -m 700"]);
    fleet.end(Vec::new(), &[]);
}
