//! An NVIDIA GPU through CUDA's driver, in Rust's terms.
//!
//! The driver's library is loaded when it is first needed, so the program starts on machines without one. Both sides use
//! this: the trusted one, which fills, compares and times, and the child that runs a kernel.
#![expect(unsafe_code, reason = "calls the driver")]

use crate::sandbox::kernel_child::{Calls, DeviceError};
use cudarc::driver::{
    result::{self, DriverError, ctx, device, event, graph, module, primary_ctx, stream},
    sys::{self, CUdevice_attribute as Attribute},
};
use std::{
    ffi::{CStr, CString, c_char, c_void},
    mem::MaybeUninit,
    ptr::null_mut,
};

/// Bytes of a handle by which another process opens memory.
pub(crate) const HANDLE: usize = 64;
/// Threads of a block of our own kernels.
const THREADS: u32 = 256;

type Asked<T> = Result<T, DeviceError>;

impl From<DriverError> for DeviceError {
    fn from(error: DriverError) -> Self {
        let word =
            |text: Result<&CStr, DriverError>| text.map_or_else(|_| String::new(), |t| t.to_string_lossy().into());
        let text = format!("CUDA error: {} ({})", word(error.error_string()), word(error.error_name()));
        Self { code: error.0 as u32, text }
    }
}

/// Whether the driver's library is there at all.
fn is_there() -> bool {
    // SAFETY: loads a library of the system's; its constructors are the driver's own.
    unsafe { sys::is_culib_present() }
}

/// A GPU with this process's context on it, and one stream.
#[derive(Debug)]
pub(crate) struct CudaDevice {
    number: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
}

// SAFETY: the driver's handles may be used from any thread; each use makes the context current on its thread first.
unsafe impl Send for CudaDevice {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for CudaDevice {}

/// A stretch of the GPU's memory, given back when dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Its address on the GPU.
    pub(crate) address: u64,
    /// Its length in bytes.
    pub(crate) bytes: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by this process and given to nobody else.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel(sys::CUfunction);

// SAFETY: a handle that lives as long as its module, which is never unloaded.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// A place in the stream's order.
#[derive(Debug)]
pub(crate) struct Event(sys::CUevent);

// SAFETY: a handle that lives as long as the process.
unsafe impl Send for Event {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the GPU has come so far.
    pub(crate) fn is_past(&self) -> Asked<bool> {
        // SAFETY: our own event.
        match unsafe { event::query(self.0) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            asked => Ok(asked.map(|()| true)?),
        }
    }
}

/// A pair of events that measure the work enqueued between them.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    start: Event,
    end: Event,
}

/// Bytes of the second-level cache of the GPU on this PCI bus, without a context on it; `None` where CUDA's driver does not say.
pub(crate) fn l2_bytes(bus: &str) -> Option<u64> {
    let (bus, mut number) = (std::ffi::CString::new(bus).ok()?, 0);
    if !is_there() {
        return None;
    }
    result::init().ok()?;
    // SAFETY: a name with its end, and a place for a number.
    unsafe { sys::cuDeviceGetByPCIBusId(&raw mut number, bus.as_ptr()) }.result().ok()?;
    // SAFETY: a device that was just found.
    let bytes = unsafe { device::get_attribute(number, Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) };
    bytes.ok().and_then(|bytes| u64::try_from(bytes).ok())
}

impl CudaDevice {
    /// The GPU of this number, with its primary context made current.
    pub(crate) fn open(ordinal: u32) -> Result<Self, String> {
        if !is_there() {
            return Err("the CUDA driver's library (libcuda.so.1) cannot be loaded".to_owned());
        }
        Self::opened(ordinal).map_err(|e| DeviceError::from(e).to_string())
    }

    fn opened(ordinal: u32) -> Result<Self, DriverError> {
        result::init()?;
        let number = device::get(ordinal.cast_signed())?;
        // SAFETY: a device that was just found, and its own context.
        let context = unsafe {
            // Waiting without sleeping: the clock outside sees the end at once. Refused where a context is there already.
            let _ = sys::cuDevicePrimaryCtxSetFlags_v2(number, sys::CUctx_flags_enum::CU_CTX_SCHED_SPIN as u32);
            let context = primary_ctx::retain(number)?;
            ctx::set_current(context)?;
            context
        };
        let stream = stream::create(stream::StreamKind::Default)?;
        Ok(Self { number, context, stream })
    }

