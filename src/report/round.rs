//! What happened in one round, as the page shows it?

use super::ReportInput;
use crate::{
    diff::{self, DiffLine},
    progress, quantity, show,
};
use agents::{
    event::{LookedUp, Step},
    trajectory::{Answered, Round},
};
use kernelbench::{CandidateId, Evaluation, Failure, Timed, feature::score};
use metrics::{Profile, Reading};
use prompts::Verdict;
use serde::Serialize;

/// One round: its line in the table, and what lies behind it.
#[derive(Serialize)]
pub(super) struct RoundView {
    number: u32,
    step: &'static str,
    base: Option<String>,
    candidate: Option<String>,
    /// The round that offered the same source before.
    same_as: Option<u32>,
    /// For the style sheet: passed, failed or open.
    kind: &'static str,
    outcome: String,
    speedup: Option<String>,
    best: bool,
    advice: Option<String>,
    verdict: Vec<(&'static str, String)>,
    approaches: Vec<String>,
    suggestions: Vec<String>,
    proposal: Option<(String, bool)>,
    change: Option<Change>,
    failure: Option<FailureView>,
    cases: Vec<CaseView>,
    profile: Option<ProfileView>,
    calls: Vec<CallView>,
    remarks: Vec<String>,
}

/// The diff that the round's advice led to.
#[derive(Serialize)]
struct Change {
    from: String,
    added: usize,
    removed: usize,
    lines: Vec<DiffLine>,
}

#[derive(Serialize)]
struct FailureView {
    /// Numbers and short words, by name.
    facts: Vec<(String, String)>,
    /// What a compiler or the candidate printed, by name.
    texts: Vec<(String, String)>,
}

#[derive(Serialize)]
struct CaseView {
    case: String,
    reference: String,
    candidate: String,
    speedup: String,
}

#[derive(Serialize)]
struct ProfileView {
    /// The rung, or why nothing was measured.
    rung: String,
    case: String,
    readings: Vec<ReadingView>,
    /// Each kernel's heading and readings.
    kernels: Vec<(String, Vec<ReadingView>)>,
    /// What bounds the kernels, by rule.
    facts: Vec<String>,
    notes: Vec<String>,
}

/// Name, value with its unit, meaning.
type ReadingView = (String, String, String);

#[derive(Serialize)]
struct CallView {
    role: &'static str,
    attempt: u32,
    model: String,
    tokens: String,
    latency: String,
    prompt: String,
    reply: String,
}

impl RoundView {
    pub(super) fn of(input: &ReportInput, round: &Round) -> Self {
        let story = input.trajectory;
        let timed = round.evaluation.as_ref().and_then(Evaluation::passed);
        let (kind, outcome) = outcome(round);
        Self {
            number: round.number,
            step: round.step.name(),
            base: round.step.base().map(|base| base.short().to_owned()),
            candidate: round.candidate.as_ref().map(|id| id.short().to_owned()),
            same_as: same_as(input, round),
            kind,
            outcome,
            speedup: timed.map(|timed| quantity::speedup(&timed.speedup)),
            best: story.best().is_some_and(|best| best.round == round.number),
            advice: advice(round),
            verdict: round.verdict.as_ref().map(fields).unwrap_or_default(),
            approaches: round.approaches.iter().flat_map(|ranked| ranked.items.clone()).collect(),
            suggestions: round.suggestions.iter().flat_map(|list| list.items.clone()).collect(),
            proposal: story.proposals.get(&round.number).cloned(),
            change: change(input, round),
            failure: round.evaluation.as_ref().and_then(failure),
            cases: timed.map(cases).unwrap_or_default(),
            profile: round.profile.as_ref().map(profile),
            calls: round.answers.iter().map(call).collect(),
            remarks: remarks(round),
        }
    }
}

/// The style and the words for how a round ended.
fn outcome(round: &Round) -> (&'static str, String) {
    match (&round.evaluation, &round.unreadable) {
        (Some(Evaluation::Passed(timed)), _) => ("passed", quantity::claim(&timed.speedup).into()),
        (Some(Evaluation::Counted(counts)), _) => ("passed", format!("right: {counts}")),
        (Some(Evaluation::Compiled(code)), _) => ("open", code.to_string()),
        (Some(Evaluation::Failed(failure)), _) => ("failed", failure.to_string()),
        (None, Some((role, _))) => ("failed", format!("the {}'s reply could not be read", role.name())),
        (None, None) if round.steered.is_some() => ("open", "steered by hand".into()),
        (None, None) if round.not_timed.is_some() => ("open", "could not be timed".into()),
        (None, None) => ("open", "not finished".into()),
    }
}

/// The advice that a round followed, in one line.
pub(crate) fn advice(round: &Round) -> Option<String> {
    match (&round.verdict, &round.suggestions) {
        (Some(Verdict::Fix(fix)), _) => Some(fix.minimal_fix_hint.clone()),
        (Some(Verdict::Optimization(optimization)), _) => Some(optimization.method.clone()),
        (None, Some(suggestions)) => suggestions.items.first().cloned(),
        (None, None) => round.approaches.as_ref().and_then(|ranked| ranked.items.first().cloned()),
    }
}

/// A verdict's fields by name.
pub(crate) fn fields(verdict: &Verdict) -> Vec<(&'static str, String)> {
    match verdict {
        Verdict::Fix(fix) => vec![
            ("What is wrong", fix.critical_issue.clone()),
            ("Why it matters", fix.why_it_matters.clone()),
            ("What to change", fix.minimal_fix_hint.clone()),
        ],
        Verdict::Optimization(optimization) => {
            let metrics = Some(optimization.metrics.join(", ")).filter(|metrics| !metrics.is_empty());
            let mut fields = vec![
                ("Bottleneck", optimization.bottleneck.clone()),
                ("Method", optimization.method.clone()),
                ("Plan", optimization.plan.clone()),
            ];
            fields.extend(metrics.map(|metrics| ("Metrics that say most", metrics)));
            fields
        }
    }
}

fn same_as(input: &ReportInput, round: &Round) -> Option<u32> {
    let candidate = round.candidate.as_ref()?;
    let mut earlier = input.trajectory.rounds.iter().take_while(|earlier| earlier.number != round.number);
    earlier.find(|earlier| earlier.candidate.as_ref() == Some(candidate)).map(|earlier| earlier.number)
}

/// What changed against the base; for a first candidate, against the reference.
fn change(input: &ReportInput, round: &Round) -> Option<Change> {
    let source = (input.fetch)(round.candidate.as_ref()?)?;
    let (from, old) = match &round.step {
        Step::Baseline => return None,
        Step::Seed => ("the reference".into(), super::page::reference_source(input)?),
        step => {
            let base: &CandidateId = step.base()?;
            (base.short().to_owned(), (input.fetch)(base)?)
        }
    };
    let lines = diff::between(&old, &source);
    let (added, removed) = diff::size(&lines);
    Some(Change { from, added, removed, lines })
}

/// A failure's fields, whichever it is: those of several lines are what somebody printed.
fn failure(evaluation: &Evaluation) -> Option<FailureView> {
    let Evaluation::Failed(failure) = evaluation else { return None };
    let (texts, facts) = details(failure).into_iter().partition(|(name, text)| is_printed(name, text));
    Some(FailureView { facts, texts })
}

fn is_printed(name: &str, text: &str) -> bool {
    text.contains('\n') || ["log", "stderr", "finding"].contains(&name)
}

/// A failure's fields by name, as they are recorded; empty ones are left out.
pub(crate) fn details(failure: &Failure) -> Vec<(String, String)> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(failure) else { return vec![] };
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    fields
        .into_iter()
        .filter(|(name, _)| name != "kind")
        .map(|(name, value)| (name.replace('_', " "), text(value)))
        .filter(|(_, text)| !text.trim().is_empty())
        .collect()
}

