//! `warpsmith batch`: a new run of many tasks.

use super::{
    on_threads,
    resume::Given,
    run::{Asked, on_what, run_name},
};
use crate::{
    batch::{
        choosing::{Choice, Chosen, choose},
        extension::More,
        limits::Meter,
        places::Needs,
        running::{Batch, Outcome},
        sample::Sample,
        standing::Standing,
        suite::Suite,
        watching::{BatchProgress, spent},
    },
    cli::BatchArgs,
    config::{Config, Layers, Spec},
    exit::{Exit, Trouble},
    guidance::Told,
    hosts,
    key::Environment,
    live::{self, Live, Served},
    logging, plan,
    progress::{self, Screen, plain},
    report,
    session::interrupted,
    store::{BatchList, Listed, Lock, RunFolder, RunHeader},
    version::VERSION,
    wiring::{self, Answering, Kind},
};
use agents::{
    crew::Place,
    policy::{Policy, Profiling},
    trajectory::Trajectory,
};
use kernelbench::Task;
use metrics::Machine;
use std::{path::Path, path::PathBuf, sync::Arc};

/// Chooses, makes the run, and works on it.
pub(super) fn batch(arguments: &BatchArgs, mut layers: Layers, environment: &Environment) -> Result<Exit, Trouble> {
    apply_flags(arguments, &mut layers);
    let config = &layers.config;
    if config.hosts.is_set() {
        hosts::behind(environment)?;
    }
    let chosen = choose_tasks(arguments, config)?;
    for broken in &chosen.unreadable {
        eprint(&format!("{}: cannot be read, and is left out: {}", broken.path, plain(&broken.why)));
    }
    let fit = || chosen.tasks.iter().map(|(_, task)| arguments.problem.fit(task));
    if fit().all(|one| one.is_err()) {
        fit().try_for_each(|one| one.map_err(Trouble::usage))?;
    }
    let spec = spec(config)?;
    priced(config, &spec)?;
    let mut policy = plan::policy(config, None)?;
    let needs = Needs::Workshops(Kind::of(&chosen.tasks[0].1, arguments.simulate));
    if let Some(line) = plan::of_one_shape(&chosen.tasks[0].1, &mut policy, config.run.shapes) {
        eprint(&line);
    }
    chosen.tasks.iter().try_for_each(|(_, task)| plan::known(task, &policy)).map_err(Trouble::usage)?;
    let mut policy = plan::searching_all(policy, chosen.tasks.iter().map(|(_, task)| task), config)?;
    if let Some((_, task)) = chosen.tasks.iter().find(|(_, task)| task.processor().is_some()) {
        let why = "is for an emulated processor, which has no times to score: `warpsmith run` works on it alone";
        return Err(Trouble::usage(format!("{} {why}", task.name)));
    }
    if let Some((_, task)) = chosen.tasks.iter().find(|(_, task)| task.gfx().is_some()) {
        let why = "is compiled, not run, and has no times to score: `warpsmith run` works on it alone";
        return Err(Trouble::usage(format!("{} {why}", task.name)));
    }
    let told = needs.told(&mut policy, true, config)?;
    New { arguments, chosen, policy, spec, config, environment, needs, told }.begin()
}

/// Whether the tasks are there that the settings name.
pub(super) fn found(arguments: &BatchArgs, mut layers: Layers) -> Result<(), Trouble> {
    apply_flags(arguments, &mut layers);
    choose_tasks(arguments, &layers.config).map(drop)
}

/// Whether all else that the settings name is there, something answers, and at a price by which a limit in dollars could be kept.
pub(super) fn answered(arguments: &BatchArgs, mut layers: Layers) -> Result<(), Trouble> {
    apply_flags(arguments, &mut layers);
    let config = &layers.config;
    plan::policy(config, None)?;
    wiring::metrics(&config.workshop.metrics)?;
    super::prompts::library(config)?;
    priced(config, &spec(config)?)
}

fn apply_flags(arguments: &BatchArgs, layers: &mut Layers) {
    let BatchArgs { choice, model, problem, width, limits, way, timing, hosts, .. } = arguments;
    model.apply(layers);
    problem.apply(layers);
    way.apply(layers);
    timing.apply(layers);
    width.apply(layers);
    limits.apply(layers);
    hosts.apply(layers);
    layers.flag("batch.problems", choice.problems.clone(), |config, folder| config.batch.problems = folder);
}

