use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::json::parse;

fn read(text: &str) -> Result<Parameters, Refusal> {
    Parameters::read(&parse(text.as_bytes()).unwrap())
}

fn sent(object: &Map<String, Value>) -> Object {
    parse(&serde_json::to_vec(object).unwrap()).unwrap()
}

#[test]
fn what_iperf3_sends() {
    // As iperf3 3.12 sent it for `-u -R -P 3 -t 2 -O 1 -b 50M -l 1200 --udp-counters-64bit
    // --get-server-output`.
    let read = read(
        r#"{"udp":true,"omit":1,"time":2,"num":0,"blockcount":0,"parallel":3,"reverse":true,"len":1200,
            "bandwidth":50000000,"pacing_timer":1000,"get_server_output":1,"udp_counters_64bit":1,
            "client_version":"3.12"}"#,
    );
    let expected = Parameters {
        protocol: Protocol::Udp,
        direction: Direction::Reverse,
        length: Length::Seconds(2),
        omit_s: 1,
        streams: 3,
        block_bytes: 1200,
        rate_bit_per_s: Some(50_000_000),
        wide_counts: true,
        wants_output: true,
        client_version: Some("3.12".to_owned()),
        ..Parameters::default()
    };
    assert_eq!(read, Ok(expected));
}

#[test]
fn what_is_left_out_is_as_in_iperf3() {
    assert_eq!(read("{}"), Ok(Parameters::default()));
    assert_eq!(read(r#"{"udp": true, "len": 0}"#).unwrap().block_bytes, UDP_BLOCK_BYTES);
    assert_eq!(read(r#"{"time": 0}"#).unwrap().length, Length::Endless);
    assert_eq!(read(r#"{"time": 5, "num": 7, "unknown": [1]}"#).unwrap().length, Length::Bytes(7));
    let blocks = read(r#"{"blockcount": 3, "len": 1000}"#).unwrap();
    assert_eq!((blocks.length, blocks.bytes_asked()), (Length::Blocks(3), Some(3000)));
    assert_eq!(read(r#"{"bandwidth": 1e+15}"#).unwrap().rate_bit_per_s, Some(1_000_000_000_000_000));
}

#[test]
fn impossible_parameters_are_named() {
    for (text, code, named) in [
        (r#"{"parallel": 0}"#, ServerError::STREAMS, "'parallel' is 0; 1 to 20000"),
        (r#"{"parallel": 4294967297}"#, ServerError::STREAMS, "4294967297"),
        (r#"{"parallel": null}"#, ServerError::STREAMS, "not a number"),
        (r#"{"time": -1}"#, ServerError::DURATION, "'time' is below zero"),
        (r#"{"time": nan}"#, ServerError::DURATION, "not a number"),
        (r#"{"time": "10"}"#, ServerError::DURATION, "not a number"),
        (r#"{"num": 18446744073709551616}"#, ServerError::PARAMETERS, "not a number of 64 bits"),
        (r#"{"num": 18446744073709551615}"#, ServerError::PARAMETERS, "18446744073709551615"),
        (r#"{"len": 1048577}"#, ServerError::BLOCK, "1048577; 1 to 1048576"),
        (r#"{"udp": true, "len": 15}"#, ServerError::DATAGRAM, "15; 16 to 65507"),
        (r#"{"udp": true, "len": 65508}"#, ServerError::DATAGRAM, "65508"),
        (r#"{"window": 1e12}"#, ServerError::BUFFER, "window"),
        (r#"{"omit": 601}"#, ServerError::OMIT, "601"),
        (r#"{"TOS": 256}"#, ServerError::SERVICE, "256"),
        (r#"{"flowlabel": 1048576}"#, ServerError::FLOW_LABEL, "1048576"),
        (r#"{"MSS": 32768}"#, ServerError::SEGMENT, "32768"),
        (r#"{"sctp": true}"#, ServerError::NO_SCTP, "SCTP"),
        (r#"{"reverse": true, "bidirectional": true}"#, ServerError::DIRECTIONS, "both"),
        (r#"{"authtoken": "x"}"#, ServerError::AUTHORISATION, "knows no users"),
    ] {
        let refusal = read(text).expect_err(text);
        assert_eq!(refusal.code, code, "{text}: {refusal}");
        assert!(refusal.message.contains(named), "{text}: {refusal}");
    }
}

#[test]
fn texts_are_sanitized_and_bounded() {
    let title = format!("{}\u{1b}[2J", "x".repeat(5000));
    let object = json!({"title": title, "congestion": ""});
    let read = Parameters::read(&sent(object.as_object().unwrap())).unwrap();
    assert_eq!((read.title.unwrap().len(), read.congestion), (1000, None));
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let lengths = prop_oneof![
        (1..=86_400_u32).prop_map(Length::Seconds),
        (1..=u64::MAX >> 1).prop_map(Length::Bytes),
        (1..=u64::MAX >> 1).prop_map(Length::Blocks),
        Just(Length::Endless),
    ];
    let directions =
        prop::sample::select(vec![Direction::Forward, Direction::Reverse, Direction::Bidirectional]);
    let some = |most: u64| prop::option::of(1..=most);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let numbers =
        (some(u64::MAX >> 1), some(u64::MAX >> 1), some(512 << 20), some(32_767), some(255), some(0xf_ffff));
    let texts = (prop::option::of("[a-z]{1,9}"), prop::option::of("[a-zé \"]{0,30}"));
    (lengths, directions, flags, numbers, texts, 0..=600_u32, 1..=STREAMS_MAX, 16..=65_507_u32).prop_map(
        |(length, direction, flags, numbers, texts, omit_s, streams, block_bytes)| Parameters {
            protocol: if flags.0 { Protocol::Udp } else { Protocol::Tcp },
            direction,
            length,
            omit_s,
            streams,
            block_bytes,
            rate_bit_per_s: numbers.0,
            pacing_bit_per_s: numbers.1,
            window_bytes: numbers.2,
            congestion: texts.0,
            wide_counts: flags.1,
            nodelay: flags.2,
            segment_bytes: numbers.3.map(|n| n as u32),
            service: numbers.4.map(|n| n as u8),
            flow_label: numbers.5.map(|n| n as u32),
            dont_fragment: flags.3,
            title: texts.1.clone(),
            extra_data: texts.1.clone(),
            wants_output: flags.4,
            client_version: texts.1,
        },
    )
}

proptest! {
    #[test]
    fn written_messages_are_read_back(parameters in parameters()) {
        prop_assert_eq!(Parameters::read(&sent(&parameters.to_json())), Ok(parameters));
    }

    #[test]
    fn numbers_stay_within_their_bounds(
        key in prop::sample::select(vec![
            "omit", "time", "num", "blockcount", "MSS", "parallel", "window", "len", "bandwidth", "fqrate",
            "TOS", "flowlabel",
        ]),
        number in prop_oneof![
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            Just(Value::Null),
        ],
        udp in any::<bool>(),
    ) {
        let mut object = Map::new();
        object.insert("udp".to_owned(), udp.into());
        object.insert(key.to_owned(), number);
        match Parameters::read(&sent(&object)) {
            Ok(read) => prop_assert_eq!(Parameters::read(&sent(&read.to_json())), Ok(read)),
            Err(refusal) => prop_assert!(refusal.message.contains(key)),
        }
    }
}
