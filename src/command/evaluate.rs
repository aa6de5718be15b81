//! `warpsmith evaluate`: candidates of one task, one after another, no model.

use super::{SIMULATED, on_threads, say};
use crate::{
    at::At,
    cli::{EvaluateArgs, ProblemArgs},
    config::{Config, Layers, Word},
    exit::{Exit, Trouble},
    plan,
    progress::{self, Screen},
    quantity, show,
    wiring::{self, Kind},
};
use agents::policy::Policy;
use kernelbench::{
    Baseline, Bindings, Built, Candidate, CaseTiming, Certificate, CertificateVerdict, Evaluation, Failure, Fault,
    Label, Operator, Outcome, Parameter, Precision, Source, Suite, Task, TimingPlan, Tried, Tuned, Variant, Verified,
    Workshop,
    assembly::{Isa, Orders},
};
use metrics::{
    Machine, MachineKind, Profile, Speedup,
    facts::{self, Bottleneck},
};
use serde::{Serialize, Serializer};
use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Instant,
};

/// The largest candidate that is read, in bytes.
const LARGEST: u64 = 4 << 20;
/// Why what was only compiled has no certificate.
const UNCERTIFIED: &str = "nothing is certified: the kernels were compiled, and not run";

/// What was found out.
#[derive(Debug, Serialize)]
struct Found {
    /// The candidate's file, `-` for standard input, or RUN@NAME.
    file: String,
    task: String,
    /// What a problem's weights and inputs were cast to.
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<Precision>,
    candidate: String,
    /// The values of its tuning parameters.
    #[serde(skip_serializing_if = "Bindings::is_empty")]
    bindings: Bindings,
    /// What was tried to find them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<Tried>,
    machine: Machine,
    /// What is to be known of both beside the numbers.
    labels: Vec<Label>,
    /// What each stage took, in seconds, in their order.
    #[serde(serialize_with = "as_object")]
    seconds: Vec<(&'static str, f64)>,
    baseline: Baseline,
    evaluation: Evaluation,
    /// Its speedup over each other baseline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    against: Vec<(String, Speedup)>,
    /// The time that the bandwidth at this size takes for the data, over the candidate's, case by case, where it is known.
    roofline: Vec<(String, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
    /// What bounds its kernels by rule, where a profile was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bottlenecks: Vec<Bottleneck>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<Certificate>,
    /// Why there is none, where one was asked for and none can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertified: Option<&'static str>,
}

/// Builds, checks and times each, and profiles and certifies it if asked to.
pub(super) fn evaluate(arguments: &EvaluateArgs, mut layers: Layers) -> Result<Exit, Trouble> {
    layers.flag("run.policy", arguments.policy.clone(), |config, policy| config.run.policy = policy);
    arguments.timing.apply(&mut layers);
    arguments.problem.apply(&mut layers);
    let config = &layers.config;
    let What { task, candidates, from } = what(arguments, config)?.on(arguments.backend.as_deref())?;
    arguments.problem.fit(&task).map_err(Trouble::usage)?;
    let simulated = from.as_ref().map_or(Ok(false), |at| at.folder.header().map(|header| header.simulated))?;
    let workshop = wiring::workshop(Kind::of(&task, arguments.simulate || simulated), config, arguments.profile, None)?;
    workshop.open_ahead(&task);
    let recorded = from.as_ref().filter(|_| config.run.policy.is_empty()).map(At::policy).transpose()?;
    let policy = plan::policy(config, recorded)?;
    let screen = Screen::new(!arguments.json);
    if simulated && !arguments.json {
        screen.say(SIMULATED);
    }
    crate::logging::start(&screen, None);
    let (suite, build_first) = (Suite::of_task(&task), task.problem().is_some());
    let bench = Bench { workshop: &*workshop, task: &task, suite, policy: &policy, screen: &screen, build_first };
    let found = on_threads(async {
        let mut found = vec![];
        for (file, given) in candidates {
            let candidate = given.on(&*workshop).await?;
            found.push(bench.find_out(file, candidate, arguments).await?);
        }
        Ok::<_, Trouble>(found)
    })?;
    screen.close();
    match found.as_slice() {
        [only] if arguments.json => say(&super::json(only)),
        all if arguments.json => say(&super::json(&all)),
        all => all.iter().for_each(|one| tell(one, all.len() > 1)),
    }
    let correct = |found: &Found| {
        let refused = found.certificate.as_ref().is_some_and(|c| matches!(c.verdict, CertificateVerdict::Refused(_)));
        found.evaluation.holds() && !refused
    };
    Ok(if found.iter().all(correct) { Exit::Done } else { Exit::NothingCorrect })
}

/// What is evaluated.
struct What {
    task: Task,
    /// By their names; all are read before any is built.
    candidates: Vec<(String, Given)>,
    /// The run whose task it is.
    from: Option<At>,
}

impl What {
    /// The same for the backend that was named, where one was.
    fn on(self, backend: Option<&str>) -> Result<Self, Trouble> {
        if backend.is_none() {
            return Ok(self);
        }
        let task = self.task.on_cuda().map_err(|why| Trouble::usage(format!("--backend: {why}")))?;
        let on_cuda = |(name, given)| match given {
            Given::Whole(candidate) => Ok((name, Given::Whole(candidate.on_cuda()))),
            Given::Operator(..) => {
                Err(Trouble::usage(format!("--backend: {name}: an operator in HIP is compiled alone")))
            }
        };
        let candidates = self.candidates.into_iter().map(on_cuda).collect::<Result<_, _>>()?;
        Ok(Self { task, candidates, from: self.from })
    }
}

/// A candidate, as it was named.
enum Given {
    Whole(Candidate),
    /// An operator's folder, with the values that its script is run with.
    Operator(Operator, Bindings),
}

impl Given {
    /// It as a candidate, its primitives printed.
    async fn on(self, workshop: &dyn Workshop) -> Result<Candidate, Trouble> {
        let (operator, bindings) = match self {
            Self::Whole(candidate) => return Ok(candidate),
            Self::Operator(operator, bindings) => (operator, bindings),
        };
        let machine = workshop.machine();
        let isa = if machine.kind == MachineKind::Cpu { Isa::of(&machine.arch.to_string()) } else { Some(Isa::X86) };
        let isa =
            isa.ok_or_else(|| Trouble::usage(format!("there is no table of instructions for {}", machine.arch)))?;
        let printed = match operator.script() {
            Some(script) => match workshop.print(script, &bindings).await? {
                Ok(text) => Some(text),
                Err(Failure::Build { log }) => return Err(Trouble::usage(log)),
                Err(failure) => return Err(Trouble::usage(failure.to_string())),
            },
            None => None,
        };
        let printed = printed.as_deref().map(|text| (isa, text));
        let why = |why| Trouble::usage(format!("primitives.py: what it printed is not taken: {why}"));
        operator.candidate(&bindings, printed, &Orders::default()).map_err(why)
    }
}

fn what(arguments: &EvaluateArgs, config: &Config) -> Result<What, Trouble> {
    let root = &config.run.folder;
    if let Some(at) = At::candidate_named(&arguments.task.to_string_lossy(), root)? {
        let mut task = at.task()?;
        if let (Some(beyond), Source::Problem(problem)) = (arguments.problem.beyond, &mut task.source) {
            problem.beyond = beyond;
        }
        as_recorded(&at.label(), &task, &arguments.problem)?;
        let own = (at.label(), Given::Whole(recorded(&at, arguments)?));
        let all = std::iter::once(own).chain(candidates(arguments, &task, root)?).collect();
        return Ok(What { task, candidates: all, from: Some(at) });
    }
    if arguments.candidates.is_empty() {
        let task = arguments.task.display();
        let which = "which candidate? Name its file behind the task, or a run's as RUN@NAME";
        return Err(Trouble::usage(format!("{task}: {which}")));
    }
    let task = plan::task(&arguments.task, config)?;
    let candidates = candidates(arguments, &task, root)?;
    Ok(What { task, candidates, from: None })
}

/// A candidate of a run is tried on the run's own task: with another precision or reference, that would be another task.
fn as_recorded(label: &str, task: &Task, asked: &ProblemArgs) -> Result<(), Trouble> {
    let Some(own) = task.problem() else { return Ok(()) };
    let refused = |flag: &str, value: &str, what: &str| {
        let help = format!("`warpsmith evaluate PROBLEM.py {label} {flag} {value}` tries it in that");
        Err(Trouble::usage(format!("{flag}: {label} is of a task {what}; {help}")))
    };
    match (asked.precision, asked.reference) {
        (Some(precision), _) if precision != own.precision => {
            refused("--precision", precision.word(), "in another precision")
        }
        (_, Some(reference)) if reference != own.reference => {
            refused("--reference", reference.name(), "whose reference runs in another arithmetic")
        }
        _ => Ok(()),
    }
}

/// The candidates that stand behind the task: files, folders of operators, or candidates of runs.
fn candidates(arguments: &EvaluateArgs, task: &Task, root: &Path) -> Result<Vec<(String, Given)>, Trouble> {
    let of = |path: &PathBuf| {
        if let Some(at) = At::candidate_named(&path.to_string_lossy(), root)? {
            return Ok((at.label(), Given::Whole(recorded(&at, arguments)?)));
        }
        if path.is_dir() {
            let operator = crate::start::operator(path, task).map_err(Trouble::usage)?;
            let mut bindings = operator.first().map_err(Trouble::usage)?;
            bindings.extend(arguments.bind.iter().cloned());
            operator.tuning.allows(&bindings).map_err(|why| Trouble::usage(format!("--bind: {why}")))?;
            return Ok((path.display().to_string(), Given::Operator(operator, bindings)));
        }
        let candidate = bound(task, &Candidate::new(read(path)?), &arguments.bind)?;
        Ok((path.display().to_string(), Given::Whole(candidate)))
    };
    arguments.candidates.iter().map(of).collect()
}

/// A run's candidate, which has its bindings.
fn recorded(at: &At, arguments: &EvaluateArgs) -> Result<Candidate, Trouble> {
    if arguments.bind.is_empty() {
        return at.candidate();
    }
    Err(Trouble::usage(format!("--bind: {} has its bindings already; `warpsmith show` has its source", at.label())))
}

struct Bench<'a> {
    workshop: &'a dyn Workshop,
    task: &'a Task,
    suite: Suite,
    policy: &'a Policy,
    screen: &'a Screen,
    /// Whether the reference is timed only once the candidate is built.
    build_first: bool,
}

impl Bench<'_> {
    async fn find_out(&self, file: String, candidate: Candidate, arguments: &EvaluateArgs) -> Result<Found, Fault> {
        let (workshop, task, plan) = (self.workshop, self.task, &self.policy.timing);
        let mut seconds = Seconds { last: Instant::now(), found: vec![] };
        let show = |what: &str| self.screen.show(&format!("{file}: {what}"));
        show("building");
        let tuned = self.tune(candidate).await?;
        if !tuned.tried.is_empty() {
            seconds.note("search-bindings");
        }
        let candidate = tuned.candidate.clone();
        let mut built = None;
        if self.build_first {
            built = Some(self.build(&candidate, &mut seconds).await?);
        }
        show("building, checking and timing the reference");
        let baseline = workshop.prepare(task, &self.suite, plan).await?;
        seconds.note("prepare");
        let built = if let Some(built) = built {
            built
        } else {
            show("building");
            self.build(&candidate, &mut seconds).await?
        };
        show("checking");
        let tried = tuned.tried;
        let (differs, mut labels) = (baseline.self_difference(), baseline.labels.clone());
        let (evaluation, verified) = match self.verify(built, &mut seconds).await? {
            Err(failure) => (Evaluation::Failed(failure), None),
            Ok(verified) => {
                show("timing");
                match workshop.measure(task, &verified, &self.suite, plan, differs).await? {
                    passed @ Evaluation::Passed(_) => (passed, Some(verified)),
                    other => (other, None),
                }
            }
        };
        seconds.note("time");
        labels.extend(evaluation.passed().map(|timed| timed.labels.clone()).unwrap_or_default());
        let mut found = Found {
            file,
            task: task.name.clone(),
            precision: task.problem().map(|problem| problem.precision),
            candidate: candidate.id().to_string(),
            bindings: candidate.bindings().clone(),
            tried,
            machine: workshop.machine().clone(),
            labels,
            seconds: vec![],
            against: against(&baseline, &evaluation),
            baseline,
            roofline: roofline(&evaluation),
            evaluation,
            profile: None,
            bottlenecks: vec![],
            certificate: None,
            uncertified: None,
        };
        if arguments.certify && matches!(found.evaluation, Evaluation::Compiled(_)) {
            found.uncertified = Some(UNCERTIFIED);
        }
        if let Some(verified) = verified {
            if arguments.profile {
                self.screen.show(&format!("{}: profiling", found.file));
                let profile = workshop.profile(task, &verified, &self.suite).await?;
                found.bottlenecks = facts::facts(&profile);
                found.profile = Some(profile);
                seconds.note("profile");
            }
            if arguments.certify {
                self.screen.show(&format!("{}: building anew, checking and timing for a certificate", found.file));
                let rebuilt = workshop.rebuild(task, &candidate).await?;
                found.certificate = Some(workshop.certify(task, rebuilt, plan).await?);
                seconds.note("certify");
            }
        }
        found.seconds = seconds.found;
        Ok(found)
    }

