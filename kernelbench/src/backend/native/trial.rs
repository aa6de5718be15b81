//! Are both given the same, and do they put out the same?
//!
//! A trial is one case with a child for the reference and a child for the candidate. Contents are drawn here, written to
//! both, and looked at here again afterwards.

use super::worker::{Clocked, Launch, Worker};
use crate::{
    engine::compare::{Comparison, compare},
    result::{
        error::{Attempt, Trouble, fault},
        failure::{Failure, Fault},
    },
    task::{
        Dtype, Tolerance,
        fill::fill,
        layout::{Array, Plan},
    },
};
use rand::{Rng, rngs::StdRng};
use std::{path::Path, time::Duration};

/// The reference's own deadline.
const PATIENCE: Duration = Duration::from_mins(1);

/// Contents of all inputs of a case.
pub(crate) struct Draw(Vec<Vec<u8>>);

impl Draw {
    /// Draws every input; outputs stay empty.
    pub(crate) fn new(plan: &Plan, rng: &mut StdRng) -> Self {
        let mut contents = |array: &Array| {
            let mut bytes = vec![0; if array.is_input() { array.bytes } else { 0 }];
            fill(&mut bytes, array.dtype, array.fill, rng);
            bytes
        };
        Self(plan.arrays.iter().map(&mut contents).collect())
    }

    /// The same contents, each array turned by so many elements as the generator says: new at every place.
    pub(crate) fn turned(&self, plan: &Plan, rng: &mut StdRng) -> Contents<'_> {
        let turn = |(array, bytes): (&Array, &Vec<u8>)| {
            let elements = bytes.len() / array.dtype.bytes();
            if elements == 0 { 0 } else { rng.random_range(0..elements) * array.dtype.bytes() }
        };
        Contents { draw: self, turns: plan.arrays.iter().zip(&self.0).map(turn).collect() }
    }

    /// The contents as drawn.
    pub(crate) fn as_drawn(&self) -> Contents<'_> {
        Contents { draw: self, turns: vec![0; self.0.len()] }
    }
}

/// What the inputs of one slot hold.
pub(crate) struct Contents<'a> {
    draw: &'a Draw,
    turns: Vec<usize>,
}

impl Contents<'_> {
    fn parts(&self, array: usize) -> (&[u8], &[u8]) {
        let (before, after) = self.draw.0[array].split_at(self.turns[array]);
        (after, before)
    }

    /// Writes one array's contents.
    pub(crate) fn write(&self, array: usize, to: &mut [u8]) {
        let (first, second) = self.parts(array);
        to[..first.len()].copy_from_slice(first);
        to[first.len()..].copy_from_slice(second);
    }

    fn is_in(&self, array: usize, found: &[u8]) -> bool {
        let (first, second) = self.parts(array);
        &found[..first.len()] == first && &found[first.len()..] == second
    }
}

/// One case, a child for each of the two.
pub(crate) struct Trial<'a> {
    plan: &'a Plan,
    tolerance: &'a Tolerance,
    pub(crate) reference: Worker,
    pub(crate) candidate: Worker,
    /// What the candidate's outputs held before the call, by slot: one element's bytes.
    poisons: Vec<[u8; 8]>,
}

impl<'a> Trial<'a> {
    /// Starts both children, with so many slots each.
    pub(crate) fn start(
        launch: &Launch,
        plan: &'a Plan,
        tolerance: &'a Tolerance,
        slots: usize,
        [reference, candidate]: [&Path; 2],
    ) -> Attempt<Self> {
        let reference = trusted(Worker::start(launch, plan, slots, reference), "while it was loaded")?;
        let candidate = Worker::start(launch, plan, slots, candidate)?;
        Ok(Self { plan, tolerance, reference, candidate, poisons: vec![[0; 8]; slots] })
    }

    /// Writes the inputs of a slot for both, and poisons the outputs, each with a poison of its own.
    pub(crate) fn fill(&mut self, slot: usize, contents: &Contents<'_>, rng: &mut StdRng) {
        let (for_reference, for_candidate) = (rng.random(), rng.random());
        self.poisons[slot] = for_candidate;
        let mut sides = [(&mut self.reference, for_reference), (&mut self.candidate, for_candidate)];
        if rng.random() {
            // Who is filled last finds more of its contents in the caches.
            sides.reverse();
        }
        for (worker, noise) in sides {
            for (at, array) in self.plan.arrays.iter().enumerate() {
                let place = worker.segment.array_mut(slot, array);
                if array.is_input() {
                    contents.write(at, place);
                } else {
                    spread(poison(array.dtype, noise), array.dtype, place);
                }
            }
        }
    }

