//! `warpsmith resume`: a run goes on from where its record ends.

use super::{batch, on_threads, transform::Begun};
use crate::{
    ablation::AblationFolder,
    batch::{extension::More, limits::Meter, places},
    cli::{FinishArgs, ResumeArgs},
    config::{Config, Layers, Model, RoleModel, Spec},
    exit::{Exit, Trouble},
    guidance::{self, Told},
    hosts,
    key::{Environment, without_credentials},
    logging,
    plan::{self, Plan},
    progress::{Screen, Voice, plain},
    recall,
    session::{Ending, Session},
    store::{Mended, Record, RunFolder, RunHeader, TaskLog},
    wiring::{Answering, Hand, Kind},
};
use agents::{
    crew::Place,
    event::{Event, Step},
    llm::{Llm, remembering::Remembering, scripted::Scripted},
    log::Log,
    planner::Request,
    policy::{Guidance, Policy, Profiling},
    trajectory::{Round, Trajectory},
    workflow::TUNE,
};
use kernelbench::{Absent, Hash, Task};
use std::{collections::HashMap, path::Path, sync::Arc};

/// With what a batch goes on.
pub(super) struct Given<'a> {
    pub(super) config: &'a Config,
    /// Why no model may be asked: its address.
    pub(super) unconfirmed: Option<String>,
    pub(super) environment: &'a Environment,
    pub(super) simulated: bool,
    /// The machine that is not here, where only models are to be asked.
    pub(super) absent: Option<metrics::Machine>,
    pub(super) exit_when_waiting: bool,
    pub(super) json: bool,
    pub(super) more: More,
}

/// Goes on.
pub(super) fn resume(arguments: &ResumeArgs, layers: &Layers, environment: &Environment) -> Result<Exit, Trouble> {
    let of_one = || {
        let lent = Hand::of(arguments.hand)?.is_lent();
        let why = "--edit and --pause are for a run of one task: expected its folder";
        if lent { Err(Trouble::usage(why)) } else { Ok(()) }
    };
    if let Some(ablation) = AblationFolder::at(&arguments.run) {
        of_one()?;
        return super::ablate::work(&ablation, arguments, layers, environment);
    }
    let folder = RunFolder::open(&arguments.run)?;
    let header = folder.header()?;
    let Settings { config, unconfirmed } = settings(arguments, layers, &header, environment)?;
    if let Some(list) = folder.batch()? {
        of_one()?;
        let (simulated, exit_when_waiting) = (header.simulated, arguments.model.exit_when_waiting);
        let absent = arguments.without_device.then(|| header.machine.clone());
        let json = arguments.json;
        let (config, more) = (&config, more(arguments));
        let given = Given { config, unconfirmed, environment, simulated, absent, exit_when_waiting, json, more };
        return batch::go_on(folder, list, &given);
    }
    go_on(arguments, &folder, &header, (&config, unconfirmed), environment, None)
}

/// Applies further transformations to a run.
pub(super) fn transform(
    arguments: &ResumeArgs,
    layers: &Layers,
    environment: &Environment,
    begun: Begun,
) -> Result<Exit, Trouble> {
    let folder = RunFolder::open(&arguments.run)?;
    let header = folder.header()?;
    let Settings { config, unconfirmed } = settings(arguments, layers, &header, environment)?;
    go_on(arguments, &folder, &header, (&config, unconfirmed), environment, Some(begun))
}

/// What the run is given now.
fn more(arguments: &ResumeArgs) -> More {
    More { rounds: arguments.rounds, limit: arguments.limits.is_some(), model: arguments.model.model.is_some() }
}

/// Ends a run with what it has: no model is asked any more, and the best candidate of each task that has begun is certified.
pub(super) fn finish(arguments: &FinishArgs, mut layers: Layers, environment: &Environment) -> Result<Exit, Trouble> {
    layers.config.limits.finish = true;
    let FinishArgs { run, python, json } = arguments;
    let arguments = ResumeArgs { run: run.clone(), python: python.clone(), json: *json, ..ResumeArgs::default() };
    resume(&arguments, &layers, environment)
}

