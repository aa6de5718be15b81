//! How is a run driven to its end, whether it is new or goes on?

use crate::{
    batch::limits::Meter,
    best, command,
    config::Limits,
    exit::{Exit, Trouble},
    progress::{Outcome, Screen, Telling, Voice},
    quantity, report, show,
    store::{RunFolder, TaskLog},
};
use agents::{
    crew::{Crew, Place},
    event::Event,
    llm::{AskError, Llm},
    planner::{BrokeOff, Job, Request, transform, work},
    policy::Policy,
    trajectory::Trajectory,
    validator::Validator,
    workflow::TUNE,
};
use kernelbench::{Absent, Certificate, CertificateVerdict, Fault, Task};
use metrics::Arch;
use prompts::Prompts;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// A run, ready to be worked on.
pub struct Session {
    /// Its folder.
    pub folder: RunFolder,
    /// Its record.
    pub log: TaskLog,
    /// What is to be made faster.
    pub task: Task,
    /// How.
    pub policy: Policy,
    /// What happened so far.
    pub so_far: Trajectory,
    /// What answers.
    pub llm: Arc<dyn Llm>,
    /// What is said to it.
    pub prompts: Arc<Prompts>,
    /// Where it is told.
    pub screen: Screen,
    /// How it is told.
    pub voice: Voice,
    /// When to end.
    pub limits: Limits,
    /// The user's own validators.
    pub validators: Arc<[Validator]>,
    /// What is to be done, where it is not the whole work.
    pub steps: Option<Steps>,
}

/// Transformations that are to be applied, one behind the other, and nothing else.
#[derive(Clone, Debug)]
pub struct Steps {
    /// Which.
    pub requests: Vec<Request>,
    /// The command with which the study goes on whose steps they are: it has the last word itself.
    pub study: Option<String>,
}

impl Steps {
    /// One that a person asked for.
    #[must_use]
    pub fn one(request: Request) -> Self {
        Self { requests: vec![request], study: None }
    }
}

impl Session {
    /// Works until the run ends, breaks off, or is interrupted, and then says what came of it. On `more` devices a search's
    /// configurations are timed, too.
    ///
    /// # Errors
    ///
    /// Why it broke off.
    pub async fn drive(self, (first, more): (Place, Vec<Place>)) -> Result<Exit, Trouble> {
        let crew = Crew::at(first, self.llm, self.prompts).await;
        let crew = crew.searching_on(more).await.with_validators(self.validators);
        let log = Telling::new(self.log, self.voice, self.screen.clone(), self.so_far.clone(), self.policy.rounds);
        let limit = Arc::new(Meter::new(self.limits, &[])).for_task();
        let job = Job { task: self.task, policy: self.policy, so_far: self.so_far, log: Box::new(log), limit };
        let transforms = self.steps.is_some();
        let before = if transforms { orders(&self.folder) } else { 0 };
        let (requests, study) = self.steps.map_or((None, None), |steps| (Some(steps.requests), steps.study));
        let names = requests.iter().flatten().map(|request: &Request| request.transformation.clone()).collect();
        let asked = Asked { names, before };
        let done = async {
            match requests {
                Some(requests) => transform(job, requests, &crew).await,
                None => work(job, &crew).await,
            }
        };
        let ended = tokio::select! {
            ended = done => Some(ended),
            () = interrupted() => None,
        };
        self.screen.close();
        let ending = Ending { folder: &self.folder, screen: &self.screen, voice: self.voice, study: study.as_deref() };
        match ended {
            Some(Ok(story)) => {
                crew.stop().await;
                match study {
                    Some(_) => Ok(Exit::Done),
                    None if transforms => Ok(ending.tell_transformed(&story)),
                    None => ending.tell(&story),
                }
            }
            // What a model may use in a study is over: it is told of with the others.
            Some(Err(BrokeOff::Limit(_))) if study.is_some() => Ok(Exit::Done),
            Some(Err(why)) => Err(ending.explain(&why)),
            None => {
                // What is under way goes on until the program ends, and finds its actors there.
                std::mem::forget(crew);
                Err(ending.interrupted(&asked))
            }
        }
    }
}

