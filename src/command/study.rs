//! `warpsmith study`: PEAK's research questions, asked of a workflow

use super::{json, resume, say, transform::Begun, workflow};
use crate::{
    at::At,
    batch::limits::{Meter, Used},
    cli::{
        LimitArgs, ModelArgs, ResumeArgs, StudyCommand, StudyErrorsArgs, SuccessRateArgs, TrajectoryArgs,
        TuningDepthArgs,
    },
    config::{Config, Layers, Limits, Spec},
    exit::{Exit, Trouble},
    key::Environment,
    plan,
    progress::{Screen, be_quiet},
    session::Steps,
    store::{Lock, RunFolder, RunHeader},
    study::{Depth, Errors, Evolution, ModelTries, StepName, SuccessRates},
    wiring::Answering,
};
use agents::{
    event::{End, Event},
    planner::Request,
    trajectory::Trajectory,
    workflow::{Checkpoint, Fate, Ordered, TuningPlan},
};
use kernelbench::Hash;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Asks one of the questions.
pub(super) fn study(what: &StudyCommand, layers: &Layers, environment: &Environment) -> Result<Exit, Trouble> {
    match what {
        StudyCommand::Trajectory(arguments) => trajectory(arguments, &layers.config),
        StudyCommand::SuccessRate(arguments) => success_rate(arguments, layers, environment),
        StudyCommand::Errors(arguments) => errors(arguments),
        StudyCommand::TuningDepth(arguments) => tuning_depth(arguments, layers, environment),
    }
}

/// The speed along a run's checkpoints.
fn trajectory(arguments: &TrajectoryArgs, config: &Config) -> Result<Exit, Trouble> {
    let (at, to) = checkpoint(&arguments.run, config)?;
    let evolution = Evolution::of(&at.story, &to).map_err(|why| Trouble::usage(format!("{}: {why}", at.label())))?;
    say(&if arguments.json { json(&evolution) } else { evolution.text() });
    Ok(Exit::Done)
}

/// The workflow that these words name, and its checkpoint: the head where none is named.
fn checkpoint(words: &str, config: &Config) -> Result<(At, Checkpoint), Trouble> {
    let expected = || Trouble::usage(format!("{words}: expected the folder of a run, or RUN@NAME"));
    let at = At::find(words, &config.run.folder)?.ok_or_else(expected)?;
    let policy = at.policy()?;
    if policy.sequence.is_none() {
        let why = format!("its policy is {}, which makes no checkpoints: a study is of a workflow", policy.name);
        return Err(Trouble::usage(format!("{words}: {why}")));
    }
    let head = || at.story.workflow.head().cloned();
    let to = workflow::named(&at)?.or_else(head);
    let none = || Trouble::usage(format!("{words}: there is no checkpoint in this run yet"));
    let to = to.ok_or_else(none)?;
    Ok((at, to))
}

/// Has each model try each step, and prints how often it succeeds.
fn success_rate(arguments: &SuccessRateArgs, layers: &Layers, environment: &Environment) -> Result<Exit, Trouble> {
    let (at, to) = checkpoint(&arguments.run, &layers.config)?;
    let steps = StepName::on_the_way(&at.story.workflow, &to);
    if steps.is_empty() {
        let why = "no transformation led to this checkpoint: there is no step to try";
        return Err(Trouble::usage(format!("{}: {why}", arguments.run)));
    }
    if arguments.model.is_empty() {
        return Err(Trouble::usage("no model is named: give --model SPEC, once for each"));
    }
    quiet_for(arguments.json);
    let out = out(arguments.out.as_deref(), &at, "success-rate", &layers.config)?;
    let (run, repeats, folder) = (&arguments.run, arguments.repeats, out.display());
    let models = arguments.model.join(" --model ");
    let usd = arguments.usd.map(|usd| format!(" --usd {usd}")).unwrap_or_default();
    let tokens = arguments.tokens.map(|tokens| format!(" --tokens {tokens}")).unwrap_or_default();
    let again =
        format!("warpsmith study success-rate {run} --model {models} --repeats {repeats} --out {folder}{usd}{tokens}");
    let trying = Trying { at: &at, steps: &steps, out: &out, again, arguments, layers, environment };
    // Whether every model can be asked is known before one is.
    let models = trying.headers()?;
    let runs = out.join("runs");
    fs::create_dir_all(&runs).map_err(|e| Trouble::record(format!("{}: cannot make it: {e}", runs.display())))?;
    let (_held, _) = Lock::take(&out)?;
    let (mut stopped, mut limited) = (None, vec![]);
    for (model, header) in &models {
        match trying.go_on(model, header) {
            Ok(None) => {}
            Ok(Some(limit)) => {
                limited.push(format!("{model} reached its limit of {limit}: it goes on with a higher one"));
            }
            Err(waiting) if waiting.exit == Exit::Waiting => stopped = Some(waiting),
            Err(other) => {
                stopped = Some(other);
                break;
            }
        }
    }
    let known = models_of(&out)?;
    let tries = known.iter().map(|(model, story)| ModelTries::of(model, &steps, story)).collect();
    let rates = SuccessRates::of(steps.clone(), tries);
    say(&if arguments.json { json(&rates) } else { format!("\n{}\nstudy      {folder}", rates.text()) });
    let screen = Screen::new(false);
    for line in &limited {
        screen.warn(line);
    }
    stopped.map_or(Ok(Exit::Done), Err)
}

