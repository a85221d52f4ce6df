//! How often the limit is named right: each is injected, by a lab, and programs run into it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use super::{MARGIN, Settings};
use crate::fleet::fixture::{Fixture, Lab};
use crate::record::Row;
use crate::suite::Found;
use crate::tools;

const LAB: &str = "bench-limits";
/// Programs of each limit.
const PROGRAMS: usize = 5;
/// Longest wait for what was written: it is not what is asked here.
const DURABLE_WITHIN: &str = "1s";
const KEYS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "test-access-key"),
    ("AWS_SECRET_ACCESS_KEY", "test-secret-key"),
    ("AWS_ENDPOINT_URL", "http://10.78.0.1:9000"),
];

/// What is measured on a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Its disk, or else its mount.
    Own,
    /// A folder in memory.
    Memory,
    /// The object store.
    Store,
}

/// A limit, and by which words an answer names it.
struct Injected {
    what: &'static str,
    host: &'static str,
    place: Place,
    words: &'static [&'static str],
    /// Options of `kagiri files`; `FILE.f` is one of [`TEXTS`].
    programs: [&'static str; PROGRAMS],
}

const INJECTED: [Injected; 7] = [
    Injected {
        what: "bytes read per second: 20 MB/s by a control group",
        host: "bytes",
        place: Place::Own,
        words: &["disk"],
        programs: [
            "--personality fivestreamreaddirect --set filesize=32m",
            "--personality fivestreamreaddirect --set filesize=16m --threads 3",
            "--personality singlestreamreaddirect --set filesize=128m",
            "--personality randomread --set filesize=128m --set directio=1 --set iosize=256k --threads 4",
            "--personality randomread --set filesize=128m --set directio=1 --set iosize=1m --threads 16",
        ],
    },
    Injected {
        what: "bytes per second: 30 MB/s by a model of a disk",
        host: "rate",
        place: Place::Own,
        words: &["disk"],
        programs: [
            "--personality singlestreamwritedirect --set filesize=64m",
            "--personality fivestreamwritedirect --set filesize=16m",
            "--personality fivestreamreaddirect --set filesize=16m",
            "--personality randomrw --set filesize=64m --set directio=1 --set iosize=256k --threads 4",
            "--personality filemicro_rwritedsync --set filesize=16m --set iosize=256k --threads 4",
        ],
    },
    Injected {
        what: "requests per second: 500 1/s by a model of a disk",
        host: "iops",
        place: Place::Own,
        words: &["disk"],
        programs: [
            "--personality randomread --set filesize=64m --set directio=1 --set iosize=4k --threads 8",
            "--personality randomrw --set filesize=64m --set directio=1 --set iosize=4k --threads 2",
            "--personality filemicro_rwritedsync --set filesize=16m --threads 4",
            "--personality varmail --set nfiles=200",
            "--personality mongo --threads 8",
        ],
    },
    Injected {
        what: "CPU: a quota of 40 % of one",
        host: "quota",
        place: Place::Memory,
        words: &["cpu"],
        programs: [
            "--personality fileserver --set nfiles=500 --threads 20",
            "--personality webserver --set nfiles=500",
            "--personality varmail --set nfiles=500",
            "--personality filemicro_statfile --set nfiles=2000",
            "--personality randomread --set filesize=64m --threads 1",
        ],
    },
    Injected {
        what: "S3: 20 ms before each answer",
        host: "quota",
        place: Place::Store,
        words: &["responses"],
        programs: [
            "--objects 100 --object-size 16k --threads 8",
            "--objects 100 --object-size 16k --threads 1 --mix get=1",
            "--objects 100 --object-size 64k --threads 4 --mix get=4,put=1",
            "--objects 100 --object-size 1k --threads 16 --mix head=2,delete=1,put=1",
            "--objects 100 --object-size 4k --threads 4 --mix put=1",
        ],
    },
    Injected {
        what: "a lock: all threads write one file or work in one directory",
        host: "store",
        place: Place::Memory,
        words: &["locks"],
        programs: [
            "--wml write.f --threads 20 --set iosize=64k",
            "--wml write.f --threads 8 --set iosize=1m",
            "--wml append.f --threads 50",
            "--wml directory.f --threads 20",
            "--wml directory.f --threads 8",
        ],
    },
    Injected {
        what: "FUSE: s3fs with one thread",
        host: "mount",
        place: Place::Own,
        words: &["mount_program"],
        programs: [
            "--personality fileserver --set nfiles=60 --set meanfilesize=8k --threads 8",
            "--personality fileserver --set nfiles=30 --set meanfilesize=8k --threads 2",
            "--personality webserver --set nfiles=20 --set meanfilesize=4k --threads 16",
            "--personality varmail --set nfiles=40 --set meanfilesize=4k --threads 4",
            "--personality openfiles --set nfiles=50 --threads 16",
        ],
    },
];

