//! File workloads on mounts: object stores behind s3fs and rclone on a lab's hosts, and mounts that fail.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kagiri_tests::{
    SmallDisk, UpLab, World, beside_others, names, need_programs, need_root, s3_server_program, wait_until,
};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(120);
const WRITE_BACK_S: f64 = 2.0;

/// A server with two buckets, `one` behind s3fs and `two` behind rclone.
fn lab(world: &World) -> String {
    let (server, log) = (s3_server_program(), world.path("requests"));
    let (server, log) = (server.display(), log.display());
    format!(
        "[host.store]\naddress = '10.77.0.1'\n\
         run = ['exec {server} --listen 10.77.0.1:9000 --bucket one --bucket two --log {log}']\n\
         [host.s3fs]\nenvironment = {KEYS}\n[host.s3fs.mount]\n\
         command = 'exec s3fs one $KAGIRI_LAB_MOUNT -f -o url=http://10.77.0.1:9000 \
         -o use_path_request_style \
         -o retries=1 -o connect_timeout=2 -o readwrite_timeout=2'\n\
         [host.cloud]\nenvironment = {KEYS}\n[host.cloud.mount]\n\
         command = 'exec rclone mount :s3:two $KAGIRI_LAB_MOUNT --config \"\" --s3-provider Other \
         --s3-env-auth \
         --s3-endpoint http://10.77.0.1:9000 --cache-dir $KAGIRI_LAB_CACHE --vfs-cache-mode full \
         --vfs-write-back {WRITE_BACK_S}s'\n\
         [switch.s]\n[[link]]\nbetween = ['*', 's']\n"
    )
}

const KEYS: &str = "{ AWS_ACCESS_KEY_ID = 'test-access-key', AWS_SECRET_ACCESS_KEY = 'test-secret-key', \
     AWS_ENDPOINT_URL = 'http://10.77.0.1:9000', AWS_CA_BUNDLE = '' }";

/// A line of the server's access log.
struct Request {
    /// Until the answer's end, in seconds of the wall clock.
    done_s: f64,
    method: String,
    bucket: String,
    key: String,
    query: String,
    bytes_in: u64,
}

fn requests(world: &World) -> Vec<Request> {
    let text = std::fs::read_to_string(world.path("requests")).unwrap_or_default();
    let request = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<f64>().unwrap_or(0.0);
        let [method, bucket, key, query] = [1, 2, 3, 4].map(|at| words[at].to_owned());
        Request {
            done_s: number(0) + number(9) / 1e3,
            method,
            bucket,
            key,
            query,
            bytes_in: number(6) as u64,
        }
    };
    text.lines().map(request).collect()
}

#[test]
fn durable_means_that_the_backend_has_every_file() {
    need_root!();
    need_programs!("s3fs", "rclone", "fusermount3");
    let _beside = beside_others();
    let world = World::new();
    world.write("lab.toml", format!("name = '{}'\n{}", kagiri_tests::unique_name("fuse"), lab(&world)));
    let plan = "workload = 'files'\nlab = 'lab.toml'\n[files]\ntime = '2s'\ndurable_within = '30s'\n\
        set = { nfiles = 20, meanfilesize = '8k', nthreads = 3 }\n\
        [[variant]]\nname = 's3fs'\nplace.workers = 's3fs'\nfiles.durable_at = 's3://one'\n\
        [[variant]]\nname = 'cloud'\nplace.workers = 'cloud'\nfiles.durable_at = 's3://two'\n";
    world.write("plan.toml", plan);
    let ended = world.measure(&["run", "plan.toml", "--json"], PATIENCE);
    world.assert_nothing_left(ended.pid);
    let document = ended.code(0).json();
    let metric = |variant: &str, name: &str| {
        let trials = document["trials"].as_array().expect("trials");
        let trial = trials.iter().find(|trial| trial["variant"] == variant);
        let trial = trial.unwrap_or_else(|| panic!("no trial of {variant}: {document:#}"));
        trial["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} of {variant}: {trial:#}"))
    };
    let requests = requests(&world);
    for (variant, bucket) in [("s3fs", "one"), ("cloud", "two")] {
        assert!(metric(variant, "ops_per_s") > 1.0);
        // Every file was uploaded: 20 at the beginning, as many as the run made above that.
        let puts: Vec<&Request> = requests
            .iter()
            .filter(|one| one.bucket == bucket && one.method == "PUT" && one.key.contains("/tree-"))
            .filter(|one| one.bytes_in > 0)
            .collect();
        assert!(puts.len() >= 16, "{variant}: {} uploads", puts.len());
        // The only listings of the whole tree are kagiri's. The first begins when the run is over.
        let is_look = |one: &&Request| {
            one.bucket == bucket && one.query.contains("tree-") && !one.query.contains("delimiter")
        };
        let looks: Vec<f64> = requests.iter().filter(is_look).map(|one| one.done_s).collect();
        let (first, last) = (looks[0], looks[looks.len() - 1]);
        let last_put = puts.iter().map(|one| one.done_s).fold(0.0, f64::max);
        assert!(last_put <= last, "{variant}: an upload ended {} s after the last look", last_put - last);
        let durable = metric(variant, "durable_after_s");
        let by_log = (last_put - first).max(0.0);
        // Nothing is durable before its upload ended, and the last look ends the wait; how long a look takes
        // on a busy machine is open.
        let looked = last - first;
        assert!(
            durable >= by_log - 0.2 && (looked - 0.2..looked + 10.0).contains(&durable),
            "{variant}: {durable} s, by the server's log {by_log} s to {looked} s"
        );
    }
    let cached = metric("cloud", "durable_after_s");
    assert!(cached >= WRITE_BACK_S / 2.0, "write-back cache {cached} s");
}