    /// Makes this thread one that may use it.
    pub(crate) fn enter(&self) -> Asked<()> {
        // SAFETY: our own context, which lives as long as the process.
        Ok(unsafe { ctx::set_current(self.context) }?)
    }

    /// What it calls itself.
    pub(crate) fn name(&self) -> String {
        device::get_name(self.number).unwrap_or_default()
    }

    fn attribute(&self, which: Attribute) -> Asked<u64> {
        // SAFETY: our own device.
        Ok(unsafe { device::get_attribute(self.number, which) }? as u64)
    }

    /// Its compute capability, such as `9.0`.
    pub(crate) fn capability(&self) -> Asked<String> {
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(format!("{major}.{minor}"))
    }

    /// How many multiprocessors it has.
    pub(crate) fn multiprocessors(&self) -> Asked<u64> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// Bytes of its second-level cache.
    pub(crate) fn l2_bytes(&self) -> Asked<u64> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
    }

    /// Bytes of its memory that are free, and all.
    pub(crate) fn memory(&self) -> Asked<[u64; 2]> {
        self.enter()?;
        let (free, all) = result::mem_get_info()?;
        Ok([free as u64, all as u64])
    }

    /// Allocates.
    pub(crate) fn allocate(&self, bytes: usize) -> Asked<Memory> {
        self.enter()?;
        // SAFETY: nobody reads it before it is written.
        let address = unsafe { result::malloc_sync(bytes) }?;
        Ok(Memory { address, bytes })
    }

    /// The handle by which another process opens an allocation.
    pub(crate) fn handle(&self, memory: &Memory) -> Asked<[u8; HANDLE]> {
        self.enter()?;
        let mut handle = MaybeUninit::<sys::CUipcMemHandle>::zeroed();
        // SAFETY: a place of ours, and an address that was allocated as a whole; zeroed bytes are a handle too.
        let handle = unsafe {
            sys::cuIpcGetMemHandle(handle.as_mut_ptr(), memory.address).result()?;
            handle.assume_init()
        };
        Ok(handle.reserved.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())))
    }

    /// The address here of another process's allocation, for the life of this process.
    pub(crate) fn open_handle(&self, handle: [u8; HANDLE]) -> Asked<u64> {
        self.enter()?;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| c_char::from_ne_bytes([byte])) };
        let flags = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut address = 0;
        // SAFETY: a place of ours, and plain bytes.
        unsafe { sys::cuIpcOpenMemHandle_v2(&raw mut address, handle, flags) }.result()?;
        Ok(address)
    }

    /// Copies from the GPU, and waits for it.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Asked<()> {
        self.wait()?;
        // SAFETY: writes into a slice; the driver refuses addresses that are not the context's.
        Ok(unsafe { result::memcpy_dtoh_sync(to, address) }?)
    }

    /// Copies to the GPU, and waits for it.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Asked<()> {
        self.enter()?;
        // SAFETY: reads a slice.
        unsafe { result::memcpy_htod_sync(address, from) }?;
        self.wait()
    }

    /// Sets every byte, in the stream's order.
    pub(crate) fn set(&self, address: u64, value: u8, bytes: usize) -> Asked<()> {
        // SAFETY: enqueues work on memory of the context's.
        Ok(unsafe { result::memset_d8_async(address, value, bytes, self.stream) }?)
    }

    /// Copies on the GPU, in the stream's order.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Asked<()> {
        // SAFETY: enqueues work on memory of the context's.
        Ok(unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream) }?)
    }

    /// The kernels of these names in a compiled image or a text in PTX that ends with a zero, which stays loaded.
    pub(crate) fn kernels<const N: usize>(&self, image: &[u8], names: [&str; N]) -> Asked<[Kernel; N]> {
        self.enter()?;
        // SAFETY: an image of our own.
        let module = unsafe { module::load_data(image.as_ptr().cast()) }?;
        let mut kernels = [Kernel(null_mut()); N];
        for (kernel, name) in kernels.iter_mut().zip(names) {
            // SAFETY: a module that was just loaded.
            kernel.0 = unsafe { module::get_function(module, CString::new(name).unwrap_or_default()) }?;
        }
        Ok(kernels)
    }

    /// Enqueues a kernel of ours with so many threads for each of so many slots. `arguments` hold each argument's bits, in
    /// the width that the kernel takes: 8 bytes.
    pub(crate) fn launch(&self, kernel: Kernel, threads: u64, slots: usize, arguments: &mut [u64]) -> Asked<()> {
        let blocks = threads.div_ceil(u64::from(THREADS)).clamp(1, 4096) as u32;
        let mut places: Vec<*mut c_void> = arguments.iter_mut().map(|bits| std::ptr::from_mut(bits).cast()).collect();
        let grid = (blocks, slots.max(1) as u32, 1);
        // SAFETY: our own kernels, whose arguments are all 8 bytes wide; each place is read before the call returns.
        Ok(unsafe { result::launch_kernel(kernel.0, grid, (THREADS, 1, 1), 0, self.stream, &mut places) }?)
    }

    /// Waits for all work of this process on the GPU.
    pub(crate) fn wait(&self) -> Asked<()> {
        self.enter()?;
        Ok(ctx::synchronize()?)
    }

    /// The stream, as kernels' launchers take it.
    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream.cast()
    }

    /// A new event.
    pub(crate) fn event(&self) -> Asked<Event> {
        self.enter()?;
        Ok(Event(event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)?))
    }

    /// Puts it after all work that was enqueued.
    pub(crate) fn mark(&self, event: &Event) -> Asked<()> {
        // SAFETY: our own event and stream.
        Ok(unsafe { event::record(event.0, self.stream) }?)
    }

    /// A new pair of events.
    pub(crate) fn stopwatch(&self) -> Asked<Stopwatch> {
        Ok(Stopwatch { start: self.event()?, end: self.event()? })
    }

    /// Marks the beginning of what is measured.
    pub(crate) fn start(&self, watch: &Stopwatch) -> Asked<()> {
        self.mark(&watch.start)
    }

    /// Marks the end of what is measured.
    pub(crate) fn stop(&self, watch: &Stopwatch) -> Asked<()> {
        self.mark(&watch.end)
    }

    /// What was measured, in nanoseconds, once the work is done.
    pub(crate) fn elapsed_ns(&self, watch: &Stopwatch) -> Asked<u64> {
        self.enter()?;
        // SAFETY: our own events.
        let milliseconds = unsafe { event::elapsed(watch.start.0, watch.end.0) }?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }

    /// Records what `work` enqueues on the stream instead of doing it. `None` where it cannot be recorded, or nothing is.
    pub(crate) fn record(&self, work: &Calls<'_>) -> Asked<Option<Graph>> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: our own stream.
        if unsafe { stream::begin_capture(self.stream, mode) }.is_err() {
            return Ok(None);
        }
        let worked = work();
        // SAFETY: our own stream, whose capture has begun.
        let graph = unsafe { stream::end_capture(self.stream) };
        let (Ok(()), Ok(graph)) = (worked, graph) else { return Ok(None) };
        let mut nodes = 0;
        // SAFETY: a graph that was just made; only the number is asked for.
        unsafe { sys::cuGraphGetNodes(graph, null_mut(), &raw mut nodes) }.result()?;
        if nodes == 0 {
            return Ok(None);
        }
        // SAFETY: a graph that was just made; what is executed is a copy.
        let executable = unsafe {
            let executable = graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = graph::destroy(graph);
            executable
        };
        let recorded = Graph(executable?);
        // SAFETY: our own handles.
        unsafe { graph::upload(recorded.0, self.stream) }?;
        self.wait()?;
        Ok(Some(recorded))
    }

    /// Enqueues what was recorded.
    pub(crate) fn replay(&self, recorded: &Graph) -> Asked<()> {
        // SAFETY: our own handles.
        Ok(unsafe { graph::launch(recorded.0, self.stream) }?)
    }
}

/// Work of a stream that was recorded, to be enqueued as a whole.
#[derive(Debug)]
pub(crate) struct Graph(sys::CUgraphExec);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by this process and used by nobody else.
        let _ = unsafe { graph::exec_destroy(self.0) };
    }
}

/// Has a profiler that is attached to this process begin to look, or stop.
pub(crate) fn profile(on: bool) {
    // SAFETY: plain calls, which do nothing where no profiler is attached.
    let _ = unsafe { if on { sys::cuProfilerStart() } else { sys::cuProfilerStop() } };
}
