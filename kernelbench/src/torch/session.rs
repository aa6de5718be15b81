//! One problem, its judge, and its reference in a process like a candidate's.
//!
//! The judge draws inputs from seeds that it is given here, and compares. The reference runs as candidates run, so what a
//! request costs beside the model is the same for both.

use super::{
    ENTRY, Options, SEED,
    harness::Harness,
    launch,
    peer::Peer,
    python::{Facts, Python},
    runner::{Ran, Runner, trusted},
};
use crate::{
    failure::{Failure, Fault},
    native::trouble::{Attempt, Trouble, fault},
    task::{Problem, Tolerance},
};
use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};
use std::{fs, os::fd::OwnedFd, path::Path, time::Duration};

/// How long the judge may take for one thing.
const PATIENCE: Duration = Duration::from_secs(300);
/// The most calls in one request.
pub(crate) const MOST_SLOTS: usize = 64;
/// Bytes at once, out of another process.
const CHUNK: usize = 4 << 20;

/// A problem that is open.
pub(crate) struct Session {
    pub(crate) judge: Peer,
    pub(crate) reference: Runner,
    arenas: [OwnedFd; 2],
    specs: [Value; 2],
    outputs: OwnedFd,
    pub(crate) init: Value,
    pub(crate) dtype: &'static str,
    pub(crate) slots: usize,
    pub(crate) on_gpu: bool,
    pub(crate) parameter_bytes: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) labels: Vec<String>,
    /// What the reference's call takes, roughly.
    pub(crate) typical: Duration,
    pub(crate) inputs: Value,
    _problem: tempfile::TempDir,
}

/// What one look at the outputs found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Root mean square error against double precision, reference and candidate, the worst of all outputs.
    pub(crate) errors: Vec<(f64, f64)>,
    /// Why there is no such error.
    pub(crate) no_oracle: Option<String>,
}

/// How closely a look looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<'a> {
    pub(crate) tolerance: &'a Tolerance,
    pub(crate) case: &'a str,
    pub(crate) oracle: bool,
    pub(crate) while_timed: bool,
}

impl Session {
    /// Opens a problem: starts its judge and its reference.
    pub(crate) fn open(
        python: &Python,
        harness: &Harness,
        facts: &Facts,
        options: &Options,
        problem: &Problem,
    ) -> Attempt<Self> {
        let folder = private_folder()?;
        let path = folder.path().join("problem.py");
        fs::write(&path, &problem.source).map_err(fault("cannot write the problem down"))?;
        let file = || launch::memory_file().map_err(fault("cannot share memory"));
        let (arenas, outputs) = ([file()?, file()?], file()?);
        let mut judge = python.judge(harness, [&arenas[0], &arenas[1]], &outputs)?;
        let dtype = problem.precision.torch_name();
        let budget = options.arena_mib << 20;
        let message = json!({
            "do": "open", "path": path, "dtype": dtype, "seed": SEED, "most_slots": MOST_SLOTS, "budget": budget,
        });
        let mut said = ask(&mut judge, message)?;
        if let Some(defect) = said["defect"].as_str() {
            return Err(Fault(format!("the problem is none: {defect}")).into());
        }
        let specs = [0, 1].map(|side: usize| {
            let mut spec = said["arenas"][side].take();
            spec["descriptor"] = json!(launch::number(&arenas[side]));
            spec
        });
        let init = said["init"].take();
        let number = |name: &str| said[name].as_u64().unwrap_or(0);
        let mut reference = start(python, harness, facts, &arenas[0], &problem.source)?;
        let source = reference.folder().join(SOURCE);
        trusted(reference.load(&source, "reference", "Model", PATIENCE))?;
        trusted(reference.construct(&init, dtype))?;
        trusted(reference.map(&specs[0]))?;
        Ok(Self {
            judge,
            reference,
            arenas,
            specs,
            outputs,
            init,
            dtype,
            slots: usize::try_from(number("slots")).unwrap_or(1).max(1),
            on_gpu: python.device != "cpu",
            parameter_bytes: number("parameter_bytes"),
            input_bytes: number("input_bytes"),
            output_bytes: 0,
            labels: problem.labels.clone(),
            typical: Duration::ZERO,
            inputs: Value::Null,
            _problem: folder,
        })
    }

    /// Starts a candidate's process and has it load its module: the build.
    pub(crate) fn load(
        python: &Python,
        harness: &Harness,
        facts: &Facts,
        arena: &OwnedFd,
        source: &str,
        deadline: Duration,
    ) -> Attempt<Runner> {
        let mut runner = start(python, harness, facts, arena, source)?;
        let path = runner.folder().join(SOURCE);
        runner.load(&path, "candidate", ENTRY, deadline)?;
        Ok(runner)
    }

