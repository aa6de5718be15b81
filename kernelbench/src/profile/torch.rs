//! Profiles of problems: where a candidate spends its time.
//!
//! A chain of profilers, each asked where the one before it cannot say: hardware counters through CUPTI's range profiler, by
//! the candidate's own process; the same through Nsight Compute, around another; durations and launch facts through torch's own profiler; what the
//! compiler made of it; the timing and the roofline alone. Each profile says which it is of and why those before it were not
//! to be had.

mod ahead;
mod by_range;
mod compiled;
mod counted;
mod memcheck;
mod roofline;
mod traced;

use super::{
    kind::ProfilerKind,
    ncu::{self, Permit},
    tool::Tools,
    waiting::{Plan, Sign, Waiting},
};
use crate::{
    backend::torch::{
        contract::CASE,
        options::Options,
        problem::OpenProblem,
        python::{self, Python},
        runner::Runner,
        wire::Job,
    },
    engine::{notes::LastTiming, sessions::lock},
    lease::Lease,
    profile::ncu::{Launches, of_call},
    result::{
        error::{Attempt, fault},
        failure::Fault,
        label::Label,
    },
    sandbox::{
        pool::{Quiet, Starting, Turn},
        start::give,
    },
    stage::{self, Stage},
};
use ahead::Ahead;
use metrics::{MetricSet, Profile, Rung};
use rand::rngs::StdRng;
use serde::Serialize;
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How long it is remembered that the counters could not be read.
const REMEMBERED: Duration = Duration::from_mins(2);
/// How long a process may take until it is ready under a profiler, where nobody waits for it, or under a sanitizer.
const START: Duration = Duration::from_mins(5);
/// How long it is waited for one to begin to start, and how often one is asked for meanwhile.
const BEGUN: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(300);
/// The most that wait under the profiler, each with a context on the GPU.
const MOST_AHEAD: usize = 3;
/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(5);
/// How long it is waited until nobody else reads counters.
const READING_ELSEWHERE: Duration = Duration::from_mins(1);
/// How often that is done aside from the device, before it is done alone on it, and for how long then.
const ASIDE: u32 = 3;
const READING_ITS_OWN: Duration = Duration::from_secs(3);
/// The file in its folder that says what a process is asked (`harness/profiled.py`).
const ASKED: &str = "asked";
/// What begins a line that says how long a stage took.
const STAGE: &str = "warpsmith stage ";

/// What is known against a profiler, and since when.
type Known = Mutex<Option<(String, Instant)>>;

/// A process that waits under the profiler; why there is none.
pub(crate) type Ready = Result<Waiting, Unready>;

/// Why a process under the profiler was not ready in time.
pub(crate) struct Unready {
    why: String,
    /// Whether others asked or read meanwhile: no word against the counters.
    busy: bool,
}

/// How profiles are taken, and what was learned of this machine meanwhile.
pub(crate) struct ProfilerChain {
    first: ProfilerKind,
    /// Which counters are asked for.
    set: Option<MetricSet>,
    /// Whether a process is started under the profiler before anybody asks for a profile.
    wanted: bool,
    /// How long it may take until it is ready.
    patience: Duration,
    /// Those that were.
    ahead: Ahead,
    /// How many ask for one.
    asking: AtomicUsize,
    /// Why a process could not read its own counters when that was tried last, and when that was.
    no_cupti: Known,
    /// The same of Nsight Compute.
    no_ncu: Known,
    /// Whether it was seen not to start behind Landlock.
    landlock_disabled: AtomicBool,
    python: Arc<Python>,
    tools: Tools,
    starting: Arc<Starting>,
}

/// What is profiled.
pub(crate) struct Scene<'a, 'gate> {
    pub(crate) session: &'a mut OpenProblem,
    pub(crate) candidate: &'a mut Runner,
    /// The device, beside others until something is read.
    pub(crate) lease: &'a mut Lease<'gate>,
    /// How it was timed, if it was.
    pub(crate) timing: Option<&'a LastTiming>,
    /// Has those who wait give way until so many bytes of the device are free.
    pub(crate) make_room: &'a dyn Fn(u64),
}