/// Programs of which every thread needs the same lock.
const TEXTS: [(&str, &str); 3] = [
    (
        "write.f",
        "set $dir=/tmp\nset $nthreads=1\nset $iosize=64k\ndefine file name=one,path=$dir,size=64m,prealloc\n\
         define process name=p { thread name=t,memsize=2m,instances=$nthreads {\n\
         flowop write name=write,filename=one,iosize=$iosize,random } }\nrun 60\n",
    ),
    (
        "append.f",
        "set $dir=/tmp\nset $nthreads=1\ndefine fileset name=one,path=$dir,size=1k,entries=1,prealloc\n\
         define process name=p { thread name=t,memsize=1m,instances=$nthreads {\n\
         flowop openfile name=open,filesetname=one,fd=1\n\
         flowop appendfile name=append,fd=1,iosize=2k,iters=50\n\
         flowop closefile name=close,fd=1 } }\nrun 60\n",
    ),
    (
        "directory.f",
        "set $dir=/tmp\nset $nthreads=1\n\
         define fileset name=one,path=$dir,size=0,entries=2000,dirwidth=1000000,prealloc=50\n\
         define process name=p { thread name=t,memsize=1m,instances=$nthreads {\n\
         flowop createfile name=create,filesetname=one,fd=1\nflowop closefile name=close,fd=1\n\
         flowop deletefile name=delete,filesetname=one } }\nrun 60\n",
    ),
];

pub fn measure(settings: &Settings) -> anyhow::Result<Found> {
    let fixture = Fixture::open(settings.dir.clone(), settings.kagiri.clone())?;
    for (name, text) in TEXTS {
        std::fs::write(settings.dir.join(name), text)?;
    }
    let lab = fixture.lab(LAB, &lab_text(&s3_server(&settings.kagiri)?))?;
    let mut rows: Vec<Row> =
        INJECTED.iter().map(|injected| Row::new(format!("{}, named right", injected.what), "%")).collect();
    let mut named: Vec<Vec<String>> = vec![Vec::new(); INJECTED.len()];
    let programs = settings.pace.full_or(PROGRAMS, 1);
    for round in 0..programs * settings.pairs as usize {
        for ((injected, row), named) in INJECTED.iter().zip(&mut rows).zip(&mut named) {
            let one = || run(settings, &lab, injected, injected.programs[round % PROGRAMS], round);
            let (limit, noise) = settings.pace.measured(one)?;
            let is_right = injected.words.contains(&limit.as_str());
            eprintln!("  {}: {limit}{}", injected.what, if is_right { "" } else { ", WRONG" });
            row.ours.push(if is_right { 100.0 } else { 0.0 });
            row.noise.push(noise);
            named.push(limit);
        }
    }
    let all: Vec<f64> = rows.iter().flat_map(|row| &row.ours).copied().collect();
    let right = |ours: &[f64]| ours.iter().sum::<f64>() / ours.len().max(1) as f64;
    let mut together = Row::single("all of them together", "% named right", right(&all));
    together = together.goal_ours(">= 90");
    for (row, named) in rows.iter_mut().zip(&named) {
        let share = right(&row.ours);
        row.note = Some(format!("{}: {}", of(&row.ours), counted(named)));
        row.ours = vec![share];
    }
    rows.push(together);
    Ok(Found::about(
        "A limit is injected on a host of a lab, programs of `kagiri files` run into it, and the limit that \
         the answer names is held against it. There is no peer.",
    )
    .with_rows(rows)
    .with_notes(vec![of(&all)]))
}

/// `4 of 5`.
fn of(ours: &[f64]) -> String {
    format!("{} of {} right", ours.iter().filter(|value| **value > 0.0).count(), ours.len())
}

