//! A problem that is open: its verifier, and its reference in a process like a candidate's.
//!
//! The verifier draws inputs from seeds that it is given here, and compares. The reference runs as candidates run, so what a
//! request costs beside the model is the same for both.

use super::{
    contract::SEED,
    runner::{Arithmetic, Called, Role, Runner},
    values::{Input, OutputTensor},
    verifier::{PATIENCE, Verifier},
    wire::{
        Arena, Ask, Audited, Compared, Comparing, Done, Drawn, Laid, Opened, Outputs, Range, Ranges, Scanned, Sizes,
        Trimmed,
    },
};
use crate::{
    engine::{
        backend::{Found, Look, Looked},
        check::CLOSE,
    },
    hash::Hash,
    result::{
        error::{Attempt, EvalError, fault, trusted},
        failure::{Failure, Fault},
        label::{Kind, Label},
    },
    sandbox::{peer::Peer, socket},
    task::{
        Problem, ReferenceMode, Task, Tolerance,
        signature::{ModuleValue, Signature, TensorLayout},
    },
};
use rand::{Rng, rngs::StdRng};
use std::{
    fs::{self, File},
    os::{fd::OwnedFd, unix::fs::FileExt},
};

/// The most calls in one request.
pub(crate) const MOST_SLOTS: usize = 128;
/// The most tensors in the answer to one request.
const MOST_TENSORS: usize = 200;
/// Bytes at once, out of another process.
const CHUNK: usize = 4 << 20;
/// What a process has on a GPU before it holds a tensor, in bytes, at most.
const CONTEXT: u64 = 1 << 30;
/// What gaps between places for outputs take, in bytes (`harness/scatter.py`).
const GAPS: u64 = 256 << 20;

/// Whether a problem that is open has its part of the device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Laying {
    Out,
    Offloaded,
}

/// A problem that is open.
pub(crate) struct OpenProblem {
    pub(crate) verifier: Verifier,
    pub(crate) reference: Runner,
    arenas: [OwnedFd; 2],
    places: [Arena; 2],
    outputs: OwnedFd,
    pub(crate) init: Input,
    pub(crate) arithmetic: Arithmetic,
    /// Calls whose inputs and outputs fit beside each other.
    pub(crate) slots: usize,
    on_gpu: bool,
    pub(crate) parameter_bytes: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    /// The bytes of each tensor that one call puts out.
    output_sizes: Vec<u64>,
    /// What the module is constructed with, called with, and gives back.
    pub(crate) signature: Signature,
    /// What is known against the problem.
    pub(crate) labels: Vec<Label>,
    /// Why there is no model in double precision.
    pub(crate) no_oracle: Option<String>,
    /// Bytes of the device that torch had at most in the verifier and in the reference's process, since it was opened.
    most_bytes: [u64; 2],
    /// What they are thought to take at least: the verifier until it has compared a candidate's outputs.
    guess: [u64; 2],
    /// How often the device had no memory for references that were replaced, and for all when this was last asked.
    refused: u64,
    told_refused: u64,
    /// Whether that was while it was opened.
    pub(crate) refused_at_opening: bool,
    /// Whether the reference's process was refused memory: it goes on in the way that it took then, however much there is.
    stale: bool,
    /// Whether it has its part of the device's memory.
    laid: Laying,
    /// What all inputs of one side may take, and all of its outputs, in bytes.
    budget: u64,
    /// Where the inputs lie that were drawn last.
    pub(crate) inputs: Vec<Input>,
    /// What a call takes, in nanoseconds.
    pub(crate) call_ns: Option<f64>,
    _folder: tempfile::TempDir,
}

/// The problem of a task.
pub(crate) fn problem(task: &Task) -> Result<&Problem, Fault> {
    let not = || Fault::Machine(format!("task `{}` is no problem in KernelBench's format", task.name));
    task.problem().ok_or_else(not)
}

fn memory_file() -> Attempt<OwnedFd> {
    Ok(socket::memory_file().map_err(fault("cannot share memory"))?)
}

/// What names a problem's session.
pub(crate) fn key(task: &Task) -> Hash {
    let how = task.problem().map(|problem| format!("{} {}", problem.precision.torch_name(), problem.reference.name()));
    // What passes for right that is not is looked for once, at the tolerance that it was opened with.
    let Tolerance { atol, rtol, .. } = task.tolerance;
    Hash::of(format!("{} {atol:e} {rtol:e}\n{}", how.unwrap_or_default(), task.reference()).as_bytes())
}

