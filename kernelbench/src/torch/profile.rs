//! Where does a candidate spend its time?
//!
//! The ladder: hardware counters through Nsight Compute; else durations and launch facts through torch's own profiler; else
//! what the compiler made of it; else the timing and the roofline alone. Each profile says which rung it is and why the
//! higher ones were not to be had.

mod compiled;
mod counted;
mod memcheck;
mod roofline;
mod tool;
mod traced;
mod waiting;

pub(crate) use memcheck::memcheck;
pub(crate) use tool::Room;
pub(crate) use waiting::Waiting;

use super::{
    CASE, ncu,
    python::Python,
    runner::Runner,
    session::{Session, candidate_module, source_of},
};
use crate::{evaluation::CaseTiming, failure::Fault, native::trouble::Attempt};
use metrics::{MetricSet, Profile, Rung, Statistic};
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering};

/// The highest rung of the ladder that is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profiler {
    /// Nsight Compute.
    #[default]
    Ncu,
    /// Torch's own profiler.
    Torch,
    /// The compiled code, without running it.
    Static,
    /// None: the timing and the roofline alone.
    None,
}

impl Profiler {
    /// Its name, as settings write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ncu => "ncu",
            Self::Torch => "torch",
            Self::Static => "static",
            Self::None => "none",
        }
    }
}

/// How profiles are taken, and what was learned of this machine meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Ladder {
    pub(crate) first: Profiler,
    /// Whether a process is started under the profiler for each candidate before anybody asks for its profile.
    pub(crate) ahead: bool,
    /// Why Nsight Compute cannot read here, once it was tried.
    pub(crate) no_counters: Mutex<Option<String>>,
    /// Whether it was seen not to start behind landlock.
    pub(crate) open_files: AtomicBool,
}

impl Ladder {
    pub(crate) fn new(first: Profiler, ahead: bool) -> Self {
        Self { first, ahead, ..Self::default() }
    }

    /// Why there are no counters, as far as that is known before they are asked for.
    fn known_against_counters(&self, python: &Python) -> Option<String> {
        if python.device == "cpu" {
            return Some("Nsight Compute looks at GPUs alone".to_owned());
        }
        if self.first > Profiler::Ncu {
            return Some("it was not asked for".to_owned());
        }
        self.no_counters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A process under the profiler for the candidate in this folder, where one is likely to be needed.
    pub(crate) fn wait(&self, room: &Room<'_>, candidate: &std::path::Path) -> Result<Option<Waiting>, Fault> {
        if !self.ahead || self.known_against_counters(room.python).is_some() {
            return Ok(None);
        }
        let wrapper = ncu::command(&MetricSet::cudaforge24(), counted::MOST + 1, &[]);
        let room = Room { landlock: !self.open_files.load(Ordering::Relaxed), ..*room };
        Waiting::start(&room, wrapper, true, candidate).map(Some)
    }
}

/// What a profile is taken with.
pub(crate) struct Bench<'a> {
    pub(crate) room: Room<'a>,
    pub(crate) ladder: &'a Ladder,
    /// How it was timed, if it was.
    pub(crate) timing: Option<&'a (CaseTiming, Statistic)>,
}

/// Profiles one call on fresh inputs, with the process that waits for it if there is one.
pub(crate) fn profile(
    bench: &Bench<'_>,
    session: &mut Session,
    candidate: &mut Runner,
    waiting: Option<Waiting>,
    rng: &mut StdRng,
) -> Attempt<Profile> {
    let readings = roofline::readings(session, bench.timing);
    let mut profile =
        Profile { rung: Rung::TimingOnly, case: CASE.to_owned(), readings, kernels: vec![], notes: vec![] };
    if bench.ladder.first <= Profiler::Torch {
        climb(bench, session, candidate, waiting, rng, &mut profile)?;
    } else {
        profile.notes.push(format!("the settings ask for no higher rung than {:?}", bench.ladder.first.name()));
    }
    if profile.rung == Rung::TimingOnly && bench.ladder.first <= Profiler::Static {
        read_code(bench, candidate, &mut profile)?;
    }
    Ok(profile)
}

/// The two rungs that run it.
fn climb(
    bench: &Bench<'_>,
    session: &mut Session,
    candidate: &mut Runner,
    waiting: Option<Waiting>,
    rng: &mut StdRng,
    profile: &mut Profile,
) -> Attempt<()> {
    session.introduce(candidate)?;
    session.draw(1, false, rng)?;
    candidate.inputs(&session.inputs)?;
    let traced = traced::launches(candidate)?;
    let counted = match bench.ladder.known_against_counters(bench.room.python) {
        Some(why) => Err(why),
        None => counted::kernels(bench, session, candidate, waiting, traced.as_deref().ok(), &mut profile.notes)?,
    };
    session.forget()?;
    match (counted, traced) {
        (Ok(kernels), traced) => {
            (profile.rung, profile.kernels) = (Rung::Ncu, kernels);
            profile.notes.extend(traced.err().map(|why| format!("launches were not counted (torch.profiler): {why}")));
        }
        (Err(why), Ok(launches)) => {
            let (kernels, notes) = traced::kernels(&launches);
            (profile.rung, profile.kernels) = (Rung::TorchProfiler, kernels);
            profile.notes.push(format!("no hardware counters (Nsight Compute): {why}"));
            profile.notes.extend(notes);
        }
        (Err(why), Err(also)) => {
            profile.notes.push(format!("no hardware counters (Nsight Compute): {why}"));
            profile.notes.push(format!("no durations (torch.profiler): {also}"));
        }
    }
    Ok(())
}

/// The rung that runs nothing.
fn read_code(bench: &Bench<'_>, candidate: &Runner, profile: &mut Profile) -> Attempt<()> {
    match compiled::kernels(&bench.room, candidate.folder())? {
        Ok((kernels, notes)) => {
            (profile.rung, profile.kernels) = (Rung::CompiledCode, kernels);
            profile.notes.extend(notes);
        }
        Err(why) => profile.notes.push(format!("no compiled code (cuobjdump): {why}")),
    }
    Ok(())
}

/// What a process under a profiler is told to load and to call.
pub(crate) fn job(python: &Python, session: &Session, candidate: &Runner) -> serde_json::Value {
    serde_json::json!({
        "setup": python.setup(),
        "load": candidate_module(&source_of(candidate.folder())).to_load(candidate.headers),
        "construct": {"init": session.init, "dtype": session.dtype},
        "arena": session.candidate_arena(),
        "inputs": session.inputs,
    })
}
