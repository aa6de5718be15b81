//! The wire to Python: what the processes of a problem are asked, and what they answer (`harness/wire.py`).
//!
//! A message is one JSON object a packet. Values such as inputs and outputs are written down as trees whose tensors are
//! places in memory; nothing is pickled.

use super::{
    headers::Extension,
    values::{Input, Output},
};
use crate::{result::failure::Spread, task::signature::Signature};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a process is told first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// `cpu` or `cuda:0`.
    pub(crate) device: String,
    /// Threads on the CPU.
    pub(crate) threads: u32,
    /// Whether matrix products and convolutions may round to TF32; those of the verifier never do.
    pub(crate) tf32: bool,
    /// The contract's seed, for constructors and calls.
    pub(crate) seed: u64,
}

/// What a process is asked. The first group is for the verifier, the second for the process of a reference or a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// What Python, torch and the device are: [`super::python::Facts`].
    Facts,
    /// What a problem's call takes, found without the device: [`Scanned`].
    Scan {
        /// The problem's file.
        path: PathBuf,
        /// The element type that floating point is cast to.
        dtype: String,
        /// Whether whole numbers and truth values are cast too.
        casts_all: bool,
    },
    /// Load a problem and lay out the arenas: [`Opened`]. Its files are the arenas of both sides, and one for outputs.
    Open {
        /// The problem's file.
        path: PathBuf,
        /// The element type that floating point is cast to.
        dtype: String,
        /// The contract's seed.
        seed: u64,
        /// Whether whole numbers and truth values are cast too, as KernelBench's evaluation does.
        casts_all: bool,
        /// Inputs are laid out for so many calls, at most.
        most_slots: usize,
        /// What the inputs of one side may take, in bytes.
        budget: u64,
    },
    /// Give the device back what the problem holds of it: [`Trimmed`].
    Offload,
    /// Lay a problem's arenas out again that was offloaded: [`Laid`].
    LayOut,
    /// Lay out the arenas of a problem that was offloaded as no process has had them, in the other order: [`Laid`]. With it come
    /// two files, which are a processor's arenas.
    LayOutAnew,
    /// Draw inputs for the first slots, the same for both sides: [`Drawn`].
    Draw {
        /// A secret seed for each slot.
        seeds: Vec<u64>,
        /// Whether they are widened to both signs.
        signed: bool,
    },
    /// Read elements at secret places of a candidate's outputs at once: [`Done`]. On a GPU alone.
    SpotCheck {
        /// What the places are drawn from.
        seed: u64,
        /// The outputs.
        candidate: Vec<Output>,
    },
    /// Which bytes of which process the outputs are: [`Ranges`]. On a CPU alone.
    Ranges(Outputs),
    /// Compare outputs that were copied: [`Compared`]. On a CPU alone.
    Compare(Comparing),
    /// Check the form of outputs, compare them where they lie, and look once more at the secret places: [`Compared`].
    CompareInPlace(Comparing),
    /// What would pass for the reference's outputs: [`Audited`].
    Audit(Comparing),

    /// Load a module, which builds what it builds: [`Loaded`].
    Load(Module),
    /// Make the model anew: [`Done`].
    Construct(Construct),
    /// Open the arena of inputs; on a CPU its file comes with the message: [`Done`].
    MapInputs {
        /// Where it is.
        arena: Arena,
    },
    /// Take the inputs of each slot from these places from here on: [`Done`].
    SetInputs {
        /// One for each slot.
        inputs: Vec<Input>,
    },
    /// Do all of a request that comes before its calls; a number then has them made: [`Done`].
    Prepare {
        /// The slots that are called, in order.
        slots: Vec<usize>,
    },
    /// Have outputs lie elsewhere in memory in every request from here on: [`Done`].
    RandomizeAllocations {
        /// Bytes of each output tensor of a call.
        sizes: Vec<u64>,
        /// Calls of a request.
        count: usize,
    },
    /// Call the model on these slots, and describe the outputs: [`Ran`].
    Run {
        /// The slots, in order.
        slots: Vec<usize>,
    },
    /// The same for the first time, which may say meanwhile that it compiles and needs no device: [`Ran`].
    RunFirst {
        /// The slots, in order.
        slots: Vec<usize>,
    },
    /// Call the model once under torch's profiler: [`Traced`].
    Trace,
    /// Get ready to read these counters of every launch of a call, or of one of its own where no model was made: [`Counted`].
    PrepareCounters {
        /// Metrics of Nsight Compute.
        names: Vec<String>,
    },
    /// Read them: [`Counted`], the first part of the table.
    ReadCounters,
    /// The next part: [`Counted`].
    MoreCounters,
    /// Drop the outputs of the last request: [`Done`].
    ReleaseOutputs,

    /// For either: give back memory that is not needed now: [`Trimmed`].
    TrimMemory {
        /// Of a model's process: the model and its inputs too.
        all: bool,
    },
}

