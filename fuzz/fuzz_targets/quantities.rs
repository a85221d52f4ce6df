//! Quantities with units, requirements and ceilings, as people write them.
#![no_main]

use base::metric::Metrics;
use base::objective::Objective;
use base::units::{BitRate, ByteSize, Span};
use libfuzzer_sys::fuzz_target;
use run::explain::ceiling;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(rate) = text.parse::<BitRate>() {
        let again: BitRate = rate.to_string().parse().expect("what is printed is read");
        let (rate, again) = (rate.bit_per_s() as f64, again.bit_per_s() as f64);
        assert!((rate - again).abs() <= rate * 5.1e-4, "{text}");
    }
    if let Ok(size) = text.parse::<ByteSize>() {
        let _: ByteSize = size.to_string().parse().expect("what is printed is read");
    }
    if let Ok(span) = text.parse::<Span>() {
        let _: Span = span.to_string().parse().expect("what is printed is read");
        assert!(span.s() >= 0.0);
    }
    if let Ok((_, ceiling)) = ceiling::parse(&text) {
        assert!(ceiling.value > 0.0 && ceiling.value.is_finite());
    }
    if let Ok(objective) = text.parse::<Objective>() {
        assert!(objective.to_string().parse::<Objective>().is_ok());
        let metrics: Metrics = [
            ("stalls", Some(0.0)),
            ("slack_min_s", Some(0.75)),
            ("response_p99_ms", None),
            ("share_ratio", Some(1.0)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let _ = objective.check(&metrics, None);
        let _ = objective.check_names(metrics.keys().map(String::as_str));
    }
});