/// A suite may stand in a folder's place; then the folder is another setting.
fn choose_tasks(arguments: &BatchArgs, config: &Config) -> Result<Chosen, Trouble> {
    let given = &arguments.choice;
    let mut choice = Choice {
        levels: given.level.clone(),
        ids: given.ids.clone(),
        matching: given.r#match.clone(),
        exclude: given.exclude.clone(),
        suite: given.suite.as_deref().map(Suite::named).transpose()?,
        except: given.except_suite.as_deref().map(Suite::named).transpose()?,
        sample: given.sample.map(|share| Sample { share, seed: given.sample_seed }),
        limit: given.limit,
        shard: given.shard,
    };
    let (path, name) = (&arguments.tasks, arguments.tasks.to_string_lossy());
    let is_suite = !path.is_dir() && (Suite::names().any(|known| known == name) || name.ends_with(".toml"));
    if !is_suite || path.file_name().is_some_and(|file| file == "task.toml") {
        return choose(path, &choice).map(|chosen| chosen.with_arithmetic(&config.workshop));
    }
    choice.suite = Some(Suite::named(&name)?);
    if config.batch.problems.is_empty() {
        return Err(Trouble::usage(format!(
            "{name} is a suite of KernelBench: name its folder with --problems DIR, or as batch.problems in warpsmith.toml"
        )));
    }
    let chosen = choose(Path::new(&config.batch.problems), &choice)?;
    Ok(chosen.with_arithmetic(&config.workshop))
}

fn spec(config: &Config) -> Result<Spec, Trouble> {
    if config.model.spec.is_empty() {
        return Err(Trouble::usage(
            "nothing says what answers: name a model with --model openai:NAME (and OPENAI_API_KEY, OPENAI_BASE_URL), \
             answer yourself with --model mailbox:DIR, or set model.spec in warpsmith.toml",
        ));
    }
    plan::spec(&config.model.spec)
}

/// Whether a model may be asked: at an address that was confirmed here, and at a price that is known where it is limited.
pub(super) fn may_ask(unconfirmed: Option<String>, config: &Config, spec: &Spec) -> Result<(), Trouble> {
    unconfirmed.map_or_else(|| priced(config, spec), |why| Err(Trouble::usage(why)))
}

/// A limit in dollars can be kept only where the price is known.
pub(super) fn priced(config: &Config, spec: &Spec) -> Result<(), Trouble> {
    if config.limits.usd <= 0.0 && config.limits.task_usd <= 0.0 {
        return Ok(());
    }
    match wiring::unpriced(config, spec)?.as_slice() {
        [] => Ok(()),
        unpriced => Err(Trouble::usage(format!(
            "the price of {} is not known, so a limit in dollars could not be kept: give prices (model.prices in \
             warpsmith.toml names a file of them), or limit tokens with --tokens",
            unpriced.join(", ")
        ))),
    }
}

/// A line for whoever looks on.
pub(super) fn eprint(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Where a run in this folder is worked on, here or on other hosts, and how many tasks at once.
fn staffed(
    needs: &Needs,
    config: &Config,
    asked: Asked<'_>,
    folder: &Path,
    environment: &Environment,
) -> Result<(Vec<Place>, usize), Trouble> {
    let Needs::Workshops(kind) = needs else {
        let places = needs.places(config, asked.profiles, asked.told)?;
        return Ok((places, needs.at_once(config, 1)));
    };
    if !config.hosts.is_set() {
        let places = needs.places(config, asked.profiles, asked.told)?;
        let at_once = needs.at_once(config, places.len());
        return Ok((places, at_once));
    }
    let gathered = hosts::gather(config, *kind, folder, environment)?;
    gathered.words.iter().for_each(|word| eprint(word));
    let at_once = needs.at_once(config, gathered.devices);
    // Whoever works there says how many at once.
    let place = Place { workshop: gathered.workshop, device: "hosts".to_owned(), builds: at_once };
    Ok((vec![place], at_once))
}

/// A batch that is about to begin.
struct New<'a> {
    arguments: &'a BatchArgs,
    chosen: Chosen,
    policy: Policy,
    spec: Spec,
    config: &'a Config,
    environment: &'a Environment,
    needs: Needs,
    told: Option<Told>,
}