/// A module that a process loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Module {
    /// Its file.
    pub(crate) path: PathBuf,
    /// What it is called.
    #[serde(rename = "module")]
    pub(crate) name: String,
    /// The class that it must define.
    pub(crate) entry: String,
    /// The headers that its extensions are built with.
    pub(crate) headers: String,
}

/// How a model is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Construct {
    /// The constructor's arguments.
    pub(crate) init: Input,
    /// The element type that it is cast to.
    pub(crate) dtype: String,
    /// The mode in which torch compiles it, where it does.
    pub(crate) compile: Option<String>,
    /// Whether cuDNN's convolutions may round to TF32, which is torch's default.
    pub(crate) tf32: bool,
}

/// Outputs of both sides, of the same slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outputs {
    pub(crate) reference: Vec<Output>,
    pub(crate) candidate: Vec<Output>,
    pub(crate) slots: Vec<usize>,
}

/// Outputs to be compared, and by which rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparing {
    #[serde(flatten)]
    pub(crate) outputs: Outputs,
    pub(crate) atol: f64,
    pub(crate) rtol: f64,
    /// Both are compared with double precision too where they differ by more than this (root mean square, relative).
    pub(crate) oracle: Option<f64>,
}

/// A process's answer, where nothing was raised.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Said<A> {
    Raised { raised: Raised },
    Answer(A),
}

/// What was raised in a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Raised {
    /// Its kind and its words.
    pub(crate) error: String,
    /// Where.
    pub(crate) traceback: String,
    /// Whether memory was short.
    pub(crate) memory: bool,
}

/// Done, and nothing to be said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Done {}

/// A problem that was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Opened {
    /// It does not fulfil the contract.
    Defect {
        /// Why.
        defect: String,
    },
    /// It does.
    Laid {
        /// The constructor's arguments.
        init: Input,
        /// Bytes of the model's parameters.
        parameter_bytes: u64,
        /// Bytes of the inputs of one call.
        input_bytes: u64,
        /// Calls whose inputs fit beside each other.
        slots: usize,
        /// Why there is no model in double precision.
        no_oracle: Option<String>,
        /// Why whole numbers and truth values are not cast, where they were to be.
        #[serde(default)]
        kept_whole: Option<String>,
        /// The arenas of reference and candidate.
        arenas: [Arena; 2],
        /// What the module is constructed and called with.
        signature: Box<Signature>,
    },
}

/// An arena of inputs: a memory file on a CPU, an allocation by its interprocess handle on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arena {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
    pub(crate) bytes: u64,
}

/// Inputs that were drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Drawn {
    /// Where they lie, if not where those before lay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inputs: Option<Vec<Input>>,
}

/// Bytes to be copied out of processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ranges {
    /// What is wrong with the form of an output.
    pub(crate) form: Option<String>,
    pub(crate) reads: Vec<Range>,
}

