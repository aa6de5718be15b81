//! How is an event said?

use crate::quantity;
use agents::{
    event::{End, Event, LookedUp, Reflected, Step},
    trajectory::Trajectory,
};
use kernelbench::{
    Baseline, CandidateId, Evaluation, Failure, Found, Label, LabelKind, Suite, Tried, Variant, in_words, plain,
};
use metrics::{Profile, Statistic};
use prompts::Verdict;
use std::fmt::Display;

/// The lines for one event; none for what is of no interest as it happens.
pub(super) fn of(event: &Event, so_far: &Trajectory, rounds: u32) -> Vec<String> {
    match event {
        Event::SuiteFrozen { suite, notes } => shapes(suite, notes),
        Event::Prepared { baseline } => [reference(baseline), labels(&baseline.labels)].concat(),
        Event::Began { round, step } => vec![String::new(), began(*round, step, so_far, rounds)],
        Event::LookedUp(LookedUp { lookup, .. }) => {
            let before = so_far.rounds.iter().flat_map(|round| &round.looked_up).any(|one| one.lookup == *lookup);
            let counts = if before { "again" } else { "counts as a round" };
            vec![format!("  the Coder looks up {} {}: {counts}", lookup.look_up.name(), plain(&lookup.name))]
        }
        Event::Misread { call, why } => {
            vec![format!("  the {}'s reply cannot be read: {}", call.role.name(), plain(why))]
        }
        Event::PassedOver { role, why } => {
            vec![format!("  the {} is passed over: {}", role.name(), plain(why))]
        }
        Event::Reflected(reflected) => learned(reflected),
        Event::Proposed { proposal, taken, .. } => vec![proposed(proposal, *taken)],
        Event::Profiled { profile, .. } => vec![profiled(profile)],
        Event::Judged { verdict, .. } => judged(verdict),
        Event::Ranked { approaches } => approaches
            .items
            .iter()
            .zip('A'..)
            .map(|(item, letter)| format!("  plan {letter}: {}", plain(item)))
            .collect(),
        Event::Suggested { suggestions, .. } => {
            suggestions.items.iter().map(|item| format!("  planner: {}", plain(item))).collect()
        }
        Event::Wrote { candidate } => vec![wrote(candidate, so_far)],
        Event::Tuned { tried, .. } => vec![tuned(tried)],
        Event::Evaluated { evaluation, .. } => {
            let stays = (!evaluation.holds()).then(|| super::workflow::stays(so_far)).flatten();
            [vec![format!("  {}", evaluated(evaluation))], same_code(evaluation), stays.into_iter().collect()].concat()
        }
        Event::NotTimed { why, .. } => vec![format!("  right, but it could not be timed: {}", plain(why))],
        Event::Unreadable { role, why } => {
            let line = format!("  no candidate: the {} gave no readable reply ({})", role.name(), plain(why));
            [line].into_iter().chain(super::workflow::stays(so_far)).collect()
        }
        Event::Weighed(weighed) => super::weighed(weighed),
        Event::Steered { say: Some(say), .. } => vec![format!("  to be said otherwise: {}", plain(say))],
        Event::Steered { say: None, transformation } => vec![format!("  {} is left out", plain(transformation))],
        Event::Ordered(order) => super::workflow::ordered(order, so_far),
        Event::Checked { bindings, failure, .. } => super::workflow::checked(bindings, failure.as_ref()),
        Event::Validated { validator, found, .. } => super::workflow::validated(validator, found),
        Event::Checkpointed(checkpoint) => super::workflow::checkpointed(checkpoint, so_far),
        Event::Restored { branch, checkpoint, .. } => {
            vec![super::workflow::moved("restored", branch, checkpoint, so_far)]
        }
        Event::Branched { branch, checkpoint, .. } => {
            vec![super::workflow::moved("branch", branch, checkpoint, so_far)]
        }
        Event::Named { name, checkpoint } => vec![super::workflow::moved("named", name, checkpoint, so_far)],
        Event::BrokeOff { why } => vec![String::new(), format!("broke off: {}", plain(why))],
        Event::Ended { end } => vec![String::new(), ended(*end)],
        Event::Extended { rounds: Some(rounds) } => vec![format!("given more: up to {rounds} rounds in all")],
        Event::Extended { rounds: None } => vec!["given more: another limit".to_owned()],
        Event::Offered { node, dropped, .. } => super::search::offered(*node, *dropped),
        Event::Printed { text, .. } => super::search::printed(text),
        Event::Opened { .. }
        | Event::Generated { .. }
        | Event::Expanded { .. }
        | Event::Simulated { .. }
        | Event::Asked { .. }
        | Event::Answered { .. }
        | Event::Spent { .. }
        | Event::Tried { .. }
        | Event::Retimed { .. }
        | Event::Certified { .. } => vec![],
    }
}

