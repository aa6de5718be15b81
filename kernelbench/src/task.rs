//! What is to be made faster, and what counts as the same?
//!
//! A [`Task`] is whole in itself: it holds the reference's source, so that a record of a run needs no other file.

pub(crate) mod baseline;
pub(crate) mod family;
pub(crate) mod gfx;
pub(crate) mod layout;
pub(crate) mod library;
pub mod load;
mod on_cuda;
pub(crate) mod problem;
pub(crate) mod processor;
pub mod region;
pub(crate) mod signature;
pub(crate) mod size;
pub(crate) mod space;
pub(crate) mod suite;
mod tuning;

pub use arrays::{Dtype, Fill, Tolerance};
pub use problem::{Beyond, Precision, Problem, ReferenceMode};

use crate::{
    hash::Hash,
    result::candidate::Candidate,
    task::{
        baseline::Baselines, gfx::Gfx, processor::Processor, region::regions, signature::Signature, size::SizeError,
        space::Space,
    },
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A kernel to beat, and the reference that says what is right (Astra §3.1: S₀ and its tests).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// The name, unique among the tasks of a run.
    pub name: String,
    /// What the kernel computes, in a sentence or two, for the Coder.
    pub summary: String,
    /// Where the kernel comes from.
    pub source: Source,
    /// When an output counts as the same.
    pub tolerance: Tolerance,
    /// Why it is as wide as it is, by the task's own word; empty where it says none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tolerance_why: String,
    /// The shapes that every candidate is checked on.
    pub cases: Vec<Case>,
    /// The shapes that only the certificate uses (Astra §4: never those of the loop).
    pub final_cases: Vec<Case>,
    /// The shapes that sanitizers of a GPU look at where they are slow, and nothing else; without one, or where a candidate does
    /// not come to its end there, it is the smallest of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sanitizer_cases: Vec<Case>,
    /// What whole-numbered scalars of a case have to satisfy, an expression of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_args: Option<String>,
    /// Which of the cases are timed.
    pub timed: TimedCases,
}

/// Where a task's kernel comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A kernel with its arguments and a reference in the same language.
    Context(KernelContext),
    /// A PyTorch module, in KernelBench's format.
    Problem(Problem),
}

impl Task {
    /// The language of the reference and of every candidate.
    #[must_use]
    pub fn language(&self) -> Language {
        self.context().map_or(Language::Python, |context| context.language)
    }

    /// The same with a problem's weights and inputs cast to this, and its tolerance unless the problem states one; a kernel says
    /// itself what it computes in.
    #[must_use]
    pub fn in_precision(mut self, precision: Precision) -> Self {
        if let Source::Problem(problem) = &mut self.source {
            problem.precision = precision;
            self.tolerance = problem.tolerance.unwrap_or_else(|| precision.tolerance());
        }
        self
    }

    /// The reference's source text.
    #[must_use]
    pub fn reference(&self) -> &str {
        match &self.source {
            Source::Context(context) => &context.reference,
            Source::Problem(problem) => &problem.source,
        }
    }

    /// The reference's source text, changed to be a candidate's: a problem's `Model` becomes `ModelNew`.
    #[must_use]
    pub fn reference_as_candidate(&self) -> String {
        match &self.source {
            Source::Context(context) => context.reference.clone(),
            Source::Problem(problem) => format!("{}\n\nModelNew = Model\n", problem.source.trim_end()),
        }
    }

    /// The kernel context that transformations start from: the reference's regions, with what it leaves open (PEAK §3.4).
    ///
    /// # Errors
    /// In words, where it has none.
    pub fn initial_context(&self) -> Result<Candidate, String> {
        let context =
            self.context().ok_or("a problem in Python has no regions: transformations work on kernel contexts")?;
        let source = context.initial.as_ref().unwrap_or(&context.reference);
        let parts = regions(source).map_err(|why| why.to_string())?;
        let unmarked = "its reference has no regions: begin each of macros, device and host with a line such as `// region: device`";
        if parts.is_empty() { Err(unmarked.to_owned()) } else { Ok(Candidate::of_parts(parts)) }
    }

