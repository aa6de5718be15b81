//! What is set, and where does it come from?
//!
//! One merged configuration, made once: defaults, then `warpsmith.toml`, then flags. `src/defaults.toml` documents every
//! key; a test keeps it equal to [`Config::default`].

mod layers;
mod secret;
mod spec;
mod words;

pub use layers::{ConfigError, Layers, Origin};
pub use secret::Secret;
pub use spec::Spec;
pub(crate) use words::limit;
pub use words::{Baselines, Word, device, ordinals};

use agents::{
    llm::Role,
    policy::{Decider, Guidance, Shapes},
    validator::{By, Validator},
};
use kernelbench::{
    Beyond, Precision, ReferenceMode, TimingPlan,
    torch::{Headers, ProfilerKind},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The commented defaults, as the user reads them.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// The merged configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What answers.
    pub model: Model,
    /// How a run goes.
    pub run: Run,
    /// How timings are taken.
    pub timing: Timing,
    /// Where candidates are built and run.
    pub workshop: Workshop,
    /// How many tasks are worked on at once.
    pub batch: Batch,
    /// When to end.
    pub limits: Limits,
    /// Other hosts that candidates are built and run on.
    pub hosts: crate::hosts::Settings,
    /// What is said to models.
    pub prompts: Prompts,
    /// Programs of the user's that look at transformed contexts, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub validators: BTreeMap<String, Validating>,
}

/// `[validators.NAME]`: a program that looks at a transformed context's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validating {
    /// The program and its arguments; `{file}` stands for the source's file.
    pub command: Vec<String>,
    /// How many of the drawn configurations that are right it looks at.
    #[serde(default = "one")]
    pub samples: usize,
}

fn one() -> usize {
    1
}

impl Config {
    /// The validators, by their names in order.
    #[must_use]
    pub fn validators(&self) -> Arc<[Validator]> {
        let one = |(name, Validating { command, samples }): (&String, &Validating)| Validator {
            name: name.clone(),
            by: By::Command(command.clone()),
            samples: *samples,
        };
        self.validators.iter().map(one).collect()
    }
}

/// `[batch]`: how many tasks are worked on at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Batch {
    /// Tasks under way at the same time; 0 for as many as keep the model and the devices busy.
    pub at_once: usize,
    /// Candidates under way at the same time on each device, from the build on; 0 for one a core, shared among the devices.
    pub builds: usize,
    /// The GPUs, as `0,1` or `cuda:0,cuda:1`; empty for all.
    #[serde(deserialize_with = "words::read_gpus")]
    pub gpus: String,
    /// The folder of `KernelBench`, where a suite is named in the place of one.
    pub problems: String,
}

/// `[limits]`: when a task or the whole run ends, whatever is left to do; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Dollars for models, of one task.
    pub task_usd: f64,
    /// Tokens, prompts and replies together.
    pub task_tokens: u64,
    /// Wall time in seconds.
    pub task_seconds: f64,
    /// Time that devices are held, in seconds.
    pub task_gpu_seconds: f64,
    /// Dollars for models, of the whole run.
    pub usd: f64,
    /// Tokens, prompts and replies together.
    pub tokens: u64,
    /// Wall time in seconds, counted anew when a run goes on.
    pub seconds: f64,
    /// Time that devices are held, in seconds.
    pub gpu_seconds: f64,
    /// Whether to end at once and certify what there is: `warpsmith finish`, and no setting.
    #[serde(skip)]
    pub finish: bool,
}

/// `[model]`: what answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// `openai:NAME`, `openai-batch:NAME`, `replay:RUN`, `mailbox:DIR` or `scripted:FILE`; empty for the task's recorded run.
    #[serde(deserialize_with = "words::read_spec")]
    pub spec: String,
    /// The endpoint's base URL; empty for `OpenAI`'s own.
    pub base_url: String,
    /// The key. Never written.
    #[serde(skip_serializing)]
    pub api_key: Option<Secret>,
    /// A file that holds the key. Its name is not written either.
    #[serde(skip_serializing)]
    pub api_key_file: Option<std::path::PathBuf>,
    /// How long one request may take, in seconds.
    pub request_timeout_s: u64,
    /// How long one question may take with all retries, in seconds.
    pub deadline_s: u64,
    /// Requests that follow a failed one.
    pub retries: u32,
    /// How long an endpoint that is down is waited for, in seconds, whatever the number of retries.
    #[serde(alias = "patience")]
    pub patience_s: u64,
    /// Questions under way at the same time.
    pub in_flight: usize,
    /// With `openai-batch:` how long the first question of a batch waits for others, in seconds.
    pub batch_window_s: u64,
    /// A file of prices; empty for the embedded one.
    pub prices: String,
    /// What a role has of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<Role, RoleModel>,
}

