//! Ageing of file systems: what it finds, what it refuses, and that it leaves nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use kagiri_tests::{SmallDisk, UpLab, World, beside_others, names, need_programs, need_root, wait_until};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(120);
const SIZE: u64 = 640 << 20;

#[test]
fn pool_keeps_the_streams_that_plain_files_lose() {
    need_root!();
    need_programs!("mkfs.ext3");
    let _beside = beside_others();
    let world = World::new();
    let lab = format!(
        "name = '{}'\n[host.plain.disk]\nsize = '640MiB'\nfile_system = 'ext3'\n\
         [host.pool.disk]\nsize = '640MiB'\n",
        kagiri_tests::unique_name("aged")
    );
    world.write("lab.toml", lab);
    let plan = "workload = 'ageing'\nlab = 'lab.toml'\n[[variant]]\nname = 'plain'\nplace.disk = 'plain'\n\
        [[variant]]\nname = 'pool'\nplace.disk = 'pool'\nageing.layout = 'pool'\n";
    world.write("plan.toml", plan);
    let ended = world.measure(&["run", "plan.toml", "--json"], PATIENCE);
    world.assert_nothing_left(ended.pid);
    let document = ended.code(0).json();
    let metric = |variant: &str, name: &str| {
        let trials = document["trials"].as_array().expect("trials");
        let trial = trials.iter().find(|trial| trial["variant"] == variant).expect("a trial of each");
        trial["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {trial:#}"))
    };
    assert!(metric("plain", "extents_per_mib_aged") > 2.0 * metric("plain", "extents_per_mib_fresh"));
    assert!(metric("plain", "mean_aged_bit_per_s") < metric("plain", "mean_fresh_bit_per_s"));
    assert!(metric("pool", "mean_aged_bit_per_s") >= 0.95 * metric("pool", "mean_fresh_bit_per_s"));
    for variant in ["plain", "pool"] {
        assert!(metric(variant, "written_bytes") >= 2.0 * metric(variant, "capacity_bytes"));
        // The sampler's numbers come from the kernel, not from the ageing.
        assert!(metric(variant, "server_memory_bytes") > 0.0);
    }
    let run = document["run"].as_str().expect("its name");
    let shown = world.run(&["runs", "show", run]).code(0).stdout;
    assert!(shown.contains("seeks") && shown.contains("FIEMAP"), "{shown}");
}

#[test]
fn answer_is_short_and_the_disk_is_as_empty_as_before() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let disk = SmallDisk::mount_ext4(&world.path("disk"), SIZE);
    std::fs::write(disk.path().join("precious"), "not kagiri's").expect("a file");
    // The loop device is the test's: what is left behind is seen in the disk.
    let ended = world.start(&["files", "age", "disk", "--severity", "mild"]).end(PATIENCE).code(0);
    assert!(ended.stdout.lines().count() <= 15, "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80 || line.starts_with("Report")));
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Aged, the disk") && words.contains("streams of 25 Mbit/s"), "{words}");
    assert_eq!(names(disk.path()), ["lost+found", "precious"]);
}

#[test]
fn flash_disk_is_overwritten_until_its_write_rate_is_known() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let disk = SmallDisk::mount_ext4(&world.path("disk"), SIZE);
    let flash = ["files", "age", "disk", "--procedure", "flash"];
    let ended = world.start(&flash).end(PATIENCE).code(0);
    assert!(ended.stdout.lines().count() <= 15, "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80 || line.starts_with("Report")));
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("at random when fresh and") && words.contains("times the space"), "{words}");
    assert_eq!(names(disk.path()), ["lost+found"]);

    let shown = world.run(&["runs", "show", "last", "--json"]).code(0).json();
    let metrics = &shown["trials"][0]["metrics"];
    let metric = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("no {name}: {metrics:#}"));
    let passes = metric("written_bytes") / metric("capacity_bytes");
    assert!((2.0..=3.9).contains(&passes), "{passes}");
    assert!((12.0..=30.0).contains(&metric("rounds")), "{metrics:#}");
    let share = metric("write_steady_bit_per_s") / metric("write_fresh_bit_per_s");
    assert!((100.0 * share / metric("steady_percent") - 1.0).abs() < 1e-6, "{metrics:#}");
    // What the doubt says of the rounds is what the rule says of them.
    let is_steady = metric("rounds_range_percent") <= 20.0 && metric("rounds_drift_percent").abs() <= 10.0;
    let doubts = shown["trials"][0]["doubts"].to_string();
    assert_eq!(!doubts.contains("rate_not_steady"), is_steady, "{doubts} {metrics:#}");
    assert!(metrics["kept_percent"].is_null(), "it is of the other procedure");
    assert!(metric("server_memory_bytes") > 0.0);
}

