//! Does a call of a candidate touch memory that is not its own?

use super::{ProfilerChain, START, Wanted};
use crate::{
    backend::torch::{problem::OpenProblem, runner::Runner, wire::Job},
    lease::Lease,
    profile::compute_sanitizer,
    result::{
        error::Attempt,
        failure::{Failure, Fault},
    },
};
use std::time::Duration;

/// What a sanitizer may take: it slows a kernel down up to a hundredfold.
const SANITIZING: Duration = Duration::from_mins(1);

impl ProfilerChain {
    /// Runs one call of a candidate under compute-sanitizer's memcheck, on the inputs that were drawn last. A finding is a
    /// failure; in words why there is none to be had here.
    pub(crate) fn memcheck(
        &self,
        session: &OpenProblem,
        candidate: &Runner,
        lease: &mut Lease<'_>,
    ) -> Attempt<Result<(), String>> {
        let looked = match self.look_for_errors(session, candidate, (true, lease))? {
            Err(_) => self.look_for_errors(session, candidate, (false, lease))?,
            looked => looked,
        };
        match looked {
            Ok(Some(finding)) => Err(Failure::Sanitizer { tool: "memcheck".to_owned(), finding }.into()),
            Ok(None) => Ok(Ok(())),
            Err(why) => Ok(Err(why)),
        }
    }

    fn look_for_errors(
        &self,
        session: &OpenProblem,
        candidate: &Runner,
        (landlock, lease): (bool, &mut Lease<'_>),
    ) -> Result<Result<Option<String>, String>, Fault> {
        // Without torch's cache of memory, each tensor has an allocation of its own.
        let uncached = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1"].map(str::to_owned);
        let wrapper = uncached.into_iter().chain(compute_sanitizer::Tool::Memcheck.command()).collect();
        let wanted = Wanted { wrapper, primed: false, beside: candidate.folder(), landlock };
        // It starts for seconds, in which others may time.
        let started = lease.aside(|| {
            let turn = self.starting.turn().ok();
            let mut waiting = self.start(wanted)?;
            let sign = waiting.sign();
            let settled = std::thread::scope(|scope| {
                scope.spawn(|| self.start_beside(&sign, turn));
                let settled = waiting.settle(START);
                // Where it did not settle it ends here, and with it what is waited for beside.
                settled.map(|()| waiting).map_err(|why| format!("under compute-sanitizer: {why}"))
            });
            Ok::<_, Fault>(settled)
        });
        let waiting = match started? {
            Ok(waiting) => waiting,
            Err(why) => return Ok(Err(why)),
        };
        let done = format!("done {:016x}", rand::random::<u64>());
        let job = Job { once: Some(done.clone()), ..self.job(session, candidate)? };
        let printed = Self::with_folder(waiting, candidate, |waiting| waiting.work(&job, SANITIZING));
        Ok(printed.and_then(|printed| compute_sanitizer::finding_in_whole_call(&printed, &done)))
    }
}
