//! The spans as text for the viewer's script: a JSON head that names the lanes, and the spans packed into
//! integers of one to ten bytes (LEB128), in base64. A span takes 5 to 9 bytes.

use base::timeline::{CallSpan, CallState, CpuSpan, Picture, softirq_name};
use serde_json::{Value, json};

use crate::text::plain;

/// Head and spans. The script reads them in the order of the lanes.
pub(super) struct Encoded {
    pub(super) head: String,
    pub(super) spans: String,
}

impl Encoded {
    pub(super) fn new(head: &Value, spans: &[u8]) -> Self {
        // A name must not end the element that it stands in.
        Self { head: head.to_string().replace('<', "\\u003c"), spans: base64(spans) }
    }
}

/// `returns`: whether it is known what calls returned.
pub(super) fn encode(picture: &Picture, returns: bool) -> Encoded {
    let mut spans = Vec::new();
    let mut lanes = Vec::new();
    for cpu in &picture.cpus {
        pack_all(&mut spans, &cpu.runs, |run: &CpuSpan| [u64::from(run.what) << 2, 0]);
        lanes.push(json!({"kind": "cpu", "label": format!("CPU {}", cpu.cpu), "cpu": cpu.cpu,
            "count": cpu.runs.len()}));
        pack_all(&mut spans, &cpu.softirqs, |softirq: &CpuSpan| [u64::from(softirq.what) << 2, 0]);
        let label = format!("CPU {} softirqs", cpu.cpu);
        lanes.push(json!({"kind": "softirq", "label": label, "cpu": cpu.cpu, "count": cpu.softirqs.len()}));
    }
    for lane in &picture.threads {
        pack_all(&mut spans, &lane.calls, |call: &CallSpan| {
            let state = u64::from(call.state == CallState::Blocked) | (u64::from(call.unfinished) << 1);
            [(u64::from(call.name) << 2) | state, zigzag(call.returned)]
        });
        let name = if lane.name.is_empty() { "thread".to_owned() } else { plain(&lane.name) };
        let label = format!("{name} {}", lane.thread);
        lanes.push(
            json!({"kind": "thread", "label": label, "process": lane.process, "count": lane.calls.len()}),
        );
    }
    let losses: Vec<Value> = picture
        .losses
        .iter()
        .map(|loss| json!({"from": loss.from_ns, "to": loss.to_ns, "cpu": loss.cpu, "events": loss.events}))
        .collect();
    let counters: Vec<Value> = picture
        .counters
        .iter()
        .map(|counter| {
            let (at, bytes): (Vec<u64>, Vec<u64>) = counter.points.iter().copied().unzip();
            json!({"label": counter.name, "at": at, "bytes": bytes})
        })
        .collect();
    let softirqs = [2, 3].map(softirq_name);
    let mut calls = picture.threads.iter().flat_map(|lane| &lane.calls);
    let head = json!({
        "length": picture.length_ns,
        "names": picture.names,
        "softirqs": softirqs,
        "lanes": lanes,
        "counters": counters,
        "losses": losses,
        "returns": returns,
        "states": calls.all(|call| call.state != CallState::Unknown),
    });
    Encoded::new(&head, &spans)
}

/// Each span as the time since the end of the one before it, its length, and two numbers of its own.
pub(super) fn pack_all<S: Timed>(into: &mut Vec<u8>, spans: &[S], own: impl Fn(&S) -> [u64; 2]) {
    let mut last_ns = 0;
    for span in spans {
        let (from_ns, to_ns) = span.ends();
        let [what, value] = own(span);
        for number in [from_ns.saturating_sub(last_ns), to_ns.saturating_sub(from_ns), what, value] {
            pack(into, number);
        }
        last_ns = to_ns;
    }
}

pub(super) trait Timed {
    fn ends(&self) -> (u64, u64);
}

impl Timed for CallSpan {
    fn ends(&self) -> (u64, u64) {
        (self.from_ns, self.to_ns)
    }
}

impl Timed for CpuSpan {
    fn ends(&self) -> (u64, u64) {
        (self.from_ns, self.to_ns)
    }
}

fn pack(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Small numbers of either sign become small ones.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use base::timeline::ThreadLane;

    use super::*;

    #[test]
    fn base64_zigzag_and_leb128_match_their_standards() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
        let mut packed = Vec::new();
        pack(&mut packed, 624_485);
        assert_eq!(packed, [0xe5, 0x8e, 0x26]);
    }

    #[test]
    fn name_is_escaped_in_script_element() {
        let lane = ThreadLane { name: "</script><b>".into(), ..ThreadLane::default() };
        let Encoded { head, .. } = encode(&Picture { threads: vec![lane], ..Picture::default() }, true);
        assert!(!head.contains('<'), "{head}");
    }
}