#[test]
fn interrupted_ageing_leaves_nothing() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let disk = SmallDisk::mount_ext4(&world.path("disk"), SIZE);
    for procedure in ["files", "flash"] {
        let mut live = world.start(&["files", "age", "disk", "--procedure", procedure]);
        live.wait_for("times the space written", PATIENCE);
        live.signal(Signal::SIGINT);
        live.end(Duration::from_secs(20)).code(130);
        assert_eq!(names(disk.path()), ["lost+found"], "{procedure}");
    }
}

#[test]
fn link_in_the_place_of_the_folder_leads_nothing_out_of_the_disk() {
    need_root!();
    let _beside = beside_others();
    for (procedure, layout) in [("files", Some("pool")), ("flash", None)] {
        let world = World::new();
        let disk = SmallDisk::mount_ext4(&world.path("disk"), SIZE);
        std::fs::create_dir_all(world.path("victim/aged/pool")).expect("directories");
        let mut words = vec!["files", "age", "disk", "--procedure", procedure];
        words.extend(layout.iter().flat_map(|layout| ["--severity", "mild", "--layout", layout]));
        let live = world.start(&words);
        let mut folder = None;
        wait_until("the folder is filled", PATIENCE, || {
            let found = names(disk.path()).into_iter().find(|name| name.starts_with("kagiri-files-"));
            folder = found.map(|name| disk.path().join(name)).filter(|path| path.join("aged").exists());
            folder.is_some()
        });
        // As the owner of the directory can.
        let folder = folder.expect("a folder");
        std::fs::rename(&folder, disk.path().join("moved")).expect("renamed");
        std::os::unix::fs::symlink(world.path("victim"), &folder).expect("a link");
        let ended = live.end(PATIENCE).code(0);
        assert_eq!(names(&world.path("victim/aged")), ["pool"], "{procedure}: {}", ended.stderr);
        assert_eq!(names(&world.path("victim/aged/pool")), [""; 0], "{procedure}: {}", ended.stderr);
        assert_eq!(names(&disk.path().join("moved")), [".kagiri-owner"], "what was made is removed");
        assert!(!ended.stderr.contains("/proc/self"), "{}", ended.stderr);
    }
}

#[test]
fn what_cannot_be_aged_is_refused() {
    let world = World::new();
    std::fs::create_dir(world.path("dir")).expect("a directory");
    let own = ["no file system of its own", "mount a new one"];
    world.run(&["files", "age", "dir"]).fails(2, &own);
    world.run(&["files", "age", "/"]).fails(2, &own);
    world.run(&["files", "age"]).fails(2, &["DIR is missing"]);
    world.run(&["files", "age", "dir", "--bitrate", "1Gbit/s"]).fails(2, &["--bitrate", "--disk-rate"]);
    world.run(&["files", "age", "dir", "--time", "1s"]).fails(2, &["--time"]);
    let flash = ["files", "age", "dir", "--procedure", "flash"];
    world.run(&flash).fails(2, &own);
    world.run(&[&flash[..], &["--layout", "pool"]].concat()).fails(2, &["--layout", "--procedure"]);
    assert!(names(&world.path("dir")).is_empty());
    need_root!();
    let small = SmallDisk::mount_ext4(&world.path("small"), 64 << 20);
    world.run(&["files", "age", "small"]).fails(1, &["MiB free", "use a larger file system"]);
    let memory = SmallDisk::mount(&world.path("memory"), SIZE);
    world.run(&["files", "age", "memory"]).fails(1, &["FIEMAP", "use ext3, ext4, xfs or btrfs"]);
    let flash = ["files", "age", "memory", "--procedure", "flash"];
    world.run(&flash).fails(1, &["O_DIRECT", "use a file system on a disk"]);
    let disk = SmallDisk::mount_ext4(&world.path("disk"), SIZE);
    let hint = ["files", "age", "disk", "--layout", "extent-size-hint"];
    world.run(&hint).fails(1, &["takes no extent size hint", "use xfs"]);
    for mounted in [small, memory, disk] {
        assert!(names(mounted.path()).iter().all(|name| name == "lost+found"));
    }
}

