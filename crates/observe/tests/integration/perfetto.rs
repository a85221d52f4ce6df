//! The exported picture is read by Perfetto's own schema (the package `perfetto` of PyPI).

use std::path::Path;
use std::process::Command;

use base::timeline::{CallSpan, CallState, Counter, CpuLane, CpuSpan, Loss, Picture, ThreadLane};
use observe::timeline::pftrace;

/// Reads the file by the schema and checks for errors of Perfetto's importer: spans that are not nested,
/// times that go back on a track, undeclared names and tracks.
const CHECK: &str = r#"
import sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
data = open(sys.argv[1], 'rb').read()
trace = Trace()
trace.ParseFromString(data)
assert trace.SerializeToString() == data or len(trace.SerializeToString()) == len(data), 'unknown fields'
names, tracks, open_on, last, spans, counted = {}, {}, {}, {}, 0, []
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id == 1
    for name in packet.interned_data.event_names:
        assert name.iid not in names
        names[name.iid] = name.name
    if packet.HasField('track_descriptor'):
        track = packet.track_descriptor
        assert track.uuid not in tracks and (not track.parent_uuid or track.parent_uuid in tracks)
        tracks[track.uuid] = track
    if packet.HasField('track_event'):
        event = packet.track_event
        assert event.track_uuid in tracks, 'an unknown track'
        assert packet.timestamp >= last.get(event.track_uuid, 0), 'time goes back'
        last[event.track_uuid] = packet.timestamp
        if event.type == TrackEvent.TYPE_COUNTER:
            assert tracks[event.track_uuid].HasField('counter') and event.HasField('counter_value')
            counted.append(event.counter_value)
            continue
        depth = open_on.get(event.track_uuid, 0)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert event.name_iid in names, 'an unknown name'
            assert depth == 0, 'spans overlap'
            open_on[event.track_uuid] = 1
            spans += 1
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END and depth == 1
            open_on[event.track_uuid] = 0
assert not any(open_on.values()), 'a span without an end'
threads = sorted(t.thread.thread_name for t in tracks.values() if t.HasField('thread'))
processes = [t.process.pid for t in tracks.values() if t.HasField('process')]
print(spans, counted, threads, processes, 'events lost' in names.values(), max(last.values()))
"#;

/// Python with the package in a folder of its own; `None`, with a message, if it cannot be installed.
fn python_with_perfetto(folder: &Path) -> Option<Command> {
    let run = |command: &mut Command| {
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    };
    let packages = folder.join("packages");
    let install = |python: &Path| {
        let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"];
        run(Command::new(python).args(words).arg(&packages).arg("perfetto"))
    };
    // Where Python has no pip, an environment brings one; that takes longer.
    let made = install(Path::new("python3")).or_else(|_| {
        let venv = folder.join("venv");
        run(Command::new("python3").arg("-m").arg("venv").arg(&venv))?;
        install(&venv.join("bin/python"))
    });
    match made {
        Ok(()) => {
            let mut python = Command::new("python3");
            python.env("PYTHONPATH", packages);
            Some(python)
        }
        Err(why) => {
            features::skip(&format!("needs python3 with venv, pip and its registry: {why}"));
            None
        }
    }
}

fn picture() -> Picture {
    let call = |n: u64| CallSpan {
        from_ns: n * 1000,
        to_ns: n * 1000 + (n % 3) * 500,
        name: (n % 2) as u16,
        state: if n.is_multiple_of(5) { CallState::Blocked } else { CallState::Ready },
        unfinished: false,
        returned: -11,
    };
    let lane = |thread, process, name: &str| ThreadLane {
        thread,
        process,
        name: name.into(),
        calls: (0..20_000).map(call).collect(),
    };
    let cpu = |n: u64| CpuSpan { from_ns: n * 2000, to_ns: n * 2000 + 2000, what: (n % 3) as u32 };
    let softirq = |n: u64| CpuSpan { what: 2 + (n % 2) as u32, ..cpu(n) };
    Picture {
        length_ns: 40_000_000,
        names: vec!["read".into(), "epoll_wait".into()],
        threads: vec![lane(10, 10, "server"), lane(11, 10, "worker"), lane(20, 20, "ü \u{1F600}")],
        cpus: vec![CpuLane {
            cpu: 1,
            runs: (0..1000).map(cpu).collect(),
            softirqs: (0..1000).map(softirq).collect(),
        }],
        counters: vec![Counter { name: "send queues".into(), points: vec![(0, 0), (7000, 1 << 40)] }],
        losses: vec![
            Loss { from_ns: 5, to_ns: 900, cpu: 1, events: 3 },
            Loss { from_ns: 7, to_ns: 9, cpu: 3, events: 1 },
        ],
        left_out: None,
    }
}

#[test]
fn trace_is_valid_by_perfettos_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let picture = picture();
    let bytes = pftrace::encode(&picture);
    let spans = picture.spans() + picture.losses.len();
    assert!(bytes.len() <= 40 * spans, "{} bytes for {spans} spans", bytes.len());
    let Some(mut python) = python_with_perfetto(&path) else { return };
    let file = path.join("picture.pftrace");
    std::fs::write(&file, &bytes).unwrap();
    let checked = python.arg("-c").arg(CHECK).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    let last_ns = 19_999 * 1000 + 500;
    let expected = format!(" ['server', 'worker', 'ü 😀'] [10, 20] True {last_ns}");
    assert_eq!(printed.trim_end(), format!("{spans} [0, {}]{expected}", 1u64 << 40));
    drop(folder);
}
