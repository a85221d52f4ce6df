//! The picture in Perfetto's format (TrackEvent):
//! <https://perfetto.dev/docs/reference/synthetic-track-event>.
//!
//! Written by hand: names are interned, so that a span takes at most 40 bytes in recordings of up to an hour.
//! Times count from 0, because viewers that keep them in floating point would make neighbours overlap. Every
//! lane is a track of its own on which spans follow each other; so they are nested in whatever order a reader
//! takes the tracks.

mod proto;

use base::timeline::{CallSpan, CallState, Counter, Loss, Picture, softirq_name};
use proto::Message;

/// Field numbers of perfetto/trace/trace_packet.proto and track_event.proto.
mod field {
    pub(super) const PACKET: u32 = 1;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED: u32 = 12;
    pub(super) const FLAGS: u32 = 13;
    pub(super) const DESCRIPTOR: u32 = 60;

    pub(super) const EVENT_TYPE: u32 = 9;
    pub(super) const EVENT_NAME: u32 = 10;
    pub(super) const EVENT_TRACK: u32 = 11;
    pub(super) const EVENT_VALUE: u32 = 30;

    pub(super) const INTERNED_NAMES: u32 = 2;

    pub(super) const TRACK_UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;
    pub(super) const TRACK_PROCESS: u32 = 3;
    pub(super) const TRACK_THREAD: u32 = 4;
    pub(super) const TRACK_PARENT: u32 = 5;
    pub(super) const TRACK_COUNTER: u32 = 8;

    pub(super) const COUNTER_UNIT: u32 = 3;
}

const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNTER: u64 = 4;
/// `UNIT_SIZE_BYTES` of counter_descriptor.proto.
const BYTES: u64 = 3;
/// `SEQ_INCREMENTAL_STATE_CLEARED`: names begin anew; `SEQ_NEEDS_INCREMENTAL_STATE`: they are referred to.
const CLEARED: u64 = 1;
const NEEDS: u64 = 2;
/// The one sequence of packets, and the number that stands for "another name".
const SEQUENCE: u64 = 1;

pub fn encode(picture: &Picture) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.names(picture);
    let names = Names::of(picture);
    // First, so that their tracks have short numbers.
    for cpu in &picture.cpus {
        let runs = writer.track(&format!("CPU {}", cpu.cpu));
        for run in &cpu.runs {
            writer.span(runs, names.thread(run.what), run.from_ns, run.to_ns);
        }
        let softirqs = writer.track(&format!("CPU {} softirqs", cpu.cpu));
        for softirq in &cpu.softirqs {
            writer.span(softirqs, names.softirq(softirq.what), softirq.from_ns, softirq.to_ns);
        }
    }
    for losses in picture.losses.chunk_by(|before, after| before.cpu == after.cpu) {
        writer.losses(losses, names.lost());
    }
    for counter in &picture.counters {
        writer.counter(counter);
    }
    let threads = writer.thread_tracks(picture);
    for (lane, track) in picture.threads.iter().zip(threads) {
        for call in &lane.calls {
            writer.span(track, call_name(call), call.from_ns, call.to_ns);
        }
    }
    writer.file.into_bytes()
}

/// Interned numbers: two for each call (ready, blocked), then softirqs, the loss, and threads.
struct Names {
    after_calls: u64,
}

impl Names {
    fn of(picture: &Picture) -> Self {
        Self { after_calls: 1 + 2 * picture.names.len() as u64 }
    }

    fn softirq(&self, vector: u32) -> u64 {
        self.after_calls + u64::from(vector != 2)
    }

    fn lost(&self) -> u64 {
        self.after_calls + 2
    }

    fn thread(&self, lane: u32) -> u64 {
        self.after_calls + 3 + u64::from(lane)
    }
}

/// 0 is no interned number.
fn call_name(call: &CallSpan) -> u64 {
    1 + 2 * u64::from(call.name) + u64::from(call.state == CallState::Blocked)
}

#[derive(Default)]
struct Writer {
    file: Message,
    packet: Message,
    event: Message,
    last_track: u64,
}

impl Writer {
    fn put_packet(&mut self) {
        self.file.message(field::PACKET, &self.packet);
        self.packet.clear();
    }

    /// The first packet contains all names.
    fn names(&mut self, picture: &Picture) {
        let numbers = Names::of(picture);
        let calls = picture.names.iter().flat_map(|name| [name.clone(), format!("{name} (blocked)")]);
        let mut all: Vec<(u64, String)> = (1..).zip(calls).collect();
        all.extend([2, 3].map(|vector| (numbers.softirq(vector), softirq_name(vector).to_owned())));
        all.push((numbers.lost(), "events lost".to_owned()));
        all.extend((0..).zip(&picture.threads).map(|(lane, thread)| {
            let name = if thread.name.is_empty() { "thread" } else { thread.name.as_str() };
            (numbers.thread(lane), format!("{name} {}", thread.thread))
        }));
        let mut interned = Message::default();
        for (number, name) in all {
            let mut entry = Message::default();
            entry.integer(1, number).text(2, &name);
            interned.message(field::INTERNED_NAMES, &entry);
        }
        self.packet.integer(field::TIMESTAMP, 0).integer(field::SEQUENCE, SEQUENCE);
        self.packet.message(field::INTERNED, &interned).integer(field::FLAGS, CLEARED);
        self.put_packet();
    }

