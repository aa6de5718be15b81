//! What does each command do?

pub(crate) mod ablate;
mod ask;
mod batch;
pub(crate) mod compare;
mod completions;
mod config;
mod doctor;
mod evaluate;
mod examples;
pub(crate) mod export;
pub(crate) mod features;
mod hardware;
mod init;
mod metrics;
mod once;
mod policies;
mod pool;
mod prompts;
mod replay;
mod report;
mod resume;
mod run;
mod runs;
pub(crate) mod scores;
pub(crate) mod sglang;
mod show;
mod status;
mod study;
pub(crate) mod transform;
mod verify;
pub(crate) mod worker;
mod workflow;

use crate::{
    cli::{
        Cli, Command, FinishArgs, PromptsArgs, PromptsCommand, ReplayArgs, ReportArgs, ResumeArgs, ShowArgs,
        StatusArgs, VerifyArgs,
    },
    config::Layers,
    exit::{Exit, Trouble},
    key::Environment,
    logging,
    progress::{self, fitted},
    store,
};
use std::{future::Future, path::PathBuf, time::Duration};

/// Does it, and says how to end.
///
/// # Errors
///
/// Why not.
pub(crate) fn execute(mut cli: Cli, environment: &Environment) -> Result<Exit, Trouble> {
    logging::colour(cli.color);
    if cli.quiet {
        progress::be_quiet();
    }
    let layers = Layers::load(cli.config.as_deref())?;
    for run in named_runs(&mut cli.command) {
        *run = store::find(&layers.config.run.folder, run)?;
    }
    match cli.command {
        Command::Init(arguments) => init::init(&arguments),
        Command::Ask(arguments) => ask::ask(&arguments, &layers, environment),
        Command::Hardware(arguments) => hardware::hardware(&arguments, layers, environment),
        Command::Completions(arguments) => completions::completions(&arguments),
        Command::Man(arguments) => completions::man(&arguments),
        Command::Run(arguments) => run::run(&arguments, layers, environment),
        Command::Batch(arguments) => batch::batch(&arguments, layers, environment),
        Command::Runs(arguments) => runs::runs(&arguments, &layers),
        Command::Status(arguments) => status::status(&arguments),
        Command::Finish(arguments) => resume::finish(&arguments, layers, environment),
        Command::Resume(arguments) => resume::resume(&arguments, &layers, environment),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Transform(arguments) => transform::transform(*arguments, layers, environment),
        Command::Tune(arguments) => transform::tune(arguments, &layers, environment),
        Command::Tree(arguments) => workflow::print_tree(&arguments, &layers.config),
        Command::Checkpoint(arguments) => workflow::checkpoint(&arguments, &layers.config),
        Command::Branch(arguments) => workflow::branch(&arguments, &layers.config),
        Command::Restore(arguments) => workflow::restore(&arguments, &layers.config),
        Command::Mcp(what) => Err(crate::handover::Companion::mcp()?.serve(&what.arguments, environment)),
        Command::Verify(arguments) => verify::verify(&arguments),
        Command::Show(arguments) => show::show(&arguments, &layers.config.run.folder),
        Command::Scores(arguments) => scores::scores(&arguments),
        Command::Ablate(arguments) => ablate::ablate(&arguments, &layers, environment),
        Command::Compare(arguments) => compare::compare(&arguments, &layers),
        Command::Study(what) => study::study(&what, &layers, environment),
        Command::Export(arguments) => export::export(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Evaluate(arguments) => evaluate::evaluate(&arguments, layers),
        Command::Doctor(arguments) => doctor::doctor(&arguments, layers, environment),
        Command::Worker(arguments) => worker::worker(&arguments, cli.config.as_deref(), layers, environment),
        Command::Policies(arguments) => policies::policies(&arguments),
        Command::Prompts(arguments) => prompts::prompts(&arguments, &layers.config),
        Command::Metrics(what) => metrics::metrics(&what, layers),
        Command::Features(what) => features::features(&what, layers, environment),
        Command::Pool(what) => pool::pool(&what, &layers.config, environment),
        Command::Sglang(what) => sglang::sglang(&what, &layers),
        Command::Config(arguments) => config::config(&arguments, &layers),
    }
}

/// The runs that a command names, which need not be whole paths.
fn named_runs(command: &mut Command) -> Vec<&mut PathBuf> {
    match command {
        Command::Status(StatusArgs { run, .. })
        | Command::Finish(FinishArgs { run, .. })
        | Command::Resume(ResumeArgs { run, .. })
        | Command::Replay(ReplayArgs { run, .. })
        | Command::Verify(VerifyArgs { run, .. })
        | Command::Show(ShowArgs { run, .. })
        | Command::Scores(scores::ScoresArgs { run, .. })
        | Command::Export(export::ExportArgs { run, .. })
        | Command::Report(ReportArgs { run, .. }) => vec![run],
        Command::Compare(arguments) => arguments.runs.iter_mut().collect(),
        Command::Prompts(PromptsArgs { render: Some(PromptsCommand::Render(arguments)), .. }) => {
            arguments.run.iter_mut().collect()
        }
        _ => vec![],
    }
}

/// How long what still runs is waited for when a command is done, and when it failed or was interrupted.
const LEFT: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(300)];

/// Runs a command's asynchronous part. Threads begin here, after the key was taken out of the environment. What still
/// blocks when it is done is not waited for long; where it failed, the processes that it started are ended.
fn on_threads<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Trouble::machine(format!("cannot start threads: {e}")))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(LEFT[usize::from(done.is_err())]);
    if done.is_err() {
        // Only now: nobody is left who would take their end for a candidate's.
        kernelbench::end_processes();
    }
    done
}

/// What is said of a simulated machine.
const SIMULATED: &str = "simulated: nothing is built or run, all times are made up";

/// Prints a line for people, or JSON for scripts; a reader that went away is no reason to fail.
fn say(line: &str) {
    verbatim(&fitted(line, &console::Term::stdout()));
}

/// Prints a text as it is: what is to be a file.
fn verbatim(text: &str) {
    progress::out(text);
}

/// As JSON, for scripts.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
