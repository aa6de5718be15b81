//! What hardware counters say of the kernels that the time goes to.

use super::{ProfilerChain, Ready, Scene, Unready, Wanted, by_range, traced};
use crate::{
    profile::{
        kind::ProfilerKind,
        ncu::{self, Launched, Launches, base, dominant, is_called, of_call},
        waiting::Waiting,
    },
    result::{error::Attempt, failure::Fault},
    stage::{self, Stage},
};
use metrics::{Kernel, MetricSet, Profile, Reading, Rung};
use std::{sync::atomic::Ordering, time::Duration};

/// Launches that Nsight Compute reads, and a process that waits under it is good for; of calls with more, only the dominating
/// kernels are.
pub(super) const MOST: usize = 12;
/// Launches that it reads in a process that knows which kernels dominate.
const OF_THESE: usize = 24;
/// What a profile may take.
const DEADLINE: Duration = Duration::from_mins(1);

/// What Nsight Compute says where another process holds the counters.
const TAKEN: &str = "a driver resource was unavailable";

/// Why nothing was read.
#[derive(Debug, PartialEq)]
pub(super) enum Unread {
    /// The counters cannot be had here: no candidate's doing.
    Counters(String),
    /// The same, from a profiler that ended by itself, perhaps for the layers around it.
    Refused(String),
    /// Its own process cannot read this call launch by launch; Nsight Compute may.
    ByRange(String),
    /// This candidate launched nothing, or did not come to its end; or others read all the time.
    Call(String),
}

type Read = Result<Vec<Launched>, Unread>;

/// The kernels that dominate, with the set's metrics of one launch each, and by what they were read; in words why there are
/// none.
pub(super) fn kernels(
    chain: &ProfilerChain,
    scene: &mut Scene<'_, '_>,
    waiting: Option<Ready>,
    profile: &mut Profile,
) -> Attempt<Result<(Rung, Vec<Kernel>), String>> {
    let Profile { readings, notes, .. } = profile;
    let Some(set) = &chain.set else { return Ok(Err("no metrics were asked for".to_owned())) };
    let counters = Counters { chain, set };
    if waiting.is_none() && chain.counters_by() == Ok(ProfilerKind::Cupti) {
        match by_range::launches(chain, scene, set)? {
            Ok(all) => {
                readings.extend(of_call(&all.iter().map(Launched::alone).collect::<Vec<_>>()));
                return Ok(Ok((Rung::Cupti, counters.kernels(&all, None, notes))));
            }
            Err(Unread::Call(why)) => return Ok(Err(why)),
            Err(unread) => notes.push(format!("not read by CUPTI: {}", chain.learn(ProfilerKind::Cupti, unread))),
        }
        if let Some(why) = chain.known_against_ncu() {
            return Ok(Err(why));
        }
        // Nsight Compute reads another process, and copies what that holds.
        if !scene.candidate.is_broken() {
            scene.candidate.trim_memory(true)?;
        }
        let held = scene.session.wanted_bytes() + scene.session.held_bytes();
        scene.lease.have(held + scene.session.copied_bytes());
    }
    let read = counters.under_ncu(scene, waiting, readings, notes)?;
    Ok(read.map(|kernels| (Rung::Ncu, kernels)))
}

impl ProfilerChain {
    /// Notes what is known against counters from now on, in words.
    fn learn(&self, by: ProfilerKind, unread: Unread) -> String {
        match unread {
            Unread::Counters(why) | Unread::Refused(why) => {
                self.note(by, &why);
                why
            }
            Unread::ByRange(why) | Unread::Call(why) => why,
        }
    }
}

/// What counters are read by.
struct Counters<'a> {
    chain: &'a ProfilerChain,
    set: &'a MetricSet,
}

