//! The child's side on a CPU: a process whose kernel computes in memory that it shares with its parent.
#![expect(unsafe_code, reason = "takes over descriptors")]

use super::{placement::Guards, segment, vulkan::Vulkan};
use crate::{
    machine::cores::Cores,
    sandbox::{
        confine::Confinement,
        filter::kernel::{self, Phase},
        kernel_child::{CallLayout, Calls, Device, DeviceError, KernelChild, Line, Ready},
        layer::Layer,
        process, signals,
    },
    task::layout::PAGE,
};
use nix::sys::mman::MapFlags;
use serde::{Deserialize, Serialize};
use std::{
    ffi::c_void,
    fs::File,
    ops::Range,
    os::fd::{AsFd, FromRawFd, OwnedFd, RawFd},
    path::PathBuf,
    ptr::NonNull,
    time::Instant,
};

/// What a child has to know before it is confined.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// How it is confined, but for its address space.
    pub(crate) confinement: Confinement,
    /// Its end of the line.
    pub(crate) control: RawFd,
    /// The memory that it shares with its parent.
    pub(crate) memory: RawFd,
    /// The shared object that it is to load.
    pub(crate) object: RawFd,
    /// The pages of that memory that it is not to touch.
    pub(crate) guards: Guards,
    /// Its share of the host.
    pub(crate) host: Host,
    /// Whether it computes by way of a Vulkan driver.
    pub(crate) vulkan: bool,
}

/// What a child gets of the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Host {
    /// The length of the shared memory, in bytes.
    pub(crate) segment_bytes: usize,
    /// Memory that may be had beyond what is there at the start, in bytes.
    pub(crate) memory_bytes: u64,
    /// The core to run on.
    pub(crate) core: Option<usize>,
}

/// What a child needs that is run by itself, so that a profiler can wrap it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Once {
    /// How it confines itself; none where all of the profiler is confined with it.
    pub(crate) confinement: Option<Confinement>,
    /// The file of its arguments, of which it maps a private copy.
    pub(crate) segment: PathBuf,
    /// The shared object.
    pub(crate) object: PathBuf,
    /// Its share of the host.
    pub(crate) host: Host,
    /// What to pass.
    pub(crate) layout: CallLayout,
    /// How often it is called.
    pub(crate) calls: u32,
}

/// The address space of a Vulkan driver that compiles for this processor, in bytes.
const DRIVER_BYTES: u64 = 2 << 30;
/// Where its reports go that nobody asks: standard error.
const STDERR: RawFd = 2;

/// Serves requests until the parent is gone.
pub(crate) fn serve(setup: Setup) -> Result<(), String> {
    let Setup { mut confinement, control, memory, object, guards, host, vulkan } = setup;
    process::close_all_but([control, memory, object]);
    // SAFETY: the parent left these two open for us, and nothing else in this process owns them.
    let (memory, object) = unsafe { (OwnedFd::from_raw_fd(memory), OwnedFd::from_raw_fd(object)) };
    let base =
        segment::map_behind(&memory, host.segment_bytes, host.memory_bytes as usize).map_err(|e| e.to_string())?;
    segment::guard(base, &guards).map_err(|e| format!("cannot guard the arguments: {e}"))?;
    drop(memory);
    if let Some(core) = host.core {
        Cores::pin(core);
    }
    let mut line = Line::on(control);
    signals::report_on(control);
    let own = process::own_address_space() + if vulkan { DRIVER_BYTES } else { 0 };
    confinement.limits.address_space = Some(own.saturating_add(host.memory_bytes));
    line.say(&confinement.apply(Some(object.as_fd())))?;
    line.hear::<serde_json::Value>()?.ok_or("the parent is gone")?;
    // Confined already: what a driver starts of its own is confined with it.
    let mut vulkan = if vulkan { Some(Vulkan::open(base, host.segment_bytes)?) } else { None };
    let start = base.as_ptr() as u64;
    let ready = vulkan.as_mut().map_or("a CPU".to_owned(), Vulkan::name);
    line.say(&Ready { ready, address_space: Some(own), arguments: Some(start) })?;
    let closed = start - host.memory_bytes..start + host.segment_bytes as u64 + PAGE as u64;
    let cpu = Cpu { base, control, memory_bytes: host.memory_bytes, closed, object: Some(object), vulkan };
    KernelChild::new(cpu).serve(line)
}

