//! What came of one task, in numbers?

use super::spent::Spent;
use agents::{
    event::{End, Line, Step},
    trajectory::Trajectory,
};
use kernelbench::{Certificate, CertificateVerdict, Hash, OWN_KERNELS, Precision, Task, Timed};
use metrics::{Claim, Speedup, scores::Outcome};
use serde::Serialize;

/// The text that was kept under a name; `None` where the record lacks it.
pub type Fetch<'a> = &'a dyn Fn(&Hash) -> Option<String>;

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It ended.
    Ended,
    /// Something broke, and it was not resumed.
    BrokenOff,
    /// Its record has no end: it runs, waits, or was interrupted.
    Open,
    /// Its turn has not come.
    NotBegun,
}

/// One task of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskScore {
    /// Its name.
    pub task: String,
    /// What it is, its reference and shapes included: the hash of its JSON.
    pub content: Option<Hash>,
    /// Its level, where it is a problem that has one.
    pub level: Option<u8>,
    /// Its number within the level.
    pub number: Option<u32>,
    /// Whether it is a problem in `KernelBench`'s format.
    pub problem: bool,
    /// What a problem's weights and inputs are cast to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// What its speedups are over, where that is a baseline of its own and not its reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// What is known against it.
    pub defects: Vec<String>,
    /// How far it has come.
    pub state: State,
    /// The limit that ended it, by the name of its setting.
    pub limit: Option<&'static str>,
    /// Candidates that were asked for: rounds that are over, without one for the reference itself.
    pub rounds: usize,
    /// Rounds whose candidate passed.
    pub passed: usize,
    /// The certified speedup over the reference: the task's score. `None` is a failure.
    pub speedup: Option<Speedup>,
    /// Whether what is certified is right only as the task draws its inputs: a label says that it is wrong on others.
    pub only_as_drawn: bool,
    /// Over each other way in which the reference was timed, by name; `None` where that way does not work or nothing is
    /// certified.
    pub over: Vec<(String, Option<Speedup>)>,
    /// The fastest that passed in a round, certified or not.
    pub best: Option<Speedup>,
    /// The round of the certified candidate.
    pub round: Option<u32>,
    /// The certified candidate.
    pub candidate: Option<Hash>,
    /// What was built of it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Hash>,
    /// Of the time of its kernels, the share in percent that goes to kernels of its own and not of torch and libraries, as the
    /// last profile of the certified or the fastest candidate saw it; `None` where none was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_kernels: Option<f64>,
    /// Candidates that a certificate refused.
    pub refused: usize,
    /// The best ratio measured up to each candidate that was asked for.
    pub by_round: Vec<Outcome>,
    /// What it took.
    pub spent: Spent,
}

impl TaskScore {
    /// Of the task that the run's folder calls `name`: of its story, its events and its texts. A story without a name has
    /// not begun.
    #[must_use]
    pub fn of(name: &str, story: &Trajectory, lines: &[Line], fetch: Fetch) -> Self {
        let task: Option<Task> = story.task.as_ref().and_then(|hash| serde_json::from_str(&fetch(hash)?).ok());
        let problem = task.as_ref().and_then(Task::problem);
        let certified = story.certified().and_then(|certificate| Some((certificate, timed(certificate)?)));
        let candidate = certified.map(|(certificate, _)| certificate.candidate.clone());
        Self {
            task: name.to_owned(),
            content: story.task.clone(),
            level: problem.and_then(|problem| problem.level),
            number: problem.and_then(|problem| problem.number),
            problem: problem.is_some(),
            precision: problem.map(|problem| problem.precision),
            against: story.baseline.as_ref().and_then(|baseline| baseline.against.clone()),
            defects: problem.map(|problem| problem.labels.clone()).unwrap_or_default(),
            state: state(story),
            limit: story.end.and_then(End::limit),
            rounds: written(story).count(),
            passed: written(story).flatten().count(),
            speedup: certified.map(|(_, timed)| timed.speedup),
            only_as_drawn: certified.is_some_and(|(_, timed)| timed.only_as_drawn()),
            over: over(story, certified.map(|(_, timed)| &timed.speedup)),
            best: story.best().map(|best| best.speedup),
            round: story.finished().find(|round| candidate.is_some() && round.candidate == candidate).map(|r| r.number),
            object: candidate.as_ref().and_then(|id| story.evaluation(id)?.passed()?.object.clone()),
            own_kernels: own_kernels(story, candidate.as_ref()),
            candidate,
            refused: story.certificates.iter().filter(|certificate| timed(certificate).is_none()).count(),
            by_round: best_so_far(story),
            spent: Spent::of(lines),
        }
    }

    /// What counts of a run that has not ended: what is certified; of a task that has not ended, the best of its rounds.
    #[must_use]
    pub fn so_far(&self) -> Option<Speedup> {
        self.speedup.or(self.best.filter(|_| self.state != State::Ended))
    }

    /// The ratio that is scored.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.speedup.map(|speedup| speedup.ratio)
    }

    /// Whether the same code is certified here and there: the same source, or what was built of it.
    #[must_use]
    pub fn is_same_code(&self, other: &Self) -> bool {
        let same = |one: &Option<Hash>, other: &Option<Hash>| one.is_some() && one == other;
        same(&self.candidate, &other.candidate) || same(&self.object, &other.object)
    }

    /// Whether its certified candidate is faster than the reference, its whole interval above 1.
    #[must_use]
    pub fn won(&self) -> bool {
        self.speedup.is_some_and(|speedup| speedup.claim() == Claim::Faster)
    }
}

/// What the last profile of this candidate, or else of the fastest, says of whose its kernels are.
fn own_kernels(story: &Trajectory, certified: Option<&Hash>) -> Option<f64> {
    let best = story.best().map(|best| best.candidate);
    let of = certified.or(best.as_ref())?;
    let profiles = story.rounds.iter().filter(|round| round.step.base() == Some(of));
    let seen = profiles.filter_map(|round| round.profile.as_ref()?.as_ref().ok()).next_back()?;
    seen.readings.iter().find(|reading| reading.name == OWN_KERNELS)?.value
}

fn timed(certificate: &Certificate) -> Option<&Timed> {
    match &certificate.verdict {
        CertificateVerdict::Certified(timed) => Some(timed),
        CertificateVerdict::Refused(_) => None,
    }
}

fn state(story: &Trajectory) -> State {
    match (&story.end, &story.broke_off) {
        (Some(_), _) => State::Ended,
        (None, Some(_)) => State::BrokenOff,
        (None, None) if story.name.is_empty() => State::NotBegun,
        (None, None) => State::Open,
    }
}

fn over(story: &Trajectory, certified: Option<&Speedup>) -> Vec<(String, Option<Speedup>)> {
    let variants = story.baseline.iter().flat_map(|baseline| &baseline.variants);
    variants.map(|variant| (variant.name.clone(), certified.and_then(|speedup| variant.against(speedup)))).collect()
}

/// What came of each candidate that was asked for.
fn written(story: &Trajectory) -> impl Iterator<Item = Outcome> {
    let rounds = story.finished().filter(|round| round.step != Step::Baseline);
    rounds.map(|round| Some(round.evaluation.as_ref()?.passed()?.speedup.ratio))
}

fn best_so_far(story: &Trajectory) -> Vec<Outcome> {
    let faster = |best: &mut Outcome, ratio: Outcome| {
        *best = [*best, ratio].into_iter().flatten().reduce(f64::max);
        Some(*best)
    };
    written(story).scan(None, faster).collect()
}