/// What a process is told in its folder.
#[derive(Serialize)]
struct Asked<'a> {
    /// Whether one launch of its own is read first.
    primed: bool,
    device: &'a str,
}

/// What is started.
struct Wanted<'a> {
    /// The command line of the tool around it.
    wrapper: Vec<String>,
    /// Whether one launch of its own is read first.
    primed: bool,
    /// The folder of the candidate, or one that candidates' folders lie in.
    beside: &'a Path,
    landlock: bool,
}

impl ProfilerChain {
    pub(crate) fn new(options: &Options, python: Arc<Python>, starting: Arc<Starting>) -> Self {
        let tools = Tools {
            sandbox: Arc::clone(&python.sandbox),
            readable: python.readable(),
            environment: {
                let python = Arc::clone(&python);
                Arc::new(move |folder| python.environment(folder))
            },
            own_users: python.has_users(),
            ncu: options.ncu.clone(),
        };
        Self {
            first: options.profiler,
            set: options.metrics.clone(),
            wanted: options.profile_ahead,
            patience: options.profile_patience,
            ahead: Ahead::default(),
            asking: 0.into(),
            no_cupti: Known::default(),
            no_ncu: Known::default(),
            landlock_disabled: false.into(),
            python,
            tools,
            starting,
        }
    }

    /// What tools around candidates are started with.
    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// What reads counters here: the candidate's process, or Nsight Compute around another; in words why nothing does, as far as that is
    /// known before they are asked for.
    fn counters_by(&self) -> Result<ProfilerKind, String> {
        let set = self.set.as_ref().ok_or("it was not asked for")?;
        let itself = self.first <= ProfilerKind::Cupti && !self.python.is_on_cpu() && ncu::is_of_ranges(set);
        if itself && known(&self.no_cupti).is_none() {
            return Ok(ProfilerKind::Cupti);
        }
        self.known_against_ncu().map_or(Ok(ProfilerKind::Ncu), Err)
    }

    /// Whether Nsight Compute reads counters here: in a process of its own, of which it copies what that holds.
    pub(crate) fn is_by_ncu(&self) -> bool {
        self.counters_by() == Ok(ProfilerKind::Ncu)
    }

    /// Why Nsight Compute does not read counters here.
    fn known_against_ncu(&self) -> Option<String> {
        if self.python.is_on_cpu() && self.tools.ncu.is_none() {
            return Some("Nsight Compute looks at GPUs alone".to_owned());
        }
        if self.first > ProfilerKind::Ncu {
            return Some("it was not asked for".to_owned());
        }
        known(&self.no_ncu)
    }

    /// Notes why this one reads none.
    fn note(&self, by: ProfilerKind, why: &str) {
        let itself = by == ProfilerKind::Cupti;
        *lock(if itself { &self.no_cupti } else { &self.no_ncu }) = Some((why.to_owned(), Instant::now()));
        if !itself {
            self.ahead.end();
        }
    }

