//! What can be asked of the program?

mod evaluate;
mod features;
mod flags;
mod metrics;
mod pool;
mod prompts;
mod report;
mod study;
mod tensor;
mod transform;

pub use self::evaluate::EvaluateArgs;
pub use self::features::{
    FeaturesCommand, FeaturesListArgs, FeaturesReportArgs, FeaturesScoreArgs, FeaturesShowArgs, FeaturesVerifyArgs,
};
pub use self::flags::{
    ChoiceArgs, GpusArgs, HandArgs, LimitArgs, ModelArgs, PlannerArg, ProblemArgs, ShapesArg, TimingArgs, WayArgs,
    WidthArgs,
};
pub use self::metrics::{HandedOver, Metrics, MetricsArgs, MetricsSampleArgs, MetricsShowArgs};
pub use self::pool::{PoolAddArgs, PoolCommand, PoolListArgs, PoolReflectArgs};
pub use self::prompts::{PromptsArgs, PromptsCommand, RenderArgs, RenderRole};
pub use self::report::ReportArgs;
pub use self::study::{StudyCommand, StudyErrorsArgs, SuccessRateArgs, TrajectoryArgs, TuningDepthArgs};

pub use self::tensor::{AskArgs, HardwareArgs};
pub use self::transform::{NewNameArgs, RestoreArgs, TransformArgs, TreeArgs, TuneArgs};

use crate::{
    command::{
        ablate::{self, AblateArgs},
        compare::{self, CompareArgs},
        export::{self, ExportArgs},
        scores::{self, ScoresArgs},
        sglang::{self, Sglang},
        worker::{self, WorkerArgs},
    },
    exit::Exit,
    hosts::HostsArgs,
    progress::fitted,
    version::VERSION,
};
use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::{ffi::OsString, path::PathBuf};

/// Makes kernels faster with language models, and believes nothing it has not measured.
#[derive(Debug, Parser)]
#[command(name = "warpsmith", version = VERSION, max_term_width = 110, after_help = Exit::help(), long_about = LONG_ABOUT)]
pub struct Cli {
    /// Settings; without this, `warpsmith.toml` in the working directory, if there is one.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// When to colour: `auto` where it is a terminal and the variable `NO_COLOR` is not set.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
    /// Say only what came of it, with warnings and errors: no rounds, no line that moves.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Reads the command line. `--color` counts for what the reading itself has to say, too.
///
/// # Errors
///
/// What is wrong with it, or what was asked for instead: help, the version.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let words = || arguments.iter().filter_map(|word| word.to_str());
    let after = words().skip_while(|word| *word != "--color").nth(1);
    let choice = words().find_map(|word| word.strip_prefix("--color=")).or(after);
    let choice = choice.and_then(|choice| ColorChoice::from_str(choice, true).ok()).unwrap_or_default();
    Cli::from_arg_matches(&Cli::command().color(choice).try_get_matches_from(&arguments)?)
}

/// Prints what the reading has to say, its lines broken between words where they go to a terminal.
pub(crate) fn print(told: &clap::Error) {
    use std::io::Write;
    let terminal = if told.use_stderr() { console::Term::stderr() } else { console::Term::stdout() };
    if !terminal.is_term() {
        let _ = told.print();
        return;
    }
    let coloured = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let text = if coloured { told.render().ansi().to_string() } else { told.render().to_string() };
    let _ = (&terminal).write_all(fitted(&text, &terminal).as_bytes());
}

const LONG_ABOUT: &str = "\
Makes kernels faster with language models, and believes nothing it has not measured.

A task is a folder with a kernel's plain reference. A Coder writes candidates, a Judge says what is wrong with them or \
slow about them, and every candidate is compiled, checked against the reference and timed here. The fastest correct one \
is examined anew at the end; what is reported is that number, with its interval.

