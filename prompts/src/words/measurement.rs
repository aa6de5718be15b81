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

/// The values that `profile.md` names: all that a reader has to know, and of the readings, in their order, as many whole
/// lines as fit.
pub(crate) fn profile(profile: &Profile) -> Value {
    let notes: Vec<String> = profile.notes.iter().map(|note| one_line(note)).collect();
    let names = profile.kernels.iter().map(|kernel| tokens(kernel.name.len() + HEADING));
    let taken = notes.iter().map(|note| tokens(note.len())).chain(names).sum::<usize>();
    let mut room = Room { left: MOST_TOKENS.saturating_sub(taken), left_out: 0 };
    let readings = room.shown(&profile.readings);
    let kernels: Vec<Value> = profile.kernels.iter().map(|of| kernel(of, &mut room)).collect();
    context! {
        case => one_line(&profile.case),
        rung => profile.rung.describe(),
        readings,
        kernels,
        notes,
        left_out => room.left_out,
    }
}

/// Tokens of a profile in a prompt, at most.
const MOST_TOKENS: usize = 8_000;
/// Bytes of a reading's value, with the words around it.
const AROUND: usize = 40;
/// Bytes of the words around a kernel's name.
const HEADING: usize = 60;

/// How many tokens a text is taken for: one for every three bytes, because names of metrics are cut finer than prose.
fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(3)
}

/// What a prompt has left for readings. After the first line that does not fit, none is shown.
struct Room {
    left: usize,
    left_out: usize,
}

impl Room {
    fn shown(&mut self, readings: &[Reading]) -> Vec<Value> {
        readings.iter().filter(|one| self.holds(one)).map(reading).collect()
    }

    fn holds(&mut self, reading: &Reading) -> bool {
        let stands_for = reading.stands_for.as_ref().map_or(0, String::len);
        let bytes = reading.name.len() + reading.unit.len() + reading.meaning.len() + stands_for + AROUND;
        let fits = self.left_out == 0 && tokens(bytes) <= self.left;
        if fits {
            self.left -= tokens(bytes);
        } else {
            self.left_out += 1;
        }
        fits
    }
}

fn kernel(kernel: &Kernel, room: &mut Room) -> Value {
    context! {
        name => one_line(&kernel.name),
        launches => kernel.launches,
        share => kernel.share.map(|share| format!("{:.0} %", share * 100.0)),
        readings => room.shown(&kernel.readings),
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
    fn a_profile_keeps_its_limit_and_says_how_many_lines_it_left_out() {
        let name = |at: usize| format!("lts__t_sectors_srcunit_tex_aperture_device_op_read_lookup_miss_{at}.sum");
        let many = |count| (0..count).map(|at| Reading::new(&name(at), Some(1.0e9), "sector", "of L2")).collect();
        let kernel = |count| Kernel { name: "k".into(), launches: Some(1), share: Some(0.5), readings: many(count) };
        let shown = |counts: [usize; 2]| {
            let profile =
                Profile { kernels: counts.map(kernel).into(), notes: vec!["last".into()], ..crate::example::profile() };
            crate::Prompts::embedded().text("profile", &context! { profile => super::profile(&profile) })
        };
        let full = shown([2_000, 2_000]);
        assert!((MOST_TOKENS / 2..MOST_TOKENS).contains(&tokens(full.len())), "{}", tokens(full.len()));
        let lines = full.lines().filter(|line| line.contains("lts__")).count();
        assert!(full.contains(&format!("{} more not shown", 4_000 - lines)) && full.contains("Note: last"), "{full}");
        assert!(!shown([25, 25]).contains("not shown"));
    }

    #[test]
    fn times_read_in_their_own_unit() {
        assert_eq!([time(12.34), time(12_340.0), time(1.234e7)], ["12.3 ns", "12.34 us", "12.340 ms"]);
        assert_eq!(time(f64::NAN), "not available");
    }
}
