//! Both sides of a problem: the reference's process and the candidate's, called on inputs that a verifier draws.
//!
//! Both are prepared: they drop what they put out last, seed, and choose their slots. Then they are stopped, and only now are
//! inputs drawn. A process is resumed by a number, makes its calls, and answers with a number and the addresses of its
//! outputs: the clock runs from when the GPU is free for it until the GPU is done with it, and nothing else lies between.
//! Then it is stopped again, and its outputs are read where they lie.

use super::{
    problem::OpenProblem,
    runner::{Called, Runner},
};
use crate::{
    engine::{
        backend::{Found, Inputs, Look, Pair, Side},
        check::REFERENCE_PATIENCE,
        sessions::lock,
    },
    lease::{Compiling, Lease},
    measure::{floor::Traffic, gpu_clock::GpuClock, reading::Reading},
    result::{
        error::{Attempt, trusted},
        failure::Fault,
    },
    sandbox::layer::Layer,
    task::Case,
};
use rand::{Rng, rngs::StdRng};
use std::{sync::Mutex, time::Duration};

/// Requests that may be lost because outputs lay at new places, before every answer has to describe them.
const MOST_LOST: u32 = 5;
/// Slots that inputs are drawn into for a check, of which one is called.
const TO_CHOOSE_FROM: usize = 2;

/// Both sides of one problem.
pub(crate) struct TorchPair<'a> {
    problem: &'a mut OpenProblem,
    candidate: &'a mut Runner,
    /// On a GPU, the work around timed requests.
    clock: Option<&'a Mutex<GpuClock>>,
    /// The slots that a request calls.
    slots: Vec<usize>,
    timed: bool,
    /// Whether a side's next answer must describe its outputs, for where they lie is not known.
    unknown: [bool; 2],
    lost: [u32; 2],
    /// What the last requests put out.
    called: [Option<Called>; 2],
}

impl<'a> TorchPair<'a> {
    /// A pair whose candidate was shown its inputs.
    pub(super) fn new(
        problem: &'a mut OpenProblem,
        candidate: &'a mut Runner,
        clock: Option<&'a Mutex<GpuClock>>,
    ) -> Self {
        let (slots, called) = (vec![0], [None, None]);
        Self { problem, candidate, clock, slots, timed: false, unknown: [true; 2], lost: [0; 2], called }
    }

    /// Has a side make calls, in an answer that describes the outputs or in a short one.
    fn request(&mut self, side: Side, described: bool, deadline: Duration) -> Attempt<Option<Called>> {
        let runner = match side {
            Side::Reference => &mut self.problem.reference,
            Side::Candidate => &mut *self.candidate,
        };
        // Whoever only checks does so beside others, and nobody reads its clock.
        let mut clock = self.clock.filter(|_| self.timed).map(lock);
        let mut around = clock.as_mut().map(|clock| clock.before()).transpose()?;
        if described {
            runner.run(&self.slots, deadline, &mut around).map(Some)
        } else {
            runner.go(&self.slots, deadline, &mut around)
        }
    }

    /// Looks at what the candidate's calls put out, before anything else runs.
    fn look_at(&mut self, called: Option<&Called>, rng: &mut StdRng) -> Attempt<()> {
        match called {
            Some(called) => self.problem.spot_check(self.candidate, called, rng),
            None => self.candidate.peer.be_alone(),
        }
    }

    /// Shows both where the inputs lie; whether one of them did not know.
    fn show_inputs(&mut self) -> Attempt<bool> {
        let new = trusted(self.problem.reference.set_inputs(&self.problem.inputs))?;
        Ok(self.candidate.set_inputs(&self.problem.inputs)? || new)
    }

    fn prepare_both(&mut self) -> Attempt<()> {
        trusted(self.problem.reference.prepare(&self.slots))?;
        self.candidate.prepare(&self.slots)
    }

    /// Drops outputs, so that nothing in a process is needed when inputs are drawn.
    fn release(&mut self) -> Attempt<()> {
        self.called = [None, None];
        trusted(self.problem.reference.release_outputs())?;
        self.candidate.release_outputs()
    }
}

