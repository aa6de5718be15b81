//! What is to be done, after settings, task and recorded run have been looked at together?

mod overruled;
mod seeded;

pub use overruled::{known, of_one_shape, overruled};
pub use seeded::seeded;

use crate::{
    config::{Config, Spec, Workshop},
    exit::Trouble,
    recall,
    store::{Record, RunFolder},
};
use agents::{event::Event, policy::Policy};
use kernelbench::{
    Source, Task, TimingPlan,
    load::{self, TaskError},
};
use std::path::{Path, PathBuf};

/// The policy where nobody names one.
const USUAL_POLICY: &str = "cudaforge";

/// A run to come.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The task.
    pub task: Task,
    /// How it is worked on.
    pub policy: Policy,
    /// What answers.
    pub spec: Spec,
    /// Whether the policy is a recorded run's: then nothing is decided anew that it does not say.
    pub recorded_policy: bool,
    /// The recorded run that answers because nobody named a model, and who answered in it.
    pub demonstration: Option<(PathBuf, Vec<String>)>,
}

impl Plan {
    /// Reads the task in this folder and chooses model and policy: those of the settings, else those of the recorded run
    /// that comes with the task.
    ///
    /// # Errors
    ///
    /// If the task or the policy cannot be read, or nothing says what answers.
    pub fn make(task_path: &Path, config: &Config) -> Result<Self, Trouble> {
        let task = self::task(task_path, config)?;
        let named = if config.model.spec.is_empty() { None } else { Some(spec(&config.model.spec)?) };
        let recorded = match &named {
            None => Some(load::recorded_run(task_path).ok_or_else(|| nothing_answers(&task))?),
            Some(Spec::Replay(run)) => Some(run.clone()),
            Some(_) => None,
        };
        let record = recorded.as_deref().map(|run| RunFolder::open(run)?.only_record()).transpose()?;
        let names_none = config.run.policy.is_empty();
        let policy = policy(config, record.as_ref().filter(|_| names_none).map(recorded_policy).transpose()?)?;
        let demonstration = match (&named, &recorded, &record) {
            (None, Some(run), Some(record)) => Some((run.clone(), recall::who_answered(record))),
            _ => None,
        };
        let policy = searching(policy, &task, config)?;
        let spec = named.or(recorded.map(Spec::Replay)).ok_or_else(|| nothing_answers(&task))?;
        let recorded_policy = config.run.policy.is_empty() && record.is_some();
        Ok(Self { task, policy, spec, recorded_policy, demonstration })
    }
}

/// The task at this path, as the settings have it evaluated.
///
/// # Errors
///
/// If it cannot be read.
pub fn task(path: &Path, config: &Config) -> Result<Task, TaskError> {
    load::task(path).map(|task| with_arithmetic(task, &config.workshop))
}

/// A task whose reference runs with the arithmetic and in the precision of the settings, and whose candidates are judged by
/// their rule, where it is a problem.
#[must_use]
pub fn with_arithmetic(mut task: Task, settings: &Workshop) -> Task {
    if let Source::Problem(problem) = &mut task.source {
        (problem.reference, problem.beyond) = (settings.reference, settings.beyond);
    }
    task.in_precision(settings.precision)
}

/// What the settings name as the model.
///
/// # Errors
///
/// If it does not name one.
pub fn spec(text: &str) -> Result<Spec, Trouble> {
    text.parse().map_err(Trouble::usage)
}

/// The policy that the settings name, else a run's, else the usual one, with the settings' own numbers.
///
/// # Errors
///
/// If there is no such policy, or its file is wrong.
pub fn policy(config: &Config, recorded: Option<Policy>) -> Result<Policy, Trouble> {
    let mut policy = match (config.run.policy.as_str(), recorded) {
        ("", Some(recorded)) => recorded,
        ("", None) => named_policy(USUAL_POLICY)?,
        (name, _) => named_policy(name)?,
    };
    let run = &config.run;
    if run.rounds > 0 {
        policy.rounds = run.rounds;
    }
    policy.shapes = run.shapes.unwrap_or(policy.shapes);
    policy.planner = run.planner.unwrap_or(policy.planner);
    policy.features = run.features.or(policy.features);
    policy.approaches &= !run.no_approaches;
    policy.lookups = policy.lookups.filter(|_| !run.no_lookups);
    let asks_for_kernels = policy.sequence.is_none() && policy.search.is_none();
    if config.prompts.context.starts_with("library:") && asks_for_kernels && policy.lookups.is_none() {
        let context = &config.prompts.context;
        return Err(Trouble::usage(format!(
            "prompts.context = {context:?}: its pages are looked up, and the policy {} looks nothing up, or run.no_lookups \
             is set: expected a policy with `lookups`, such as hawkeye, or folder:PATH",
            policy.name
        )));
    }
    if !run.timed.is_empty() {
        policy.timed = overruled::read(&run.timed);
    }
    if config.timing.warmup > 0 {
        policy.timing.warmup = config.timing.warmup;
    }
    if config.timing.repetitions > 0 {
        policy.timing.repetitions = config.timing.repetitions;
    }
    Ok(policy)
}

