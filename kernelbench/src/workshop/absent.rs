//! What if there is no device here?
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
    workshop::{Baseline, TimingPlan, Workshop},
};
use metrics::{Machine, Profile};

/// A workshop that is elsewhere: it knows its machine, and whatever it is asked for is a fault.
#[derive(Clone, Debug)]
pub struct Absent {
    machine: Machine,
}

impl Absent {
    /// What it says when it is asked for anything.
    pub const WORD: &'static str = "a device is needed next, and there is none here: go on where there is one";

    /// The place of this machine.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        Self { machine }
    }

    fn fault() -> Fault {
        Fault(Self::WORD.to_owned())
    }
}

impl Workshop for Absent {
    type Rebuilt = std::convert::Infallible;

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn fits(&self, _: &Task, cases: &[Case]) -> Vec<Result<u64, String>> {
        cases.iter().map(|_| Err(Self::WORD.to_owned())).collect()
    }

    async fn prepare(&self, _: &Task, _: &Suite, _: &TimingPlan) -> Result<Baseline, Fault> {
        Err(Self::fault())
    }

    async fn build(&self, _: &Task, _: &Candidate) -> Outcome<Built> {
        Err(Self::fault())
    }

    async fn check(&self, _: &Task, _: Built, _: &Suite) -> Outcome<Verified> {
        Err(Self::fault())
    }

    async fn time(&self, _: &Task, _: &Verified, _: &Suite, _: &TimingPlan) -> Outcome<Timed> {
        Err(Self::fault())
    }

    async fn profile(&self, _: &Task, _: &Verified, _: &Suite) -> Result<Profile, Fault> {
        Err(Self::fault())
    }

    async fn rebuild(&self, _: &Task, _: &Candidate) -> Result<Self::Rebuilt, Fault> {
        Err(Self::fault())
    }

    async fn certify(&self, _: &Task, none: Self::Rebuilt, _: &TimingPlan) -> Result<Certificate, Fault> {
        match none {}
    }
}
