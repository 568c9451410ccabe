//! How fast a job may move its bytes, and its streams are fed.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::{Deserialize, Deserializer};

use crate::protocol::json;

/// Bytes per second. None sets no limit.
pub type Rate = Option<NonZeroU64>;

/// The limits of a job that are others than at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewLimits {
    /// The rate of the job. None leaves the first rate.
    #[serde(default, deserialize_with = "told")]
    pub rate: Option<Rate>,
    /// The rates of the byte streams, by their `id`.
    #[serde(default)]
    pub inputs: BTreeMap<String, Rate>,
}

/// Null is a value.
fn told<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rate>, D::Error> {
    Rate::deserialize(deserializer).map(Some)
}

impl NewLimits {
    /// # Errors
    /// A message that names the field and what is wrong with it.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        json::read(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_limits() {
        let read = |text: &str| NewLimits::read(text.as_bytes());
        let found = read(r#"{"rate": 7, "inputs": {"a": null, "b": 8}}"#).unwrap();
        assert_eq!(found.rate, Some(NonZeroU64::new(7)));
        assert_eq!(found.inputs, [("a".into(), None), ("b".into(), NonZeroU64::new(8))].into());
        assert_eq!(read("{}").unwrap(), NewLimits::default());
        assert_eq!(read(r#"{"rate": null}"#).unwrap().rate, Some(None));
        for (wrong, word) in [
            (r#"{"rate": 0}"#, "rate: "),
            (r#"{"rate": "7"}"#, "rate: "),
            (r#"{"inputs": {"a": -1}}"#, "inputs.a: "),
            (r#"{"other": 1}"#, "other: unknown field"),
            (r#"{"rate": 7"#, "EOF"),
            ("", "EOF"),
        ] {
            let message = read(wrong).unwrap_err();
            assert!(message.starts_with(word), "{message}");
        }
    }
}
