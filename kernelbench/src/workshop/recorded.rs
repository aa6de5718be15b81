//! A record that answers in a workshop's place: what it found when it was asked before.
//!
//! With this a run is made again from its record alone: no compiler, no device.

use crate::{
    hash::Hash,
    result::{
        candidate::{Built, Candidate, CandidateId, Verified},
        certificate::Certificate,
        evaluation::{Evaluation, Timed},
        failure::{Failure, Fault, Outcome},
    },
    task::{Case, Task, space::Bindings, suite::Suite},
    workshop::{Baseline, Fits, Rebuilt, Step, TimingPlan, Workshop},
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
    /// What came of the candidates; in words why one could not be timed.
    pub evaluations: Vec<(CandidateId, Result<Evaluation, String>)>,
    /// What came of those that were checked and not timed.
    pub checks: Vec<(CandidateId, Option<Failure>)>,
    /// What scripts printed, by the hash of the script and its values; how they failed.
    pub printed: Vec<((Hash, Bindings), Result<String, Failure>)>,
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
    evaluations: Mutex<Queues<Result<Evaluation, String>>>,
    checks: Mutex<Queues<Option<Failure>>>,
    printed: HashMap<(Hash, Bindings), Result<String, Failure>>,
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
            checks: Mutex::new(queues(findings.checks)),
            printed: findings.printed.into_iter().collect(),
            profiles: Mutex::new(queues(findings.profiles)),
            certificates: Mutex::new(queues(certificates)),
        }
    }
}

impl Workshop for Recorded {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn fits<'a>(&'a self, _: &'a Task, cases: &'a [Case]) -> Step<'a, Result<Fits, Fault>> {
        let (kept, timed) = self.suite.as_ref().map_or((&[][..], &[][..]), |s| (&s.cases[..], &s.timed[..]));
        let verdict = |case: &Case| {
            if kept.contains(case) {
                // The frozen suite's own choice of the largest stays the choice.
                return Ok(u64::from(timed.contains(&case.name)));
            }
            let said = self.suite_notes.iter().find_map(|note| note.strip_prefix(&format!("{}: ", case.name)));
            Err(said.unwrap_or("not in the record").to_owned())
        };
        at_once(Ok(cases.iter().map(verdict).collect()))
    }

    fn prepare<'a>(&'a self, _: &'a Task, _: &'a Suite, _: &'a TimingPlan) -> Step<'a, Result<Baseline, Fault>> {
        at_once(self.baseline.clone().ok_or_else(|| missing("no examination of the reference")))
    }

    fn build<'a>(&'a self, _: &'a Task, candidate: &'a Candidate) -> Step<'a, Outcome<Built>> {
        at_once(Ok(Ok(Built { candidate: candidate.clone(), artifact: PathBuf::new() })))
    }

    fn check<'a>(&'a self, _: &'a Task, built: Built, _: &'a Suite) -> Step<'a, Outcome<Verified>> {
        at_once(self.checked(built))
    }

    fn time<'a>(
        &'a self,
        _: &'a Task,
        verified: &'a Verified,
        _: &'a Suite,
        _: &'a TimingPlan,
        _: f64,
    ) -> Step<'a, Outcome<Timed>> {
        at_once(match self.evaluation(verified) {
            Ok(Evaluation::Passed(timed)) => Ok(Ok(timed)),
            Ok(Evaluation::Failed(failure)) => Ok(Err(failure)),
            Ok(Evaluation::Counted(_)) => Err(missing("instructions, and no times")),
            Ok(Evaluation::Compiled(_)) => Err(missing("code that was compiled, and no times")),
            Err(fault) => Err(fault),
        })
    }

    fn measure<'a>(
        &'a self,
        _: &'a Task,
        verified: &'a Verified,
        _: &'a Suite,
        _: &'a TimingPlan,
        _: f64,
    ) -> Step<'a, Result<Evaluation, Fault>> {
        at_once(self.evaluation(verified))
    }

    fn profile<'a>(&'a self, _: &'a Task, verified: &'a Verified, _: &'a Suite) -> Step<'a, Result<Profile, Fault>> {
        at_once(take(&self.profiles, &verified.candidate().id()).ok_or_else(|| missing("no profile")))
    }

    fn print<'a>(&'a self, script: &'a str, bindings: &'a Bindings) -> Step<'a, Outcome<String>> {
        let known = self.printed.get(&(Hash::of(script.as_bytes()), bindings.clone())).cloned();
        at_once(known.ok_or_else(|| missing("nothing that this script printed with these values")))
    }

    fn rebuild<'a>(&'a self, _: &'a Task, candidate: &'a Candidate) -> Step<'a, Result<Rebuilt, Fault>> {
        at_once(Ok(Rebuilt { candidate: candidate.clone(), ticket: 0 }))
    }

    fn certify<'a>(&'a self, _: &'a Task, rebuilt: Rebuilt, _: &'a TimingPlan) -> Step<'a, Result<Certificate, Fault>> {
        at_once(take(&self.certificates, &rebuilt.candidate.id()).ok_or_else(|| missing("no certificate")))
    }
}

impl Recorded {
    fn evaluation(&self, verified: &Verified) -> Result<Evaluation, Fault> {
        match take(&self.evaluations, &verified.candidate().id()) {
            Some(Ok(evaluation)) => Ok(evaluation),
            Some(Err(why)) => Err(Fault::Disturbed(why)),
            None => Err(missing("no times")),
        }
    }

    fn checked(&self, built: Built) -> Outcome<Verified> {
        let id = built.candidate.id();
        // A workflow checks drawn configurations before it times any.
        if let Some(checked) = take(&self.checks, &id) {
            return Ok(checked.map_or(Ok(Verified { built }), Err));
        }
        let mut evaluations = self.evaluations.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = evaluations.get_mut(&id).ok_or_else(|| missing(&format!("no evaluation of {}", id.short())))?;
        match queue.front() {
            Some(Ok(Evaluation::Passed(_) | Evaluation::Counted(_) | Evaluation::Compiled(_))) => {
                Ok(Ok(Verified { built }))
            }
            // However often it is tried again, it was not timed then.
            Some(Err(why)) => Err(Fault::Disturbed(why.clone())),
            Some(Ok(Evaluation::Failed(failure))) => {
                let failure = failure.clone();
                queue.pop_front();
                Ok(Err(failure))
            }
            None => Err(missing(&format!("no further evaluation of {}", id.short()))),
        }
    }
}

fn at_once<'a, T: Send + 'a>(found: T) -> Step<'a, T> {
    Box::pin(std::future::ready(found))
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
    Fault::Machine(format!("the record holds {what}: it is not whole, or this is another run"))
}
