//! What happened, as text for a terminal?

mod profile;
pub mod search;

pub use profile::{kernel_heading, profile, reading_name};

use crate::{at::candidate_id, best, diff, progress, quantity, report};
use agents::{
    event::{LookedUp, Step},
    trajectory::{Round, Trajectory},
};
use kernelbench::{CaseTiming, Certificate, CertificateVerdict, Evaluation, Failure, Hash, Task, Timed};
use prompts::PlanLine;
use std::fmt::Write;

/// The text that was kept under a name; `None` where the record lacks it.
pub type Fetch<'a> = &'a dyn Fn(&Hash) -> Option<String>;

/// The rounds as a table, and what was claimed in the end.
#[must_use]
pub fn rounds(story: &Trajectory) -> String {
    let rows: Vec<[String; 5]> = story.rounds.iter().map(row).collect();
    let head = ["round", "step", "candidate", "outcome", "advice it followed"].map(str::to_owned);
    let table = columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    let certificates: String = story.certificates.iter().map(certificate).collect();
    let apart = report::apart(story).map(|words| format!("  note: {words}\n")).unwrap_or_default();
    let claim = match story.counted() {
        Some(_) => "not timed and not certified: its processor is emulated\n".to_owned(),
        None if story.compiled().is_some() => "compiled, not run: nothing is timed and nothing certified\n".to_owned(),
        None if certificates.is_empty() => "not certified\n".into(),
        None => certificates + &apart,
    };
    let broke_off = story.broke_off.as_ref().map(|why| format!("broke off: {why}\n")).unwrap_or_default();
    plain(&format!("{}: answered by {}\n\n{table}\n{claim}{broke_off}", story.name, story.model))
}

/// One round in full.
///
/// # Errors
///
/// If there is no such round: which there are.
pub fn round(story: &Trajectory, fetch: Fetch, number: u32) -> Result<String, String> {
    let round = numbered(story, number)?;
    let mut text = heading(round);
    for (name, advice) in round.verdict.as_ref().map(report::fields).unwrap_or_default() {
        let _ = writeln!(text, "{name}: {advice}");
    }
    for (item, letter) in round.approaches.iter().flat_map(|ranked| &ranked.items).zip('A'..) {
        let _ = writeln!(text, "approach {letter}: {item}");
    }
    for (n, item) in round.suggestions.iter().flat_map(|list| &list.items).enumerate() {
        let _ = writeln!(text, "suggestion {}: {item}", n + 1);
    }
    text += &round.profile.as_ref().map(profiled).unwrap_or_default();
    text += &outcome(round);
    text += &remarks(round);
    if let Some(change) = change(story, fetch, round) {
        let _ = write!(text, "\n{change}");
    }
    Ok(plain(&text))
}

/// What changed between two candidates, each named as [`crate::at`] says.
///
/// # Errors
///
/// If a name fits none or several, or the record lacks a source.
pub fn difference(story: &Trajectory, fetch: Fetch, old: &str, new: &str) -> Result<String, String> {
    let (old, new) = (candidate_id(story, fetch, old)?, candidate_id(story, fetch, new)?);
    let source = |id| source(story, fetch, id).ok_or_else(|| format!("the record holds no source of {id}"));
    Ok(diff::unified(&source(&old)?, &source(&new)?, old.as_str(), new.as_str()))
}

/// The source of a candidate as it is compiled, named as [`crate::at`] says.
///
/// # Errors
///
/// If nothing is right yet, a name fits none or several, or the record lacks the source.
pub fn whole_source(story: &Trajectory, fetch: Fetch, name: &str) -> Result<String, String> {
    let id = candidate_id(story, fetch, name)?;
    source(story, fetch, &id).ok_or_else(|| format!("the record holds no source of {id}"))
}

