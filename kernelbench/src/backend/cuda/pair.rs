//! Both sides on a GPU: a process for each, with an arena of ours that it computes in.

use super::{
    CudaDriver, Kernel, Reference, child,
    verifier::{Draw, MOST_ARRAYS, MOST_SLOTS, Verifier},
};
use crate::{
    engine::{
        backend::{Found, Inputs, Look, Pair, Side, Standard},
        contents::{context, layout},
    },
    machine::{driver::HANDLE, gpu},
    measure::{
        floor::Traffic,
        gpu_clock::{GpuClock, broken},
        reading::Reading,
    },
    profile::tool::DRIVER_LIMITS,
    result::{
        error::{Attempt, EvalError, fault, trusted},
        failure::Fault,
    },
    sandbox::{
        confine::{Confinement, Files, User},
        entry::Child,
        kernel_process::{KernelProcess, not_started},
        layer::Layer,
        peer::{Allowed, Peer, Trust},
        pool::Starting,
        start::{Dress, Sandbox, give, kept, open_folder, variable},
        tree::own_user,
    },
    task::{
        Case, Task,
        layout::Layout,
        library::{self, Forbidden},
    },
};
use rand::rngs::StdRng;
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard},
    time::Duration,
};

/// What both sides may read beside the system's libraries.
const SYSTEM: [&str; 11] =
    ["/bin", "/sbin", "/usr", "/lib", "/lib64", "/lib32", "/etc", "/opt", "/proc", "/sys", "/nix/store"];
/// Variables of ours that a child keeps: where libraries are.
const KEPT: [&str; 2] = ["LD_LIBRARY_PATH", "PATH"];
/// How long a process may take to make its context.
const START: Duration = Duration::from_mins(1);
/// How long loading may take, constructors included, and small requests.
const LOADING: Duration = Duration::from_secs(20);
/// What a child may print, in KiB.
const PRINT_KIB: u64 = 1024;
/// What a baseline may take of the host's memory beyond what a candidate may, in MiB: a library loads its own kernels.
const LIBRARY_MIB: u64 = 4096;
/// The variables of a baseline's process: a library's kernels are loaded when they are called, for there are thousands.
const OF_BASELINE: [(&str, &str); 1] = [("CUDA_MODULE_LOADING", "LAZY")];

/// How children are started.
pub(crate) struct Starter {
    pub(crate) sandbox: Arc<Sandbox>,
    /// Which GPU.
    pub(crate) ordinal: u32,
    /// Memory that a kernel may take beyond its arguments, in MiB.
    pub(crate) memory_mib: u64,
    /// Where the toolkit's libraries lie, for baselines.
    pub(crate) libraries: Vec<PathBuf>,
}

/// What processes on a GPU may read beside the system's libraries.
pub(crate) fn readable() -> Vec<PathBuf> {
    let libraries = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let own = std::env::split_paths(&libraries).filter(|path| path.is_absolute());
    SYSTEM.iter().map(PathBuf::from).chain(own).collect()
}

/// Their environment in a folder. They see this GPU alone, as the first: no other may do a part of a candidate's work, and the
/// driver starts the sooner for it.
pub(crate) fn environment(folder: &Path, ordinal: u32) -> Vec<(String, OsString)> {
    let mut environment = kept(&KEPT);
    environment.extend([
        variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        variable("CUDA_VISIBLE_DEVICES", gpu::alone(ordinal)),
        variable("CUDA_MODULE_LOADING", "EAGER"),
        variable("CUDA_CACHE_DISABLE", "1"),
        variable("HOME", folder),
        variable("TMPDIR", folder),
    ]);
    environment
}

impl Starter {
    /// Starts a child that has opened this arena, with nothing loaded yet; for a baseline, with its variables. Where the driver
    /// does not start behind Landlock, it is left out from then on, and the layers say so.
    pub(crate) fn start(
        &self,
        arena: [u8; HANDLE],
        of_baseline: Option<&BTreeMap<String, String>>,
        starting: Option<&Starting>,
    ) -> Result<KernelProcess, Fault> {
        match self.try_start(arena, of_baseline, starting) {
            Err(EvalError::Candidate(_)) if self.sandbox.disable_landlock() => {
                self.try_start(arena, of_baseline, starting)
            }
            started => started,
        }
        .map_err(not_started)
    }