/// What is going on after this event, for the line at the bottom.
pub(super) fn doing(event: &Event, so_far: &Trajectory, rounds: u32) -> String {
    let round = match event {
        Event::Began { round, .. } => Some(*round),
        _ => so_far.open().map(|round| round.number),
    };
    let doing = match event {
        Event::Opened { .. } => "choosing the shapes".to_owned(),
        Event::SuiteFrozen { .. } => "building, checking and timing the reference".to_owned(),
        Event::Asked { call, .. } => format!("waiting for the {}", call.role.name()),
        Event::Wrote { .. } | Event::Tuned { .. } | Event::Checked { .. } | Event::Tried { .. } => {
            "building, checking and timing the candidate".to_owned()
        }
        Event::Began { step: Step::Optimize { .. }, .. } => "profiling".to_owned(),
        Event::Evaluated { .. } | Event::NotTimed { .. } | Event::Unreadable { .. }
            if so_far.open().is_some_and(|open| open.number >= rounds) =>
        {
            return "examining the best anew".to_owned();
        }
        Event::Ended { .. } | Event::BrokeOff { .. } => String::new(),
        _ => "deciding".to_owned(),
    };
    round.map_or(doing.clone(), |round| format!("round {round} of {rounds}: {doing}"))
}

/// How many tasks have a correct candidate, and of how many of these it is so only as the task draws its inputs.
#[must_use]
pub fn correct(all: impl Display, only_as_drawn: usize) -> String {
    match only_as_drawn {
        0 => format!("{all} correct"),
        some => format!("{all} correct ({some} only on inputs as drawn)"),
    }
}

/// That the same code was timed before, where it was.
fn same_code(evaluation: &Evaluation) -> Vec<String> {
    let labels = evaluation.passed().map(|timed| timed.labels.as_slice()).unwrap_or_default();
    let same = labels.iter().filter(|label| label.kind == LabelKind::SameCode);
    same.map(|label| format!("  {}", plain(&label.text))).collect()
}

/// What a round taught, as it was written down; none of it was checked.
#[must_use]
pub fn learned(Reflected { lessons, skill, .. }: &Reflected) -> Vec<String> {
    let notes = skill.iter().map(|_| "  learned: the notes were written anew".to_owned());
    lessons.iter().map(|one| format!("  learned: {}", plain(&one.insight))).chain(notes).collect()
}

/// What a search over bindings came to, in a line.
#[must_use]
pub fn tuned(tried: &[Tried]) -> String {
    if tried.is_empty() {
        return "  tuned: none was timed".to_owned();
    }
    let count = |which: fn(&Found) -> bool| tried.iter().filter(|tried| which(&tried.found)).count();
    let right = tried.iter().filter_map(|tried| match tried.found {
        Found::Ratio(ratio) => Some((ratio, &tried.bindings)),
        _ => None,
    });
    let best = right.max_by(|a, b| a.0.total_cmp(&b.0));
    let compiled = tried.iter().find(|tried| matches!(tried.found, Found::Compiled(_)));
    let none = compiled.map_or("none was right".to_owned(), |first| {
        format!("{}, the first that compiles", plain(&in_words(&first.bindings)))
    });
    let best = best
        .map_or(none, |(ratio, bindings)| format!("best {} at {}", plain(&in_words(bindings)), quantity::times(ratio)));
    let (invalid, failed) = (count(|f| matches!(f, Found::Invalid)), count(|f| matches!(f, Found::Failed(_))));
    format!("  tuned: {} configurations, {invalid} invalid, {failed} failed; {best}", tried.len())
}

