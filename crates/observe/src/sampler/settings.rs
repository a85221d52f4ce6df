//! What the sampler is told.

use base::part::{PartError, Watch};
use serde_json::Value;

/// Reads the settings of the part: a [`Watch`].
///
/// # Errors
/// A key that there is not, or a value of a wrong kind; both are the plan's fault.
pub fn read(settings: &Value) -> Result<Watch, PartError> {
    let known = serde_json::to_value(Watch::default()).map_err(PartError::new)?;
    let is_known = |key: &str| known.get(key).is_some();
    if let Some(key) = settings.as_object().and_then(|map| map.keys().find(|key| !is_known(key))) {
        return Err(PartError::usage(format!("the sampler has no setting '{key}'; leave it out")));
    }
    serde_json::from_value(settings.clone())
        .map_err(|error| PartError::usage(format!("the sampler's settings cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_watch_is_settings() {
        let watch = Watch { pids: vec![7], block_device: Some("8:0".into()), ..Watch::default() };
        assert_eq!(read(&serde_json::to_value(&watch).unwrap()).unwrap(), watch);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = read(&json!({"watch_peer": "server"})).unwrap_err();
        assert!(error.usage && error.message.contains("'watch_peer'"), "{error}");
        assert!(read(&json!({"pids": "four"})).unwrap_err().usage);
    }
}
