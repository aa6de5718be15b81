//! `warpsmith pool`: certified kernels, kept for the models of later runs

use crate::{
    cli::{PoolAddArgs, PoolCommand, PoolListArgs},
    command::{features, json, say},
    config::Config,
    exit::{Exit, Trouble},
    progress::plain,
    store::{Record, RunFolder},
    verify::Verification,
};
use agents::{event::Event, trajectory::Trajectory};
use kernelbench::{
    Certificate, CertificateVerdict, Language, Task, library_use,
    pool::{About, Pool, PoolError, Pooled},
};
use metrics::MachineKind;
use std::path::{Path, PathBuf};

/// The folder of a pool where nobody names one.
const USUAL_FOLDER: &str = "pool";

/// Does what is asked about the pool.
pub(super) fn pool(what: &PoolCommand, config: &Config) -> Result<Exit, Trouble> {
    match what {
        PoolCommand::Add(arguments) => add(arguments, config),
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
    let mut task: Task = serde_json::from_str(&record.blobs.fetch(definition)?)
        .map_err(|e| Trouble::record(format!("the record's task cannot be read: {e}")))?;
    if let Some(baseline) = &story.baseline {
        task = task.with_signature(&baseline.signature);
    }
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
        ..About::of(&task, definition.clone(), &features, &source, &timed.speedup)
    };
    Ok(Ok(Pooled { about, arch: machine.arch.clone(), language: task.language(), source }))
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
