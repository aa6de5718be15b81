//! Do configurations of one text go on in one process, and is what counts examined in one that had no other?

use super::{
    super::{Gate, Refusals, backend::*, notes::LastTiming, sessions::Kept},
    *,
};
use crate::{
    backend::native::NUMBERS,
    engine::sessions::lock,
    measure::{floor::Traffic, numbers::Numbers, reading::Reading},
    result::{certificate::Check, failure::Fault},
    sandbox::layer::Layer,
    task::{Source, load, space::Parameter},
};
use metrics::{Arch, Machine, MachineKind, Profile};
use rand::rngs::StdRng;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

/// What a call takes by both clocks, in nanoseconds.
const REFERENCE_NS: f64 = 20_000.0;
const CANDIDATE_NS: f64 = 10_000.0;

/// What is known of a process that was started for a candidate.
#[derive(Debug, Default)]
struct Life {
    /// The configurations that it was given, in order.
    given: Vec<String>,
    /// How many others were there still when it was started.
    others: usize,
    /// Requests of a check whose outputs were compared.
    checked: u32,
    has_ended: bool,
}

/// A process that is no more than what is known of it. It is there for as long as anybody has it but the stand-in.
type Process = Arc<Mutex<Life>>;

/// A configuration, and its process once it is needed.
struct Kernel {
    name: String,
    does: String,
    process: Option<Process>,
}

/// A backend without kernels and without processes.
struct StandIn {
    numbers: Numbers,
    machine: Machine,
    /// Every process, in the order in which they were started.
    started: Mutex<Vec<Process>>,
}

/// A reference that is always right, beside a candidate that does what its bindings say. It is wrong in checks alone.
struct Sides<'a> {
    does: &'a str,
    process: Process,
    calls: usize,
    case: String,
}

impl StandIn {
    /// The process of a configuration, started where it has none.
    fn process(&self, kernel: &mut Kernel) -> Process {
        let start = || {
            let mut started = lock(&self.started);
            let others = started.iter().filter(|process| Arc::strong_count(process) > 1).count();
            let life = Life { given: vec![kernel.name.clone()], others, ..Life::default() };
            let process = Arc::new(Mutex::new(life));
            started.push(Arc::clone(&process));
            process
        };
        Arc::clone(kernel.process.get_or_insert_with(start))
    }
}

impl Backend for StandIn {
    type Session = ();
    type Loaded = Kernel;
    type Tool = ();
    type Pair<'a> = Sides<'a>;

    fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn seed(&self) -> Option<u64> {
        Some(1)
    }

    fn fits(&self, _: &Task, _: &Case) -> Result<u64, String> {
        Ok(1)
    }

    fn describe_build(&self, _: &Task) -> Result<String, Fault> {
        Ok(String::new())
    }

    fn open(&self, _: &Task, _: Toolchain, _: &mut dyn FnMut(Option<u64>)) -> Attempt<()> {
        Ok(())
    }

    fn load(&self, _: &Task, candidate: &Candidate, _: Toolchain) -> Attempt<Kernel> {
        let does = candidate.bindings().get("DOES").map(Parameter::to_string).unwrap_or_default();
        Ok(Kernel { name: candidate.text(), does, process: None })
    }

    fn artifact(&self, _: &Kernel) -> PathBuf {
        PathBuf::new()
    }

