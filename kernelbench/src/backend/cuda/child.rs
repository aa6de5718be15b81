//! The other side: a process that loads one kernel's launcher and calls it on a GPU as often as it is asked to.
//!
//! It opens the arena that its side computes in, and holds neither the other side's nor what was drawn for it nor the clock
//! that counts. It confines itself before the driver is loaded, and filters its system calls before the kernel is.
#![expect(unsafe_code, reason = "loads and calls foreign code")]

use super::driver::{self, CudaError, Device, Graph, HANDLE, Stopwatch};
use crate::{
    sandbox::{
        driver_filter,
        launch::{self, Launch},
    },
    task::layout::Passed,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    ffi::c_void,
    fs::File,
    io::{Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

/// The argument that leads the hidden sub-command to a child that is asked by its parent.
pub(crate) const SERVE: &str = "cuda-child";
/// The argument that leads it to one call under a profiler.
pub(crate) const ONCE: &str = "cuda-once";
/// The generated function that unpacks its arguments, calls the launcher, and returns the runtime's last error.
type Call = unsafe extern "C" fn(*const *const c_void, *mut c_void) -> i32;
/// Its symbol.
const CALL: &[u8] = b"warpsmith_call\0";
/// The longest message, in bytes.
const LONGEST: usize = 160 << 10;

/// What a child is told first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Which GPU.
    pub(crate) ordinal: u32,
    /// The handle of its arena.
    pub(crate) arena: Vec<u8>,
}

/// The case that is called next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    /// What to pass, argument by argument.
    pub(crate) passed: Vec<Passed>,
    /// Bytes of a slot.
    pub(crate) slot_bytes: usize,
    /// Slots.
    pub(crate) slots: usize,
}

/// What one call under a profiler needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Once {
    /// The case, of one slot.
    pub(crate) case: Case,
    /// The shared object.
    pub(crate) object: std::path::PathBuf,
    /// The file that holds the slot.
    pub(crate) slot: std::path::PathBuf,
    /// Where in it each array lies: from where, and how many bytes.
    pub(crate) arrays: Vec<[usize; 2]>,
    /// Calls before the one that is looked at.
    pub(crate) warm_up: u32,
}

/// Where the arguments of this process ask for a child of this kind, becomes it.
pub(crate) fn run_if_asked() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    if let Some(json) = after(SERVE) {
        end(&serve(json));
    }
    if let Some(folder) = after(ONCE) {
        let ordinal = arguments.last().and_then(|last| last.parse().ok()).unwrap_or(0);
        end(&once(Path::new(folder), ordinal));
    }
}

fn end(ran: &Result<(), String>) -> ! {
    if let Err(why) = ran {
        let _ = writeln!(std::io::stderr(), "{why}");
    }
    std::process::exit(if ran.is_ok() { 0 } else { 3 })
}

fn serve(json: &str) -> Result<(), String> {
    let launch: Launch = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let layers = launch::confine(&launch);
    // SAFETY: the descriptor was left open for this process, and nothing else here owns it.
    let mut line = Line(File::from(unsafe { OwnedFd::from_raw_fd(launch.control) }));
    // SAFETY: concerns this process alone: what it may read of itself follows its new user.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    line.say(&json!(layers))?;
    let setup: Setup = line.hear()?.ok_or("the parent is gone")?;
    let device = Device::open(setup.ordinal)?;
    let handle: [u8; HANDLE] = setup.arena.try_into().map_err(|_| "a memory handle has 64 bytes")?;
    let arena = device.open_handle(handle).map_err(|e| format!("the arena cannot be opened: {e}"))?;
    let watch = device.stopwatch().map_err(|e| e.to_string())?;
    line.say(&json!({"ready": device.name()}))?;
    let mut runner = Runner { device, arena, watch, call: None, slots: Slots::default(), count: 0, graph: None };
    while let Some(packet) = line.packet()? {
        match packet.try_into() {
            Ok(nonce) => line.send(&runner.go(u64::from_le_bytes(nonce)))?,
            Err(words) => {
                let message: Value = serde_json::from_slice(&words).map_err(|e| e.to_string())?;
                let mut answer = runner.answer(&message);
                answer["nonce"] = message["nonce"].clone();
                line.say(&answer)?;
            }
        }
    }
    Ok(())
}

/// The first byte of the answer to a number, which asks for what was prepared; the nonce and the nanoseconds follow.
const WENT: u8 = 0;