/// The settings that the run began with, with the flags given now. A run folder may come from elsewhere: which key goes
/// to which address, and where builds are kept, is said here and now.
fn settings(
    arguments: &ResumeArgs,
    layers: &Layers,
    header: &RunHeader,
    environment: &Environment,
) -> Result<Settings, Trouble> {
    let mut recorded = Layers::of(header.configuration.clone());
    arguments.model.apply(&mut recorded);
    arguments.width.apply(&mut recorded);
    arguments.limits.apply(&mut recorded);
    let mut now = layers.clone();
    arguments.hosts.apply(&mut now);
    let mut config = recorded.config;
    config.hosts = now.config.hosts.over(&config.hosts);
    if config.hosts.is_set() {
        hosts::behind(environment)?;
    }
    config.limits.finish = layers.config.limits.finish;
    config.model.api_key.clone_from(&layers.config.model.api_key);
    config.model.api_key_file.clone_from(&layers.config.model.api_key_file);
    config.prompts.transformations.clone_from(&layers.config.prompts.transformations);
    config.prompts.hints.clone_from(&layers.config.prompts.hints);
    // A folder that models are shown and that is not there any more: where it lies now.
    let [recorded, here] = [&config.prompts.context, &layers.config.prompts.context].map(|named| named.split_once(':'));
    if let (Some((kind, path)), Some((now, _))) = (recorded, here)
        && kind == now
        && kind != "modules"
        && !Path::new(path).exists()
    {
        config.prompts.context.clone_from(&layers.config.prompts.context);
    }
    if config.limits.finish {
        // Nobody is shown anything any more.
        config.prompts.context.clear();
        config.prompts.pool.clear();
    }
    // Programs that are started outside every sandbox.
    config.validators.clone_from(&layers.config.validators);
    config.workshop.cache.clone_from(&layers.config.workshop.cache);
    config.workshop.python.clone_from(arguments.python.as_ref().unwrap_or(&layers.config.workshop.python));
    let (here, recorded) = (environment.base_url_for(&layers.config.model), config.model.base_url.clone());
    let asks = matches!(plan::spec(&config.model.spec), Ok(Spec::OpenAi(_) | Spec::OpenAiBatch(_)));
    let asks = asks && !config.limits.finish;
    let confirmed = "OPENAI_BASE_URL to it, or model.base_url in warpsmith.toml";
    let of_all = (here.is_empty() && !recorded.is_empty()).then(|| unconfirmed("this run", &recorded, confirmed));
    if asks || !here.is_empty() {
        config.model.base_url = here;
    }
    let of_role = endpoints_of_roles(&mut config.model, &layers.config.model);
    Ok(Settings { config, unconfirmed: of_all.or(of_role).filter(|_| asks) })
}

/// With what a run goes on, and why no model may be asked with it.
struct Settings {
    config: Config,
    unconfirmed: Option<String>,
}

/// Keys are sent to addresses, and prompts, which hold texts of this machine.
fn unconfirmed(who: &str, address: &str, confirmed: &str) -> String {
    let address = plain(&without_credentials(address));
    format!(
        "{who} asked {address}: your key and the texts of this machine are not sent to an address that only a run's folder \
         names; if they may be, set {confirmed}"
    )
}

/// A role's key, and where that goes, are of the settings here, as those of all are; why one may not be asked.
fn endpoints_of_roles(recorded: &mut Model, here: &Model) -> Option<String> {
    let mut why = None;
    for (role, asked) in &mut recorded.roles {
        let own = here.roles.get(role).and_then(RoleModel::own_url);
        if let (Some(address), None) = (asked.own_url(), own) {
            let role = role.name();
            let confirmed = format!("model.roles.{role}.base_url in warpsmith.toml");
            why = Some(unconfirmed(&format!("this run's {role}"), address, &confirmed));
        }
        (asked.base_url, asked.api_key, asked.api_key_file) = (None, None, None);
    }
    for (role, own) in here.roles.iter().filter(|(_, own)| own.has_own_endpoint()) {
        let asked = recorded.roles.entry(*role).or_default();
        asked.base_url.clone_from(&own.base_url);
        asked.api_key.clone_from(&own.api_key);
        asked.api_key_file.clone_from(&own.api_key_file);
    }
    why
}