/// What is known against a problem before it was run.
fn labels(problem: &Problem, kept_whole: Option<String>) -> Vec<Label> {
    let not_cast = |why: String| {
        let text = "KernelBench's own evaluation cannot run it: it casts every input to floating point, and the reference \
                    does not compute with them so";
        Label::new(Kind::Task, format!("{text} ({why})"))
    };
    let known = problem.labels.iter().map(|label| Label::new(Kind::Task, label));
    known.chain(kept_whole.map(not_cast)).collect()
}

impl OpenProblem {
    /// Opens a problem in a verifier and a process for its reference. Its inputs may take `budget` bytes of each side. Calls
    /// `on_device` when it needs the device, with the bytes that it takes there, where they were found.
    pub(crate) fn open(
        mut verifier: Verifier,
        mut reference: Runner,
        problem: &Problem,
        (on_gpu, budget): (bool, u64),
        on_device: &mut dyn FnMut(Option<u64>),
    ) -> Attempt<Self> {
        let folder = tempfile::tempdir().map_err(fault("cannot make a folder"))?;
        let path = folder.path().join("problem.py");
        fs::write(&path, &problem.source).map_err(fault("cannot write the problem down"))?;
        let (arenas, outputs) = ([memory_file()?, memory_file()?], memory_file()?);
        let as_kernelbench = problem.reference == ReferenceMode::KernelBench;
        let arithmetic = Arithmetic { dtype: problem.precision.torch_name(), tf32: as_kernelbench };
        let dtype = arithmetic.dtype.to_owned();
        let scan = Ask::Scan { path: path.clone(), dtype: dtype.clone(), casts_all: as_kernelbench };
        let scanned: Scanned = verifier.ask(&scan)?;
        on_device(scanned.sizes.map(|sizes| bytes_to_open(sizes, budget)));
        let ask = Ask::Open { path, dtype, seed: SEED, casts_all: as_kernelbench, most_slots: MOST_SLOTS, budget };
        let (init, parameter_bytes, input_bytes, slots, no_oracle, kept_whole, places, signature) = match verifier
            .ask_with(&ask, &[&arenas[0], &arenas[1], &outputs])?
        {
            Opened::Laid { init, parameter_bytes, input_bytes, slots, no_oracle, kept_whole, arenas, signature } => {
                (init, parameter_bytes, input_bytes, slots, no_oracle, kept_whole, arenas, *signature)
            }
            Opened::Defect { defect } => {
                return Err(Fault::Reference(format!("not a KernelBench problem: {defect}")).into());
            }
        };
        trusted(reference.load(Role::reference(&problem.source), PATIENCE))?;
        trusted(reference.map_inputs(&places[0], &arenas[0]))?;
        trusted(reference.construct(&init, arithmetic))?;
        Ok(Self {
            verifier,
            reference,
            arenas,
            places,
            outputs,
            init,
            arithmetic,
            slots: slots.max(1),
            on_gpu,
            parameter_bytes,
            input_bytes,
            output_bytes: 0,
            output_sizes: vec![],
            signature,
            labels: labels(problem, kept_whole),
            no_oracle,
            most_bytes: [0; 2],
            guess: [0; 2],
            refused: 0,
            told_refused: 0,
            refused_at_opening: false,
            stale: false,
            laid: Laying::Out,
            budget,
            inputs: vec![],
            call_ns: None,
            _folder: folder,
        })
    }

    /// Gives back what it holds of the device's memory. Its processes stay, each with its context, which costs the driver more
    /// to make than all else.
    pub(crate) fn offload(&mut self) -> Attempt<()> {
        self.laid = Laying::Offloaded;
        self.inputs = vec![];
        trusted(self.reference.trim_memory(true))?;
        let trimmed: Trimmed = self.verifier.ask(&Ask::Offload)?;
        self.note_most(trimmed.most);
        Ok(())
    }

    /// Whether it has.
    pub(crate) fn is_offloaded(&self) -> bool {
        self.laid == Laying::Offloaded
    }

    /// As it was before that.
    pub(crate) fn lay_out(&mut self) -> Attempt<()> {
        let laid = self.take_again();
        self.or_nothing(laid)
    }

    /// Laid out now; where it cannot be, it holds nothing, as before.
    fn or_nothing(&mut self, laid: Attempt<()>) -> Attempt<()> {
        if laid.is_ok() {
            self.laid = Laying::Out;
        } else if let Err(why) = self.offload() {
            return Err(Fault::Machine(format!("a problem's memory is neither laid out nor given back: {why}")).into());
        }
        laid
    }