/// The line to the parent: a message a packet.
struct Line(File);

impl Line {
    fn say(&mut self, message: &Value) -> Result<(), String> {
        self.send(message.to_string().as_bytes())
    }

    fn send(&mut self, packet: &[u8]) -> Result<(), String> {
        self.0.write_all(packet).map_err(|e| e.to_string())
    }

    fn hear<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let packet = self.packet()?;
        packet.map(|packet| serde_json::from_slice(&packet).map_err(|e| e.to_string())).transpose()
    }

    fn packet(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut packet = vec![0; LONGEST];
        let length = self.0.read(&mut packet).map_err(|e| e.to_string())?;
        packet.truncate(length);
        Ok((length > 0).then_some(packet))
    }
}

struct Runner {
    device: Device,
    arena: u64,
    watch: Stopwatch,
    call: Option<(libloading::Library, Call)>,
    slots: Slots,
    /// Calls of a request.
    count: usize,
    /// These calls, recorded.
    graph: Option<Graph>,
}

impl Runner {
    fn answer(&mut self, message: &Value) -> Value {
        match message["do"].as_str() {
            Some("load") => self.load(message["object"].as_str().unwrap_or_default()),
            Some("count") => self.prepare(message["count"].as_u64().unwrap_or(0) as usize, message["record"] == true),
            Some("case") => match serde_json::from_value::<Case>(message["case"].clone()) {
                Ok(case) => {
                    let arena = self.arena;
                    self.graph = None;
                    self.slots = Slots::of(&case, |offset| arena + offset as u64);
                    json!({})
                }
                Err(e) => json!({"broken": e.to_string()}),
            },
            _ => json!({"broken": "expected load, case or count"}),
        }
    }

    /// Takes note of how many calls a request makes, and records them if asked to.
    fn prepare(&mut self, count: usize, record: bool) -> Value {
        (self.count, self.graph) = (count, None);
        if record {
            let recorded = self.device.record(|| self.calls(count));
            match recorded {
                Ok(graph) => self.graph = graph,
                Err(error) => return json!({"cuda": told(error)}),
            }
        }
        json!({"recorded": self.graph.is_some()})
    }

    /// Makes the calls of a request; the answer, a few bytes long where nothing went wrong.
    fn go(&self, nonce: u64) -> Vec<u8> {
        match self.run(self.count) {
            Ok(inside_ns) => [&[WENT][..], &nonce.to_le_bytes(), &inside_ns.to_le_bytes()].concat(),
            Err(error) => json!({"nonce": nonce, "cuda": told(error)}).to_string().into_bytes(),
        }
    }

    fn load(&mut self, object: &str) -> Value {
        let filtered = driver_filter::filter();
        match load(Path::new(object)) {
            Ok(call) => {
                self.call = Some(call);
                json!({"filter": filtered.err()})
            }
            Err(why) => json!({"missing": why}),
        }
    }

    /// Calls the launcher once on each of the first slots.
    fn calls(&self, count: usize) -> Result<(), CudaError> {
        let Some((_, call)) = &self.call else { return Ok(()) };
        for slot in self.slots.each().take(count) {
            // SAFETY: the candidate's own code, in a process that is there for nothing else.
            let error = unsafe { call(slot.as_ptr(), self.device.stream()) };
            if error != 0 {
                return Err(of_runtime(error));
            }
        }
        Ok(())
    }

    /// Makes the calls of a request, anew or as recorded, and waits; the nanoseconds between two events around them.
    fn run(&self, count: usize) -> Result<u64, CudaError> {
        self.device.start(&self.watch)?;
        match &self.graph {
            Some(graph) => self.device.replay(graph)?,
            None => self.calls(count)?,
        }
        self.device.stop(&self.watch)?;
        self.device.wait()?;
        self.device.elapsed_ns(&self.watch)
    }
}

fn told(CudaError { code, name, text }: CudaError) -> Value {
    json!({"code": code, "name": name, "text": text})
}