/// `[model.roles.ROLE]`: what a role has of its own; what is left out is the endpoint's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoleModel {
    /// The model's name, instead of the one in the specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The longest reply, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// How much a reasoning model is to think, in the endpoint's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// The base URL of an endpoint of its own. The key of `[model]` is not sent there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The key for its endpoint, or another key for that of `[model]`. Never written.
    #[serde(skip_serializing)]
    pub api_key: Option<Secret>,
    /// A file that holds this key. Its name is not written either.
    #[serde(skip_serializing)]
    pub api_key_file: Option<std::path::PathBuf>,
}

impl RoleModel {
    /// Whether what it asks is another endpoint, or asked with another key.
    #[must_use]
    pub fn has_own_endpoint(&self) -> bool {
        self.own_url().is_some() || self.api_key.is_some() || self.api_key_file.is_some()
    }

    /// The address of its own endpoint; an empty one is none.
    #[must_use]
    pub fn own_url(&self) -> Option<&str> {
        self.base_url.as_deref().filter(|url| !url.trim().is_empty())
    }
}

/// `[run]`: how a run goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// A policy's name or file; empty for the default.
    pub policy: String,
    /// How many candidates are written; 0 for the policy's number.
    pub rounds: u32,
    /// Where the folders of runs are made.
    pub folder: std::path::PathBuf,
    /// Who chooses the shapes: `task`, `model`, or empty for the policy's choice.
    #[serde(with = "words::or_nothing")]
    pub shapes: Option<Shapes>,
    /// Which cases are timed: `all`, `largest`, a case's name, `task` for the task's choice, or empty for the policy's.
    pub timed: String,
    /// What models are told of the GPU's features: `off`, `names`, `guides`, or empty for the policy's choice, and where it has
    /// none for the guides of a GPU that has some.
    #[serde(with = "words::or_nothing")]
    pub features: Option<Guidance>,
    /// Whether the Planner's approaches before the first candidate are left out, where the policy has them.
    pub no_approaches: bool,
    /// Whether the Coder looks nothing up before it writes, where the policy lets it.
    pub no_lookups: bool,
    /// Who decides on the next step: `rule`, `model`, or empty for the policy's choice.
    #[serde(with = "words::or_nothing")]
    pub planner: Option<Decider>,
    /// How many nodes a search evaluates; 0 for the policy's number.
    pub evaluations: usize,
    /// How many nodes of a search are evaluated at once; 0 for the policy's number.
    pub open_nodes: usize,
    /// A folder with an operator that is searched in the place of a generated one; empty for none.
    pub start: String,
    /// Whether a prompt that differs from a recorded one is an error.
    pub strict_replay: bool,
    /// A run's folder, whose first candidates are taken instead of asking for some; empty for none.
    pub first_candidates: String,
}

impl Config {
    /// Whether what a person set can be meant so; in words why not. What a record holds is read as it is.
    ///
    /// # Errors
    ///
    /// Which setting cannot be, and what is expected of it.
    fn check(&self) -> Result<(), String> {
        let Limits { task_usd, task_seconds, task_gpu_seconds, usd, seconds, gpu_seconds, .. } = self.limits;
        let whole = [("usd", usd), ("seconds", seconds), ("gpu_seconds", gpu_seconds)];
        let task = [("task_usd", task_usd), ("task_seconds", task_seconds), ("task_gpu_seconds", task_gpu_seconds)];
        if let Some((name, _)) = whole.iter().chain(&task).find(|(_, limit)| !words::is_limit(*limit)) {
            return Err(format!("limits.{name}: {}", words::LIMIT));
        }
        if (1..TimingPlan::FEWEST).contains(&self.timing.repetitions) {
            let why =
                "expected 2 samples or more, for one does not tell how far off it may be; 0 is the policy's number";
            return Err(format!("timing.repetitions: {why}"));
        }
        Ok(())
    }
}

/// `[timing]`: how timings are taken; 0 for the policy's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// Calls before the first sample.
    pub warmup: u32,
    /// Samples: two at least.
    pub repetitions: u32,
}

