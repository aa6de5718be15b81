//! What stands on the page, from top to bottom?

use super::{
    ReportInput, chart::SpeedupChart, claim, claim::Headline, round::RoundView, samples, samples::SamplesChart,
    search::SearchView, spent,
};
use crate::{
    quantity,
    scores::{Spent, text},
};
use agents::{event::End, policy::Policy, trajectory::Trajectory};
use kernelbench::{Baseline, Beyond, Certificate, CertificateVerdict, Checked, ReferenceMode, Task, Timed, Variant};
use metrics::Statistic;
use serde::Serialize;
use std::collections::BTreeSet;

/// A name and what stands beside it.
type Fact = (String, String);

/// Everything that the template reads.
#[derive(Serialize)]
pub(super) struct Page {
    /// What ids on the page begin with: nothing where it stands alone.
    anchor: String,
    title: String,
    summary: String,
    headline: Headline,
    facts: Vec<Fact>,
    certificate: Option<CertificateView>,
    speedups: Option<SpeedupChart>,
    /// Whose samples are shown: "certified", or "in round 4".
    measured: String,
    samples: Vec<SamplesChart>,
    search: Option<SearchView>,
    rounds: Vec<RoundView>,
    time: Option<spent::TimeBar>,
    bills: Vec<spent::Bill>,
    /// As in a batch's report.
    stages: Vec<Vec<String>>,
    reference: Option<Listing>,
    best: Option<Listing>,
    machine: Vec<Fact>,
    reproduction: Vec<Fact>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct CertificateView {
    verdict: String,
    passed: bool,
    checked: Vec<Checked>,
    earlier: Vec<String>,
}

/// A source, line by line.
#[derive(Serialize)]
struct Listing {
    title: String,
    hash: String,
    lines: Vec<String>,
}

impl Page {
    /// The page of one task, whose ids begin with `anchor`.
    pub(super) fn of(input: &ReportInput, anchor: &str) -> Self {
        let story = input.trajectory;
        let task = task(input);
        let (measured, timed) = measured(story);
        Self {
            anchor: anchor.to_owned(),
            title: story.name.clone(),
            summary: task.as_ref().map(|task| task.summary.clone()).unwrap_or_default(),
            headline: Headline::of(story),
            facts: facts(input),
            certificate: story.certified().or(story.certificates.last()).map(|last| certificate(story, last)),
            speedups: SpeedupChart::of(story),
            measured,
            samples: timed.map(samples::charts).unwrap_or_default(),
            search: SearchView::of(story, task.as_ref()),
            rounds: story.rounds.iter().map(|round| RoundView::of(input, round)).collect(),
            time: spent::TimeBar::of(input.lines),
            bills: spent::bills(input.lines),
            stages: text::stage_rows(&Spent::of(input.lines)).into_iter().skip(1).collect(),
            reference: reference(input),
            best: best(input),
            machine: machine(story),
            reproduction: reproduction(input, task.as_ref()),
            notes: story.suite_notes.clone(),
        }
    }
}

fn task(input: &ReportInput) -> Option<Task> {
    serde_json::from_str(&(input.fetch)(input.trajectory.task.as_ref()?)?).ok()
}

/// The reference's source, where the record holds it.
pub(super) fn reference_source(input: &ReportInput) -> Option<String> {
    Some(task(input)?.reference().to_owned())
}

fn measured(story: &Trajectory) -> (String, Option<&Timed>) {
    if let Some(timed) = claim::certified(story) {
        return ("certified".into(), Some(timed));
    }
    let best = story.best();
    let timed = best.as_ref().and_then(|best| story.evaluation(&best.candidate)?.passed());
    (best.as_ref().map_or_else(String::new, |best| format!("in round {}, not certified", best.round)), timed)
}

fn facts(input: &ReportInput) -> Vec<Fact> {
    let story = input.trajectory;
    let mut facts = vec![fact("Answered by", &story.model)];
    let models: BTreeSet<&str> = story.answers().map(|answered| answered.model.as_str()).collect();
    if !models.is_empty() {
        facts.push(fact("Model, in its own words", &Vec::from_iter(models).join(", ")));
    }
    facts.extend(story.machine.as_ref().map(|machine| fact("Machine", &format!("{}, {}", machine.name, machine.arch))));
    facts.extend(policy(input).map(|policy| fact("Policy", &policy.summary)));
    if let (Some(first), Some(last)) = (input.lines.first(), input.lines.last()) {
        let when =
            jiff::Timestamp::from_millisecond(first.at_ms).map(|at| at.strftime("%Y-%m-%d %H:%M UTC").to_string());
        facts.push(fact("Began", &when.unwrap_or_default()));
        facts.push(fact("Took", &quantity::wait(u64::try_from(last.at_ms - first.at_ms).unwrap_or(0))));
    }
    facts.extend(story.end.map(|end| fact("Ended", &describe(end))));
    facts
}

fn describe(end: End) -> String {
    let words = match end {
        End::OutOfRounds => "after all rounds that the policy allows",
        End::RecordEnds => "where the record that answered ends",
        End::Finished => "when it was told to finish",
        End::SequenceEnds => "after every transformation of the sequence",
        End::Searched => "when the search was over",
        End::Counted => "when a candidate was right, on a processor that is emulated",
        End::Compiled => "when a candidate compiled, for a GPU that is not here",
        End::Stalled => "after as many rounds without gain as the policy bears",
        End::Stuck => "where a transformation failed in every try",
        End::Stopped => "when the Planner proposed to stop",
        limit => return format!("at the limit {}", limit.limit().unwrap_or_default()),
    };
    words.to_owned()
}

fn policy(input: &ReportInput) -> Option<Policy> {
    Policy::parse(&(input.fetch)(input.trajectory.policy.as_ref()?)?).ok()
}

fn certificate(story: &Trajectory, shown: &Certificate) -> CertificateView {
    let candidate = shown.candidate.short();
    let (passed, verdict) = match &shown.verdict {
        CertificateVerdict::Certified(timed) => {
            let apart = super::apart(story).map(|words| format!(" Mind that {words}.")).unwrap_or_default();
            (true, format!("Candidate {candidate} is right and measured {}.{apart}", quantity::speedup(&timed.speedup)))
        }
        CertificateVerdict::Refused(failure) => (false, format!("Candidate {candidate} was refused: {failure}.")),
    };
    let earlier =
        story.certificates.iter().filter(|other| !std::ptr::eq(*other, shown)).map(|other| match &other.verdict {
            CertificateVerdict::Refused(failure) => {
                format!("Before it, {} was refused: {failure}.", other.candidate.short())
            }
            CertificateVerdict::Certified(_) => format!("{} was certified too.", other.candidate.short()),
        });
    CertificateView { verdict, passed, checked: shown.checked.clone(), earlier: earlier.collect() }
}

fn reference(input: &ReportInput) -> Option<Listing> {
    let source = reference_source(input)?;
    let hash = kernelbench::Hash::of(source.as_bytes());
    Some(listing("The reference".into(), hash.as_str(), &source))
}

fn best(input: &ReportInput) -> Option<Listing> {
    let story = input.trajectory;
    let certified = story.certified().map(|certificate| ("The certified candidate".into(), &certificate.candidate));
    let best = story.best();
    let uncertified =
        best.as_ref().map(|best| (format!("The best candidate, of round {}", best.round), &best.candidate));
    let (title, id) = certified.or(uncertified)?;
    Some(listing(title, id.as_str(), &(input.fetch)(id)?))
}

fn listing(title: String, hash: &str, source: &str) -> Listing {
    Listing { title, hash: hash.into(), lines: source.lines().map(str::to_owned).collect() }
}

fn machine(story: &Trajectory) -> Vec<Fact> {
    let Some(machine) = &story.machine else { return vec![] };
    let mut facts: Vec<Fact> = machine.facts.iter().map(|fact| (fact.name.clone(), fact.value.clone())).collect();
    facts.extend(machine.bandwidths.iter().map(|bandwidth| {
        let size = quantity::count(bandwidth.working_set_bytes >> 10);
        (format!("Copy bandwidth at {size} KiB"), format!("{:.1} GB/s", bandwidth.bytes_per_second / 1e9))
    }));
    facts.extend(machine.peak_flops.map(|peak| fact("Peak of one core, f32", &format!("{:.1} GFLOP/s", peak / 1e9))));
    facts
}

fn reproduction(input: &ReportInput, task: Option<&Task>) -> Vec<Fact> {
    let story = input.trajectory;
    let mut facts = input.facts.to_vec();
    let build = story.certificates.last().map(|c| &c.build).or(story.baseline.as_ref().map(|baseline| &baseline.build));
    facts.extend(build.map(|build| fact("Compiler line", build)));
    facts.extend(story.baseline.iter().flat_map(|baseline| baselines(baseline, measured(story).1)));
    facts.extend(policy(input).map(|policy| fact("Timing plan", &plan(&policy))));
    facts.extend(task.map(|task| {
        let tolerance = task.tolerance;
        let rule = format!("|c - r| ≤ {:e} + {:e} × |r|", tolerance.atol, tolerance.rtol);
        let why = if task.tolerance_why.is_empty() { String::new() } else { format!("; {}", task.tolerance_why) };
        fact("Right means", &format!("{rule} for {} % of the elements; NaN never passes{why}", tolerance.share * 100.0))
    }));
    facts.extend(task.and_then(Task::problem).map(|problem| {
        let tf32 = match problem.reference {
            ReferenceMode::KernelBench => "the reference with torch's defaults, as KernelBench's evaluation runs it",
            ReferenceMode::Ieee => "the reference without TF32",
        };
        let beyond = match problem.beyond {
            Beyond::Label => "",
            Beyond::Failure => "; what differs on inputs of both signs is wrong",
        };
        let eight = story.baseline.as_ref().is_some_and(|baseline| baseline.signature.draws_eight_bits());
        let stay = if eight { ", inputs of eight bits as they are drawn" } else { "" };
        let name = problem.precision.torch_name();
        fact("Arithmetic", &format!("weights and inputs in {name}{stay}; {tf32}{beyond}"))
    }));
    facts.extend(story.suite.as_ref().map(|suite| {
        let timed = suite.timed.join(", ");
        fact(
            "Shapes",
            &format!("checked on {} cases, timed on {timed}; suite {}", suite.cases.len(), suite.id().short()),
        )
    }));
    facts.push(fact("Seeds", "drawn anew for every check, kept from the candidate's process, and not recorded"));
    facts.extend(story.task.as_ref().map(|hash| fact("Task", hash.as_str())));
    facts.extend(story.policy.as_ref().map(|hash| fact("Policy", hash.as_str())));
    facts
}

/// What else the reference was timed as, what the best candidate is beside it, and what is known against the task.
fn baselines(baseline: &Baseline, best: Option<&Timed>) -> Vec<Fact> {
    let told = |variant: &Variant| {
        let Some(speedup) = &variant.speedup else { return fact(&variant.name, &format!("none: {}", variant.note)) };
        let time = variant
            .timing
            .as_ref()
            .map_or_else(String::new, |timing| format!("{}, ", quantity::time(timing.typical_ns(Statistic::Median))));
        let beside = best.and_then(|timed| variant.against(&timed.speedup)).map_or_else(String::new, |speedup| {
            format!("; the best candidate: {} over it", quantity::speedup(&speedup))
        });
        fact(&variant.name, &format!("{time}{} over {}{beside}", quantity::speedup(speedup), baseline.over()))
    };
    let labels = baseline.labels.iter().map(|label| fact("Known against the task", &label.text));
    baseline.variants.iter().map(told).chain(labels).collect()
}

fn plan(policy: &Policy) -> String {
    let plan = policy.timing;
    let statistic = match plan.statistic {
        Statistic::Mean => "mean",
        Statistic::Median => "median",
    };
    format!(
        "up to {} warm-up calls and {} samples of each, {statistic}; reference and candidate interleaved in random order",
        plan.warmup, plan.repetitions
    )
}

fn fact(name: &str, value: &str) -> Fact {
    (name.into(), value.into())
}