impl New<'_> {
    fn begin(self) -> Result<Exit, Trouble> {
        let (config, arguments) = (self.config, self.arguments);
        let path = arguments.out.clone().unwrap_or_else(|| RunFolder::free_name(&config.run.folder, &self.name()));
        let (profiles, told) = (self.policy.profile != Profiling::Never, self.told.as_ref());
        let asked = Asked { profiles, told, gpus: None, search: false };
        let (places, at_once) = staffed(&self.needs, config, asked, &path, self.environment)?;
        let exit_when_waiting = arguments.model.exit_when_waiting;
        let name = run_name(&path);
        let answering =
            Answering { config, environment: self.environment, exit_when_waiting, run: name.clone(), folder: &path };
        let (llm, prompts) = (answering.port(&self.spec)?, Arc::new(super::prompts::library(config)?));
        let machine = places[0].workshop.machine().clone();
        let header = self.header(&machine, &llm.describe(), &prompts);
        let mut kept = None;
        let folder = RunFolder::create_batch(&path, &header, |blobs| {
            let list = self.list(name, |text| blobs.keep(text))?;
            kept = Some(list.clone());
            Ok(list)
        })?;
        let list = kept.ok_or_else(|| Trouble::record("the list of tasks was not made"))?;
        let (lock, _) = folder.lock()?;
        let screen = Screen::new(!arguments.json);
        if !arguments.json {
            let devices: Vec<&str> = places.iter().map(|place| place.device.as_str()).collect();
            self.opening(&llm.describe(), &machine, &devices, folder.path()).iter().for_each(|line| screen.say(line));
        }
        let going = Going {
            folder,
            lock,
            list,
            policy: self.policy,
            screen,
            at_once,
            json: arguments.json,
            more: More::default(),
            serve: arguments.serve,
        };
        going.work(places, llm, prompts, config, &[])
    }

    /// What the run's folder is named after.
    fn name(&self) -> String {
        let path = self.arguments.tasks.file_stem().map(|name| name.to_string_lossy().into_owned());
        let suite = self.arguments.choice.suite.as_deref().map(Path::new).and_then(Path::file_stem);
        let name = suite.map(|name| name.to_string_lossy().into_owned()).or(path).unwrap_or_default();
        let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c)).take(40).collect();
        if plain.is_empty() { "batch".to_owned() } else { plain }
    }

    fn list(
        &self,
        name: String,
        keep: impl Fn(&str) -> Result<kernelbench::Hash, crate::store::StoreError>,
    ) -> Result<BatchList, crate::store::StoreError> {
        let as_text = |task: &Task| serde_json::to_string(task).unwrap_or_default();
        let listed = |(path, task): &(PathBuf, Task)| {
            let text = as_text(task);
            Ok(Listed { name: task.name.clone(), path: path.display().to_string(), task: keep(&text)? })
        };
        Ok(BatchList {
            name,
            source: self.arguments.tasks.display().to_string(),
            policy: keep(&toml::to_string(&self.policy).unwrap_or_default())?,
            tasks: self.chosen.tasks.iter().map(listed).collect::<Result<_, crate::store::StoreError>>()?,
            unreadable: self.chosen.unreadable.clone(),
        })
    }

    fn header(&self, machine: &Machine, model: &str, prompts: &prompts::Prompts) -> RunHeader {
        let mut configuration = self.config.clone();
        configuration.hosts = configuration.hosts.recorded();
        configuration.model = self.environment.recorded(&self.config.model);
        let compiler = machine.facts.iter().find(|fact| fact.name == "compiler");
        RunHeader {
            format: agents::event::FORMAT,
            warpsmith: VERSION.to_owned(),
            began: jiff::Timestamp::now().to_string(),
            task: self.arguments.tasks.display().to_string(),
            model: model.to_owned(),
            policy: self.policy.name.clone(),
            simulated: self.arguments.simulate,
            compilers: compiler.map(|fact| ("c++".to_owned(), fact.value.clone())).into_iter().collect(),
            templates: RunHeader::templates_of(prompts),
            machine: machine.clone(),
            configuration,
        }
    }

    fn opening(&self, model: &str, machine: &Machine, devices: &[&str], run: &Path) -> Vec<String> {
        let (tasks, unreadable) = (self.chosen.tasks.len(), self.chosen.unreadable.len());
        let left_out = if unreadable > 0 { format!(", {unreadable} could not be read") } else { String::new() };
        let mut lines = vec![
            format!("warpsmith {VERSION}"),
            format!("model      {}", plain(model)),
            format!("machine    {}; devices: {}", on_what(machine), devices.join(", ")),
            format!("tasks      {tasks} of {}{left_out}", self.arguments.tasks.display()),
            format!("policy     {}, {} each", plain(&self.policy.name), super::run::length(&self.policy)),
        ];
        lines.extend(plan::overruled(self.chosen.tasks.iter().map(|(_, task)| task), &self.policy));
        lines.push(format!("run        {}", run.display()));
        lines
    }
}

