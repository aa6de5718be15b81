//! The child's side of a kernel process: loads one kernel and calls it as often as it is asked to.
//!
//! It holds the kernel and its arguments, and neither the reference nor the comparison nor the clock that counts. What
//! differs between a CPU and a GPU is a [`Device`].
#![expect(unsafe_code, reason = "loads and calls foreign code")]

use super::layer::Layer;
use crate::{build::unit::INVALID, task::layout::KernelArg};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    ffi::c_void,
    fs::File,
    io::{Read, Write},
    os::fd::{FromRawFd, OwnedFd, RawFd},
    path::{Path, PathBuf},
};

/// The generated function that unpacks its arguments, calls the entry on a stream, and returns a status: 0 for success, a
/// positive number for an error of the device's runtime, and less than 0 for what the entry itself returned.
pub(crate) type Call = unsafe extern "C" fn(*const *const c_void, *mut c_void) -> i32;
/// Its symbol.
const CALL: &[u8] = b"warpsmith_call\0";
/// The longest message, in bytes.
pub(crate) const LONGEST: usize = 160 << 10;
/// The first byte of the answer to a number, which asks for the calls that were prepared; the nonce and the nanoseconds
/// follow.
pub(crate) const DONE: u8 = 0;
/// All of a message that is no answer: a process compiles from now on and needs no device.
pub(crate) const ASIDE: u8 = 2;
/// The same: it needs the device again.
pub(crate) const BACK: u8 = 3;

/// What a kernel process is asked, beside the number that stands for a `go`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// Load this shared object; without one, only lock itself in.
    Load {
        /// Where it is.
        object: Option<PathBuf>,
    },
    /// Call this case from now on.
    Case {
        /// The arguments of all its slots.
        layout: CallLayout,
    },
    /// Make so many calls at each `go`.
    Count {
        /// Calls, one a slot, from the first slot on.
        count: usize,
        /// Whether to record them, to be replayed as a whole.
        record: bool,
    },
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// Its kernel is loaded, and it is locked in.
    Loaded(Vec<Layer>),
    /// Its kernel cannot be loaded, and why.
    NotLoaded(String),
    /// Done.
    Ready {
        /// Whether the calls are recorded.
        recorded: bool,
    },
    /// The device refused.
    DeviceError(DeviceError),
}

/// The first word of a process: nobody's code is in it yet.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the word by which every child of ours says that it is ready")]
pub(crate) struct Ready {
    /// What it is.
    pub(crate) ready: String,
    /// Its address space then, in bytes, where it is limited.
    #[serde(default)]
    pub(crate) address_space: Option<u64>,
    /// Where its arguments begin, where it shares their memory with us.
    #[serde(default)]
    pub(crate) arguments: Option<u64>,
}

/// A message with the number that its answer repeats.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<T> {
    /// The number.
    pub(crate) nonce: u64,
    /// What is said.
    #[serde(flatten)]
    pub(crate) body: T,
}

/// The arguments of one case, in every slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallLayout {
    /// What to pass, argument by argument.
    pub(crate) arguments: Vec<KernelArg>,
    /// Bytes of a slot.
    pub(crate) slot_bytes: usize,
    /// Slots.
    pub(crate) slots: usize,
}

/// What a device or its runtime said when something did not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub(crate) struct DeviceError {
    /// Its number.
    pub(crate) code: u32,
    /// Its meaning, with its name.
    pub(crate) text: String,
}

impl DeviceError {
    /// What an entry says that returns a status: `WS_INVALID`, or something that has no meaning here.
    fn returned(status: u32) -> Self {
        let code = if status == INVALID { INVALID } else { 0 };
        Self { code, text: format!("the entry returned {status}") }
    }
}

/// The calls of a request.
pub(crate) type Calls<'a> = dyn Fn() -> Result<(), DeviceError> + 'a;

/// What a kernel is called on.
pub(crate) trait Device {
    /// Filters system calls before a kernel is loaded.
    fn filter(&mut self) -> Layer;

    /// The last filter, once it is loaded; none where the first does for good.
    fn lock(&mut self) -> Option<Layer>;

    /// The address of this byte of the memory that the slots lie in.
    fn address(&self, offset: usize) -> u64;

    /// The stream that kernels are launched on, or what shaders are dispatched by; null on a CPU.
    fn stream(&self) -> *mut c_void;

    /// What a status other than 0 means.
    fn error(status: i32) -> DeviceError;

