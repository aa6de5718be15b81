//! What does each command do?

pub(crate) mod ablate;
mod batch;
pub(crate) mod compare;
mod completions;
mod config;
mod doctor;
mod evaluate;
mod examples;
pub(crate) mod export;
mod init;
mod metrics;
mod policies;
mod prompts;
mod replay;
mod report;
mod resume;
mod run;
pub(crate) mod scores;
pub(crate) mod sglang;
mod show;
mod status;
pub(crate) mod transform;
mod workflow;

pub(crate) use report::write as write_report;

use crate::{
    cli::{Cli, Command},
    config::Layers,
    exit::{Exit, Trouble},
    key::Environment,
    logging,
};
use std::future::Future;

/// Does it, and says how to end.
///
/// # Errors
///
/// Why not.
pub(crate) fn execute(cli: Cli, environment: &Environment) -> Result<Exit, Trouble> {
    logging::colour(cli.color);
    let layers = Layers::load(cli.config.as_deref())?;
    match cli.command {
        Command::Init(arguments) => init::init(&arguments),
        Command::Completions(arguments) => completions::completions(&arguments),
        Command::Man(arguments) => completions::man(&arguments),
        Command::Run(arguments) => run::run(&arguments, layers, environment),
        Command::Batch(arguments) => batch::batch(&arguments, layers, environment),
        Command::Status(arguments) => status::status(&arguments),
        Command::Finish(arguments) => resume::finish(&arguments, layers, environment),
        Command::Resume(arguments) => resume::resume(&arguments, &layers, environment),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Transform(arguments) => transform::transform(*arguments, layers, environment),
        Command::Tree(arguments) => workflow::print_tree(&arguments),
        Command::Checkpoint(arguments) => workflow::checkpoint(&arguments),
        Command::Branch(arguments) => workflow::branch(&arguments),
        Command::Restore(arguments) => workflow::restore(&arguments),
        Command::Show(arguments) => show::show(&arguments),
        Command::Scores(arguments) => scores::scores(&arguments),
        Command::Ablate(arguments) => ablate::ablate(&arguments, &layers, environment),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Export(arguments) => export::export(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Evaluate(arguments) => evaluate::evaluate(&arguments, layers),
        Command::Doctor(arguments) => doctor::doctor(&arguments, &layers, environment),
        Command::Policies(arguments) => policies::policies(&arguments),
        Command::Prompts(arguments) => prompts::prompts(&arguments, &layers.config),
        Command::Metrics(what) => metrics::metrics(&what, layers),
        Command::Sglang(what) => sglang::sglang(&what, &layers),
        Command::Config(arguments) => config::config(&arguments, &layers),
    }
}

/// Runs a command's asynchronous part. Threads begin here, after the key was taken out of the environment. What still
/// blocks when it is done is not waited for.
fn on_threads<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Trouble::machine(format!("cannot start threads: {e}")))?;
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    done
}

/// Prints a line for people or scripts; a reader that went away is no reason to fail.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// As JSON, for scripts.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