    /// Whether a candidate of one is a candidate of the other: the same language, entry and arguments.
    #[must_use]
    pub fn has_interface_of(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (Source::Context(own), Source::Context(its)) => {
                (own.language, &own.entry, &own.arguments, own.returns)
                    == (its.language, &its.entry, &its.arguments, its.returns)
            }
            (Source::Problem(own), Source::Problem(its)) => {
                (&own.source, own.precision) == (&its.source, its.precision)
            }
            _ => false,
        }
    }

    /// The same task with another source in the reference's place, where it is a kernel's.
    #[must_use]
    pub fn with_reference(mut self, source: &str) -> Self {
        if let Source::Context(context) = &mut self.source {
            source.clone_into(&mut context.reference);
        }
        self
    }

    /// What candidates are timed against beside the reference; problems have none.
    #[must_use]
    pub fn baselines(&self) -> &Baselines {
        static NONE: Baselines = Baselines { kernels: vec![], against: None, oracle: None };
        self.context().map_or(&NONE, |context| &context.baselines)
    }

    /// What speedups are over: the name of a baseline, or `None` for the reference.
    #[must_use]
    pub fn against(&self) -> Option<String> {
        self.baselines().against().map(|kernel| kernel.name.clone())
    }

    /// The kernel's context, where the task is one.
    #[must_use]
    pub fn context(&self) -> Option<&KernelContext> {
        match &self.source {
            Source::Context(context) => Some(context),
            Source::Problem(_) => None,
        }
    }

    /// Whether its kernels are for an NVIDIA GPU, without Python.
    #[must_use]
    pub fn is_cuda(&self) -> bool {
        self.context().is_some_and(|context| context.language == Language::Cuda)
    }

    /// The processor that its kernels are for, where that is emulated.
    #[must_use]
    pub fn processor(&self) -> Option<Processor> {
        self.context()?.processor
    }

    /// The AMD GPU that its kernels are compiled for, and not run on.
    #[must_use]
    pub fn gfx(&self) -> Option<Gfx> {
        self.context()?.arch
    }

    /// The same task, with what opening its reference found out about a problem's module.
    #[must_use]
    pub fn with_signature(mut self, signature: &Signature) -> Self {
        if let Source::Problem(problem) = &mut self.source
            && !signature.is_empty()
        {
            problem.signature = signature.clone();
        }
        self
    }

    /// The hash of the task as it was read, whatever opening its reference has added since.
    #[must_use]
    pub fn hash_as_read(&self) -> Hash {
        let mut task = self.clone();
        if let Source::Problem(problem) = &mut task.source {
            problem.signature = Signature::default();
        }
        // A task is texts and numbers that were read from a file: it always makes JSON.
        Hash::of(&serde_json::to_vec(&task).unwrap_or_default())
    }

    /// The problem, where the task is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match &self.source {
            Source::Problem(problem) => Some(problem),
            Source::Context(_) => None,
        }
    }
}

/// A kernel, the arguments it takes, and a plain reference for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelContext {
    /// The language of the reference and of every candidate.
    pub language: Language,
    /// The C symbol that is called.
    pub entry: String,
    /// The entry's arguments, in order.
    pub arguments: Vec<Argument>,
    /// Compiler flags.
    pub flags: Vec<String>,
    /// The reference's source text.
    pub reference: String,
    /// The reference as it was written, where it leaves tuning parameters open: what `reference` is with their first values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<String>,
    /// What a candidate may leave open: it writes `{{NAME}}` where the value of a parameter goes.
    #[serde(default, with = "tuning")]
    pub tuning: Space,
    /// What the entry returns.
    #[serde(default, skip_serializing_if = "Returns::is_nothing")]
    pub returns: Returns,
    /// What stands behind every candidate in one translation unit and defines the entry in terms of what the candidate
    /// offers; none where the candidate defines the entry itself. In CUDA alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// The headers that lie in a folder which is searched for includes, by their path in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub include: BTreeMap<String, String>,
    /// How many arithmetic operations a call takes, as an expression of a case's scalars, such as `2 * m * n * k`; none where
    /// the task does not say. Rates are told by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<Size>,
    /// Where the reference was taken from, where it is a part of something larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
    /// What candidates are timed against beside the reference.
    #[serde(default, skip_serializing_if = "Baselines::is_empty")]
    pub baselines: Baselines,
    /// The processor that it is for, where that is emulated: candidates are checked there and their instructions counted, and
    /// nothing is timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// The AMD GPU that it is for, in HIP: candidates are compiled, and nothing is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<Gfx>,
}

/// What a kernel's entry returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Returns {
    /// Nothing: `void`.
    #[default]
    Nothing,
    /// An `int`: 0, or `WS_INVALID` where its bindings are no configuration for these arguments (PEAK §3.1).
    Status,
}

impl Returns {
    /// Whether it is nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }

    /// The type in C.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "void",
            Self::Status => "int",
        }
    }
}

/// Where a kernel was taken from: enough to find the same file again, and to see whether it is still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// What it is a part of: `sglang`.
    pub framework: String,
    /// That one's version.
    pub version: String,
    /// The operator's name.
    pub operator: String,
    /// How it was taken out: `J`, compiled at run time by the framework, or `A`, ahead of time.
    pub level: String,
    /// The file, as the framework names it.
    pub file: String,
    /// The unchanged file's SHA-256.
    pub sha256: String,
    /// The type of its elements.
    pub dtype: String,
    /// What came of comparing it with the framework's own operator; none where that was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
}

