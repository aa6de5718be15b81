//! `warpsmith pool`: certified kernels, kept for the models of later runs

use crate::{
    cli::{PoolAddArgs, PoolCommand, PoolListArgs, PoolReflectArgs},
    command::{features, json, once::Once, say},
    config::Config,
    exit::{Exit, Trouble},
    key::Environment,
    progress::plain,
    show,
    store::{Record, RunFolder},
    verify::Verification,
};
use agents::{event::Event, llm::Purpose, trajectory::Trajectory};
use kernelbench::{
    Candidate, Certificate, CertificateVerdict, Hash, Language, Task, library_use,
    pool::{About, Pool, PoolError, Pooled, Reflection},
};
use metrics::MachineKind;
use prompts::{Past, PlanLine, Prompt};
use std::path::{Path, PathBuf};

/// The folder of a pool where nobody names one.
const USUAL_FOLDER: &str = "pool";

/// Does what is asked about the pool.
pub(super) fn pool(what: &PoolCommand, config: &Config, environment: &Environment) -> Result<Exit, Trouble> {
    match what {
        PoolCommand::Add(arguments) => add(arguments, config),
        PoolCommand::Reflect(arguments) => reflect(arguments, config, environment),
        PoolCommand::List(arguments) => list(arguments, config),
    }
}

fn folder(named: Option<&Path>, config: &Config) -> PathBuf {
    let set = Some(config.prompts.pool.as_str()).filter(|folder| !folder.is_empty());
    named.map_or_else(|| set.unwrap_or(USUAL_FOLDER).into(), Path::to_owned)
}

/// What the settings have models shown; none where they name no folder.
pub(super) fn shown(config: &Config) -> Result<Option<Pool>, Trouble> {
    let named = &config.prompts.pool;
    if named.is_empty() {
        return Ok(None);
    }
    Pool::read(Path::new(named)).map(Some).map_err(|error| Trouble::usage(format!("prompts.pool: {error}")))
}

fn add(arguments: &PoolAddArgs, config: &Config) -> Result<Exit, Trouble> {
    let run = RunFolder::open(&arguments.run)?;
    let task = arguments.task.clone().map_or_else(|| run.only_task(), Ok)?;
    let mut new = match candidate(&run.record(&task)?, arguments.simulated, config)? {
        Ok(new) => new,
        Err(why) => return Ok(refuse(&why)),
    };
    if let Some(workload) = &arguments.workload {
        new.about.workload.clone_from(workload);
    }
    let folder = folder(arguments.pool.as_deref(), config);
    match Pool::admit(&folder, &new) {
        Ok(file) => {
            say(&format!("admitted: {}", plain(&line(&new))));
            say(&format!("{}", file.display()));
            Ok(Exit::Done)
        }
        Err(PoolError::Refused(why)) => Ok(refuse(&why)),
        Err(error) => Err(Trouble::record(error.to_string())),
    }
}

fn refuse(why: &str) -> Exit {
    say(&format!("not admitted: {}", plain(why)));
    Exit::NothingCorrect
}

/// What a record has to offer: its certified kernel, where the record agrees with itself and nothing in it is a library's; else
/// why not.
fn candidate(record: &Record, simulated: bool, config: &Config) -> Result<Result<Pooled, String>, Trouble> {
    let verification = Verification::of(record);
    if let Some(difference) = verification.differences.first() {
        return Ok(Err(format!("the record does not agree with itself: {difference}")));
    }
    let story: Trajectory = record.events().collect();
    let certified = story.certified().and_then(|certificate| match &certificate.verdict {
        CertificateVerdict::Certified(timed) => Some((certificate, timed)),
        CertificateVerdict::Refused(_) => None,
    });
    let (Some((certificate, timed)), Some(machine), Some(definition)) = (certified, &story.machine, &story.task) else {
        return Ok(Err("nothing in this run is certified".to_owned()));
    };
    if machine.kind == MachineKind::Simulated && !simulated {
        return Ok(Err("the run was simulated: its times are made up".to_owned()));
    }
    let source = crate::best::source(&record.blobs.fetch(&certificate.candidate)?);
    let task = task(record, &story, definition)?;
    let kernels = launched(record, certificate);
    if task.language() == Language::Python && kernels.is_empty() {
        return Ok(Err("no profile says which kernels it launches, so that a library's would not be seen".to_owned()));
    }
    if let Some(how) = library_use(&source, &kernels) {
        return Ok(Err(format!("it takes its work from a library: it {how}")));
    }
    let features = features::library(config)?;
    let about = About {
        over: timed.over().to_owned(),
        machine: machine.name.clone(),
        evidence: record.evidence.last().cloned().unwrap_or_else(|| definition.clone()),
        reflections: learned(&story),
        ..About::of(&task, definition.clone(), &features, &source, &timed.speedup)
    };
    Ok(Ok(Pooled { about, arch: machine.arch.clone(), language: task.language(), source }))
}

/// What was written down after its rounds: the latest, as many as a run is asked for at its end.
fn learned(story: &Trajectory) -> Vec<Reflection> {
    let lessons: Vec<Reflection> = story.reflected().flat_map(|one| one.lessons.clone()).collect();
    lessons[lessons.len().saturating_sub(prompts::MOST_REFLECTIONS)..].to_vec()
}