    fn take_again(&mut self) -> Attempt<()> {
        let Laid { init, arenas } = self.verifier.ask(&Ask::LayOut)?;
        (self.init, self.places) = (init, arenas);
        trusted(self.reference.map_inputs(&self.places[0], &self.arenas[0]))?;
        trusted(self.reference.construct(&self.init, self.arithmetic))
    }

    /// Lays inputs out elsewhere, once the candidate's process has ended; the reference's is to be replaced then. Where they lie
    /// may make calls faster or slower, the same for every process that reads them there. No process has had these arenas open:
    /// what a candidate's process has known is never the reference's.
    pub(crate) fn lay_out_anew(&mut self) -> Attempt<()> {
        self.offload()?;
        self.stale = true;
        let laid = self.take_anew();
        self.or_nothing(laid)
    }

    fn take_anew(&mut self) -> Attempt<()> {
        self.arenas = [memory_file()?, memory_file()?];
        let files = [&self.arenas[0], &self.arenas[1]];
        let Laid { init, arenas } = self.verifier.ask_with(&Ask::LayOutAnew, &files)?;
        (self.init, self.places) = (init, arenas);
        Ok(())
    }

    /// Puts a new process in the place of the reference's.
    pub(crate) fn replace_reference(&mut self, reference: Runner) -> Attempt<()> {
        let old = std::mem::replace(&mut self.reference, reference);
        self.refused += old.refused;
        self.stale = false;
        let role = old.role.clone();
        drop(old);
        let gone = || Fault::Machine("the reference's process was never given its module".to_owned());
        trusted(self.reference.load(role.ok_or_else(gone)?, PATIENCE))?;
        trusted(self.reference.map_inputs(&self.places[0], &self.arenas[0]))?;
        trusted(self.reference.construct(&self.init, self.arithmetic))
    }

    /// Makes the candidate's model and shows it its inputs; the reference's is made anew, so that both have seen the same.
    pub(crate) fn bind(&mut self, candidate: &mut Runner) -> Attempt<()> {
        trusted(self.reference.release_outputs())?;
        candidate.map_inputs(&self.places[1], &self.arenas[1])?;
        candidate.construct(&self.init, self.arithmetic)?;
        trusted(self.reference.construct(&self.init, self.arithmetic))
    }

    /// The arena of candidates, as a process on the device opens it.
    pub(crate) fn candidate_arena(&self) -> &Arena {
        &self.places[1]
    }

    /// Draws fresh inputs into the first slots. They lie where the last ones lay, unless `inputs` says otherwise afterwards.
    pub(crate) fn draw(&mut self, count: usize, signed: bool, rng: &mut StdRng) -> Attempt<()> {
        let seeds = (0..count).map(|_| rng.random::<u64>() >> 12).collect();
        let drawn: Drawn = self.verifier.ask(&Ask::Draw { seeds, signed })?;
        if let Some(inputs) = drawn.inputs {
            self.inputs = inputs;
        }
        Ok(())
    }

    /// Looks at once, on a GPU, at secret places of a candidate's output, and who else is there.
    pub(crate) fn spot_check(&mut self, candidate: &mut Runner, called: &Called, rng: &mut StdRng) -> Attempt<()> {
        if self.on_gpu {
            let (seed, candidate) = (rng.random::<u64>() >> 12, called.outputs.clone());
            self.verifier.ask_about::<Done>(&Ask::SpotCheck { seed, candidate })?;
        }
        candidate.peer.be_alone()
    }

    /// Looks for what would pass for the reference's output and is not.
    pub(crate) fn audit(&mut self, tolerance: &Tolerance, rng: &mut StdRng) -> Attempt<()> {
        let slots: Vec<usize> = (0..self.slots.min(2)).collect();
        self.draw(slots.len(), false, rng)?;
        trusted(self.reference.set_inputs(&self.inputs))?;
        let called = trusted(self.reference.run(&slots, PATIENCE, &mut ()))?;
        let first = called.outputs.first().map(|output| output.tensors()).unwrap_or_default();
        self.signature.outputs =
            first.iter().enumerate().map(|(at, tensor)| described(at, tensor, first.len())).collect();
        self.output_sizes = first.iter().map(|tensor: &&OutputTensor| tensor.bytes).collect();
        let outputs = Outputs { reference: called.outputs, candidate: vec![], slots };
        if !self.on_gpu {
            let ranges: Ranges = self.verifier.ask(&Ask::Ranges(outputs.clone()))?;
            trusted(self.copy(&ranges.reads, &self.reference.peer, "reference"))?;
        }
        let Tolerance { atol, rtol, .. } = *tolerance;
        let audited: Audited = self.verifier.ask(&Ask::Audit(Comparing { outputs, atol, rtol, oracle: None }))?;
        self.output_bytes = audited.output_bytes;
        self.labels.extend(audited.labels.into_iter().map(|label| Label::new(Kind::Task, label)));
        let fit = usize::try_from(self.budget / self.output_bytes.max(1)).unwrap_or(usize::MAX);
        self.slots = self.slots.min(MOST_TENSORS / audited.tensors.max(1)).min(fit).max(1);
        self.trim_memory()?;
        let [verifier, reference] = std::mem::take(&mut self.most_bytes);
        // Outputs at places of their own. That the oracle is needed is known once outputs differ.
        self.guess = [verifier, reference + self.slots as u64 * self.output_bytes + GAPS];
        self.refused_at_opening = self.was_refused();
        Ok(())
    }

