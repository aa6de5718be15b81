//! One problem, its judge, and its reference in a process like a candidate's.
//!
//! The judge draws inputs from seeds that it is given here, and compares. The reference runs as candidates run, so what a
//! request costs beside the model is the same for both.

use super::{
    ENTRY, Options, SEED, crowd,
    headers::Headers,
    places,
    python::Facts,
    runner::{Module, Ran, Runner, trusted},
    spares::Spares,
    verifier::{PATIENCE, ask, ask_about, ask_with},
};
use crate::{
    machine::gpu::{self, Gpu},
    result::{
        error::{Attempt, Trouble, fault},
        failure::{Failure, Fault},
    },
    sandbox::{
        launch,
        peer::{Cover, Peer},
        process,
    },
    task::{Problem, Tolerance},
};
use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The most calls in one request.
pub(crate) const MOST_SLOTS: usize = 128;
/// The most tensors in the answer to one request.
const MOST_TENSORS: usize = 200;

/// A problem that is open.
pub(crate) struct Session {
    pub(crate) judge: Peer,
    pub(crate) reference: Runner,
    arenas: [OwnedFd; 2],
    specs: [Value; 2],
    pub(crate) outputs: OwnedFd,
    pub(crate) init: Value,
    pub(crate) dtype: &'static str,
    pub(crate) slots: usize,
    pub(crate) on_gpu: bool,
    pub(crate) parameter_bytes: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    /// The bytes of each tensor that one call puts out.
    output_sizes: Vec<u64>,
    /// The GPU, where it can be asked how it is doing.
    pub(crate) gpu: Option<Gpu>,
    pub(crate) labels: Vec<String>,
    /// Why there is no model in double precision.
    pub(crate) no_oracle: Option<String>,
    /// Bytes of the device that torch had in the judge at most.
    most_bytes: u64,
    /// What all inputs of one side may take, and all of its outputs, in bytes.
    budget: u64,
    pub(crate) inputs: Value,
    _problem: tempfile::TempDir,
}

impl Session {
    /// Opens a problem: starts its judge and its reference.
    pub(crate) fn open(spares: &Spares, options: &Options, facts: &Facts, problem: &Problem) -> Attempt<Self> {
        let folder = private_folder()?;
        let path = folder.path().join("problem.py");
        fs::write(&path, &problem.source).map_err(fault("cannot write the problem down"))?;
        let file = || launch::memory_file().map_err(fault("cannot share memory"));
        let (arenas, outputs) = ([file()?, file()?], file()?);
        let mut judge = spares.judge()?;
        let dtype = problem.precision.torch_name();
        let budget = arena_bytes(options, facts);
        let message = json!({
            "do": "open", "path": path, "dtype": dtype, "seed": SEED, "most_slots": MOST_SLOTS, "budget": budget,
        });
        let mut said = ask_with(&mut judge, message, &[&arenas[0], &arenas[1], &outputs])?;
        if let Some(defect) = said["defect"].as_str() {
            return Err(Fault(format!("the problem is none: {defect}")).into());
        }
        let specs = [0, 1].map(|side: usize| said["arenas"][side].take());
        let init = said["init"].take();
        let number = |name: &str| said[name].as_u64().unwrap_or(0);
        let mut reference = spares.runner()?;
        let source = written(&reference, &problem.source)?;
        let module = Module { path: &source, name: "reference", entry: "Model" };
        trusted(reference.load(&module, Headers::Stock, PATIENCE))?;
        trusted(reference.map(&specs[0], &arenas[0]))?;
        trusted(reference.construct(&init, dtype))?;
        Ok(Self {
            judge,
            reference,
            arenas,
            specs,
            outputs,
            init,
            dtype,
            slots: usize::try_from(number("slots")).unwrap_or(1).max(1),
            on_gpu: options.device != "cpu",
            parameter_bytes: number("parameter_bytes"),
            input_bytes: number("input_bytes"),
            output_bytes: 0,
            output_sizes: vec![],
            gpu: gpu::ordinal(&options.device).and_then(|ordinal| Gpu::at(ordinal).ok()),
            labels: problem.labels.clone(),
            no_oracle: said["no_oracle"].as_str().map(str::to_owned),
            most_bytes: 0,
            budget,
            inputs: Value::Null,
            _problem: folder,
        })
    }

    /// A process for a candidate, with its text in its folder.
    pub(crate) fn begin(spares: &Spares, source: &str) -> Attempt<Runner> {
        let runner = started(spares.runner())?;
        written(&runner, source)?;
        Ok(runner)
    }

    /// Makes the candidate's model and shows it its inputs; the reference's is made anew, so that both have seen the same.
    pub(crate) fn introduce(&mut self, candidate: &mut Runner) -> Attempt<()> {
        self.introduce_compiled(candidate, None)
    }

