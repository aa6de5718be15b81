//! Tasks: what is asked, what is offered, what came of it, and the workshop where that is found out.
//!
//! Nothing here knows of models, prompts or actors.

pub mod assembly;
pub(crate) mod backend;
pub(crate) mod build;
pub(crate) mod engine;
pub mod feature;
pub(crate) mod hash;
pub(crate) mod lease;
pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod plain;
pub mod pool;
pub(crate) mod profile;
pub(crate) mod result;
pub(crate) mod sandbox;
pub mod stage;
pub(crate) mod task;
pub(crate) mod workshop;

pub use arrays::{Comparison, compare, e4m3, fill};
pub use backend::{cuda, native, torch};
pub use build::cc::hlsl_version;
pub use build::compiler::{answer_within, on_path};
pub use build::hip::Clang;
pub use engine::notes::{Clocks, Remarks};
pub use hash::{Hash, Hashing};
pub use machine::{cpu, gpu};
pub use plain::plain;
pub use profile::{cpu as profiler, ncu, own::OWN_KERNELS};
pub use result::candidate::{Built, Candidate, CandidateId, NotBound, Part, Verified};
pub use result::certificate::{Certificate, Checked, Verdict as CertificateVerdict};
pub use result::code_object::{CodeObject, KernelCode};
pub use result::counts::{CaseCounts, Counts};
pub use result::evaluation::{CaseTiming, Evaluation, Timed};
pub use result::failure::{Failure, Fault, Outcome, Spread};
pub use result::label::{Kind as LabelKind, Label};
pub use result::operator::{Operator, PRIMITIVES, Primitives, SKETCH};
pub use result::survey::Survey;
pub use sandbox::layer::Layer;
pub use sandbox::process::end_all as end_processes;
pub use task::baseline::{BaselineKernel, Baselines, Oracle};
pub use task::family::{Design, Family, Member};
pub use task::gfx::Gfx;
pub use task::library::{Forbidden, library_use};
pub use task::load;
pub use task::processor::Processor;
pub use task::region;
pub use task::signature::{ModuleValue, Signature, TensorLayout};
pub use task::size::SizeError;
pub use task::space::{Bindings, Parameter, Space, in_words, spread};
pub use task::suite::{Provenance, Suite};
pub use task::{
    Argument, ArgumentKind, Beyond, Case, Dtype, Fill, Gate, KernelContext, Language, Number, Origin, Precision,
    Problem, ReferenceMode, Returns, Size, Source, Task, TimedCases, Tolerance, Transfer,
};
pub use workshop::absent::Absent;
pub use workshop::compiled::{Compiled, CompiledOptions};
pub use workshop::elsewhere::{Carry, Elsewhere};
pub use workshop::emulated::{
    Emulated, EmulatedOptions, LARGEST_CASE as LARGEST_EMULATED_CASE, tools as emulator_tools,
};
pub use workshop::job::{Asked, Done, Found as JobFound, Job};
pub use workshop::recorded::{Findings, Recorded};
pub use workshop::search::{Found, Tried, Tuned, Unbuilt, build_ahead, search};
pub use workshop::simulated::Simulated;
pub use workshop::tuner::{Tuner, Tuning};
pub use workshop::{Baseline, Fits, Rebuilt, Step, TimingPlan, Variant, Workshop};
