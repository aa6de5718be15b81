//! What does a trace of PyTorch's profiler hold, as far as a survey reads it?
//!
//! The format is Chrome's: a list of events, of which those with `ph` `X` have a begin (`ts`) and a length (`dur`), both in
//! microseconds. `cpu_op` is an operator of torch on the host, `cuda_runtime` and `cuda_driver` are calls that launch
//! something, and `kernel`, `gpu_memcpy` and `gpu_memset` are what ran on the GPU. A launch and what it launched have the
//! same `correlation`.

use serde::Deserialize;
use serde_json::Value;
use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
};

/// A trace, as it was read.
#[derive(Debug, Deserialize)]
pub struct Trace {
    /// The GPUs that it names.
    #[serde(default, rename = "deviceProperties")]
    pub devices: Vec<Device>,
    /// All that happened.
    #[serde(rename = "traceEvents")]
    pub events: Vec<Event>,
}

/// A GPU, as the profiler names it.
#[derive(Debug, Deserialize)]
pub struct Device {
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// One event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Event {
    /// `X` for what has a begin and a length.
    pub ph: String,
    /// Its kind.
    pub cat: String,
    /// What it is called.
    pub name: String,
    /// The process, a number or a word.
    pub pid: Value,
    /// The thread or stream, a number or a word.
    pub tid: Value,
    /// Its begin, in microseconds.
    pub ts: f64,
    /// Its length, in microseconds.
    pub dur: f64,
    /// What else is known.
    pub args: Arguments,
}

/// What else is known of an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Arguments {
    /// What a launch and what it launched have in common.
    pub correlation: Option<u64>,
    /// The shapes of an operator's arguments; what is no tensor has none.
    #[serde(rename = "Input Dims")]
    pub shapes: Option<Value>,
    /// Their types.
    #[serde(rename = "Input type")]
    pub types: Option<Value>,
}

/// No trace of a few steps is larger, unpacked.
const MOST: u64 = 4 << 30;

/// Reads a trace, packed by gzip or not.
///
/// # Errors
/// A sentence that says what was expected there and what to do.
pub fn read(file: &Path) -> Result<Trace, String> {
    let place = file.display();
    let bytes = fs::read(file).map_err(|e| format!("{place}: {e}"))?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) { unpacked(file)? } else { bytes };
    let trace: Trace = serde_json::from_slice(&bytes).map_err(|e| {
        format!("{place}: this is no trace of PyTorch's profiler ({e}): expected the JSON that export_chrome_trace writes, with traceEvents")
    })?;
    if trace.events.iter().any(Event::ran_on_gpu) {
        return Ok(trace);
    }
    Err(format!(
        "{place}: no kernel of a GPU is in it: record it with the activities CPU and GPU, on a machine with a GPU that the profiler may read"
    ))
}

/// By gzip, as a program: nothing else here needs to unpack.
fn unpacked(file: &Path) -> Result<Vec<u8>, String> {
    let place = file.display();
    let wrong = |e| format!("{place}: it is packed by gzip, and gzip cannot be started here ({e}): unpack it first");
    let mut gzip = Command::new("gzip");
    gzip.arg("-dc").arg("--").arg(file).stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut child = gzip.spawn().map_err(wrong)?;
    let mut bytes = vec![];
    if let Some(out) = child.stdout.take() {
        out.take(MOST).read_to_end(&mut bytes).map_err(wrong)?;
    }
    // Where the pipe is closed early, gzip ends by it.
    let ended = child.wait().map_err(wrong)?;
    if ended.success() {
        return Ok(bytes);
    }
    Err(format!(
        "{place}: gzip cannot unpack it: it is damaged, or not whole (a server that was killed while writing leaves such a file), or more than {} GiB",
        MOST >> 30
    ))
}

impl Event {
    /// Whether it is something that the GPU did.
    #[must_use]
    pub fn ran_on_gpu(&self) -> bool {
        self.ph == "X" && matches!(self.cat.as_str(), "kernel" | "gpu_memcpy" | "gpu_memset")
    }

    /// Whether it is a call that starts something on the GPU.
    #[must_use]
    pub fn launches(&self) -> bool {
        self.ph == "X" && matches!(self.cat.as_str(), "cuda_runtime" | "cuda_driver") && self.args.correlation.is_some()
    }

    /// Its end, in microseconds.
    #[must_use]
    pub fn end(&self) -> f64 {
        self.ts + self.dur
    }

    /// The thread on which it was, or the stream.
    #[must_use]
    pub fn thread(&self) -> String {
        format!("{}/{}", self.pid, self.tid)
    }
}
