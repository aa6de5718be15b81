//! `warpsmith run`: a new run.

use super::{SIMULATED, examples, on_threads, transform::Begun};
use crate::{
    batch::places,
    cli::RunArgs,
    config::{Config, Layers, Spec},
    exit::{Exit, Trouble},
    guidance::{self, Told},
    hosts,
    key::Environment,
    logging,
    plan::{self, Plan},
    progress::{Screen, Voice, plain},
    session::{Session, Steps},
    store::{RunFolder, RunHeader},
    version::VERSION,
    wiring::{self, Answering, Hand, Kind},
};
use agents::{
    crew::Place,
    policy::{Decider, Policy, Profiling},
    trajectory::Trajectory,
};
use metrics::{Machine, MachineKind};
use std::{path::Path, sync::Arc};

/// Makes the run and works on it.
pub(super) fn run(arguments: &RunArgs, layers: Layers, environment: &Environment) -> Result<Exit, Trouble> {
    start(arguments, layers, environment, None)
}

/// Makes a run of one transformation, which others may follow.
pub(super) fn transform(
    arguments: &RunArgs,
    layers: Layers,
    environment: &Environment,
    begun: Begun,
) -> Result<Exit, Trouble> {
    start(arguments, layers, environment, Some(begun))
}

fn start(
    arguments: &RunArgs,
    mut layers: Layers,
    environment: &Environment,
    begun: Option<Begun>,
) -> Result<Exit, Trouble> {
    let Some(task) = &arguments.task else { return Err(examples::none_named()) };
    let RunArgs { model, problem, limits, way, timing, .. } = arguments;
    model.apply(&mut layers);
    problem.apply(&mut layers);
    limits.apply(&mut layers);
    way.apply(&mut layers);
    timing.apply(&mut layers);
    arguments.hosts.apply(&mut layers);
    if layers.config.hosts.is_set() {
        hosts::behind(environment)?;
    }
    let mut plan = Plan::make(task, &layers.config)?;
    problem.fit(&plan.task).map_err(Trouble::usage)?;
    if let Some(seed) = begun.as_ref().and_then(|begun| begun.seed.as_ref()) {
        plan.task = plan::seeded(plan.task, seed)?;
    }
    let hand = Hand::of(arguments.hand)?.in_a_run_of(&plan.policy)?;
    let steps = begun.map(|begun| begun.steps);
    let shapes = layers.config.run.shapes;
    if let Some(line) = plan::of_one_shape(&plan.task, &mut plan.policy, shapes) {
        super::batch::eprint(&line);
    }
    plan::known(&plan.task, &plan.policy).map_err(Trouble::usage)?;
    super::batch::priced(&layers.config, &plan.spec)?;
    let kind = Kind::of(&plan.task, arguments.simulate);
    let told = if plan.recorded_policy {
        guidance::recorded(&plan.policy, kind, &layers.config)?
    } else {
        guidance::decide(&mut plan.policy, kind, &layers.config)?
    };
    let features = guidance::line(&plan.policy, told.as_ref());
    let free = || RunFolder::free_name(&layers.config.run.folder, &plan.task.name);
    let path = arguments.out.clone().unwrap_or_else(free);
    let asked = Asked {
        profiles: plan.policy.profile != Profiling::Never,
        told: told.as_ref(),
        gpus: arguments.gpus.gpus.as_deref(),
        search: plan.policy.sequence.is_some(),
    };
    let places = places(kind, &layers.config, asked, &path, environment)?;
    let beginning = Beginning { path: &path, features, steps, hand };
    begin(places, beginning, &plan, arguments, &layers.config, environment)
}

/// What a run asks of whoever works on it, beside its candidates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Whether profiles will be asked for.
    pub(super) profiles: bool,
    /// The features whose counters are read.
    pub(super) told: Option<&'a Told>,
    /// The GPUs that a search may time its configurations on, where some are named.
    pub(super) gpus: Option<&'a str>,
    /// Whether there is such a search.
    pub(super) search: bool,
}

/// Where a run in this folder is worked on, here or on other hosts; and more GPUs, where a search may time its configurations
/// on several.
pub(super) fn places(
    kind: Kind,
    config: &Config,
    asked: Asked<'_>,
    folder: &Path,
    environment: &Environment,
) -> Result<(Place, Vec<Place>), Trouble> {
    let devices = places::of_a_search(kind, asked.search, asked.gpus, config)?;
    if config.hosts.is_set() {
        return Ok((Place::of_one(hosts::gather(config, kind, folder, environment)?.workshop), vec![]));
    }
    let column = asked.told.map(|told| &told.column);
    let made = wiring::of_each(&devices, |device| {
        let mut own = config.clone();
        own.workshop.device.clone_from(device);
        wiring::workshop(kind, &own, asked.profiles, column)
            .map(|workshop| Place::of_one(workshop).named(device.clone()))
    })?;
    places::are_alike(&made)?;
    let mut made = made.into_iter();
    match made.next() {
        Some(first) => Ok((first, made.collect())),
        None => Ok((Place::of_one(wiring::workshop(kind, config, asked.profiles, column)?), vec![])),
    }
}

/// What a run begins with beside its plan.
struct Beginning<'a> {
    /// Its folder.
    path: &'a Path,
    /// What is said of features.
    features: Option<String>,
    /// The transformation that was asked for.
    steps: Option<Steps>,
    /// Where a person takes part.
    hand: Hand,
}

