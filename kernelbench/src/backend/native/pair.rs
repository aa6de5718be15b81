//! Both sides on a CPU: a process for each, with a segment of memory that holds its arguments and nothing else of ours.

use super::{
    Cpu, Object, Reference,
    child::{Host, Setup},
    contents::Contents,
    placement::{Guards, PLACEMENTS, guards, placed, with_rooms},
    segment::Segment,
};
use crate::{
    engine::{
        backend::{Found, Inputs, Look, Pair, Side, Standard},
        contents::{layout, mismatch, poison},
    },
    machine::cores::Aside,
    measure::{floor::Traffic, reading::Reading},
    result::{
        error::{Attempt, EvalError, fault, trusted},
        failure::{Failure, Fault},
        label::{Kind, Label},
    },
    sandbox::{
        confine::{Confinement, Files, Limits, User},
        entry::Child,
        kernel_process::{KernelProcess, not_started},
        layer::Layer,
        peer::{Allowed, Peer, Trust},
        start::{Dress, variable},
    },
    task::{
        Case, Task,
        baseline::BaselineKernel,
        layout::{Array, Layout, PAGE},
        library::{self, Forbidden},
    },
};
use arrays::{Maker, compare, repeat};
use rand::{Rng, rngs::StdRng};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    os::fd::AsRawFd,
    path::PathBuf,
    time::{Duration, Instant},
};

/// What a Vulkan driver on this processor is told: to compute in the thread that the work comes to, to write no file, and to
/// load nothing that is not its own.
const DRIVER: [(&str, &str); 4] = [
    ("LP_NUM_THREADS", "0"),
    ("MESA_SHADER_CACHE_DISABLE", "true"),
    ("VK_LOADER_LAYERS_DISABLE", "~implicit~"),
    ("NODEVICE_SELECT", "1"),
];
/// Where its loader looks for it.
const DRIVER_FILES: [&str; 3] = ["/usr/share/vulkan", "/usr/local/share/vulkan", "/etc/vulkan"];
/// What arrays begin at a multiple of in a Vulkan driver's memory, in bytes: the most that one may ask for.
const DRIVER_ALIGN: usize = 256;
/// What a child may print, in KiB.
const PRINT_KIB: u64 = 64;
/// How long loading may take, constructors included.
const LOADING: Duration = Duration::from_secs(10);
/// CPU time that a child may use in its life, in seconds. Deadlines end it long before.
const CPU_SECONDS: u64 = 3600;
/// What the slots of a request may take, in bytes.
const REQUEST_BYTES: usize = 64 << 20;
/// How many calls in a row are made to see whether memory grows, twice.
const WEARING: u32 = 64;
/// How long each of both times may last.
const WEARING_TIME: Duration = Duration::from_millis(100);
/// By how many pages memory grows in as many calls before that is told.
const GROWN: u64 = 8;

/// A process with its segment.
struct SideProcess {
    process: KernelProcess,
    segment: Segment,
}

impl SideProcess {
    /// Starts one for some cases, all in each of so many slots, and has it load an object.
    fn start(cpu: &Cpu, layouts: &[Layout], slots: usize, object: &Object) -> Attempt<Self> {
        let guards = guards(layouts, slots);
        let segment =
            Segment::new(guards.slot_bytes, slots, rand::rng().random()).map_err(fault("cannot share memory"))?;
        let file = File::open(&object.path).map_err(fault(format_args!("cannot read {}", object.path.display())))?;
        let environment = object.of_baseline.iter().flatten();
        let environment = environment.map(|(name, value)| variable(name, value)).collect();
        let mut process = started(cpu, &segment, guards, &file, environment)?;
        process.load(Some(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref()))?;
        Ok(Self { process, segment })
    }

    /// Has it called on arrays that lie so from here on.
    fn place(&mut self, layout: &Layout, slots: usize) -> Attempt<()> {
        (0..slots).for_each(|slot| self.segment.paint(slot, layout));
        self.process.case(layout, slots)
    }
}

