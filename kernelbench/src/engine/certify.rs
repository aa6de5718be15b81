//! Certifying: what exactly can be claimed of the best candidate?
//!
//! It is built again from its text, runs in new processes, on new inputs, on the task's own cases and on those that the loop
//! never saw; then under a sanitizer. What could not be looked at stands in the certificate too.

use super::{
    Inner, Purpose,
    backend::{Backend, Both, Pair, Processes, Standard, Toolchain},
    check::{self, Checking},
    refused::{Shortage, Whose, refused_memory},
    sessions::{Room, has_room, is_full},
    time::{Sittings, What, timed_cases},
};
use crate::{
    lease::Lease,
    measure::numbers::Effort,
    result::{
        candidate::Candidate,
        certificate::{Certificate, Check, Checked, Verdict},
        error::{Attempt, outcome, trusted},
        evaluation::Timed,
        failure::{Failure, Fault},
        label::Label,
    },
    stage::{self, Stage},
    task::{Case, Task, suite::Suite},
    workshop::{Rebuilt, TimingPlan},
};
use rand::rngs::StdRng;

/// A candidate that was built again, or how that failed.
pub(crate) type Anew<B> = Result<<B as Backend>::Loaded, Failure>;

/// A part of the check of a certificate.
enum Part<'a> {
    /// These cases, each by itself.
    OneByOne(&'a [Case]),
    /// All of them by one process.
    InTurn(&'a [Case]),
}

impl Part<'_> {
    fn check(
        &self,
        pair: &mut impl Pair,
        (how, lease): (&Checking<'_>, &mut Lease<'_>),
        rng: &mut StdRng,
    ) -> Attempt<Vec<Label>> {
        match self {
            Self::OneByOne(cases) => check::one_by_one(pair, cases, (how, lease), rng),
            Self::InTurn(cases) => Ok(check::in_turn(pair, cases, how, rng)?.into_iter().collect()),
        }
    }
}

/// The parts of a check after each of which it is timed: the loop's cases, those that it never saw, and all by one process;
/// or all at once.
fn parts<'a>(task: &Task, cases: &'a [Case], spread: bool) -> Vec<Vec<Part<'a>>> {
    let (own, new) = cases.split_at(task.cases.len());
    match (spread, new) {
        (false, _) => vec![vec![Part::OneByOne(cases), Part::InTurn(cases)]],
        (true, []) => vec![vec![Part::OneByOne(own)], vec![Part::InTurn(cases)]],
        (true, new) => vec![vec![Part::OneByOne(own)], vec![Part::OneByOne(new)], vec![Part::InTurn(cases)]],
    }
}

impl<B: Backend> Inner<B> {
    /// Builds a candidate from its text alone.
    pub(super) fn rebuild(&self, task: &Task, candidate: Candidate) -> Result<Rebuilt, Fault> {
        let _stage = stage::begin(Stage::Build);
        let load = || self.backend.load(task, &candidate, Toolchain::Stock);
        let anew: Anew<B> = outcome(self.kept.off_the_device(&self.backend, load))?;
        Ok(Rebuilt { candidate, ticket: self.kept.check_in(anew) })
    }

