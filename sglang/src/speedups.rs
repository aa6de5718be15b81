//! The speedups of a validation, with their intervals, from the samples that its scripts took side by side.
//!
//! The scripts run in SGLang's Python and know no statistics; an interval of 95 % is what `metrics` says it is.

use metrics::{Speedup, Statistic, Timing, quantity};
use serde_json::{Map, Value, json};

/// What stands for the samples of one way of serving an operator.
pub(crate) const STATISTIC: Statistic = Statistic::Median;
/// The way that the others are set beside.
const ORIGINAL: &str = "original";
/// The kernel, and the control: the original's text by the kernel's way.
const WAYS: [&str; 2] = ["optimized", "unchanged"];

/// Samples in microseconds, as scripts give them.
pub(crate) fn timing(microseconds: impl IntoIterator<Item = f64>) -> Timing {
    Timing::of(microseconds.into_iter().map(|us| us * 1e3))
}

/// Writes into a validation's result what its samples come to: `speedup` for each shape and layer, and under `means` the
/// geometric means over each group of shapes. What has no samples stays as it is. Returns the same as lines for people.
pub fn reckon(result: &mut Value) -> Vec<String> {
    let mut lines = vec![];
    for list in ["times", "layers"] {
        for entry in result[list].as_array_mut().into_iter().flatten() {
            if let Some(speedup) = over(&[entry], WAYS[0]) {
                lines.push(format!("speedup    {}: {}", named(entry), quantity::speedup(&speedup)));
                entry["speedup"] = written(&speedup);
            }
        }
    }
    let (means, said): (Vec<Value>, Vec<String>) = groups(&result["times"]).iter().filter_map(|one| mean(one)).unzip();
    if !means.is_empty() {
        result["means"] = means.into();
    }
    lines.extend(said);
    lines
}

/// How many times as fast as the original this way is: over several shapes, the geometric mean.
fn over(entries: &[&Value], way: &str) -> Option<Speedup> {
    let of =
        |entry: &Value, way: &str| Some(timing(entry["samples_us"][way].as_array()?.iter().filter_map(Value::as_f64)));
    let pairs: Option<Vec<(Timing, Timing)>> =
        entries.iter().map(|entry| Some((of(entry, ORIGINAL)?, of(entry, way)?))).collect();
    let pairs = pairs?;
    let pairs: Vec<(&Timing, &Timing)> = pairs.iter().map(|(original, other)| (original, other)).collect();
    Speedup::over(&pairs, STATISTIC)
}

fn written(speedup: &Speedup) -> Value {
    json!({ "ratio": speedup.ratio, "low": speedup.interval.low, "high": speedup.interval.high })
}

/// What was timed for one operator and type, in one group of shapes, through one function.
const GROUP: [&str; 4] = ["operator", "dtype", "group", "through"];

/// The entries with samples, by group, in their order.
fn groups(times: &Value) -> Vec<Vec<&Value>> {
    let sampled = times.as_array().into_iter().flatten().filter(|entry| entry["samples_us"].is_object());
    sampled.fold(vec![], |mut groups: Vec<Vec<&Value>>, entry| {
        let same = |group: &&mut Vec<&Value>| GROUP.iter().all(|key| group[0][*key] == entry[*key]);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(entry),
            None => groups.push(vec![entry]),
        }
        groups
    })
}

fn mean(group: &[&Value]) -> Option<(Value, String)> {
    let mut whole: Map<String, Value> = GROUP.iter().map(|key| ((*key).to_owned(), group[0][*key].clone())).collect();
    whole.insert("shapes".into(), group.len().into());
    let kernel = over(group, WAYS[0])?;
    whole.insert(WAYS[0].into(), written(&kernel));
    let control = over(group, WAYS[1]);
    if let Some(control) = &control {
        whole.insert(WAYS[1].into(), written(control));
    }
    let line = format!(
        "mean       {} {}: {} over {} shapes{}",
        operator(group[0]),
        words(&group[0]["group"]),
        quantity::speedup(&kernel),
        group.len(),
        control.map(|control| format!(", unchanged {}", quantity::speedup(&control))).unwrap_or_default()
    );
    Some((whole.into(), line))
}

