//! The child's side on an NVIDIA GPU: a process that loads one kernel's launcher and calls it.
//!
//! It opens the arena that its side computes in, and holds neither the other side's nor what was drawn for it nor the clock
//! that counts. It confines itself before the driver is loaded, and filters its system calls before the kernel is.

use crate::machine::driver::{self, CudaDevice, Graph, HANDLE, Stopwatch};
use crate::profile::job::{JOB, READY};
use crate::sandbox::{
    confine::Confinement,
    filter,
    kernel_child::{CallLayout, Calls, Device, DeviceError, KernelChild, Line, Ready},
    layer::Layer,
    signals,
};
use nix::sys::prctl;
use serde::{Deserialize, Serialize};
use std::{
    ffi::c_void,
    fs::File,
    io::{BufRead, BufReader, Write},
    os::fd::RawFd,
    path::{Path, PathBuf},
};

/// The one GPU that a child sees.
const ONLY: u32 = 0;

/// What a child has to know before it is confined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// How it is confined.
    pub(crate) confinement: Confinement,
    /// Its end of the line.
    pub(crate) control: RawFd,
}

/// What a child is told when it is confined: the handle of its arena.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Arena {
    /// Its bytes.
    pub(crate) handle: Vec<u8>,
}

/// What a child needs that makes one call under a profiler.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Once {
    /// Where it says that it is ready, and finds its job.
    pub(crate) folder: PathBuf,
}

/// One call under a profiler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The case, of one slot.
    pub(crate) layout: CallLayout,
    /// The shared object.
    pub(crate) object: PathBuf,
    /// The file that holds the slot.
    pub(crate) slot: PathBuf,
    /// Where in it each array lies: from where, and how many bytes.
    pub(crate) arrays: Vec<[usize; 2]>,
    /// Calls before the one that is looked at.
    pub(crate) warm_up: u32,
    /// What is said once the call has come to its end, if anything.
    pub(crate) done: String,
}

/// Serves requests until the parent is gone.
pub(crate) fn serve(setup: &Setup) -> Result<(), String> {
    let layers = setup.confinement.apply(None);
    let mut line = Line::on(setup.control);
    signals::report_on(setup.control);
    // What it may read of itself follows its new user.
    prctl::set_dumpable(true).map_err(|e| e.to_string())?;
    line.say(&layers)?;
    let arena: Arena = line.hear()?.ok_or("the parent is gone")?;
    let gpu = CudaDevice::open(ONLY)?;
    let handle: [u8; HANDLE] = arena.handle.try_into().map_err(|_| "a memory handle has 64 bytes")?;
    let arena = gpu.open_handle(handle).map_err(|e| format!("the arena cannot be opened: {e}"))?;
    let watch = gpu.stopwatch().map_err(|e| e.to_string())?;
    line.say(&Ready { ready: gpu.name(), address_space: None, arguments: None })?;
    KernelChild::new(Cuda { gpu, arena: Memory::Whole(arena), watch, graph: None }).serve(line)
}

/// Where the arrays of a slot lie.
enum Memory {
    /// One after the other, from this address.
    Whole(u64),
    /// Each in an allocation of its own, by its offset in the slot, so that a sanitizer knows where it ends.
    Apart(Vec<(usize, driver::Memory)>),
}

/// A GPU as a device.
struct Cuda {
    gpu: CudaDevice,
    arena: Memory,
    watch: Stopwatch,
    /// Calls that were recorded.
    graph: Option<Graph>,
}

impl Device for Cuda {
    fn filter(&mut self) -> Layer {
        let does = "it can start no process and open no network connection";
        Layer::of("system call filter", does, filter::driver::apply())
    }

    fn lock(&mut self) -> Option<Layer> {
        None
    }

    fn address(&self, offset: usize) -> u64 {
        match &self.arena {
            Memory::Whole(address) => address + offset as u64,
            Memory::Apart(arrays) => {
                arrays.iter().find(|(at, _)| *at == offset).map_or(0, |(_, memory)| memory.address)
            }
        }
    }

    fn stream(&self) -> *mut c_void {
        self.gpu.stream()
    }