Example, without a key and without a network:
  warpsmith run examples/silu_and_mul";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a task of a source: a C++ or CUDA function, or a PyTorch module. It runs as it is, and says what to look over.
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Make a task of one sentence that names a tensor operator, its sizes and the hardware.
    #[command(after_help = ASK_EXAMPLES)]
    Ask(AskArgs),
    /// What is known of a hardware: memory, instructions, registers and multiprocessors, each with its source.
    Hardware(HardwareArgs),
    /// Work on a task: ask a model for candidates, examine them, certify the best.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
    /// Work on many tasks at once: a folder of problems or of kernel contexts, or a suite.
    #[command(after_help = BATCH_EXAMPLES)]
    Batch(Box<BatchArgs>),
    /// Say how far a run has come, while it runs or afterwards.
    #[command(after_help = "Examples:\n  warpsmith status RUN\n  warpsmith status RUN --json")]
    Status(StatusArgs),
    /// Go on with a run that was interrupted, waits for replies, or broke off.
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(ResumeArgs),
    /// List the runs of this folder, the newest last, and how far each has come.
    #[command(after_help = RUNS_EXAMPLES)]
    Runs(RunsArgs),
    /// End a run that was interrupted or waits for replies, and certify the best that it has.
    #[command(after_help = "Examples:\n  warpsmith finish RUN")]
    Finish(FinishArgs),
    /// Make a whole run again from its record alone, without a model and a compiler, and say whether it agrees.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Apply a transformation to a kernel context: a small written change, checked, tuned and kept as a checkpoint.
    #[command(after_help = transform::TRANSFORM_EXAMPLES)]
    Transform(Box<TransformArgs>),
    /// Search the configurations of a checkpoint again, and keep the fastest as a checkpoint: no model is asked.
    #[command(after_help = transform::TUNE_EXAMPLES)]
    Tune(TuneArgs),
    /// Print the checkpoints of a run, the tries that failed, and where it goes on.
    #[command(after_help = transform::TREE_EXAMPLES)]
    Tree(TreeArgs),
    /// Give a checkpoint of a run a name.
    #[command(after_help = transform::CHECKPOINT_EXAMPLES)]
    Checkpoint(NewNameArgs),
    /// Begin a branch at a checkpoint of a run, and let the run go on there.
    #[command(after_help = transform::BRANCH_EXAMPLES)]
    Branch(NewNameArgs),
    /// Let a run go on from one of its checkpoints or on one of its branches.
    #[command(after_help = transform::RESTORE_EXAMPLES)]
    Restore(RestoreArgs),
    /// Serve the workflow's commands to agents, as tools of the Model Context Protocol.
    #[command(disable_help_flag = true)]
    Mcp(HandedOver),
    /// Say whether a run's numbers follow from the samples and texts that it holds, or where it was changed.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Print the rounds of a run, one round in full, or the difference between two candidates.
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Write the report of a run: one HTML file that needs no network.
    #[command(after_help = report::EXAMPLES)]
    Report(ReportArgs),
    /// Say how good a run was: correct, faster, how much, at what cost, in all and task by task.
    #[command(after_help = scores::EXAMPLES)]
    Scores(ScoresArgs),
    /// Set runs of the same tasks side by side, and say what is more than chance.
    #[command(after_help = compare::EXAMPLES)]
    Compare(CompareArgs),
    /// Work on the same tasks in several ways, and compare them: policies, models, metrics, rounds.
    #[command(after_help = ablate::EXAMPLES)]
    Ablate(AblateArgs),
    /// Ask PEAK's research questions of a workflow: how speed evolves, how often models succeed, how deep tuning must go.
    #[command(subcommand, after_help = study::EXAMPLES)]
    Study(StudyCommand),
    /// Lay a run out as another project's scripts expect it.
    #[command(after_help = export::EXAMPLES)]
    Export(ExportArgs),
    /// Build, check and time candidates, with no model at all.
    #[command(after_help = evaluate::EXAMPLES)]
    Evaluate(EvaluateArgs),
    /// Say what this machine can and cannot do, why, and what to install.
    #[command(after_help = "Examples:\n  warpsmith doctor\n  warpsmith doctor --json | jq .compilers")]
    Doctor(DoctorArgs),
    /// Have this host's devices work for whoever asks a message server: builds, checks, times, profiles.
    #[command(after_help = worker::WORKER_EXAMPLES)]
    Worker(Box<WorkerArgs>),
    /// List the policies: the ways to work on a task.
    #[command(
        after_help = "Examples:\n  warpsmith policies\n  warpsmith policies cudaforge > mine.toml   # to change it: run TASK --policy mine.toml"
    )]
    Policies(NameArgs),
    /// List the prompt templates, print one, or render what a role would be sent.
    #[command(after_help = prompts::EXAMPLES)]
    Prompts(PromptsArgs),
    /// Which metrics tell a fast kernel from a slow one: choose a set from profiles, score it, show it.
    #[command(after_help = METRICS_EXAMPLES)]
    Metrics(MetricsArgs),
    /// Features of architectures: list them, read one, prove that their counters fire.
    #[command(subcommand, after_help = features::EXAMPLES)]
    Features(FeaturesCommand),
    /// Kernels that were certified earlier, for the models of later runs: add a run's, list them.
    #[command(subcommand, after_help = pool::EXAMPLES)]
    Pool(PoolCommand),
    /// Take operators out of SGLang as tasks, and put faster kernels back.
    #[command(subcommand, after_help = sglang::EXAMPLES)]
    Sglang(Box<Sglang>),
    /// Print what a shell needs to complete commands and flags.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write a man page for each command.
    #[command(after_help = "Example:\n  warpsmith man ~/.local/share/man/man1")]
    Man(ManArgs),
    /// Print the settings in force and where each comes from.
    #[command(after_help = "Examples:\n  warpsmith config\n  warpsmith config --defaults > warpsmith.toml")]
    Config(ConfigArgs),
}