/// The tries of models.
struct Trying<'a> {
    at: &'a At,
    steps: &'a [StepName],
    out: &'a Path,
    again: String,
    arguments: &'a SuccessRateArgs,
    layers: &'a Layers,
    environment: &'a Environment,
}

impl Trying<'_> {
    /// Each model, with the header of its run.
    fn headers(&self) -> Result<Vec<(String, RunHeader)>, Trouble> {
        let mut models: Vec<(String, RunHeader)> = vec![];
        for model in &self.arguments.model {
            if models.iter().all(|(known, _)| known != model) {
                models.push((model.clone(), self.header(model)?));
            }
        }
        Ok(models)
    }

    /// The run's header with another model, and without limits: what was spent before the study is not the model's.
    fn header(&self, model: &str) -> Result<RunHeader, Trouble> {
        let mut header = self.at.folder.header()?;
        let mut settings = self.environment.recorded(&self.layers.config.model);
        model.clone_into(&mut settings.spec);
        // It is this model that is tried, whatever a role has otherwise.
        for role in settings.roles.values_mut() {
            (role.model, role.base_url, role.api_key, role.api_key_file) = (None, None, None, None);
        }
        header.configuration.model = settings;
        header.configuration.limits = Limits::default();
        header.configuration.run.first_candidates.clear();
        let (config, environment, folder) = (&header.configuration, self.environment, self.out);
        let spec = plan::spec(model)?;
        if matches!(spec, Spec::Replay(_)) {
            let why = "a recorded run answers what it was asked, and no step that is tried anew: expected openai:NAME, \
                       openai-batch:NAME, mailbox:DIR or scripted:FILE";
            return Err(Trouble::usage(format!("--model {model}: {why}")));
        }
        let port = Answering { config, environment, exit_when_waiting: true, run: String::new(), folder };
        header.model = port.port(&spec)?.describe();
        Ok(header)
    }

    /// Makes the model's run where it is not there, and begins the tries that are missing; the limit that is reached, if one is.
    fn go_on(&self, model: &str, header: &RunHeader) -> Result<Option<&'static str>, Trouble> {
        let known = runs_of(self.out)?.into_iter().find(|(_, own)| own.configuration.model.spec == model);
        let fork = || self.at.folder.fork(&free(&self.out.join("runs"), model), header, is_checkpoint);
        let folder = known.map_or_else(fork, |(folder, _)| Ok(folder))?;
        let events: Vec<Event> = folder.only_record()?.events().collect();
        let limits = self.limits(&events);
        let story: Trajectory = events.into_iter().collect();
        foreign(&folder, &story, self.steps.iter().map(|step| &step.start))?;
        let (workflow, repeats) = (&story.workflow, self.arguments.repeats as usize);
        let begun: Vec<usize> = self.steps.iter().map(|step| step.begun(workflow)).collect();
        // Each step once before any is tried again, so that what is known meanwhile is known of all.
        let missing = (0..repeats).flat_map(|nth| {
            let steps = self.steps.iter().zip(&begun).filter(move |(_, begun)| **begun <= nth);
            steps.map(|(step, _)| Request::trial(&step.transformation, step.start.clone()))
        });
        let requests: Vec<Request> = missing.collect();
        let exit_when_waiting = self.arguments.exit_when_waiting;
        let steps = Steps { requests, study: Some(self.again.clone()) };
        let now = ModelArgs { exit_when_waiting, ..ModelArgs::default() };
        if steps.requests.is_empty() && story.workflow.open_order(&story.rounds).is_none() {
            return Ok(None);
        }
        if let Some(limit) = limits.reached(&story) {
            return Ok(Some(limit));
        }
        work(&folder, &story, (now, limits.args()), steps, self.layers, self.environment)?;
        let story: Trajectory = folder.only_record()?.events().collect();
        let begun: usize = self.steps.iter().map(|step| step.begun(&story.workflow)).sum();
        let is_over = begun >= self.steps.len() * repeats && story.workflow.open_order(&story.rounds).is_none();
        Ok(limits.reached(&story).filter(|_| !is_over))
    }

    /// The model's limits in a record that begins with the run's, up to its last checkpoint: what was used by then is not the
    /// model's, and no try makes a checkpoint.
    fn limits(&self, events: &[Event]) -> TryLimits {
        let begins = events.iter().rposition(is_checkpoint).map_or(0, |at| at + 1);
        let before = Used::in_events(&events[..begins]);
        TryLimits {
            usd: self.arguments.usd.map(|usd| usd + before.usd),
            tokens: self.arguments.tokens.map(|tokens| tokens.saturating_add(before.tokens)),
        }
    }
}

