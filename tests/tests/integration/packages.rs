//! `scripts/package`: each package is installed into an empty root, where the program runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kagiri_tests::{World, beside_others, need_root, program, skip, workspace};
use serde_json::Value;

/// A measurement of every package.
const TRANSFER: [&str; 6] = ["transfer", "--time", "0.2", "--rate", "10Mbit/s", "--quiet"];

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

fn assert_measured(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("Moved ") && said.contains("bit/s up.") && said.contains("Report: "), "{said}");
}

/// Packages this build's program into a folder of the world.
fn package(world: &World, kind: &str, folder: &str) -> PathBuf {
    let out = world.path(folder);
    let mut command = Command::new(workspace().join("scripts/package"));
    command.args(["--fast", kind, "--binary"]).arg(program()).arg("--out").arg(&out);
    run(command.env("SOURCE_DATE_EPOCH", "1700000000"));
    let mut made = fs::read_dir(out).expect("the folder").map(|entry| entry.expect("an entry").path());
    made.next().expect("a package")
}

/// The package, which has the same bytes when it is made again.
fn reproduced(world: &World, kind: &str) -> PathBuf {
    let (first, again) = (package(world, kind, "first"), package(world, kind, "again"));
    assert_eq!(first.file_name(), again.file_name());
    assert!(fs::read(&first).expect("it") == fs::read(&again).expect("it"), "{kind} differs");
    first
}

/// Whether a program is there.
fn is_there(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A command in `root`, which has the kernel's files and nothing else of this machine; `user` in numbers.
fn in_root(root: &Path, user: &str, environment: &[&str], arguments: &[&str]) -> Command {
    fs::create_dir_all(root.join("proc")).expect("a folder");
    let mut command = Command::new("unshare");
    let script = "mount --bind /proc \"$1/proc\" && shift && exec env -i \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(root).args(environment);
    command.args(["/usr/sbin/chroot", &format!("--userspec={user}")]).arg(root).args(arguments);
    command
}

#[test]
fn wheel_installs_into_an_empty_environment() {
    let _beside = beside_others();
    if !is_there("strip") {
        return skip("needs binutils");
    }
    let world = World::new();
    let wheel = reproduced(&world, "wheel");
    let name = wheel.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.contains("-py3-none-manylinux_2_"), "{name}");
    run(Command::new("python3").args(["-m", "venv"]).arg(world.path("env")));
    let pip = ["-m", "pip", "install", "--no-index", "--quiet", "--disable-pip-version-check"];
    run(Command::new(world.path("env/bin/python")).args(pip).arg(wheel));
    let mut command = Command::new(world.path("env/bin/kagiri"));
    assert_measured(&run(command.args(TRANSFER).env("KAGIRI_DATA", world.data())));
    let listed = run(Command::new(world.path("env/bin/python")).args(["-m", "pip", "show", "kagiri"]));
    assert!(String::from_utf8_lossy(&listed.stdout).contains("License: Apache-2.0"));
}

#[test]
fn debian_package_runs_with_nothing_but_its_dependencies() {
    need_root!();
    let _beside = beside_others();
    if !is_there("dpkg-deb") || !is_there("strip") {
        return skip("needs dpkg-deb and binutils");
    }
    let world = World::new();
    let deb = reproduced(&world, "deb");
    let root = world.path("root");
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&root));
    for part in [
        "usr/share/man/man1/kagiri-transfer.1.gz",
        "usr/share/bash-completion/completions/kagiri",
        "usr/share/zsh/vendor-completions/_kagiri",
        "usr/share/fish/vendor_completions.d/kagiri.fish",
        "usr/share/doc/kagiri/copyright",
        "usr/share/doc/kagiri/examples/plans/servers.toml",
    ] {
        assert!(root.join(part).exists(), "{part}");
    }
    let unit =
        fs::read_to_string(root.join("usr/lib/systemd/system/kagiri-agent.service")).expect("the unit");
    assert!(unit.contains("\nExecStart=/usr/bin/kagiri agent "), "{unit}");
    let depends = run(Command::new("dpkg-deb").arg("-f").arg(&deb).arg("Depends"));
    let depends = String::from_utf8_lossy(&depends.stdout).into_owned();
    assert!(depends.contains("libc6 (>= 2."), "{depends}");
    for name in depends.split(',').filter_map(|one| one.split_whitespace().next()) {
        let listed = run(Command::new("dpkg").args(["-L", name])).stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        for file in listed.lines().filter(|file| file.contains("/lib") && Path::new(file).is_file()) {
            let copy = root.join(file.trim_start_matches('/'));
            fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
            fs::copy(file, copy).expect("a copy");
        }
    }
    let words = [&["/usr/bin/kagiri"], &TRANSFER[..]].concat();
    assert_measured(&run(&mut in_root(&root, "0:0", &["KAGIRI_DATA=/data", "LC_ALL=C.UTF-8"], &words)));
}

/// A blob of an image's layout by its descriptor, with the size and the digest that this one states.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().expect("a digest").strip_prefix("sha256:").expect("SHA-256");
    let file = layout.join("blobs/sha256").join(digest);
    let sum = run(Command::new("sha256sum").arg(&file)).stdout;
    assert!(sum.starts_with(digest.as_bytes()), "{digest}");
    assert_eq!(fs::metadata(&file).expect("a blob").len(), descriptor["size"].as_u64().expect("a size"));
    file
}

fn document(layout: &Path, descriptor: &Value) -> Value {
    serde_json::from_slice(&fs::read(blob(layout, descriptor)).expect("a blob")).expect("JSON")
}

#[test]
fn image_runs_from_its_layers_alone() {
    need_root!();
    let _beside = beside_others();
    if !is_there("strip") {
        return skip("needs binutils");
    }
    let world = World::new();
    let image = reproduced(&world, "image");
    let (layout, root) = (world.path("layout"), world.path("root"));
    let unpack = |file: &Path, folder: &Path| {
        fs::create_dir_all(folder).expect("a folder");
        run(Command::new("tar").args(["--same-owner", "-xpf"]).arg(file).arg("-C").arg(folder));
    };
    unpack(&image, &layout);
    let index: Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).expect("the index")).expect("JSON");
    assert_eq!(
        fs::read_to_string(layout.join("oci-layout")).expect("it"),
        "{\"imageLayoutVersion\": \"1.0.0\"}"
    );
    let manifest = document(&layout, &index["manifests"][0]);
    let config = document(&layout, &manifest["config"]);
    for layer in manifest["layers"].as_array().expect("layers") {
        unpack(&blob(&layout, layer), &root);
    }
    let settings = &config["config"];
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().expect("a list").iter();
        all.map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    let (environment, entry) = (texts(&settings["Env"]), texts(&settings["Entrypoint"]));
    let environment: Vec<&str> = environment.iter().map(String::as_str).collect();
    let words: Vec<&str> = entry.iter().map(String::as_str).chain(TRANSFER).collect();
    let user = settings["User"].as_str().expect("a user");
    assert_measured(&run(&mut in_root(&root, user, &environment, &words)));
    assert!(root.join("data/runs.sqlite").exists(), "results are in the volume's folder");
}