    /// One that reads the first launches of any call, and one of its own before.
    fn reading<'a>(&self, beside: &'a Path) -> Option<Wanted<'a>> {
        let wrapper = self.tools.ncu(ncu::command(self.set.as_ref()?, counted::MOST + 1, &[]));
        let landlock = !self.landlock_disabled.load(Ordering::Relaxed);
        Some(Wanted { wrapper, primed: true, beside, landlock })
    }

    /// How many are to wait: one, or as many as are asked for.
    fn wanted_ahead(&self) -> usize {
        self.asking().clamp(1, MOST_AHEAD)
    }

    fn asking(&self) -> usize {
        self.asking.load(Ordering::Relaxed)
    }

    /// Has one more process wait under the profiler, in the background, where one is wanted: for any candidate, where each has
    /// a user of its own, and for the one in this folder otherwise.
    pub(crate) fn start_ahead(self: &Arc<Self>, candidate: Option<&Path>) {
        let any = self.python.has_users().then(|| self.python.folder_of_candidates.clone());
        let Some(beside) = any.or_else(|| candidate.map(Path::to_owned)) else { return };
        if self.wanted && self.is_by_ncu() && self.ahead.count() < self.wanted_ahead() {
            let chain = Arc::clone(self);
            std::thread::spawn(move || chain.wait_ahead(&beside));
        }
    }

    fn wait_ahead(&self, beside: &Path) {
        let Ok(turn) = self.starting.turn() else { return };
        let begun = self
            .ahead
            .begin(self.wanted_ahead(), || self.start(self.reading(beside).filter(|_| self.is_by_ncu())?).ok());
        if let Some(sign) = begun {
            self.start_beside(&sign, Some(turn));
            if !sign.is_ready() && sign.lives() {
                self.ahead.end_one(sign.id);
            }
        }
    }

    /// Waits until a process is ready or gone. What it does before it needs the device it does as others that are being started,
    /// beside a timing where there are cores enough; from then on it stops whenever something is timed. Its turn to import ends
    /// when it has.
    fn start_beside(&self, sign: &Sign, turn: Option<Turn<'_>>) {
        self.starting.while_importing(sign.id, true, || self.wait_while(sign, START, || !sign.has_imported()));
        drop(turn);
        if self.starting.wait_for_noise().is_ok() {
            self.starting.while_starting(sign.id, true, || self.bring_up(sign, START));
        }
    }

    /// Waits until a process is ready or gone, and has it use the device meanwhile, and its profiler read a launch of its own
    /// once nobody else reads.
    fn bring_up(&self, sign: &Sign, patience: Duration) {
        let (mut uses_device, mut permit) = (false, None);
        self.wait_while(sign, patience, || {
            if !uses_device && sign.has_imported() {
                uses_device = true;
                if sign.go_on().is_err() {
                    return false;
                }
            }
            if permit.is_none() && sign.is_warm() && !self.starting.is_quiet() {
                permit = Permit::take(&self.python.device, Duration::ZERO).ok();
                if permit.is_some() && sign.go_on().is_err() {
                    return false;
                }
            }
            !sign.is_ready()
        });
    }

    /// Waits as long as this holds, a process lives, and there is time.
    fn wait_while(&self, sign: &Sign, patience: Duration, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while holds() && sign.lives() && start.elapsed() < patience && !self.starting.is_closing() {
            std::thread::sleep(LOOK);
        }
    }

    /// One that waits, if it may be given the candidate in this folder, once it is ready; in words why it is not. Until it is, it
    /// stops whenever something is timed, as others do that are being started.
    pub(crate) fn at_hand(self: &Arc<Self>, candidate: &Path) -> Option<Ready> {
        let _stage = stage::begin(Stage::ProfileStart);
        self.asking.fetch_add(1, Ordering::Relaxed);
        let ready = self.wait_for_one(candidate);
        self.asking.fetch_sub(1, Ordering::Relaxed);
        self.start_ahead(None);
        ready
    }

    fn wait_for_one(self: &Arc<Self>, candidate: &Path) -> Option<Ready> {
        let (start, mut asked, mut most) = (Instant::now(), None::<Instant>, 1);
        let mut found = self.ahead.take_settled(candidate);
        while found.is_none() && self.wanted && self.is_by_ncu() {
            let absent = self.ahead.count() == 0;
            most = most.max(self.asking());
            if start.elapsed() > if absent { BEGUN } else { self.patience * u32::try_from(most).unwrap_or(1) } {
                break;
            }
            if asked.is_none_or(|at| at.elapsed() > AGAIN) {
                self.start_ahead(Some(candidate));
                asked = Some(Instant::now());
            }
            std::thread::sleep(LOOK);
            found = self.ahead.take_settled(candidate);
        }
        let mut waiting = found.or_else(|| self.ahead.take(candidate))?;
        let sign = waiting.sign();
        self.starting.release(sign.id);
        let settled = waiting.settle(self.patience).map(|()| waiting);
        Some(settled.map_err(|why| Unready { why, busy: most > 1 || sign.is_warm() }))
    }

    /// Waits while one that waits reads a launch of its own: it is not to be stopped with the counters in its hand.
    pub(crate) fn let_reading_end(&self) {
        self.ahead.let_reading_end();
    }

    /// Starts a process, under a tool where there is one.
    fn start(&self, wanted: Wanted<'_>) -> Result<Waiting, Fault> {
        let Wanted { wrapper, primed, beside, landlock } = wanted;
        let script = self.python.harness.profiled();
        let asked = Asked { primed, device: self.python.own_device() };
        let process = |folder: &Path| {
            let asked = serde_json::to_vec(&asked).map_err(|e| Fault::Machine(e.to_string()))?;
            std::fs::write(folder.join(ASKED), asked).map_err(fault("cannot write what a process is asked"))?;
            Ok(self.python.script(&script, &folder.display().to_string()))
        };
        let plan = Plan { wrapper, process: &process, primed, beside: Some(beside), landlock, permit: None };
        Waiting::start(&self.tools, plan)
    }

    /// Has a process under a tool work on a candidate, whose folder is handed over meanwhile; what it and its tool printed
    /// until they ended, or in words why they did not end.
    fn with_folder(
        waiting: Waiting,
        candidate: &Runner,
        work: impl FnOnce(Waiting) -> Result<String, String>,
    ) -> Result<String, String> {
        let (start, folder) = (Instant::now(), candidate.folder());
        let (owner, user) = (candidate.peer.user(), waiting.user());
        let hand_over = |from, to: Option<u32>, how: &str| {
            let given = to.map_or(Ok(()), |to| give(folder, from, to));
            given.map_err(|e| format!("its folder cannot be handed {how}: {e}"))
        };
        hand_over(owner, user, "over")?;
        let said = work(waiting);
        hand_over(None, owner, "back")?;
        let lines = said.iter().flat_map(|said| said.lines());
        let stages: Vec<&str> = lines.filter(|line| line.starts_with(STAGE)).collect();
        tracing::debug!(took = ?start.elapsed(), ?stages, "profiled");
        said
    }

    /// Waits until nobody else uses the device, nor starts a process on it.
    fn be_alone(&self, lease: &mut Lease<'_>) -> Quiet {
        lease.be_alone();
        self.let_reading_end();
        self.starting.quiet()
    }

    /// The same, and nobody else reads its counters; in words why not. Nobody waits for the device with the permit in hand: where
    /// another reads now, a launch of its own beside others as a rule, it is waited for aside from the device.
    fn read_alone(&self, lease: &mut Lease<'_>) -> Result<(Permit, Quiet), String> {
        let (start, device) = (Instant::now(), &self.python.device);
        for tried in 0.. {
            lease.be_alone();
            let patience = if tried < ASIDE { Duration::ZERO } else { READING_ITS_OWN };
            let why = match Permit::take(device, patience) {
                // Not before: whoever is to give the permit back must not be stopped.
                Ok(permit) => return Ok((permit, self.starting.quiet())),
                Err(why) => why,
            };
            if start.elapsed() > READING_ELSEWHERE {
                lease.let_others_in();
                return Err(why);
            }
            lease.step_aside();
            let _stage = stage::begin(Stage::Lease);
            drop(Permit::take(device, READING_ELSEWHERE.saturating_sub(start.elapsed())));
        }
        unreachable!("it ends by returning")
    }

    /// What a process under a tool is told to load and to call.
    fn job(&self, session: &OpenProblem, candidate: &Runner) -> Result<Job, Fault> {
        let empty = || Fault::Machine("the candidate's process was never given its module".to_owned());
        let role = candidate.role.as_ref().ok_or_else(empty)?;
        Ok(Job {
            setup: self.python.setup(),
            load: candidate.module(role),
            construct: candidate.how_to_construct(&session.init, session.arithmetic),
            arena: session.candidate_arena().clone(),
            inputs: session.inputs.clone(),
            environment: python::caches(candidate.folder()),
            once: None,
        })
    }

    /// The launches of one call on the inputs that were drawn last, as torch's own profiler sees them; in words why there are none.
    pub(crate) fn launches(&self, mut scene: Scene<'_, '_>) -> Attempt<Result<Vec<Launches>, String>> {
        let launches = scene.trace(self)?;
        scene.session.trim_memory()?;
        scene.lease.let_others_in();
        Ok(launches)
    }

    /// Profiles one call on fresh inputs, with the process that waits for it if there is one.
    pub(crate) fn profile(
        &self,
        mut scene: Scene<'_, '_>,
        waiting: Option<Ready>,
        rng: &mut StdRng,
    ) -> Attempt<Profile> {
        let readings = roofline::readings(scene.session, scene.timing);
        let mut profile =
            Profile { rung: Rung::TimingOnly, case: CASE.to_owned(), readings, kernels: vec![], notes: vec![] };
        if self.first <= ProfilerKind::Torch {
            self.run_profilers(&mut scene, waiting, rng, &mut profile)?;
        } else {
            profile.notes.push(format!("the settings ask for no profiler before {:?}", self.first.name()));
        }
        if profile.rung == Rung::TimingOnly && self.first <= ProfilerKind::Static {
            self.read_code(scene.candidate, &mut profile)?;
        }
        Ok(profile)
    }

    /// Those that run it.
    fn run_profilers(
        &self,
        scene: &mut Scene<'_, '_>,
        waiting: Option<Ready>,
        rng: &mut StdRng,
        profile: &mut Profile,
    ) -> Attempt<()> {
        scene.session.draw(1, false, rng)?;
        let counted = match self.counters_by() {
            Err(why) => Err(why),
            Ok(_) => counted::kernels(self, scene, waiting, profile)?,
        };
        match counted {
            Ok(read) => (profile.rung, profile.kernels) = read,
            Err(why) => {
                profile.notes.push(format!("no hardware counters: {why}"));
                match scene.trace(self)? {
                    Ok(launches) => {
                        let (kernels, notes) = traced::kernels(&launches);
                        (profile.rung, profile.kernels) = (Rung::TorchProfiler, kernels);
                        profile.readings.extend(of_call(&launches));
                        profile.notes.extend(notes);
                    }
                    Err(why) => profile.notes.push(format!("no durations (torch.profiler): {why}")),
                }
            }
        }
        scene.session.trim_memory()
    }

    /// The one that runs nothing.
    fn read_code(&self, candidate: &Runner, profile: &mut Profile) -> Attempt<()> {
        match compiled::kernels(&self.tools, candidate.folder())? {
            Ok((kernels, notes)) => {
                (profile.rung, profile.kernels) = (Rung::CompiledCode, kernels);
                profile.notes.extend(notes);
            }
            Err(why) => profile.notes.push(format!("no compiled code (cuobjdump): {why}")),
        }
        Ok(())
    }

    /// What the code that was built in a candidate's folder shows that is not so in every call.
    pub(crate) fn races(&self, candidate: &Path) -> Vec<Label> {
        compiled::races(&self.tools, candidate)
    }
}

/// What is known, where it is not too long ago.
fn known(against: &Known) -> Option<String> {
    lock(against).as_ref().filter(|(_, when)| when.elapsed() < REMEMBERED).map(|(why, _)| why.clone())
}

impl Scene<'_, '_> {
    /// Shows the candidate's process the inputs that were drawn last, beside others.
    fn bind(&mut self) -> Attempt<()> {
        self.lease.let_others_in();
        self.session.bind(self.candidate)?;
        self.candidate.set_inputs(&self.session.inputs).map(|_| ())
    }

    /// The launches of a call on the inputs that were drawn last, as torch's own profiler sees them.
    fn trace(&mut self, chain: &ProfilerChain) -> Attempt<Result<Vec<Launches>, String>> {
        if self.candidate.is_broken() {
            self.candidate.restart(&chain.python, START)?;
        }
        self.bind()?;
        let _quiet = chain.be_alone(self.lease);
        let _stage = stage::begin(Stage::Replay);
        traced::launches(self.candidate)
    }
}
