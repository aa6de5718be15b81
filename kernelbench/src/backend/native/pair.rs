//! Both sides on a CPU: a process for each, with a segment of memory that holds its arguments and nothing else of ours.

use super::{
    Cpu, Object, Reference,
    child::{Host, Setup},
    contents::{Contents, Draw, spread},
    segment::Segment,
};
use crate::{
    engine::{
        backend::{Found, Inputs, Look, Pair, Side},
        compare::compare,
        contents::{layout, mismatch, poison},
    },
    machine::cores::Aside,
    measure::{floor::Traffic, reading::Reading},
    result::{
        error::{Attempt, fault, trusted},
        failure::{Failure, Fault},
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::Child,
        kernel_process::{KernelProcess, not_started},
        layer::Layer,
        peer::{Allowed, Peer, Trust},
        start::Dress,
    },
    task::{Case, Task, layout::Layout},
};
use rand::{Rng, rngs::StdRng};
use std::{collections::HashMap, fs::File, os::fd::AsRawFd, path::Path, time::Duration};

/// What a child may print, in KiB.
const PRINT_KIB: u64 = 64;
/// How long loading may take, constructors included.
const LOADING: Duration = Duration::from_secs(10);
/// CPU time that a child may use in its life, in seconds. Deadlines end it long before.
const CPU_SECONDS: u64 = 3600;
/// What the slots of a request may take, in bytes.
const REQUEST_BYTES: usize = 64 << 20;
/// Independent draws behind the contents of timed calls.
const POOL: usize = 2;

/// A process with its segment.
struct SideProcess {
    process: KernelProcess,
    segment: Segment,
}

impl SideProcess {
    /// Starts one for a case in so many slots, and has it load an object.
    fn start(cpu: &Cpu, layout: &Layout, slots: usize, object: &Path) -> Attempt<Self> {
        let segment = Segment::new(layout, slots, rand::rng().random()).map_err(fault("cannot share memory"))?;
        let file = File::open(object).map_err(fault(format_args!("cannot read {}", object.display())))?;
        let mut process = started(cpu, &segment, &file)?;
        process.load(Some(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref()))?;
        process.case(layout, slots)?;
        Ok(Self { process, segment })
    }
}

/// A process that was greeted, and holds nobody's code yet.
fn started(cpu: &Cpu, segment: &Segment, object: &File) -> Result<KernelProcess, Fault> {
    let host = Host {
        segment_bytes: segment.bytes(),
        memory_bytes: cpu.options.memory_mib << 20,
        core: cpu.cores.of_kernels(),
    };
    let (memory, object) = (segment.memory().as_raw_fd(), object.as_raw_fd());
    let child = |control| Child::CpuKernel(Setup { confinement: confinement(), control, memory, object, host });
    let dress = Dress { files: vec![memory, object], ..Dress::default() };
    let allowed = Allowed { memory_mib: cpu.options.memory_mib, print_kib: PRINT_KIB, processes: false };
    let mut peer = Peer::new(cpu.sandbox.start(child, &dress)?, Trust::Candidate, allowed);
    peer.greet(&serde_json::json!({}), LOADING).map_err(not_started)?;
    Ok(KernelProcess::new(peer, LOADING))
}

/// What a kernel on a CPU may reach: its arguments, and the system's libraries while it is loaded.
pub(super) fn confinement() -> Confinement {
    let limits =
        Limits { address_space: None, cpu_seconds: Some(CPU_SECONDS), file_bytes: 0, processes: Some(0), files: 64 };
    let files = Some(Files { read: vec![], write: vec![], devices: false });
    Confinement { parent: std::process::id().cast_signed(), user: User::Nobody, limits, files, shares_ipc: false }
}

/// How a child of this program is confined here.
pub(super) fn probe(cpu: &Cpu) -> Result<Vec<Layer>, Fault> {
    let nothing = File::open("/dev/null").map_err(fault("cannot read /dev/null"))?;
    let segment = Segment::new(&Layout::default(), 1, 0).map_err(fault("cannot share memory"))?;
    let mut process = started(cpu, &segment, &nothing)?;
    process.load(None).map_err(not_started)?;
    Ok(std::mem::take(&mut process.peer.layers))
}

/// Both sides of one task on a CPU.
pub(crate) struct CpuPair<'a> {
    cpu: &'a Cpu,
    task: &'a Task,
    reference: &'a Path,
    candidate: &'a Path,
    call_ns: &'a mut HashMap<String, f64>,
    layout: Layout,
    /// Reference and candidate, once a request was prepared, and their slots.
    sides: Option<[SideProcess; 2]>,
    calls: usize,
    timed: bool,
    draws: Vec<Draw>,
    contents: Vec<Contents>,
    /// What the candidate's outputs held before the call, by slot: one element's bytes.
    poisons: Vec<[u8; 8]>,
    _aside: Aside,
}

impl<'a> CpuPair<'a> {
    pub(super) fn new(cpu: &'a Cpu, task: &'a Task, session: &'a mut Reference, loaded: &'a Object) -> Self {
        Self {
            task,
            reference: &session.object.path,
            candidate: &loaded.path,
            call_ns: &mut session.call_ns,
            layout: Layout::default(),
            sides: None,
            calls: 0,
            timed: false,
            draws: vec![],
            contents: vec![],
            poisons: vec![],
            _aside: cpu.cores.step_aside(),
            cpu,
        }
    }

    fn sides(&mut self) -> Result<&mut [SideProcess; 2], Fault> {
        self.sides.as_mut().ok_or_else(|| Fault::Machine("a request was made before it was prepared".to_owned()))
    }