    /// Records these calls, or forgets what was recorded; whether they are recorded.
    fn record(&mut self, calls: Option<&Calls<'_>>) -> Result<bool, DeviceError>;

    /// Makes these calls, or replays what was recorded, and waits; how long that took by the clock in here, in nanoseconds.
    fn run(&mut self, calls: &Calls<'_>) -> Result<u64, DeviceError>;
}

/// The line to the parent: a message a packet.
pub(crate) struct Line(File);

impl Line {
    /// The line on a descriptor that was left open for this process.
    pub(crate) fn on(control: RawFd) -> Self {
        // SAFETY: the parent left it open for us, and nothing else in this process owns it.
        Self(File::from(unsafe { OwnedFd::from_raw_fd(control) }))
    }

    /// Sends a message as JSON.
    pub(crate) fn say(&mut self, message: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_vec(message).map_err(|e| e.to_string())?;
        self.0.write_all(&text).map_err(|e| e.to_string())
    }

    /// The next message; `None` once the parent is gone.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let mut packet = vec![0; LONGEST];
        let length = self.0.read(&mut packet).map_err(|e| e.to_string())?;
        if length == 0 {
            return Ok(None);
        }
        serde_json::from_slice(&packet[..length]).map(Some).map_err(|e| e.to_string())
    }
}

/// A kernel, and what it is called with.
pub(crate) struct KernelChild<D> {
    device: D,
    /// What was loaded, the last of which is called. None is unloaded: a runtime in it may end what the others use.
    loaded: Vec<libloading::Library>,
    call: Option<Call>,
    slots: Slots,
    /// Calls of a request.
    count: usize,
}

impl<D: Device> KernelChild<D> {
    /// One that has loaded nothing yet.
    pub(crate) fn new(device: D) -> Self {
        Self { device, loaded: vec![], call: None, slots: Slots::default(), count: 0 }
    }

    /// Does what it is asked until the parent is gone. A `go` is answered without taking memory: there may be none left.
    pub(crate) fn serve(&mut self, mut line: Line) -> Result<(), String> {
        let mut packet = vec![0; LONGEST];
        loop {
            let length = line.0.read(&mut packet).map_err(|e| e.to_string())?;
            match (<[u8; 8]>::try_from(&packet[..length]), length) {
                (_, 0) => return Ok(()),
                (Ok(nonce), _) => self.go(&mut line, u64::from_le_bytes(nonce))?,
                _ => {
                    let asked: Numbered<Ask> = serde_json::from_slice(&packet[..length]).map_err(|e| e.to_string())?;
                    let body = self.answer(asked.body);
                    line.say(&Numbered { nonce: asked.nonce, body })?;
                }
            }
        }
    }

    fn go(&mut self, line: &mut Line, nonce: u64) -> Result<(), String> {
        let mut done = [DONE; 17];
        match self.run() {
            Ok(inside_ns) => {
                done[1..9].copy_from_slice(&nonce.to_le_bytes());
                done[9..].copy_from_slice(&inside_ns.to_le_bytes());
                line.0.write_all(&done).map_err(|e| e.to_string())
            }
            Err(error) => line.say(&Numbered { nonce, body: Answer::DeviceError(error) }),
        }
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Load { object } => self.load(object.as_deref()).map_or_else(Answer::NotLoaded, Answer::Loaded),
            Ask::Case { layout } => {
                let _ = self.device.record(None);
                self.slots = Slots::of(&layout, |offset| self.device.address(offset));
                Answer::Ready { recorded: false }
            }
            Ask::Count { count, record } => {
                self.count = count;
                let recorded = self.with_calls(|device, calls| device.record(record.then_some(calls)));
                recorded.map_or_else(Answer::DeviceError, |recorded| Answer::Ready { recorded })
            }
        }
    }

    /// Loads a shared object between two filters, where there are none yet.
    pub(crate) fn load(&mut self, object: Option<&Path>) -> Result<Vec<Layer>, String> {
        let is_first = self.loaded.is_empty();
        let mut layers = if is_first { vec![self.device.filter()] } else { vec![] };
        // The second filter comes even where loading failed: constructors have run.
        let loaded = object.map(load).transpose();
        layers.extend(is_first.then(|| self.device.lock()).flatten());
        self.take(loaded?);
        Ok(layers)
    }

    fn take(&mut self, loaded: Option<(libloading::Library, Call)>) {
        if let Some((library, call)) = loaded {
            self.loaded.push(library);
            self.call = Some(call);
        }
    }

    /// The same without filters, where a tool around it needs system calls.
    pub(crate) fn load_unfiltered(&mut self, object: &Path) -> Result<(), String> {
        self.take(Some(load(object)?));
        Ok(())
    }