/// Astra's log: (round, code, correctness, performance) for the baseline and every round (Astra §3.2, Algorithm 1): the
/// code by its hash, the correctness as 1 or 0, the performance as the speedup, a dash where there is none.
#[must_use]
pub fn tuples(story: &Trajectory, fetch: Fetch) -> String {
    let from_baseline = story.rounds.first().is_some_and(|round| round.step == Step::Baseline);
    let baseline = if from_baseline { None } else { reference(story, fetch) };
    let first = baseline.map(|hash| format!("(0, {hash}, 1, 1)\n"));
    first.into_iter().chain(story.finished().map(tuple)).collect()
}

fn tuple(round: &Round) -> String {
    let code = round.candidate.as_ref().map_or("-", Hash::as_str);
    let passed = round.evaluation.as_ref().and_then(Evaluation::passed);
    let performance = passed.map_or_else(|| "-".into(), |timed| format!("{:.4}", timed.speedup.ratio));
    let right = round.evaluation.as_ref().is_some_and(Evaluation::is_right);
    format!("({}, {code}, {}, {performance})\n", round.number, u8::from(right))
}

fn row(round: &Round) -> [String; 5] {
    let outcome = match (&round.evaluation, &round.unreadable) {
        (Some(Evaluation::Passed(timed)), _) => quantity::speedup(&timed.speedup),
        (Some(Evaluation::Counted(counts)), _) => counts.to_string(),
        (Some(Evaluation::Compiled(code)), _) => code.to_string(),
        (Some(Evaluation::Failed(failure)), _) => failure.to_string(),
        (None, Some((role, _))) => format!("unreadable {}", role.name()),
        (None, None) if round.steered.is_some() => "steered by hand".into(),
        (None, None) if round.not_timed.is_some() => "not timed".into(),
        (None, None) => "not finished".into(),
    };
    let candidate = round.candidate.as_ref().map_or("-", |id| id.short()).to_owned();
    let advice = report::advice(round).unwrap_or_default();
    [round.number.to_string(), round.step.name().into(), candidate, outcome, advice]
}

/// A round as a model is told of it that looks back: what came of it, and the advice that it followed.
#[must_use]
pub fn told(round: &Round) -> PlanLine {
    let [_, step, candidate, outcome, advice] = row(round);
    let outcome = if advice.is_empty() { outcome } else { format!("{outcome}; the advice was: {advice}") };
    PlanLine { round: round.number, step, candidate, outcome }
}

/// What was claimed of a candidate, what was checked, and what could not be.
#[must_use]
pub fn certificate(certificate: &Certificate) -> String {
    let candidate = certificate.candidate.short();
    let mut text = match &certificate.verdict {
        CertificateVerdict::Certified(timed) => {
            let (speedup, claim) = (quantity::speedup(&timed.speedup), quantity::claim(&timed.speedup));
            format!("certified: {candidate}, {speedup}, {claim}\n")
        }
        CertificateVerdict::Refused(failure) => format!("refused: {candidate}: {failure}\n"),
    };
    for checked in &certificate.checked {
        let done = if checked.done { "checked" } else { "not checked" };
        let _ = writeln!(text, "  {done}: {} ({})", checked.what, checked.how);
    }
    plain(&text)
}

fn heading(round: &Round) -> String {
    let base = round.step.base().map(|base| format!(" from {}", base.short())).unwrap_or_default();
    format!("round {}: {}{base}\n", round.number, round.step.name())
}

fn profiled(found: &Result<metrics::Profile, String>) -> String {
    match found {
        Ok(found) => profile(found),
        Err(why) => format!("profile: {why}\n"),
    }
}

fn outcome(round: &Round) -> String {
    let candidate = round.candidate.as_ref().map(|id| format!("candidate {id}\n")).unwrap_or_default();
    candidate
        + &match &round.evaluation {
            None => String::new(),
            Some(Evaluation::Failed(failure)) => failed(failure),
            Some(Evaluation::Passed(timed)) => passed(timed),
            Some(Evaluation::Counted(counts)) => format!("correct: {counts}\n"),
            Some(Evaluation::Compiled(code)) => format!("{code}\n"),
        }
}

fn failed(failure: &Failure) -> String {
    let mut text = format!("failed: {failure}\n");
    for (name, detail) in report::details(failure) {
        let _ = writeln!(text, "  {name}: {}", detail.trim_end());
    }
    text
}

