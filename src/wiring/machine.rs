//! Workshops: where candidates are built and run.

use crate::{config::Config, exit::Trouble};
use kernelbench::{
    Compiled, CompiledOptions, Emulated, EmulatedOptions, Gfx, Language, Processor, Simulated, Source, Task, Workshop,
    cpu,
    cuda::{self, Cuda},
    feature::Column,
    gpu,
    native::{Native, NativeOptions},
    torch::{KernelBench, Options, Torch},
};
use metrics::{Arch, MetricSet};
use std::{
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::Arc,
    thread::ScopedJoinHandle,
};

/// The hidden command that the program calls itself with to run a candidate.
pub const CHILD: &str = "__kernel";

/// A kind of workshop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All is simulated.
    Simulated,
    /// For problems in KernelBench's format.
    Problems,
    /// For kernels in CUDA.
    Cuda,
    /// For kernels in C and C++.
    Native,
    /// For kernels in HLSL, by way of a Vulkan driver on this processor.
    Vulkan,
    /// For kernels in C and C++ on a processor that is emulated.
    Emulated(Processor),
    /// For kernels in HIP, which are compiled and not run.
    Compiled(Gfx),
}

impl Kind {
    /// The one that a task needs.
    #[must_use]
    pub fn of(task: &Task, simulated: bool) -> Self {
        match &task.source {
            _ if simulated => Self::Simulated,
            Source::Problem(_) => Self::Problems,
            Source::Context(_) if task.is_cuda() => Self::Cuda,
            Source::Context(context) => match (context.arch, context.processor) {
                (Some(arch), _) => Self::Compiled(arch),
                (None, Some(processor)) => Self::Emulated(processor),
                (None, None) if context.language == Language::Hlsl => Self::Vulkan,
                (None, None) => Self::Native,
            },
        }
    }
}

