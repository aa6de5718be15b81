//! What do hardware counters say of the kernels that the time goes to?

use super::{Bench, Room, Waiting, job, traced};
use crate::{
    native::trouble::Attempt,
    ncu::{self, Launched},
    torch::{
        dominant::{Dominant, Launches, base, dominant},
        ncu as asked,
        runner::Runner,
        session::Session,
    },
};
use metrics::{Kernel, MetricSet};
use std::{
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

/// Launches that are read, and a process that waits is good for; of calls with more, only the dominating kernels are.
pub(super) const MOST: usize = 12;
/// Launches that are read in a process that knows which kernels dominate.
const OF_THESE: usize = 24;
/// What a profile may take.
const DEADLINE: Duration = Duration::from_secs(180);
/// How long a process may take until it stands still.
const START: Duration = Duration::from_secs(60);

/// The kernels that dominate, with the set's metrics of one launch each; in words why there are none.
pub(super) fn kernels(
    bench: &Bench<'_>,
    session: &Session,
    candidate: &Runner,
    waiting: Option<Waiting>,
    seen: Option<&[Launches]>,
    notes: &mut Vec<String>,
) -> Attempt<Result<Vec<Kernel>, String>> {
    let scene = Scene { bench, session, candidate, set: MetricSet::cudaforge24() };
    let many = seen.is_some_and(|seen| seen.iter().map(|launched| launched.count).sum::<u64>() > MOST as u64);
    let wanted: Vec<String> = seen
        .filter(|_| many)
        .map(|seen| dominant(seen).0.iter().map(|kernel| base(&kernel.longest.name)).collect())
        .unwrap_or_default();
    let ready = waiting.filter(|_| !many);
    let first = match ready {
        Some(waiting) => scene.read(waiting),
        None => scene.start(&wanted, !bench.ladder.open_files.load(Ordering::Relaxed))?,
    };
    let launched = match first {
        Ok(launched) => Ok(launched),
        Err(why) if bench.ladder.open_files.load(Ordering::Relaxed) => Err(why),
        Err(why) => match scene.start(&wanted, false)? {
            Ok(launched) => {
                bench.ladder.open_files.store(true, Ordering::Relaxed);
                notes.push(format!("the profiler ran without landlock; behind it: {why}"));
                Ok(launched)
            }
            Err(also) => Err(format!("{why}; without landlock: {also}")),
        },
    };
    if let Err(why) = &launched {
        *bench.ladder.no_counters.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
    }
    Ok(launched.map(|launched| scene.kernels(&launched, seen, notes)))
}

struct Scene<'a> {
    bench: &'a Bench<'a>,
    session: &'a Session,
    candidate: &'a Runner,
    set: MetricSet,
}

impl Scene<'_> {
    fn start(&self, wanted: &[String], landlock: bool) -> Attempt<Result<Vec<Launched>, String>> {
        let wrapper = asked::command(&self.set, if wanted.is_empty() { MOST } else { OF_THESE }, wanted);
        let room = Room { landlock, ..self.bench.room };
        Ok(self.read(Waiting::start(&room, wrapper, false, self.candidate.folder())?))
    }

    fn read(&self, mut waiting: Waiting) -> Result<Vec<Launched>, String> {
        waiting.settle(START);
        let own = usize::from(waiting.primed);
        let job = job(self.bench.room.python, self.session, self.candidate);
        let said = waiting.work(self.candidate.peer.company().user, &job, DEADLINE);
        let launched = said.and_then(|printed| ncu::read(&printed));
        launched.and_then(|mut launched| {
            launched.drain(..own.min(launched.len()));
            if launched.is_empty() { Err("no kernel was launched".to_owned()) } else { Ok(launched) }
        })
    }

    fn kernels(&self, launched: &[Launched], seen: Option<&[Launches]>, notes: &mut Vec<String>) -> Vec<Kernel> {
        let alone: Vec<Launches> = launched.iter().map(Launched::alone).collect();
        let (shown, left_out) = dominant(seen.unwrap_or(&alone));
        if seen.is_none() && launched.len() >= MOST {
            notes.push(format!("the first {MOST} launches of the call were looked at, and no more"));
        }
        notes.extend(left_out);
        shown.iter().map(|kernel| self.kernel(kernel, launched, notes)).collect()
    }

    fn kernel(&self, kernel: &Dominant<'_>, launched: &[Launched], notes: &mut Vec<String>) -> Kernel {
        let (count, share) = (Some(kernel.launches), Some(kernel.share));
        let Some(read) = like(kernel.longest, launched) else {
            let name = kernel.longest.name.clone();
            notes.push(format!("Nsight Compute read nothing of {name}: its durations are torch.profiler's"));
            return Kernel { name, launches: count, share, readings: traced::readings(kernel.longest) };
        };
        Kernel { name: read.kernel.clone(), launches: count, share, readings: asked::readings(&self.set, read, notes) }
    }
}

/// The launch that was read of this kernel: one of the same shape, if there is one, and the longest of these.
fn like<'a>(kernel: &Launches, launched: &'a [Launched]) -> Option<&'a Launched> {
    let of_kernel = launched.iter().filter(|read| base(&read.kernel) == base(&kernel.name));
    of_kernel.max_by(|one, other| {
        let rank = |read: &Launched| (read.shape == kernel.shape, read.duration_ns());
        rank(one).partial_cmp(&rank(other)).unwrap_or(std::cmp::Ordering::Equal)
    })
}