fn shapes(suite: &Suite, notes: &[String]) -> Vec<String> {
    let by = match suite.provenance {
        kernelbench::Provenance::Task => "the task",
        kernelbench::Provenance::Model => "the Tester",
    };
    let names: Vec<String> = suite.cases.iter().map(|case| plain(&case.name)).collect();
    let mut lines =
        vec![format!("shapes     {} (chosen by {by}; timed: {})", names.join(", "), plain(&suite.timed.join(", ")))];
    lines.extend(notes.iter().map(|note| format!("           {}", plain(note))));
    lines
}

/// The reference's times, a line for each case.
#[must_use]
pub fn reference(baseline: &Baseline) -> Vec<String> {
    let width = baseline.timings.iter().map(|(case, _)| case.len()).max().unwrap_or(0);
    let title = baseline.against.as_ref().map_or("reference".to_owned(), |name| format!("baseline   {}", plain(name)));
    let line = |(case, timing): &(String, metrics::Timing)| {
        let (low, typical, high) =
            (timing.quantile_ns(0.05), timing.typical_ns(Statistic::Median), timing.quantile_ns(0.95));
        let case = plain(case);
        format!(
            "{title}  {case:width$}  {:>9}  (90 % of the samples: {} to {})",
            quantity::time(typical),
            quantity::time(low),
            quantity::time(high)
        )
    };
    let variants = baseline.variants.iter().map(|one| variant(one, baseline.over()));
    baseline.timings.iter().map(line).chain(variants).collect()
}

fn variant(variant: &Variant, over: &str) -> String {
    let name = plain(&variant.name);
    match (&variant.timing, &variant.speedup) {
        (Some(timing), Some(speedup)) => {
            let time = quantity::time(timing.typical_ns(Statistic::Median));
            format!("baseline   {name}  {time:>9}  {} over {}", quantity::speedup(speedup), plain(over))
        }
        _ => format!("baseline   {name}  none: {}", plain(&variant.note)),
    }
}

/// What is known against a task, a line each.
#[must_use]
pub fn labels(labels: &[Label]) -> Vec<String> {
    labels.iter().map(|label| format!("label      {}", plain(&label.text))).collect()
}

fn began(round: u32, step: &Step, so_far: &Trajectory, rounds: u32) -> String {
    let what = match step {
        Step::Baseline => "the reference itself is the first candidate".to_owned(),
        Step::Seed => "the Coder writes a candidate".to_owned(),
        Step::Fix { base } => format!("the Judge looks for the fault of {}", named(base, so_far)),
        Step::Optimize { base } => format!("the Judge looks for the bottleneck of {}", named(base, so_far)),
        Step::Refine { base } => format!("the Coder goes on from {} with the evidence", named(base, so_far)),
        Step::Retry { base } => format!("the Coder goes on from {}", named(base, so_far)),
        Step::Transform { transformation, .. } => super::workflow::began(transformation, so_far),
        Step::Generate => "an operator is written, or taken as it is given".to_owned(),
        Step::Repair { base } => format!("the Coder mends {}", named(base, so_far)),
        Step::Search { base } => format!("a search begins at {}", named(base, so_far)),
        Step::Suggest { base } => format!("the Planner has suggestions on {}", named(base, so_far)),
    };
    if matches!(step, Step::Transform { .. } | Step::Generate | Step::Repair { .. } | Step::Search { .. }) {
        return format!("round {round}: {what}");
    }
    if round == 0 { format!("round 0: {what}") } else { format!("round {round} of {rounds}: {what}") }
}

