//! Where does a candidate spend its time on the GPU?
//!
//! Nsight Compute over one call in a process that does nothing else, started before it is needed: it waits, with a context,
//! for the folder to say what to call. Where ncu is out of reach, only the timing is left, with the reason.

use crate::{
    backend::{
        cuda::{
            child::{Case, NOTHING, ONCE, Once, READY},
            runner::{Launcher, dress, private_folder},
        },
        torch::python::{give, own_user},
    },
    profile::ncu::{self, Capture, Permit},
    result::{error::fault, failure::Fault},
    sandbox::{
        launch::{self, ARGUMENT},
        process::{self, Process},
        tree::Company,
    },
    task::layout::Plan,
};
use metrics::{MetricSet, Profile, Rung};
use std::{
    fs,
    io::Read,
    path::Path,
    process::Command,
    sync::mpsc,
    time::{Duration, Instant},
};

/// What a profile may take.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);
/// How long it is waited for a profiler to be ready, before something is timed.
const SETTLE: Duration = Duration::from_secs(8);
/// What a profiler may print, in bytes.
const MOST_PRINTED: u64 = 32 << 20;
/// How long it is waited until nobody else reads counters.
const PATIENCE: Duration = Duration::from_secs(2);
/// Launches that are looked at, at most.
const LAUNCHES: usize = 64;
/// Calls before the one that is looked at.
const WARM_UP: u32 = 3;

/// A process under Nsight Compute that waits to be told what to call.
pub(crate) struct Waiting {
    process: Process,
    printed: mpsc::Receiver<String>,
    folder: tempfile::TempDir,
    user: Option<u32>,
    _permit: Option<Permit>,
}

impl Waiting {
    /// Starts it, where nobody else reads this GPU's counters. A tool that does not start says so in what it prints.
    pub(crate) fn start(launcher: &Launcher, set: &MetricSet) -> Option<Self> {
        let permit = Permit::for_gpu(launcher.ordinal, Duration::ZERO).ok()?;
        Self::under(launcher, &ncu::command(set, LAUNCHES, &[]), true, Some(permit)).ok()
    }