    /// The same, with a model that torch compiles in this mode.
    pub(crate) fn introduce_compiled(&mut self, candidate: &mut Runner, compile: Option<&str>) -> Attempt<()> {
        trusted(self.reference.release())?;
        candidate.map(&self.specs[1], &self.arenas[1])?;
        candidate.construct_compiled(&self.init, self.dtype, compile)?;
        trusted(self.reference.construct(&self.init, self.dtype))
    }

    /// The arena of candidates, as a process on the device opens it.
    pub(crate) fn candidate_arena(&self) -> &Value {
        &self.specs[1]
    }

    /// Draws fresh inputs into the first slots, for both.
    pub(crate) fn draw(&mut self, count: usize, signed: bool, rng: &mut StdRng) -> Attempt<()> {
        self.draw_and(count, signed, false, rng)?;
        trusted(self.reference.inputs(&self.inputs)).map(|_| ())
    }

    /// Draws fresh inputs into the first slots, and empties the device's cache where that is asked for. They lie where the
    /// last ones lay, unless `inputs` says otherwise afterwards.
    pub(crate) fn draw_and(&mut self, count: usize, signed: bool, flush: bool, rng: &mut StdRng) -> Attempt<()> {
        let seeds: Vec<u64> = (0..count).map(|_| rng.random::<u64>() >> 12).collect();
        let message = json!({"do": "draw", "seeds": seeds, "signed": signed, "flush": flush});
        let mut said = ask(&mut self.judge, message)?;
        if let Some(inputs) = said.get_mut("inputs") {
            self.inputs = inputs.take();
        }
        Ok(())
    }

    /// Has the reference run.
    pub(crate) fn run_reference(&mut self, slots: &[usize]) -> Attempt<Ran> {
        let Self { reference, judge, on_gpu, .. } = self;
        trusted(reference.run(slots, PATIENCE, &mut Idle { judge, on_gpu: *on_gpu }))
    }

    /// Has the reference make the calls that it is prepared for, and times them alone.
    pub(crate) fn time_reference(&mut self, slots: &[usize]) -> Attempt<Option<Ran>> {
        let Self { reference, judge, on_gpu, .. } = self;
        trusted(reference.go(slots, PATIENCE, &mut Idle { judge, on_gpu: *on_gpu }))
    }

    /// Has the candidate make the calls that it is prepared for, and times them alone.
    pub(crate) fn time_candidate(
        &mut self,
        candidate: &mut Runner,
        slots: &[usize],
        deadline: Duration,
    ) -> Attempt<Option<Ran>> {
        candidate.go(slots, deadline, &mut Idle { judge: &mut self.judge, on_gpu: self.on_gpu })
    }

    /// Has the candidate run; on a GPU, looks at once at places of its output that nobody else knows.
    pub(crate) fn run_candidate(
        &mut self,
        candidate: &mut Runner,
        slots: &[usize],
        deadline: Duration,
        rng: &mut StdRng,
    ) -> Attempt<Ran> {
        let mut idle = Idle { judge: &mut self.judge, on_gpu: self.on_gpu };
        let ran = candidate.run(slots, deadline, &mut idle)?;
        self.witness(candidate, &ran, rng)?;
        Ok(ran)
    }

    /// Looks at once, on a GPU, at places of a candidate's output that nobody else knows, and who else is there.
    pub(crate) fn witness(&mut self, candidate: &mut Runner, ran: &Ran, rng: &mut StdRng) -> Attempt<()> {
        if self.on_gpu {
            let seed = rng.random::<u64>() >> 12;
            ask_about(&mut self.judge, json!({"do": "witness", "seed": seed, "candidate": ran.outputs}))?;
        }
        candidate.peer.be_alone()
    }

