//! `s3://BUCKET/PREFIX`.

use std::fmt;

use object_store::path::Path;
use serde::{Deserialize, Serialize};

const SCHEME: &str = "s3://";

/// A prefix within a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub bucket: String,
    /// Without slashes at its ends; empty: the whole bucket.
    pub prefix: String,
}

impl Address {
    /// Whether a target is meant to be an object store.
    #[must_use]
    pub fn is_meant(target: &str) -> bool {
        target.starts_with(SCHEME)
    }

    /// # Errors
    /// What is wrong with it.
    pub fn parse(target: &str) -> Result<Self, String> {
        let rest =
            target.strip_prefix(SCHEME).ok_or_else(|| format!("'{target}' is no s3://BUCKET/PREFIX"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
        if bucket.len() < 3 || bucket.len() > 63 || !bucket.bytes().all(is_name) {
            return Err(format!(
                "'{bucket}' is no name of a bucket (3 to 63 of a-z, 0-9, '-' and '.'); write \
                 s3://BUCKET/PREFIX"
            ));
        }
        let prefix = prefix.trim_matches('/');
        if prefix.len() > 512 {
            return Err("the prefix has more than 512 bytes".to_owned());
        }
        let parsed = Path::parse(prefix).map_err(|error| format!("'{prefix}' is no prefix: {error}"))?;
        Ok(Self { bucket: bucket.to_owned(), prefix: parsed.to_string() })
    }

    /// A prefix below this one.
    #[must_use]
    pub fn below(&self, name: &str) -> Self {
        let prefix = if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) };
        Self { bucket: self.bucket.clone(), prefix }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_bucket_and_prefix() {
        let address = Address::parse("s3://bucket/a/b/").unwrap();
        assert_eq!((address.bucket.as_str(), address.prefix.as_str()), ("bucket", "a/b"));
        assert_eq!(address.below("c").to_string(), "s3://bucket/a/b/c");
        assert_eq!(Address::parse("s3://bucket").unwrap().below("c").to_string(), "s3://bucket/c");
        for wrong in ["s3://", "s3://Bucket/x", "s3://b/x", "/mnt", "s3://bucket/a//b", "s3://bucket/../x"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