    fn pair<'a>(
        &'a self,
        _: &'a Task,
        (): &'a mut (),
        loaded: &'a mut Kernel,
        (_, processes): (Standard, Processes),
    ) -> Attempt<Sides<'a>> {
        if processes == Processes::New {
            loaded.process = None;
        }
        let process = self.process(loaded);
        Ok(Sides { does: &loaded.does, process, calls: 1, case: String::new() })
    }

    fn go_on_with(&self, before: Kernel, loaded: &mut Kernel) -> bool {
        let Some(process) = before.process.filter(|_| loaded.process.is_none()) else { return false };
        if !lock(&process).has_ended {
            lock(&process).given.push(loaded.name.clone());
            loaded.process = Some(process);
        }
        loaded.process.is_some()
    }

    fn tool(&self, _: &Kernel) {}

    fn profile(
        &self,
        _: &Task,
        _: (Both<'_, '_, Self>, ()),
        _: &Case,
        _: Option<&LastTiming>,
        _: &mut StdRng,
        _: &dyn Fn(u64),
    ) -> Attempt<Profile> {
        Err(Fault::Absent("there is no profiler".to_owned()).into())
    }

    fn sanitize(
        &self,
        _: &Task,
        Both { loaded, .. }: Both<'_, '_, Self>,
        _: &Candidate,
        _: &mut StdRng,
    ) -> Attempt<Vec<Check>> {
        self.process(loaded);
        Ok(vec![])
    }

    fn not_excluded(&self) -> Vec<(&'static str, &'static str)> {
        vec![]
    }
}

impl Sides<'_> {
    /// Whether the candidate does this here: always, or after others in its process alone.
    fn does(&self, what: &str) -> bool {
        let had_others = lock(&self.process).given.len() > 1;
        let after_others = self.does.strip_suffix(" after others").filter(|_| had_others);
        after_others.unwrap_or(self.does) == what
    }
}

impl Pair for Sides<'_> {
    fn enter(&mut self, case: &Case) -> Attempt<usize> {
        self.case.clone_from(&case.name);
        Ok(usize::MAX)
    }

    fn prepare(&mut self, calls: usize, _: bool) -> Attempt<bool> {
        self.calls = calls;
        Ok(true)
    }

    fn draw(&mut self, _: Inputs, _: &mut StdRng) -> Attempt<()> {
        Ok(())
    }

    fn call(&mut self, side: Side, _: Duration, _: &mut StdRng) -> Attempt<Option<Reading>> {
        let (is_candidate, case) = (side == Side::Candidate, self.case.clone());
        if is_candidate && self.does("is invalid") {
            return Err(Failure::Invalid { case }.into());
        }
        if is_candidate && self.does("is forbidden") {
            return Err(Failure::Forbidden { case, what: "start a process".to_owned() }.into());
        }
        lock(&self.process).has_ended |= is_candidate && self.does == "ends";
        let ns = self.calls as f64 * if is_candidate { CANDIDATE_NS } else { REFERENCE_NS };
        Ok(Some(Reading { outside_ns: ns, inside_ns: ns }))
    }

    fn verify(&mut self, look: &Look<'_>) -> Attempt<Found> {
        let is_check = matches!(look.calls, Looked::Checked { .. });
        lock(&self.process).checked += u32::from(is_check);
        let wrong = || Failure::InputChanged { case: look.case.to_owned(), argument: "input".to_owned() };
        if is_check && self.does("is wrong") { Err(wrong().into()) } else { Ok(Found::default()) }
    }

    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    fn known_call_ns(&self) -> Option<f64> {
        Some(REFERENCE_NS)
    }

    fn note_call_ns(&mut self, _: f64) {}

    fn look_around(&mut self) -> Attempt<()> {
        Ok(())
    }

    fn layers(&self) -> Vec<Layer> {
        vec![]
    }
}

/// A search on a task of which one case is timed.
struct Search {
    inner: Inner<StandIn>,
    task: Task,
    suite: Suite,
    plan: TimingPlan,
}

impl Search {
    fn new() -> Self {
        let (kind, arch) = (MachineKind::Cpu, Arch::Cpu(String::new()));
        let machine = Machine { kind, name: String::new(), arch, facts: vec![], bandwidths: vec![], peak_flops: None };
        let numbers = Numbers { ranked_in_one: 3, ..NUMBERS };
        let backend = StandIn { numbers, machine, started: Mutex::default() };
        let (kept, gate) = (Kept::new(&backend), Gate::new(None, 1));
        let inner = Inner { backend, kept, refusals: Refusals::default(), gate, profiling: Mutex::default() };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/silu_and_mul");
        let task = load::task(&folder).expect("the task of the examples");
        let suite = Suite { timed: vec!["64x8192".to_owned()], ..Suite::of_task(&task) };
        Self { inner, task, suite, plan: TimingPlan::median_of(1, 10).glance() }
    }

