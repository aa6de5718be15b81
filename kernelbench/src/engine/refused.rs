//! Does a step count in which the device refused the reference memory?
//!
//! Where a GPU is full, cuDNN goes on with an algorithm that needs no workspace, may take ten times as long, and tells nobody;
//! but torch counts what it was refused. What was compared with such a reference, and timed beside it, does not count: the
//! step is done again with more memory. Where there is no more, it counts if the reference beside itself was refused too;
//! else the candidate holds what is missing. So it does where the reference found no memory at all, and there is some as soon
//! as the candidate's process has ended. While other programs compute on the GPU, nobody knows whose doing it is.

use super::sessions::{is_full, lock};
use crate::{
    hash::Hash,
    result::{
        error::{Attempt, EvalError},
        failure::{Failure, Fault},
    },
};
use std::{collections::HashMap, sync::Mutex};

/// Whose step it is: the reference's beside itself, or a candidate's, whom nobody trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    References,
    Candidates,
}

/// What is known of the device's memory in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    /// Whether the reference was refused some.
    pub(crate) refused: bool,
    /// Whether nobody else of ours had any.
    pub(crate) has_all: bool,
    /// Whether other programs were on the device, who may have had some and given it back.
    pub(crate) visited: bool,
}

/// What is known of references that were refused memory.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Whether a task's reference beside itself was, when all of the memory was theirs or less was enough.
    beside_itself: Mutex<HashMap<Hash, bool>>,
}

impl Refusals {
    /// What a step on a task comes to. `has_room`: whether there is enough memory now that the candidate's process has ended,
    /// which is not asked where that decides nothing.
    pub(crate) fn judge<T>(
        &self,
        (task, of): (&Hash, Whose),
        Shortage { refused, has_all, visited }: Shortage,
        has_room: impl FnOnce() -> bool,
        done: Attempt<T>,
    ) -> Attempt<T> {
        let alone = has_all && !visited;
        if of == Whose::References && done.is_ok() && (!refused || alone) {
            lock(&self.beside_itself).insert(task.clone(), refused);
        }
        let beside_itself = lock(&self.beside_itself).get(task).copied();
        let is_its_doing = alone && of == Whose::Candidates && beside_itself == Some(false);
        if is_of_trusted_side(&done) {
            // A program that nobody sees may have the memory: then it is short without the candidate too.
            return if is_its_doing && has_room() { Err(holds_too_much()) } else { done };
        }
        if !refused || is_full(&done) || is_forbidden(&done) {
            return done;
        }
        match (alone, of, beside_itself) {
            _ if is_its_doing && has_room() => Err(holds_too_much()),
            (true, Whose::References, _) | (true, Whose::Candidates, Some(true)) => done,
            _ => Err(refused_memory()),
        }
    }
}

/// The device had no memory for the reference, though the reference went on.
pub(crate) fn refused_memory() -> EvalError {
    Fault::OutOfMemory("for the reference, which went on in another way".to_owned()).into()
}

/// The candidate left the reference no memory.
fn holds_too_much() -> EvalError {
    let log = "it holds so much of the GPU's memory that none was left for the reference beside it: a model may hold what its \
               call needs, and gives the rest back";
    Failure::Interface { log: log.to_owned() }.into()
}

/// Whether the reference or the verifier found no memory at all.
fn is_of_trusted_side<T>(attempt: &Attempt<T>) -> bool {
    is_full(attempt) && matches!(attempt, Err(EvalError::Infra(_)))
}

