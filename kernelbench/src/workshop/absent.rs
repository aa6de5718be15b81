//! A workshop without a device.
//!
//! A run may go on without one as far as only models are asked, such as where the GPU is not reachable between jobs.

use crate::{
    result::{
        candidate::{Built, Candidate, Verified},
        certificate::Certificate,
        evaluation::Timed,
        failure::{Fault, Outcome},
    },
    task::{Case, Task, suite::Suite},
    workshop::{Baseline, Fits, Rebuilt, Step, TimingPlan, Workshop},
};
use metrics::{Machine, Profile};

/// What it says when it is asked for anything.
const NEEDED: &str = "a device is needed next, and there is none here: go on where there is one";

/// A workshop that is elsewhere: it knows its machine, and whatever it is asked for is a fault.
#[derive(Clone, Debug)]
pub struct Absent {
    machine: Machine,
}

impl Absent {
    /// The place of this machine.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self { machine }
    }

    /// What it says when it is asked for anything.
    #[must_use]
    pub fn needed() -> Fault {
        Fault::Absent(NEEDED.to_owned())
    }
}

impl Workshop for Absent {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn fits<'a>(&'a self, _: &'a Task, _: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        absent()
    }

    fn prepare<'a>(&'a self, _: &'a Task, _: &'a Suite, _: &'a TimingPlan) -> Step<'a, Result<Baseline, Fault>> {
        absent()
    }

    fn build<'a>(&'a self, _: &'a Task, _: &'a Candidate) -> Step<'a, Outcome<Built>> {
        absent()
    }

    fn check<'a>(&'a self, _: &'a Task, _: Built, _: &'a Suite) -> Step<'a, Outcome<Verified>> {
        absent()
    }

    fn time<'a>(
        &'a self,
        _: &'a Task,
        _: &'a Verified,
        _: &'a Suite,
        _: &'a TimingPlan,
        _: f64,
    ) -> Step<'a, Outcome<Timed>> {
        absent()
    }

    fn profile<'a>(&'a self, _: &'a Task, _: &'a Verified, _: &'a Suite) -> Step<'a, Result<Profile, Fault>> {
        absent()
    }

    fn rebuild<'a>(&'a self, _: &'a Task, _: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        absent()
    }

    fn certify<'a>(&'a self, _: &'a Task, _: Rebuilt, _: &'a TimingPlan) -> Step<'a, Result<Certificate, Fault>> {
        absent()
    }
}

fn absent<'a, T: Send + 'a>() -> Step<'a, Result<T, Fault>> {
    Box::pin(std::future::ready(Err(Absent::needed())))
}