/// The task of a record, with what its reference was seen to take.
fn task(record: &Record, story: &Trajectory, definition: &Hash) -> Result<Task, Trouble> {
    let task: Task = serde_json::from_str(&record.blobs.fetch(definition)?)
        .map_err(|e| Trouble::record(format!("the record's task cannot be read: {e}")))?;
    Ok(match &story.baseline {
        Some(baseline) => task.with_signature(&baseline.signature),
        None => task,
    })
}

/// Asks a model what a run taught whose kernel is in the pool, and puts that beside the kernel.
fn reflect(arguments: &PoolReflectArgs, config: &Config, environment: &Environment) -> Result<Exit, Trouble> {
    let run = RunFolder::open(&arguments.run)?;
    let name = arguments.task.clone().map_or_else(|| run.only_task(), Ok)?;
    let record = run.record(&name)?;
    let of_run = match candidate(&record, true, config)? {
        Ok(of_run) => of_run,
        Err(why) => return Ok(told_nothing(&why)),
    };
    let folder = folder(arguments.pool.as_deref(), config);
    let pool = Pool::read(&folder).map_err(|error| Trouble::usage(error.to_string()))?;
    let Some(kernel) = pool.brought_in(&of_run.arch, &of_run.about) else {
        let (pool, run) = (folder.display(), arguments.run.display());
        return Ok(told_nothing(&format!("its kernel is not in {pool}: `warpsmith pool add {run}` first")));
    };
    // A letter of its own for each kernel.
    let command = format!("reflect.{}.{}", kernel.arch, kernel.about.name());
    let once = Once {
        config,
        environment,
        exit_when_waiting: arguments.exit_when_waiting,
        model: &arguments.model,
        command: &command,
        purpose: Purpose::Reflect,
    };
    let prompt = looking_back(&record, kernel, config)?;
    let reflections = once.ask(prompt, prompts::read_reflections)?;
    let said: Vec<String> = reflections.iter().map(|one| format!("  {}", plain(&one.insight))).collect();
    let file = match Pool::reflect(&folder, kernel, reflections) {
        Ok(file) => file,
        Err(PoolError::Refused(why)) => return Ok(refuse(&why)),
        Err(error) => return Err(Trouble::record(error.to_string())),
    };
    say(&format!("{} taught, as {} put it; none of it was checked:", kernel.about.name(), plain(&arguments.model)));
    for line in &said {
        say(line);
    }
    say(&format!("{}", file.display()));
    Ok(Exit::Done)
}

fn told_nothing(why: &str) -> Exit {
    say(&format!("nobody was asked: {}", plain(why)));
    Exit::NothingCorrect
}

/// What a model is asked about a run that is over.
fn looking_back(record: &Record, kernel: &Pooled, config: &Config) -> Result<Prompt, Trouble> {
    let story: Trajectory = record.events().collect();
    let (Some(machine), Some(definition), Some(certificate)) = (&story.machine, &story.task, story.certified()) else {
        return Err(Trouble::record("nothing in this run is certified"));
    };
    let history: Vec<PlanLine> = story.finished().map(show::told).collect();
    let best = Candidate::of_canonical(&record.blobs.fetch(&certificate.candidate)?);
    let [ratio, low, high] = kernel.about.speedup;
    let claim = format!("{ratio:.2}x [{low:.2}, {high:.2}] over {}", kernel.about.over);
    let past = Past { history: &history, kernel: &best, claim: &claim };
    Ok(super::prompts::library(config)?.reflect(&task(record, &story, definition)?, machine, past))
}

/// The kernels that profiles of the certified candidate saw it launch.
fn launched(record: &Record, certificate: &Certificate) -> Vec<String> {
    let profiles = record.events().filter_map(|event| match event {
        Event::Profiled { candidate, profile: Ok(profile) } if candidate == certificate.candidate => Some(profile),
        _ => None,
    });
    profiles.flat_map(|profile| profile.kernels).map(|kernel| kernel.name).collect()
}

fn line(kernel: &Pooled) -> String {
    let About { machine, speedup: [ratio, low, high], over, .. } = &kernel.about;
    format!("{} {}  {ratio:.2}x [{low:.2}, {high:.2}] over {over}, {machine}", kernel.arch, kernel.about.name())
}

fn list(arguments: &PoolListArgs, config: &Config) -> Result<Exit, Trouble> {
    let folder = folder(arguments.pool.as_deref(), config);
    let pool = Pool::read(&folder).map_err(|error| Trouble::usage(error.to_string()))?;
    if arguments.json {
        let all: Vec<_> = pool.kernels().iter().map(|kernel| &kernel.about).collect();
        say(&json(&all));
    } else if pool.kernels().is_empty() {
        say(&format!("{}: no kernel yet", folder.display()));
    }
    if !arguments.json {
        pool.kernels().iter().for_each(|kernel| say(&plain(&line(kernel))));
    }
    Ok(Exit::Done)
}
