//! The JSON of the results exchange.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::json::{JsonError, Number, Object, real, repaired, text, whole};

const OUTPUT_CHARS_MAX: usize = 1 << 20;
/// The longest results whose `server_output_json` is kept: a document takes many times its text in memory.
const OUTPUT_JSON_BYTES_MAX: usize = 256 << 10;
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
    /// Reads what a peer sent about a test of `streams_max` streams.
    /// Fails if it lists no streams, or more, or one without its number.
    pub fn read(message: &[u8], streams_max: u32) -> Result<Self, JsonError> {
        let malformed = |error: serde_json::Error| JsonError(error.to_string());
        let message = repaired(message);
        let mut reader = serde_json::Deserializer::from_slice(&message);
        let streams = Listed(streams_max as usize).deserialize(&mut reader).map_err(malformed)?;
        let object: Object = serde_json::from_slice(&message).map_err(malformed)?;
        let output = match output_json(&message) {
            Some(json) => Some(ServerOutput::Json(json)),
            None => text(&object, "server_output_text", OUTPUT_CHARS_MAX).map(ServerOutput::Text),
        };
        Ok(Self {
            cpu_total_percent: real(&object, "cpu_util_total").filter(|percent| *percent >= 0.0),
            cpu_user_percent: real(&object, "cpu_util_user").filter(|percent| *percent >= 0.0),
            cpu_system_percent: real(&object, "cpu_util_system").filter(|percent| *percent >= 0.0),
            counts_retransmits: matches!(whole(&object, "sender_has_retransmits"), Number::Whole(1..)),
            congestion: text(&object, "congestion_used", NAME_CHARS_MAX),
            streams,
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

/// The document that a server printed, if it is short.
fn output_json(message: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct Output {
        server_output_json: Option<Value>,
    }
    let output = (message.len() <= OUTPUT_JSON_BYTES_MAX).then(|| serde_json::from_slice::<Output>(message));
    output?.ok()?.server_output_json
}

/// Reads the list of streams of a message, at most as many as given, and skips all else.
struct Listed(usize);

impl<'de> DeserializeSeed<'de> for Listed {
    type Value = Vec<StreamResult>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Listed {
    type Value = Vec<StreamResult>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut streams = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == "streams" {
                streams = Some(map.next_value_seed(Streams(self.0))?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        streams.ok_or_else(|| A::Error::custom("the results list no streams"))
    }
}

struct Streams(usize);

impl<'de> DeserializeSeed<'de> for Streams {
    type Value = Vec<StreamResult>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Streams {
    type Value = Vec<StreamResult>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of streams")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut streams = Vec::new();
        while let Some(object) = list.next_element::<Object>()? {
            if streams.len() >= self.0 {
                return Err(A::Error::custom("the results list more streams than there can be"));
            }
            let stream = StreamResult::read(&object);
            streams.push(stream.ok_or_else(|| A::Error::custom("a stream in the results has no number"))?);
        }
        Ok(streams)
    }
}

impl StreamResult {
    fn read(object: &Object) -> Option<Self> {
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
    use proptest::prelude::*;

    #[test]
    fn what_iperf3_sends() {
        // As iperf3 3.12 sent it, with a second stream of the kind that its users complain about.
        let message =
            br#"{"cpu_util_total":10.5,"cpu_util_user":-nan,"cpu_util_system":10.1,"sender_has_retransmits":1,
                "congestion_used":"cubic","streams":[
                {"id":1,"bytes":1000,"retransmits":0,"jitter":0,"errors":0,"packets":0,"start_time":0,
                 "end_time":1.5},
                {"id":3,"bytes":18446744073709551616,"retransmits":-1,"jitter":nan,"errors":-1,"packets":7,
                 "start_time":2,"end_time":1}]}"#;
        let results = Results::read(message, 2).unwrap();
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
            assert!(Results::read(text.as_bytes(), 9).is_err(), "{text}");
        }
    }

    #[test]
    fn more_streams_than_the_test_has_are_refused() {
        let listed = |n: usize| format!(r#"{{"streams": [{}]}}"#, vec![r#"{"id": 1}"#; n].join(","));
        assert_eq!(Results::read(listed(3).as_bytes(), 3).unwrap().streams.len(), 3);
        let error = Results::read(listed(4).as_bytes(), 3).unwrap_err().to_string();
        assert!(error.contains("more streams"), "{error}");
    }

    #[test]
    fn only_a_short_document_of_a_server_is_kept() {
        let message = |n: usize| {
            let list = vec!["{}"; n].join(",");
            format!(r#"{{"streams": [], "server_output_json": {{"start": [{list}]}}}}"#)
        };
        let output = |n: usize| Results::read(message(n).as_bytes(), 1).unwrap().output;
        assert!(matches!(output(3), Some(ServerOutput::Json(json)) if json["start"][2].is_object()));
        assert_eq!(output(100_000), None);
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
            prop_assert_eq!(Results::read(&serde_json::to_vec(&results.to_json()).unwrap(), 5), Ok(results));
        }
    }
}
