//! Which flags do several commands share, and which settings do they overrule?

use crate::{
    batch::{
        numbers::{Numbers, Shard},
        sample::share,
    },
    config::{Baselines, Layers, Word, device, limit},
};
use agents::policy::{Decider, Guidance, Shapes};
use clap::{
    Args, ValueEnum,
    builder::{NonEmptyStringValueParser, RangedU64ValueParser},
};
use kernelbench::{Beyond, Precision, ReferenceMode, Task, TimingPlan, torch::ProfilerKind};

/// Which model, and how to wait for it.
#[derive(Debug, Default, Args)]
pub struct ModelArgs {
    /// What answers: openai:NAME, openai-batch:NAME, replay:RUN, mailbox:DIR or scripted:FILE [default: the run recorded beside the task that `run` is given].
    #[arg(long, value_name = "SPEC")]
    pub model: Option<String>,
    /// With a recorded run as the model: a prompt that differs from the recorded one is an error.
    #[arg(long)]
    pub strict_replay: bool,
    /// With a mailbox as the model: end with code 10 once nothing but replies is missing, instead of waiting.
    #[arg(long)]
    pub exit_when_waiting: bool,
}

impl ModelArgs {
    /// These over others that were given before.
    pub(crate) fn over(&self, before: &Self) -> Self {
        Self {
            model: self.model.clone().or_else(|| before.model.clone()),
            strict_replay: self.strict_replay || before.strict_replay,
            exit_when_waiting: self.exit_when_waiting || before.exit_when_waiting,
        }
    }

    /// Overrules the settings.
    pub(crate) fn apply(&self, layers: &mut Layers) {
        layers.flag("model.spec", self.model.clone(), |config, spec| config.model.spec = spec);
        let strict = self.strict_replay.then_some(true);
        layers.flag("run.strict_replay", strict, |config, strict| config.run.strict_replay = strict);
    }
}

/// Where problems in `KernelBench`'s format are evaluated.
#[derive(Debug, Default, Args)]
pub struct ProblemArgs {
    /// For a problem: the device, `cpu` or `cuda:0` [default: the first NVIDIA GPU, else the processor].
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub device: Option<String>,
    /// For a problem: with which arithmetic its reference runs, `kernelbench` (torch's defaults, with TF32 in cuDNN's
    /// convolutions) or `ieee` (without TF32) [default: kernelbench].
    #[arg(long, value_name = "MODE", value_parser = ReferenceMode::read)]
    pub reference: Option<ReferenceMode>,
    /// For a problem: what comes of a candidate that is wrong on inputs of both signs, which it need not draw: a `label` beside
    /// its speedup, or a `failure` [default: label].
    #[arg(long, value_name = "WHAT", value_parser = Beyond::read)]
    pub beyond: Option<Beyond>,
    /// For a problem: what its floating-point weights and inputs are cast to, `fp32`, `fp16` or `bf16`; the tolerance is
    /// KernelBench's, 1e-4 and 1e-2 [default: fp32].
    #[arg(long, value_name = "TYPE", value_parser = Precision::read)]
    pub precision: Option<Precision>,
    /// For a problem: what its reference is timed as, of eager, compile and max-autotune (torch.compile's; slow the first
    /// time) [default: eager].
    #[arg(long, value_name = "LIST")]
    pub baselines: Option<Baselines>,
    /// For a problem: a checkout of KernelBench, whose own evaluation of what is certified stands in the certificate beside ours.
    #[arg(long, value_name = "DIR")]
    pub kernelbench: Option<String>,
    /// For a problem: the Python that has torch [default: python3].
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,
    /// For a problem: the highest rung of the ladder of profilers that is tried, `cupti`, `ncu`, `torch`, `static`
    /// or `none` [default: cupti].
    #[arg(long, value_name = "RUNG", value_parser = ProfilerKind::read)]
    pub profiler: Option<ProfilerKind>,
    /// On an NVIDIA GPU: which metrics are asked for and the Judge reads: `cudaforge24`, `hopper24`, `full`,
    /// `none` or a set's file [default: cudaforge24].
    #[arg(long, value_name = "NAME|FILE")]
    pub metrics_set: Option<String>,
}