    /// The arena of candidates.
    pub(crate) fn arena(&self) -> Result<OwnedFd, Fault> {
        self.arenas[1].try_clone().map_err(fault("cannot share memory"))
    }

    /// Makes the candidate's model and shows it its inputs; the reference's is made anew, so that both have seen the same.
    pub(crate) fn introduce(&mut self, candidate: &mut Runner) -> Attempt<()> {
        trusted(self.reference.release())?;
        candidate.construct(&self.init, self.dtype)?;
        candidate.map(&self.candidate_arena(candidate))?;
        trusted(self.reference.construct(&self.init, self.dtype))
    }

    pub(crate) fn candidate_arena(&self, candidate: &Runner) -> Value {
        let mut spec = self.specs[1].clone();
        spec["descriptor"] = json!(candidate.peer.arena);
        spec
    }

    /// Draws fresh inputs into the first slots, for both.
    pub(crate) fn draw(&mut self, count: usize, signed: bool, rng: &mut StdRng) -> Attempt<()> {
        let seeds: Vec<u64> = (0..count).map(|_| rng.random::<u64>() >> 12).collect();
        self.inputs = ask(&mut self.judge, json!({"do": "draw", "seeds": seeds, "signed": signed}))?["inputs"].take();
        trusted(self.reference.inputs(&self.inputs))
    }

    /// Has the reference run.
    pub(crate) fn run_reference(&mut self, slots: &[usize]) -> Attempt<Ran> {
        trusted(self.reference.run(slots, PATIENCE))
    }

    /// Has the candidate run; on a GPU, looks at once at places of its output that nobody else knows.
    pub(crate) fn run_candidate(
        &mut self,
        candidate: &mut Runner,
        slots: &[usize],
        deadline: Duration,
        rng: &mut StdRng,
    ) -> Attempt<Ran> {
        let ran = candidate.run(slots, deadline)?;
        if self.on_gpu {
            let seed = rng.random::<u64>() >> 12;
            self.ask_about(json!({"do": "witness", "seed": seed, "candidate": ran.outputs}))?;
        }
        candidate.peer.be_alone()?;
        Ok(ran)
    }

    /// Compares every element of what both put out in these runs.
    pub(crate) fn verify(
        &mut self,
        candidate: &Runner,
        reference: &Ran,
        got: &Ran,
        slots: &[usize],
        look: &Look<'_>,
    ) -> Attempt<Found> {
        let outputs = json!({"reference": reference.outputs, "candidate": got.outputs, "slots": slots});
        let said = self.ask_about(with(&outputs, &json!({"do": "want"})))?;
        if let Some(form) = said["form"].as_str() {
            return Err(Failure::Interface { log: form.to_owned() }.into());
        }
        self.copy(&said["reads"], candidate)?;
        let Tolerance { atol, rtol, .. } = *look.tolerance;
        let how = json!({"do": "compare", "atol": atol, "rtol": rtol, "oracle": look.oracle, "inputs": true});
        let said = self.ask_about(with(&outputs, &how))?;
        if self.on_gpu {
            let late = self.ask_about(json!({"do": "late"}))?;
            if !late["late"].is_null() {
                return Err(candidate.peer.forbidden("go on writing its output after it had returned"));
            }
        }
        judged(&said, look)
    }