/// A process that was greeted, and holds nobody's code yet.
fn started(
    cpu: &Cpu,
    segment: &Segment,
    guards: Guards,
    object: &File,
    environment: Vec<(String, OsString)>,
) -> Result<KernelProcess, Fault> {
    let host = Host {
        segment_bytes: segment.bytes(),
        memory_bytes: cpu.options.memory_mib << 20,
        core: cpu.cores.of_kernels(),
    };
    let (memory, object) = (segment.memory().as_raw_fd(), object.as_raw_fd());
    let vulkan = cpu.options.vulkan;
    let confinement = if vulkan { confinement_with_driver() } else { confinement() };
    let child = |control| Child::CpuKernel(Setup { confinement, control, memory, object, guards, host, vulkan });
    let driver = DRIVER.iter().filter(|_| vulkan).map(|(name, value)| variable(name, value));
    let environment = environment.into_iter().chain(driver).collect();
    let dress = Dress { files: vec![memory, object], environment, ..Dress::default() };
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

/// The same where a Vulkan driver is loaded, which has threads of its own.
fn confinement_with_driver() -> Confinement {
    let usual = confinement();
    let files = Some(Files { read: DRIVER_FILES.map(PathBuf::from).into(), write: vec![], devices: false });
    Confinement { limits: Limits { processes: None, files: 256, ..usual.limits }, files, ..usual }
}

/// How a child of this program is confined here, and what it computes on.
pub(super) fn probe(cpu: &Cpu) -> Result<(Vec<Layer>, String), Fault> {
    let nothing = File::open("/dev/null").map_err(fault("cannot read /dev/null"))?;
    let segment = Segment::new(0, 1, 0).map_err(fault("cannot share memory"))?;
    let mut process = started(cpu, &segment, Guards::default(), &nothing, vec![])?;
    process.load(None).map_err(not_started)?;
    Ok((std::mem::take(&mut process.peer.layers), std::mem::take(&mut process.peer.device)))
}

/// Both sides of one task on a CPU.
pub(crate) struct CpuPair<'a> {
    cpu: &'a Cpu,
    task: &'a Task,
    /// What stands on the reference's side, on cases of the usual size and on large ones.
    standing: [&'a Object; 2],
    /// Of these, the one that does now.
    reference: &'a Object,
    candidate: &'a Object,
    /// What the candidate may not use.
    forbidden: Vec<Forbidden>,
    call_ns: &'a mut HashMap<(PathBuf, String), f64>,
    /// The cases whose arguments the processes hold, one behind the other.
    layouts: Vec<Layout>,
    /// The one that is called, as its arrays lie.
    layout: Layout,
    /// Reference and candidate, once a request was prepared, and their slots.
    sides: Option<[SideProcess; 2]>,
    calls: usize,
    timed: bool,
    /// Whether contents are made, and not drawn, and reach the ends of their ranges.
    extreme: bool,
    maker: Option<Maker>,
    contents: Vec<Contents>,
    /// What the candidate's outputs held before the call, by slot: one element's bytes.
    poisons: Vec<[u8; 8]>,
    _aside: Aside,
}

impl<'a> CpuPair<'a> {
    pub(super) fn new(
        cpu: &'a Cpu,
        task: &'a Task,
        session: &'a mut Reference,
        loaded: &'a Object,
        standard: Standard,
    ) -> Self {
        let Reference { object, baselines, call_ns } = session;
        let (object, baselines, all) = (&*object, &*baselines, task.baselines());
        let of =
            |kernel: Option<&BaselineKernel>| kernel.and_then(|kernel| baselines.get(&kernel.name)).unwrap_or(object);
        let standing = match standard {
            Standard::Reference => [object; 2],
            Standard::Outputs => [object, of(all.oracle())],
            Standard::Times => [of(all.against()); 2],
        };
        // A baseline in the candidate's place uses what it is linked with.
        let forbidden = if loaded.of_baseline.is_some() { vec![] } else { all.forbidden() };
        Self {
            task,
            standing,
            reference: standing[0],
            candidate: loaded,
            forbidden,
            call_ns,
            layouts: vec![],
            layout: Layout::default(),
            sides: None,
            calls: 0,
            timed: false,
            extreme: false,
            maker: None,
            contents: vec![],
            poisons: vec![],
            _aside: cpu.cores.step_aside(),
            cpu,
        }
    }

    fn sides(&mut self) -> Result<&mut [SideProcess; 2], Fault> {
        self.sides.as_mut().ok_or_else(|| Fault::Machine("a request was made before it was prepared".to_owned()))
    }

    /// Starts both sides with arguments for so many calls.
    fn start(&mut self, calls: usize) -> Attempt<()> {
        self.sides = None;
        let reference = trusted(SideProcess::start(self.cpu, &self.layouts, calls, self.reference))?;
        let candidate = SideProcess::start(self.cpu, &self.layouts, calls, self.candidate)?;
        // From here on it can open nothing more.
        let maps = if self.forbidden.is_empty() { String::new() } else { candidate.process.peer.mappings() };
        library::refuse(&self.forbidden, |library| library.in_mappings(&maps))?;
        self.sides = Some([reference, candidate]);
        self.poisons = vec![[0; 8]; calls];
        self.contents.resize_with(calls, Contents::default);
        self.calls = calls;
        Ok(())
    }

    /// Has both called on arrays that lie so from here on.
    fn lay(&mut self, layout: Layout) -> Attempt<()> {
        self.layout = layout;
        let slots = self.poisons.len();
        let Some([reference, candidate]) = &mut self.sides else { return Ok(()) };
        trusted(reference.place(&self.layout, slots))?;
        candidate.place(&self.layout, slots)
    }

    /// Writes the inputs of a slot for both, and poisons the outputs, each with a poison of its own.
    fn fill(&mut self, slot: usize, rng: &mut StdRng) {
        let poisons: [[u8; 8]; 2] = [rng.random(), rng.random()];
        self.poisons[slot] = poisons[1];
        let Some(sides) = &mut self.sides else { return };
        // Who is filled last finds more of its contents in the caches.
        let order = if rng.random() { [0, 1] } else { [1, 0] };
        for side in order {
            for (at, array) in self.layout.arrays.iter().enumerate() {
                let place = sides[side].segment.array_mut(slot, array);
                if array.is_input() {
                    place.copy_from_slice(self.contents[slot].of(at));
                } else {
                    repeat(&poison(array.dtype, poisons[side])[..array.dtype.bytes()], place);
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
            if self.contents[slot].of(at) != candidate.segment.array(slot, array) {
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
        let ran = process.count(calls, false).and_then(|_| process.call(deadline, &mut ()));
        let touched = process.peer.touched();
        ran.map_err(|error| self.beside(touched).map_or(error, EvalError::from))
    }

    /// The failure of having touched a guard.
    fn beside(&self, touched: Option<usize>) -> Option<Failure> {
        let slot_bytes = self.layouts.last()?.slot_bytes;
        let at = touched? % slot_bytes.max(1);
        let distance = |array: &&Array| array.room.start.saturating_sub(at) + at.saturating_sub(array.room.end - 1);
        let nearest = self.layout.arrays.iter().min_by_key(distance).filter(|array| distance(array) <= PAGE)?;
        (touched? < slot_bytes * self.poisons.len() && !nearest.room.contains(&at))
            .then(|| Failure::OutOfBounds { case: self.layout.case.clone(), argument: nearest.name.clone() })
    }

    /// Calls the candidate again and again: the pages that it holds more of afterwards, and the calls.
    fn grown(&mut self, deadline: Duration) -> Attempt<([u64; 2], u32)> {
        let pages = |pair: &mut Self| Ok::<_, Fault>(pair.sides()?[1].process.peer.pages().unwrap_or_default());
        let (start, before, mut calls) = (Instant::now(), pages(self)?, 0);
        while calls < WEARING && (calls == 0 || start.elapsed() < WEARING_TIME) {
            self.call_so_many(Side::Candidate, 1, deadline)?;
            calls += 1;
        }
        let after = pages(self)?;
        Ok(([0, 1].map(|at| after[at].saturating_sub(before[at])), calls))
    }
}

impl Pair for CpuPair<'_> {
    fn enter(&mut self, case: &Case) -> Attempt<usize> {
        self.layout = with_rooms(layout(self.task, case)?, 0);
        self.layouts = vec![self.layout.clone()];
        self.reference = self.standing[usize::from(self.task.baselines().is_large(&case.name))];
        (self.sides, self.extreme) = (None, false);
        Ok((REQUEST_BYTES / self.layout.slot_bytes.max(1)).max(1))
    }

    fn prepare(&mut self, calls: usize, timed: bool) -> Attempt<bool> {
        if self.sides.is_none() || self.poisons.len() < calls {
            self.start(calls)?;
            self.lay(self.layout.clone())?;
        }
        (self.calls, self.timed) = (calls, timed);
        Ok(true)
    }

    fn placements(&self) -> usize {
        if self.cpu.options.vulkan { PLACEMENTS.len() - 1 } else { PLACEMENTS.len() }
    }

    fn place(&mut self, at: usize) -> Attempt<()> {
        self.extreme = true;
        let align = if self.cpu.options.vulkan { DRIVER_ALIGN } else { 1 };
        self.lay(placed(&self.layout, PLACEMENTS[at], align))
    }

    /// The smallest come first, as many as fit together. Where there is an oracle, it answers for all of them.
    fn enter_all(&mut self, cases: &[Case]) -> Attempt<Vec<usize>> {
        let mut laid = vec![];
        for (at, case) in cases.iter().enumerate() {
            laid.push((at, layout(self.task, case)?));
        }
        laid.sort_by_key(|(_, layout)| layout.array_bytes());
        (self.sides, self.timed, self.extreme) = (None, false, true);
        self.reference = self.standing[1];
        let (mut entered, mut from, mut bytes) = (vec![], 0, 0);
        self.layouts.clear();
        for (at, layout) in laid {
            bytes += layout.array_bytes();
            if bytes <= self.cpu.options.case_mib << 20 {
                let layout = with_rooms(layout, from);
                from = layout.slot_bytes;
                self.layouts.push(layout);
                entered.push(at);
            }
        }
        if !entered.is_empty() {
            self.start(1)?;
        }
        Ok(entered)
    }

    fn turn_to(&mut self, entered: usize) -> Attempt<()> {
        let layout = self.layouts.get(entered).cloned();
        self.lay(layout.ok_or_else(|| Fault::Machine("a case was turned to that was not entered".to_owned()))?)
    }

    fn wear(&mut self, deadline: Duration) -> Attempt<Option<Label>> {
        let (first, _) = self.grown(deadline)?;
        let (then, calls) = self.grown(deadline)?;
        let pages = (0..2).filter(|at| first[*at] >= GROWN && then[*at] >= GROWN).map(|at| then[at]).max();
        Ok(pages.map(|pages| {
            let kib = (pages * PAGE as u64) as f64 / 1024.0 / f64::from(calls);
            let case = &self.layout.case;
            Label::new(Kind::GrowingMemory, format!("its memory grows by {kib:.1} KiB with each call on case {case}"))
        }))
    }

    fn draw(&mut self, _: Inputs, rng: &mut StdRng) -> Attempt<()> {
        let maker = self.maker.get_or_insert_with(|| Maker::new(rng));
        for contents in &mut self.contents[..self.calls] {
            match (self.timed, self.extreme) {
                (true, _) => contents.make(&self.layout, maker, rng),
                (_, true) => {
                    contents.make(&self.layout, maker, rng);
                    contents.stretch(&self.layout, rng);
                }
                _ => contents.draw(&self.layout, rng),
            }
        }
        (0..self.calls).for_each(|slot| self.fill(slot, rng));
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
        self.call_ns.get(&(self.reference.path.clone(), self.layout.case.clone())).copied()
    }

    fn note_call_ns(&mut self, ns: f64) {
        self.call_ns.insert((self.reference.path.clone(), self.layout.case.clone()), ns);
    }

    /// It can start nothing, and its memory is limited.
    fn look_around(&mut self) -> Attempt<()> {
        Ok(())
    }

    fn layers(&self) -> Vec<Layer> {
        self.sides.as_ref().map(|[_, candidate]| candidate.process.peer.layers.clone()).unwrap_or_default()
    }
}