#[test]
fn dead_server_and_dead_supervisor_leave_a_reason_and_nothing_else() {
    need_root!();
    need_programs!("s3fs", "rclone", "fusermount3");
    let _beside = beside_others();
    let world = World::new();
    let lab = UpLab::new(&world, "dead", &lab(&world));
    let status = world.run(&["lab", "status", &lab.name, "--json"]).code(0).json();
    let mounts = status["mounts"].as_array().expect("mounts");
    let kinds: Vec<_> = mounts.iter().map(|mount| mount["file_system"].as_str().unwrap_or("none")).collect();
    assert_eq!(kinds, ["fuse.s3fs", "fuse.rclone"], "{status:#}");
    assert!(mounts.iter().all(|mount| mount["problem"].is_null()), "{status:#}");
    let shown = world.run(&["lab", "status", &lab.name]).code(0).stdout;
    assert!(shown.contains("fuse.s3fs: answers"), "{shown}");

    // What the cache has is not what the store has, whatever syncfs says.
    let script = "echo precious > $KAGIRI_LAB_MOUNT/note && sync -f $KAGIRI_LAB_MOUNT/note";
    world.run(&["lab", "exec", "cloud", "--lab", &lab.name, "--", "sh", "-c", script]).code(0);
    let is_note = |one: &Request| one.method == "PUT" && one.key == "note" && one.bytes_in > 0;
    assert!(!requests(&world).iter().any(is_note), "the cache should have kept it for {WRITE_BACK_S} s");
    let small = ["--set", "nfiles=40", "--set", "meanfilesize=4k", "--threads", "2"];
    let words = [&["--place", "workers=cloud", "--time", "500ms", "--json"][..], &small].concat();
    let document = lab.run("files", &words).code(0).json();
    let trial = &document["trials"][0];
    assert!(trial["metrics"]["durable_after_s"].is_null(), "{trial:#}");
    assert!(document.to_string().contains("behind the mount (fuse.rclone) is unknown"), "{document:#}");
    wait_until("the cache uploads it", PATIENCE, || requests(&world).iter().any(is_note));

    let words =
        [&["files", "--lab", &lab.name, "--place", "workers=s3fs", "--time", "20s"][..], &small].concat();
    let uploads = || requests(&world).iter().filter(|one| one.bucket == "one" && one.bytes_in > 0).count();
    let before = uploads();
    let live = world.start(&words);
    wait_until("the run uploads", PATIENCE, || uploads() > before + 60);
    let processes = status["processes"].as_array().expect("processes");
    let server =
        processes.iter().find(|one| one["what"].as_str().is_some_and(|what| what.contains("--listen")));
    kill(pid(&server.expect("a server")["pid"]), Signal::SIGKILL).expect("the server can be killed");
    let killed = Instant::now();
    let ended = live.end(PATIENCE).fails(1, &["I/O error"]);
    assert!(killed.elapsed() < Duration::from_secs(45), "{:?}: {}", killed.elapsed(), ended.stderr);

    kill(pid(&status["keeper"]["pid"]), Signal::SIGKILL).expect("the supervisor can be killed");
    let keeper = u32::try_from(status["keeper"]["pid"].as_u64().expect("a process")).expect("an id");
    world.run(&["undo"]).code(0);
    world.assert_nothing_left(keeper);
    assert_eq!(names(&world.data().join("lab")), [""; 0], "no folder of a lab is left");
}

