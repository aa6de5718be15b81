//! How do times and profiles read? What was not measured is named as such, never as 0.

use super::text::one_line;
use kernelbench::{CaseTiming, Timed};
use metrics::{Claim, Interval, Kernel, Profile, Reading, Speedup, Statistic};
use minijinja::{Value, context};

/// The values that `timing.md` names.
pub(crate) fn timed(timed: &Timed) -> Value {
    let statistic = match timed.statistic {
        Statistic::Mean => "mean",
        Statistic::Median => "median",
    };
    let case = |case: &CaseTiming| case_timing(case, timed.statistic);
    context! {
        statistic => statistic,
        cases => timed.cases.iter().map(case).collect::<Vec<_>>(),
        speedup => ratio(&timed.speedup),
        interval => interval(timed.speedup.interval),
        no_difference => timed.speedup.claim() == Claim::NoDifference,
    }
}

fn case_timing(case: &CaseTiming, statistic: Statistic) -> Value {
    context! {
        name => one_line(&case.case),
        reference => time(case.reference.typical_ns(statistic)),
        candidate => time(case.candidate.typical_ns(statistic)),
        speedup => ratio(&case.speedup),
        interval => interval(case.speedup.interval),
        floor => case.floor_ns.map(time),
    }
}

/// The values that `profile.md` names.
pub(crate) fn profile(profile: &Profile) -> Value {
    context! {
        case => one_line(&profile.case),
        rung => profile.rung.describe(),
        readings => profile.readings.iter().map(reading).collect::<Vec<_>>(),
        kernels => profile.kernels.iter().map(kernel).collect::<Vec<_>>(),
        notes => profile.notes.iter().map(|note| one_line(note)).collect::<Vec<_>>(),
    }
}

fn kernel(kernel: &Kernel) -> Value {
    context! {
        name => one_line(&kernel.name),
        launches => kernel.launches,
        share => kernel.share.map(|share| format!("{:.0} %", share * 100.0)),
        readings => kernel.readings.iter().map(reading).collect::<Vec<_>>(),
    }
}

fn reading(reading: &Reading) -> Value {
    let value = match reading.value {
        Some(value) if value.is_finite() => format!("{} {}", number(value), one_line(&reading.unit)),
        _ => "not available".into(),
    };
    context! {
        name => one_line(&reading.name),
        value => value.trim(),
        meaning => one_line(&reading.meaning),
        stands_for => reading.stands_for.as_deref().map(one_line),
    }
}

/// A number in full where it is whole, else to six digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

fn time(ns: f64) -> String {
    match ns {
        _ if !ns.is_finite() => "not available".into(),
        _ if ns < 1e3 => format!("{ns:.1} ns"),
        _ if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        _ => format!("{:.3} ms", ns / 1e6),
    }
}

fn ratio(speedup: &Speedup) -> String {
    format!("{:.2}x", speedup.ratio)
}

fn interval(interval: Interval) -> String {
    format!("{:.2} to {:.2}", interval.low, interval.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_whole_and_ratios_keep_six_digits() {
        assert_eq!([number(123_456_789.0), number(0.0)], ["123456789", "0"]);
        assert_eq!([number(0.123_456_789), number(98.765_432_1), number(2.5)], ["0.123457", "98.7654", "2.5"]);
        assert_eq!(number(1.0e18), "1000000000000000000");
    }

    #[test]
    fn times_read_in_their_own_unit() {
        assert_eq!([time(12.34), time(12_340.0), time(1.234e7)], ["12.3 ns", "12.34 us", "12.340 ms"]);
        assert_eq!(time(f64::NAN), "not available");
    }
}
