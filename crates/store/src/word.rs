//! Enums as the words, and structures as the JSON, that stand in the tables.

use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde_json::Value;

use crate::StoreError;

/// The word of a field-less enum in JSON.
pub(crate) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        // Not reached for field-less enums; the reader would refuse it.
        other => format!("{other:?}"),
    }
}

/// The enum of a word; the error names the words that there are.
pub(crate) fn from_word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let deserializer: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    T::deserialize(deserializer).map_err(|error| error.to_string())
}

/// JSON text that is known to read back. JSON has no infinity: a number that is not finite becomes `null`,
/// which would make a run unreadable long after the mistake; so it is found here, while its maker can be
/// named.
pub(crate) fn json<T: Serialize + DeserializeOwned>(what: &str, value: &T) -> Result<String, StoreError> {
    let refuse = |error: serde_json::Error| StoreError::NotStorable {
        what: what.to_owned(),
        problem: format!("it does not read back from JSON ({error}); is every number finite?"),
    };
    let text = serde_json::to_string(value).map_err(refuse)?;
    serde_json::from_str::<T>(&text).map_err(refuse)?;
    Ok(text)
}

/// A number that must be finite.
pub(crate) fn finite(what: &str, value: f64) -> Result<f64, StoreError> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(StoreError::NotStorable { what: what.to_owned(), problem: format!("{value} is not a finite number") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::outcome::{Phase, State};

    #[test]
    fn enum_words_round_trip_and_unknown_ones_list_known() {
        assert_eq!(word(&Phase::RampDown), "ramp-down");
        assert_eq!(from_word::<Phase>("ramp-down"), Ok(Phase::RampDown));
        assert!(from_word::<State>("gone").unwrap_err().contains("running"));
    }

    #[test]
    fn values_that_do_not_read_back_are_rejected() {
        assert!(json("x", &1.5).is_ok());
        let message = json("trial 3", &f64::NAN).unwrap_err().to_string();
        assert!(message.starts_with("trial 3 cannot be stored"), "{message}");
    }
}