    /// Looks for what would pass for the reference's output and is not.
    pub(crate) fn audit(&mut self, tolerance: &Tolerance, rng: &mut StdRng) -> Attempt<()> {
        let count = self.slots.min(2);
        self.draw(count, false, rng)?;
        let slots: Vec<usize> = (0..count).collect();
        let ran = self.run_reference(&slots)?;
        let outputs = json!({"reference": ran.outputs, "candidate": [], "slots": slots});
        let said = ask(&mut self.judge, with(&outputs, &json!({"do": "want"})))?;
        self.copy_side(&said["reads"], "reference", &self.reference.peer)?;
        let how = json!({"do": "audit", "atol": tolerance.atol, "rtol": tolerance.rtol});
        let said = ask(&mut self.judge, with(&outputs, &how))?;
        self.output_sizes = ran.outputs.first().map(places::sizes).unwrap_or_default();
        self.output_bytes = said["output_bytes"].as_u64().unwrap_or(0);
        self.labels
            .extend(said["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        let tensors = said["tensors"].as_u64().unwrap_or(1).max(1) as usize;
        let fit = usize::try_from(self.budget / self.output_bytes.max(1)).unwrap_or(usize::MAX);
        self.slots = self.slots.min(MOST_TENSORS / tensors).min(fit).max(1);
        self.forget()
    }

    /// On a GPU, has outputs of so many calls lie elsewhere in every request from here on, those of both sides.
    pub(crate) fn scatter(&mut self, candidate: Option<&mut Runner>, calls: usize) -> Attempt<()> {
        if !self.on_gpu {
            return Ok(());
        }
        self.forget()?;
        trusted(self.reference.scatter(&self.output_sizes, calls))?;
        candidate.map_or(Ok(()), |candidate| candidate.scatter(&self.output_sizes, calls))
    }

    /// Empties the device's cache.
    pub(crate) fn flush(&mut self) -> Attempt<()> {
        if self.on_gpu { ask(&mut self.judge, json!({"do": "flush"})).map(|_| ()) } else { Ok(()) }
    }

    /// Lets go of a candidate's memory, and of what the judge and the reference keep for later.
    pub(crate) fn forget(&mut self) -> Attempt<()> {
        let said = ask(&mut self.judge, json!({"do": "forget"}))?;
        self.most_bytes = self.most_bytes.max(said["most"].as_u64().unwrap_or(0));
        trusted(self.reference.rest(false))
    }

    /// What a step of a candidate takes on the device beside what this problem holds, in bytes, as far as is known.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        crowd::of_a_step(self.most_bytes, self.reference.most_bytes)
    }
}

/// The idle work that a judge leaves on a GPU once it has emptied the cache.
struct Idle<'a> {
    judge: &'a mut Peer,
    on_gpu: bool,
}

impl Cover for Idle<'_> {
    fn ended(&mut self) -> Attempt<Option<Instant>> {
        if !self.on_gpu {
            return Ok(None);
        }
        let said = ask(self.judge, json!({"do": "idled"}))?;
        let (now, now_ns) = (Instant::now(), process::monotonic_ns());
        let ago_ns = said["ended_ns"].as_u64().map(|ended| now_ns.saturating_sub(ended));
        Ok(ago_ns.and_then(|ago| now.checked_sub(Duration::from_nanos(ago))))
    }
}

/// A process that was started, with nobody's code in it yet: where it was not, that is the machine's doing.
fn started(runner: Attempt<Runner>) -> Attempt<Runner> {
    runner.map_err(|trouble| match trouble {
        Trouble::Failure(failure) => {
            let words = match *failure {
                Failure::Exit { ref stderr, .. } | Failure::Crash { ref stderr, .. } => format!("\n{stderr}"),
                _ => String::new(),
            };
            Fault(format!("a process for candidates does not start: {failure}{words}")).into()
        }
        fault @ Trouble::Fault(_) => fault,
    })
}

const SOURCE: &str = "module.py";
/// The part of a device's memory that all inputs of one side may take: the other side's, both outputs, and what the judge
/// compares with come on top.
const SHARE: u64 = 16;

fn arena_bytes(options: &Options, facts: &Facts) -> u64 {
    let most = if facts.memory_bytes > 0 { facts.memory_bytes / SHARE } else { u64::MAX };
    (options.arena_mib << 20).min(most)
}

/// A module's text in the folder of the process that is to load it, where nobody's code has run yet.
fn written(runner: &Runner, source: &str) -> Attempt<PathBuf> {
    let path = source_of(runner.folder());
    fs::write(&path, source).map_err(fault("cannot write the module down"))?;
    Ok(path)
}

/// Has a candidate's process load its module: the build.
pub(crate) fn load(runner: &mut Runner, headers: Headers, deadline: Duration) -> Attempt<()> {
    let path = source_of(runner.folder());
    runner.load(&candidate_module(&path), headers, deadline)
}

fn private_folder() -> Result<tempfile::TempDir, Fault> {
    tempfile::tempdir().map_err(fault("cannot make a folder"))
}

/// Both objects' members in one.
pub(crate) fn with(one: &Value, other: &Value) -> Value {
    let mut all = one.clone();
    for (name, value) in other.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    all
}

/// Where a folder of this workshop is.
pub(crate) fn source_of(folder: &Path) -> std::path::PathBuf {
    folder.join(SOURCE)
}

/// A candidate's file as a module.
pub(crate) fn candidate_module(path: &Path) -> Module<'_> {
    Module { path, name: "candidate", entry: ENTRY }
}