    /// Looks for what would pass for the reference's output and is not.
    pub(crate) fn audit(&mut self, tolerance: &Tolerance, rng: &mut StdRng) -> Attempt<()> {
        let count = self.slots.min(2);
        let mut runs = vec![];
        self.draw(count, false, rng)?;
        for slot in 0..count {
            runs.push(self.run_reference(&[slot])?);
        }
        let slots: Vec<usize> = (0..count).collect();
        let ran = self.run_reference(&slots)?;
        let outputs = json!({"reference": ran.outputs, "candidate": [], "slots": slots});
        let said = ask(&mut self.judge, with(&outputs, &json!({"do": "want"})))?;
        self.copy_side(&said["reads"], "reference", &self.reference.peer)?;
        let how = json!({"do": "audit", "atol": tolerance.atol, "rtol": tolerance.rtol});
        let said = ask(&mut self.judge, with(&outputs, &how))?;
        self.output_bytes = said["output_bytes"].as_u64().unwrap_or(0);
        self.labels
            .extend(said["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        self.typical = runs.iter().map(|run| run.outside).min().unwrap_or_default();
        trusted(self.reference.release())
    }

    /// Empties the device's cache.
    pub(crate) fn flush(&mut self) -> Attempt<()> {
        if self.on_gpu { ask(&mut self.judge, json!({"do": "flush"})).map(|_| ()) } else { Ok(()) }
    }

    /// Lets go of a candidate's memory.
    pub(crate) fn forget(&mut self) -> Attempt<()> {
        ask(&mut self.judge, json!({"do": "forget"})).map(|_| ())
    }

    /// Asks the judge about something that a candidate said: where the judge cannot make sense of it, nobody can.
    fn ask_about(&mut self, message: Value) -> Attempt<Value> {
        let said = self.judge.ask(message, PATIENCE)?.said;
        match said["broken"].as_str() {
            Some(why) => Err(Failure::Interface { log: format!("its output cannot be read: {why}") }.into()),
            None => Ok(said),
        }
    }

    fn copy(&self, reads: &Value, candidate: &Runner) -> Attempt<()> {
        self.copy_side(reads, "reference", &self.reference.peer)?;
        self.copy_side(reads, "candidate", &candidate.peer)
    }

    /// Copies what the judge wants out of a process that stands still.
    fn copy_side(&self, reads: &Value, side: &str, peer: &Peer) -> Attempt<()> {
        use std::os::unix::fs::FileExt;
        let file = fs::File::from(self.outputs.try_clone().map_err(fault("cannot share memory"))?);
        let mut chunk = vec![0; CHUNK];
        for read in reads.as_array().into_iter().flatten().filter(|read| read[0] == side) {
            let [address, length, at] = [1, 2, 3].map(|index| read[index].as_u64().unwrap_or(0));
            for done in (0..length).step_by(CHUNK) {
                let part = &mut chunk[..usize::try_from(length - done).unwrap_or(CHUNK).min(CHUNK)];
                peer.read_memory(address + done, part).map_err(|e| unreadable(&e))?;
                file.write_all_at(part, at + done).map_err(fault("cannot write shared memory"))?;
            }
        }
        Ok(())
    }
}

fn unreadable(error: &std::io::Error) -> Trouble {
    Failure::Interface { log: format!("its output is not where it says it is: {error}") }.into()
}

fn judged(said: &Value, look: &Look<'_>) -> Attempt<Found> {
    let case = || look.case.to_owned();
    if let Some(found) = said.get("mismatch") {
        let number = |name: &str| found[name].as_u64().unwrap_or(0);
        let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
        let failure = Failure::Mismatch {
            case: case(),
            argument: text("output"),
            wrong: number("wrong"),
            total: number("total"),
            worst_at: number("worst_at"),
            expected: text("expected"),
            got: text("got"),
            unwritten: 0,
            nan: number("nan"),
            while_timed: look.while_timed,
        };
        return Err(failure.into());
    }
    if let Some(index) = said["changed"].as_u64() {
        return Err(Failure::InputChanged { case: case(), argument: format!("input {index}") }.into());
    }
    let pair = |error: &Value| Some((error["reference"].as_f64()?, error["candidate"].as_f64()?));
    let errors = said["errors"].as_array().into_iter().flatten().filter_map(pair).collect();
    Ok(Found { errors, no_oracle: said["no_oracle"].as_str().map(str::to_owned) })
}

const SOURCE: &str = "module.py";

fn start(python: &Python, harness: &Harness, facts: &Facts, arena: &OwnedFd, source: &str) -> Attempt<Runner> {
    let folder = tempfile::tempdir().map_err(fault("cannot make a folder"))?;
    for part in ["tmp", "extensions", "triton", "inductor", "cuda"] {
        fs::create_dir(folder.path().join(part)).map_err(fault("cannot make a folder"))?;
    }
    fs::write(folder.path().join(SOURCE), source).map_err(fault("cannot write the module down"))?;
    let peer = python.runner(harness, facts, folder.path(), arena)?;
    Ok(Runner::new(peer, folder))
}

fn private_folder() -> Result<tempfile::TempDir, Fault> {
    tempfile::tempdir().map_err(fault("cannot make a folder"))
}

fn with(one: &Value, other: &Value) -> Value {
    let mut all = one.clone();
    for (name, value) in other.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    all
}

/// Asks the judge; what breaks there is no candidate's doing.
fn ask(judge: &mut Peer, message: Value) -> Attempt<Value> {
    let what = message["do"].to_string();
    let reply = judge.ask(message, PATIENCE).map_err(|trouble| match trouble {
        Trouble::Failure(failure) => Fault(format!("the harness's trusted side broke at {what}: {failure}")).into(),
        fault @ Trouble::Fault(_) => fault,
    })?;
    match reply.said["broken"].as_str() {
        Some(why) => {
            let trace = reply.said["traceback"].as_str().unwrap_or_default();
            Err(Fault(format!("the problem or the harness broke at {what}: {why}\n{trace}")).into())
        }
        None => Ok(reply.said),
    }
}

/// Where a folder of this workshop is.
pub(crate) fn source_of(folder: &Path) -> std::path::PathBuf {
    folder.join(SOURCE)
}