    /// The ratio of a configuration that was ranked, and in words why one failed.
    fn glance(&self, built: Built) -> Result<f64, String> {
        let glanced = self.inner.glance(&self.task, built, &self.suite, &self.plan, 0.0);
        glanced.map(|timed| timed.speedup.ratio).map_err(|error| error.to_string())
    }

    /// What is known of each process that was started.
    fn told<T>(&self, tell: impl Fn(&Life) -> T) -> Vec<T> {
        lock(&self.inner.backend.started).iter().map(|process| tell(&lock(process))).collect()
    }

    /// What each was given.
    fn given(&self) -> Vec<String> {
        self.told(|life| life.given.join(" "))
    }

    /// How many requests of a check each had compared.
    fn checked(&self) -> Vec<u32> {
        self.told(|life| life.checked)
    }

    /// Whether each is there still.
    fn alive(&self) -> Vec<bool> {
        lock(&self.inner.backend.started).iter().map(|process| Arc::strong_count(process) > 1).collect()
    }
}

/// A configuration of a text by its number, which is called by both: "a1".
fn does(text: &str, number: i64, what: &str) -> Built {
    let bindings = [("N", Parameter::Number(number)), ("DOES", Parameter::Word(what.to_owned()))];
    let bindings = bindings.map(|(name, value)| (name.to_owned(), value)).into();
    Built { candidate: Candidate::new(format!("{text}{{{{N}}}}")).bound(bindings), artifact: PathBuf::new() }
}

/// One that is right.
fn right(text: &str, number: i64) -> Built {
    does(text, number, "")
}

/// Twice as fast as the reference.
const TWICE: Result<f64, String> = Ok(REFERENCE_NS / CANDIDATE_NS);
/// Requests of a brief look, one on each case that is not timed, and of a full check, two on each.
const BRIEF: u32 = 3;
const FULL: u32 = 8;

#[test]
fn configurations_of_one_text_go_on_in_one_process_until_it_had_as_many_as_may_be() {
    let mut search = Search::new();
    for (number, text) in (1..).zip(["a", "a", "a", "a", "a", "b", "a"]) {
        assert_eq!(search.glance(right(text, number)), TWICE);
    }
    assert_eq!(search.given(), ["a1 a2 a3", "a4 a5", "b6", "a7"]);
    assert_eq!(search.checked(), [3, 2, 1, 1].map(|configurations| configurations * BRIEF));
    let Source::Context(context) = &mut search.task.source else { panic!("it is a kernel") };
    context.reference.push('\n');
    assert_eq!(search.glance(right("a", 8)), TWICE);
    assert_eq!(search.given()[3..], ["a7", "a8"], "another task's is another text's");
    assert_eq!(search.told(|life| life.others), [0; 5], "the last one ends before another starts");
    assert_eq!(search.alive(), [false, false, false, false, true]);
}

#[test]
fn where_a_process_cannot_go_on_a_new_one_has_had_no_others() {
    let search = Search::new();
    for built in [right("a", 1), does("a", 2, "ends"), right("a", 3), right("a", 4), right("a", 5), right("a", 6)] {
        assert_eq!(search.glance(built), TWICE);
    }
    assert_eq!(search.given(), ["a1 a2", "a3 a4 a5", "a6"], "the new one has as many as any");
    assert_eq!(search.glance(does("a", 7, "ends")), TWICE);
    assert!(search.glance(does("a", 8, "is forbidden")).is_err());
    assert_eq!(search.given()[2..], ["a6 a7", "a8"], "it is settled there");
}