    /// Checks, times and sanitizes what was built again.
    pub(super) fn certify(&self, task: &Task, rebuilt: &Rebuilt, plan: &TimingPlan) -> Result<Certificate, Fault> {
        let candidate = &rebuilt.candidate;
        let gone =
            || Fault::Machine("what is to be certified is not here any more: it is to be built again".to_owned());
        let loaded = self.kept.check_out(rebuilt.ticket).ok_or_else(gone)?;
        // The loop is over: what it kept open makes room.
        self.kept.release(&candidate.id());
        self.kept.close(&self.backend.key(task));
        let (mut checks, mut first) = (vec![], Some(loaded));
        let key = self.backend.key(task);
        let room = self.kept.room_for(&self.backend, &key);
        let lease = self.gate.share_for(room, &key);
        let examined =
            self.kept.with_room(&self.backend, lease, Room { wanted: room, ..Room::default() }, is_full, |lease| {
                checks.clear();
                // What another task's search ranked while this waited for the device.
                self.kept.ranked.forget();
                let loaded = match first.take() {
                    Some(loaded) => loaded?,
                    None => self.backend.load(task, candidate, Toolchain::Stock)?,
                };
                let timed = self.examine_anew(task, candidate, (loaded, lease), plan, &mut checks)?;
                let be_alone = |lease: &mut Lease<'_>| {
                    self.kept.be_alone(&self.backend, lease, None);
                };
                let certified = (candidate, timed.speedup.ratio);
                checks.extend(self.backend.evaluated_elsewhere(task, certified, lease, &be_alone));
                Ok(timed)
            });
        let verdict = match outcome(examined)? {
            Ok(timed) => Verdict::Certified(timed),
            Err(failure) => Verdict::Refused(failure),
        };
        Ok(Certificate {
            candidate: candidate.id(),
            verdict,
            checked: checks.into_iter().map(Checked::from).collect(),
            build: self.backend.describe_build(task)?,
            machine: self.backend.machine().name.clone(),
        })
    }

    fn examine_anew(
        &self,
        task: &Task,
        candidate: &Candidate,
        (mut loaded, lease): (B::Loaded, &mut Lease<'_>),
        plan: &TimingPlan,
        checks: &mut Vec<Check>,
    ) -> Attempt<Timed> {
        let (backend, rng) = (&self.backend, &mut self.rng(Purpose::Certify));
        checks.push(Check::Rebuilt);
        let visited = backend.is_visited();
        let mut session = stage::during(Stage::Open, || trusted(backend.open(task, Toolchain::Stock, &mut |_| ())))?;
        if backend.was_short(&session) && !lease.has_all() {
            return Err(refused_memory());
        }
        let done = self.examine_opened(task, (candidate, &mut session), (&mut loaded, lease), plan, (checks, rng));
        drop(loaded);
        let tidied = backend.tidy(&mut session);
        let done = done.and_then(|timed| tidied.map(|()| timed));
        let refused = backend.was_refused_memory(&mut session);
        let has_room = || has_room(backend, backend.wanted_memory(&session));
        let shortage = Shortage { refused, has_all: lease.has_all(), visited: visited || backend.is_visited() };
        self.refusals.judge((&backend.key(task), Whose::Candidates), shortage, has_room, done)
    }

    fn examine_opened(
        &self,
        task: &Task,
        (candidate, session): (&Candidate, &mut B::Session),
        (loaded, lease): (&mut B::Loaded, &mut Lease<'_>),
        plan: &TimingPlan,
        (checks, rng): (&mut Vec<Check>, &mut StdRng),
    ) -> Attempt<Timed> {
        let backend = &self.backend;
        // The shapes of the loop may be a model's choice; a claim is about the task's own.
        let suite = Suite::of_task(task);
        let what =
            What { task, suite: &suite, plan, effort: Effort::Certificate, trusted: false, self_difference: 0.0 };
        let cases: Vec<Case> = task.cases.iter().chain(&task.final_cases).cloned().collect();
        self.check_baselines(task, (session, lease), (&cases, Toolchain::Stock), rng)?;
        let parts = parts(task, &cases, backend.numbers().spread);
        let sanitized_between = backend.numbers().spread;
        let all = parts.len() + usize::from(sanitized_between);
        let mut sittings = Sittings::of(backend, &what, u32::try_from(all).unwrap_or(u32::MAX))?;
        let (mut labels, mut layers, mut in_a_row) = (vec![], vec![], 0);
        for (at, part) in parts.iter().enumerate() {
            let (loading, which) = (stage::begin(Stage::Load), (Standard::Outputs, Processes::AtHand));
            let mut pair = backend.pair(task, session, loaded, which)?;
            drop(loading);
            for part in part {
                labels.extend(part.check(&mut pair, (&self.checking(task), lease), rng)?);
            }
            layers = pair.layers();
            if at + 1 == parts.len() {
                let (how, lasting) = (self.checking(task), backend.numbers().endurance);
                let (cases, between) = (timed_cases(&suite)?, || lease.give_way_with_a_pair());
                in_a_row = check::again_and_again(&mut pair, &cases, (&how, lasting), rng, between)?;
            }
            drop(pair);
            sittings.sit(&mut Both { session, loaded, lease }, rng)?;
        }
        let (draws, signed) = (backend.numbers().draws, backend.numbers().signed);
        checks.push(Check::Outputs { shapes: cases.len(), new: task.final_cases.len(), draws, signed });
        checks.push(Check::Surroundings);
        checks.extend(of_baselines(task, &cases));
        let sanitize = |both: Both<'_, '_, B>, rng: &mut StdRng| {
            stage::during(Stage::Sanitize, || backend.sanitize(task, both, candidate, rng))
        };
        let mut sanitized = None;
        if sanitized_between {
            sanitized = Some(sanitize(Both { session, loaded, lease }, rng)?);
            sittings.sit(&mut Both { session, loaded, lease }, rng)?;
        }
        let (mut timed, remarks) = sittings.settle(Both { session, loaded, lease }, rng)?;
        lease.let_others_in();
        let blocks = |case: &String| remarks.blocks.iter().filter(|block| block.case == *case).collect::<Vec<_>>();
        let of_first = suite.timed.first().map(blocks).unwrap_or_default();
        let pairs = of_first.iter().map(|block| block.readings.len()).sum();
        let sittings = timed.cases.first().map_or(0, |case| case.reference.sittings().count());
        checks.push(Check::Timed {
            shapes: suite.timed.len(),
            pairs,
            processes: of_first.len(),
            sittings,
            against: task.against(),
        });
        let calls = |case: &String| blocks(case).iter().map(|block| (block.calls * block.readings.len()) as u64).sum();
        let while_timed = suite.timed.iter().map(calls).min().unwrap_or(0);
        checks.push(Check::Endured { in_a_row, while_timed });
        checks.push(Check::Clocks);
        checks.push(Check::Floor { known: timed.cases.iter().all(|case| case.floor_ns.is_some()) });
        if backend.nvml().is_some() || !remarks.disturbed.is_empty() {
            checks.push(Check::Undisturbed { watched: remarks.watched, disturbed: remarks.disturbed.clone() });
        }
        checks.push(Check::AtOnce { again: remarks.again.clone() });
        if !remarks.issued.is_empty() {
            checks.push(Check::Recorded { issued: remarks.issued.clone() });
        }
        checks.extend(layers.into_iter().map(|layer| Check::Confined { layer }));
        checks.extend(sanitized.map_or_else(|| sanitize(Both { session, loaded, lease }, rng), Ok)?);
        let (rows, kind) = backend.kind_of_win(Both { session, loaded, lease }, candidate, timed.speedup.ratio, rng)?;
        checks.extend(rows);
        let labels: Vec<Label> = backend.labels(session).into_iter().chain(labels).chain(kind).collect();
        checks.extend(labels.iter().cloned().map(|label| Check::Labelled { label }));
        let open = backend.not_excluded().into_iter();
        checks.extend(open.map(|(what, why)| Check::NotExcluded { what: what.to_owned(), why: why.to_owned() }));
        timed.labels = labels.into_iter().chain(remarks.labels()).collect();
        Ok(timed)
    }
}

/// What is to be known of the task's baselines: where the oracle answered, and of which libraries no use was seen.
fn of_baselines(task: &Task, cases: &[Case]) -> Vec<Check> {
    let baselines = task.baselines();
    let large = |case: &&Case| baselines.is_large(&case.name);
    let oracle = baselines.oracle().map(|kernel| Check::Oracle {
        baseline: kernel.name.clone(),
        cases: cases.iter().filter(large).map(|case| case.name.clone()).collect(),
        agreed: cases.iter().filter(|case| !large(case)).count(),
    });
    let mut libraries: Vec<String> = baselines.forbidden().iter().filter_map(|one| one.link.first().cloned()).collect();
    libraries.sort();
    libraries.dedup();
    oracle.into_iter().chain((!libraries.is_empty()).then_some(Check::Libraries { libraries })).collect()
}