fn cases(timed: &Timed) -> Vec<CaseView> {
    let typical = |timing: &metrics::Timing| quantity::time(timing.typical_ns(timed.statistic));
    let view = |case: &kernelbench::CaseTiming| CaseView {
        case: case.case.clone(),
        reference: typical(&case.reference),
        candidate: typical(&case.candidate),
        speedup: quantity::speedup(&case.speedup),
    };
    timed.cases.iter().map(view).collect()
}

fn profile(profile: &Result<Profile, String>) -> ProfileView {
    match profile {
        Err(why) => {
            let (readings, kernels, facts, notes) = (vec![], vec![], vec![], vec![]);
            ProfileView { rung: why.clone(), case: String::new(), readings, kernels, facts, notes }
        }
        Ok(profile) => ProfileView {
            rung: profile.rung.describe().into(),
            case: profile.case.clone(),
            readings: readings(&profile.readings),
            kernels: profile
                .kernels
                .iter()
                .map(|kernel| (show::kernel_heading(kernel), readings(&kernel.readings)))
                .collect(),
            facts: metrics::facts::lines(profile),
            notes: profile.notes.clone(),
        },
    }
}

fn readings(readings: &[Reading]) -> Vec<ReadingView> {
    readings
        .iter()
        .map(|reading| (show::reading_name(reading), quantity::reading(reading), reading.meaning.clone()))
        .collect()
}

