//! What every JSON document of the program begins with.

use serde::Serialize;

/// A document: the number of its schema and the version that wrote it, then what it tells.
#[derive(Serialize)]
pub struct Document<'a, T> {
    /// Fields are added, never renamed, within this number.
    schema: u32,
    /// The version of kagiri.
    kagiri: &'static str,
    #[serde(flatten)]
    told: &'a T,
}

impl<'a, T: Serialize> Document<'a, T> {
    /// A document that tells this.
    pub fn of(told: &'a T) -> Self {
        Self { schema: base::outcome::SCHEMA, kagiri: env!("CARGO_PKG_VERSION"), told }
    }

    /// As it is printed.
    ///
    /// # Errors
    /// What it tells has no form in JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_document_says_who_wrote_it_before_anything_else() {
        let text = Document::of(&json!({"capacity": {"value": 5.0}, "limit": null})).text().unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        let keys: Vec<_> = read.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["schema", "kagiri", "capacity", "limit"]);
        assert_eq!(read["schema"], base::outcome::SCHEMA);
        assert_eq!(read["kagiri"], env!("CARGO_PKG_VERSION"));
        assert!(text.ends_with("}\n"));
    }
}
