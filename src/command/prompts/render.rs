//! `warpsmith prompts render`: the prompt that a role would be sent for a task, or was due in a round of a run.
//!
//! A run's round is rendered from its record with today's templates. Without a run, what is missing (a machine, a candidate,
//! its times and its profile) is a simulated machine's, and the error stream says so.

use super::super::{on_threads, resume::opened};
use crate::{
    cli::{RenderArgs, RenderRole},
    config::Config,
    exit::Trouble,
    plan,
    store::{Record, RunFolder},
};
use agents::{
    event::Step,
    policy::Guidance,
    tester::{SHAPES, shape_bytes},
    trajectory::{Round, Trajectory},
};
use kernelbench::{Candidate, Evaluation, Failure, Simulated, Suite, Task, TimingPlan, Workshop};
use metrics::{Machine, MachineKind, Profile};
use prompts::{Approaches, Fix, Hints, Optimization, Prompt, Prompts, Suggestions, Verdict};

/// How the simulated machine times its candidate.
const PLAN: TimingPlan = TimingPlan::median_of(1, 20);

/// What a prompt is about.
struct Situation {
    task: Task,
    machine: Machine,
    step: String,
    candidate: Candidate,
    evaluation: Evaluation,
    profile: Option<Profile>,
    verdict: Option<Verdict>,
    /// What was ranked, and which of it the round's first candidate is to carry out.
    approaches: Option<Approaches>,
    carried_out: Option<usize>,
    suggestions: Option<Suggestions>,
    /// What the policy has told of features, and those that a failed candidate was to bring in.
    guidance: Guidance,
    wanted: Vec<String>,
    /// What is not of a run, in words.
    missing: Vec<String>,
}

/// The prompt, and what was missing for it.
pub(super) fn render(
    arguments: &RenderArgs,
    config: &Config,
    words: &Prompts,
) -> Result<(Prompt, Vec<String>), Trouble> {
    let situation = match &arguments.run {
        Some(run) => of_run(arguments, &RunFolder::open(run)?)?,
        None => on_threads(of_task(arguments, config))?,
    };
    let role = arguments.role;
    let prompt = situation.prompt(role, words).ok_or_else(|| {
        let step = &situation.step;
        Trouble::usage(format!(
            "the {} is not asked in the step {step:?}; expected the coder in seed, fix, optimize, refine, retry or \
             suggest, the judge in fix or optimize, the planner in seed or suggest, the tester in shapes",
            role.name()
        ))
    })?;
    Ok((prompt, situation.missing))
}

impl Situation {
    fn prompt(&self, role: RenderRole, words: &Prompts) -> Option<Prompt> {
        let (task, machine, candidate) = (&self.task, &self.machine, &self.candidate);
        let profile = self.profile.as_ref();
        let passed = self.evaluation.passed();
        Some(match (role, self.step.as_str()) {
            (RenderRole::Coder, "seed") => match (&self.approaches, self.carried_out) {
                (Some(approaches), Some(at)) => words.seed_planned(task, machine, false, (approaches, at)),
                _ => words.seed(task, machine),
            },
            (RenderRole::Coder, "fix") => words.fix(task, machine, candidate, &self.failure(), self.fix().as_ref()),
            (RenderRole::Coder, "optimize") => words.optimize(task, machine, candidate, self.optimization().as_ref()),
            (RenderRole::Coder, "refine") => words.refine(task, machine, candidate, &self.evaluation, profile),
            (RenderRole::Coder, "retry") => words.retry(task, machine, candidate, passed.is_some()),
            (RenderRole::Coder, "suggest" | "apply") => {
                words.apply(task, machine, candidate, passed.is_some(), self.suggestions.as_ref())
            }
            (RenderRole::Judge, "fix") => words.diagnose(task, machine, candidate, &self.failure()),
            (RenderRole::Judge, "optimize") => {
                let told = self.guidance != Guidance::Off;
                let offered = if told { words.offer(task, machine, profile, &[]) } else { vec![] };
                words.advise(
                    task,
                    machine,
                    candidate,
                    passed?,
                    profile,
                    Hints { offered: &offered, approaches: self.approaches.as_ref(), ..Hints::default() },
                )
            }
            (RenderRole::Planner, "seed") => words.approaches(task, machine),
            (RenderRole::Planner, "suggest") => words.suggest(task, machine, candidate, &self.evaluation, profile),
            (RenderRole::Tester, "shapes") => {
                // A kernel in CUDA runs on a GPU, whatever stands in for it here.
                let on = if task.is_cuda() { MachineKind::Gpu } else { machine.kind };
                words.shapes(task, SHAPES, shape_bytes(on))
            }
            _ => return None,
        })
    }

    fn fix(&self) -> Option<Fix> {
        let Some(Verdict::Fix(fix)) = self.verdict.clone() else { return None };
        Some(Fix { features: self.guided(self.wanted.clone()), ..fix })
    }

    fn optimization(&self) -> Option<Optimization> {
        let Some(Verdict::Optimization(optimization)) = self.verdict.clone() else { return None };
        Some(Optimization { features: self.guided(optimization.features), ..optimization })
    }

    /// The features whose examples the Coder is given.
    fn guided(&self, named: Vec<String>) -> Vec<String> {
        if self.guidance == Guidance::Guides { named } else { vec![] }
    }

