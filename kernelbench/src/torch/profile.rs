//! Where does a candidate spend its time on the GPU?
//!
//! The ladder: Nsight Compute over one call of the built candidate in a process of its own; where that is out of reach,
//! the timing and the roofline alone, with the reason.

use super::{
    CASE,
    harness::Harness,
    ncu::{self, MetricSet},
    python::{Facts, Python, Scene},
    runner::Runner,
    session::{Session, candidate_module, source_of},
};
use crate::native::trouble::Attempt;
use metrics::{Profile, Rung};
use rand::rngs::StdRng;
use serde_json::json;
use std::time::Duration;

/// What a profile may take.
const DEADLINE: Duration = Duration::from_secs(180);

/// Profiles one call on fresh inputs. The candidate's own process stands still meanwhile.
pub(crate) fn profile(
    python: &Python,
    harness: &Harness,
    facts: &Facts,
    session: &mut Session,
    candidate: &Runner,
    rng: &mut StdRng,
) -> Attempt<Profile> {
    if !session.on_gpu {
        return Ok(timing_only("no profiler looks at Python on the processor"));
    }
    session.draw(1, false, rng)?;
    let source = source_of(candidate.folder());
    let job = json!({
        "load": candidate_module(&source).to_load(candidate.headers),
        "construct": {"init": session.init, "dtype": session.dtype},
        "arena": session.candidate_arena(candidate),
        "inputs": session.inputs,
    });
    let set = MetricSet::cudaforge24();
    let mut scene = Scene {
        harness,
        facts,
        company: candidate.peer.company(),
        folder: candidate.folder(),
        profiler: &set.command(),
        job,
        landlock: true,
        deadline: DEADLINE,
    };
    let look = |scene: &Scene<'_>| python.profiled(scene).map(|said| said.and_then(|printed| ncu::read(&printed)));
    let first = match look(&scene)? {
        Ok(launches) => return Ok(set.profile(CASE, &launches)),
        Err(why) => why,
    };
    scene.landlock = false;
    Ok(match look(&scene)? {
        Ok(launches) => {
            let mut profile = set.profile(CASE, &launches);
            profile.notes.push(format!("the profiler ran without landlock; behind it: {first}"));
            profile
        }
        Err(why) => timing_only(&format!("no hardware counters (ncu): {first}; without landlock: {why}")),
    })
}

fn timing_only(why: &str) -> Profile {
    Profile { rung: Rung::TimingOnly, case: CASE.to_owned(), readings: vec![], notes: vec![why.to_owned()] }
}