impl ProblemArgs {
    /// Overrules the settings.
    pub(crate) fn apply(&self, layers: &mut Layers) {
        layers.flag("workshop.device", self.device.clone(), |config, device| config.workshop.device = device);
        layers.flag("workshop.python", self.python.clone(), |config, python| config.workshop.python = python);
        layers.flag("workshop.reference", self.reference, |config, mode| config.workshop.reference = mode);
        layers.flag("workshop.beyond", self.beyond, |config, beyond| config.workshop.beyond = beyond);
        layers.flag("workshop.precision", self.precision, |config, precision| config.workshop.precision = precision);
        let baselines = self.baselines.clone();
        layers.flag("workshop.baselines", baselines, |config, baselines| config.workshop.baselines = baselines);
        let kernelbench = self.kernelbench.clone();
        layers.flag("workshop.kernelbench", kernelbench, |config, folder| config.workshop.kernelbench = folder);
        layers.flag("workshop.profiler", self.profiler, |config, kind| config.workshop.profiler = Some(kind));
        layers.flag("workshop.metrics", self.metrics_set.clone(), |config, set| config.workshop.metrics = set);
    }

    /// Whether each flag that is given says something of this task: most are for problems, and kernels in CUDA have a device.
    ///
    /// # Errors
    ///
    /// In a sentence, with the first that does not: it would change nothing.
    pub(crate) fn fit(&self, task: &Task) -> Result<(), String> {
        if task.problem().is_some() {
            return Ok(());
        }
        let Self { device, reference, beyond, precision, baselines, kernelbench, .. } = self;
        let name = &task.name;
        if device.is_some() && !task.is_cuda() {
            return Err(format!(
                "--device is for problems in KernelBench's format and kernels in CUDA: {name} is neither"
            ));
        }
        let given = [
            ("--reference", reference.is_some()),
            ("--beyond", beyond.is_some()),
            ("--precision", precision.is_some()),
            ("--baselines", baselines.is_some()),
            ("--kernelbench", kernelbench.is_some()),
        ];
        let flag = given.iter().find(|(_, given)| *given);
        let none = |(flag, _): &(&str, bool)| {
            Err(format!(
                "{flag} is for problems in KernelBench's format: {name} has a task.toml, which says its types, tolerance and baselines"
            ))
        };
        flag.map_or(Ok(()), none)
    }
}

/// How to work on a task.
#[derive(Debug, Default, Args)]
pub struct WayArgs {
    /// How to work on a task: a policy's name (see `warpsmith policies`) or a file.
    #[arg(long, value_name = "NAME|FILE", value_parser = NonEmptyStringValueParser::new())]
    pub policy: Option<String>,
    /// How many candidates are written for a task.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Who chooses the shapes that candidates are tried on.
    #[arg(long, value_enum)]
    pub shapes: Option<ShapesArg>,
    /// Which cases are timed: all, largest, a case's name, or task for what the task says [default: as the policy says].
    #[arg(long, value_name = "CASES")]
    pub timed: Option<String>,
    /// Of a policy that searches: how many nodes are evaluated. A policy's own `evaluations = 0` generates alone.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub evaluations: Option<usize>,
    /// Of a policy that searches: how many nodes are evaluated at once.
    #[arg(long, value_name = "N")]
    pub open_nodes: Option<usize>,
    /// Of a policy that searches: a folder with sketch.cpp, parameters.toml and primitives.py, which is tuned as it is.
    #[arg(long, value_name = "DIR")]
    pub start: Option<String>,
    /// What models are told of the GPU's features: off, names, or guides, which are verified examples [default: as the
    /// policy says; guides on a GPU that has some].
    #[arg(long, value_name = "HOW", value_parser = Guidance::read)]
    pub features: Option<Guidance>,
    /// Who decides on the next step.
    #[arg(long, value_enum)]
    pub planner: Option<PlannerArg>,
}

impl WayArgs {
    /// Overrules the settings.
    pub(crate) fn apply(&self, layers: &mut Layers) {
        layers.flag("run.policy", self.policy.clone(), |config, policy| config.run.policy = policy);
        layers.flag("run.rounds", self.rounds, |config, rounds| config.run.rounds = rounds);
        let shapes = self.shapes.map(|shapes| match shapes {
            ShapesArg::Task => Shapes::Task,
            ShapesArg::Model => Shapes::Model,
        });
        layers.flag("run.shapes", shapes, |config, shapes| config.run.shapes = Some(shapes));
        layers.flag("run.features", self.features, |config, how| config.run.features = Some(how));
        layers.flag("run.timed", self.timed.clone(), |config, timed| config.run.timed = timed);
        layers.flag("run.evaluations", self.evaluations, |config, count| config.run.evaluations = count);
        layers.flag("run.open_nodes", self.open_nodes, |config, count| config.run.open_nodes = count);
        layers.flag("run.start", self.start.clone(), |config, folder| config.run.start = folder);
        let planner = self.planner.map(|planner| match planner {
            PlannerArg::Rule => Decider::Rule,
            PlannerArg::Model => Decider::Model,
        });
        layers.flag("run.planner", planner, |config, planner| config.run.planner = Some(planner));
    }
}