    /// Has the reference run; its failure is the machine's or the task's fault.
    pub(crate) fn run_reference(&mut self, count: usize) -> Attempt<Clocked> {
        trusted(self.reference.call(count, PATIENCE), "in its own process")
    }

    /// Has the candidate run.
    pub(crate) fn run_candidate(&mut self, count: usize, deadline: Duration) -> Attempt<Clocked> {
        self.candidate.call(count, deadline)
    }

    /// Looks at what the candidate left in a slot: its surroundings, its inputs, its outputs beside the reference's.
    pub(crate) fn verify(&self, slot: usize, contents: &Contents<'_>, while_timed: bool) -> Attempt<()> {
        let case = || self.plan.case.clone();
        let segment = &self.candidate.segment;
        for array in &self.plan.arrays {
            if !segment.zones_are_intact(slot, array) {
                return Err(Failure::OutOfBounds { case: case(), argument: array.name.clone() }.into());
            }
        }
        for (at, array) in self.plan.arrays.iter().enumerate().filter(|(_, array)| !array.is_output()) {
            if !contents.is_in(at, segment.array(slot, array)) {
                return Err(Failure::InputChanged { case: case(), argument: array.name.clone() }.into());
            }
        }
        for array in self.plan.arrays.iter().filter(|array| array.is_output()) {
            let poison = poison(array.dtype, self.poisons[slot]);
            let poison = (!array.is_input()).then(|| &poison[..array.dtype.bytes()]);
            let (right, got) = (self.reference.segment.array(slot, array), segment.array(slot, array));
            let found = compare(array.dtype, right, got, self.tolerance, poison);
            if !found.passes(self.tolerance.share) {
                return Err(mismatch(case(), array, &found, while_timed).into());
            }
        }
        Ok(())
    }
}

/// A failure of the reference is no candidate's.
pub(crate) fn trusted<T>(attempt: Attempt<T>, when: &str) -> Attempt<T> {
    attempt.map_err(|trouble| match trouble {
        Trouble::Failure(failure) => Fault(format!("the task's reference failed {when}: {failure}")).into(),
        fault @ Trouble::Fault(_) => fault,
    })
}

pub(crate) fn mismatch(case: String, array: &Array, found: &Comparison, while_timed: bool) -> Failure {
    Failure::Mismatch {
        case,
        argument: array.name.clone(),
        wrong: found.wrong,
        total: found.total,
        worst_at: found.worst_at,
        expected: found.expected.to_string(),
        got: found.got.to_string(),
        unwritten: found.unwritten,
        nan: found.nan,
        while_timed,
    }
}

/// The element that outputs hold before a call: a NaN with a random payload, or a random whole number.
pub(crate) fn poison(dtype: Dtype, noise: [u8; 8]) -> [u8; 8] {
    let word = u64::from_ne_bytes(noise);
    let narrow = |bits: u16| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&bits.to_ne_bytes());
        bytes
    };
    let single = |bits: u32| {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&bits.to_ne_bytes());
        bytes
    };
    match dtype {
        Dtype::F16 => narrow(0x7e00 | (word as u16 & 0x81ff)),
        Dtype::Bf16 => narrow(0x7fc0 | (word as u16 & 0x803f)),
        Dtype::F32 => single(0x7fc0_0000 | (word as u32 & 0x803f_ffff)),
        Dtype::F64 => (0x7ff8_0000_0000_0000 | (word & 0x8007_ffff_ffff_ffff)).to_ne_bytes(),
        Dtype::I32 => single(word as u32),
        Dtype::I64 => noise,
    }
}

fn spread(element: [u8; 8], dtype: Dtype, array: &mut [u8]) {
    let element = &element[..dtype.bytes()];
    let Some(first) = array.get_mut(..element.len()) else { return };
    first.copy_from_slice(element);
    let mut done = element.len();
    while done < array.len() {
        let next = done.min(array.len() - done);
        array.copy_within(..next, done);
        done += next;
    }
}

/// A deadline from the reference's own time.
pub(crate) fn deadline(reference: Duration, floor: Duration) -> Duration {
    floor + reference * 20
}

/// A fault for a plan that cannot be made: the suite was to hold cases that fit alone.
pub(crate) fn plan(context: &crate::task::KernelContext, case: &crate::task::Case) -> Result<Plan, Fault> {
    Plan::of(context, case).map_err(|e| fault("the task does not fit together")(std::io::Error::other(e)))
}