/// Bytes of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// `reference` or `candidate`.
    pub(crate) side: String,
    /// Their address in that process.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Where they go in the file of outputs.
    pub(crate) to: u64,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Compared {
    /// What is wrong with the form of an output.
    pub(crate) form: Option<String>,
    pub(crate) mismatch: Option<Mismatch>,
    /// Whether the wrong output is an input, bit by bit.
    pub(crate) passed_inputs: bool,
    /// The input that the candidate changed and the reference did not.
    pub(crate) changed: Option<u64>,
    /// Root mean square errors against double precision, relative to that.
    pub(crate) errors: Vec<Errors>,
    /// Why there are none.
    pub(crate) no_oracle: Option<String>,
    /// The output that has changed since it was looked at first.
    pub(crate) late: Option<String>,
}

/// An output that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mismatch {
    #[serde(default)]
    pub(crate) spread: Spread,
    pub(crate) output: String,
    pub(crate) wrong: u64,
    pub(crate) total: u64,
    pub(crate) worst_at: u64,
    pub(crate) nan: u64,
    pub(crate) expected: String,
    pub(crate) got: String,
}

/// Errors of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Errors {
    pub(crate) reference: f64,
    pub(crate) candidate: f64,
}

/// What an audit of the reference found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Audited {
    /// Bytes of the outputs of one call.
    pub(crate) output_bytes: u64,
    /// Tensors among them.
    pub(crate) tensors: usize,
    pub(crate) labels: Vec<String>,
}

/// A module that was loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Loaded {
    /// That it does not define what it must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<String>,
    /// How its extensions were built.
    #[serde(default)]
    pub(crate) extensions: Vec<Extension>,
}

/// Calls that were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// By the clock in there, in nanoseconds.
    pub(crate) inside_ns: u64,
    /// The output of each slot.
    pub(crate) outputs: Vec<Output>,
    /// Where its tensors begin, in the order in which they are written down.
    pub(crate) addresses: Vec<u64>,
}

/// The launches of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Traced {
    pub(crate) launches: Vec<Row>,
}

/// What a process says of counters that it reads itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) counted: Counters,
}

/// What there is to be said of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counters {
    /// They can be read now.
    Ready,
    /// A part of what was read, as Nsight Compute prints its raw page; empty at its end.
    Table(String),
    /// Why they cannot be had here.
    Unavailable(String),
    /// Why this call cannot be read launch by launch.
    NotByRange(String),
}

/// The launches of one kernel in one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) count: u64,
    /// All of them, in nanoseconds.
    pub(crate) ns: f64,
    #[serde(default)]
    pub(crate) grid: [u64; 3],
    #[serde(default)]
    pub(crate) block: [u64; 3],
    /// Name, value, unit, meaning.
    pub(crate) facts: Vec<(String, f64, String, String)>,
}

/// Memory that was given back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trimmed {
    /// Bytes of the device that torch had in this process at most, since it was asked before.
    pub(crate) most: u64,
    /// How often the device had no memory for torch in this process, whether or not anybody noticed: a convolution then goes
    /// on with another algorithm, and says nothing.
    pub(crate) refused: u64,
}

/// Where a problem lies that was laid out again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Laid {
    /// The constructor's arguments.
    pub(crate) init: Input,
    /// The arena of each side.
    pub(crate) arenas: [Arena; 2],
}

/// What a problem was found to take before it is opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scanned {
    /// Unknown where its model cannot be called without values.
    pub(crate) sizes: Option<Sizes>,
}

/// What one call takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) inputs: u64,
    pub(crate) outputs: u64,
    pub(crate) parameters: u64,
}

/// What a process under a profiler is told to load and to call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) setup: Setup,
    pub(crate) load: Module,
    pub(crate) construct: Construct,
    pub(crate) arena: Arena,
    pub(crate) inputs: Vec<Input>,
    /// Where builds are kept, by the variables that say so.
    pub(crate) environment: Vec<(String, String)>,
    /// What it prints once its only call has come to its end; without it, the call is warmed up and read by a profiler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) once: Option<String>,
}

#[cfg(test)]
mod tests;
