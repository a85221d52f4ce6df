//! What a struct of settings has to be.

use base::plan::PlanError;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub trait Settings:
    Serialize + DeserializeOwned + JsonSchema + Default + Clone + PartialEq + Send + Sync + 'static
{
    /// Checks what concerns several settings; ranges of single settings are checked from the schema.
    ///
    /// # Errors
    /// Settings that do not fit together, with the key named. A further key in the message stands in
    /// backticks.
    fn check(&self) -> Result<(), PlanError> {
        Ok(())
    }

    /// What to do about a key that is not one of these settings, where more can be said than that it is
    /// unknown.
    fn advice(_unknown_key: &str) -> Option<&'static str> {
        None
    }
}

pub(super) fn generate_schema<S: Settings>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<S>().to_value()
}
