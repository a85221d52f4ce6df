//! The description of the API against the router, both ways.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Builder;
use crate::api::console::OPENAPI;

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let described: Value = serde_json::from_str(OPENAPI).unwrap();
    let paths = described["paths"].as_object().unwrap();
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone()))
        })
        .collect();
    let Builder { known, .. } = super::all();
    let known: BTreeSet<(String, String)> =
        known.into_iter().map(|(method, path)| (method.to_owned(), path)).collect();
    assert!(known.len() > 30, "{known:?}");
    assert_eq!(known, described);
}

#[test]
fn references_of_the_description_lead_somewhere() {
    fn check(value: &Value, whole: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(place) = map.get("$ref").and_then(Value::as_str) {
                    assert!(whole.pointer(place.trim_start_matches('#')).is_some(), "{place}");
                }
                map.values().for_each(|value| check(value, whole));
            }
            Value::Array(all) => all.iter().for_each(|value| check(value, whole)),
            _ => {}
        }
    }
    let whole: Value = serde_json::from_str(OPENAPI).unwrap();
    check(&whole, &whole);
}