/// The system asks the program to end: Ctrl-C, or a polite kill.
pub(crate) async fn interrupted() {
    let (Ok(mut polite), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = polite.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// The one line to remember.
fn result(story: &Trajectory) -> String {
    if let Some((candidate, counts)) = story.counted() {
        return format!("result     right: {counts}, by candidate {}", candidate.short());
    }
    if let Some((candidate, code)) = story.compiled() {
        return format!("result     {code}, by candidate {}", candidate.short());
    }
    let Some(Certificate { candidate, verdict: CertificateVerdict::Certified(timed), .. }) = story.certified() else {
        // Kernels for AMD's GPUs are compiled and not run.
        let compiled_only = story.machine.as_ref().is_some_and(|machine| matches!(machine.arch, Arch::Amd(_)));
        let none = if compiled_only { "no candidate compiles" } else { "no candidate was both correct and certified" };
        return format!("result     {none}");
    };
    let (speedup, claim) = (quantity::speedup(&timed.speedup), quantity::claim(&timed.speedup));
    let over = timed.against.as_deref().unwrap_or("the reference");
    format!(
        "result     {speedup} {}'s speed ({claim}), certified, by candidate {}",
        show::plain(over),
        candidate.short()
    )
}

/// What a person asked of a workflow, and how many orders its record held before.
pub(crate) struct Asked {
    names: Vec<String>,
    before: usize,
}

/// How many orders a workflow's record holds.
fn orders(folder: &RunFolder) -> usize {
    let of = |event: &Event| matches!(event, Event::Ordered(_));
    folder.only_record().map_or(0, |record| record.lines.iter().filter(|line| of(&line.event)).count())
}

/// The last words of a run.
pub(crate) struct Ending<'a> {
    pub(crate) folder: &'a RunFolder,
    pub(crate) screen: &'a Screen,
    pub(crate) voice: Voice,
    /// The command with which the study goes on that it is a part of.
    pub(crate) study: Option<&'a str>,
}

impl Ending<'_> {
    /// Rounds, certificate, report; and how to exit.
    pub(crate) fn tell(&self, story: &Trajectory) -> Result<Exit, Trouble> {
        let outcome = Outcome::of(story);
        let found = outcome.speedup.is_some() || outcome.counted.is_some() || outcome.compiled.is_some();
        let exit = if found { Exit::Done } else { Exit::NothingCorrect };
        // A report that cannot be written does not keep the outcome from being told.
        let report = report::file::write(self.folder, None);
        let (path, run) = (report.as_ref().ok(), self.folder.path());
        if self.voice == Voice::Json {
            let best = best::write(self.folder, &story.name, story).ok().flatten();
            let told = serde_json::json!({ "outcome": outcome, "kernel": best, "report": path, "run": run, "exit": exit.code() });
            self.screen.result(&told.to_string());
        } else {
            self.screen.say(&format!("\n{}\n", show::rounds(story).trim_end()));
            self.screen.result(&result(story));
            let path = path.map_or("-".to_owned(), |path| path.display().to_string());
            let best = match best::write(self.folder, &story.name, story) {
                Ok(best) => best.map(|best| format!("kernel     {}\n", best.display())).unwrap_or_default(),
                Err(why) => format!("kernel     not written: {why}\n"),
            };
            self.screen.result(&format!("{best}report     {path}\nrun        {}", run.display()));
        }
        report.map(|_| exit)
    }

    /// The checkpoints that there are now; and how to exit.
    fn tell_transformed(&self, story: &Trajectory) -> Exit {
        let (exit, tree) = command::transform::outcome(story);
        if self.voice == Voice::Json {
            let head = story.workflow.head().map(|head| &head.name);
            let told = serde_json::json!({ "head": head, "run": self.folder.path(), "exit": exit.code() });
            self.screen.result(&told.to_string());
        } else {
            self.screen.result(&format!("\n{}\n\nrun        {}", tree.trim_end(), self.folder.path().display()));
        }
        exit
    }

    fn explain(&self, why: &BrokeOff) -> Trouble {
        let exit = match why {
            BrokeOff::Waiting(_) | BrokeOff::Model(AskError::Waiting(_)) => Exit::Waiting,
            BrokeOff::Fault(fault) if *fault == Absent::needed() => Exit::Waiting,
            BrokeOff::Model(_) | BrokeOff::RecordEnds(_) | BrokeOff::Limit(_) => Exit::Model,
            BrokeOff::Fault(Fault::Reference(_)) => {
                let message = format!(
                    "{why}\nmend the task and begin a new run: this one holds the text as it was; where this \
                     machine was at fault: {}",
                    self.to_go_on()
                );
                return Trouble::usage(message);
            }
            BrokeOff::Fault(_) => Exit::Machine,
            BrokeOff::Log(_) => Exit::Record,
            BrokeOff::Refused(_) => return Trouble::usage(why.to_string()),
            BrokeOff::Gone(_) => Exit::Ours,
        };
        Trouble { exit, message: format!("{why}\nto go on: {}", self.to_go_on()) }
    }

    /// What was not even ordered when it was interrupted is to be asked for again.
    fn interrupted(&self, asked: &Asked) -> Trouble {
        let ordered = orders(self.folder).saturating_sub(asked.before);
        let left = asked.names.get(ordered..).unwrap_or_default();
        let run = self.folder.path().display();
        let go_on = match (self.study, left) {
            (None, [name, ..]) if name == TUNE => format!("warpsmith tune {run}, as it was asked for"),
            (None, [name, ..]) => format!("warpsmith transform {run} {name}, as it was asked for"),
            _ => self.to_go_on(),
        };
        Trouble { exit: Exit::Interrupted, message: format!("interrupted; to go on: {go_on}") }
    }

    fn to_go_on(&self) -> String {
        let resume = || format!("warpsmith resume {}", self.folder.path().display());
        self.study.map_or_else(resume, ToOwned::to_owned)
    }
}
