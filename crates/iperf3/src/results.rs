//! The JSON of the results exchange.

use serde_json::{Map, Value};

use super::STREAMS_MAX;
use super::json::{JsonError, Number, real, text, whole};

const OUTPUT_CHARS_MAX: usize = 1 << 20;
const NAME_CHARS_MAX: usize = 32;

/// What a server printed on its own side.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerOutput {
    Text(String),
    /// As the document of its own `--json`.
    Json(Value),
}

/// What one end saw of a test. What a peer did not say, or said wrongly, is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    /// CPU that it used, percent of one CPU over the test.
    pub cpu_total_percent: Option<f64>,
    /// Of these, in the program.
    pub cpu_user_percent: Option<f64>,
    /// Of these, in the kernel.
    pub cpu_system_percent: Option<f64>,
    /// Whether it sends and counts its retransmissions.
    pub counts_retransmits: bool,
    pub congestion: Option<String>,
    pub streams: Vec<StreamResult>,
    /// What it printed, if that was asked for.
    pub output: Option<ServerOutput>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamResult {
    /// The stream's number, the same at both ends: 1, 3, 4, 5 and so on (iperf3 never gives 2).
    pub id: u32,
    /// Bytes that it sent or received, without those of the omitted time.
    pub bytes: Option<u64>,
    /// Segments that it sent again.
    pub retransmits: Option<u64>,
    /// Jitter of what it received, s (RFC 1889, A.8).
    pub jitter_s: Option<f64>,
    /// Datagrams lost, those of the omitted time included.
    pub errors: Option<u64>,
    /// Of these, in the omitted time.
    pub errors_omitted: Option<u64>,
    /// Datagrams sent or, at a receiver, the highest count seen; those of the omitted time included.
    pub packets: Option<u64>,
    /// Of these, in the omitted time.
    pub packets_omitted: Option<u64>,
    pub seconds: Option<f64>,
}

/// The number of the stream that was opened as the `index`th, from 0.
pub fn stream_id(index: usize) -> u32 {
    let index = u32::try_from(index).unwrap_or(u32::MAX - 2);
    if index == 0 { 1 } else { index + 2 }
}

/// Numbers above this are no counts of bytes that a test can move.
const COUNT_MAX: u64 = u64::MAX >> 1;

impl Results {
    /// Reads what a peer sent.
    /// Fails if it lists no streams, or too many, or one without its number.
    pub fn read(object: &Map<String, Value>) -> Result<Self, JsonError> {
        let malformed = |what: &str| JsonError(what.to_owned());
        let listed = object.get("streams").and_then(Value::as_array);
        let listed = listed.ok_or_else(|| malformed("the results list no streams"))?;
        if listed.len() > 2 * STREAMS_MAX as usize {
            return Err(malformed("the results list more streams than there can be"));
        }
        let streams: Option<Vec<StreamResult>> = listed.iter().map(StreamResult::read).collect();
        let output = match object.get("server_output_json") {
            Some(json) if !json.is_null() => Some(ServerOutput::Json(json.clone())),
            _ => text(object, "server_output_text", OUTPUT_CHARS_MAX).map(ServerOutput::Text),
        };
        Ok(Self {
            cpu_total_percent: real(object, "cpu_util_total").filter(|percent| *percent >= 0.0),
            cpu_user_percent: real(object, "cpu_util_user").filter(|percent| *percent >= 0.0),
            cpu_system_percent: real(object, "cpu_util_system").filter(|percent| *percent >= 0.0),
            counts_retransmits: matches!(whole(object, "sender_has_retransmits"), Number::Whole(1..)),
            congestion: text(object, "congestion_used", NAME_CHARS_MAX),
            streams: streams.ok_or_else(|| malformed("a stream in the results has no number"))?,
            output,
        })
    }

    /// The message to send. iperf3 requires every number: unknown retransmits are -1, other unknown ones 0.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        for (key, percent) in [
            ("cpu_util_total", self.cpu_total_percent),
            ("cpu_util_user", self.cpu_user_percent),
            ("cpu_util_system", self.cpu_system_percent),
        ] {
            object.insert(key.to_owned(), percent.unwrap_or(0.0).into());
        }
        let retransmits = if self.counts_retransmits { 1 } else { -1 };
        object.insert("sender_has_retransmits".to_owned(), retransmits.into());
        if let Some(name) = &self.congestion {
            object.insert("congestion_used".to_owned(), name.as_str().into());
        }
        match &self.output {
            Some(ServerOutput::Text(text)) => {
                object.insert("server_output_text".to_owned(), text.as_str().into())
            }
            Some(ServerOutput::Json(json)) => object.insert("server_output_json".to_owned(), json.clone()),
            None => None,
        };
        let streams: Vec<Value> = self.streams.iter().map(|stream| stream.to_json().into()).collect();
        object.insert("streams".to_owned(), streams.into());
        object
    }

    pub fn stream(&self, id: u32) -> Option<&StreamResult> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