fn passed(timed: &Timed) -> String {
    let typical = |timing: &metrics::Timing| quantity::time(timing.typical_ns(timed.statistic));
    let row = |case: &CaseTiming| {
        let name = format!("  {}", case.case);
        [name, typical(&case.reference), typical(&case.candidate), quantity::speedup(&case.speedup)]
    };
    let beside = timed.against.as_deref().unwrap_or("reference");
    let head = ["  case", beside, "candidate", "speedup"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(timed.cases.iter().map(row)).collect();
    format!("correct: {}\n{}", quantity::speedup(&timed.speedup), columns(&rows))
}

fn remarks(round: &Round) -> String {
    let mut text = String::new();
    let unmeasured = round.unmeasured();
    if !unmeasured.is_empty() {
        let _ = writeln!(text, "the Judge reasons from what its profile does not have: {}", unmeasured.join(", "));
    }
    let invented = report::invented(round);
    if !invented.is_empty() {
        let _ = writeln!(text, "it names what does not exist: {}", invented.join(", "));
    }
    for (role, why) in &round.passed_over {
        let _ = writeln!(text, "passed over the {}: {why}", role.name());
    }
    for LookedUp { lookup, .. } in &round.looked_up {
        let _ = writeln!(text, "looked up {} {}", lookup.look_up.name(), lookup.name);
    }
    for line in round.reflected.iter().flat_map(progress::learned) {
        let _ = writeln!(text, "{}", line.trim());
    }
    for (call, why) in &round.misread {
        let _ = writeln!(text, "misread {call}: {why}");
    }
    if let Some((role, why)) = &round.unreadable {
        let _ = writeln!(text, "no readable {} reply: {why}", role.name());
    }
    if let Some(how) = &round.steered {
        let _ = writeln!(text, "steered by hand: {how}");
    }
    if let Some(why) = &round.not_timed {
        let _ = writeln!(text, "not timed: {why}");
    }
    for line in round.weighed.iter().flat_map(progress::weighed) {
        let _ = writeln!(text, "{}", line.trim());
    }
    text
}

fn change(story: &Trajectory, fetch: Fetch, round: &Round) -> Option<String> {
    let candidate = round.candidate.as_ref()?;
    let base = round.step.base().cloned().or_else(|| reference(story, fetch))?;
    let lines = diff::between(&source(story, fetch, &base)?, &fetch(candidate)?);
    Some(format!("--- {base}\n+++ {candidate}\n{}", diff::text(&lines)))
}

/// A candidate's source, or the reference's, which lies in the task.
fn source(story: &Trajectory, fetch: Fetch, id: &Hash) -> Option<String> {
    let own = fetch(id).map(|text| best::source(&text));
    own.or_else(|| reference_source(story, fetch).filter(|source| Hash::of(source.as_bytes()) == *id))
}

fn reference_source(story: &Trajectory, fetch: Fetch) -> Option<String> {
    let task: Task = serde_json::from_str(&fetch(story.task.as_ref()?)?).ok()?;
    Some(task.reference().to_owned())
}

/// The reference's name.
pub(crate) fn reference(story: &Trajectory, fetch: Fetch) -> Option<Hash> {
    reference_source(story, fetch).map(|source| Hash::of(source.as_bytes()))
}

fn numbered(story: &Trajectory, number: u32) -> Result<&Round, String> {
    story.rounds.iter().find(|round| round.number == number).ok_or_else(|| {
        let (Some(first), Some(last)) = (story.rounds.first(), story.rounds.last()) else {
            return format!("there is no round {number}: the run has none yet");
        };
        format!("there is no round {number}: the run has rounds {} to {}", first.number, last.number)
    })
}

/// Rows with their columns under each other, one line a row; the last column runs free.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(|column| if column + 1 == N { 0 } else { width(column) });
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:<width$}", cell.replace('\n', " ")));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// What comes from outside may not steer the terminal.
#[must_use]
pub fn plain(text: &str) -> String {
    let harmless = |c: char| match c {
        '\n' | '\t' => c,
        '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn told<T>(sample: &sample::Sample, tell: impl Fn(&Trajectory, Fetch) -> T) -> T {
        let story: Trajectory = sample.lines.iter().map(|line| line.event.clone()).collect();
        tell(&story, &|hash| sample.blobs.get(hash).cloned())
    }

    #[test]
    fn behind_a_certificate_on_other_shapes_it_is_noted_that_the_numbers_do_not_compare() {
        let noted =
            |sample| told(&sample, |story, _| rounds(story)).contains("of final-prefill, final-decode, the rounds'");
        assert!(noted(sample::certified_elsewhere()) && !noted(sample::certified()));
    }

    #[test]
    fn the_table_has_a_row_for_each_round_and_ends_with_the_certificate() {
        let text = told(&sample::certified(), |story, _| rounds(story));
        let rows = text.lines().filter(|line| line.starts_with(char::is_numeric)).count();
        assert_eq!(rows, 6, "{text}");
        assert!(
            text.contains("3.11× [3.02, 3.17], faster") && text.contains("not checked: hardware counters"),
            "{text}"
        );
    }

    #[test]
    fn a_round_shows_its_verdict_its_failure_and_its_diff() {
        let text = told(&sample::certified(), |story, fetch| round(story, fetch, 3)).unwrap();
        for part in ["Bottleneck: The scalar exponential", "failed: it does not build", "'expf8'", "\n+        acc"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let unmeasured = "\nthe Judge reasons from what its profile does not have: ipc, l1d-miss-rate\n";
        assert!(text.contains(unmeasured) && text.contains("branch-misses\n"), "{text}");
    }

    #[test]
    fn an_intrinsic_that_the_compiler_does_not_know_is_named() {
        let mut sample = sample::certified();
        let nvcc = "error: identifier \\\"__expf8\\\" is undefined";
        for line in &mut sample.lines {
            let text = serde_json::to_string(line).unwrap();
            *line = serde_json::from_str(&text.replace("error: 'expf8' was not declared in this scope", nvcc)).unwrap();
        }
        let text = told(&sample, |story, _| {
            story.rounds.iter().filter_map(|one| round(story, &|_| None, one.number).ok()).collect::<String>()
        });
        assert_eq!(text.matches("it names what does not exist: __expf8\n").count(), 1, "{text}");
    }

    #[test]
    fn candidates_are_named_by_round_or_by_hash() {
        let diff = |old: &'static str, new: &'static str| {
            told(&sample::certified(), |story, fetch| difference(story, fetch, old, new))
        };
        assert!(diff("1", "2").unwrap().contains("\n+        acc"));
        assert!(diff("reference", "1").unwrap().contains("\n+        acc"));
        assert_eq!(diff("5", "1").unwrap_err(), "round 5 has no candidate");
        assert!(diff("1", "zzz").unwrap_err().contains("no candidate, round or checkpoint is called \"zzz\""));
        let by_hash = told(&sample::certified(), |story, fetch| {
            let id = story.rounds[0].candidate.clone().unwrap();
            difference(story, fetch, &id.as_str()[..10], "2")
        });
        assert_eq!(by_hash, diff("1", "2"));
    }

    #[test]
    fn astra_gets_one_tuple_more_than_there_were_rounds() {
        let text = told(&sample::certified(), tuples);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert!(lines[0].starts_with("(0, ") && lines[0].ends_with(", 1, 1)"), "{text}");
        assert!(lines[3].ends_with(", 0, -)") && lines[5] == "(5, -, 0, -)", "{text}");
    }

    #[test]
    fn nothing_from_outside_steers_the_terminal() {
        let text = told(&sample::tainted("\u{1b}[2J\u{7}"), |story, fetch| {
            rounds(story) + &round(story, fetch, 3).unwrap() + &plain(&difference(story, fetch, "1", "2").unwrap())
        });
        assert!(text.contains("\u{fffd}[2J") && !text.contains('\u{1b}') && !text.contains('\u{7}'));
    }
}