impl Counters<'_> {
    /// What Nsight Compute reads: all launches of a call, or those of the kernels that dominate.
    fn under_ncu(
        &self,
        scene: &mut Scene<'_, '_>,
        waiting: Option<Ready>,
        readings: &mut Vec<Reading>,
        notes: &mut Vec<String>,
    ) -> Attempt<Result<Vec<Kernel>, String>> {
        let all = match self.first_launches(scene, waiting, notes)? {
            Ok(all) => all,
            Err(unread) => return Ok(Err(self.chain.learn(ProfilerKind::Ncu, unread))),
        };
        if all.len() < MOST {
            readings.extend(of_call(&all.iter().map(Launched::alone).collect::<Vec<_>>()));
            return Ok(Ok(self.kernels(&all, None, notes)));
        }
        let seen = match scene.trace(self.chain)? {
            Ok(seen) => seen,
            Err(why) => {
                notes.push(format!(
                    "the first {MOST} launches of the call were looked at, and no more (torch.profiler: {why})"
                ));
                return Ok(Ok(self.kernels(&all, None, notes)));
            }
        };
        readings.extend(of_call(&seen));
        let wanted: Vec<String> = dominant(&seen).0.iter().map(|kernel| base(&kernel.longest.name)).collect();
        let there = |name: &String| all.iter().any(|read| is_called(&read.kernel, name));
        let all = if wanted.iter().all(there) { all } else { self.start_for(scene, &wanted)?.unwrap_or(all) };
        Ok(Ok(self.kernels(&all, Some(&seen), notes)))
    }

    /// What is read of the first launches of a call. A profiler that ends before it is ready is tried without Landlock, once.
    fn first_launches(
        &self,
        scene: &mut Scene<'_, '_>,
        waiting: Option<Ready>,
        notes: &mut Vec<String>,
    ) -> Result<Read, Fault> {
        let first = match waiting {
            Some(Ok(waiting)) => self.read(scene, waiting)?,
            Some(Err(Unready { why, busy: true })) => Err(Unread::Call(why)),
            Some(Err(Unready { why, busy: false })) => Err(Unread::Counters(why)),
            None => self.start_primed(scene)?,
        };
        let disabled = &self.chain.landlock_disabled;
        match first {
            Err(Unread::Refused(why)) if !disabled.swap(true, Ordering::Relaxed) => {
                let again = self.start_primed(scene)?;
                if again.is_ok() {
                    notes.push(format!("the profiler ran without landlock; behind it: {why}"));
                } else {
                    disabled.store(false, Ordering::Relaxed);
                }
                Ok(again)
            }
            first => Ok(first),
        }
    }

    /// As one that waited reads, with one that is started for it.
    fn start_primed(&self, scene: &mut Scene<'_, '_>) -> Result<Read, Fault> {
        let folder = scene.candidate.folder().to_owned();
        let Some(wanted) = self.chain.reading(&folder) else {
            return Ok(Err(Unread::Call("no metrics were asked for".to_owned())));
        };
        self.start(scene, wanted)
    }

    /// The same, of these kernels alone, under Nsight Compute.
    fn start_for(&self, scene: &mut Scene<'_, '_>, kernels: &[String]) -> Result<Read, Fault> {
        let folder = scene.candidate.folder().to_owned();
        let landlock = !self.chain.landlock_disabled.load(Ordering::Relaxed);
        let wrapper = self.chain.tools.ncu(ncu::command(self.set, OF_THESE, kernels));
        self.start(scene, Wanted { wrapper, primed: false, beside: &folder, landlock })
    }

    fn start(&self, scene: &mut Scene<'_, '_>, wanted: Wanted<'_>) -> Result<Read, Fault> {
        let chain = self.chain;
        let mut waiting = chain.start(wanted)?;
        // It takes seconds to start, and others may read before it does.
        scene.lease.let_others_in();
        let sign = waiting.sign();
        let settled = std::thread::scope(|scope| {
            scope.spawn(|| chain.bring_up(&sign, chain.patience));
            waiting.settle(chain.patience)
        });
        match settled {
            Ok(()) => self.read(scene, waiting),
            Err(why) => Ok(Err(Unread::Counters(why))),
        }
    }

    fn read(&self, scene: &mut Scene<'_, '_>, waiting: Waiting) -> Result<Read, Fault> {
        let (own, was_ready) = (usize::from(waiting.primed), waiting.is_ready());
        let job = self.chain.job(scene.session, scene.candidate)?;
        let Scene { session, lease, make_room, .. } = scene;
        // Nsight Compute copies what the process holds, to the host and for many seconds where the device has no room.
        let copied = session.copied_bytes();
        lease.let_others_in();
        let printed = ProfilerChain::with_folder(waiting, scene.candidate, |mut waiting| {
            waiting.load(&job, DEADLINE)?;
            make_room(copied);
            let _alone = self.chain.read_alone(lease)?;
            stage::during(Stage::Replay, || waiting.go(DEADLINE))
        });
        let printed = printed.map_err(if was_ready { Unread::Call } else { Unread::Counters });
        Ok(printed.and_then(|printed| sorted(&printed, own, was_ready)))
    }

    fn kernels(&self, launched: &[Launched], seen: Option<&[Launches]>, notes: &mut Vec<String>) -> Vec<Kernel> {
        ncu::kernels(self.set, launched, seen, traced::readings, notes)
    }
}

/// The launches of the candidate among those that were read; the process's own is the first.
fn sorted(printed: &str, own: usize, was_ready: bool) -> Read {
    if printed.contains(TAKEN) {
        return Err(Unread::Counters("another tool reads this GPU's counters now".to_owned()));
    }
    let launched = ncu::read(printed).map_err(if was_ready && own == 0 { Unread::Call } else { Unread::Refused })?;
    behind_its_own(launched, own, printed)
}

fn behind_its_own(mut launched: Vec<Launched>, own: usize, printed: &str) -> Read {
    launched.drain(..own.min(launched.len()));
    if launched.is_empty() { Err(Unread::Call(why_nothing(printed))) } else { Ok(launched) }
}

/// What a process said that launched nothing of its candidate's.
fn why_nothing(printed: &str) -> String {
    let before = printed.split("\"ID\",\"Process ID\"").next().unwrap_or_default();
    let said = before.lines().rev().find(|line| line.contains("Error") && !line.starts_with("=="));
    said.map_or("no kernel was launched".to_owned(), |said| format!("no kernel was launched: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::{Unread, sorted};

    const CAPTURE: &str = include_str!("../../../tests/ncu/h200-softplus-softmax.csv");

    #[test]
    fn the_profilers_own_launch_is_left_out_and_nothing_beside_it_is_the_candidates_doing() {
        let launched = sorted(CAPTURE, 1, true).unwrap();
        assert_eq!(launched.len(), 1);
        let header = CAPTURE.find("\"ID\"").unwrap();
        let one: Vec<&str> = CAPTURE[header..].lines().take(3).collect();
        let said = format!("RuntimeError: it did not work\n==PROF== Disconnected\n{}\n", one.join("\n"));
        let Err(Unread::Call(why)) = sorted(&said, 1, true) else { panic!("the candidate launched nothing") };
        assert!(why.contains("it did not work"), "{why}");
    }

    #[test]
    fn where_not_even_the_own_launch_was_read_the_counters_are_refused() {
        let refused = sorted("==ERROR== ERR_NVGPUCTRPERM\n", 1, true);
        assert!(matches!(refused, Err(Unread::Refused(why)) if why.contains("NVGPUCTRPERM")));
        let taken = "==ERROR== An error was reported by the driver:\n==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently collecting profiling data.\n";
        assert!(matches!(sorted(taken, 1, true), Err(Unread::Counters(_))));
    }
}