fn call(answered: &Answered) -> CallView {
    let tokens = answered.usage.map_or_else(
        || "not counted".into(),
        |usage| format!("{} in, {} out", quantity::count(usage.input_tokens), quantity::count(usage.output_tokens)),
    );
    CallView {
        role: answered.call.role.name(),
        attempt: answered.call.attempt,
        model: answered.model.clone(),
        tokens,
        latency: quantity::wait(answered.latency_ms),
        prompt: answered.prompt.to_string(),
        reply: answered.reply.to_string(),
    }
}

/// The intrinsics and instructions in its candidate that the compiler does not know (Hawkeye, D.2).
pub(crate) fn invented(round: &Round) -> Vec<String> {
    match &round.evaluation {
        Some(Evaluation::Failed(Failure::Build { log })) => score::invented(log),
        _ => vec![],
    }
}

fn remarks(round: &Round) -> Vec<String> {
    let passed_over = round.passed_over.iter().map(|(role, why)| format!("The {} was passed over: {why}", role.name()));
    let looked_up = round
        .looked_up
        .iter()
        .map(|LookedUp { lookup, .. }| format!("The Coder looked up {} {}", lookup.look_up.name(), lookup.name));
    let misread = round.misread.iter().map(|(call, why)| format!("A reply could not be read ({call}): {why}"));
    let unreadable = round.unreadable.iter().map(|(role, why)| format!("No readable {} reply: {why}", role.name()));
    let steered = round.steered.iter().map(|how| format!("A person took part: {how}"));
    let not_timed = round.not_timed.iter().map(|why| format!("It passed its checks and could not be timed: {why}"));
    let weighed = round.weighed.iter().flat_map(progress::weighed).map(|line| line.trim().to_owned());
    let learned = round.reflected.iter().flat_map(progress::learned).map(|line| line.trim().to_owned());
    let unmeasured = round.unmeasured();
    let unmeasured = (!unmeasured.is_empty())
        .then(|| format!("The Judge reasons from what its profile does not have: {}", unmeasured.join(", ")));
    let invented = invented(round);
    let invented = (!invented.is_empty()).then(|| format!("It names what does not exist: {}", invented.join(", ")));
    unmeasured
        .into_iter()
        .chain(invented)
        .chain(passed_over)
        .chain(looked_up)
        .chain(misread)
        .chain(unreadable)
        .chain(steered)
        .chain(not_timed)
        .chain(weighed)
        .chain(learned)
        .collect()
}
