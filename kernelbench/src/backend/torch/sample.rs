//! How is one pair of samples taken?
//!
//! Both processes are prepared: they drop what they put out last, seed, and choose their slots. Then they stand still, and
//! only now are inputs drawn. A process is let go by a number, makes its calls, and answers with a number and the
//! addresses of its outputs: the clock runs from when the GPU is free for it until that answer, and nothing else lies
//! between.
//! Then it stands still again, and its outputs are read where they lie.

use super::{
    CASE,
    runner::{Ran, Runner, trusted},
    session::Session,
    verify::Look,
};
use crate::{measure::clock::Pair, result::error::Attempt, task::Tolerance};
use rand::{Rng, rngs::StdRng};
use std::time::Duration;

/// Samples that may be lost because outputs lay at new places, before every answer has to describe them.
const MOST_LOST: usize = 5;

/// What takes pairs of samples.
pub(crate) struct Sampler<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) candidate: &'a mut Runner,
    pub(crate) tolerance: &'a Tolerance,
    pub(crate) slots: Vec<usize>,
    pub(crate) deadline: Duration,
    /// Samples that were lost.
    pub(crate) lost: usize,
}

impl Sampler<'_> {
    /// Runs both on fresh contents, in random order, and compares all outputs.
    pub(crate) fn pair(&mut self, rng: &mut StdRng) -> Attempt<Pair> {
        while self.lost <= MOST_LOST {
            if let Some(pair) = self.timed_pair(rng)? {
                return Ok(pair.each_ref().map(Ran::reading));
            }
            self.lost += 1;
            self.described_pair(rng)?;
        }
        Ok(self.described_pair(rng)?.each_ref().map(Ran::reading))
    }

    /// A pair whose answers describe the outputs: where they lie is known afterwards.
    pub(crate) fn described_pair(&mut self, rng: &mut StdRng) -> Attempt<[Ran; 2]> {
        self.candidate.release()?;
        trusted(self.session.reference.release())?;
        self.session.draw_and(self.slots.len(), false, true, rng)?;
        self.point()?;
        let (reference, got) = if rng.random() {
            let reference = self.session.run_reference(&self.slots)?;
            self.session.flush()?;
            (reference, self.session.run_candidate(self.candidate, &self.slots, self.deadline, rng)?)
        } else {
            let got = self.session.run_candidate(self.candidate, &self.slots, self.deadline, rng)?;
            self.session.flush()?;
            (self.session.run_reference(&self.slots)?, got)
        };
        self.verified([reference, got])
    }

    fn timed_pair(&mut self, rng: &mut StdRng) -> Attempt<Option<[Ran; 2]>> {
        self.prepare()?;
        self.session.draw_and(self.slots.len(), false, true, rng)?;
        if self.point()? {
            self.prepare()?;
        }
        let (reference, got) = if rng.random() {
            let reference = self.reference()?;
            self.session.flush()?;
            (reference, self.candidate(rng)?)
        } else {
            let got = self.candidate(rng)?;
            self.session.flush()?;
            (self.reference()?, got)
        };
        let (Some(reference), Some(got)) = (reference, got) else { return Ok(None) };
        self.verified([reference, got]).map(Some)
    }

    fn prepare(&mut self) -> Attempt<()> {
        trusted(self.session.reference.prepare(&self.slots))?;
        self.candidate.prepare(&self.slots)
    }

    /// Shows both where the inputs lie; whether one of them did not know.
    fn point(&mut self) -> Attempt<bool> {
        let told = trusted(self.session.reference.inputs(&self.session.inputs))?;
        Ok(self.candidate.inputs(&self.session.inputs)? || told)
    }

    fn reference(&mut self) -> Attempt<Option<Ran>> {
        self.session.time_reference(&self.slots)
    }

    fn candidate(&mut self, rng: &mut StdRng) -> Attempt<Option<Ran>> {
        let ran = self.session.time_candidate(self.candidate, &self.slots, self.deadline)?;
        match &ran {
            Some(ran) => self.session.witness(self.candidate, ran, rng)?,
            None => self.candidate.peer.be_alone()?,
        }
        Ok(ran)
    }

    fn verified(&mut self, pair: [Ran; 2]) -> Attempt<[Ran; 2]> {
        let look = Look { tolerance: self.tolerance, case: CASE, oracle: false, while_timed: true, beyond: false };
        self.session.verify(self.candidate, &pair[0], &pair[1], &self.slots, &look)?;
        Ok(pair)
    }
}

/// What a request costs that calls nothing, in nanoseconds, as each timed one is sent: after its process has stood still
/// while inputs were drawn, and after another one has emptied the cache. Asked of the reference's process, which has no
/// cause to lie.
pub(crate) fn empty(session: &mut Session, slots: usize, rng: &mut StdRng) -> Attempt<f64> {
    trusted(session.reference.prepare(&[]))?;
    session.draw_and(slots, false, true, rng)?;
    let ran = session.time_reference(&[])?;
    Ok(ran.map_or(0.0, |ran| ran.outside.as_nanos() as f64))
}

/// The median of several.
pub(crate) fn empties(session: &mut Session, slots: usize, times: usize, rng: &mut StdRng) -> Attempt<f64> {
    let costs = (0..times).map(|_| empty(session, slots, rng)).collect::<Attempt<Vec<f64>>>()?;
    Ok(metrics::Statistic::Median.of(&costs))
}
