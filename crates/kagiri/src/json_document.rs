//! The common head of the program's JSON documents.

use serde::Serialize;

/// Schema number, version of kagiri, then the content.
#[derive(Serialize)]
pub struct Document<'a, T> {
    /// Within one schema, fields are added and never renamed.
    schema: u32,

    kagiri: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl<'a, T: Serialize> Document<'a, T> {
    pub fn new(content: &'a T) -> Self {
        Self { schema: base::outcome::SCHEMA, kagiri: env!("CARGO_PKG_VERSION"), content }
    }

    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| store::printable_json(text) + "\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn document_begins_with_schema_and_version() {
        let text = Document::new(&json!({"capacity": {"value": 5.0}, "limit": null})).text().unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        let keys: Vec<_> = read.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["schema", "kagiri", "capacity", "limit"]);
        assert_eq!(read["schema"], base::outcome::SCHEMA);
        assert_eq!(read["kagiri"], env!("CARGO_PKG_VERSION"));
        assert!(text.ends_with("}\n"));
    }
}
