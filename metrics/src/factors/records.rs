//! The records of hardware that come with the program: `metrics/hardware.toml`, and the table of GPUs.

use super::{Factor, Factors, Rank};
use crate::gpu::Gpu;
use serde::Deserialize;
use std::{collections::BTreeMap, sync::LazyLock};

const TABLE: &str = include_str!("../../hardware.toml");

/// A value and the key of its source.
type Figure = (String, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    sources: BTreeMap<String, String>,
    hardware: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    names: Vec<String>,
    #[serde(default)]
    gpu: bool,
    #[serde(flatten)]
    factors: BTreeMap<String, Figure>,
}

static TABLE_READ: LazyLock<Table> = LazyLock::new(|| {
    toml::from_str(TABLE).expect("the table that comes with the program is well-formed: a test reads it")
});

/// The names of the records.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE_READ.hardware.iter().filter_map(|record| record.names.first()).map(String::as_str)
}

/// Whether a name is that of a record, and of a GPU.
#[must_use]
pub fn is_gpu(name: &str) -> bool {
    record(name).is_some_and(|record| record.gpu) || Gpu::named(name).is_some()
}

/// What the records say of a hardware; none where there is none of this name.
#[must_use]
pub fn named(name: &str) -> Option<Vec<Factor>> {
    let own = record(name).map(|record| {
        let factor = |(name, (value, source)): (&String, &Figure)| Factor {
            name: name.clone(),
            value: value.clone(),
            source: TABLE_READ.sources.get(source).unwrap_or(source).clone(),
            rank: Rank::Record,
            quote: None,
        };
        record.factors.iter().map(factor).collect::<Vec<_>>()
    });
    let gpu = Gpu::named(name).map(Factors::of_gpu);
    match (own, gpu) {
        (None, None) => None,
        (own, gpu) => Some(own.into_iter().chain(gpu).flatten().collect()),
    }
}

fn record(name: &str) -> Option<&'static Record> {
    // A driver says `NVIDIA H200`.
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "").trim_start_matches("nvidia").to_owned();
    TABLE_READ.hardware.iter().find(|record| record.names.iter().any(|known| plain(known) == plain(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factors::NAMES;

    #[test]
    fn the_papers_eight_chips_the_h200_and_an_epyc_are_there_each_figure_with_a_source() {
        let expected = ["C906", "C908", "C910", "K1", "A72", "A76", "EPYC", "RTX 4060", "A100", "H200"];
        assert_eq!(names().collect::<Vec<_>>(), expected);
        for record in &TABLE_READ.hardware {
            for (name, (value, source)) in &record.factors {
                assert!(NAMES.iter().any(|(_, known, _)| known == name), "{name}");
                assert!(!value.is_empty() && TABLE_READ.sources.contains_key(source), "{name}: {source}");
            }
        }
    }

    #[test]
    fn a_c910_has_its_caches_and_its_vector_extension() {
        let c910 = Factors::merged("C910", named("c910").unwrap());
        let values = ["l1d", "l2", "vector"].map(|name| c910.value(name).unwrap());
        assert_eq!(values, ["64 KiB", "1 MiB, shared by a cluster", "RVV 0.7.1"]);
        assert!(named("C911").is_none() && is_gpu("H200") && !is_gpu("C910"));
        assert_eq!(Factors::merged("H200", named("h200").unwrap()).value("sms"), Some("132"));
    }
}
