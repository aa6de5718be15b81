//! `warpsmith transform`: one small written change to a kernel context, checked, tuned and kept

use super::say;
use crate::{
    at::At,
    cli::{ResumeArgs, RunArgs, TransformArgs, TuneArgs, WayArgs},
    command::workflow,
    config::{Config, Layers},
    exit::{Exit, Trouble},
    hosts::HostsArgs,
    key::Environment,
    plan,
    session::Steps,
    wiring::Hand,
};
use agents::{planner::Request, policy::Policy};
use kernelbench::Task;
use prompts::{BACKENDS, Catalogue, Listed, Origin, Prompts, backend};
use serde_json::json;
use std::{fs, path::Path};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// The folder of a user's own transformations in the working directory.
const USUAL_FOLDER: &str = "transformations";
/// The policy of a run that a transformation begins.
const BY_HAND: &str = "peak";

/// What a workflow begins with, or goes on with.
pub(super) struct Begun {
    /// The transformation, or several.
    pub(super) steps: Steps,
    /// The candidate in the place of the task's reference, where one was named.
    pub(super) seed: Option<At>,
}

/// Lists the transformations, or applies one.
pub(super) fn transform(
    arguments: TransformArgs,
    mut layers: Layers,
    environment: &Environment,
) -> Result<Exit, Trouble> {
    let (Some(what), Some(name)) = (&arguments.what, &arguments.name) else { return list(&arguments, &layers.config) };
    catalogue(&layers.config)?.named(name).map_err(Trouble::usage)?;
    Hand::of(arguments.hand)?;
    let request = Request {
        transformation: name.clone(),
        from: None,
        say: arguments.say.clone(),
        tries: arguments.tries,
        tuning: arguments.tuning.into(),
        trial: false,
    };
    if let Some(at) = At::find(what, &layers.config.run.folder)? {
        if arguments.from.is_some() {
            let why = "--from seeds a workflow that begins: name a task before it, or the checkpoint as RUN@NAME without --from";
            return Err(Trouble::usage(format!("{what}: {why}")));
        }
        if arguments.out.is_some() || arguments.simulate {
            let why = "--out and --simulate are for a workflow that begins: a run goes on in its own folder, on its own kind of \
                       machine; `cp -r` makes another of it";
            return Err(Trouble::usage(format!("{what}: {why}")));
        }
        let from = workflow::named(&at)?.map(|checkpoint| checkpoint.id);
        let TransformArgs { model, limits, gpus, hand, json, .. } = arguments;
        let run = at.folder.path().to_owned();
        let width = gpus.into();
        let resumed = ResumeArgs { run, model, width, limits, hand, json, ..ResumeArgs::default() };
        return super::resume::transform(
            &resumed,
            &layers,
            environment,
            Begun { steps: Steps::one(Request { from, ..request }), seed: None },
        );
    }
    if !Path::new(what).exists() {
        return Err(Trouble::usage(format!("{what}: expected a task's folder, the folder of a run, or RUN@NAME")));
    }
    if let (Ok(task), None) = (plan::task(Path::new(what), &layers.config), &arguments.from) {
        let tuning = task.context().map(|context| context.tuning.clone()).unwrap_or_default();
        catalogue(&layers.config)?
            .named(name)
            .and_then(|listed| listed.transformation.fits(backend(&task), &tuning))
            .map_err(Trouble::usage)?;
    }
    layers.flag("run.policy", Some(BY_HAND.to_owned()), |config, policy| config.run.policy = policy);
    let task = Some(what.into());
    let seed = arguments.from.as_deref().map(|words| seed(words, &layers.config)).transpose()?;
    let TransformArgs { model, limits, timing, gpus, out, simulate, hand, json, .. } = arguments;
    let problem = crate::cli::ProblemArgs::default();
    let way = WayArgs::default();
    let hosts = HostsArgs::default();
    let run = RunArgs { task, model, problem, limits, out, way, timing, gpus, hosts, simulate, hand, json };
    super::run::transform(&run, layers, environment, Begun { steps: Steps::one(request), seed })
}

/// Searches the configurations of a checkpoint again.
pub(super) fn tune(arguments: TuneArgs, layers: &Layers, environment: &Environment) -> Result<Exit, Trouble> {
    let TuneArgs { at, tuning, limits, gpus, json } = arguments;
    let expected = || Trouble::usage(format!("{at}: expected the folder of a run, or RUN@NAME"));
    let at = At::find(&at, &layers.config.run.folder)?.ok_or_else(expected)?;
    let from = workflow::named(&at)?.map(|checkpoint| checkpoint.id);
    let steps = Steps::one(Request::tune(from, tuning.into()));
    let (run, width) = (at.folder.path().to_owned(), gpus.into());
    let resumed = ResumeArgs { run, width, limits, json, ..ResumeArgs::default() };
    super::resume::transform(&resumed, layers, environment, Begun { steps, seed: None })
}

/// The candidate that a workflow begins with.
fn seed(words: &str, config: &Config) -> Result<At, Trouble> {
    let expected = || Trouble::usage(format!("--from {words}: expected a candidate of a run, such as RUN@best"));
    At::candidate_named(words, &config.run.folder)?.ok_or_else(expected)
}

