//! Profiles of kernels in CUDA, and what a sanitizer says of them.
//!
//! A tool over one call in a process that does nothing else, started before it is needed: it waits, with a context, for its
//! job. Where ncu is out of reach, only the timing is left, with the reason.

use super::child::{Job, NOTHING, Once};
use crate::{
    build::compiler,
    engine::sessions::lock,
    profile::{
        compute_sanitizer::{self, Tool},
        ncu::{self, Capture, Permit},
        tool::Tools,
        waiting::{Plan, Waiting},
    },
    result::{
        error::{Attempt, fault},
        failure::{Failure, Fault},
        survey::Survey,
    },
    sandbox::{entry::Child, kernel_child::CallLayout, start::give},
    task::layout::Layout,
};
use metrics::{MetricSet, Profile, Rung};
use std::{
    fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

/// What a profile may take.
const DEADLINE: Duration = Duration::from_mins(1);
/// What a survey may take: each launch is run dozens of times, for other counters each time.
const SURVEYING: Duration = Duration::from_mins(3);
/// How long it is waited for a profiler to be ready, before something is timed.
const SETTLE: Duration = Duration::from_secs(8);
/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(20);
/// How long it is waited until nobody else reads counters.
const PATIENCE: Duration = Duration::from_secs(10);
/// Launches that are looked at, at most.
const LAUNCHES: usize = 64;
/// Launches that a survey looks at, at most: one of them is the process's own.
const SURVEYED: usize = 9;
/// Calls before the one whose counters are read.
const WARM_UP: u32 = 3;

/// How tools are put around kernels on one GPU.
pub(super) struct Profiler {
    tools: Tools,
    ordinal: u32,
    /// What Nsight Compute is asked for; nothing where it is `None`.
    set: Option<MetricSet>,
    /// The process that waits under Nsight Compute.
    ahead: Arc<Mutex<Option<Waiting>>>,
}

/// One call of a kernel under a tool.
struct Called<'a> {
    layout: &'a Layout,
    object: &'a Path,
    /// The content of one slot.
    slot: &'a [u8],
    /// Calls before it.
    warm_up: u32,
    /// What it may take.
    deadline: Duration,
    /// What it says once its call has come to its end; nothing where this is empty.
    done: &'a str,
}

impl Profiler {
    pub(super) fn new(tools: Tools, ordinal: u32, set: Option<MetricSet>) -> Self {
        Self { tools, ordinal, set, ahead: Arc::default() }
    }

    /// Starts the process that waits, where none does and nobody else reads this GPU's counters. A tool that does not start
    /// says so in what it prints.
    pub(super) fn get_ready(&self) {
        let Some(set) = &self.set else { return };
        let mut ahead = lock(&self.ahead);
        if ahead.is_none()
            && let Ok(permit) = Permit::for_gpu(self.ordinal, Duration::ZERO)
        {
            *ahead = self.start(&ncu::command(set, LAUNCHES, &[]), true, Some(permit)).ok();
            let place = Arc::clone(&self.ahead);
            std::thread::spawn(move || let_others_read(&place));
        }
    }

    /// Waits until the process that waits does, or has ended.
    pub(super) fn settle(&self) {
        if let Some(waiting) = lock(&self.ahead).as_mut() {
            // Where it is not ready by then, it goes on starting beside what is timed.
            let _ = waiting.settle(SETTLE);
        }
    }

    fn start(&self, tool: &[String], landlock: bool, permit: Option<Permit>) -> Result<Waiting, Fault> {
        let sandbox = &self.tools.sandbox;
        // The process runs as a user who may not reach where this program lies: it gets a copy.
        let process = |folder: &Path| {
            let program = folder.join("warpsmith");
            fs::copy(&sandbox.program, &program).map_err(fault("cannot copy this program"))?;
            let once = Child::CudaOnce(Once { folder: folder.to_owned() });
            let line = sandbox.line(&once)?;
            let rest = line.iter().skip(1).map(|part| part.to_string_lossy().into_owned());
            Ok([program.display().to_string()].into_iter().chain(rest).collect())
        };
        let landlock = landlock && sandbox.has_landlock();
        let (wrapper, process) = (tool.to_vec(), &process);
        let plan = Plan { wrapper, process, primed: true, beside: None, landlock, permit };
        Waiting::start(&self.tools, plan)
    }

    /// What a tool prints of one call; in words why not.
    fn call(waiting: Waiting, called: &Called<'_>) -> Result<Result<String, String>, Fault> {
        let Called { layout, object, slot, warm_up, deadline, done } = *called;
        let place = |name: &str| waiting.folder().join(name);
        let (copy, content) = (place("kernel.so"), place("slot"));
        let write = || {
            fs::copy(object, &copy)?;
            fs::write(&content, slot)?;
            waiting.user().map_or(Ok(()), |user| give(waiting.folder(), None, user))
        };
        write().map_err(fault("cannot write what is to be profiled"))?;
        let job = Job {
            layout: CallLayout { arguments: layout.passed.clone(), slot_bytes: layout.slot_bytes, slots: 1 },
            object: copy,
            slot: content,
            arrays: layout.arrays.iter().map(|array| [array.offset, array.bytes]).collect(),
            warm_up,
            done: done.to_owned(),
        };
        Ok(waiting.work(&job, deadline))
    }