fn go_on(
    arguments: &ResumeArgs,
    folder: &RunFolder,
    header: &RunHeader,
    (config, unconfirmed): (&Config, Option<String>),
    environment: &Environment,
    begun: Option<Begun>,
) -> Result<Exit, Trouble> {
    let steps = begun.map(|begun| begun.steps);
    let voice = if arguments.json { Voice::Json } else { Voice::Words };
    let hand = Hand::of(arguments.hand)?;
    let screen = Screen::new(voice == Voice::Words && !hand.is_lent());
    let (lock, taken_over) = folder.lock()?;
    let mended = match folder.tasks()?.as_slice() {
        [only] => folder.mend(only, &lock)?,
        _ => Mended::default(),
    };
    let mut start = Start::of(folder, header, config)?;
    let limits = config.limits.of_one();
    let limit = Arc::new(Meter::new(limits, &[])).for_task();
    // A transformation makes it go on by itself.
    let given = if steps.is_some() { More::default() } else { more(arguments) };
    let extended = given.for_task(&start.so_far, start.policy.rounds, &limit);
    let extended = extended.map_err(|why| Trouble::usage(format!("{}: {why}", folder.path().display())))?;
    if steps.is_some() && start.policy.sequence.is_none() {
        return Err(Trouble::usage(format!(
            "{}: this run's policy is {}, which has no checkpoints: begin a workflow with `warpsmith transform TASK NAME`",
            folder.path().display(),
            start.policy.name
        )));
    }
    let hand = hand.in_a_run_of(&start.policy)?;
    let (mut log, torn) = folder.append(&start.task.name, &lock)?;
    taken_over.iter().chain(&torn).chain(&mended.words).for_each(|word| screen.warn(word));
    if start.so_far.end.is_some() && extended.is_none() && steps.is_none() {
        return Ending { folder, screen: &screen, voice, study: None }.tell(&start.so_far);
    }
    let tunes = steps.as_ref().is_some_and(|steps| start.only_tunes(&steps.requests));
    if let Some((order, tries)) = start.so_far.under_way()
        && steps.is_some()
    {
        let from = start.so_far.workflow.checkpoint(&order.from).map_or("a checkpoint", |from| &from.name);
        let (name, from, at, of) = (plain(&order.transformation), plain(from), tries + 1, order.tries);
        screen.warn(&format!(
            "{name} of {from} was under way, try {at} of {of}: it is finished first (`warpsmith restore RUN@{from}` drops it)"
        ));
    }
    let spec = plan::spec(&config.model.spec)?;
    if !tunes {
        batch::may_ask(unconfirmed, config, &spec)?;
    }
    let kind = Kind::of(&start.task, header.simulated);
    let (gpus, search) = (arguments.width.gpus.as_deref(), start.policy.sequence.is_some());
    places::of_a_search(kind, search, gpus, config)?;
    if let Some(event) = extended {
        start.extend(event, &mut log)?;
    }
    let told = start.told(kind, config)?;
    let profiles = start.policy.profile != Profiling::Never;
    let asked = super::run::Asked { profiles, told: told.as_ref(), gpus, search };
    let places = if arguments.without_device {
        (Place::of_one(Arc::new(Absent::new(header.machine.clone()))), vec![])
    } else {
        super::run::places(kind, config, asked, folder.path(), environment)?
    };
    if start.so_far.machine.as_ref().is_some_and(|machine| machine.name != places.0.workshop.machine().name) {
        screen.warn("this is another machine than the one the run began on: times of earlier rounds do not compare with later ones");
    }
    logging::start(&screen, Some(folder.path()));
    let run = super::run::run_name(folder.path());
    let answering = Answering {
        config,
        environment,
        exit_when_waiting: arguments.model.exit_when_waiting,
        run,
        folder: folder.path(),
    };
    // Where nothing is rewritten nobody is asked, and no key is needed.
    let port: Arc<dyn Llm> = if tunes { Arc::new(Scripted::new([])) } else { hand.beside(answering.port(&spec)?) };
    let llm = Arc::new(Remembering::new(port, start.known));
    llm.learn_where_the_prompt_is_the_same(recall::known_of(&mended.aside, &folder.blobs()));
    if voice == Voice::Words {
        let written = |round: &&Round| round.step != Step::Baseline;
        let (done, rounds) = (start.so_far.finished().filter(written).count(), start.policy.rounds);
        let rounds = start.policy.sequence.as_ref().map_or(format!(" of {rounds}"), |_| String::new());
        screen.say(&format!("{}: going on after {done} finished rounds{rounds}", folder.path().display()));
    }
    let prompts = Arc::new(super::prompts::library(config)?);
    let Start { task, policy, so_far, .. } = start;
    let validators = config.validators();
    let session = Session {
        folder: folder.clone(),
        log,
        task,
        policy,
        so_far,
        llm,
        prompts,
        screen,
        voice,
        limits,
        validators,
        steps,
    };
    let exit = on_threads(session.drive(places));
    drop(lock);
    exit
}