#[test]
fn what_is_wrong_only_after_others_is_checked_in_full_in_a_process_of_its_own_and_counts_as_right() {
    let search = Search::new();
    assert_eq!(search.glance(right("a", 1)), TWICE);
    assert_eq!(search.glance(does("a", 2, "is wrong after others")), TWICE);
    assert_eq!(search.given(), ["a1 a2", "a2"]);
    assert_eq!(search.checked(), [BRIEF + 1, FULL]);
    assert_eq!(search.told(|life| life.others), [0, 0]);
    assert_eq!(search.glance(right("a", 3)), TWICE);
    assert_eq!(search.given(), ["a1 a2", "a2", "a3"], "what is wrong in a process is the last one there");
}

#[test]
fn what_is_wrong_everywhere_has_failed_once_it_was_wrong_in_a_process_of_its_own() {
    let search = Search::new();
    assert_eq!(search.glance(right("a", 1)), TWICE);
    assert!(search.glance(does("a", 2, "is wrong")).is_err_and(|why| why.contains("changed its input")));
    assert_eq!(search.given(), ["a1 a2", "a2"]);
    assert_eq!(search.checked(), [BRIEF + 1, 1]);
    assert!(search.glance(does("a", 3, "is wrong")).is_err());
    assert_eq!(search.given()[2..], ["a3", "a3"], "what is wrong without others is checked in full too");
}

#[test]
fn one_that_is_invalid_is_settled_by_a_brief_look_and_its_process_goes_on() {
    let search = Search::new();
    for number in 1..=3 {
        let invalid = search.glance(does("a", number, "is invalid"));
        assert!(invalid.is_err_and(|why| why.contains("returned WS_INVALID")), "{number}");
    }
    assert_eq!(search.glance(right("a", 4)), TWICE);
    assert_eq!(search.given(), ["a1 a2 a3", "a4"]);
    assert_eq!(search.checked(), [0, BRIEF]);
}

#[test]
fn one_that_is_forbidden_is_settled_in_a_fresh_process_and_checked_in_full_after_others() {
    let is_forbidden = |glanced: Result<f64, String>| glanced.is_err_and(|why| why.contains("start a process"));
    let search = Search::new();
    assert!(is_forbidden(search.glance(does("a", 1, "is forbidden"))));
    assert_eq!(search.glance(right("a", 2)), TWICE);
    assert!(is_forbidden(search.glance(does("a", 3, "is forbidden"))));
    assert_eq!(search.given(), ["a1", "a2 a3", "a3"], "the first is settled where it was alone");
    assert_eq!(search.glance(right("a", 4)), TWICE);
    assert_eq!(search.glance(does("a", 5, "is forbidden after others")), TWICE);
    assert_eq!(search.given()[3..], ["a4 a5", "a5"]);
    assert_eq!(search.checked()[3..], [BRIEF, FULL]);
}

#[test]
fn any_other_step_ends_what_was_ranked_last_and_examines_in_a_process_that_had_no_other() {
    type Step = fn(&Search, Built) -> Attempt<()>;
    let check: Step = |search, built| search.inner.check(&search.task, built, &search.suite).map(drop);
    let time: Step =
        |search, built| search.inner.time(&search.task, &built.candidate, &search.suite, &search.plan, 0.0).map(drop);
    let sanitize: Step = |search, built| search.inner.sanitize(&search.task, &built.candidate);
    for (name, step) in [("check", check), ("time", time), ("sanitize", sanitize)] {
        let search = Search::new();
        assert_eq!([search.glance(right("a", 1)), search.glance(right("a", 2))], [TWICE, TWICE]);
        assert_eq!(search.alive(), [true]);
        step(&search, right("a", 2)).expect(name);
        assert_eq!(search.given(), ["a1 a2", "a2"], "{name}");
        assert_eq!(search.told(|life| life.others), [0, 0], "{name}: it ended before the step's own was started");
        assert_eq!(search.alive(), [false, true], "{name}");
    }
}
