//! How is a number written, so that its unit and its precision can be read off it?

use crate::{Claim, Reading, Speedup};

/// A span of nanoseconds as a kernel's time: `812 ns`, `12.3 µs`, `4.56 ms`; a dash where it is not a number.
#[must_use]
pub fn time(ns: f64) -> String {
    if !ns.is_finite() {
        return "–".into();
    }
    let (value, unit) = match ns.abs() {
        ns if ns < 1e3 => (ns, "ns"),
        us if us < 1e6 => (ns / 1e3, "µs"),
        ms if ms < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A span of milliseconds as a person waits for it: `340 ms`, `12.3 s`, `4 min 05 s`, `2 h 03 min`.
#[must_use]
pub fn wait(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        60_000..3_600_000 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A speedup's ratio alone: `1.85×`.
#[must_use]
pub fn ratio(speedup: &Speedup) -> String {
    format!("{:.1$}×", speedup.ratio, decimals(speedup))
}

/// A speedup's interval alone: `1.80 to 1.90`.
#[must_use]
pub fn interval(speedup: &Speedup) -> String {
    let digits = decimals(speedup);
    format!("{:.digits$} to {:.digits$}", speedup.interval.low, speedup.interval.high)
}

/// A speedup with its interval: `1.85× [1.80, 1.90]`.
#[must_use]
pub fn speedup(speedup: &Speedup) -> String {
    let digits = decimals(speedup);
    format!("{} [{:.digits$}, {:.digits$}]", ratio(speedup), speedup.interval.low, speedup.interval.high)
}

/// What a speedup allows one to say, in a word or two.
#[must_use]
pub fn claim(speedup: &Speedup) -> &'static str {
    match speedup.claim() {
        Claim::Faster => "faster",
        Claim::Slower => "slower",
        Claim::NoDifference => "no difference",
    }
}

/// A whole number with its thousands apart: `12,345`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut written = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            written.push(',');
        }
        written.push(digit);
    }
    written
}

/// Dollars: `$0.0123` below one, `$12.34` above.
#[must_use]
pub fn usd(dollars: f64) -> String {
    if dollars < 1.0 { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

/// A profiler's reading with its unit, or that it is not available.
#[must_use]
pub fn reading(reading: &Reading) -> String {
    let Some(value) = reading.value.filter(|value| value.is_finite()) else { return "not available".into() };
    if reading.unit == "ns" {
        return time(value);
    }
    let whole = value.fract() == 0.0 && (0.0..1e15).contains(&value);
    let number = if whole { count(value as u64) } else { four_digits(value) };
    format!("{number} {}", reading.unit).trim_end().to_owned()
}

/// A ratio without an interval: `1.85x`, `0.0072x`.
#[must_use]
pub fn times(ratio: f64) -> String {
    format!("{ratio:.0$}x", digits(ratio))
}

/// A bound within a hundredth of 1 is written so that one can see on which side it lies.
fn decimals(speedup: &Speedup) -> usize {
    let near = |bound: f64| (bound - 1.0).abs() < 0.01;
    if near(speedup.interval.low) || near(speedup.interval.high) { 3 } else { digits(speedup.ratio) }
}

/// Two digits behind the point, or what shows two digits of a ratio below a tenth.
pub(crate) fn digits(ratio: f64) -> usize {
    if ratio > 0.0 && ratio < 0.1 { 1 + (-ratio.log10()).ceil().min(6.0) as usize } else { 2 }
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        medium if medium < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn four_digits(value: f64) -> String {
    match value.abs() {
        tiny if tiny < 0.01 => format!("{value:.2e}"),
        small if small < 100.0 => format!("{value:.2}"),
        medium if medium < 1e4 => format!("{value:.1}"),
        large if large < 1e15 => count(large.round() as u64),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;

    #[test]
    fn times_take_the_unit_of_their_size() {
        assert_eq!([12.0, 12_345.0, 4_560_000.0, 2.5e9].map(time), ["12.0 ns", "12.3 µs", "4.56 ms", "2.50 s"]);
        assert_eq!(time(f64::NAN), "–");
    }

    #[test]
    fn waits_take_the_unit_of_their_size() {
        assert_eq!([340, 12_300, 245_000, 7_380_000].map(wait), ["340 ms", "12.3 s", "4 min 05 s", "2 h 03 min"]);
    }

    #[test]
    fn a_bound_close_to_one_shows_its_side() {
        let close = Speedup { ratio: 1.05, interval: Interval { low: 1.001, high: 1.1 } };
        assert_eq!(speedup(&close), "1.050× [1.001, 1.100]");
    }

    #[test]
    fn a_ratio_far_below_one_keeps_two_digits() {
        assert_eq!([1.853, 0.1234, 0.0724, 0.00716, 0.0].map(times), ["1.85x", "0.12x", "0.072x", "0.0072x", "0.00x"]);
        let slow = Speedup { ratio: 0.00716, interval: Interval { low: 0.0071, high: 0.0073 } };
        assert_eq!(speedup(&slow), "0.0072× [0.0071, 0.0073]");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
