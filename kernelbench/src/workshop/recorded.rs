//! What did a workshop find, when it was asked before? A record that answers in a workshop's place.
//!
//! With this a run is made again from its record alone: no compiler, no device.

use crate::{
    result::{
        candidate::{Built, Candidate, CandidateId, Verified},
        certificate::Certificate,
        evaluation::{Evaluation, Timed},
        failure::{Fault, Outcome},
    },
    task::{Case, Task, suite::Suite},
    workshop::{Baseline, TimingPlan, Workshop},
};
use metrics::{Machine, Profile};
use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// What a record of one task holds of its workshop's findings, in order.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The shapes that were frozen.
    pub suite: Option<Suite>,
    /// What was said of the shapes that were left out: `name: reason`.
    pub suite_notes: Vec<String>,
    /// The reference's examination.
    pub baseline: Option<Baseline>,
    /// What came of the candidates.
    pub evaluations: Vec<(CandidateId, Evaluation)>,
    /// Where their time went.
    pub profiles: Vec<(CandidateId, Profile)>,
    /// What was certified.
    pub certificates: Vec<Certificate>,
}

/// A workshop that only remembers.
pub struct Recorded {
    machine: Machine,
    suite: Option<Suite>,
    suite_notes: Vec<String>,
    baseline: Option<Baseline>,
    evaluations: Mutex<Queues<Evaluation>>,
    profiles: Mutex<Queues<Profile>>,
    certificates: Mutex<Queues<Certificate>>,
}

/// A candidate may have been offered more than once: its findings are given out in order.
type Queues<T> = HashMap<CandidateId, VecDeque<T>>;

impl Recorded {
    /// A workshop that answers from these findings, made on this machine.
    #[must_use]
    pub fn new(machine: Machine, findings: Findings) -> Self {
        let certificates = findings.certificates.into_iter().map(|c| (c.candidate.clone(), c));
        Self {
            machine,
            suite: findings.suite,
            suite_notes: findings.suite_notes,
            baseline: findings.baseline,
            evaluations: Mutex::new(queues(findings.evaluations)),
            profiles: Mutex::new(queues(findings.profiles)),
            certificates: Mutex::new(queues(certificates)),
        }
    }
}

impl Workshop for Recorded {
    type Rebuilt = CandidateId;

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn fits(&self, _: &Task, cases: &[Case]) -> Vec<Result<u64, String>> {
        let (kept, timed) = self.suite.as_ref().map_or((&[][..], &[][..]), |s| (&s.cases[..], &s.timed[..]));
        let verdict = |case: &Case| {
            if kept.contains(case) {
                // The frozen suite's own choice of the largest stays the choice.
                return Ok(u64::from(timed.contains(&case.name)));
            }
            let said = self.suite_notes.iter().find_map(|note| note.strip_prefix(&format!("{}: ", case.name)));
            Err(said.unwrap_or("not in the record").to_owned())
        };
        cases.iter().map(verdict).collect()
    }

    async fn prepare(&self, _: &Task, _: &Suite, _: &TimingPlan) -> Result<Baseline, Fault> {
        self.baseline.clone().ok_or_else(|| missing("no examination of the reference"))
    }

    async fn build(&self, _: &Task, candidate: &Candidate) -> Outcome<Built> {
        Ok(Ok(Built { candidate: candidate.clone(), artifact: PathBuf::new() }))
    }

    async fn check(&self, _: &Task, built: Built, _: &Suite) -> Outcome<Verified> {
        let id = built.candidate.id();
        let mut evaluations = self.evaluations.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = evaluations.get_mut(&id).ok_or_else(|| missing(&format!("no evaluation of {}", id.short())))?;
        match queue.front() {
            Some(Evaluation::Passed(_)) => Ok(Ok(Verified { built })),
            Some(Evaluation::Failed(failure)) => {
                let failure = failure.clone();
                queue.pop_front();
                Ok(Err(failure))
            }
            None => Err(missing(&format!("no further evaluation of {}", id.short()))),
        }
    }

    async fn time(&self, _: &Task, verified: &Verified, _: &Suite, _: &TimingPlan) -> Outcome<Timed> {
        match take(&self.evaluations, &verified.candidate().id()) {
            Some(Evaluation::Passed(timed)) => Ok(Ok(timed)),
            Some(Evaluation::Failed(failure)) => Ok(Err(failure)),
            None => Err(missing("no times")),
        }
    }

    async fn profile(&self, _: &Task, verified: &Verified, _: &Suite) -> Result<Profile, Fault> {
        take(&self.profiles, &verified.candidate().id()).ok_or_else(|| missing("no profile"))
    }

    async fn rebuild(&self, _: &Task, candidate: &Candidate) -> Result<CandidateId, Fault> {
        Ok(candidate.id())
    }

    async fn certify(&self, _: &Task, rebuilt: CandidateId, _: &TimingPlan) -> Result<Certificate, Fault> {
        take(&self.certificates, &rebuilt).ok_or_else(|| missing("no certificate"))
    }
}

fn queues<T>(findings: impl IntoIterator<Item = (CandidateId, T)>) -> Queues<T> {
    let mut queues = Queues::new();
    for (id, finding) in findings {
        queues.entry(id).or_default().push_back(finding);
    }
    queues
}

fn take<T>(queues: &Mutex<Queues<T>>, id: &CandidateId) -> Option<T> {
    queues.lock().unwrap_or_else(PoisonError::into_inner).get_mut(id)?.pop_front()
}

fn missing(what: &str) -> Fault {
    Fault(format!("the record holds {what}: it is not whole, or this is another run"))
}