/// The policy of a batch with what the settings say of its search, over all of these tasks.
///
/// # Errors
///
/// If it searches nothing, one of the tasks cannot be searched, or the operator that is named is not one for all of them.
pub fn searching_all<'a>(
    policy: Policy,
    tasks: impl IntoIterator<Item = &'a Task>,
    config: &Config,
) -> Result<Policy, Trouble> {
    tasks.into_iter().try_fold(policy, |policy, task| {
        let before = policy.search.as_ref().and_then(|search| search.operator.clone());
        let policy = searching(policy, task, config)?;
        let now = policy.search.as_ref().and_then(|search| search.operator.as_ref());
        if before.is_some() && before.as_ref() != now {
            let (name, folder) = (&task.name, &config.run.start);
            let why = "holds another operator for it than for those before: all tasks are to be in one language";
            return Err(Trouble::usage(format!("{name}: run.start: {folder} {why}")));
        }
        Ok(policy)
    })
}

/// The same with what the settings say of its search.
fn searching(mut policy: Policy, task: &Task, config: &Config) -> Result<Policy, Trouble> {
    let run = &config.run;
    let Some(search) = &mut policy.search else {
        if run.evaluations > 0 || run.open_nodes > 0 || !run.start.is_empty() {
            let name = &policy.name;
            return Err(Trouble::usage(format!("the policy {name} searches nothing: --policy qimeng does")));
        }
        return Ok(policy);
    };
    if task.gfx().is_some() {
        let why = "is compiled, not run: a search ranks operators by their times";
        return Err(Trouble::usage(format!("{} {why}", task.name)));
    }
    if task.context().is_none() {
        return Err(Trouble::usage("a problem in Python has no sketch: qimeng works on kernels in C, C++ and CUDA"));
    }
    search.evaluations = Some(run.evaluations).filter(|count| *count > 0).or(search.evaluations);
    search.open_nodes = Some(run.open_nodes).filter(|count| *count > 0).or(search.open_nodes);
    if !run.start.is_empty() {
        search.operator = Some(crate::start::operator(Path::new(&run.start), task).map_err(Trouble::usage)?);
    }
    Ok(policy)
}

/// A policy that comes with the program, or one in a file.
fn named_policy(name: &str) -> Result<Policy, Trouble> {
    if let Some(text) = Policy::embedded(name) {
        return parse(name, text);
    }
    let policy = policy_in(name)?;
    if policy.timing.repetitions < TimingPlan::FEWEST {
        let why = "timing.repetitions: one sample does not tell how far off it may be; expected 2 or more";
        return Err(Trouble::usage(format!("{name}: {why}")));
    }
    Ok(policy)
}

fn policy_in(name: &str) -> Result<Policy, Trouble> {
    let is_file = Path::new(name).is_file();
    if !is_file {
        let known: Vec<_> = Policy::names().collect();
        return Err(Trouble::usage(format!(
            "there is no policy {name:?}, neither built in ({}) nor as a file",
            known.join(", ")
        )));
    }
    let text =
        std::fs::read_to_string(name).map_err(|e| Trouble::usage(format!("{name}: cannot read the policy: {e}")))?;
    parse(name, &text)
}

fn recorded_policy(record: &Record) -> Result<Policy, Trouble> {
    let hash = record.events().find_map(|event| match event {
        Event::Opened { policy, .. } => Some(policy),
        _ => None,
    });
    let hash = hash.ok_or_else(|| Trouble::record("the recorded run holds no event"))?;
    parse("the recorded run's policy", &record.blobs.fetch(&hash)?)
}

/// Reads a policy; `name` is for the error.
///
/// # Errors
///
/// Where it is wrong, with the line.
pub fn parse(name: &str, text: &str) -> Result<Policy, Trouble> {
    Policy::parse(text).map_err(|e| Trouble::usage(format!("{name}: this is not a policy:\n{e}")))
}

fn nothing_answers(task: &Task) -> Trouble {
    Trouble::usage(format!(
        "nothing says what answers, and the task {} has no recorded run: name a model with --model openai:NAME \
         (and OPENAI_API_KEY, OPENAI_BASE_URL), answer yourself with --model mailbox:DIR, or set model.spec in warpsmith.toml",
        task.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernelbench::{Beyond, Precision, ReferenceMode};

    #[test]
    fn a_problem_is_evaluated_as_the_settings_say() {
        let mut config = Config::default();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/problems/level1/7_ReLU.py");
        let rules = |config: &Config| {
            let task = task(&path, config).unwrap();
            task.problem().map(|problem| (problem.reference, problem.beyond, problem.precision)).unwrap()
        };
        assert_eq!(rules(&config), (ReferenceMode::KernelBench, Beyond::Label, Precision::Fp32));
        let workshop = &mut config.workshop;
        (workshop.reference, workshop.beyond) = (ReferenceMode::Ieee, Beyond::Failure);
        workshop.precision = Precision::Bf16;
        assert_eq!(rules(&config), (ReferenceMode::Ieee, Beyond::Failure, Precision::Bf16));
    }
}