/// A batch whose folder is there.
pub(super) struct Going {
    pub(super) folder: RunFolder,
    pub(super) lock: Lock,
    pub(super) list: BatchList,
    pub(super) policy: Policy,
    pub(super) screen: Screen,
    pub(super) at_once: usize,
    pub(super) json: bool,
    pub(super) more: More,
    /// The port of a page that shows it meanwhile; 0 is one that is free.
    pub(super) serve: Option<u16>,
}

impl Going {
    /// Works on it, and says what came of it.
    pub(super) fn work(
        self,
        places: Vec<Place>,
        llm: Arc<dyn agents::llm::Llm>,
        prompts: Arc<prompts::Prompts>,
        config: &Config,
        begun: &[Standing],
    ) -> Result<Exit, Trouble> {
        let Self { folder, lock, list, policy, screen, at_once, json, more, serve } = self;
        logging::start(&screen, Some(folder.path()));
        let (limits, validators) = (config.limits, config.validators());
        let all = list.tasks.len();
        on_threads(async move {
            let _page = match serve {
                Some(port) => Some(show(&folder, port, &screen, json).await?),
                None => None,
            };
            let meter = Arc::new(Meter::new(limits, begun));
            let board = BatchProgress::new(screen.clone(), meter.clone(), policy.rounds, all, begun);
            if json {
                board.be_silent();
            }
            let batch = Batch {
                folder: folder.clone(),
                lock,
                list,
                policy,
                llm,
                prompts,
                validators,
                meter: meter.clone(),
                board: board.clone(),
                at_once,
                more,
            };
            let outcome = tokio::select! {
                outcome = batch.run(places) => Some(outcome),
                () = interrupted() => None,
            };
            screen.close();
            Ending { folder: &folder, board: &board, meter: &meter, screen: &screen, json }.tell(outcome)
        })
    }
}

/// Shows it in a browser while it is worked on, and says where: not among lines that are JSON.
async fn show(folder: &RunFolder, port: u16, screen: &Screen, json: bool) -> Result<Served, Trouble> {
    let served = live::serve(Live::of(folder.path())?, port).await?;
    let line = format!("page       {}", served.address());
    if json {
        eprint(&line);
    } else {
        screen.result(&line);
    }
    Ok(served)
}

/// The last words of a batch.
struct Ending<'a> {
    folder: &'a RunFolder,
    board: &'a BatchProgress,
    meter: &'a Meter,
    screen: &'a Screen,
    json: bool,
}

impl Ending<'_> {
    fn tell(&self, outcome: Option<Outcome>) -> Result<Exit, Trouble> {
        let go_on = format!("to go on: warpsmith resume {}", self.folder.path().display());
        let Some(outcome) = outcome else {
            return Err(Trouble { exit: Exit::Interrupted, message: format!("interrupted; {go_on}") });
        };
        let exit = self.exit(&outcome);
        let (finished, correct, faster) = self.board.counts();
        if self.json {
            let broke_off: Vec<_> = outcome.broke_off.iter().map(|(task, _)| task).collect();
            let waiting: Vec<_> = outcome.waiting.iter().map(|(_, what)| what).collect();
            let used = self.meter.used();
            let told = serde_json::json!({
                "finished": finished, "correct": correct, "only_as_drawn": self.board.only_as_drawn(), "faster": faster,
                "not_begun": outcome.left,
                "waiting": waiting, "broke_off": broke_off, "no_reply": self.board.speechless(), "limit": outcome.limit, "usd": used.usd,
                "unpriced": used.unpriced, "tokens": used.tokens, "run": self.folder.path(), "exit": exit.code(),
            });
            self.screen.result(&told.to_string());
        } else {
            self.in_words(&outcome, &go_on);
        }
        match outcome.halted {
            Some(halted) => Err(Trouble { exit, message: format!("{halted}\n{go_on}") }),
            None => Ok(exit),
        }
    }

    fn exit(&self, outcome: &Outcome) -> Exit {
        match outcome {
            Outcome { halted: Some(halted), .. } => halted.exit,
            Outcome { waiting, .. } if !waiting.is_empty() => Exit::Waiting,
            Outcome { broke_off, .. } if !broke_off.is_empty() => Exit::Machine,
            _ if self.board.speechless() > 0 => Exit::Model,
            _ if self.board.counts().1 > 0 => Exit::Done,
            _ => Exit::NothingCorrect,
        }
    }

    fn in_words(&self, outcome: &Outcome, go_on: &str) {
        let say = |line: &str| self.screen.result(line);
        let (finished, correct, faster) = self.board.counts();
        say("");
        for (task, why) in &outcome.broke_off {
            say(&format!("broke off  {}: {}", plain(task), plain(why)));
        }
        for (_, request) in outcome.waiting.iter().take(5) {
            say(&format!("waiting    for {request}"));
        }
        if outcome.waiting.len() > 5 {
            say(&format!("waiting    {} tasks in all", outcome.waiting.len()));
        }
        match self.board.speechless() {
            0 => {}
            1 => say("no reply   1 task ended without a reply that could be read as a candidate"),
            some => say(&format!("no reply   {some} tasks ended without a reply that could be read as a candidate")),
        }
        if let Some(limit) = outcome.limit.and_then(agents::event::End::limit) {
            say(&format!("limit      {limit} is reached; {} tasks have not begun", outcome.left));
        }
        say(&format!(
            "result     {finished} finished, {}, {faster} faster; {}",
            progress::correct(correct, self.board.only_as_drawn()),
            spent(&self.meter.used())
        ));
        let all_done = outcome.left == 0 && outcome.waiting.is_empty() && outcome.broke_off.is_empty();
        match all_done.then(|| report::file::write(self.folder, None)) {
            Some(Ok(report)) => say(&format!("report     {}", report.display())),
            Some(Err(why)) => self.screen.warn(&why.to_string()),
            None => {}
        }
        say(&format!("run        {}", self.folder.path().display()));
        if !all_done {
            say(go_on);
        }
    }
}