/// A candidate's short name with the round that it came from.
fn named(candidate: &CandidateId, so_far: &Trajectory) -> String {
    let short = plain(candidate.short());
    let from = so_far.rounds.iter().rev().find(|round| round.candidate.as_ref() == Some(candidate));
    from.map_or(short.clone(), |round| format!("{short} (round {})", round.number))
}

fn proposed(proposal: &str, taken: bool) -> String {
    let rest = if taken { "" } else { " (not allowed here: the policy's rule decides)" };
    format!("  planner proposes: {}{rest}", plain(proposal))
}

fn profiled(profile: &Result<Profile, String>) -> String {
    match profile {
        Ok(profile) => {
            format!("  profile: {}, {} readings on {}", profile.rung.describe(), profile.count(), plain(&profile.case))
        }
        Err(why) => format!("  profile: nothing was measured: {}", plain(why)),
    }
}

fn judged(verdict: &Verdict) -> Vec<String> {
    let (first, second, third) = match verdict {
        Verdict::Fix(fix) => {
            (("fault", &fix.critical_issue), ("why", &fix.why_it_matters), ("fix", &fix.minimal_fix_hint))
        }
        Verdict::Optimization(o) => (("bottleneck", &o.bottleneck), ("method", &o.method), ("plan", &o.plan)),
    };
    [first, second, third].map(|(name, text)| format!("  judge, {name}: {}", plain(text))).to_vec()
}

fn wrote(candidate: &CandidateId, so_far: &Trajectory) -> String {
    let seen = so_far.rounds.iter().find(|round| round.candidate.as_ref() == Some(candidate));
    let again = seen.map(|round| format!(", the same as in round {}", round.number)).unwrap_or_default();
    format!("  candidate {}{again}", plain(candidate.short()))
}

/// What came of a candidate, in a line.
#[must_use]
pub fn evaluated(evaluation: &Evaluation) -> String {
    match evaluation {
        Evaluation::Passed(timed) => {
            format!(
                "correct, {} against {}: {}",
                quantity::speedup(&timed.speedup),
                plain(timed.over()),
                quantity::claim(&timed.speedup)
            )
        }
        Evaluation::Counted(counts) => format!("correct: {}", plain(&counts.to_string())),
        Evaluation::Compiled(code) => plain(&code.to_string()),
        Evaluation::Failed(failure) => failed(failure),
    }
}

fn failed(failure: &Failure) -> String {
    let detail = match failure {
        Failure::Build { log } => log.lines().find(|line| line.contains("error")).or(log.lines().next()),
        Failure::Interface { log } => log.lines().next(),
        Failure::Crash { stderr, .. } | Failure::Exit { stderr, .. } => stderr.lines().last(),
        _ => None,
    };
    let detail = detail.filter(|line| !line.trim().is_empty()).map(|line| format!(" ({})", cut(line.trim(), 160)));
    let mismatch = match failure {
        Failure::Mismatch { expected, got, worst_at, .. } => {
            Some(format!(" (at {worst_at}: {got} instead of {expected})"))
        }
        _ => None,
    };
    plain(&format!("failed: {failure}{}", detail.or(mismatch).unwrap_or_default()))
}

fn ended(end: End) -> String {
    let words = match end {
        End::OutOfRounds => "ended: no rounds left",
        End::RecordEnds => "ended: the record that answers in the model's place holds no further reply",
        End::Finished => "ended: told to finish",
        End::SequenceEnds => "ended: every transformation of the sequence was applied",
        End::Searched => "ended: the search is over",
        End::Counted => {
            "ended: a candidate is right; on an emulated processor instructions are counted, and nothing is faster"
        }
        End::Compiled => "ended: a candidate compiles; its GPU is not here, nothing is run, and nothing is faster",
        End::Stalled => "ended: no faster candidate for as many rounds as the policy bears",
        End::Stuck => "ended: every try failed; the context stays at the last checkpoint",
        End::Stopped => "ended: the Planner proposed to stop",
        limit => return format!("ended: the limit {} is reached", limit.limit().unwrap_or_default()),
    };
    words.to_owned()
}

fn cut(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