/// Loads a kernel and calls it on a private copy of its arguments.
pub(crate) fn run_once(once: Once) -> Result<(), String> {
    let Once { confinement, segment, object, host, layout, calls } = once;
    let open = |path: &PathBuf| File::open(path).map_err(|e| format!("{}: {e}", path.display()));
    let (segment, file) = (open(&segment)?, open(&object)?);
    let base = segment::map(&segment, host.segment_bytes, MapFlags::MAP_PRIVATE).map_err(|e| e.to_string())?;
    if let Some(core) = host.core {
        Cores::pin(core);
    }
    let confined = confinement.is_some();
    if let Some(mut confinement) = confinement {
        confinement.parent = nix::unistd::getppid().as_raw();
        confinement.limits.address_space = Some(process::own_address_space().saturating_add(host.memory_bytes));
        confinement.apply(Some(file.as_fd()));
    }
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let memory_bytes = if confined { host.memory_bytes } else { 0 };
    let cpu = Cpu { base, control: STDERR, memory_bytes, closed: 0..0, object: Some(file.into()), vulkan: None };
    let mut child = KernelChild::new(cpu);
    child.load(Some(path.as_ref()))?;
    child.run_alone(&layout, calls).map_err(|e| e.to_string())
}

/// A CPU as a device.
struct Cpu {
    base: NonNull<u8>,
    control: RawFd,
    /// The longest mapping, in bytes; 0 where system calls are not filtered.
    memory_bytes: u64,
    /// The addresses whose mappings stay as they are.
    closed: Range<u64>,
    /// Closed once it is loaded.
    object: Option<OwnedFd>,
    /// What runs shaders in its memory.
    vulkan: Option<Vulkan>,
}

impl Cpu {
    fn filtered(&self, phase: Phase) -> Result<(), String> {
        match self.memory_bytes {
            0 => Err("a tool around it needs system calls".to_owned()),
            bytes => kernel::apply(phase, self.control, bytes, &self.closed),
        }
    }
}

impl Device for Cpu {
    fn filter(&mut self) -> Layer {
        Layer::of(
            "system call filter",
            "it can start nothing, open nothing, send nothing",
            self.filtered(Phase::Loading),
        )
    }

    fn lock(&mut self) -> Option<Layer> {
        self.object = None;
        let locked = self.filtered(Phase::Running);
        Some(Layer::of("system call filter after loading", "it cannot even read a file", locked))
    }

    /// A host region gets a place in the device's memory, which is no address.
    fn address(&self, offset: usize) -> u64 {
        if self.vulkan.is_some() {
            return offset as u64;
        }
        self.base.as_ptr().wrapping_add(offset) as u64
    }

    fn stream(&self) -> *mut c_void {
        self.vulkan.as_ref().map_or(std::ptr::null_mut(), Vulkan::handle)
    }

    fn error(status: i32) -> DeviceError {
        DeviceError { code: status.unsigned_abs(), text: format!("the entry returned {status}") }
    }

    fn record(&mut self, _: Option<&Calls<'_>>) -> Result<bool, DeviceError> {
        Ok(false)
    }

    fn run(&mut self, calls: &Calls<'_>) -> Result<u64, DeviceError> {
        if let Some(vulkan) = &mut self.vulkan {
            return vulkan.run(calls);
        }
        let start = Instant::now();
        calls()?;
        Ok(start.elapsed().as_nanos() as u64)
    }
}