/// A line for each, or each as JSON.
fn list(arguments: &TransformArgs, config: &Config) -> Result<Exit, Trouble> {
    if let Some(name) = arguments.backend.as_ref().filter(|name| !BACKENDS.contains(&name.as_str())) {
        return Err(Trouble::usage(format!("there is no backend {name:?}; there are {}", BACKENDS.join(", "))));
    }
    let catalogue = catalogue(config)?;
    let fits =
        |listed: &&Listed| arguments.backend.as_ref().is_none_or(|name| listed.transformation.backends.contains(name));
    let listed: Vec<&Listed> = catalogue.all().iter().filter(fits).collect();
    if arguments.json {
        say(&super::json(&listed.iter().map(|listed| as_json(listed)).collect::<Vec<_>>()));
        return Ok(Exit::Done);
    }
    for Listed { transformation: t, .. } in &listed {
        let parameters = t.parameters.grid.keys().map(String::as_str).collect::<Vec<_>>().join(" ");
        let (passes, calls, backends) = (t.passes.len(), t.calls(), t.backends.join(" "));
        say(format!("{:<16}  {passes} / {calls}  {backends:<17}  {:<19}  {parameters}", t.name, t.origin.name())
            .trim_end());
    }
    let counts = |ours: bool| {
        let of = listed.iter().map(|listed| &listed.transformation).filter(|t| (t.origin == Origin::Ours) == ours);
        of.fold((0, 0), |(transformations, calls), t| (transformations + 1, calls + t.calls()))
    };
    let ((papers, calls), (ours, own_calls)) = (counts(false), counts(true));
    let beside = if ours > 0 { format!("; {ours} of ours, {own_calls} calls") } else { String::new() };
    say(&format!(
        "{papers} transformations, {calls} calls{beside} (passes / calls, backends, origin, tuning parameters)"
    ));
    Ok(Exit::Done)
}

fn as_json(Listed { transformation: t, .. }: &Listed) -> serde_json::Value {
    json!({
        "name": t.name, "summary": t.summary, "backends": t.backends, "arch": t.arch, "kernels": t.kernels,
        "origin": t.origin.name(), "passes": t.passes.len(), "calls": t.calls(), "parameters": t.parameters.grid,
        "constraints": t.parameters.constraints, "needs": t.needs, "retires": t.retires, "imports": t.imports, "tries": t.tries,
    })
}

/// The transformations in force: those that come with the program, with those of the user's folder beside or in their place.
pub(super) fn catalogue(config: &Config) -> Result<Catalogue, Trouble> {
    let named = &config.prompts.transformations;
    let folder = Path::new(if named.is_empty() { USUAL_FOLDER } else { named });
    if named.is_empty() && !folder.is_dir() {
        return Ok(Catalogue::embedded());
    }
    let wrong = |why: String| Trouble::usage(format!("{} (prompts.transformations): {why}", folder.display()));
    let files = files(folder).map_err(wrong)?;
    Catalogue::embedded().with(files).map_err(|e| wrong(e.to_string()))
}

/// The files of a folder and of `snippets` in it, by their names.
fn files(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let mut files = vec![];
    for folder in [folder.to_owned(), folder.join("snippets")].iter().filter(|folder| folder.is_dir()) {
        let entries = fs::read_dir(folder).map_err(|e| format!("cannot look into {}: {e}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
            let text = fs::metadata(&path).map_err(|e| e.to_string()).and_then(|about| match about.len() {
                0..=LARGEST => fs::read_to_string(&path).map_err(|e| e.to_string()),
                _ => Err("a transformation is not larger than 1 MiB".to_owned()),
            });
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, text.map_err(|why| format!("{}: {why}", path.display()))?));
        }
    }
    if files.is_empty() && !folder.is_dir() {
        return Err("there is no such folder".to_owned());
    }
    files.sort();
    Ok(files)
}

/// Whether a policy's sequence can be applied to a task at all: each step is known, is for the task's backend, and finds the
/// parameters that it builds on. Policies without a sequence suit every task.
pub(super) fn suits(policy: &Policy, task: &Task, prompts: &Prompts) -> Result<(), Trouble> {
    let Some(sequence) = &policy.sequence else { return Ok(()) };
    if let Some(processor) = task.processor() {
        let why = "whose instructions are counted: transformations are chosen and tuned by their times";
        let name = processor.full_name();
        return Err(Trouble::usage(format!("the task {} is for an emulated {name}, {why}", task.name)));
    }
    let wrong = |why: String| Trouble::usage(format!("policy {}: {why}", policy.name));
    task.initial_context().map_err(|why| Trouble::usage(format!("{}: {why}", task.name)))?;
    let mut tuning = task.context().map(|context| context.tuning.clone()).unwrap_or_default();
    for name in sequence {
        let transformation = &prompts.transformations().named(name).map_err(wrong)?.transformation;
        transformation.fits(backend(task), &tuning).map_err(wrong)?;
        tuning = transformation.space(&tuning).map_err(wrong)?;
    }
    Ok(())
}

/// What a transformation came to, as the last words of the command.
pub(crate) fn outcome(story: &agents::trajectory::Trajectory) -> (Exit, String) {
    let done = story.workflow.orders.last().is_some_and(|ordered| ordered.fate == agents::workflow::Fate::Made);
    (if done { Exit::Done } else { Exit::NothingCorrect }, workflow::tree(story))
}