/// How a timing is taken.
#[derive(Debug, Args)]
pub struct TimingArgs {
    /// Calls before the first sample of a timing.
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Samples of a timing, two at least: one does not tell how far off it may be.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(TimingPlan::FEWEST)..=1_000_000))]
    pub repetitions: Option<u32>,
}

impl TimingArgs {
    /// Overrules the settings.
    pub(crate) fn apply(&self, layers: &mut Layers) {
        layers.flag("timing.warmup", self.warmup, |config, n| config.timing.warmup = n);
        layers.flag("timing.repetitions", self.repetitions, |config, n| config.timing.repetitions = n);
    }
}

/// On which GPUs configurations are timed.
#[derive(Clone, Debug, Default, Args)]
pub struct GpusArgs {
    /// For a context in CUDA: the GPUs of one model, 0,1 or all, on which a search times its configurations side by side; all else
    /// is done on the lowest, or on the one of --device. Not kept with a run: `resume` takes it too.
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<String>,
}

impl From<GpusArgs> for WidthArgs {
    fn from(given: GpusArgs) -> Self {
        Self { gpus: given.gpus, ..Self::default() }
    }
}

/// How much at once.
#[derive(Debug, Default, Args)]
pub struct WidthArgs {
    /// Questions to the model under way at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub calls: Option<u32>,
    /// Tasks under way at the same time [default: as many as keep the model and the devices busy].
    #[arg(long, value_name = "N")]
    pub at_once: Option<usize>,
    /// Candidates under way at the same time on each device, from the build on [default: one a core, shared].
    #[arg(long, value_name = "N")]
    pub builds: Option<usize>,
    /// The GPUs, 0,1 or all [default: all]. Of a run of one context in CUDA: those on which a search times its configurations, too
    /// [default: the run's own].
    #[arg(long, value_name = "LIST")]
    pub gpus: Option<String>,
}

impl WidthArgs {
    /// These over others that were given before.
    pub(crate) fn over(&self, before: &Self) -> Self {
        Self {
            calls: self.calls.or(before.calls),
            at_once: self.at_once.or(before.at_once),
            builds: self.builds.or(before.builds),
            gpus: self.gpus.clone().or_else(|| before.gpus.clone()),
        }
    }

    /// Overrules the settings.
    pub(crate) fn apply(&self, layers: &mut Layers) {
        layers.flag("model.in_flight", self.calls, |config, calls| config.model.in_flight = calls as usize);
        layers.flag("batch.at_once", self.at_once, |config, at_once| config.batch.at_once = at_once);
        layers.flag("batch.builds", self.builds, |config, builds| config.batch.builds = builds);
        layers.flag("batch.gpus", self.gpus.clone(), |config, gpus| config.batch.gpus = gpus);
    }
}

/// When to end, whatever is left to do. What is under way is finished, and the best candidates are certified. 0 is no limit.
#[derive(Debug, Default, Args)]
pub struct LimitArgs {
    /// End when models have cost so many dollars; 0, here and below, is no limit.
    #[arg(long, value_name = "N", value_parser = limit, help_heading = "Limits")]
    pub usd: Option<f64>,
    /// End after so many tokens, prompts and replies.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub tokens: Option<u64>,
    /// End after so many seconds of wall time.
    #[arg(long, value_name = "N", value_parser = limit, help_heading = "Limits")]
    pub seconds: Option<f64>,
    /// End when devices were held for so many seconds.
    #[arg(long, value_name = "N", value_parser = limit, help_heading = "Limits")]
    pub gpu_seconds: Option<f64>,
    /// The same for each task: dollars.
    #[arg(long, value_name = "N", value_parser = limit, help_heading = "Limits")]
    pub task_usd: Option<f64>,
    /// Tokens.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub task_tokens: Option<u64>,
    /// Seconds of wall time.
    #[arg(long, value_name = "N", value_parser = limit, help_heading = "Limits")]
    pub task_seconds: Option<f64>,
    /// Seconds that devices are held.
    #[arg(long, value_name = "N", value_parser = limit, help_heading = "Limits")]
    pub task_gpu_seconds: Option<f64>,
}