    fn describe(&mut self, descriptor: &Message) {
        self.packet.integer(field::SEQUENCE, SEQUENCE).message(field::DESCRIPTOR, descriptor);
        self.put_packet();
    }

    /// A track of its own; small numbers are short in every event.
    fn track(&mut self, name: &str) -> u64 {
        self.last_track += 1;
        let mut descriptor = Message::default();
        descriptor.integer(field::TRACK_UUID, self.last_track).text(field::TRACK_NAME, name);
        self.describe(&descriptor);
        self.last_track
    }

    /// One track a thread, below its process's. Numbers of threads can come again, tracks do not.
    fn thread_tracks(&mut self, picture: &Picture) -> Vec<u64> {
        let mut process: Option<(u32, u64)> = None;
        let mut tracks = Vec::new();
        for lane in &picture.threads {
            let parent = match process {
                Some((number, track)) if number == lane.process => track,
                _ => {
                    self.last_track += 1;
                    let named = picture.threads.iter().find(|thread| thread.thread == lane.process);
                    let mut of_process = Message::default();
                    of_process
                        .integer(1, lane.process.into())
                        .text(6, named.map_or("", |thread| &thread.name));
                    let mut descriptor = Message::default();
                    descriptor.integer(field::TRACK_UUID, self.last_track);
                    descriptor.message(field::TRACK_PROCESS, &of_process);
                    self.describe(&descriptor);
                    process = Some((lane.process, self.last_track));
                    self.last_track
                }
            };
            self.last_track += 1;
            let mut of_thread = Message::default();
            of_thread.integer(1, lane.process.into()).integer(2, lane.thread.into()).text(5, &lane.name);
            let mut descriptor = Message::default();
            descriptor.integer(field::TRACK_UUID, self.last_track).integer(field::TRACK_PARENT, parent);
            descriptor.message(field::TRACK_THREAD, &of_thread);
            self.describe(&descriptor);
            tracks.push(self.last_track);
        }
        tracks
    }

    /// The losses of one CPU, in order of time.
    fn losses(&mut self, losses: &[Loss], name: u64) {
        let Some(first) = losses.first() else { return };
        let track = self.track(&format!("CPU {} events lost", first.cpu));
        let mut free_ns = 0;
        for loss in losses {
            let from_ns = loss.from_ns.max(free_ns);
            free_ns = loss.to_ns.max(from_ns);
            self.span(track, name, from_ns, free_ns);
        }
    }

    fn counter(&mut self, counter: &Counter) {
        self.last_track += 1;
        let mut of_bytes = Message::default();
        of_bytes.integer(field::COUNTER_UNIT, BYTES);
        let mut descriptor = Message::default();
        descriptor.integer(field::TRACK_UUID, self.last_track).text(field::TRACK_NAME, &counter.name);
        descriptor.message(field::TRACK_COUNTER, &of_bytes);
        self.describe(&descriptor);
        for &(at_ns, bytes) in &counter.points {
            self.event.integer(field::EVENT_TYPE, COUNTER).integer(field::EVENT_VALUE, bytes);
            self.put_event(self.last_track, at_ns, None);
        }
    }

    fn span(&mut self, track: u64, name: u64, from_ns: u64, to_ns: u64) {
        self.event.integer(field::EVENT_TYPE, BEGIN).integer(field::EVENT_NAME, name);
        self.put_event(track, from_ns, Some(NEEDS));
        // An end refers to no name.
        self.event.integer(field::EVENT_TYPE, END);
        self.put_event(track, to_ns, None);
    }

    fn put_event(&mut self, track: u64, at_ns: u64, flags: Option<u64>) {
        self.event.integer(field::EVENT_TRACK, track);
        self.packet.integer(field::TIMESTAMP, at_ns).integer(field::SEQUENCE, SEQUENCE);
        self.packet.message(field::TRACK_EVENT, &self.event);
        if let Some(flags) = flags {
            self.packet.integer(field::FLAGS, flags);
        }
        self.event.clear();
        self.put_packet();
    }
}

#[cfg(test)]
mod tests {
    use base::timeline::ThreadLane;

    use super::*;

    #[test]
    fn span_takes_at_most_40_bytes() {
        let call = |from_ns: u64| CallSpan {
            from_ns,
            to_ns: from_ns + 900,
            name: 30,
            state: CallState::Blocked,
            unfinished: false,
            returned: 0,
        };
        let mut picture = Picture {
            names: (0..40).map(|n| format!("call{n}")).collect(),
            threads: (0..200)
                .map(|thread| ThreadLane { thread, process: 7, ..ThreadLane::default() })
                .collect(),
            ..Picture::default()
        };
        let empty = encode(&picture).len();
        // Far into a long recording, where times are long numbers, on a track with a long number.
        picture.threads[199].calls = (0..1000).map(|n| call(60_000_000_000 + n * 1000)).collect();
        let of_spans = encode(&picture).len() - empty;
        assert!(of_spans <= 40 * 1000, "{of_spans} bytes");
    }
}