fn begin(
    places: (Place, Vec<Place>),
    beginning: Beginning<'_>,
    plan: &Plan,
    arguments: &RunArgs,
    config: &Config,
    environment: &Environment,
) -> Result<Exit, Trouble> {
    let Beginning { path, features, steps, hand } = beginning;
    let machine = places.0.workshop.machine().clone();
    let prompts = Arc::new(super::prompts::library(config)?);
    super::transform::suits(&plan.policy, &plan.task, &prompts)?;
    let exit_when_waiting = arguments.model.exit_when_waiting;
    let llm =
        Answering { config, environment, exit_when_waiting, run: run_name(path), folder: path }.port(&plan.spec)?;
    let header = header(plan, arguments, config, environment, &machine, &llm.describe(), &prompts);
    let llm = hand.beside(llm);
    let folder = RunFolder::create(path, &header)?;
    let (lock, _) = folder.lock()?;
    let (log, _) = folder.append(&plan.task.name, &lock)?;
    let voice = if arguments.json { Voice::Json } else { Voice::Words };
    let screen = Screen::new(voice == Voice::Words && !hand.is_lent());
    logging::start(&screen, Some(folder.path()));
    if voice == Voice::Words {
        let mut lines = opening(plan, &llm.describe(), &machine, folder.path());
        let last = lines.len() - 1;
        lines.splice(last..last, features);
        screen.say(&lines.join("\n"));
    }
    let (task, policy) = (plan.task.clone(), plan.policy.clone());
    let limits = config.limits.of_one();
    let so_far = Trajectory::default();
    let validators = config.validators();
    let session = Session { folder, log, task, policy, so_far, llm, prompts, screen, voice, limits, validators, steps };
    let exit = on_threads(session.drive(places));
    drop(lock);
    exit
}

/// The run's name, for letters: that of its folder.
pub(super) fn run_name(folder: &Path) -> String {
    let path = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn header(
    plan: &Plan,
    arguments: &RunArgs,
    config: &Config,
    environment: &Environment,
    machine: &Machine,
    model: &str,
    prompts: &prompts::Prompts,
) -> RunHeader {
    let mut configuration = config.clone();
    configuration.hosts = configuration.hosts.recorded();
    configuration.model = environment.recorded(&config.model);
    if let Spec::Replay(run) = &plan.spec {
        configuration.model.spec = format!("replay:{}", run.display());
    }
    let compiler = machine.facts.iter().find(|fact| fact.name == "compiler");
    RunHeader {
        format: agents::event::FORMAT,
        warpsmith: VERSION.to_owned(),
        began: jiff::Timestamp::now().to_string(),
        task: arguments.task.as_deref().unwrap_or(Path::new("")).display().to_string(),
        model: model.to_owned(),
        policy: plan.policy.name.clone(),
        simulated: arguments.simulate,
        compilers: compiler.map(|fact| ("c++".to_owned(), fact.value.clone())).into_iter().collect(),
        templates: RunHeader::templates_of(prompts),
        machine: machine.clone(),
        configuration,
    }
}

/// The first lines: what answers, where, on what, how.
fn opening(plan: &Plan, model: &str, machine: &Machine, run: &Path) -> Vec<String> {
    let mut lines = vec![format!("warpsmith {VERSION}")];
    lines.extend(who_answers(plan, model, machine));
    lines.push(format!("machine    {}", on_what(machine)));
    let summary = plan.task.summary.lines().next().unwrap_or_default();
    lines.push(format!("task       {}: {}", plain(&plan.task.name), plain(summary)));
    lines.push(format!("policy     {}, {}", plain(&plan.policy.name), length(&plan.policy)));
    lines.extend(plan::overruled([&plan.task], &plan.policy));
    lines.push(format!("run        {}", run.display()));
    lines
}

/// How much a policy does, in words.
pub(super) fn length(policy: &Policy) -> String {
    match (&policy.search, &policy.sequence, policy.planner) {
        (Some(search), _, _) => format!("a search of {} evaluations", search.evaluations()),
        (None, None, _) => format!("{} rounds", policy.rounds),
        (None, Some(sequence), Decider::Rule) => format!("a sequence of {} transformations", sequence.len()),
        (None, Some(sequence), Decider::Model) => {
            format!("{} and what a model plans, at most {} rounds", sequence.join(", "), policy.rounds)
        }
    }
}

fn who_answers(plan: &Plan, model: &str, machine: &Machine) -> Vec<String> {
    let Some((recorded, who)) = &plan.demonstration else {
        return vec![format!("model      {}", plain(model))];
    };
    let who = if who.is_empty() { "nobody".to_owned() } else { who.join(" and ") };
    let rest = if machine.kind == MachineKind::Simulated {
        "Everything else happens here and now, on a simulated machine."
    } else {
        "Everything else happens here and now: every candidate is built, checked and timed on this machine."
    };
    vec![
        "model      none is asked: the replies (the Coder's candidates, the Judge's verdicts) come from".to_owned(),
        format!("           a recording made by {} ({}).", plain(&who), recorded.display()),
        format!("           {rest}"),
        "           To ask a model instead: --model openai:NAME, with OPENAI_API_KEY (and OPENAI_BASE_URL) set."
            .to_owned(),
    ]
}

pub(super) fn on_what(machine: &Machine) -> String {
    if machine.kind == MachineKind::Simulated {
        return SIMULATED.to_owned();
    }
    let vectors = machine.facts.iter().find(|fact| fact.name.contains("vector"));
    let vectors = vectors.map(|fact| format!(", {}", plain(&fact.value))).unwrap_or_default();
    format!("{} ({}{vectors})", plain(&machine.name), machine.arch)
}