/// The operator and its type, and where another library's function is called, that.
fn operator(entry: &Value) -> String {
    let through = entry["through"].as_str().filter(|through| !through.is_empty());
    let by = through.map(|through| format!(" by {through}")).unwrap_or_default();
    format!("{} {}{by}", words(&entry["operator"]), words(&entry["dtype"]))
}

/// What an entry is of: a shape, or a layer and its tokens.
fn named(entry: &Value) -> String {
    if let Some(layer) = entry["layer"].as_str() {
        return format!("layer {layer} {}, {} tokens", words(&entry["dtype"]), words(&entry["tokens"]));
    }
    let sizes = entry["shape"].as_object().into_iter().flatten();
    let sizes: Vec<_> = sizes.map(|(name, size)| format!("{name} {}", words(size))).collect();
    format!("{}, {}", operator(entry), sizes.join(", "))
}

/// A text or number of the scripts', as a terminal may show it.
fn words(value: &Value) -> String {
    kernelbench::plain(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(group: &str, tokens: u32, samples: &Value) -> Value {
        json!({
            "operator": "silu_and_mul", "dtype": "bf16", "group": group, "through": "",
            "shape": {"tokens": tokens}, "samples_us": samples,
        })
    }

    #[test]
    fn shapes_and_layers_get_their_speedups_and_groups_of_shapes_their_geometric_means() {
        let slow = vec![4.0; 5];
        let mut result = json!({
            "times": [
                entry("loop", 4, &json!({"original": slow, "unchanged": slow, "optimized": vec![1.0; 5]})),
                entry("loop", 8, &json!({"original": slow, "unchanged": slow, "optimized": vec![2.0; 5]})),
                entry("validation", 5, &json!({"original": slow, "optimized": vec![1.0; 5]})),
            ],
            "layers": [{"operator": "silu_and_mul", "dtype": "bf16", "layer": "SiluAndMul", "tokens": 64,
                        "samples_us": {"original": slow, "optimized": vec![8.0; 5]}}],
        });
        let lines = reckon(&mut result);
        let ratio = |value: &Value| (value["ratio"].as_f64().unwrap_or_default() * 1e6).round() / 1e6;
        let of = |list: &str| -> Vec<f64> {
            result[list].as_array().unwrap().iter().map(|entry| ratio(&entry["speedup"])).collect()
        };
        assert_eq!((of("times"), of("layers")), (vec![4.0, 2.0, 4.0], vec![0.5]));
        assert_eq!(result["times"][0]["speedup"]["low"], result["times"][0]["speedup"]["high"]);
        let means = &result["means"];
        assert_eq!((means[0]["group"].as_str(), means[0]["shapes"].as_u64()), (Some("loop"), Some(2)));
        assert_eq!((ratio(&means[0]["optimized"]), ratio(&means[0]["unchanged"])), (2.828_427, 1.0));
        assert_eq!((ratio(&means[1]["optimized"]), means[1].get("unchanged")), (4.0, None));
        assert!(lines[3].starts_with("speedup    layer SiluAndMul bf16, 64 tokens: 0.50"), "{lines:?}");
        assert!(lines[4].starts_with("mean       silu_and_mul bf16 loop: 2.8"), "{lines:?}");
    }

    #[test]
    fn a_result_that_was_written_with_its_speedups_and_without_samples_stays_as_it_is() {
        let mut old = json!({"times": [{"operator": "rope", "speedup": {"ratio": 1.5, "low": 1.4, "high": 1.6}}],
                             "means": [{"optimized": {"ratio": 1.5}}], "layers": []});
        let before = old.clone();
        assert_eq!(reckon(&mut old), Vec::<String>::new());
        assert_eq!(old, before);
    }

    #[test]
    fn what_was_never_timed_has_no_speedup() {
        let mut result = json!({"times": [entry("loop", 4, &json!({"original": [], "optimized": []}))]});
        assert_eq!(reckon(&mut result), Vec::<String>::new());
        assert!(result["times"][0].get("speedup").is_none() && result.get("means").is_none(), "{result}");
    }
}