    /// What is read of a tool's words, and where it had to do without Landlock, what it said behind it. A second try is made
    /// without Landlock where the first reads nothing.
    fn under<T>(
        &self,
        ahead: Option<Waiting>,
        tool: &[String],
        called: &Called<'_>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Result<(T, Option<String>), String>, Fault> {
        let look = |ahead: Option<Waiting>, landlock: bool| -> Result<Result<T, String>, Fault> {
            let mut waiting = match ahead {
                Some(waiting) => waiting,
                None => match self.permit(tool) {
                    Ok(permit) => self.start(tool, landlock, permit)?,
                    Err(why) => return Ok(Err(why)),
                },
            };
            if let Err(why) = waiting.with_permit(|| self.permit(tool)) {
                return Ok(Err(why));
            }
            Ok(Self::call(waiting, called)?.and_then(|printed| read(&printed)))
        };
        let first = match look(ahead, true)? {
            Ok(found) => return Ok(Ok((found, None))),
            Err(why) => why,
        };
        Ok(match look(None, false)? {
            Ok(found) => Ok((found, Some(first))),
            Err(why) => Err(format!("{first}; without landlock: {why}")),
        })
    }

    /// The permit that a tool needs, if it needs one; in words why it cannot be had.
    fn permit(&self, tool: &[String]) -> Result<Option<Permit>, String> {
        let reads_counters = tool.first().is_some_and(|program| program == "ncu");
        reads_counters.then(|| Permit::for_gpu(self.ordinal, PATIENCE)).transpose()
    }

    /// What Nsight Compute reads of one call: the metrics of the set.
    pub(super) fn profile(&self, layout: &Layout, object: &Path, slot: &[u8]) -> Result<Profile, Fault> {
        let case = layout.case.clone();
        let without = |why: String| Profile {
            rung: Rung::TimingOnly,
            case: case.clone(),
            readings: vec![],
            kernels: vec![],
            notes: vec![why],
        };
        let Some(set) = &self.set else { return Ok(without("the settings ask for no metrics".to_owned())) };
        let deadline = if set.is_full() { SURVEYING } else { DEADLINE };
        let called = Called { layout, object, slot, warm_up: WARM_UP, deadline, done: "" };
        let ahead = lock(&self.ahead).take();
        Ok(match self.under(ahead, &ncu::command(set, LAUNCHES, &[]), &called, read)? {
            Ok((capture, behind)) => {
                let mut profile = ncu::profile(set, &case, &capture.launches);
                profile.notes.extend(behind.as_deref().map(without_landlock));
                profile
            }
            Err(why) => without(format!("no hardware counters (ncu): {why}")),
        })
    }

    /// Every section, and beside these what the set for the Judge names, of each launch of one call; in words why there is
    /// nothing to be had.
    pub(super) fn survey(&self, layout: &Layout, object: &Path, slot: &[u8]) -> Result<Result<Survey, String>, Fault> {
        self.settle();
        let hung = lock(&self.ahead).take_if(|waiting| !waiting.let_others_read());
        drop(hung);
        let called = Called { layout, object, slot, warm_up: WARM_UP, deadline: SURVEYING, done: "" };
        let everything = ncu::everything(&MetricSet::cudaforge24(), SURVEYED);
        let read = self.under(None, &everything, &called, read)?;
        Ok(read.map(|(capture, behind)| {
            let notes = capture.warnings.into_iter().chain(behind.as_deref().map(without_landlock)).collect();
            Survey { case: layout.case.clone(), tool: version(), launches: capture.launches, notes }
        }))
    }

    /// Runs one call under a tool of compute-sanitizer's. A finding is a failure; in words why there is none to be had here.
    pub(super) fn sanitize(
        &self,
        tool: Tool,
        layout: &Layout,
        object: &Path,
        slot: &[u8],
    ) -> Attempt<Result<(), String>> {
        // It is slow: it looks at one call, and none comes before.
        // An entry that refuses the shape, or a kernel that ends its process, was looked at by nobody.
        let done = &*format!("done {:016x}", rand::random::<u64>());
        let called = Called { layout, object, slot, warm_up: 0, deadline: DEADLINE, done };
        let read = |printed: &str| compute_sanitizer::finding_in_whole_call(printed, done);
        match self.under(None, &tool.command(), &called, read)? {
            Err(why) => Ok(Err(why)),
            Ok((None, _)) => Ok(Ok(())),
            Ok((Some(finding), _)) => Err(Failure::Sanitizer { tool: tool.watches().to_owned(), finding }.into()),
        }
    }
}

/// Has the process that waits give the counters back once it is ready.
fn let_others_read(place: &Mutex<Option<Waiting>>) {
    while lock(place).as_mut().is_some_and(|waiting| !waiting.let_others_read()) {
        std::thread::sleep(LOOK);
    }
}

fn without_landlock(why: &str) -> String {
    format!("the profiler ran without landlock; behind it: {why}")
}

/// The candidate's own launches, in what Nsight Compute printed of a call.
fn read(printed: &str) -> Result<Capture, String> {
    let mut capture = Capture::read(printed).map_err(|unread| unread.to_string())?;
    capture.launches.retain(|launched| !launched.kernel.starts_with(NOTHING));
    if capture.launches.is_empty() { Err("the call launched no kernel".to_owned()) } else { Ok(capture) }
}

/// Nsight Compute's version, as it says it: `2025.3.1.0`; empty where it does not.
fn version() -> String {
    let said = compiler::ask(Command::new("ncu").arg("--version")).unwrap_or_default();
    version_in(&said).to_owned()
}

fn version_in(said: &str) -> &str {
    let line = said.lines().find_map(|line| line.strip_prefix("Version "));
    line.and_then(|line| line.split_whitespace().next()).unwrap_or_default()
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_a_number() {
        let said = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c)\nVersion 2025.3.1.0 (build 36398880) (public-release)\n";
        assert_eq!((version_in(said), version_in("no such tool")), ("2025.3.1.0", ""));
    }
}