    /// An error of the runtime's; those that matter most have the driver's numbers, and the rest is told by its number.
    fn error(status: i32) -> DeviceError {
        let (name, text) = match status {
            1 => ("cudaErrorInvalidValue", "invalid argument"),
            2 => ("cudaErrorMemoryAllocation", "out of memory"),
            9 => ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
            98 => ("cudaErrorInvalidDeviceFunction", "invalid device function"),
            209 => ("cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"),
            700 => ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
            701 => ("cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
            716 => ("cudaErrorMisalignedAddress", "misaligned address"),
            719 => ("cudaErrorLaunchFailure", "unspecified launch failure"),
            _ => ("", "a launch or a call of the runtime failed"),
        };
        let name = if name.is_empty() { format!("cudaError {status}") } else { name.to_owned() };
        DeviceError { code: status.unsigned_abs(), text: format!("CUDA error: {text} ({name})") }
    }

    fn record(&mut self, calls: Option<&Calls<'_>>) -> Result<bool, DeviceError> {
        self.graph = calls.map(|calls| self.gpu.record(calls)).transpose()?.flatten();
        Ok(self.graph.is_some())
    }

    fn run(&mut self, calls: &Calls<'_>) -> Result<u64, DeviceError> {
        self.gpu.start(&self.watch)?;
        match &self.graph {
            Some(graph) => self.gpu.replay(graph)?,
            None => calls()?,
        }
        self.gpu.stop(&self.watch)?;
        self.gpu.wait()?;
        self.gpu.elapsed_ns(&self.watch)
    }
}

/// What is allocated behind each array and given back before the call, in bytes: a sanitizer does not see that an access beyond
/// an array falls into the next one. The driver takes small allocations from blocks and large ones by themselves.
const GAPS: [usize; 2] = [512, 2 << 20];

/// Makes a context, waits until the folder says what to call, and calls it with a profiler looking at the last call.
pub(crate) fn run_once(once: &Once) -> Result<(), String> {
    let gpu = CudaDevice::open(ONLY)?;
    // Without it the profile comes a second later and is the same.
    let _ = look_at_nothing(&gpu);
    let job = job_of(&once.folder)?;
    let slot = std::fs::read(&job.slot).map_err(|e| e.to_string())?;
    let said = |e: DeviceError| e.to_string();
    let (mut arrays, mut gaps) = (vec![], vec![]);
    for [offset, bytes] in &job.arrays {
        let content = slot.get(*offset..offset + bytes).ok_or("the slot is shorter than its arrays")?;
        let memory = gpu.allocate(*bytes).map_err(said)?;
        gpu.write(memory.address, content).map_err(said)?;
        arrays.push((*offset, memory));
        gaps.extend(GAPS.map(|bytes| gpu.allocate(bytes)));
    }
    drop(gaps);
    let watch = gpu.stopwatch().map_err(said)?;
    let mut child = KernelChild::new(Cuda { gpu, arena: Memory::Apart(arrays), watch, graph: None });
    child.load_unfiltered(&job.object)?;
    child.run_alone(&job.layout, job.warm_up).map_err(said)?;
    driver::profile(true);
    let ran = child.run_alone(&job.layout, 1).map_err(said);
    driver::profile(false);
    ran?;
    if !job.done.is_empty() {
        writeln!(std::io::stdout(), "{}", job.done).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// What the kernel is called that does nothing.
pub(crate) const NOTHING: &str = "warpsmith_nothing";
/// Its text in PTX, which the driver compiles for any GPU of compute capability 7.5 or higher.
const NOTHING_PTX: &str =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry warpsmith_nothing() { ret; }\n\0";

/// Launches a kernel that does nothing with the profiler looking: the first look of a process takes a second longer than
/// those after it (Nsight Compute 2025.3 on an H200).
fn look_at_nothing(gpu: &CudaDevice) -> Result<(), DeviceError> {
    let [nothing] = gpu.kernels(NOTHING_PTX.as_bytes(), [NOTHING])?;
    driver::profile(true);
    let launched = gpu.launch(nothing, 1, 1, &mut []).and_then(|()| gpu.wait());
    driver::profile(false);
    launched
}

/// Says that it is ready, and waits for its job.
fn job_of(folder: &Path) -> Result<Job, String> {
    let pipe = File::open(folder.join(JOB)).map_err(|e| e.to_string())?;
    let _ = std::fs::write(folder.join(READY), "");
    let mut line = String::new();
    BufReader::new(pipe).read_line(&mut line).map_err(|e| e.to_string())?;
    serde_json::from_str(&line).map_err(|e| format!("nobody gave a job: {e}"))
}