/// What a model's run may use, with what it began behind.
#[derive(Clone, Copy)]
struct TryLimits {
    usd: Option<f64>,
    tokens: Option<u64>,
}

impl TryLimits {
    fn args(self) -> LimitArgs {
        LimitArgs { usd: self.usd, tokens: self.tokens, ..LimitArgs::default() }
    }

    /// Which is reached, in words.
    fn reached(self, story: &Trajectory) -> Option<&'static str> {
        let (usd, tokens) = (self.usd.unwrap_or(0.0), self.tokens.unwrap_or(0));
        let limits = Limits { usd, tokens, ..Limits::default() };
        match (Arc::new(Meter::new(limits.of_one(), &[])).for_task())(story)? {
            End::TaskUsd => Some("dollars"),
            End::TaskTokens => Some("tokens"),
            _ => None,
        }
    }
}

/// Does what a study's run is still to do.
fn work(
    folder: &RunFolder,
    story: &Trajectory,
    (model, limits): (ModelArgs, LimitArgs),
    steps: Steps,
    layers: &Layers,
    environment: &Environment,
) -> Result<(), Trouble> {
    if steps.requests.is_empty() && story.workflow.open_order(&story.rounds).is_none() {
        return Ok(());
    }
    let run = ResumeArgs { run: folder.path().to_owned(), model, limits, ..ResumeArgs::default() };
    // It is one model that is tried, whatever a role has otherwise.
    let mut layers = layers.clone();
    layers.config.model.roles.clear();
    resume::transform(&run, &layers, environment, Begun { steps, seed: None }).map(drop)
}

/// What a study's run begins behind: the last checkpoint of the run that it is about.
fn is_checkpoint(event: &Event) -> bool {
    matches!(event, Event::Checkpointed(_))
}

/// Refuses a folder whose tries begin elsewhere.
fn foreign<'a>(
    folder: &RunFolder,
    story: &Trajectory,
    mut starts: impl Iterator<Item = &'a Hash>,
) -> Result<(), Trouble> {
    if starts.all(|start| story.workflow.checkpoint(start).is_some()) {
        return Ok(());
    }
    let why = "this does not hold the run's checkpoints: it is of another run, or of an earlier state; name another folder with --out";
    Err(Trouble::usage(format!("{}: {why}", folder.path().display())))
}

/// The folder that is named, else a new one; never that of the run itself, which stays as it is.
fn out(named: Option<&Path>, at: &At, study: &str, config: &Config) -> Result<PathBuf, Trouble> {
    let free = || RunFolder::free_name(&config.run.folder, &format!("{}-{study}", at.story.name));
    let out = named.map_or_else(free, Path::to_owned);
    let whole = |path: &Path| fs::canonicalize(path).ok();
    if whole(&out).is_some_and(|out| Some(out) == whole(at.folder.path())) {
        return Err(Trouble::usage(format!("{}: a study has a folder of its own", out.display())));
    }
    Ok(out)
}

/// A name for a model's run that is not taken: what the model is called, as far as a folder may be called so.
fn free(runs: &Path, model: &str) -> PathBuf {
    let last = model.rsplit('/').next().unwrap_or(model);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = last.chars().map(plain).take(60).collect();
    let name = name.trim_start_matches(['.', '-']);
    let numbered = (2..).map(|nth| runs.join(format!("{name}-{nth}")));
    let is_free = |path: &PathBuf| !path.exists();
    let first = if name.is_empty() { "model" } else { name };
    std::iter::once(runs.join(first)).chain(numbered).find(is_free).unwrap_or_else(|| runs.join(first))
}

/// The runs of a study by their headers, sorted by name.
fn runs_of(study: &Path) -> Result<Vec<(RunFolder, RunHeader)>, Trouble> {
    let runs = study.join("runs");
    let entries = fs::read_dir(&runs).map_err(|_| {
        let why = "this is not the folder of a success-rate study; expected what `warpsmith study success-rate` made";
        Trouble::usage(format!("{}: {why}", study.display()))
    })?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let whole = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        !hidden && path.join("run.toml").is_file()
    };
    let open = |path: PathBuf| {
        let folder = RunFolder::open(&path)?;
        let header = folder.header()?;
        Ok((folder, header))
    };
    paths.into_iter().filter(whole).map(open).collect()
}