    /// Makes the calls of a request.
    fn run(&mut self) -> Result<u64, DeviceError> {
        self.with_calls(|device, calls| device.run(calls))
    }

    fn with_calls<T>(&mut self, work: impl FnOnce(&mut D, &Calls<'_>) -> T) -> T {
        let Self { device, call, slots, count, .. } = self;
        let (call, slots, count) = (*call, &*slots, *count);
        let stream = device.stream();
        let calls = || {
            let Some(call) = call else { return Ok(()) };
            for slot in slots.each().take(count) {
                // SAFETY: the candidate's own code, in a process that is there for nothing else.
                match unsafe { call(slot.as_ptr(), stream) } {
                    0 => {}
                    returned if returned < 0 => return Err(DeviceError::returned(returned.unsigned_abs())),
                    status => return Err(D::error(status)),
                }
            }
            Ok(())
        };
        work(device, &calls)
    }

    /// Calls it so many times on the first slot, without a parent that asks.
    pub(crate) fn run_alone(&mut self, layout: &CallLayout, times: u32) -> Result<(), DeviceError> {
        self.slots = Slots::of(layout, |offset| self.device.address(offset));
        self.count = 1;
        for _ in 0..times {
            self.run()?;
        }
        Ok(())
    }
}

/// What to pass for each slot.
#[derive(Default)]
struct Slots {
    /// The arguments' values: addresses, and bits of scalars. Pointers to scalars point in here.
    _values: Vec<u64>,
    pointers: Vec<*const c_void>,
    arguments: usize,
}

impl Slots {
    /// Those of a case whose arrays lie where `address` says, by what they are from the start of all slots.
    fn of(layout: &CallLayout, address: impl Fn(usize) -> u64) -> Self {
        let arguments = layout.arguments.len().max(1);
        let mut values = vec![];
        for slot in 0..layout.slots {
            values.extend(layout.arguments.iter().map(|argument| match argument {
                KernelArg::Array(offset) => address(slot * layout.slot_bytes + offset),
                KernelArg::Scalar(bits) => *bits,
            }));
        }
        let is_array = |at: usize| matches!(layout.arguments[at % arguments], KernelArg::Array(_));
        let pointer = |(at, value): (usize, &u64)| {
            if is_array(at) { *value as *const c_void } else { std::ptr::from_ref(value).cast() }
        };
        Self { pointers: values.iter().enumerate().map(pointer).collect(), _values: values, arguments }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Counts how often it is confined, and calls as it is told.
    struct Counting(usize);

    impl Device for Counting {
        fn filter(&mut self) -> Layer {
            self.0 += 1;
            Layer::of("a filter", "it is counted", Ok(()))
        }
        fn lock(&mut self) -> Option<Layer> {
            None
        }
        fn address(&self, offset: usize) -> u64 {
            offset as u64
        }
        fn stream(&self) -> *mut c_void {
            std::ptr::null_mut()
        }
        fn error(status: i32) -> DeviceError {
            DeviceError { code: status.unsigned_abs(), text: String::new() }
        }
        fn record(&mut self, _: Option<&Calls<'_>>) -> Result<bool, DeviceError> {
            Ok(false)
        }
        fn run(&mut self, calls: &Calls<'_>) -> Result<u64, DeviceError> {
            calls().map(|()| 0)
        }
    }

    #[test]
    fn what_was_loaded_last_is_called_and_filters_are_set_once() {
        let folder = tempfile::tempdir().unwrap();
        let returning = |status: u32| {
            let [text, object] = ["c", "so"].map(|ending| folder.path().join(format!("{status}.{ending}")));
            let source = format!("int warpsmith_call(void **arguments, void *stream) {{ return {status}; }}");
            std::fs::write(&text, source).unwrap();
            assert!(Command::new("cc").arg("-shared").arg("-o").arg(&object).arg(&text).status().unwrap().success());
            object
        };
        let mut child = KernelChild::new(Counting(0));
        let layout = CallLayout { arguments: vec![KernelArg::Scalar(0)], slot_bytes: 0, slots: 1 };
        assert_eq!(child.answer(Ask::Case { layout }), Answer::Ready { recorded: false });
        assert_eq!(child.answer(Ask::Count { count: 1, record: false }), Answer::Ready { recorded: false });
        for (status, layers) in [(7, 1), (9, 0)] {
            let loaded = child.answer(Ask::Load { object: Some(returning(status)) });
            assert!(matches!(&loaded, Answer::Loaded(new) if new.len() == layers), "{loaded:?}");
            assert_eq!(child.run().map_err(|error| error.code), Err(status));
        }
        assert_eq!(child.device.0, 1);
    }
}
