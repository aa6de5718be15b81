//! What can be asked of CUDA's driver, in Rust's terms?
//!
//! The driver's library is loaded when it is first needed, so the program starts on machines without one. Both sides use
//! this: the trusted one, which fills and compares, and the child that runs a kernel.
#![expect(unsafe_code, reason = "calls the driver")]

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use std::{
    ffi::{CStr, CString, c_void},
    mem::MaybeUninit,
    ptr::null_mut,
};

/// Bytes of a handle by which another process opens memory.
pub(crate) const HANDLE: usize = 64;
/// Threads of a block of the trusted side's kernels.
const THREADS: u32 = 256;

/// What the driver said when something did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CUDA error: {text} ({name})")]
pub(crate) struct CudaError {
    /// Its number.
    pub(crate) code: u32,
    /// Its name.
    pub(crate) name: String,
    /// Its meaning.
    pub(crate) text: String,
}

type Asked<T> = Result<T, CudaError>;

fn done(result: CUresult) -> Asked<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let word = |ask: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: a place of ours for a pointer to the driver's own constant text, which may be null.
        unsafe {
            ask(result, &raw mut text);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    Err(CudaError { code: result as u32, name: word(sys::cuGetErrorName), text: word(sys::cuGetErrorString) })
}

/// Fills a place that the driver writes a value to.
fn ask<T>(call: impl FnOnce(*mut T) -> CUresult) -> Asked<T> {
    let mut place = MaybeUninit::<T>::zeroed();
    done(call(place.as_mut_ptr()))?;
    // SAFETY: zeroed before and filled by the driver, which said so; all types asked for are numbers or pointers.
    Ok(unsafe { place.assume_init() })
}

/// Whether the driver's library is there at all.
pub(crate) fn is_there() -> bool {
    // SAFETY: loads a library of the system's; its constructors are the driver's own.
    unsafe { sys::is_culib_present() }
}

/// A GPU with this process's context on it, and one stream.
#[derive(Debug)]
pub(crate) struct Device {
    number: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
}

// SAFETY: the driver's handles may be used from any thread; each use makes the context current on its thread first.
unsafe impl Send for Device {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Device {}

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
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
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
        match unsafe { sys::cuEventQuery(self.0) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => done(result).map(|()| true),
        }
    }
}

/// A pair of events that measure the work enqueued between them.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    start: Event,
    end: Event,
}

impl Device {
    /// The GPU of this number, with its primary context made current.
    pub(crate) fn open(ordinal: u32) -> Result<Self, String> {
        if !is_there() {
            return Err("the CUDA driver's library (libcuda.so.1) cannot be loaded".to_owned());
        }
        Self::opened(ordinal).map_err(|e| e.to_string())
    }

    fn opened(ordinal: u32) -> Asked<Self> {
        // SAFETY: plain calls of the driver, with places of ours to fill.
        unsafe {
            done(sys::cuInit(0))?;
            let device = ask(|place| sys::cuDeviceGet(place, ordinal.cast_signed()))?;
            // Waiting without sleeping: the clock outside sees the end at once. Refused where a context is there already.
            let _ = sys::cuDevicePrimaryCtxSetFlags_v2(device, sys::CUctx_flags_enum::CU_CTX_SCHED_SPIN as u32);
            let context = ask(|place| sys::cuDevicePrimaryCtxRetain(place, device))?;
            done(sys::cuCtxSetCurrent(context))?;
            let stream = ask(|place| sys::cuStreamCreate(place, sys::CUstream_flags::CU_STREAM_DEFAULT as u32))?;
            Ok(Self { number: device, context, stream })
        }
    }

    /// Makes this thread one that may use it.
    pub(crate) fn enter(&self) -> Asked<()> {
        // SAFETY: our own context, which lives as long as the process.
        done(unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// What it calls itself.
    pub(crate) fn name(&self) -> String {
        let mut text = [0; 256];
        // SAFETY: the length is that of the array, and the driver ends the text with a zero.
        unsafe {
            let _ = sys::cuDeviceGetName(text.as_mut_ptr(), 256, self.number);
            CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
        }
    }

    fn attribute(&self, which: Attribute) -> Asked<u64> {
        // SAFETY: a place of ours.
        ask(|place| unsafe { sys::cuDeviceGetAttribute(place, which, self.number) }).map(|value: i32| value as u64)
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
        let (mut free, mut all) = (0, 0);
        // SAFETY: two places of ours.
        done(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut all) })?;
        Ok([free as u64, all as u64])
    }

    /// Allocates.
    pub(crate) fn allocate(&self, bytes: usize) -> Asked<Memory> {
        self.enter()?;
        // SAFETY: a place of ours.
        let address = ask(|place| unsafe { sys::cuMemAlloc_v2(place, bytes) })?;
        Ok(Memory { address, bytes })
    }