impl Pair for TorchPair<'_> {
    fn enter(&mut self, _: &Case) -> Attempt<usize> {
        let most = self.candidate.role.as_ref().map_or(usize::MAX, |role| role.most_calls);
        Ok(self.problem.slots.min(most))
    }

    fn prepare(&mut self, calls: usize, timed: bool) -> Attempt<bool> {
        (self.slots, self.timed) = ((0..calls).collect(), timed);
        (self.unknown, self.lost) = ([true; 2], [0; 2]);
        if timed {
            self.called = [None, None];
            self.problem.randomize_allocations(self.candidate, calls)?;
        }
        // Torch issues its launches, as it does for its users: nothing is recorded, and nothing is held up by that.
        Ok(true)
    }

    fn draw(&mut self, inputs: Inputs, rng: &mut StdRng) -> Attempt<()> {
        let signed = inputs == Inputs::Signed;
        if !self.timed {
            self.release()?;
            let count = self.problem.slots.min(TO_CHOOSE_FROM);
            self.slots = vec![rng.random_range(0..count)];
            self.problem.draw(count, signed, rng)?;
            return self.show_inputs().map(|_| ());
        }
        self.called = [None, None];
        if self.problem.inputs.len() != self.slots.len() {
            self.problem.draw(self.slots.len(), signed, rng)?;
        }
        self.show_inputs()?;
        self.prepare_both()?;
        self.problem.draw(self.slots.len(), signed, rng)?;
        if self.show_inputs()? {
            self.prepare_both()?;
        }
        Ok(())
    }

    fn call(&mut self, side: Side, deadline: Duration, rng: &mut StdRng) -> Attempt<Option<Reading>> {
        let at = side as usize;
        let always = self.lost[at] > MOST_LOST;
        let described = !self.timed || self.unknown[at] || always;
        let called = self.request(side, described, deadline);
        let called = if side == Side::Reference { trusted(called)? } else { called? };
        if side == Side::Candidate {
            self.look_at(called.as_ref(), rng)?;
        }
        let Some(called) = called else {
            self.unknown[at] = true;
            self.lost[at] += 1;
            return Ok(None);
        };
        let counts = !described || !self.timed || always;
        self.unknown[at] = false;
        let reading = called.reading;
        self.called[at] = Some(called);
        Ok(counts.then_some(reading))
    }

    fn first_call(&mut self, deadline: Duration, lease: &mut Lease<'_>, rng: &mut StdRng) -> Attempt<()> {
        let called = self.candidate.run_first(&self.slots, deadline, &mut Compiling::with(lease))?;
        self.look_at(Some(&called), rng)?;
        self.unknown[Side::Candidate as usize] = false;
        self.called[Side::Candidate as usize] = Some(called);
        Ok(())
    }

    fn is_new(&self) -> bool {
        !self.candidate.has_called
    }

    /// As each timed one is sent: after its process was stopped while inputs were drawn.
    fn empty(&mut self, rng: &mut StdRng) -> Attempt<f64> {
        trusted(self.problem.reference.prepare(&[]))?;
        self.problem.draw(self.slots.len(), false, rng)?;
        let mut clock = self.clock.map(lock);
        let mut around = clock.as_mut().map(|clock| clock.before()).transpose()?;
        let called = trusted(self.problem.reference.go(&[], REFERENCE_PATIENCE, &mut around))?;
        Ok(called.map_or(0.0, |called| called.reading.outside_ns))
    }

    fn verify(&mut self, look: &Look<'_>) -> Attempt<Found> {
        let [Some(right), Some(got)] = &self.called else {
            return Err(Fault::Machine("outputs were to be compared that are not there".to_owned()).into());
        };
        self.problem.verify(self.candidate, [right, got], &self.slots, look)
    }

    /// A candidate may do without some of its inputs, but none of its outputs.
    fn traffic(&self) -> Traffic {
        let OpenProblem { input_bytes, output_bytes, parameter_bytes, .. } = *self.problem;
        Traffic { inputs: input_bytes, outputs: output_bytes, parameters: parameter_bytes, reads_all: false }
    }

    fn known_call_ns(&self) -> Option<f64> {
        self.problem.call_ns
    }

    fn note_call_ns(&mut self, ns: f64) {
        self.problem.call_ns = Some(ns);
    }

    fn look_around(&mut self) -> Attempt<()> {
        self.candidate.peer.be_alone()
    }

    fn shared(&mut self) -> Option<String> {
        self.clock.and_then(|clock| lock(clock).shared())
    }

    fn layers(&self) -> Vec<Layer> {
        self.candidate.peer.layers.clone()
    }
}
