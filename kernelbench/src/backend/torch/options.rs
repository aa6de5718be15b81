//! How a workshop for problems is set up.

use super::{headers::Headers, own_evaluation::KernelBench, variant::Mode};
use crate::{profile::kind::ProfilerKind, sandbox::pool::beside_a_timing};
use metrics::{Machine, MetricSet};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// How a workshop for problems is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Python that has torch.
    pub python: PathBuf,
    /// The device: `cpu` or `cuda:0`.
    pub device: String,
    /// The program that calls `native::child_main`: as a rule, this very one.
    pub program: PathBuf,
    /// The arguments that lead it there: as a rule, the hidden sub-command.
    pub program_args: Vec<OsString>,
    /// Trials of a check (KernelBench's scripts: 5).
    pub trials: u32,
    /// Whether candidates' matrix products may round to TF32. The judge's never do.
    pub tf32: bool,
    /// Threads of each process on the processor.
    pub threads: u32,
    /// What all inputs of one side may take, in MiB.
    pub arena_mib: u64,
    /// Memory that a candidate may have on the processor beside torch's own, in MiB.
    pub memory_mib: u64,
    /// How many candidates are checked side by side on the device while nothing is timed there; 1 to have each alone.
    pub beside: usize,
    /// How many candidates may compile in their first calls while something is timed there.
    pub compiling: usize,
    /// Whether each candidate runs as a user of its own, where the program is root.
    pub own_user: bool,
    /// How the reference is compiled and timed beside eager torch.
    pub baselines: Vec<Mode>,
    /// A checkout of KernelBench, whose own evaluation of what is certified stands in certificates.
    pub kernelbench: Option<KernelBench>,
    /// Where such times are kept; nowhere where it is `None`.
    pub cache: Option<PathBuf>,
    /// Processes that are kept ready for candidates to come.
    pub spares: usize,
    /// Which headers candidates are built with until one is certified.
    pub headers: Headers,
    /// What a build may take.
    pub build_deadline: Duration,
    /// What every deadline has beside twenty times the reference's time.
    pub deadline_floor: Duration,
    /// What the deadline of a candidate's first call has in its place: Triton compiles then.
    pub first_call: Duration,
    /// The highest rung of the ladder of profilers that is tried.
    pub profiler: ProfilerKind,
    /// What Nsight Compute is asked for; `None` asks it for nothing, and begins one rung below it.
    pub metrics: Option<MetricSet>,
    /// Nsight Compute's program, on whatever device; where it is `None`, `ncu` as the path finds it, on GPUs.
    pub ncu: Option<PathBuf>,
    /// How long a process may take until it stands still under the profiler.
    pub profile_patience: Duration,
    /// Whether processes are started under the profiler before a profile is asked for.
    pub profile_ahead: bool,
    /// What inputs are drawn from; secret, from the system's randomness, where it is `None`.
    pub seed: Option<u64>,
    /// The machine's specification, for the processor; a GPU is asked.
    pub machine: Option<Machine>,
}

impl Options {
    /// The usual limits, for a Python, a device, and a program with the arguments that lead it to `native::child_main`.
    #[must_use]
    pub fn new(python: PathBuf, device: &str, program: PathBuf, program_args: Vec<OsString>) -> Self {
        let on_cpu = device == "cpu";
        Self {
            python,
            device: device.to_owned(),
            program,
            program_args,
            trials: 5,
            tf32: false,
            threads: 1,
            arena_mib: if on_cpu { 64 } else { 4096 },
            memory_mib: 8192,
            beside: if on_cpu { 1 } else { 8 },
            compiling: if on_cpu { 0 } else { beside_a_timing() / 2 },
            own_user: true,
            baselines: vec![],
            kernelbench: None,
            cache: None,
            spares: if on_cpu { 1 } else { 3 },
            headers: Headers::Slim,
            build_deadline: Duration::from_mins(5),
            deadline_floor: Duration::from_secs(5),
            first_call: Duration::from_mins(1),
            profiler: ProfilerKind::default(),
            metrics: Some(MetricSet::cudaforge24()),
            ncu: None,
            profile_patience: Duration::from_secs(30),
            profile_ahead: true,
            seed: None,
            machine: None,
        }
    }
}