/// Whether a candidate was caught.
fn is_forbidden<T>(attempt: &Attempt<T>) -> bool {
    matches!(attempt, Err(EvalError::Candidate(failure)) if matches!(**failure, Failure::Forbidden { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Whose::{Candidates, References};

    /// What comes of a step that went well, of a task whose reference was refused memory beside itself, or was not.
    fn judged(refusals: &Refusals, of: Whose, refused: bool, has_all: bool) -> &'static str {
        with(refusals, of, Shortage { refused, has_all, visited: false })
    }

    fn with(refusals: &Refusals, of: Whose, shortage: Shortage) -> &'static str {
        match refusals.judge((&Hash::of(b"a task"), of), shortage, || true, Ok(())) {
            Ok(()) => "counts",
            again if is_full(&again) => "again",
            Err(EvalError::Candidate(_)) => "its doing",
            Err(EvalError::Infra(_)) => "a fault",
        }
    }

    #[test]
    fn while_other_programs_are_on_the_gpu_no_candidate_is_blamed_and_no_reference_that_was_refused_memory_counts() {
        let visited = Shortage { refused: true, has_all: true, visited: true };
        let refusals = Refusals::default();
        assert_eq!(with(&refusals, References, visited), "again");
        assert_eq!(judged(&refusals, References, false, false), "counts");
        assert_eq!(with(&refusals, Candidates, visited), "again");
        assert_eq!(with(&refusals, Candidates, Shortage { refused: false, ..visited }), "counts");
        assert_eq!(with(&refusals, Candidates, Shortage { visited: false, ..visited }), "its doing");
        let full = || Err::<(), _>(EvalError::Infra(Fault::OutOfMemory("the reference ran out of memory".to_owned())));
        let found_none = refusals.judge((&Hash::of(b"a task"), Candidates), visited, || true, full());
        assert!(matches!(found_none, Err(EvalError::Infra(_))), "{found_none:?}");
    }

    #[test]
    fn a_candidate_that_leaves_its_reference_no_memory_fails_and_is_never_timed_beside_it() {
        let refusals = Refusals::default();
        assert_eq!(judged(&refusals, References, false, false), "counts");
        assert_eq!(judged(&refusals, Candidates, false, false), "counts");
        assert_eq!(judged(&refusals, Candidates, true, false), "again");
        assert_eq!(judged(&refusals, Candidates, true, true), "its doing");
    }

    #[test]
    fn a_reference_that_never_has_enough_is_what_it_is() {
        let refusals = Refusals::default();
        assert_eq!(judged(&refusals, References, true, false), "again");
        assert_eq!(judged(&refusals, References, true, true), "counts");
        assert_eq!(judged(&refusals, Candidates, true, false), "again");
        assert_eq!(judged(&refusals, Candidates, true, true), "counts");
    }

    #[test]
    fn where_nobody_knows_whose_doing_it_is_nothing_is_timed() {
        assert_eq!(judged(&Refusals::default(), Candidates, true, true), "again");
    }

    #[test]
    fn a_reference_without_memory_is_the_candidates_doing_only_where_its_end_makes_room() {
        let (refusals, task) = (Refusals::default(), Hash::of(b"a task"));
        let full = || Err::<(), _>(EvalError::Infra(Fault::OutOfMemory("the reference ran out of memory".to_owned())));
        let short = |refused, has_all| Shortage { refused, has_all, visited: false };
        let judge = |has_all, has_room| refusals.judge((&task, Candidates), short(false, has_all), || has_room, full());
        let is_fault = |attempt: Attempt<()>| matches!(attempt, Err(EvalError::Infra(_)));
        assert!(is_fault(judge(true, true)), "of a task that was never seen to fit, nobody knows");
        assert_eq!(judged(&refusals, References, false, true), "counts");
        assert!(matches!(judge(true, true), Err(EvalError::Candidate(_))));
        assert!(is_fault(judge(true, false)), "another program has it");
        assert!(is_fault(judge(false, true)), "others of ours had some");
        let went_on = refusals.judge((&task, Candidates), short(true, true), || false, Ok(()));
        assert!(is_full(&went_on) && is_fault(went_on), "another program has it, though the reference went on");
        let its_own: Attempt<()> = Err(Failure::Memory { case: "default".to_owned(), limit_mib: 1 }.into());
        let kept = refusals.judge((&task, Candidates), short(false, true), || true, its_own);
        assert!(is_full(&kept), "what it ran out of itself stays that: {kept:?}");
    }

    #[test]
    fn what_was_found_beside_stays() {
        let (refusals, task) = (Refusals::default(), Hash::of(b"a task"));
        let judge = |failure: Failure| {
            let done: Attempt<()> = Err(failure.into());
            let short = Shortage { refused: true, has_all: false, visited: false };
            refusals.judge((&task, Candidates), short, || false, done)
        };
        let caught = judge(Failure::Forbidden { case: String::new(), what: "fork".to_owned() });
        assert!(is_forbidden(&caught), "{caught:?}");
        let unlike = judge(Failure::Interface { log: String::new() });
        assert!(is_full(&unlike), "a wrong output may be the reference's: {unlike:?}");
    }
}
