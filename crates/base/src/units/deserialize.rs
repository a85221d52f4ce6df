//! Reads a quantity from a file: a text with its unit.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de;

use super::{Dimension, UnitError};

/// The error for a bare number shows how to write it with a unit.
pub(super) struct QuantityVisitor<T>(&'static Dimension, PhantomData<T>);

impl<T> QuantityVisitor<T> {
    pub(super) fn new(dimension: &'static Dimension) -> Self {
        Self(dimension, PhantomData)
    }

    fn bare<E: de::Error>(&self, number: impl fmt::Display) -> E {
        let examples: Vec<String> = self.0.usual.iter().map(|unit| format!("\"{number}{unit}\"")).collect();
        E::custom(format!(
            "{number} is not {}: the unit is missing; write for example {}, in quotes",
            self.0.what,
            examples.join(" or ")
        ))
    }
}

impl<T: FromStr<Err = UnitError>> de::Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as text, such as {}", self.0.what, self.0.example)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        Err(self.bare(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        Err(self.bare(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        Err(self.bare(number))
    }
}