/// An error of the runtime's; those that matter most have the driver's numbers, and the rest is told by its number.
fn of_runtime(code: i32) -> CudaError {
    let (name, text) = match code {
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
    let name = if name.is_empty() { format!("cudaError {code}") } else { name.to_owned() };
    CudaError { code: code.unsigned_abs(), name, text: text.to_owned() }
}

/// What to pass for each slot.
#[derive(Default)]
struct Slots {
    /// The arguments' values: addresses on the GPU, and bits of scalars.
    values: Vec<u64>,
    pointers: Vec<*const c_void>,
    arguments: usize,
}

impl Slots {
    /// Those of a case whose arrays lie where `address` says, by what they are from the start of all slots.
    fn of(case: &Case, address: impl Fn(usize) -> u64) -> Self {
        let arguments = case.passed.len().max(1);
        let mut values = vec![];
        for slot in 0..case.slots {
            values.extend(case.passed.iter().map(|passed| match passed {
                Passed::Array(offset) => address(slot * case.slot_bytes + offset),
                Passed::Scalar(bits) => *bits,
            }));
        }
        let mut slots = Self { pointers: vec![], values, arguments };
        let is_array = |at: usize| matches!(case.passed[at % arguments], Passed::Array(_));
        for (at, value) in slots.values.iter().enumerate() {
            let pointer = if is_array(at) { *value as *const c_void } else { std::ptr::from_ref(value).cast() };
            slots.pointers.push(pointer);
        }
        slots
    }

    fn each(&self) -> impl Iterator<Item = &[*const c_void]> {
        self.pointers.chunks(self.arguments.max(1))
    }
}

fn load(object: &Path) -> Result<(libloading::Library, Call), String> {
    // SAFETY: its constructors are the candidate's code, confined like the rest of it.
    unsafe {
        let library = libloading::Library::new(object).map_err(|e| e.to_string())?;
        let call = *library.get::<Call>(CALL).map_err(|e| e.to_string())?;
        Ok((library, call))
    }
}

/// How long a process under a profiler waits to be told what to call.
const PATIENCE: Duration = Duration::from_mins(10);

/// Makes a context, waits until the folder says what to call, and calls it with a profiler looking at the last call. Each
/// array has an allocation of its own, so that a sanitizer knows where it ends.
fn once(folder: &Path, ordinal: u32) -> Result<(), String> {
    let device = Device::open(ordinal)?;
    // Without it the profile comes a second later and is the same.
    let _ = look_at_nothing(&device);
    let _ = std::fs::write(folder.join(READY), "");
    let job = wait_for(&folder.join("job.json"))?;
    let job: Once = serde_json::from_slice(&job).map_err(|e| e.to_string())?;
    let slot = std::fs::read(&job.slot).map_err(|e| e.to_string())?;
    let said = |e: CudaError| e.to_string();
    let mut arrays = vec![];
    for [offset, bytes] in &job.arrays {
        let content = slot.get(*offset..offset + bytes).ok_or("the slot is shorter than its arrays")?;
        let memory = device.allocate(*bytes).map_err(said)?;
        device.write(memory.address, content).map_err(said)?;
        arrays.push((*offset, memory));
    }
    let watch = device.stopwatch().map_err(said)?;
    let place = |offset: usize| arrays.iter().find(|(at, _)| *at == offset).map_or(0, |(_, memory)| memory.address);
    let slots = Slots::of(&job.case, place);
    let runner = Runner { device, arena: 0, watch, call: Some(load(&job.object)?), slots, count: 1, graph: None };
    for _ in 0..job.warm_up {
        runner.run(1).map_err(said)?;
    }
    driver::profile(true);
    let ran = runner.run(1).map_err(said);
    driver::profile(false);
    drop(arrays);
    ran.map(|_| ())
}

/// The file that says that a process under a profiler waits.
pub(crate) const READY: &str = "ready";
/// What the kernel is called that does nothing.
pub(crate) const NOTHING: &str = "warpsmith_nothing";
/// Its text in PTX, which the driver compiles for any GPU of compute capability 7.5 or higher.
const NOTHING_PTX: &str =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry warpsmith_nothing() { ret; }\n\0";

/// Launches a kernel that does nothing with the profiler looking: the first look of a process takes a second longer than
/// those after it (Nsight Compute 2025.3 on an H200).
fn look_at_nothing(device: &Device) -> Result<(), CudaError> {
    let [nothing] = device.kernels(NOTHING_PTX.as_bytes(), [NOTHING])?;
    driver::profile(true);
    let launched = device.launch(nothing, 1, 1, &mut []).and_then(|()| device.wait());
    driver::profile(false);
    launched
}

/// The content of a file, once it is there.
fn wait_for(path: &Path) -> Result<Vec<u8>, String> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Ok(content) = std::fs::read(path) {
            return Ok(content);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err("nothing was to be called".to_owned())
}
