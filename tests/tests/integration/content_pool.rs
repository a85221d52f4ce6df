//! `kagiri content serve --pool` and `content layout`, from the command line.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kagiri_tests::{Live, SmallDisk, World, need_root};
use nix::sys::signal::Signal;
use pool::Pool;

const PATIENCE: Duration = Duration::from_secs(30);

/// A content server with these words, and its address.
pub fn serve(world: &World, words: &[&str]) -> (Live, String) {
    let mut live = world.start(&[&["content", "serve", "films", "--listen", "127.0.0.1:0"], words].concat());
    live.wait_for(" at http://", PATIENCE);
    let line = live.stdout();
    let address = line.split(" at http://").nth(1).expect("a ready line");
    let address = address.trim().trim_end_matches('/').to_owned();
    (live, address)
}

/// Status and content of the answer to a request, which closes its connection.
fn ask(address: &str, method: &str, path: &str, content: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("a server");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let len = content.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content)).expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
    let status = String::from_utf8_lossy(&answer[9..12]).parse().expect("a status");
    (status, answer[end..].to_vec())
}

fn stop(live: Live) {
    live.signal(Signal::SIGINT);
    live.end(PATIENCE).code(0);
}

#[test]
fn film_whose_index_record_is_torn_is_served_from_the_copy_or_refused_with_the_reason() {
    let world = World::new();
    std::fs::create_dir(world.path("films")).unwrap();
    let (live, address) = serve(&world, &["--upload", "--pool", "64MiB"]);
    assert_eq!(ask(&address, "PUT", "/film.ts", b"a film").0, 201);
    stop(live);
    let folder = world.path("films").join(pool::FOLDER);
    let index = std::fs::read(folder.join("index")).unwrap();
    std::fs::write(folder.join("index"), &index[..index.len() - 3]).unwrap();
    let (live, address) = serve(&world, &["--upload"]);
    let said = live.stderr();
    assert!(said.contains("recovered from the copy of the index; check the disk"), "{said}");
    assert_eq!(ask(&address, "GET", "/film.ts", b""), (200, b"a film".to_vec()));
    stop(live);
    // No server serves half a pool: its films would be missing without an error.
    let words = ["content", "serve", "films", "--listen", "127.0.0.1:0"];
    for names in [&["index", "index.copy"][..], &["segments"]] {
        let saved: Vec<_> = names.iter().map(|name| std::fs::read(folder.join(name)).unwrap()).collect();
        names.iter().for_each(|name| std::fs::remove_file(folder.join(name)).unwrap());
        world.run(&words).fails(1, &["missing", "restore"]);
        for (name, bytes) in names.iter().zip(&saved) {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
    let (live, address) = serve(&world, &["--upload"]);
    assert_eq!(ask(&address, "GET", "/film.ts", b"").0, 200);
    stop(live);
}

#[test]
fn pool_is_made_once_and_served_ever_after() {
    let world = World::new();
    std::fs::create_dir(world.path("films")).unwrap();
    std::fs::write(world.path("films/plain"), "plain").unwrap();
    let words = ["content", "serve", "films", "--listen", "127.0.0.1:0", "--upload", "--pool"];
    let refused = |size: &str, code, parts: &[&str]| {
        world.run(&[&words[..], &[size]].concat()).fails(code, parts);
    };
    refused("1MiB", 2, &["--pool 1MiB", "less than one segment", "give 16MiB or more"]);
    refused("15TiB", 2, &["--pool 15TiB", "films has only", "free"]);
    refused("17TiB", 2, &["--pool 17TiB", "give 16TiB or less"]);
    assert!(!world.path("films/.kagiri-pool").exists(), "nothing is left of what was refused");
    world.run(&["content", "serve", "films", "--pool", "64MiB"]).fails(2, &["--upload"]);

    let (live, address) = serve(&world, &["--upload", "--pool", "64MiB"]);
    assert!(
        live.stderr().contains("making a segment pool of 64MiB: films/.kagiri-pool"),
        "{}",
        live.stderr()
    );
    let content: Vec<u8> = (0..40_u32 << 20).map(|at| (at >> 10) as u8 ^ at as u8).collect();
    assert_eq!(ask(&address, "PUT", "/film.ts", &content).0, 201);
    assert_eq!(ask(&address, "PUT", "/last", b"x").0, 201);
    assert_eq!(ask(&address, "PUT", "/more", b"x").0, 507);
    assert_eq!(ask(&address, "DELETE", "/last", b"").0, 204);
    refused("64MiB", 1, &["films/.kagiri-pool", "used by another process"]);
    // While the server has it open.
    for (words, path) in [("films", "films/film.ts"), ("films/film.ts", "films/film.ts")] {
        let document = world.run(&["content", "layout", words, "--json"]).code(0).json();
        let files = document["files"].as_array().unwrap();
        let shown: BTreeMap<_, _> = files
            .iter()
            .map(|file| (file["path"].as_str().unwrap(), file["bytes"].as_u64().unwrap()))
            .collect();
        assert_eq!(shown.get(path), Some(&(40 << 20)), "{document:#}");
        assert_eq!(shown.len(), if words == "films" { 2 } else { 1 }, "{document:#}");
    }
    let wrong = world.run(&["content", "layout", "films/none"]).code(2);
    assert!(wrong.stderr.contains("cannot look at films/none"), "{}", wrong.stderr);
    stop(live);

    refused("80MiB", 2, &["films/.kagiri-pool is a pool of 64MiB", "--pool says 80MiB", "the 1 file in it"]);
    for words in [&[][..], &["--upload"], &["--upload", "--pool", "64MiB"]] {
        let (live, address) = serve(&world, words);
        assert!(!live.stderr().contains("making"), "{}", live.stderr());
        assert!(ask(&address, "GET", "/film.ts", b"").1 == content, "{words:?}");
        assert_eq!(ask(&address, "GET", "/plain", b"").1, b"plain", "{words:?}");
        let status = if words.is_empty() { 405 } else { 201 };
        assert_eq!(ask(&address, "PUT", "/small", b"x").0, status, "{words:?}");
        assert_eq!(
            ask(&address, "DELETE", "/small", b"").0,
            if status == 405 { 405 } else { 204 },
            "{words:?}"
        );
        stop(live);
    }
    // What one of the two copies of the index lost is in the other.
    std::fs::write(world.path("films/.kagiri-pool/index"), "nonsense\n").unwrap();
    let (live, address) = serve(&world, &["--upload", "--pool", "64MiB"]);
    assert!(live.stderr().contains("recovered from the copy of the index"), "{}", live.stderr());
    assert!(ask(&address, "GET", "/film.ts", b"").1 == content);
    stop(live);
    for name in ["index", "index.copy"] {
        std::fs::write(world.path("films/.kagiri-pool").join(name), "nonsense\n").unwrap();
    }
    refused("64MiB", 1, &["films/.kagiri-pool/index is damaged", "backup"]);
}

#[test]
fn layout_counts_the_pieces_of_files_in_a_pool() {
    const SEGMENT: u64 = 256 << 10;
    need_root!();
    // Another world, so that its loop device is not taken for one that kagiri left.
    let (world, owner) = (World::new(), World::new());
    let disk = SmallDisk::mount_ext4(&owner.path("disk"), 64 << 20);
    std::fs::create_dir(disk.path().join("sub")).unwrap();
    std::fs::write(disk.path().join("sub/both"), [1; 5000]).unwrap();
    std::fs::write(disk.path().join("plain"), [1; 5000]).unwrap();
    let pool = Pool::create(&disk.path().join(pool::FOLDER), 100 * SEGMENT, SEGMENT).unwrap();
    let put = |name: &str, segments: u64| {
        let mut writer = pool.begin().unwrap();
        writer.reserve(segments * SEGMENT).unwrap();
        writer.write_all(&vec![7; (segments * SEGMENT) as usize - 100]).unwrap();
        writer.commit(name).unwrap();
    };
    (0..100).for_each(|i| put(&format!("small{i}"), 1));
    for i in (0..100).filter(|i| i % 2 == 0 || *i >= 90) {
        pool.remove(&format!("small{i}")).unwrap();
    }
    // The ten free at the end are one piece.
    put("sub/both", 10);
    put("sub/scattered", 30);
    let layout = |path: &str| {
        let path = disk.path().join(path).display().to_string();
        let document = world.run(&["content", "layout", &path, "--json"]).code(0).json();
        let files = document["files"].as_array().unwrap().clone();
        let row = |file: &serde_json::Value| {
            let path = file["path"].as_str().unwrap().strip_prefix(disk.path().to_str().unwrap()).unwrap();
            (path.to_owned(), (file["bytes"].as_u64().unwrap(), file["extents"].as_u64().unwrap()))
        };
        files.iter().map(row).collect::<BTreeMap<_, _>>()
    };
    let own = layout(pool::FOLDER)["/.kagiri-pool/segments"].1;
    let all = layout("");
    assert_eq!(all.len(), 1 + 45 + 2, "{all:#?}");
    assert_eq!(all["/plain"], (5000, 1));
    for (name, segments, pieces) in [("/sub/both", 10, 1), ("/sub/scattered", 30, 30)] {
        let (bytes, extents) = all[name];
        assert_eq!(bytes, segments * SEGMENT - 100, "{name}");
        // More only where the file of segments itself is in pieces.
        assert!((pieces..pieces + own).contains(&extents), "{name}: {extents} of {own}");
        assert_eq!(layout(name.trim_start_matches('/')), BTreeMap::from([(name.to_owned(), all[name])]));
    }
    let below = layout("sub");
    assert_eq!(below.keys().collect::<Vec<_>>(), ["/sub/both", "/sub/scattered"]);
    // What only the pool has.
    std::fs::remove_dir_all(disk.path().join("sub")).unwrap();
    assert_eq!(layout("sub/scattered").len(), 1);
    assert_eq!(layout("sub"), below);
}
