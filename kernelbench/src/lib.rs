//! Tasks: what is asked, what is offered, what came of it, and the workshop where that is found out.
//!
//! Nothing here knows of models, prompts or actors.

mod absent;
mod candidate;
mod certificate;
mod clock;
mod compare;
pub mod cpu;
pub mod cuda;
mod evaluation;
mod failure;
mod family;
mod fill;
mod flag;
pub mod gpu;
mod hash;
pub mod load;
pub mod native;
pub mod ncu;
pub mod profiler;
mod recorded;
mod simulated;
mod size;
mod suite;
mod survey;
mod task;
pub mod torch;
mod workshop;

pub use absent::Absent;
pub use candidate::{Built, Candidate, CandidateId, Verified};
pub use certificate::{Certificate, Checked, Verdict as CertificateVerdict};
pub use compare::{Comparison, compare};
pub use evaluation::{CaseTiming, Evaluation, Timed};
pub use failure::{Failure, Fault, Outcome};
pub use family::{Design, Family, Member, Parameter};
pub use fill::fill;
pub use hash::Hash;
pub use recorded::{Findings, Recorded};
pub use simulated::Simulated;
pub use size::SizeError;
pub use suite::{Provenance, Suite};
pub use survey::Survey;
pub use task::{
    Argument, ArgumentKind, Case, Dtype, Fill, Gate, KernelContext, Language, Number, Origin, Precision, Problem, Size,
    Source, Task, TimedCases, Tolerance, Transfer,
};
pub use workshop::{Baseline, TimingPlan, Variant, Workshop};