    fn try_start(
        &self,
        arena: [u8; HANDLE],
        of_baseline: Option<&BTreeMap<String, String>>,
        starting: Option<&Starting>,
    ) -> Attempt<KernelProcess> {
        let folder = open_folder("kernel-")?;
        let user = crate::sandbox::start::is_root().then(own_user);
        if let Some(user) = user {
            give(folder.path(), None, user).map_err(fault("cannot give a folder away"))?;
        }
        let (mut read, mut memory_mib, mut patience) = (readable(), self.memory_mib, LOADING);
        let mut environment = environment(folder.path(), self.ordinal);
        if let Some(own) = of_baseline {
            read.extend(self.libraries.iter().cloned());
            (memory_mib, patience) = (memory_mib + LIBRARY_MIB, START);
            let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            environment.extend(OF_BASELINE.into_iter().chain(own).map(|(name, value)| variable(name, value)));
        }
        let files = Files { read, write: vec![folder.path().to_owned()], devices: true };
        let confinement = Confinement {
            parent: std::process::id().cast_signed(),
            user: user.map_or(User::Same, User::Own),
            limits: DRIVER_LIMITS,
            files: self.sandbox.has_landlock().then_some(files),
            shares_ipc: true,
        };
        let child = |control| Child::CudaKernel(child::Setup { confinement, control });
        let dress = Dress { environment, folder: Some(folder.path()), user, ..Dress::default() };
        let allowed = Allowed { memory_mib, print_kib: PRINT_KIB, processes: true };
        let mut peer = Peer::new(self.sandbox.start(child, &dress)?, Trust::Candidate, allowed);
        let (id, arena) = (peer.id(), child::Arena { handle: arena.to_vec() });
        match starting {
            Some(starting) => starting.while_starting(id, false, || peer.greet(&arena, START))?,
            None => peer.greet(&arena, START)?,
        }
        Ok(KernelProcess::new(peer, patience).in_folder(folder))
    }
}

/// How many slots of a case an arena holds; in words, where not one fits.
pub(super) fn slots(arena_bytes: usize, layout: &Layout) -> Result<usize, String> {
    if layout.arrays.len() > MOST_ARRAYS {
        return Err(format!("case `{}` has {} arrays, the limit is {MOST_ARRAYS}", layout.case, layout.arrays.len()));
    }
    match arena_bytes / layout.slot_bytes.max(1) {
        0 => {
            let (bytes, limit) = (layout.slot_bytes >> 20, arena_bytes >> 20);
            Err(format!(
                "case `{}` takes {bytes} MiB with what lies around its arrays, the limit is {limit} MiB",
                layout.case
            ))
        }
        slots => Ok(slots.min(MOST_SLOTS)),
    }
}

/// What works on the GPU for one pair at a time.
pub(super) struct Trusted {
    pub(super) verifier: Verifier,
    pub(super) clock: GpuClock,
}

/// The places among a session's kernels of what stands on the reference's side, on cases of the usual size and on large ones.
pub(super) fn standing(task: &Task, session: &Reference, standard: Standard) -> [usize; 2] {
    let all = task.baselines();
    match standard {
        Standard::Reference => [0; 2],
        Standard::Outputs => [0, session.place_of(all.oracle())],
        Standard::Times => [session.place_of(all.against()); 2],
    }
}

/// Both sides of one task on a GPU.
pub(crate) struct CudaPair<'a> {
    task: &'a Task,
    trusted: MutexGuard<'a, Trusted>,
    kernels: &'a mut [(String, Kernel)],
    /// What stands on the reference's side, on cases of the usual size and on large ones.
    standing: [usize; 2],
    /// Of these, the one that does now.
    reference: usize,
    candidate: &'a mut KernelProcess,
    /// Whether each side is a baseline that was not called on this case yet.
    cold: [bool; 2],
    candidate_is_baseline: bool,
    /// What the candidate may not use.
    forbidden: Vec<Forbidden>,
    call_ns: &'a mut HashMap<(PathBuf, String), f64>,
    layout: Layout,
    slots: usize,
    calls: usize,
    draw: Option<Draw>,
    /// Bytes of the GPU's memory that were free when this pair began, but for what baselines took since.
    free_at_first: u64,
    memory_mib: u64,
}

impl<'a> CudaPair<'a> {
    pub(super) fn new(
        driver: &'a CudaDriver,
        task: &'a Task,
        trusted: MutexGuard<'a, Trusted>,
        (session, standing, loaded): (&'a mut Reference, [usize; 2], &'a mut Kernel),
    ) -> Attempt<Self> {
        context(task)?;
        let candidate_is_baseline = loaded.of_baseline.is_some();
        let candidate = loaded.process.as_mut().ok_or_else(gone)?;
        let free_at_first = trusted.verifier.device.memory().map_err(broken)?[0];
        // A baseline in the candidate's place uses what it is linked with.
        let forbidden = if candidate_is_baseline { vec![] } else { task.baselines().forbidden() };
        let pair = Self {
            task,
            trusted,
            kernels: &mut session.kernels,
            standing,
            reference: standing[0],
            candidate,
            cold: [false; 2],
            candidate_is_baseline,
            forbidden,
            call_ns: &mut session.call_ns,
            layout: Layout::default(),
            slots: 0,
            calls: 0,
            draw: None,
            free_at_first,
            memory_mib: driver.options.memory_mib,
        };
        pair.refuse_libraries()?;
        Ok(pair)
    }

    /// The process on the reference's side.
    fn reference(&mut self) -> Result<&mut KernelProcess, Fault> {
        self.kernels[self.reference].1.process.as_mut().ok_or_else(gone)
    }

