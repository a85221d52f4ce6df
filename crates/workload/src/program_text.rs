//! What a program that a part has started wrote.

use serde::de::DeserializeOwned;

/// Bytes of a text that an error repeats.
const END_BYTES_MAX: usize = 400;

/// The JSON document among the lines.
pub fn document<R: DeserializeOwned>(text: &str) -> Option<R> {
    let begin = if text.starts_with("{\n") { 0 } else { text.find("\n{\n")? };
    let mut documents = serde_json::Deserializer::from_str(&text[begin..]).into_iter();
    documents.next()?.ok()
}

/// The message of an error among the lines.
pub fn error(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("error: "))
}

/// Its end.
pub fn end(text: &str) -> &str {
    let start = text.char_indices().rev().nth(END_BYTES_MAX).map_or(0, |(at, _)| at);
    text[start..].trim()
}