/// `run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The task: a folder that holds a task.toml, or a problem in KernelBench's format (a Python file). Without one, those
    /// that are here are listed.
    pub task: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub problem: ProblemArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub limits: LimitArgs,
    /// The run's folder, which must not exist or be empty [default: runs/TIME-TASK].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub way: WayArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub timing: TimingArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub gpus: GpusArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub hosts: HostsArgs,
    /// On a simulated machine: nothing is compiled or run, the times are made up. For trying the machinery.
    #[arg(long)]
    pub simulate: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub hand: HandArgs,
    /// Print every event as a line of JSON, and a last line with the outcome.
    #[arg(long)]
    pub json: bool,
}

/// `batch`
#[derive(Debug, Args)]
pub struct BatchArgs {
    /// The tasks: a folder of KernelBench or one of its levels, a folder whose folders hold a task.toml, or a suite (a name
    /// or a file), whose problems are in the folder --problems.
    pub tasks: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub choice: ChoiceArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub problem: ProblemArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub width: WidthArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub limits: LimitArgs,
    /// The run's folder, which must not exist or be empty [default: runs/TIME-NAME].
    #[arg(long, short, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub way: WayArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub timing: TimingArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub hosts: HostsArgs,
    /// On simulated machines: nothing is compiled or run, the times are made up. For trying the machinery.
    #[arg(long)]
    pub simulate: bool,
    /// Show it in a browser meanwhile, at this port of 127.0.0.1 [default: one that is free]; `warpsmith report RUN --serve`
    /// does so at any time.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub serve: Option<u16>,
    /// Print what came of it as a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// `status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `runs`
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Where the folders of runs are [default: run.folder, which is runs].
    pub folder: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `resume`
#[derive(Debug, Default, Args)]
pub struct ResumeArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Go on only as far as no device is needed, such as from a Judge's reply to the next question: where the
    /// GPU is not at hand.
    #[arg(long)]
    pub without_device: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub model: ModelArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub width: WidthArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub limits: LimitArgs,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub hosts: HostsArgs,
    /// How many candidates are written for a task in all: more than it has makes a run that ended go on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Limits")]
    pub rounds: Option<u32>,
    /// The Python that has torch, where the run works on problems: a run's folder does not say which programs are started
    /// [default: workshop.python, or python3].
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub hand: HandArgs,
    /// Print every event as a line of JSON, and a last line with the outcome.
    #[arg(long)]
    pub json: bool,
}

/// `finish`
#[derive(Debug, Args)]
pub struct FinishArgs {
    /// The run's folder. Nobody may be working on it: a process that is can be interrupted with Ctrl-C, and loses nothing.
    pub run: PathBuf,
    /// The Python that has torch, where the run works on problems: a run's folder does not say which programs are started
    /// [default: workshop.python, or python3].
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,
    /// Print every event as a line of JSON, and a last line with the outcome.
    #[arg(long)]
    pub json: bool,
}

/// `replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Of a run of many tasks, this one's part alone.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Print the outcome as JSON; of many tasks a list.
    #[arg(long)]
    pub json: bool,
}

/// `verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The run's folder.
    pub run: PathBuf,
    /// Of a run of many tasks, this one alone.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// Print what was found as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `show`
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The run's folder; RUN@NAME for one of its candidates or checkpoints.
    #[arg(value_name = "RUN[@NAME]")]
    pub run: PathBuf,
    /// One round, in full.
    pub round: Option<u32>,
    /// Of a run of many tasks, this one's.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// The difference between two candidates, each named by its round, its checkpoint, the first digits of its id, `best` or
    /// `reference`.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "round")]
    pub diff: Option<Vec<String>>,
    /// The source of a candidate as it is compiled, named in the same way, or the best one's.
    #[arg(long, num_args = 0..=1, default_missing_value = "best", value_name = "best|N", conflicts_with_all = ["round", "diff"])]
    pub source: Option<String>,
    /// Print the rounds as another system logs them.
    #[arg(long, value_enum, conflicts_with_all = ["round", "diff", "source", "json"])]
    pub format: Option<LogFormat>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// How another system logs a run.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// Tuples of round, code (its hash), correctness (1 or 0) and performance (the speedup), the baseline first.
    Astra,
}

/// `init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// A plain, correct source: C, C++ or CUDA with one `extern "C"` function (.c, .cpp, .cu), or a PyTorch module (.py).
    pub source: PathBuf,
    /// The folder to make, for a module the file [default: the function's name].
    #[arg(long, short, value_name = "PATH")]
    pub out: Option<PathBuf>,
    /// The function, or the class of the module, where the source has several.
    #[arg(long, value_name = "NAME")]
    pub entry: Option<String>,
}

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// `man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Where to write them.
    pub folder: PathBuf,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap shows a flattened field's doc as the command's own")]
    pub hosts: HostsArgs,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// A command that lists, or shows one.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// Which one to print; without it, all are listed.
    pub name: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `config`
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the commented defaults instead, to start a `warpsmith.toml` from.
    #[arg(long)]
    pub defaults: bool,
}