/// `[workshop]`: where candidates are built and run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workshop {
    /// Where builds are kept; empty for the user's cache folder.
    pub cache: String,
    /// What a candidate may use beside its arguments, in MiB.
    pub memory_mib: u64,
    /// The largest case that is run, in MiB of arguments.
    pub largest_case_mib: u64,
    /// How long a compiler may take each time, in seconds; 0 for what is usual for it.
    pub compiler_s: u64,
    /// Whether a kernel for the processor is certified that does not build with sanitizers, where the compiler has them.
    pub unsanitized: bool,
    /// The Python that has torch, for problems; empty for `python3`.
    pub python: String,
    /// The device of problems, `cpu` or `cuda:0`; empty for the first NVIDIA GPU, else the processor.
    #[serde(deserialize_with = "words::read_device")]
    pub device: String,
    /// With which arithmetic a problem's reference runs: `kernelbench` or `ieee`.
    #[serde(with = "words::one")]
    pub reference: ReferenceMode,
    /// What comes of a problem's candidate that is wrong on inputs of both signs, which it need not draw: a `label` or a
    /// `failure`.
    #[serde(with = "words::one")]
    pub beyond: Beyond,
    /// What a problem's floating-point weights and inputs are cast to: `fp32`, `fp16` or `bf16`.
    #[serde(with = "words::one")]
    pub precision: Precision,
    /// What a problem's reference is timed as: `eager`, and after commas `compile` and `max-autotune`.
    pub baselines: Baselines,
    /// A checkout of KernelBench, whose own evaluation stands in problems' certificates; empty for none.
    pub kernelbench: String,
    /// What C++ and CUDA in candidates for problems is built with: `slim` or `stock` headers.
    #[serde(with = "words::one")]
    pub headers: Headers,
    /// The highest rung of the profilers that is tried for problems: `cupti`, `ncu`, `torch`, `static` or `none`; empty for
    /// `cupti`.
    #[serde(with = "words::or_nothing")]
    pub profiler: Option<ProfilerKind>,
    /// Which metrics are asked for, and the Judge reads: a set's name or file, `full` or `none`; empty for
    /// `cudaforge24`.
    pub metrics: String,
}

/// `[prompts]`: what is said to models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prompts {
    /// A folder of templates that replace the embedded ones; empty for none.
    pub folder: String,
    /// A folder of transformations, beside those that come with the program; empty for `transformations` in the working
    /// directory, if there is one.
    pub transformations: String,
    /// A folder of hints, beside those that come with the program; empty for `hints` in the working directory, if there is
    /// one.
    pub hints: String,
    /// A folder of features, beside those that come with the program; empty for `features` in the working directory, if it
    /// holds columns.
    pub features: String,
    /// What the Coder is told of the architecture in every prompt: `modules:K`, `lexical`, `folder:PATH`; or `library:PATH`, of
    /// which it may read pages; empty for nothing.
    pub context: String,
    /// A folder of kernels that were certified earlier, of which the first prompt shows the nearest; empty for none.
    pub pool: String,
    /// The page that asks the Coder for a first candidate: `seed`, `vanilla` or `chain-of-thought`; empty for `seed`.
    pub first: String,
}

impl Limits {
    /// Those of a run of one task: the task's own, and where it has none the run's.
    #[must_use]
    pub fn of_one(self) -> Self {
        let or = |own: f64, whole: f64| if own > 0.0 { own } else { whole };
        Self {
            task_usd: or(self.task_usd, self.usd),
            task_tokens: if self.task_tokens > 0 { self.task_tokens } else { self.tokens },
            task_seconds: or(self.task_seconds, self.seconds),
            task_gpu_seconds: or(self.task_gpu_seconds, self.gpu_seconds),
            finish: self.finish,
            ..Self::default()
        }
    }
}

impl Workshop {
    /// How long a compiler may take each time, where that is set.
    #[must_use]
    pub fn build_deadline(&self) -> Option<Duration> {
        (self.compiler_s > 0).then(|| Duration::from_secs(self.compiler_s))
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            spec: String::new(),
            base_url: String::new(),
            api_key: None,
            api_key_file: None,
            request_timeout_s: 600,
            deadline_s: 1800,
            retries: 6,
            patience_s: 600,
            in_flight: 4,
            batch_window_s: 5,
            prices: String::new(),
            roles: BTreeMap::new(),
        }
    }
}

impl Default for Run {
    fn default() -> Self {
        Self {
            policy: String::new(),
            rounds: 0,
            folder: "runs".into(),
            shapes: None,
            timed: String::new(),
            features: None,
            no_approaches: false,
            no_lookups: false,
            planner: None,
            evaluations: 0,
            open_nodes: 0,
            start: String::new(),
            strict_replay: false,
            first_candidates: String::new(),
        }
    }
}

impl Default for Workshop {
    fn default() -> Self {
        Self {
            cache: String::new(),
            memory_mib: 512,
            largest_case_mib: 256,
            compiler_s: 0,
            unsanitized: false,
            python: String::new(),
            device: String::new(),
            reference: ReferenceMode::KernelBench,
            beyond: Beyond::Label,
            precision: Precision::Fp32,
            baselines: Baselines::default(),
            kernelbench: String::new(),
            headers: Headers::Slim,
            profiler: None,
            metrics: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commented_defaults_are_the_defaults_and_leave_no_key_out() {
        let commented: toml::Table = DEFAULTS.parse().unwrap();
        let actual: toml::Table = toml::to_string(&Config::default()).unwrap().parse().unwrap();
        assert_eq!(commented, actual);
    }

    #[test]
    fn a_key_is_read_and_never_written() {
        let config: Config = toml::from_str("model.api_key = 'sk-very-secret'").unwrap();
        assert_eq!(config.model.api_key.as_ref().unwrap().reveal(), "sk-very-secret");
        assert!(!toml::to_string(&config).unwrap().contains("sk-very"));
        assert!(!format!("{config:?}").contains("sk-very"));
    }
}