    /// Looks at what the candidate has loaded.
    fn refuse_libraries(&self) -> Attempt<()> {
        let maps = if self.forbidden.is_empty() { String::new() } else { self.candidate.peer.mappings() };
        library::refuse(&self.forbidden, |library| library.in_mappings(&maps))
    }

    /// Calls a baseline once on each new case, before anything counts or is recorded: a library makes its handle and loads its
    /// kernels then. What it takes of the GPU's memory meanwhile is not the candidate's.
    fn warm_up(&mut self) -> Attempt<()> {
        if self.cold == [false; 2] {
            return Ok(());
        }
        let [before, _] = self.trusted.verifier.device.memory().map_err(broken)?;
        let [reference, candidate] = std::mem::take(&mut self.cold);
        if reference {
            trusted(called_once(self.reference()?))?;
        }
        if candidate {
            called_once(self.candidate)?;
        }
        let [after, _] = self.trusted.verifier.device.memory().map_err(broken)?;
        self.free_at_first = self.free_at_first.saturating_sub(before.saturating_sub(after));
        Ok(())
    }

    /// What is known of the reference's side is known of this.
    fn called(&self) -> (PathBuf, String) {
        (self.kernels[self.reference].1.object.clone(), self.layout.case.clone())
    }
}

fn gone() -> Fault {
    Fault::Machine("both processes were just started, and one is gone".to_owned())
}

fn called_once(process: &mut KernelProcess) -> Attempt<()> {
    process.count(1, false)?;
    process.call(START, &mut ()).map(drop)
}

impl Pair for CudaPair<'_> {
    fn enter(&mut self, case: &Case) -> Attempt<usize> {
        self.layout = layout(self.task, case)?;
        self.slots = slots(self.trusted.verifier.arena_bytes(), &self.layout).map_err(Fault::Machine)?;
        self.reference = self.standing[usize::from(self.task.baselines().is_large(&case.name))];
        let (layout, slots) = (self.layout.clone(), self.slots);
        trusted(self.reference()?.case(&layout, slots))?;
        self.candidate.case(&layout, slots)?;
        self.cold = [self.kernels[self.reference].1.of_baseline.is_some(), self.candidate_is_baseline];
        Ok(self.slots)
    }

    /// Launches are recorded if both sides' can be: recorded on one side alone, they would be held up on the other.
    fn prepare(&mut self, calls: usize, timed: bool) -> Attempt<bool> {
        self.warm_up()?;
        self.calls = calls;
        let recorded = trusted(self.reference()?.count(calls, timed))? && self.candidate.count(calls, timed)?;
        if !recorded {
            trusted(self.reference()?.count(calls, false))?;
            self.candidate.count(calls, false)?;
        }
        Ok(recorded || !timed)
    }

    fn draw(&mut self, _: Inputs, rng: &mut StdRng) -> Attempt<()> {
        let draw = Draw::new(&self.layout, rng);
        self.trusted.verifier.fill(&self.layout, self.calls, &draw).map_err(broken)?;
        self.draw = Some(draw);
        Ok(())
    }

    fn call(&mut self, side: Side, deadline: Duration, _: &mut StdRng) -> Attempt<Option<Reading>> {
        let mut around = self.trusted.clock.before()?;
        match side {
            Side::Reference => {
                let process = self.kernels[self.reference].1.process.as_mut().ok_or_else(gone)?;
                trusted(process.call(deadline, &mut around)).map(Some)
            }
            Side::Candidate => self.candidate.call(deadline, &mut around).map(Some),
        }
    }

    fn verify(&mut self, look: &Look<'_>) -> Attempt<Found> {
        if let Some(draw) = &self.draw {
            self.trusted.verifier.verify(&self.layout, self.calls, draw, look)?;
        }
        Ok(Found::default())
    }

    fn traffic(&self) -> Traffic {
        Traffic::of(&self.layout)
    }

    fn known_call_ns(&self) -> Option<f64> {
        self.call_ns.get(&self.called()).copied()
    }

    fn note_call_ns(&mut self, ns: f64) {
        self.call_ns.insert(self.called(), ns);
    }

    fn look_around(&mut self) -> Attempt<()> {
        let [free, _] = self.trusted.verifier.device.memory().map_err(broken)?;
        if self.free_at_first.saturating_sub(free) > self.memory_mib << 20 {
            return Err(self.candidate.peer.too_much_memory());
        }
        self.refuse_libraries()?;
        self.candidate.peer.be_alone()
    }

    fn shared(&mut self) -> Option<String> {
        self.trusted.clock.shared()
    }

    fn layers(&self) -> Vec<Layer> {
        self.candidate.peer.layers.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_is_shown_is_its_own_gpu() {
        let shown = |ordinal| {
            environment(Path::new("/tmp"), ordinal).into_iter().filter(|(name, _)| name == "CUDA_VISIBLE_DEVICES")
        };
        for ordinal in [0, 3] {
            assert_eq!(
                shown(ordinal).map(|(_, value)| value).collect::<Vec<_>>(),
                [OsString::from(gpu::alone(ordinal))]
            );
        }
    }
}
