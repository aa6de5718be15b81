//! A task's `[tuning]` in records: `{"TILE": [64, 128]}`, and beside the values the constraints where there are any.

use super::space::{Parameter, Space};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// As it stands in a record: the short form is that of the first records.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Recorded {
    Values(BTreeMap<String, Vec<Parameter>>),
    Space { parameters: BTreeMap<String, Vec<Parameter>>, constraints: Vec<String> },
}

/// Writes a space, in the short form where it has no constraint.
pub(super) fn serialize<S: Serializer>(space: &Space, to: S) -> Result<S::Ok, S::Error> {
    let Space { grid, constraints } = space.clone();
    let recorded =
        if constraints.is_empty() { Recorded::Values(grid) } else { Recorded::Space { parameters: grid, constraints } };
    recorded.serialize(to)
}

/// Reads either form.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Space, D::Error> {
    Ok(match Recorded::deserialize(from)? {
        Recorded::Values(grid) => Space { grid, constraints: vec![] },
        Recorded::Space { parameters: grid, constraints } => Space { grid, constraints },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Held(#[serde(with = "super")] Space);

    #[test]
    fn a_space_comes_back_as_it_was_in_both_forms() {
        let of = |text: &str| serde_json::from_str::<Held>(text).unwrap();
        for text in [
            "{}",
            r#"{"TILE":[64,128]}"#,
            r#"{"parameters":{"TILE":[64,128],"WAY":["a",true]},"constraints":["TILE > 64"]}"#,
        ] {
            assert_eq!(serde_json::to_string(&of(text)).unwrap(), text);
        }
        assert_eq!(of(r#"{"TILE":[64,128]}"#).0.points(), 2);
        assert_eq!(of(r#"{"parameters":{"TILE":[64]},"constraints":["TILE > 64"]}"#).0.constraints, ["TILE > 64"]);
    }
}