/// Where the run stands.
struct Start {
    task: Task,
    policy: Policy,
    so_far: Trajectory,
    known: HashMap<agents::llm::CallId, (Hash, agents::llm::Reply)>,
}

impl Start {
    fn of(folder: &RunFolder, header: &RunHeader, config: &Config) -> Result<Self, Trouble> {
        let record = match folder.tasks()?.len() {
            0 => None,
            _ => Some(folder.only_record()),
        };
        match record.transpose()? {
            Some(record) if !record.lines.is_empty() => Self::from_record(&record),
            _ => Self::anew(header, config),
        }
    }

    /// The record says it all.
    fn from_record(record: &Record) -> Result<Self, Trouble> {
        let (task, mut policy) = opened(record)?;
        let known = recall::known(record)?;
        let so_far: Trajectory = record.events().collect();
        policy.rounds = so_far.extended_to.unwrap_or(policy.rounds);
        Ok(Self { task, policy, so_far, known })
    }

    /// Whether nothing is rewritten: neither what is asked for nor what was ordered and is not done yet.
    fn only_tunes(&self, requests: &[Request]) -> bool {
        let open = self.so_far.workflow.open_order(&self.so_far.rounds);
        let open = open.iter().map(|(order, _)| &order.transformation);
        requests.iter().map(|request| &request.transformation).chain(open).all(|name| name == TUNE)
    }

    /// What models are told of features: what was written down; where nothing was, what is decided now.
    fn told(&mut self, kind: Kind, config: &Config) -> Result<Option<Told>, Trouble> {
        if self.so_far.policy.is_none() {
            return guidance::decide(&mut self.policy, kind, config);
        }
        guidance::recorded(&self.policy, kind, config)
    }

    /// It is given more, which its record is to say before it goes on.
    fn extend(&mut self, event: Event, log: &mut TaskLog) -> Result<(), Trouble> {
        let more = if let Event::Extended { rounds } = &event { *rounds } else { None };
        // What has not begun yet has no record that could say it, and opens with what it is given.
        if self.so_far.task.is_some() {
            log.note(&event)?;
            self.so_far.apply(event);
        }
        self.policy.rounds = more.unwrap_or(self.policy.rounds);
        Ok(())
    }

    /// The program was killed before the first event.
    fn anew(header: &RunHeader, config: &Config) -> Result<Self, Trouble> {
        let mut plan = Plan::make(Path::new(&header.task), config)?;
        if plan.recorded_policy {
            plan.policy.features.get_or_insert(Guidance::Off);
        }
        Ok(Self { task: plan.task, policy: plan.policy, so_far: Trajectory::default(), known: HashMap::new() })
    }
}

/// The task and the policy that a record opened with.
pub(super) fn opened(record: &Record) -> Result<(Task, Policy), Trouble> {
    let first = record.lines.first().map(|line| &line.event);
    let Some(Event::Opened { task, policy, .. }) = first else {
        return Err(Trouble::record("the record holds no event: run the task anew"));
    };
    let (task, policy) = (record.blobs.fetch(task)?, record.blobs.fetch(policy)?);
    let task =
        serde_json::from_str(&task).map_err(|e| Trouble::record(format!("the record's task cannot be read: {e}")))?;
    Ok((task, plan::parse("the record's policy", &policy)?))
}