const METRICS_EXAMPLES: &str = "\
select, score and report, and the table that sample writes, are made by warpsmith-metrics, a program of its own:
`cargo install --locked --path metrics/selection` installs it from a checkout.

Examples:
  warpsmith metrics show cudaforge24
  warpsmith metrics --build select profiles.parquet --out mine.toml";

const INIT_EXAMPLES: &str = "\
Arrays are taken for inputs where they are const and for outputs where they are not, and their length for the product of
the function's whole numbers: the file says where to look. `warpsmith evaluate TASK TASK/reference.cpp` tries it.

Examples:
  warpsmith init scale.cpp                  # makes scale/ with a task.toml and the reference
  warpsmith init rmsnorm.cu -o tasks/rmsnorm
  warpsmith init module.py --entry Attention -o attention.py";

const ASK_EXAMPLES: &str = "\
What the sentence lacks is asked for; without a terminal the command ends with 2 and says what.

Examples:
  warpsmith ask \"Write a high performance GEMM, m=n=k=1024, on this CPU\" -o tasks/gemm
  warpsmith ask \"conv2d of a 56x56 image, 64 channels, 64 filters of 3x3, padding 1, on this CPU\"
  warpsmith run tasks/gemm --policy qimeng --model openai:NAME --evaluations 32";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  warpsmith completions bash > ~/.local/share/bash-completion/completions/warpsmith
  warpsmith completions zsh > ~/.zfunc/_warpsmith
  warpsmith completions fish > ~/.config/fish/completions/warpsmith.fish";

const RUN_EXAMPLES: &str = "\
Examples:
  warpsmith run examples/silu_and_mul                                     # replies from the recorded run beside it
  OPENAI_API_KEY=... warpsmith run examples/silu_and_mul --model openai:NAME
  warpsmith run TASK --model mailbox:letters --exit-when-waiting          # you answer: see letters/HOW_TO_ANSWER.txt
  warpsmith run TASK --policy astra --rounds 5 --planner model";

const BATCH_EXAMPLES: &str = "\
A file that cannot be read is named at the start and does not stop the others. `warpsmith resume` goes on with a batch.

Examples:
  warpsmith batch KernelBench --suite dstar --model openai:NAME --calls 40 --usd 20
  warpsmith batch KernelBench/level1 --ids 1-10 --model mailbox:letters --exit-when-waiting
  warpsmith batch examples --match silu --model openai:NAME --task-usd 0.50
  warpsmith batch kb250 --problems KernelBench --sample 0.1 --sample-seed 7 --model openai:NAME
  warpsmith batch kb250 --problems KernelBench --shard 2/5 --gpus 0,1 --model openai:NAME";

const RUNS_EXAMPLES: &str = "\
Wherever a command takes a run's folder, `latest` names the newest of these, and a part of a name the one run that has it.

Examples:
  warpsmith runs
  warpsmith show latest
  warpsmith status silu";

const RESUME_EXAMPLES: &str = "\
No finished round is made again and no answered question is asked again. Start it in the directory that the run was
started in if its model is a file or a folder.

Examples:
  warpsmith resume runs/20261120-151203-silu_and_mul
  warpsmith resume RUN --model openai:NAME                                # another model goes on
  warpsmith resume RUN --rounds 20                                        # a run that has ended goes on
  warpsmith resume RUN --usd 5                                            # so does one that ended at a limit, with more";

const REPLAY_EXAMPLES: &str = "\
Ends with 0 if everything agrees (times of day and waiting times aside), with 1 and the first difference if not.

Examples:
  warpsmith replay examples/silu_and_mul/recorded
  warpsmith replay RUN --json";

const VERIFY_EXAMPLES: &str = "\
Computes every ratio and interval again from its samples, compares every text with its hash, and every step and certificate
with what stands before it. Ends with 0 if all agrees, with 1 if something differs. Whoever makes up samples that fit each
other is not found out: `warpsmith evaluate --certify` measures a candidate anew.

Examples:
  warpsmith verify RUN
  warpsmith verify RUN --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  warpsmith show RUN
  warpsmith show RUN 3
  warpsmith show RUN --diff 2 3 | patch mine.cpp                          # mine.cpp holds the candidate of round 2
  warpsmith show RUN --source > best.cpp
  warpsmith show W@c7                                                     # a checkpoint, a round, `best`: all of it
  warpsmith show BATCH                                                    # its tasks; then --task NAME
  warpsmith show RUN --format astra";