impl StreamResult {
    fn read(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let count = |key| match whole(object, key) {
            Number::Whole(count) if count <= COUNT_MAX => Some(count),
            _ => None,
        };
        let non_negative = |key| real(object, key).filter(|seconds| *seconds >= 0.0);
        let seconds = match (non_negative("start_time"), non_negative("end_time")) {
            (Some(start), Some(end)) if end >= start => Some(end - start),
            _ => None,
        };
        Some(Self {
            id: u32::try_from(count("id")?).ok()?,
            bytes: count("bytes"),
            retransmits: count("retransmits"),
            jitter_s: non_negative("jitter"),
            errors: count("errors"),
            errors_omitted: count("omitted_errors"),
            packets: count("packets"),
            packets_omitted: count("omitted_packets"),
            seconds,
        })
    }

    fn to_json(&self) -> Map<String, Value> {
        let count = |count: Option<u64>| count.map_or(Value::from(-1), Value::from);
        let mut object = Map::new();
        for (key, value) in [
            ("id", self.id.into()),
            ("bytes", count(Some(self.bytes.unwrap_or(0)))),
            ("retransmits", count(self.retransmits)),
            ("jitter", self.jitter_s.unwrap_or(0.0).into()),
            ("errors", count(Some(self.errors.unwrap_or(0)))),
            ("omitted_errors", count(Some(self.errors_omitted.unwrap_or(0)))),
            ("packets", count(Some(self.packets.unwrap_or(0)))),
            ("omitted_packets", count(Some(self.packets_omitted.unwrap_or(0)))),
            ("start_time", 0.into()),
            ("end_time", self.seconds.unwrap_or(0.0).into()),
        ] {
            object.insert(key.to_owned(), value);
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;
    use proptest::prelude::*;

    #[test]
    fn what_iperf3_sends() {
        // As iperf3 3.12 sent it, with a second stream of the kind that its users complain about.
        let object = parse(
            br#"{"cpu_util_total":10.5,"cpu_util_user":-nan,"cpu_util_system":10.1,"sender_has_retransmits":1,
                "congestion_used":"cubic","streams":[
                {"id":1,"bytes":1000,"retransmits":0,"jitter":0,"errors":0,"packets":0,"start_time":0,
                 "end_time":1.5},
                {"id":3,"bytes":18446744073709551616,"retransmits":-1,"jitter":nan,"errors":-1,"packets":7,
                 "start_time":2,"end_time":1}]}"#,
        );
        let results = Results::read(&object.unwrap()).unwrap();
        let first = StreamResult {
            id: 1,
            bytes: Some(1000),
            retransmits: Some(0),
            jitter_s: Some(0.0),
            errors: Some(0),
            packets: Some(0),
            seconds: Some(1.5),
            ..StreamResult::default()
        };
        let second = StreamResult { id: 3, packets: Some(7), ..StreamResult::default() };
        assert_eq!(
            (results.stream(1), results.stream(3), results.stream(2)),
            (Some(&first), Some(&second), None)
        );
        assert_eq!((results.cpu_total_percent, results.cpu_user_percent), (Some(10.5), None));
        assert!(results.counts_retransmits && results.congestion.as_deref() == Some("cubic"));
    }

    #[test]
    fn without_streams_there_are_no_results() {
        for text in ["{}", r#"{"streams": 1}"#, r#"{"streams": [1]}"#, r#"{"streams": [{"id": -1}]}"#] {
            assert!(Results::read(&parse(text.as_bytes()).unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_of_streams_skip_two() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
    }

    fn stream() -> impl Strategy<Value = StreamResult> {
        let count = || (0..=COUNT_MAX).prop_map(Some);
        let counts = (count(), prop::option::of(0..=COUNT_MAX), count(), count(), count(), count());
        (any::<u32>(), counts, 0.0..1e9_f64, 0.0..1e9_f64).prop_map(|(id, counts, jitter, seconds)| {
            StreamResult {
                id,
                bytes: counts.0,
                retransmits: counts.1,
                jitter_s: Some(jitter),
                errors: counts.2,
                errors_omitted: counts.3,
                packets: counts.4,
                packets_omitted: counts.5,
                seconds: Some(seconds),
            }
        })
    }

    proptest! {
        #[test]
        fn written_messages_are_read_back(
            streams in prop::collection::vec(stream(), 0..5),
            percent in 0.0..1e4_f64,
            counts_retransmits in any::<bool>(),
            congestion in prop::option::of("[a-z]{1,9}"),
            output in prop::option::of("[a-z \n\"]{0,50}"),
        ) {
            let results = Results {
                cpu_total_percent: Some(percent),
                cpu_user_percent: Some(0.0),
                cpu_system_percent: Some(percent),
                counts_retransmits,
                congestion,
                streams,
                output: output.map(ServerOutput::Text),
            };
            prop_assert_eq!(Results::read(&results.to_json()), Ok(results));
        }
    }
}