/// `5 x disk, 1 x cpu`.
fn counted(words: &[String]) -> String {
    let mut all: Vec<(&String, usize)> = Vec::new();
    for word in words {
        match all.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => all.push((word, 1)),
        }
    }
    let texts = all.into_iter().map(|(word, count)| format!("{count} x {word}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// The S3 server of kagiri's tests, beside the program under test.
fn s3_server(kagiri: &Path) -> anyhow::Result<PathBuf> {
    let path = kagiri.with_file_name("kagiri-s3-server");
    let missing = "build it: cargo build --release --package kagiri-s3-server";
    path.canonicalize().with_context(|| format!("{}: {missing}", path.display()))
}

fn lab_text(s3_server: &Path) -> String {
    let keys = KEYS.map(|(name, value)| format!("{name} = '{value}'")).join(", ");
    let listen = |port: u16, bucket: &str, latency_ms: u32| {
        format!(
            "'exec {} --listen 10.78.0.1:{port} --bucket {bucket} --latency-ms {latency_ms}'",
            s3_server.display()
        )
    };
    let disk = "size = '1GiB'\nfile_system = 'ext4'";
    format!(
        "[host.store]\naddress = '10.78.0.1'\nrun = [{}, {}]\n\
         [host.bytes.disk]\n{disk}\nread_limit = '20MB/s'\n\
         [host.rate.disk]\n{disk}\nmodel = {{ kind = 'flash', read_latency = '10us', write_latency = '10us', \
         rate_read = '30MB/s', rate_write = '30MB/s', channels = 32 }}\n\
         [host.iops.disk]\n{disk}\nmodel = {{ kind = 'flash', read_latency = '2ms', write_latency = '2ms', \
         rate_read = '500MB/s', rate_write = '500MB/s', channels = 1 }}\n\
         [host.quota]\ncpu_quota_percent = 40\n\
         [host.mount]\nenvironment = {{ {keys} }}\n[host.mount.mount]\n\
         command = 'exec s3fs one $KAGIRI_LAB_MOUNT -f -s -o url=http://10.78.0.1:9001 \
         -o use_path_request_style'\n\
         [switch.s]\n[[link]]\nbetween = ['*', 's']\n",
        listen(9000, "slow", 20),
        listen(9001, "one", 1),
    )
}

/// What one run names as its limit.
fn run(
    settings: &Settings,
    lab: &Lab<'_>,
    injected: &Injected,
    options: &str,
    seed: usize,
) -> anyhow::Result<String> {
    let mut command = Command::new(&settings.kagiri);
    command.args(["lab", "exec", injected.host, "--lab", LAB, "--", "sh", "-c"]);
    let at = match injected.place {
        Place::Own => "${KAGIRI_LAB_MOUNT:-$KAGIRI_LAB_DISK}",
        Place::Memory => "/dev/shm",
        Place::Store => "s3://slow/bench",
    };
    command.arg(format!("exec \"$0\" files \"{at}\" \"$@\"")).arg(lab.kagiri());
    command.args(options.split(' ')).args(["--seed", &seed.to_string(), "--json", "--quiet"]);
    command.args(["--time", &format!("{}s", settings.seconds)]);
    if injected.place != Place::Store {
        command.args(["--durable-within", DURABLE_WITHIN]);
    }
    command.envs(KEYS).env("AWS_CA_BUNDLE", "").env("KAGIRI_DATA", settings.dir.join("results"));
    command.current_dir(&settings.dir);
    let within = MARGIN + Duration::from_secs(u64::from(settings.seconds));
    let ran = tools::run(&mut command, within, &[0])
        .with_context(|| format!("{} on host {}", options, injected.host))?;
    let document: Value = serde_json::from_str(&ran.stdout)?;
    let name = document["limit"]["resource"].as_str().context("the answer names no limit")?;
    let certainty = document["limit"]["certainty"].as_str().unwrap_or_default();
    Ok(if certainty == "unknown" { certainty.to_owned() } else { name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lab_and_programs_can_be_read() {
        let text = format!("name = \"{LAB}\"\nsubnet = \"10.78.0.0/16\"\n{}", lab_text(Path::new("s3")));
        let lab = lab::file::Lab::read(&text).unwrap_or_else(|error| panic!("{error}"));
        for injected in &INJECTED {
            assert!(lab.hosts.iter().any(|host| host.name == injected.host), "{}", injected.host);
        }
        let texts = INJECTED.iter().flat_map(|injected| injected.programs);
        for words in texts.map(|options| options.split(' ').collect::<Vec<_>>()) {
            if words[0] == "--wml" {
                assert!(TEXTS.iter().any(|(name, _)| *name == words[1]), "{}", words[1]);
            }
        }
    }

    #[test]
    fn answers_are_counted_by_name() {
        let words = ["disk", "cpu", "disk"].map(str::to_owned);
        assert_eq!(counted(&words), "2 x disk, 1 x cpu");
    }
}
