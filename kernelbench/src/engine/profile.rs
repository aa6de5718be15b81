//! Profiling: where does a candidate spend its time?

use super::{
    Inner, Purpose,
    backend::{Backend, Both},
    sessions::{is_full, lock},
};
use crate::{
    profile::own::own_kernels,
    result::{
        candidate::Candidate,
        error::{Attempt, outcome},
        failure::{Failure, Fault, Outcome},
        survey::Survey,
    },
    stage::{self, Stage},
    task::{Case, Task, suite::Suite},
};
use metrics::{MachineKind, Profile, Rung};
use rand::rngs::StdRng;

/// The profile of a candidate that did not run under a profiler: its own doing, and no word about the machine.
fn unprofiled(failure: &Failure) -> Profile {
    let notes = vec![format!("the candidate failed under a profiler: {failure}")];
    Profile { rung: Rung::TimingOnly, case: String::new(), readings: vec![], kernels: vec![], notes }
}

impl<B: Backend> Inner<B> {
    /// Does a step under a profiler, of the largest timed case.
    fn profiled<T>(
        &self,
        task: &Task,
        candidate: &Candidate,
        suite: &Suite,
        mut step: impl FnMut((Both<'_, '_, B>, B::Tool), &Case, &mut StdRng) -> Attempt<T>,
    ) -> Outcome<T> {
        let timed = suite.cases.iter().filter(|case| suite.timed.contains(&case.name));
        let case = timed.max_by_key(|case| self.backend.fits(task, case).unwrap_or(0));
        let case =
            case.ok_or_else(|| Fault::Machine("the suite times no case, so there is none to profile".to_owned()))?;
        let rng = &mut self.rng(Purpose::Profile);
        let mut parked = match outcome(self.unpark(task, candidate))? {
            Ok(loaded) => Some(loaded),
            Err(failure) => return Ok(Err(failure)),
        };
        let in_turn = || stage::during(Stage::Lease, || lock(&self.profiling));
        let turn = self.backend.profiles_in_turn().then(in_turn);
        let mut tool = parked.as_ref().map(|loaded| self.backend.tool(loaded));
        let room = B::memory_of_a_profile;
        let done = self.in_session_with((task, Some(&candidate.id())), room, is_full, |session, lease| {
            self.kept.ranked.forget();
            let mut loaded = parked.take().map_or_else(|| self.unpark(task, candidate), Ok)?;
            let tool = tool.take().unwrap_or_else(|| self.backend.tool(&loaded));
            let done = step((Both { session, loaded: &mut loaded, lease }, tool), case, rng);
            lease.let_others_in();
            let parked = self.kept.park_last(&self.backend, &candidate.id(), loaded);
            done.and_then(|done| parked.map(|()| done))
        });
        drop(turn);
        self.backend.get_ready();
        outcome(done)
    }

    pub(super) fn profile(&self, task: &Task, candidate: &Candidate, suite: &Suite) -> Result<Profile, Fault> {
        self.profiled(task, candidate, suite, |both, case, rng| {
            let timing = self.kept.note(&candidate.id(), |notes| {
                notes.timings.iter().find(|(timed, _)| timed.case == case.name).cloned()
            });
            let key = self.backend.key(task);
            let make_room = |bytes| {
                self.kept.evict_until(&self.backend, Some(&key), bytes);
            };
            self.backend.profile(task, both, case, timing.as_ref(), rng, &make_room)
        })
        .map(|profiled| profiled.unwrap_or_else(|failure| unprofiled(&failure)))
        .map(|mut profile| {
            let on_gpu = self.backend.machine().kind == MachineKind::Gpu;
            let own = task.problem().filter(|_| on_gpu).and_then(|_| own_kernels(&profile, &candidate.source()));
            profile.readings.extend(own);
            profile
        })
    }

    pub(super) fn survey(
        &self,
        task: &Task,
        candidate: &Candidate,
        suite: &Suite,
    ) -> Result<Result<Survey, String>, Fault> {
        self.profiled(task, candidate, suite, |(Both { session, loaded, lease }, _), case, rng| {
            lease.be_alone();
            stage::during(Stage::Replay, || self.backend.survey(task, session, loaded, case, rng))
        })
        .map(|surveyed| {
            surveyed.unwrap_or_else(|failure| Err(format!("the candidate failed under a profiler: {failure}")))
        })
    }
}
