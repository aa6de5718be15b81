//! How do times and profiles read? What was not measured is named as such, never as 0.

use super::{roofs, text::one_line};
use kernelbench::{CaseTiming, Label, LabelKind, Task, Timed};
use metrics::{Claim, Interval, Kernel, Machine, Profile, Reading, Speedup, Statistic};
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
        beside => timed.against.as_deref().map_or_else(|| "reference".to_owned(), one_line),
        cases => timed.cases.iter().map(case).collect::<Vec<_>>(),
        speedup => ratio(&timed.speedup),
        interval => interval(timed.speedup.interval),
        no_difference => timed.speedup.claim() == Claim::NoDifference,
        labels => timed.labels.iter().filter(|label| of_the_code(label)).map(|label| one_line(&label.text)).collect::<Vec<_>>(),
    }
}

/// Whether such a label says something of the candidate that another text of it could mend.
fn of_the_code(label: &Label) -> bool {
    use LabelKind::{BeyondDrawn, GrowingMemory, LowerPrecision, PossibleRace};
    matches!(label.kind, LowerPrecision | BeyondDrawn | GrowingMemory | PossibleRace)
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

/// The least times that the reference's products take at the machine's peaks; `None` where they were not counted, or the
/// machine's peaks are not known.
pub(crate) fn products(task: &Task, machine: &Machine) -> Option<String> {
    let flops = task.problem()?.signature.flops?;
    let least = roofs::of_flops(flops, machine);
    (!least.is_empty()).then(|| {
        let least = least.join(", ");
        format!("The reference's products take {:.3} GFLOP a call: at least {least}.", flops as f64 / 1e9)
    })
}

/// The values that `profile.md` names: all that a reader has to know, and of the readings, in their order, as many whole
/// lines as fit.
pub(crate) fn profile(profile: &Profile, machine: &Machine) -> Value {
    let notes: Vec<String> = profile.notes.iter().map(|note| one_line(note)).collect();
    let names = profile.kernels.iter().map(|kernel| tokens(kernel.name.len() + HEADING));
    let taken = notes.iter().map(|note| tokens(note.len())).chain(names).sum::<usize>();
    let mut room = Room { left: MOST_TOKENS.saturating_sub(taken), left_out: 0 };
    let readings = room.shown(&profile.readings);
    let kernels: Vec<Value> = profile.kernels.iter().map(|of| kernel(of, machine, &mut room)).collect();
    context! {
        case => one_line(&profile.case),
        rung => profile.rung.describe(),
        call => roofs::of_call(profile),
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
/// Bytes of the words around a kernel's name, its roofs among them.
const HEADING: usize = 180;

/// How many tokens a text is taken for: one for every three bytes, because names of metrics are cut finer than prose.
pub(crate) fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(3)
}

/// What a prompt has left for readings. After the first line that does not fit, none is shown.
struct Room {
    left: usize,
    left_out: usize,
}

impl Room {
    fn shown(&mut self, readings: &[Reading]) -> Vec<Value> {
        telling(readings).into_iter().filter(|one| self.holds(one)).map(reading).collect()
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

/// The readings that say something: not those that another stands for, nor a stand-in that is read for itself too.
fn telling(readings: &[Reading]) -> Vec<&Reading> {
    let is_stood_for = |one: &Reading| {
        readings.iter().any(|other| other.value.is_some() && other.stands_for.as_ref() == Some(&one.name))
    };
    let is_read_itself =
        |one: &Reading| readings.iter().any(|other| other.stands_for.is_none() && other.name == one.name);
    let says_nothing = |one: &Reading| is_stood_for(one) || (one.stands_for.is_some() && is_read_itself(one));
    readings.iter().filter(|one| !says_nothing(one)).collect()
}

fn kernel(kernel: &Kernel, machine: &Machine, room: &mut Room) -> Value {
    context! {
        roofs => roofs::of_kernel(kernel, machine),
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
    metrics::quantity::times(speedup.ratio)
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
    fn of_a_candidates_labels_those_are_shown_that_another_text_could_mend() {
        let labels = vec![
            Label::new(LabelKind::LowerPrecision, "lower precision: its error\nis 1.2e-5"),
            Label::new(LabelKind::Headers, "built with the slim headers"),
            Label::new(LabelKind::BeyondDrawn, "beyond what the task draws: 3 of 9 elements are wrong"),
        ];
        let shown = |labels| {
            let timed = Timed { labels, ..crate::example::timed() };
            crate::Prompts::embedded()
                .text("timing", &context! { timed => super::timed(&timed), products => Option::<String>::None })
        };
        let shown_with = shown(labels);
        let lines: Vec<&str> = shown_with.lines().filter(|line| line.starts_with("Label: ")).collect();
        let beyond = "Label: beyond what the task draws: 3 of 9 elements are wrong";
        assert_eq!(lines, ["Label: lower precision: its error is 1.2e-5", beyond]);
        assert!(!shown(vec![]).contains("Label"));
    }

    #[test]
    fn a_profile_keeps_its_limit_and_says_how_many_lines_it_left_out() {
        let name = |at: usize| format!("lts__t_sectors_srcunit_tex_aperture_device_op_read_lookup_miss_{at}.sum");
        let many = |count| (0..count).map(|at| Reading::new(&name(at), Some(1.0e9), "sector", "of L2")).collect();
        let kernel = |count| Kernel { name: "k".into(), launches: Some(1), share: Some(0.5), readings: many(count) };
        let shown = |counts: [usize; 2]| {
            let profile =
                Profile { kernels: counts.map(kernel).into(), notes: vec!["last".into()], ..crate::example::profile() };
            crate::Prompts::embedded()
                .text("profile", &context! { profile => super::profile(&profile, &crate::example::machine()) })
        };
        let full = shown([2_000, 2_000]);
        assert!((MOST_TOKENS / 2..MOST_TOKENS).contains(&tokens(full.len())), "{}", tokens(full.len()));
        let lines = full.lines().filter(|line| line.contains("lts__")).count();
        assert!(full.contains(&format!("{} more not shown", 4_000 - lines)) && full.contains("Note: last"), "{full}");
        assert!(!shown([25, 25]).contains("not shown"));
    }

    #[test]
    fn a_reading_that_another_stands_for_is_not_shown_and_nothing_is_shown_twice() {
        let reading = |name: &str, value| Reading::new(name, value, "%", "");
        let instead = |of: &str, name: &str| Reading { stands_for: Some(of.into()), ..reading(name, Some(7.0)) };
        let readings = [
            reading("memory_dependency", None),
            instead("memory_dependency", "long_scoreboard"),
            reading("long_scoreboard", Some(7.0)),
            reading("tensor_instructions", Some(2.1)),
            instead("tensor_instructions", "tensor_cycles"),
            reading("unknown", None),
        ];
        let shown: Vec<&str> = telling(&readings).into_iter().map(|one| one.name.as_str()).collect();
        assert_eq!(shown, ["long_scoreboard", "tensor_cycles", "unknown"]);
    }

    #[test]
    fn times_read_in_their_own_unit() {
        assert_eq!([time(12.34), time(12_340.0), time(1.234e7)], ["12.3 ns", "12.34 us", "12.340 ms"]);
        assert_eq!(time(f64::NAN), "not available");
    }
}