    /// Whether the device had no memory for the reference, since this was last asked: some of its calls may have been made in
    /// another way than the others, and taken longer.
    pub(crate) fn was_refused(&mut self) -> bool {
        let refused = self.is_refused();
        self.told_refused = self.refused + self.reference.refused;
        self.stale |= refused;
        refused
    }

    /// The same, to be asked again.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused + self.reference.refused > self.told_refused
    }

    /// Whether the reference's process is to be replaced before it is compared with or timed.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// On a GPU, has outputs of so many calls lie elsewhere in every request from here on, those of both sides.
    pub(crate) fn randomize_allocations(&mut self, candidate: &mut Runner, calls: usize) -> Attempt<()> {
        if !self.on_gpu {
            return Ok(());
        }
        self.trim_memory()?;
        trusted(self.reference.randomize_allocations(&self.output_sizes, calls))?;
        candidate.randomize_allocations(&self.output_sizes, calls)
    }

    /// Lets go of a candidate's memory, and of what the verifier and the reference keep for later.
    pub(crate) fn trim_memory(&mut self) -> Attempt<()> {
        let trimmed: Trimmed = self.verifier.ask(&Ask::TrimMemory { all: true })?;
        trusted(self.reference.trim_memory(false))?;
        self.note_most(trimmed.most);
        Ok(())
    }

    fn note_most(&mut self, verifier: u64) {
        let now = [verifier, self.reference.most_bytes];
        self.most_bytes = std::array::from_fn(|side| self.most_bytes[side].max(now[side]));
    }

    /// What a step of a candidate takes on the device beside what this problem holds, in bytes, as far as those before it
    /// say: the verifier's part, the reference's, and a candidate's, which may hold a little more.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        let [verifier, reference] = self.takes();
        verifier + reference + self.candidate_bytes() + CONTEXT
    }

    /// The arenas, which it has there while it is laid out, in bytes. The models are counted with what their processes take.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.places.iter().map(|place| place.bytes).sum()
    }

    /// What all of it takes from its opening to its certificate, in bytes: a sanitizer has a process of its own call the candidate,
    /// while the verifier looks at nothing.
    pub(crate) fn whole_bytes(&self) -> u64 {
        let [verifier, reference] = self.takes();
        let sanitized = self.candidate_bytes() + self.input_bytes + CONTEXT;
        self.held_bytes() + reference + self.candidate_bytes() + CONTEXT + verifier.max(sanitized)
    }

    /// What Nsight Compute copies of a candidate before it replays: what it takes, and the inputs, which it has twice under a
    /// profiler, in bytes.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.candidate_bytes() + 2 * self.input_bytes
    }

    /// What the verifier and the reference take of the device at most, in bytes.
    fn takes(&self) -> [u64; 2] {
        std::array::from_fn(|side| self.most_bytes[side].max(self.guess[side]))
    }

    /// What a candidate takes there, which may hold a little more than the reference, in bytes.
    fn candidate_bytes(&self) -> u64 {
        let [_, reference] = self.takes();
        reference + reference / 4
    }

    /// Compares every element of what both put out in these calls.
    pub(crate) fn verify(
        &mut self,
        candidate: &Runner,
        [right, got]: [&Called; 2],
        slots: &[usize],
        look: &Look<'_>,
    ) -> Attempt<Found> {
        let Tolerance { atol, rtol, .. } = *look.tolerance;
        let outputs =
            Outputs { reference: right.outputs.clone(), candidate: got.outputs.clone(), slots: slots.to_vec() };
        let comparing = Comparing { outputs, atol, rtol, oracle: look.oracle().then_some(CLOSE) };
        let ask = if self.on_gpu {
            Ask::CompareInPlace(comparing)
        } else {
            let ranges: Ranges = self.verifier.ask_about(&Ask::Ranges(comparing.outputs.clone()))?;
            formed(ranges.form)?;
            trusted(self.copy(&ranges.reads, &self.reference.peer, "reference"))?;
            self.copy(&ranges.reads, &candidate.peer, "candidate")?;
            Ask::Compare(comparing)
        };
        let compared: Compared = self.verifier.ask_about(&ask)?;
        formed(compared.form.clone())?;
        if compared.late.is_some() {
            return Err(candidate.peer.forbidden("go on writing its output after it had returned"));
        }
        let found = judged(compared, look)?;
        if look.oracle() {
            self.guess[0] = 0;
        }
        Ok(found)
    }

    /// Copies what the verifier wants out of a process that is stopped.
    fn copy(&self, ranges: &[Range], peer: &Peer, side: &str) -> Attempt<()> {
        let file = File::from(self.outputs.try_clone().map_err(fault("cannot share memory"))?);
        let mut chunk = vec![0; CHUNK];
        for Range { address, bytes, to, .. } in ranges.iter().filter(|range| range.side == side) {
            for done in (0..*bytes).step_by(CHUNK) {
                let part = &mut chunk[..usize::try_from(bytes - done).unwrap_or(CHUNK).min(CHUNK)];
                peer.read_memory(address + done, part).map_err(|e| unreadable(&e))?;
                file.write_all_at(part, to + done).map_err(fault("cannot write shared memory"))?;
            }
        }
        Ok(())
    }
}