impl Kind {
    /// What the jobs of such a workshop are called among hosts.
    #[must_use]
    pub const fn lane(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Problems => "problem",
            Self::Cuda => "cuda",
            Self::Native => "native",
            Self::Vulkan => "vulkan",
            Self::Emulated(Processor::A72) => "emulated-a72",
            Self::Emulated(Processor::A76) => "emulated-a76",
            Self::Emulated(Processor::C908) => "emulated-c908",
            Self::Emulated(Processor::K1) => "emulated-k1",
            Self::Compiled(Gfx::Gfx90a) => "compiled-gfx90a",
            Self::Compiled(Gfx::Gfx942) => "compiled-gfx942",
            Self::Compiled(Gfx::Gfx950) => "compiled-gfx950",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn of_lane(name: &str) -> Option<Self> {
        let emulated = Processor::ALL.map(Self::Emulated);
        let compiled = Gfx::ALL.map(Self::Compiled);
        let all = [Self::Simulated, Self::Problems, Self::Cuda, Self::Native, Self::Vulkan]
            .into_iter()
            .chain(emulated)
            .chain(compiled);
        all.into_iter().find(|kind| kind.lane() == name)
    }
}

/// A workshop of this kind, on the device that the settings name. Where `profiles` will be asked for, a process may wait
/// under a profiler from the start; it reads the counters of this column's features, too.
///
/// # Errors
///
/// If something that it needs is not here: a device, a compiler, a Python with torch.
pub fn workshop(
    kind: Kind,
    config: &Config,
    profiles: bool,
    column: Option<&Column>,
) -> Result<Arc<dyn Workshop>, Trouble> {
    let set = || Ok::<_, Trouble>(metrics(&config.workshop.metrics)?.map(|set| with_counters(set, column)));
    Ok(match kind {
        Kind::Simulated => Arc::new(
            column
                .and_then(|column| column.archs.first())
                .map_or_else(Simulated::new, |arch| Simulated::on(arch.clone())),
        ),
        Kind::Problems => Arc::new(torch_reading(config, profiles, set()?)?),
        Kind::Cuda => Arc::new(cuda_reading(config, set()?)?),
        Kind::Native => Arc::new(native(config)?),
        Kind::Vulkan => Arc::new(vulkan(config)?),
        Kind::Emulated(processor) => Arc::new(emulated(processor, config)?),
        Kind::Compiled(arch) => Arc::new(compiled(arch, config)?),
    })
}

/// What is made for each device, at once: a workshop for problems imports torch, which takes seconds. In the devices' order;
/// of several troubles the first's.
///
/// # Errors
///
/// Those of `make`.
pub fn of_each<T: Send>(
    devices: &[String],
    make: impl Fn(&String) -> Result<T, Trouble> + Sync,
) -> Result<Vec<T>, Trouble> {
    std::thread::scope(|scope| {
        let begun: Vec<_> = devices.iter().map(|device| scope.spawn(|| make(device))).collect();
        let ended = |one: ScopedJoinHandle<'_, _>| one.join().unwrap_or_else(|panic| resume_unwind(panic));
        begun.into_iter().map(ended).collect()
    })
}

/// A set with the counters of a column's features.
fn with_counters(set: MetricSet, column: Option<&Column>) -> MetricSet {
    match column {
        Some(column) => column.asked(set),
        None => set,
    }
}

/// This machine's CPU as a workshop.
///
/// # Errors
///
/// If the program does not know where it lies, or there is no folder for builds.
pub fn native(config: &Config) -> Result<Native, Trouble> {
    native_options(config).map(Native::new)
}

/// The Vulkan driver on this machine's processor as a workshop for kernels in HLSL.
///
/// # Errors
///
/// If there is no such driver, or as for [`native`].
pub fn vulkan(config: &Config) -> Result<Native, Trouble> {
    let options = native_options(config)?;
    Native::with_vulkan(options).map_err(|fault| Trouble::machine(fault.to_string()))
}

fn native_options(config: &Config) -> Result<NativeOptions, Trouble> {
    let (cache, program) = (cache_folder(config)?, own_program()?);
    let machine = cpu::machine(Some(&cache));
    Ok(NativeOptions {
        memory_mib: config.workshop.memory_mib,
        case_mib: config.workshop.largest_case_mib,
        build_deadline: config.workshop.build_deadline(),
        unsanitized: config.workshop.unsanitized,
        ..NativeOptions::new(program, vec![CHILD.into()], cache.join("builds"), machine)
    })
}

/// A processor that is emulated as a workshop.
///
/// # Errors
///
/// If there is no emulator for it here, no folder for builds, or the program does not know where it lies.
fn emulated(processor: Processor, config: &Config) -> Result<Emulated, Trouble> {
    let usual = EmulatedOptions::new(own_program()?, vec![CHILD.into()], cache_folder(config)?.join("builds"));
    let options = EmulatedOptions { build_deadline: config.workshop.build_deadline(), ..usual };
    Emulated::new(processor, options).map_err(|fault| Trouble::machine(fault.to_string()))
}

/// An AMD GPU that is not here as a workshop.
///
/// # Errors
///
/// If no compiler here knows it, there is no folder for builds, or the program does not know where it lies.
pub fn compiled(arch: Gfx, config: &Config) -> Result<Compiled, Trouble> {
    let options = CompiledOptions {
        program: own_program()?,
        program_args: vec![CHILD.into()],
        cache: cache_folder(config)?.join("builds"),
        build_deadline: config.workshop.build_deadline(),
    };
    Compiled::new(arch, options).map_err(|fault| Trouble::machine(fault.to_string()))
}

fn own_program() -> Result<PathBuf, Trouble> {
    std::env::current_exe().map_err(|e| Trouble::machine(format!("cannot find this program's own file: {e}")))
}

/// Whether a task is a problem in `KernelBench`'s format: a Python file.
#[must_use]
pub fn is_problem(task: &Path) -> bool {
    task.extension().is_some_and(|extension| extension == "py")
}

/// Whether there is an NVIDIA GPU with its driver.
#[must_use]
pub fn has_gpu() -> bool {
    Path::new("/dev/nvidiactl").exists()
}

/// The workshop for kernels in CUDA, on the GPU that the settings name, else on the first.
///
/// # Errors
///
/// If there is no GPU, no driver, no nvcc, or the program does not know where it lies.
pub fn cuda(config: &Config) -> Result<Cuda, Trouble> {
    cuda_reading(config, metrics(&config.workshop.metrics)?)
}

/// How many of the largest cases a GPU's arena is made for: a request of several calls needs the arguments of each.
const CASES_OF_AN_ARENA: u64 = 6;
/// What may lie around a case's arrays in an arena, as a part of them: a tenth.
const AROUND: u64 = 10;

/// What `largest_case_mib` has to be for a case of these bytes, where the settings' own is too little.
#[must_use]
pub fn largest_case_for(bytes: u64, on_gpu: bool, config: &Config) -> Option<u64> {
    let mib = bytes.div_ceil(1 << 20);
    let needed = if on_gpu { (mib + mib.div_ceil(AROUND)).div_ceil(CASES_OF_AN_ARENA) } else { mib };
    (needed > config.workshop.largest_case_mib).then_some(needed)
}

/// The same, whose profiler reads these metrics.
///
/// # Errors
///
/// As for [`cuda()`].
pub fn cuda_reading(config: &Config, metrics: Option<MetricSet>) -> Result<Cuda, Trouble> {
    let device = config.workshop.device.as_str();
    let ordinal = ordinal(config).ok_or_else(|| {
        Trouble::usage(format!("kernels in CUDA run on a GPU: expected --device cuda:0 or the like, found {device:?}"))
    })?;
    let arena_mib = CASES_OF_AN_ARENA * config.workshop.largest_case_mib;
    Cuda::new(cuda::Options { ordinal, arena_mib, metrics, ..cuda_options(config)? })
        .map_err(|fault| Trouble::machine(format!("{fault}; `warpsmith doctor` says what is there")))
}

/// With what kernels in CUDA are built, with or without a GPU.
///
/// # Errors
///
/// If the program does not know where it lies, or there is no folder for builds.
pub fn cuda_options(config: &Config) -> Result<cuda::Options, Trouble> {
    let options = cuda::Options::new(own_program()?, vec![CHILD.into()], cache_folder(config)?.join("builds"));
    Ok(cuda::Options { build_deadline: config.workshop.build_deadline(), ..options })
}

/// The number of the GPU that the settings name, else of the first; none where they name the processor.
fn ordinal(config: &Config) -> Option<u32> {
    let device = config.workshop.device.as_str();
    gpu::ordinal(if device.is_empty() { "cuda" } else { device })
}

/// The architecture of the GPU that the settings name, else of the first, as its driver says; none where there is none.
#[must_use]
pub fn gpu_arch(config: &Config) -> Option<Arch> {
    Arch::of_capability(&gpu::Gpu::at(ordinal(config)?).ok()?.capability()?)
}

/// The workshop for problems in `KernelBench`'s format, on the device that the settings name, else on the first NVIDIA
/// GPU, else on the processor. Where `profiles` will be asked for, a process waits under the profiler from the start.
///
/// # Errors
///
/// If the program does not know where it lies, or that Python cannot use torch there.
pub fn torch(config: &Config, profiles: bool) -> Result<Torch, Trouble> {
    torch_reading(config, profiles, metrics(&config.workshop.metrics)?)
}

/// The same, whose profiler reads these metrics.
fn torch_reading(config: &Config, profiles: bool, metrics: Option<MetricSet>) -> Result<Torch, Trouble> {
    let program = own_program()?;
    let named = |setting: &str, usual: &str| if setting.is_empty() { usual.to_owned() } else { setting.to_owned() };
    let usual = if has_gpu() { "cuda:0" } else { "cpu" };
    let device = named(&config.workshop.device, usual);
    let python = named(&config.workshop.python, "python3");
    let options = Options {
        headers: config.workshop.headers,
        profiler: config.workshop.profiler.unwrap_or_default(),
        metrics,
        profile_ahead: profiles,
        baselines: config.workshop.baselines.0.clone(),
        kernelbench: kernelbench(&config.workshop.kernelbench)?,
        cache: Some(cache_folder(config)?),
        ..Options::new(python.into(), &device, program, vec![CHILD.into()])
    };
    Torch::new(options).map_err(|fault| {
        Trouble::machine(format!(
            "{fault}; name a Python that has torch with --python or as workshop.python in warpsmith.toml, \
             and a device with --device cpu or --device cuda:0"
        ))
    })
}

/// The checkout in this folder, where one is named.
fn kernelbench(folder: &str) -> Result<Option<KernelBench>, Trouble> {
    let checkout = (!folder.is_empty()).then(|| KernelBench::at(Path::new(folder))).transpose();
    checkout.map_err(|why| Trouble::usage(format!("workshop.kernelbench (--kernelbench): {why}")))
}

/// The metrics that Nsight Compute is asked for: those of a set with this name or in this file; `None` for none.
///
/// # Errors
///
/// If there is no such set, or the file is none.
pub fn metrics(named: &str) -> Result<Option<MetricSet>, Trouble> {
    let name = if named.is_empty() { "cudaforge24" } else { named };
    if name == "none" {
        return Ok(None);
    }
    if let Some(set) = MetricSet::known(name) {
        return Ok(Some(set));
    }
    let expected = "expected cudaforge24, hopper24, full, none or the file of a set";
    let text =
        std::fs::read_to_string(name).map_err(|e| Trouble::usage(format!("metrics {name:?}: {e}; {expected}")))?;
    MetricSet::parse(&text).map(Some).map_err(|why| Trouble::usage(format!("{name}: {why}")))
}

/// Where builds and measurements are kept; made if need be.
///
/// # Errors
///
/// If it cannot be made.
pub fn cache_folder(config: &Config) -> Result<PathBuf, Trouble> {
    let folder = match config.workshop.cache.as_str() {
        "" => user_cache(),
        named => named.into(),
    };
    std::fs::create_dir_all(&folder).map_err(|e| {
        let name = folder.display();
        Trouble::machine(format!(
            "{name}: cannot make the folder of builds: {e}; name another one as workshop.cache in warpsmith.toml"
        ))
    })?;
    std::path::absolute(&folder).map_err(|e| Trouble::machine(format!("{}: {e}", folder.display())))
}

/// `warpsmith` in the user's cache folder (XDG), or in the folder of temporary files if there is no home.
fn user_cache() -> PathBuf {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("warpsmith")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        time::{Duration, Instant},
    };

    #[test]
    fn what_is_made_for_each_device_is_made_at_once_and_comes_in_their_order() {
        let devices = ["cuda:0", "cuda:1", "cuda:2"].map(str::to_owned);
        let (begun, start) = (AtomicUsize::new(0), Instant::now());
        let made = of_each(&devices, |device| {
            begun.fetch_add(1, SeqCst);
            while begun.load(SeqCst) < devices.len() {
                assert!(start.elapsed() < Duration::from_secs(20), "{device} waits for the others to begin");
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(device.clone())
        });
        assert_eq!(made.unwrap(), devices);
        let of = |device: &String| if device == "cuda:0" { Ok(()) } else { Err(Trouble::machine(device.clone())) };
        assert_eq!(of_each(&devices, of).unwrap_err().message, "cuda:1");
    }
}