/// The models of a study, in the order in which their runs began, each with what happened in it.
fn models_of(study: &Path) -> Result<Vec<(String, Trajectory)>, Trouble> {
    let runs = runs_of(study)?.into_iter();
    let story = |(folder, header): (RunFolder, RunHeader)| {
        Ok((header.configuration.model.spec, folder.only_record()?.events().collect()))
    };
    runs.map(story).collect()
}

/// Prints which errors the failed tries of a study were.
fn errors(arguments: &StudyErrorsArgs) -> Result<Exit, Trouble> {
    let models = models_of(&arguments.study)?;
    let all: Vec<Errors> = models.iter().map(|(model, story)| Errors::of(model, story)).collect();
    if all.iter().all(|errors| errors.tries == 0) {
        return Err(Trouble::usage(format!("{}: no try of this study is over yet", arguments.study.display())));
    }
    say(&if arguments.json { json(&all) } else { format!("{}\n{SPLIT}", Errors::text(&all)) });
    Ok(Exit::Done)
}

const SPLIT: &str = "Shares of all tries. Reference: it compiles and does not do what the reference does. A sanitizer's errors are \
                     counted where a step runs one; unreadable is a reply that is not in the form asked for.";

/// Searches a checkpoint's space with several limits, and prints what is found by each.
fn tuning_depth(arguments: &TuningDepthArgs, layers: &Layers, environment: &Environment) -> Result<Exit, Trouble> {
    let (at, to) = checkpoint(&arguments.run, &layers.config)?;
    quiet_for(arguments.json);
    let out = out(arguments.out.as_deref(), &at, "tuning-depth", &layers.config)?;
    let folder = if out.join("run.toml").is_file() {
        RunFolder::open(&out)?
    } else {
        let mut header = at.folder.header()?;
        header.configuration.limits = Limits::default();
        at.folder.fork(&out, &header, is_checkpoint)?
    };
    let story: Trajectory = folder.only_record()?.events().collect();
    foreign(&folder, &story, std::iter::once(&to.id))?;
    let (run, repeats, folder_name) = (&arguments.run, arguments.repeats, out.display());
    let list = arguments.tests.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let again = format!(
        "warpsmith study tuning-depth {run} --tests {list} --repeats {repeats} --tuner {} --out {folder_name}",
        arguments.tuner
    );
    let steps = Steps { requests: searches(arguments, &story, &to.id), study: Some(again) };
    let done = work(&folder, &story, (ModelArgs::default(), LimitArgs::default()), steps, layers, environment);
    let story: Trajectory = folder.only_record()?.events().collect();
    let depths: Vec<Depth> =
        arguments.tests.iter().map(|tests| Depth::of(&story, *tests as usize, arguments.tuner)).collect();
    let told = || format!("\n{}\n{BESTS}\n\nstudy      {folder_name}", Depth::text(&depths));
    say(&if arguments.json { json(&depths) } else { told() });
    done.map(|()| Exit::Done)
}

const BESTS: &str =
    "Min, mean and max are the times of the searches' bests, timed again in full; speedups are over the reference.";

/// The searches that a record does not hold yet, each drawn by a seed of its own: every limit once before any again, so that
/// what slows the machine for a while slows all limits.
fn searches(arguments: &TuningDepthArgs, story: &Trajectory, from: &Hash) -> Vec<Request> {
    let mut missing = vec![];
    let mut begun: BTreeMap<u32, u32> = BTreeMap::new();
    for tests in &arguments.tests {
        let holds = |order: &agents::workflow::Order| {
            order.from == *from && Depth::holds(order, *tests as usize, arguments.tuner)
        };
        let wanted = |ordered: &&Ordered| holds(&ordered.order) && ordered.fate != Fate::Dropped;
        let count = story.workflow.orders.iter().filter(wanted).count();
        begun.insert(*tests, count as u32);
    }
    for nth in 0..arguments.repeats {
        for (tests, _) in begun.iter().filter(|(_, begun)| **begun <= nth) {
            let seed = Some((u64::from(*tests) << 32) | u64::from(nth));
            let tuning = TuningPlan { tuner: Some(arguments.tuner), tests: Some(*tests as usize), keep: None, seed };
            missing.push(Request::tune(Some(from.clone()), tuning));
        }
    }
    missing
}

/// JSON stands alone on standard output.
fn quiet_for(json: bool) {
    if json {
        be_quiet();
    }
}
