//! Where does a candidate spend its time?
//!
//! The ladder: hardware counters through Nsight Compute; else durations and launch facts through torch's own profiler; else
//! what the compiler made of it; else the timing and the roofline alone. Each profile says which rung it is and why the
//! higher ones were not to be had.

pub(crate) mod ahead;
pub(crate) mod compiled;
pub(crate) mod counted;
pub(crate) mod memcheck;
pub(crate) mod roofline;
pub(crate) mod tool;
pub(crate) mod traced;
pub(crate) mod waiting;

pub(crate) use memcheck::memcheck;
pub(crate) use tool::Room;
pub(crate) use waiting::Waiting;

use ahead::Ahead;
use waiting::Plan;

use crate::{
    backend::torch::{
        CASE,
        options::Options,
        python::Python,
        runner::Runner,
        session::{Session, candidate_module, source_of},
    },
    profile::ncu::{self, Launches, Permit},
    result::{error::Attempt, evaluation::CaseTiming},
};
use metrics::{MetricSet, Profile, Rung, Statistic};
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A process that stands still under the profiler; in words why there is none.
pub(crate) type Ready = Result<Waiting, String>;

/// How long it is remembered that the counters could not be read.
const REMEMBERED: Duration = Duration::from_mins(2);

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
#[derive(Default)]
pub(crate) struct Ladder {
    pub(crate) first: Profiler,
    /// What Nsight Compute is asked for.
    set: Option<MetricSet>,
    /// Whether a process is started under the profiler before anybody asks for a profile.
    wanted: bool,
    /// How long it may take until it stands still.
    patience: Duration,
    /// The one that was.
    ahead: Arc<Ahead>,
    /// Why Nsight Compute could not read here when it was tried last, and when that was.
    no_counters: Mutex<Option<(String, Instant)>>,
    /// Whether it was seen not to start behind landlock.
    open_files: AtomicBool,
}

impl Ladder {
    pub(crate) fn new(options: &Options) -> Self {
        let Options { profiler, profile_ahead, profile_patience, ref device, .. } = *options;
        let (first, wanted, patience, ahead) = (profiler, profile_ahead, profile_patience, Ahead::new(device));
        Self { first, set: options.metrics.clone(), wanted, patience, ahead, ..Self::default() }
    }

    /// Why there are no counters, as far as that is known before they are asked for.
    fn known_against_counters(&self, python: &Python) -> Option<String> {
        if python.device == "cpu" && python.ncu.is_none() {
            return Some("Nsight Compute looks at GPUs alone".to_owned());
        }
        if self.first > Profiler::Ncu || self.set.is_none() {
            return Some("it was not asked for".to_owned());
        }
        let known = self.no_counters.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(_, when)| when.elapsed() < REMEMBERED).map(|(why, _)| why.clone())
    }

    /// Notes why there are none.
    fn note(&self, why: &str) {
        *self.no_counters.lock().unwrap_or_else(PoisonError::into_inner) = Some((why.to_owned(), Instant::now()));
    }

    /// Whether a process is to wait under the profiler.
    pub(crate) fn wants_one_ahead(&self, python: &Python) -> bool {
        self.wanted && self.known_against_counters(python).is_none()
    }

    /// Has one wait under the profiler, for a candidate whose folder is this or lies in it, where none waits and nobody else
    /// reads counters; its id, and the file that is there once it stands still.
    pub(crate) fn begin(&self, room: &Room<'_>, beside: &Path) -> Option<(i32, PathBuf)> {
        self.ahead.begin(|| {
            let permit = Permit::take(&room.python.device, Duration::ZERO).ok()?;
            let wrapper = room.ncu(ncu::command(self.set.as_ref()?, counted::MOST + 1, &[]));
            let room = Room { landlock: !self.open_files.load(Ordering::Relaxed), ..*room };
            Waiting::start(&room, Plan { wrapper, primed: true, beside, permit: Some(permit) }).ok()
        })
    }

    /// The one that waits, if it may be given the candidate in this folder, once it stands still; in words why it does not.
    pub(crate) fn take(&self, candidate: &Path) -> Option<Ready> {
        let mut waiting = self.ahead.take(candidate)?;
        Some(waiting.settle(self.patience).map(|()| waiting))
    }

    /// Waits while the one that waits reads counters.
    pub(crate) fn come_to_rest(&self) {
        self.ahead.come_to_rest();
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
    waiting: Option<Ready>,
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
    waiting: Option<Ready>,
    rng: &mut StdRng,
    profile: &mut Profile,
) -> Attempt<()> {
    session.draw(1, false, rng)?;
    let counted = match bench.ladder.known_against_counters(bench.room.python) {
        Some(why) => Err(why),
        None => counted::kernels(bench, session, candidate, waiting, &mut profile.notes)?,
    };
    match counted {
        Ok(kernels) => (profile.rung, profile.kernels) = (Rung::Ncu, kernels),
        Err(why) => {
            profile.notes.push(format!("no hardware counters (Nsight Compute): {why}"));
            match trace(session, candidate)? {
                Ok(launches) => {
                    let (kernels, notes) = traced::kernels(&launches);
                    (profile.rung, profile.kernels) = (Rung::TorchProfiler, kernels);
                    profile.notes.extend(notes);
                }
                Err(why) => profile.notes.push(format!("no durations (torch.profiler): {why}")),
            }
        }
    }
    session.forget()
}

/// The launches of a call on the inputs that were drawn last, as torch's own profiler sees them.
fn trace(session: &mut Session, candidate: &mut Runner) -> Attempt<Result<Vec<Launches>, String>> {
    session.introduce(candidate)?;
    candidate.inputs(&session.inputs)?;
    traced::launches(candidate)
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