/// What came of comparing what was taken out with the framework's own: the same bits, in the same time?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// It is the same.
    Passed,
    /// Nobody compared them.
    NotRun,
    /// It is another, or could not be compared.
    Refused,
}

impl Gate {
    /// As files say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NotRun => "not-run",
            Self::Refused => "refused",
        }
    }
}

impl KernelContext {
    /// Bytes of all arrays of a case together.
    ///
    /// # Errors
    /// Where a size has no value under the case's scalars.
    pub fn bytes(&self, case: &Case) -> Result<u64, SizeError> {
        let arrays = self.arguments.iter().filter_map(|argument| match &argument.kind {
            ArgumentKind::Array { size, .. } => Some((size, argument.dtype)),
            ArgumentKind::Scalar => None,
        });
        let bytes =
            |(size, dtype): (&Size, Dtype)| Ok(size.elements(&case.scalars)?.saturating_mul(dtype.bytes() as u64));
        arrays.map(bytes).try_fold(0_u64, |sum, bytes| Ok(sum.saturating_add(bytes?)))
    }
}

/// A language that candidates are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// C11.
    #[serde(rename = "c11")]
    C,
    /// C++17.
    #[serde(rename = "c++17")]
    Cpp,
    /// CUDA C++17, for an NVIDIA GPU: the entry runs on the host and launches kernels; arrays are in the GPU's memory.
    #[serde(rename = "cuda")]
    Cuda,
    /// HIP C++17, for an AMD GPU: the entry runs on the host and launches kernels.
    #[serde(rename = "hip")]
    Hip,
    /// HLSL, for a GPU by way of Vulkan: shaders in the device region, and a host region in C++17 that dispatches them.
    #[serde(rename = "hlsl")]
    Hlsl,
    /// Python, with PyTorch and what it builds: the language of problems.
    #[serde(rename = "python")]
    Python,
}

impl Language {
    /// How the name of a file in it ends, without the dot.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Cuda => "cu",
            Self::Hip => "hip",
            Self::Hlsl => "hlsl",
            Self::Python => "py",
        }
    }

    /// Whether it is C++, whose entries need C linkage.
    #[must_use]
    pub fn is_cpp(self) -> bool {
        matches!(self, Self::Cpp | Self::Cuda | Self::Hip | Self::Hlsl)
    }

    /// What an entry in it gets as its last parameter, where it gets one: what its work is enqueued on.
    #[must_use]
    pub fn last_parameter(self) -> Option<String> {
        let parameter = match self {
            Self::Cuda => "cudaStream_t stream",
            Self::Hip => "hipStream_t stream",
            Self::Hlsl => "ws_device *device",
            Self::C | Self::Cpp | Self::Python => return None,
        };
        Some(parameter.to_owned())
    }

    /// The name of an element type in it.
    #[must_use]
    pub fn name_of(self, dtype: Dtype) -> &'static str {
        match dtype {
            Dtype::F16 if matches!(self, Self::Cuda | Self::Hip) => "__half",
            Dtype::Bf16 if self == Self::Hip => "__hip_bfloat16",
            Dtype::Bf16 if self == Self::Cuda => "__nv_bfloat16",
            Dtype::F32 => "float",
            Dtype::F64 => "double",
            Dtype::F16 | Dtype::Bf16 => "uint16_t",
            Dtype::E4m3 if self == Self::Cuda => "__nv_fp8_e4m3",
            Dtype::E4m3 => "uint8_t",
            Dtype::I32 => "int32_t",
            Dtype::I64 => "int64_t",
        }
    }
}

/// One argument of the entry point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    /// The name, as in the signature.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// One number or many.
    pub kind: ArgumentKind,
}

/// One number or many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArgumentKind {
    /// A number, whose value each case gives.
    Scalar,
    /// A contiguous array.
    Array {
        /// How many elements, from the scalars of the case.
        size: Size,
        /// Which way its content goes.
        transfer: Transfer,
        /// What it holds before the call; for outputs, nothing a candidate may rely on.
        fill: Fill,
    },
}

/// Which way an array's content goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transfer {
    /// Read only: it must be unchanged afterwards.
    In,
    /// Written only: it is poisoned before each call.
    Out,
    /// Changed in place: its content afterwards is an output too.
    InOut,
}

/// A size as an expression of a case's scalars: integers, names, `+ - * /` and parentheses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Size(pub String);

/// A scalar's value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// Of an integer argument.
    Integer(i64),
    /// Of a floating-point argument.
    Float(f64),
}

/// A named shape: a value for each scalar argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The name, unique in its task.
    pub name: String,
    /// The scalars' values by name.
    pub scalars: BTreeMap<String, Number>,
}

/// Which cases are timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimedCases {
    /// The one with the most bytes (CudaForge, Appendix B).
    Largest,
    /// All, and the speedup is the geometric mean (Astra §3.1).
    All,
    /// One by name.
    Case(String),
}
