//! Counters that a candidate's own process reads, through CUPTI's range profiler: in no process of its own, for each costs the
//! driver a fifth of a second that no other on any GPU of the host has meanwhile.
//!
//! What the process says is the candidate's word. That the counters are not to be had here is believed of a process that holds
//! nobody's code.

use super::{ProfilerChain, Scene, counted::Unread};
use crate::{
    backend::torch::{
        runner::{Runner, not_started},
        wire::Counters,
    },
    lease::Lease,
    profile::ncu::{self, Launched},
    result::{
        error::{Attempt, EvalError},
        failure::Failure,
    },
    stage::{self, Stage},
};
use metrics::MetricSet;
use std::time::Duration;

/// What each of two requests may take.
const DEADLINE: Duration = Duration::from_mins(1);

/// What is read of every launch of a call on the inputs that were drawn last.
pub(super) fn launches(
    chain: &ProfilerChain,
    scene: &mut Scene<'_, '_>,
    set: &MetricSet,
) -> Attempt<Result<Vec<Launched>, Unread>> {
    scene.bind()?;
    let Scene { candidate, lease, .. } = scene;
    match read(chain, candidate, lease, set)? {
        Err(Unread::Counters(why)) => {
            // It may hold the counters itself.
            candidate.sleep();
            lease.let_others_in();
            let mut clean = Runner::start(&chain.python, None).map_err(not_started)?;
            Ok(Err(match read(chain, &mut clean, lease, set)? {
                Ok(_) => Unread::ByRange(format!("in the candidate's process: {why}")),
                Err(Unread::Counters(own)) => Unread::Counters(own),
                Err(Unread::Refused(own) | Unread::ByRange(own) | Unread::Call(own)) => Unread::Call(own),
            }))
        }
        read => Ok(read),
    }
}

/// What is read in a process: beside others until the GPU is to be asked, and alone then.
fn read(
    chain: &ProfilerChain,
    process: &mut Runner,
    lease: &mut Lease<'_>,
    set: &MetricSet,
) -> Attempt<Result<Vec<Launched>, Unread>> {
    let names = ncu::names(set).into_iter().map(str::to_owned).collect();
    if let Err(unread) = said(process.prepare_counters(names, DEADLINE))? {
        return Ok(Err(unread));
    }
    let _alone = match chain.read_alone(lease) {
        Ok(alone) => alone,
        Err(why) => return Ok(Err(Unread::Call(why))),
    };
    let table = stage::during(Stage::Replay, || said(process.read_counters(DEADLINE)))?;
    Ok(table.and_then(|table| match ncu::read(&table) {
        Ok(launched) if launched.is_empty() => Err(Unread::Call("no kernel was launched".to_owned())),
        launched => launched.map_err(Unread::Call),
    }))
}

/// What a process says; what becomes of it meanwhile is no word against the counters, and a failure where it would be one
/// anywhere.
fn said(counters: Attempt<Counters>) -> Attempt<Result<String, Unread>> {
    Ok(match counters {
        Ok(Counters::Ready) => Ok(String::new()),
        Ok(Counters::Table(table)) => Ok(table),
        Ok(Counters::Unavailable(why)) => Err(Unread::Counters(why)),
        Ok(Counters::NotByRange(why)) => Err(Unread::ByRange(why)),
        Err(EvalError::Candidate(failure))
            if !matches!(*failure, Failure::Forbidden { .. } | Failure::Memory { .. }) =>
        {
            Err(Unread::Call(failure.to_string()))
        }
        Err(error) => return Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::{Counters, Failure, Unread, said};
    use crate::result::failure::Fault;

    #[test]
    fn a_candidates_end_is_no_word_against_the_counters_and_no_fault_either() {
        let ended =
            Failure::Raised { case: "c".into(), stage: "forward".into(), error: "E".into(), traceback: String::new() };
        assert!(matches!(said(Err(ended.into())), Ok(Err(Unread::Call(_)))));
        let unavailable = said(Ok(Counters::Unavailable("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES".into())));
        assert!(matches!(unavailable, Ok(Err(Unread::Counters(why))) if why.contains("PRIVILEGES")));
        assert!(matches!(said(Ok(Counters::NotByRange("a graph".into()))), Ok(Err(Unread::ByRange(_)))));
        assert!(said(Err(Fault::Machine("broke".into()).into())).is_err());
        let short = Failure::Memory { case: "c".into(), limit_mib: 1 };
        assert!(said(Err(short.into())).is_err(), "it is tried again with more memory");
    }
}