impl LimitArgs {
    /// Whether any is named.
    pub(crate) fn is_some(&self) -> bool {
        let parts = [self.usd, self.seconds, self.gpu_seconds, self.task_usd, self.task_seconds, self.task_gpu_seconds];
        parts.iter().any(Option::is_some) || self.tokens.is_some() || self.task_tokens.is_some()
    }

    /// These over others that were given before.
    pub(crate) fn over(&self, before: &Self) -> Self {
        Self {
            usd: self.usd.or(before.usd),
            tokens: self.tokens.or(before.tokens),
            seconds: self.seconds.or(before.seconds),
            gpu_seconds: self.gpu_seconds.or(before.gpu_seconds),
            task_usd: self.task_usd.or(before.task_usd),
            task_tokens: self.task_tokens.or(before.task_tokens),
            task_seconds: self.task_seconds.or(before.task_seconds),
            task_gpu_seconds: self.task_gpu_seconds.or(before.task_gpu_seconds),
        }
    }

    /// Overrules the settings.
    pub(crate) fn apply(&self, layers: &mut Layers) {
        layers.flag("limits.usd", self.usd, |config, usd| config.limits.usd = usd);
        layers.flag("limits.tokens", self.tokens, |config, tokens| config.limits.tokens = tokens);
        layers.flag("limits.seconds", self.seconds, |config, seconds| config.limits.seconds = seconds);
        layers.flag("limits.gpu_seconds", self.gpu_seconds, |config, seconds| config.limits.gpu_seconds = seconds);
        layers.flag("limits.task_usd", self.task_usd, |config, usd| config.limits.task_usd = usd);
        layers.flag("limits.task_tokens", self.task_tokens, |config, tokens| config.limits.task_tokens = tokens);
        layers.flag("limits.task_seconds", self.task_seconds, |config, seconds| config.limits.task_seconds = seconds);
        let seconds = self.task_gpu_seconds;
        layers.flag("limits.task_gpu_seconds", seconds, |config, seconds| config.limits.task_gpu_seconds = seconds);
    }
}

/// Which of the tasks.
#[derive(Debug, Args)]
pub struct ChoiceArgs {
    /// Of these levels: 1,2 or 1-3.
    #[arg(long, value_name = "LIST")]
    pub level: Option<Numbers>,
    /// With these numbers in their level: 1-10,23.
    #[arg(long, value_name = "LIST")]
    pub ids: Option<Numbers>,
    /// Whose file or folder is named with this word; may be given again.
    #[arg(long, value_name = "WORD")]
    pub r#match: Vec<String>,
    /// Whose file or folder is not named with this word; may be given again.
    #[arg(long, value_name = "WORD")]
    pub exclude: Vec<String>,
    /// In this suite: smoke, level1 to level4, kb250, dstar, sound, or a file.
    #[arg(long, value_name = "NAME|FILE")]
    pub suite: Option<String>,
    /// Not in this suite.
    #[arg(long, value_name = "NAME|FILE")]
    pub except_suite: Option<String>,
    /// A stratified sample: this share of each level.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub sample: Option<f64>,
    /// What draws the sample.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "sample")]
    pub sample_seed: u64,
    /// The folder of KernelBench, where a suite is named in the place of one.
    #[arg(long, value_name = "DIR")]
    pub problems: Option<String>,
    /// At most so many.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// One part of all, to share them among machines: 2/5 is the second of five.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
}

/// Who chooses the shapes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ShapesArg {
    /// The task's own.
    Task,
    /// A model is asked for ten, once.
    Model,
}

/// Who decides on the next step.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum PlannerArg {
    /// The policy's rule.
    Rule,
    /// A model proposes, the policy checks.
    Model,
}

/// Where a person takes part in transformations.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct HandArgs {
    /// Finish each reply of a transformation in $EDITOR: the region that was asked for, and no other. What is left there is
    /// checked like a reply.
    #[arg(long)]
    pub edit: bool,
    /// Ask at the terminal before each call of a transformation: yes, edit the reply, rephrase, skip the transformation.
    #[arg(long, conflicts_with = "json")]
    pub pause: bool,
}