fn pid(value: &serde_json::Value) -> Pid {
    Pid::from_raw(i32::try_from(value.as_i64().expect("a process")).expect("an id"))
}

#[test]
fn mount_that_fails_ends_the_lab_with_the_program_s_own_words() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let up = |command: &str, within: &str| {
        let name = kagiri_tests::unique_name("wrong");
        let mount = format!("command = '{command}'\nwithin = '{within}'");
        world.write("lab.toml", format!("name = '{name}'\n[host.a.mount]\n{mount}\n"));
        let ended = world.run(&["lab", "up", "lab.toml"]);
        world.assert_nothing_left(ended.pid);
        ended
    };
    let began = Instant::now();
    up("no-such-program $KAGIRI_LAB_MOUNT", "20s").fails(1, &["mount of host a", "not found"]);
    assert!(began.elapsed() < Duration::from_secs(10), "a missing program is no matter of patience");
    let wrong = "echo the bucket is gone >&2; test -d $KAGIRI_LAB_MOUNT && exit 3";
    up(wrong, "1s").fails(1, &["mount of host a", "exit status: 3", "the bucket is gone"]);
    up("exec sleep 60 # $KAGIRI_LAB_MOUNT", "1s")
        .fails(1, &["after 1s it is not mounted", "it wrote: nothing"]);
    up("true", "1s").fails(2, &["lab.toml:2", "mount.command", "$KAGIRI_LAB_MOUNT"]);
}

#[test]
fn vanished_mount_ends_a_run_with_its_reason() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let small = world.path("small");
    let _small = SmallDisk::mount(&small, 64 << 20);
    let words = ["files", "small", "--time", "30s", "--threads", "2", "--set", "nfiles=50", "--json"];
    let live = world.start(&words);
    // The owner's mark and the tree.
    let is_made = |dir: &Path| names(dir).iter().any(|name| name.starts_with("tree-"));
    let is_running = || names(&small).iter().any(|own| is_made(&small.join(own)));
    wait_until("files are made", PATIENCE, is_running);
    std::thread::sleep(Duration::from_millis(700));
    let began = Instant::now();
    umount2(&small, MntFlags::MNT_DETACH).expect("unmounted");
    let ended = live.end(PATIENCE);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    world.assert_nothing_left(ended.pid);
    let document = ended.code(1).json();
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], "invalid", "{trial:#}");
    let reasons = trial["reasons"].as_array().expect("reasons");
    let reason = reasons[0].as_str().expect("a reason");
    assert!(reason.contains("was unmounted during the run; mount it again"), "{reason}");
    assert_eq!(reasons.len(), 1, "{reasons:?}");
}

struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn exceeded_quota_ends_a_run_with_its_reason() {
    need_root!();
    need_programs!("mkfs.btrfs");
    let _beside = beside_others();
    // Another world, so that its loop device is not taken for one that kagiri left.
    let (world, owner) = (World::new(), World::new());
    let disk = owner.path("disk");
    std::fs::create_dir(&disk).expect("a directory");
    // Quotas of btrfs hold for root, too, and every kernel with btrfs has them.
    let script = "truncate -s 128M image && mkfs.btrfs -q image && mount -o loop image disk && \
        btrfs quota enable disk && btrfs subvolume create disk/limited && btrfs qgroup limit 8M disk/limited";
    let limit = Command::new("sh").args(["-c", script]).current_dir(owner.path(".")).output().expect("sh");
    let _disk = Unmounted(disk.clone());
    assert!(limit.status.success(), "{}", String::from_utf8_lossy(&limit.stderr));
    let limited = disk.join("limited");
    let program = "define fileset name=a,path=$dir,size=4k,entries=10,prealloc\n\
        define process name=p { thread name=t,instances=2 { flowop openfile name=open,filesetname=a,fd=1\n\
        flowop appendfile name=append,fd=1,iosize=64k\n flowop closefile name=close,fd=1 } }\nrun 30";
    world.write("grow.f", program);
    let ended =
        world.measure(&["files", limited.to_str().expect("text"), "--wml", "grow.f", "--json"], PATIENCE);
    let left = names(&limited);
    let document = ended.code(1).json();
    let reason = document["trials"][0]["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("append failed") && reason.contains("uota exceeded"), "{reason}");
    assert_eq!(left, [""; 0], "nothing is left");
}