    /// The best bindings of what a candidate leaves open, and what was tried for them: nothing where nothing is open.
    async fn tune(&self, candidate: Candidate) -> Result<Tuned, Fault> {
        let tuning = self.task.context().map(|context| &context.tuning);
        let Some(tuning) = tuning.filter(|tuning| !candidate.open(tuning).is_empty()) else {
            return Ok(Tuned { candidate, tried: vec![] });
        };
        let build = |candidates: Vec<Candidate>| async move {
            kernelbench::build_ahead(&*self.workshop, self.task, candidates).await;
        };
        let evaluate = |candidate: Candidate, plan: TimingPlan| async move {
            self.workshop.evaluate(self.task, &candidate, &self.suite, &plan).await
        };
        kernelbench::search(tuning, &candidate, &self.policy.timing, self.policy.tests(), build, evaluate).await
    }

    async fn build(&self, candidate: &Candidate, seconds: &mut Seconds) -> Outcome<Built> {
        let built = self.workshop.build(self.task, candidate).await?;
        seconds.note("build");
        Ok(built)
    }

    async fn verify(&self, built: Result<Built, Failure>, seconds: &mut Seconds) -> Outcome<Verified> {
        let verified = match built {
            Err(failure) => return Ok(Err(failure)),
            Ok(built) => self.workshop.check(self.task, built, &self.suite).await?,
        };
        seconds.note("check");
        Ok(verified)
    }
}