    /// Starts a process under this tool, perhaps without landlock.
    fn under(launcher: &Launcher, tool: &[String], landlock: bool, permit: Option<Permit>) -> Result<Self, Fault> {
        let folder = private_folder()?;
        // The process runs as a user who may not reach where this program lies: it gets a copy.
        let program = folder.path().join("warpsmith");
        fs::copy(&launcher.program, &program).map_err(fault("cannot copy this program"))?;
        let user = launch::is_root().then(own_user);
        if let Some(user) = user {
            give(folder.path(), user).map_err(fault("cannot give a folder away"))?;
        }
        let (control, theirs) = process::socket_pair().map_err(fault("cannot make a socket pair"))?;
        let mut line = tool.to_vec();
        line.push(program.display().to_string());
        line.extend(launcher.program_args.iter().map(|argument| argument.to_string_lossy().into_owned()));
        line.extend([ONCE.to_owned(), folder.path().display().to_string(), launcher.ordinal.to_string()]);
        let mut confinement = launcher.confinement(user, folder.path(), launch::number(&theirs), line);
        confinement.landlock &= landlock;
        confinement.writable.push("/proc".into());
        let json = serde_json::to_string(&confinement).map_err(|e| Fault(e.to_string()))?;
        let mut command = Command::new(&launcher.program);
        command.args(&launcher.program_args).arg(ARGUMENT).arg(json);
        let output = dress(&mut command, folder.path())?;
        process::detach(&mut command, vec![launch::number(&theirs)]);
        let child = launcher.nursery.spawn(command)?;
        let process = Process::of(&child);
        drop((control, theirs));
        let (done, printed) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = vec![];
            let _ = output.take(MOST_PRINTED).read_to_end(&mut text);
            let _ = done.send(String::from_utf8_lossy(&text).into_owned());
        });
        Ok(Self { process, printed, folder, user, _permit: permit })
    }

    /// Has it call a built object on one slot's content; what it printed, or in words why not.
    pub(crate) fn call(&mut self, called: &Called<'_>) -> Result<Result<String, String>, Fault> {
        let Called { plan, object, slot, deadline, .. } = *called;
        let place = |name: &str| self.folder.path().join(name);
        let case = Case { passed: plan.passed.clone(), slot_bytes: plan.slot_bytes, slots: 1 };
        let arrays = plan.arrays.iter().map(|array| [array.offset, array.bytes]).collect();
        let job = Once { case, object: place("kernel.so"), slot: place("slot"), arrays, warm_up: WARM_UP };
        let json = serde_json::to_vec(&job).map_err(|e| Fault(e.to_string()))?;
        let write = || {
            fs::copy(object, &job.object)?;
            fs::write(&job.slot, slot)?;
            fs::write(place("job.part"), json)?;
            if let Some(user) = self.user {
                give(self.folder.path(), user)?;
            }
            fs::rename(place("job.part"), place("job.json"))
        };
        write().map_err(fault("cannot write what is to be profiled"))?;
        let printed = self.printed.recv_timeout(deadline);
        self.end();
        Ok(printed.map_err(|_| format!("it did not end within {} s", deadline.as_secs())))
    }

    /// Waits until it waits, or has ended.
    pub(crate) fn settle(&mut self) {
        let (start, ready) = (Instant::now(), self.folder.path().join(READY));
        while start.elapsed() < SETTLE && !ready.exists() && matches!(self.process.ended(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(&mut self) {
        let _ = self.process.end();
        if self.user.is_some() {
            Company::of(0, self.user).end();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.end();
    }
}

/// What is called under a tool.
pub(crate) struct Called<'a> {
    pub(crate) launcher: &'a Launcher,
    pub(crate) plan: &'a Plan,
    pub(crate) object: &'a Path,
    /// The content of one slot.
    pub(crate) slot: &'a [u8],
    /// What it may take.
    pub(crate) deadline: Duration,
}

impl Called<'_> {
    /// The permit that a tool needs, if it needs one; in words why it cannot be had.
    fn permit(&self, tool: &[String]) -> Result<Option<Permit>, String> {
        let reads_counters = tool.first().is_some_and(|program| program == "ncu");
        reads_counters.then(|| Permit::for_gpu(self.launcher.ordinal, PATIENCE)).transpose()
    }

    /// What is read of a tool's words, and where it had to do without landlock, what it said behind it. A second try is made
    /// without landlock where the first reads nothing.
    pub(crate) fn under<T>(
        &self,
        waiting: Option<Waiting>,
        tool: &[String],
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Result<(T, Option<String>), String>, Fault> {
        let look = |waiting: Option<Waiting>, landlock: bool| -> Result<Result<T, String>, Fault> {
            let mut waiting = match waiting {
                Some(waiting) => waiting,
                None => match self.permit(tool) {
                    Ok(permit) => Waiting::under(self.launcher, tool, landlock, permit)?,
                    Err(why) => return Ok(Err(why)),
                },
            };
            Ok(waiting.call(self)?.and_then(|printed| read(&printed)))
        };
        let first = match look(waiting, true)? {
            Ok(found) => return Ok(Ok((found, None))),
            Err(why) => why,
        };
        Ok(match look(None, false)? {
            Ok(found) => Ok((found, Some(first))),
            Err(why) => Err(format!("{first}; without landlock: {why}")),
        })
    }
}

/// The candidate's own launches, in what Nsight Compute printed of a call.
pub(crate) fn read(printed: &str) -> Result<Capture, String> {
    let mut capture = Capture::read(printed).map_err(|unread| unread.to_string())?;
    capture.launches.retain(|launched| !launched.kernel.starts_with(NOTHING));
    if capture.launches.is_empty() { Err("the call launched no kernel".to_owned()) } else { Ok(capture) }
}

/// What Nsight Compute reads of one call: the metrics of this set.
pub(crate) fn profile(
    waiting: Option<Waiting>,
    called: &Called<'_>,
    set: Option<&MetricSet>,
) -> Result<Profile, Fault> {
    let case = &called.plan.case;
    let without =
        |notes| Profile { rung: Rung::TimingOnly, case: case.clone(), readings: vec![], kernels: vec![], notes };
    let Some(set) = set else { return Ok(without(vec!["the settings ask for no metrics".to_owned()])) };
    Ok(match called.under(waiting, &ncu::command(set, LAUNCHES, &[]), read)? {
        Ok((capture, behind)) => {
            let mut profile = ncu::profile(set, case, &capture.launches);
            profile.notes.extend(behind.map(|why| format!("the profiler ran without landlock; behind it: {why}")));
            profile
        }
        Err(why) => without(vec![format!("no hardware counters (ncu): {why}")]),
    })
}