    /// The handle by which another process opens an allocation.
    pub(crate) fn handle(&self, memory: &Memory) -> Asked<[u8; HANDLE]> {
        self.enter()?;
        // SAFETY: a place of ours, and an address that was allocated as a whole.
        let handle = ask(|place| unsafe { sys::cuIpcGetMemHandle(place, memory.address) })?;
        Ok(handle.reserved.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes())))
    }

    /// The address here of another process's allocation, for the life of this process.
    pub(crate) fn open_handle(&self, handle: [u8; HANDLE]) -> Asked<u64> {
        self.enter()?;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| std::ffi::c_char::from_ne_bytes([byte])) };
        let flags = sys::CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        // SAFETY: a place of ours, and plain bytes.
        ask(|place| unsafe { sys::cuIpcOpenMemHandle_v2(place, handle, flags) })
    }

    /// Copies from the GPU, and waits for it.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Asked<()> {
        self.wait()?;
        // SAFETY: writes into a slice; the driver refuses addresses that are not the context's.
        done(unsafe { sys::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), address, to.len()) })
    }

    /// Copies to the GPU, and waits for it.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Asked<()> {
        self.enter()?;
        // SAFETY: reads a slice.
        done(unsafe { sys::cuMemcpyHtoD_v2(address, from.as_ptr().cast(), from.len()) })?;
        self.wait()
    }

    /// Sets every byte, in the stream's order.
    pub(crate) fn set(&self, address: u64, value: u8, bytes: usize) -> Asked<()> {
        // SAFETY: enqueues work on memory of the context's.
        done(unsafe { sys::cuMemsetD8Async(address, value, bytes, self.stream) })
    }

    /// Copies on the GPU, in the stream's order.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> Asked<()> {
        // SAFETY: enqueues work on memory of the context's.
        done(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) })
    }

    /// The kernels of these names in a compiled image, which stays loaded.
    pub(crate) fn kernels<const N: usize>(&self, image: &[u8], names: [&str; N]) -> Asked<[Kernel; N]> {
        self.enter()?;
        // SAFETY: an image that our own compiler made of our own source, and places of ours.
        let module = ask(|place| unsafe { sys::cuModuleLoadData(place, image.as_ptr().cast()) })?;
        let mut kernels = [Kernel(null_mut()); N];
        for (kernel, name) in kernels.iter_mut().zip(names) {
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: a text that ends with a zero, and a place of ours.
            kernel.0 = ask(|place| unsafe { sys::cuModuleGetFunction(place, module, name.as_ptr()) })?;
        }
        Ok(kernels)
    }

    /// Enqueues a kernel of ours with so many threads for each of so many slots. `arguments` hold each argument's bits, in
    /// the width that the kernel takes: 8 bytes.
    pub(crate) fn launch(&self, kernel: Kernel, threads: u64, slots: usize, arguments: &mut [u64]) -> Asked<()> {
        let blocks = threads.div_ceil(u64::from(THREADS)).clamp(1, 4096) as u32;
        let mut places: Vec<*mut c_void> = arguments.iter_mut().map(|bits| std::ptr::from_mut(bits).cast()).collect();
        let (slots, stream) = (slots.max(1) as u32, self.stream);
        // SAFETY: our own kernels, whose arguments are all 8 bytes wide; each place is read before the call returns.
        let launched = unsafe {
            sys::cuLaunchKernel(kernel.0, blocks, slots, 1, THREADS, 1, 1, 0, stream, places.as_mut_ptr(), null_mut())
        };
        done(launched)
    }

    /// Waits for all work of this process on the GPU.
    pub(crate) fn wait(&self) -> Asked<()> {
        self.enter()?;
        // SAFETY: waits alone.
        done(unsafe { sys::cuCtxSynchronize() })
    }

    /// The stream, as kernels' launchers take it.
    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream.cast()
    }

    /// A new event.
    pub(crate) fn event(&self) -> Asked<Event> {
        self.enter()?;
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: a place of ours.
        ask(|place| unsafe { sys::cuEventCreate(place, flags) }).map(Event)
    }

    /// Puts it after all work that was enqueued.
    pub(crate) fn mark(&self, event: &Event) -> Asked<()> {
        // SAFETY: our own event and stream.
        done(unsafe { sys::cuEventRecord(event.0, self.stream) })
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
        // SAFETY: our own events and a place of ours.
        let milliseconds: f32 = ask(|place| unsafe { sys::cuEventElapsedTime_v2(place, watch.start.0, watch.end.0) })?;
        Ok((f64::from(milliseconds) * 1e6) as u64)
    }
}

/// Work of a stream that was recorded, to be enqueued as a whole.
#[derive(Debug)]
pub(crate) struct Graph(sys::CUgraphExec);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by this process and used by nobody else.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

impl Device {
    /// Records what `work` enqueues on the stream instead of doing it. `None` where it cannot be recorded, or nothing is.
    pub(crate) fn record(&self, work: impl FnOnce() -> Asked<()>) -> Asked<Option<Graph>> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: our own stream.
        if done(unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) }).is_err() {
            return Ok(None);
        }
        let worked = work();
        // SAFETY: our own stream, and a place of ours.
        let graph = ask(|place| unsafe { sys::cuStreamEndCapture(self.stream, place) });
        let (Ok(()), Ok(graph)) = (worked, graph) else { return Ok(None) };
        let mut nodes = 0;
        // SAFETY: a graph that was just made; only the number is asked for.
        done(unsafe { sys::cuGraphGetNodes(graph, null_mut(), &raw mut nodes) })?;
        if nodes == 0 {
            return Ok(None);
        }
        // SAFETY: a graph that was just made, and a place of ours.
        let recorded = ask(|place| unsafe { sys::cuGraphInstantiateWithFlags(place, graph, 0) }).map(Graph);
        // SAFETY: what is executed is a copy.
        let _ = unsafe { sys::cuGraphDestroy(graph) };
        let recorded = recorded?;
        // SAFETY: our own handles.
        done(unsafe { sys::cuGraphUpload(recorded.0, self.stream) })?;
        self.wait()?;
        Ok(Some(recorded))
    }

    /// Enqueues what was recorded.
    pub(crate) fn replay(&self, graph: &Graph) -> Asked<()> {
        // SAFETY: our own handles.
        done(unsafe { sys::cuGraphLaunch(graph.0, self.stream) })
    }
}

/// Has a profiler that is attached to this process begin to look, or stop.
pub(crate) fn profile(on: bool) {
    // SAFETY: plain calls, which do nothing where no profiler is attached.
    let _ = unsafe { if on { sys::cuProfilerStart() } else { sys::cuProfilerStop() } };
}