    /// Writes the inputs of a slot for both, and poisons the outputs, each with a poison of its own.
    fn fill(&mut self, slot: usize, rng: &mut StdRng) {
        let poisons: [[u8; 8]; 2] = [rng.random(), rng.random()];
        self.poisons[slot] = poisons[1];
        // Who is filled last finds more of its contents in the caches.
        let order = if rng.random() { [0, 1] } else { [1, 0] };
        for side in order {
            for at in 0..self.layout.arrays.len() {
                let array = self.layout.arrays[at].clone();
                let Some(sides) = &mut self.sides else { return };
                let place = sides[side].segment.array_mut(slot, &array);
                if array.is_input() {
                    self.contents[slot].write(&self.draws, at, place);
                } else {
                    spread(&poison(array.dtype, poisons[side])[..array.dtype.bytes()], place);
                }
            }
        }
    }

    /// Looks at what the candidate left in a slot: its surroundings, its inputs, its outputs beside the reference's.
    fn verify_slot(&self, slot: usize, look: &Look<'_>) -> Attempt<()> {
        let Some([reference, candidate]) = &self.sides else { return Ok(()) };
        let case = || look.case.to_owned();
        for array in &self.layout.arrays {
            if !candidate.segment.zones_are_intact(slot, array) {
                return Err(Failure::OutOfBounds { case: case(), argument: array.name.clone() }.into());
            }
        }
        let arrays = || self.layout.arrays.iter().enumerate();
        for (at, array) in arrays().filter(|(_, array)| !array.is_output()) {
            if !self.contents[slot].is_in(&self.draws, at, candidate.segment.array(slot, array)) {
                return Err(Failure::InputChanged { case: case(), argument: array.name.clone() }.into());
            }
        }
        for (_, array) in arrays().filter(|(_, array)| array.is_output()) {
            let poison = poison(array.dtype, self.poisons[slot]);
            let poison = (!array.is_input()).then(|| &poison[..array.dtype.bytes()]);
            let (right, got) = (reference.segment.array(slot, array), candidate.segment.array(slot, array));
            let found = compare(array.dtype, right, got, look.tolerance, poison);
            if !found.passes(look.tolerance.share) {
                return Err(mismatch(case(), array, &found, look.while_timed()).into());
            }
        }
        Ok(())
    }

    /// Has a side make so many calls.
    fn call_so_many(&mut self, side: Side, calls: usize, deadline: Duration) -> Attempt<Reading> {
        let process = &mut self.sides()?[side as usize].process;
        process.count(calls, false)?;
        process.call(deadline, &mut ())
    }
}

impl Pair for CpuPair<'_> {
    fn enter(&mut self, case: &Case) -> Attempt<usize> {
        self.layout = layout(self.task, case)?;
        (self.sides, self.draws) = (None, vec![]);
        Ok((REQUEST_BYTES / self.layout.slot_bytes.max(1)).max(1))
    }

    fn prepare(&mut self, calls: usize, timed: bool) -> Attempt<bool> {
        if self.sides.is_none() || self.poisons.len() < calls {
            self.sides = None;
            let reference = trusted(SideProcess::start(self.cpu, &self.layout, calls, self.reference))?;
            let candidate = SideProcess::start(self.cpu, &self.layout, calls, self.candidate)?;
            self.sides = Some([reference, candidate]);
            self.poisons = vec![[0; 8]; calls];
        }
        (self.calls, self.timed) = (calls, timed);
        Ok(true)
    }

    fn draw(&mut self, _: Inputs, rng: &mut StdRng) -> Attempt<()> {
        if !self.timed {
            self.draws = vec![Draw::new(&self.layout, rng)];
        } else if self.draws.len() != POOL {
            self.draws = (0..POOL).map(|_| Draw::new(&self.layout, rng)).collect();
        }
        self.contents.clear();
        for slot in 0..self.calls {
            let draw = rng.random_range(0..self.draws.len());
            let turns =
                if self.timed { self.draws[draw].turns(&self.layout, rng) } else { vec![0; self.layout.arrays.len()] };
            self.contents.push(Contents { draw, turns });
            self.fill(slot, rng);
        }
        Ok(())
    }

    fn call(&mut self, side: Side, deadline: Duration, _: &mut StdRng) -> Attempt<Option<Reading>> {
        let ran = self.call_so_many(side, self.calls, deadline);
        if side == Side::Reference { trusted(ran).map(Some) } else { ran.map(Some) }
    }

    fn empty(&mut self, _: &mut StdRng) -> Attempt<f64> {
        Ok(trusted(self.call_so_many(Side::Reference, 0, LOADING))?.outside_ns)
    }

    fn verify(&mut self, look: &Look<'_>) -> Attempt<Found> {
        (0..self.calls).try_for_each(|slot| self.verify_slot(slot, look))?;
        Ok(Found::default())
    }

    fn traffic(&self) -> Traffic {
        Traffic::of(&self.layout)
    }

    fn known_call_ns(&self) -> Option<f64> {
        self.call_ns.get(&self.layout.case).copied()
    }

    fn note_call_ns(&mut self, ns: f64) {
        self.call_ns.insert(self.layout.case.clone(), ns);
    }

    /// It can start nothing, and its memory is limited.
    fn look_around(&mut self) -> Attempt<()> {
        Ok(())
    }

    fn layers(&self) -> Vec<Layer> {
        self.sides.as_ref().map(|[_, candidate]| candidate.process.peer.layers.clone()).unwrap_or_default()
    }
}