/// Where every task has ended and what is given now lets none go on, it is said why not.
fn refuse_what_does_not_help(folder: &RunFolder, list: &BatchList, given: &Given<'_>) -> Result<(), Trouble> {
    if given.more.rounds.is_none() && !given.more.limit {
        return Ok(());
    }
    let mut refused = None;
    let limit = Arc::new(Meter::new(given.config.limits, &[])).for_task();
    for listed in &list.tasks {
        if !folder.has_record(&listed.name) {
            return Ok(());
        }
        let story: Trajectory = folder.record(&listed.name)?.events().collect();
        let helps = given.more.for_task(&story, story.extended_to.unwrap_or(0), &limit);
        match helps {
            Err(why) if story.end.is_some() => refused = refused.or(Some(format!("{}: {why}", listed.name))),
            _ => return Ok(()),
        }
    }
    refused.map_or(Ok(()), |why| Err(Trouble::usage(why)))
}

/// Goes on with a batch.
pub(super) fn go_on(folder: RunFolder, list: BatchList, given: &Given<'_>) -> Result<Exit, Trouble> {
    let config = given.config;
    let (lock, taken_over) = folder.lock()?;
    let screen = Screen::new(!given.json);
    if let Some(word) = taken_over {
        screen.warn(&word);
    }
    let mut policy = plan::parse("the batch's policy", &folder.blobs().fetch(&list.policy)?)?;
    policy.rounds = given.more.rounds.unwrap_or(policy.rounds);
    let mut begun = vec![];
    for listed in &list.tasks {
        begun.extend(Standing::read(&folder, &listed.name)?);
    }
    refuse_what_does_not_help(&folder, &list, given)?;
    let spec = plan::spec(&config.model.spec)?;
    let ended = begun.iter().filter(|standing| standing.end.is_some()).count();
    let goes_on = ended < list.tasks.len() || given.more.rounds.is_some() || given.more.limit;
    may_ask(given.unconfirmed.clone().filter(|_| goes_on), config, &spec)?;
    let first = list.tasks.first().ok_or_else(|| Trouble::record("this batch has no tasks"))?;
    let task = folder.blobs().fetch(&first.task)?;
    let task: Task =
        serde_json::from_str(&task).map_err(|e| Trouble::record(format!("the task {}: {e}", first.name)))?;
    let needs = match &given.absent {
        Some(machine) => Needs::Absent(Box::new(machine.clone())),
        None => Needs::Workshops(Kind::of(&task, given.simulated)),
    };
    if !given.json {
        let all = list.tasks.len();
        screen.say(&format!("{}: going on, {ended} of {all} tasks have ended", folder.path().display()));
    }
    let answering = Answering {
        config,
        environment: given.environment,
        exit_when_waiting: given.exit_when_waiting,
        run: list.name.clone(),
        folder: folder.path(),
    };
    let (llm, prompts) = (answering.port(&spec)?, Arc::new(super::prompts::library(config)?));
    let told = needs.told(&mut policy, false, config)?;
    let (profiles, told) = (policy.profile != Profiling::Never, told.as_ref());
    let asked = Asked { profiles, told, gpus: None, search: false };
    let (places, at_once) = staffed(&needs, config, asked, folder.path(), given.environment)?;
    let going = Going { folder, lock, list, policy, screen, at_once, json: given.json, more: given.more, serve: None };
    going.work(places, llm, prompts, config, &begun)
}