/// A candidate's speedup over each other baseline.
fn against(baseline: &Baseline, evaluation: &Evaluation) -> Vec<(String, Speedup)> {
    let Some(timed) = evaluation.passed() else { return vec![] };
    let over = |variant: &Variant| Some((variant.name.clone(), variant.against(&timed.speedup)?));
    baseline.variants.iter().filter_map(over).collect()
}

fn roofline(evaluation: &Evaluation) -> Vec<(String, f64)> {
    let Some(timed) = evaluation.passed() else { return vec![] };
    let share = |case: &CaseTiming| Some((case.case.clone(), case.roofline_share(timed.statistic)?));
    timed.cases.iter().filter_map(share).collect()
}

/// What each stage took.
struct Seconds {
    last: Instant,
    found: Vec<(&'static str, f64)>,
}

impl Seconds {
    fn note(&mut self, stage: &'static str) {
        self.found.push((stage, self.last.elapsed().as_secs_f64()));
        self.last = Instant::now();
    }
}

/// Names and numbers as one object, in their order.
fn as_object<S: Serializer>(pairs: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}

/// A candidate's source; `-` is standard input.
fn read(path: &Path) -> Result<String, Trouble> {
    let wrong = |why: String| Trouble::usage(format!("{}: cannot read the candidate: {why}", path.display()));
    let large = || wrong("expected a source file of at most 4 MiB".into());
    if path == Path::new("-") {
        let mut source = String::new();
        let read = io::stdin().take(LARGEST + 1).read_to_string(&mut source).map_err(|e| wrong(e.to_string()))?;
        return if read as u64 > LARGEST { Err(large()) } else { Ok(source) };
    }
    let about = fs::metadata(path).map_err(|e| wrong(e.to_string()))?;
    if !about.is_file() || about.len() > LARGEST {
        return Err(large());
    }
    fs::read_to_string(path).map_err(|e| wrong(e.to_string()))
}

/// A candidate with what the command line binds.
fn bound(task: &Task, candidate: &Candidate, bind: &[(String, Parameter)]) -> Result<Candidate, Trouble> {
    let space = task.context().map(|context| context.tuning.clone()).unwrap_or_default();
    let bindings: Bindings = bind.iter().cloned().collect();
    space.allows(&bindings).map_err(|why| Trouble::usage(format!("--bind: {why}")))?;
    Ok(candidate.bound(bindings))
}

fn tell(found: &Found, named: bool) {
    if named {
        say(&progress::plain(&found.file));
    }
    for line in progress::reference(&found.baseline) {
        say(&line);
    }
    if !found.tried.is_empty() {
        say(&format!("bindings   {}", progress::tuned(&found.tried).trim().trim_start_matches("tuned: ")));
    }
    for line in progress::labels(&found.labels) {
        say(&line);
    }
    say(&format!("candidate  {}", progress::evaluated(&found.evaluation)));
    if let Evaluation::Passed(timed) = &found.evaluation {
        for case in &timed.cases {
            let (reference, own) =
                (case.reference.typical_ns(timed.statistic), case.candidate.typical_ns(timed.statistic));
            say(&format!(
                "           {}: {} against {}, {}",
                progress::plain(&case.case),
                quantity::time(own),
                quantity::time(reference),
                quantity::speedup(&case.speedup)
            ));
            if let Some(share) = case.roofline_share(timed.statistic) {
                let floor = quantity::time(case.floor_ns.unwrap_or_default());
                say(&format!(
                    "           {:.0} % of the roofline: moving the data takes {floor} at the bandwidth of this size",
                    share * 100.0
                ));
            }
        }
    }
    for (name, speedup) in &found.against {
        say(&format!("           {} over {}", quantity::speedup(speedup), progress::plain(name)));
    }
    if let Some(why) = found.uncertified {
        say(&format!("           {why}"));
    }
    if let Evaluation::Failed(Failure::Build { log } | Failure::Interface { log }) = &found.evaluation {
        log.lines().for_each(|line| say(&format!("           {}", progress::plain(line))));
    }
    if let Some(profile) = &found.profile {
        say(show::profile(profile).trim_end());
    }
    if let Some(certificate) = &found.certificate {
        say(show::certificate(certificate).trim_end());
    }
}