    /// How the candidate failed; a build error where it did not.
    fn failure(&self) -> Failure {
        match &self.evaluation {
            Evaluation::Failed(failure) => failure.clone(),
            Evaluation::Passed(_) | Evaluation::Counted(_) | Evaluation::Compiled(_) => {
                Failure::Build { log: "(the log of the compiler would stand here)".to_owned() }
            }
        }
    }
}

/// A round of a run, as its record has it.
fn of_run(arguments: &RenderArgs, folder: &RunFolder) -> Result<Situation, Trouble> {
    let record = match &arguments.task {
        Some(task) => folder.record(task)?,
        None => folder.only_record()?,
    };
    let story: Trajectory = record.events().collect();
    let round = round(&story, arguments.round)?;
    let (mut task, policy) = opened(&record)?;
    if let Some(baseline) = &story.baseline {
        task = task.with_signature(&baseline.signature);
    }
    let no_machine = || Trouble::record("the record names no machine");
    let (candidate, evaluation, mut missing) = base(&record, &story, round, &task)?;
    if round.verdict.is_none() && round.step.name() == "optimize" {
        missing.push("the record has no verdict of this round".to_owned());
    }
    Ok(Situation {
        step: arguments.step.clone().unwrap_or_else(|| round.step.name().to_owned()),
        task,
        machine: story.machine.clone().ok_or_else(no_machine)?,
        candidate,
        evaluation,
        profile: round.profile.clone().and_then(Result::ok).or_else(|| weighed_by(&story, round)),
        verdict: round.verdict.clone(),
        approaches: story.approaches().cloned(),
        carried_out: match round.step {
            Step::Seed => story.next_approach(round.number).map(|(_, at)| at),
            _ => Some(0),
        },
        suggestions: round.suggestions.clone(),
        guidance: policy.features.unwrap_or_default(),
        wanted: round.step.base().map(|base| story.features_of(base)).unwrap_or_default(),
        missing,
    })
}

/// What the base of a round was weighed by: it is profiled once.
fn weighed_by(story: &Trajectory, round: &Round) -> Option<Profile> {
    round.step.base().and_then(|base| story.counters(base)).cloned()
}

/// The round of this number, else the last.
fn round(story: &Trajectory, number: Option<u32>) -> Result<&Round, Trouble> {
    let known: Vec<String> = story.rounds.iter().map(|round| round.number.to_string()).collect();
    let found = story.rounds.iter().rev().find(|round| number.is_none_or(|number| round.number == number));
    let none = || Trouble::usage(format!("the run has no such round; its rounds are {}", known.join(", ")));
    found.ok_or_else(none)
}

/// The candidate that a round starts from, and what came of it; the reference where it starts from none.
fn base(
    record: &Record,
    story: &Trajectory,
    round: &Round,
    task: &Task,
) -> Result<(Candidate, Evaluation, Vec<String>), Trouble> {
    let Some(base) = round.step.base() else {
        let why = "the round starts from no candidate: the reference stands in its place".to_owned();
        let none = Evaluation::Failed(Failure::Build { log: String::new() });
        return Ok((Candidate::new(task.reference_as_candidate()), none, vec![why]));
    };
    let evaluation = story.evaluation(base).cloned();
    let evaluation =
        evaluation.ok_or_else(|| Trouble::record("the record has no evaluation of the round's candidate"))?;
    Ok((Candidate::new(record.blobs.fetch(base)?), evaluation, vec![]))
}

/// A task alone: the rest is the simulated machine's.
async fn of_task(arguments: &RenderArgs, config: &Config) -> Result<Situation, Trouble> {
    let path =
        arguments.task.as_deref().ok_or_else(|| Trouble::usage("expected a task's folder or file, or --run RUN"))?;
    if arguments.round.is_some() {
        return Err(Trouble::usage("--round names a round of a run: expected --run RUN too"));
    }
    let task = plan::task(path.as_ref(), config)?;
    let step = arguments.step.clone().unwrap_or_else(|| "seed".to_owned());
    let (workshop, suite) = (Simulated::new(), Suite::of_task(&task));
    let mark = match (step.as_str(), task.problem().is_some()) {
        ("fix", true) => "# simulate: wrong\n",
        ("fix", false) => "// simulate: wrong\n",
        _ => "",
    };
    let candidate = Candidate::new(format!("{mark}{}", task.reference_as_candidate()));
    let evaluation = workshop.evaluate(&task, &candidate, &suite, &PLAN).await?;
    let profile = profile(&workshop, &task, &candidate, &suite).await?;
    let machine = workshop.machine().clone();
    let mut missing = vec!["no run was named: machine, candidate, its times and its profile are simulated".to_owned()];
    if task.problem().is_some() {
        missing.push("the inputs' shapes, types and strides stand where a reference has been opened".to_owned());
    }
    let (verdict, approaches, carried_out, suggestions) = (None, None, None, None);
    let (guidance, wanted) = (Guidance::Off, vec![]);
    Ok(Situation {
        task,
        machine,
        step,
        candidate,
        evaluation,
        profile,
        verdict,
        approaches,
        carried_out,
        suggestions,
        guidance,
        wanted,
        missing,
    })
}

/// The simulated profile of a candidate that passes.
async fn profile(
    workshop: &Simulated,
    task: &Task,
    candidate: &Candidate,
    suite: &Suite,
) -> Result<Option<Profile>, Trouble> {
    let Ok(built) = workshop.build(task, candidate).await? else { return Ok(None) };
    let Ok(verified) = workshop.check(task, built, suite).await? else { return Ok(None) };
    Ok(Some(workshop.profile(task, &verified, suite).await?))
}
