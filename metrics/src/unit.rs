//! In which unit can the values of a metric be compared?
//!
//! Nsight Compute prints the same metric in bytes here and in megabytes there, as it finds them readable.

/// A unit's base unit, and by what a value is multiplied to be in it: `Mbyte/s` is 10^6 `byte/second`.
#[must_use]
pub fn base(unit: &str) -> (f64, String) {
    let mut factor = 1.0;
    let mut words = vec![];
    for (at, part) in unit.split('/').enumerate() {
        let (of_part, word) = simple(part.trim());
        factor = if at == 0 { factor * of_part } else { factor / of_part };
        words.push(word);
    }
    (factor, words.join("/"))
}

/// A unit without a fraction bar.
fn simple(unit: &str) -> (f64, String) {
    let seconds = match unit {
        "s" | "second" => 1.0,
        "ms" | "msecond" => 1e-3,
        "us" | "usecond" => 1e-6,
        "ns" | "nsecond" => 1e-9,
        _ => 0.0,
    };
    if seconds > 0.0 {
        return (seconds, "second".to_owned());
    }
    let prefixes = [("Ki", 1024.0), ("Mi", 1_048_576.0), ("Gi", 1_073_741_824.0)];
    let prefixes = prefixes.into_iter().chain([("K", 1e3), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)]);
    for (prefix, factor) in prefixes {
        if let Some(word) = unit.strip_prefix(prefix).map(singular).filter(|word| scaled(word)) {
            return (factor, word);
        }
    }
    (1.0, singular(unit))
}

fn singular(word: &str) -> String {
    let word = word.to_lowercase();
    let cut = word.strip_suffix("ches").map(|stem| format!("{stem}ch"));
    cut.or_else(|| word.strip_suffix('s').filter(|stem| scaled(stem)).map(str::to_owned)).unwrap_or(word)
}

/// What is counted by thousands.
fn scaled(word: &str) -> bool {
    ["byte", "hz", "inst", "cycle", "sector", "warp", "thread", "request", "block", "op", "branch"].contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_quantity_in_two_units_is_the_same_number() {
        let in_base = |value: f64, unit: &str| (value * base(unit).0, base(unit).1);
        assert_eq!(in_base(2.0, "Mbyte"), in_base(2000.0, "Kbyte"));
        assert_eq!(in_base(3.0, "Gbyte/s"), in_base(3e9, "byte/second"));
        assert_eq!(base("usecond"), (1e-6, "second".to_owned()));
        assert_eq!(in_base(1.5, "Ghz"), in_base(1500.0, "Mhz"));
        let (one, other) = (in_base(2.0, "cycle/nsecond"), in_base(2000.0, "cycle/usecond"));
        assert!((one.0 / other.0 - 1.0).abs() < 1e-12 && one.1 == other.1);
    }

    #[test]
    fn what_has_no_prefix_keeps_its_unit() {
        for unit in ["%", "", "register/thread", "inst/cycle", "SM"] {
            assert_eq!(base(unit), (1.0, unit.to_lowercase()), "{unit}");
        }
        assert_eq!(base("sectors"), base("sector"));
    }
}