/// What a problem takes on the device while it is opened: the inputs of both sides, the model of the reference and that in
/// double precision, and a call or two with what is looked at there.
fn bytes_to_open(sizes: Sizes, budget: u64) -> u64 {
    let slots = (budget / sizes.inputs.max(1)).clamp(1, MOST_SLOTS as u64);
    2 * slots * sizes.inputs + 4 * sizes.parameters + 3 * (sizes.inputs + sizes.outputs) + 2 * CONTEXT
}

/// A tensor that a call puts out, by its place where there are several.
fn described(at: usize, tensor: &OutputTensor, of: usize) -> ModuleValue {
    let name = if of == 1 { "output".to_owned() } else { format!("output {at}") };
    let layout =
        TensorLayout { dtype: tensor.dtype.clone(), shape: tensor.shape.clone(), stride: tensor.stride.clone() };
    ModuleValue { name, tensor: Some(layout), value: String::new() }
}

fn unreadable(error: &std::io::Error) -> EvalError {
    Failure::Interface { log: format!("its output is not where it says it is: {error}") }.into()
}

fn formed(problem: Option<String>) -> Attempt<()> {
    problem.map_or(Ok(()), |log| Err(Failure::Interface { log }.into()))
}

fn judged(compared: Compared, look: &Look<'_>) -> Attempt<Found> {
    let case = || look.case.to_owned();
    if let Some(found) = compared.mismatch {
        let failure = Failure::Mismatch {
            case: case(),
            argument: found.output,
            wrong: found.wrong,
            total: found.total,
            worst_at: found.worst_at,
            expected: found.expected,
            got: found.got,
            unwritten: 0,
            nan: found.nan,
            while_timed: look.while_timed(),
            spread: Box::new(found.spread),
        };
        if look.calls == Looked::Beyond && !compared.passed_inputs {
            return Ok(Found { differs: Some(failure), ..Found::default() });
        }
        return Err(failure.into());
    }
    if let Some(index) = compared.changed {
        return Err(Failure::InputChanged { case: case(), argument: format!("input {index}") }.into());
    }
    let errors = compared.errors.iter().map(|errors| (errors.reference, errors.candidate)).collect();
    Ok(Found { errors, no_oracle: compared.no_oracle, differs: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Precision, task::load};

    #[test]
    fn a_session_is_that_of_a_text_a_precision_and_a_tolerance() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("1_One.py");
        std::fs::write(&file, "class Model(): pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n").unwrap();
        let task = load::task(&file).unwrap();
        let mut wider = task.clone();
        wider.tolerance.atol *= 2.0;
        assert_eq!(key(&task), key(&task.clone()));
        assert_ne!(key(&task), key(&wider));
        assert_ne!(key(&task), key(&task.clone().in_precision(Precision::Bf16)));
    }
}