#[test]
fn lab_can_have_a_disk_that_is_aged() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let text = "[host.a.disk]\nsize = '640MiB'\nage = 'harsh'\nmodel = 'ivdr-2006'\n";
    let lab = UpLab::new(&world, "old", text);
    let on = |script: &str| {
        world.run(&["lab", "exec", "a", "--lab", &lab.name, "--", "sh", "-c", script]).code(0).stdout
    };
    let disk = on("echo $KAGIRI_LAB_DISK").trim().to_owned();
    let aged = std::fs::read_dir(format!("{disk}/.kagiri-aged")).expect("what aged it").flatten();
    let used_bytes: u64 = aged.filter_map(|file| file.metadata().ok()).map(|facts| facts.size()).sum();
    let share = used_bytes as f64 / SIZE as f64;
    assert!((0.30..0.60).contains(&share), "half of the space is used, found {share}");
    // Its access times are modelled again.
    let status = world.run(&["lab", "status", &lab.name, "--json"]).code(0).json();
    assert_eq!(status["disks"][0]["model"]["paced"], true, "{status:#}");
    world.write("bad.toml", "name = 'bad'\n[host.a.disk]\nsize = '100MiB'\nage = 'mild'\n");
    world.run(&["lab", "up", "bad.toml"]).fails(2, &["too small to be aged", "512MiB"]);
}

#[test]
fn content_made_on_an_aged_disk_of_a_lab_lies_in_its_pool() {
    need_root!();
    need_programs!("filefrag");
    let _beside = beside_others();
    let world = World::new();
    let disk = "[host.a.disk]\nsize = '640MiB'\nage = 'harsh'\npool = '128MiB'\n[host.b]\n\
        [[link]]\nbetween = ['a', 'b']\n";
    let lab = UpLab::new(&world, "pool", disk);
    let on = |script: &str| {
        world.run(&["lab", "exec", "a", "--lab", &lab.name, "--", "sh", "-c", script]).code(0).stdout
    };
    let content = format!("{}/content", on("echo $KAGIRI_LAB_DISK").trim());
    let stream =
        ["stream", "--lab", &lab.name, "--place", "server=a", "--place", "viewers=b", "--streams", "2"];
    let short = ["--bitrate", "8Mbit/s", "--duration", "20s", "--cold", "--hold", "2s", "--json"];
    for _ in 0..2 {
        let document = world.run(&[&stream[..], &short[..]].concat()).code(0).json();
        let trial = &document["trials"][0];
        assert_eq!(trial["verdict"], "pass", "{document:#}");
        let is_warm = |doubt: &serde_json::Value| doubt["kind"] == "stream.cache_not_cold";
        assert!(!trial["doubts"].as_array().unwrap().iter().any(is_warm), "{trial:#}");
        // The pool was reserved before the files that fill the disk: its space is one piece of the new disk.
        let layout = world.run(&["content", "layout", &content, "--json"]).code(0).json();
        let files = layout["files"].as_array().unwrap();
        let films = files.iter().filter(|file| file["path"].as_str().unwrap().ends_with(".ts")).count();
        assert_eq!(films, 1, "made once: {layout:#}");
        let is_film = |name: &String| name.ends_with(".ts");
        assert!(!names(Path::new(&content)).iter().any(is_film), "it has no file of its own");
        let pieces = on(&format!("filefrag {content}/{}/segments", pool::FOLDER));
        let pieces: u64 = pieces.rsplit(": ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(pieces <= 4, "the pool lies in {pieces} pieces");
    }
    for (pool, why) in [("1MiB", "16MiB (a segment)"), ("400MiB", "half of the disk")] {
        world.write("bad.toml", format!("name = 'bad'\n[host.a.disk]\nsize = '640MiB'\npool = '{pool}'\n"));
        world.run(&["lab", "up", "bad.toml"]).fails(2, &["bad.toml:", "disk.pool", why]);
    }
}
