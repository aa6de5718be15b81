//! Which kernels run after one another, and could be one?
//!
//! Both must go through their data row by row or number by number, on one stream with nothing between; and what the first
//! puts out must be of the shape of something that the second takes. What is saved at most is that array, written and read.

use super::{
    known::{Standing, plain},
    launches::{Launch, Tensor},
};
use crate::operator::{self, Operator};
use metrics::gpu::Gpu;
use serde::Serialize;
use std::collections::BTreeMap;

/// Two kernels in sequence.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The first.
    pub first: String,
    /// The second.
    pub second: String,
    /// How often in a step.
    pub calls: f64,
    /// Both together, in microseconds a step.
    pub us: f64,
    /// The part of the step's kernels that they take.
    pub share: f64,
    /// The bytes that one kernel would not write and not read, a call; none where the shapes are not known.
    pub handed_over: Option<f64>,
    /// The time that this takes at least, in microseconds a step.
    pub saves_us: Option<f64>,
    /// The chain that can be taken out for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// A kernel, as pairs see it: what ran, how it is called in the table, and what is known of it.
pub type Seen<'a> = (&'a Launch, String, &'a Standing);

/// The pairs of a stage, those with the greatest share first.
#[must_use]
pub fn pairs(seen: &[Seen<'_>], steps: f64, total_us: f64, gpu: Option<&Gpu>) -> Vec<Pair> {
    let mut streams: BTreeMap<&str, Vec<&Seen<'_>>> = BTreeMap::new();
    for one in seen {
        streams.entry(&one.0.stream).or_default().push(one);
    }
    let mut found: BTreeMap<(&str, &str), Met> = BTreeMap::new();
    for (first, second) in streams.values().flat_map(|stream| stream.iter().zip(stream.iter().skip(1))) {
        let shared = shared(first.0, second.0);
        // Without shapes the order alone speaks; with them it must be confirmed.
        let without = first.0.operators.is_empty() || second.0.operators.is_empty();
        if goes_by_rows(first.2) && goes_by_rows(second.2) && (without || shared.is_some()) {
            let met = found.entry((&first.1, &second.1)).or_default();
            met.us += first.0.us + second.0.us;
            met.bytes.extend(shared);
            met.calls += 1;
        }
    }
    let mut pairs: Vec<Pair> = found
        .into_iter()
        .map(|((first, second), met)| {
            let bytes: Option<f64> = (met.bytes.len() == met.calls).then(|| met.bytes.iter().sum());
            let moved = |bytes: f64| Some(bytes / steps / (gpu?.bandwidth_gb_s.0 * 1e9) * 1e6);
            Pair {
                first: first.to_owned(),
                second: second.to_owned(),
                calls: met.calls as f64 / steps,
                us: met.us / steps,
                share: met.us / total_us,
                handed_over: bytes.map(|bytes| bytes / met.calls as f64),
                saves_us: bytes.and_then(moved),
                chain: chain(first, second),
            }
        })
        .collect();
    pairs.sort_by(|a, b| b.share.total_cmp(&a.share));
    pairs
}

/// The chain of these two.
fn chain(first: &str, second: &str) -> Option<String> {
    let is_it = |one: &Operator| one.parts.iter().map(String::as_str).eq([plain(first), plain(second)]);
    operator::all().into_iter().find(is_it).map(|one| one.name)
}

/// What is known of two kernels each time that one followed the other.
#[derive(Default)]
struct Met {
    calls: usize,
    us: f64,
    bytes: Vec<f64>,
}

fn goes_by_rows(standing: &Standing) -> bool {
    matches!(standing.kind.as_deref(), None | Some("torch" | "triton"))
}

/// The bytes of the largest array that both have, written and read.
fn shared(first: &Launch, second: &Launch) -> Option<f64> {
    let of = |launch: &Launch| launch.operators.first().map(|call| call.tensors.clone()).unwrap_or_default();
    let (first, second) = (of(first), of(second));
    let both = first.iter().filter(|one| one.shape.len() > 1 && second.contains(one));
    both.filter_map(Tensor::bytes).max_by(f64::total_cmp).map(|bytes| 2.0 * bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_a_chain_of_ours_is_called_so_in_its_order_alone() {
        assert_eq!(chain("qknorm", "x::rope").as_deref(), Some("qknorm_rope"));
        assert_eq!(chain("rope", "qknorm"), None);
    }
}
