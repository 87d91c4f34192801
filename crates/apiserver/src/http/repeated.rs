//! Fields that a JSON object gives twice. Only the last one counts, so a client may want to hear of it
//! (`fieldValidation`).

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The paths of the fields that are there more than once, as `spec.containers[0].image`. Nothing for what is no JSON.
pub(super) fn fields(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let walk = Walk { path: String::new(), found: &mut found };
    if walk.deserialize(&mut reader).is_err() {
        found.clear();
    }
    found
}

struct Walk<'f> {
    path: String,
    found: &'f mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if !seen.insert(key) && !self.found.contains(&path) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Walk { path, found: &mut *self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0;
        while list
            .next_element_seed(Walk { path: format!("{}[{index}]", self.path), found: &mut *self.found })?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::fields;

    #[test]
    fn fields_given_twice_are_found_wherever_they_are() {
        for (json, expected) in [
            (r#"{"a": 1, "b": {"a": 2}}"#, vec![]),
            (r#"{"a": 1, "a": 2, "a": 3}"#, vec!["a"]),
            (r#"{"s": {"l": [{"x": 1}, {"x": null, "y": [true], "x": 1.5}]}}"#, vec!["s.l[1].x"]),
            (r#"{"a": {"b": "x"}, "a": {"c": -1, "c": 2}}"#, vec!["a", "a.c"]),
            (r#"{"a": 1, "a""#, vec![]),
        ] {
            assert_eq!(fields(json.as_bytes()), expected, "{json}");
        }
    }
}
