//! Who works here? The actors of one workshop, supervised.

use crate::answer::Answer;
use crate::coder::{Coder, Generate, Generated, Rewrite, Write};
use crate::device::Device;
use crate::judge::{Consider, Judge};
use crate::lease::{Clock, Worked};
use crate::llm::{AskError, Llm};
use crate::profiler::{Profiler, TakeProfile};
use crate::tester::{
    BuildAhead, Certify, Check, Examine, FreezeSuite, Prepare, Print, ProposeShapes, Searched, Tester, Tune, Validate,
};
use crate::validator::{Validated, Validator};
use kameo::{actor::ReplyRecipient, prelude::*, supervision::RestartPolicy};
use kernelbench::{Baseline, Case, Certificate, Evaluation, Failure, Fault, Suite, Unbuilt, Workshop};
use metrics::{Machine, MachineKind, Profile};
use prompts::{Prompts, Verdict, Written};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// An actor that panics is built anew this often within a minute; then the run breaks off.
const RESTARTS: u32 = 20;

/// Everyone the Planner may ask, and all that it knows of them.
#[derive(Clone)]
pub struct Crew {
    /// Writes.
    pub coder: ReplyRecipient<Write, Answer<Written>, AskError>,
    /// Rewrites one region.
    pub rewriter: ReplyRecipient<Rewrite, Answer<String>, AskError>,
    /// Writes a piece of an operator.
    pub generator: ReplyRecipient<Generate, Answer<Generated>, AskError>,
    /// Judges.
    pub judge: ReplyRecipient<Consider, Answer<Verdict>, AskError>,
    /// Profiles.
    pub profiler: ReplyRecipient<TakeProfile, Worked<Result<Profile, String>>, Fault>,
    /// Tests.
    pub tester: Testing,
    /// Examine the configurations of a search: the Tester, and those on more devices like its own.
    pub searchers: Arc<[Searcher]>,
    /// Suggests to the Planner itself, and proposes steps.
    pub llm: Arc<dyn Llm>,
    /// The words for that.
    pub prompts: Arc<Prompts>,
    /// The machine that candidates run on.
    pub machine: Machine,
    /// The user's own validators.
    pub validators: Arc<[Validator]>,
    supervisor: ActorRef<Supervisor>,
}

/// A Tester that examines configurations of a search, on a device of its own.
#[derive(Clone)]
pub struct Searcher {
    /// The device's name in leases.
    pub device: String,
    /// Examine one.
    pub examine: ReplyRecipient<Examine, Worked<Evaluation>, Fault>,
}

/// What the Tester may be asked.
#[derive(Clone)]
pub struct Testing {
    /// Propose shapes.
    pub shapes: ReplyRecipient<ProposeShapes, Answer<Vec<Case>>, AskError>,
    /// Make the suite.
    pub suite: ReplyRecipient<FreezeSuite, (Suite, Vec<String>), Fault>,
    /// Examine the reference.
    pub prepare: ReplyRecipient<Prepare, Worked<Baseline>, Fault>,
    /// Examine a candidate.
    pub examine: ReplyRecipient<Examine, Worked<Evaluation>, Fault>,
    /// Build some candidates side by side.
    pub build_ahead: ReplyRecipient<BuildAhead, Worked<Vec<Unbuilt>>, Fault>,
    /// Check one configuration.
    pub check: ReplyRecipient<Check, Worked<Option<Failure>>, Fault>,
    /// Have a validator look at one configuration.
    pub validate: ReplyRecipient<Validate, Validated, Fault>,
    /// Run a script that prints primitives.
    pub print: ReplyRecipient<Print, Result<String, Failure>, Fault>,
    /// Find the best bindings of an open candidate.
    pub tune: ReplyRecipient<Tune, Searched, Fault>,
    /// Examine the best anew.
    pub certify: ReplyRecipient<Certify, Worked<Certificate>, Fault>,
}

/// A workshop and how it is shared.
#[derive(Clone)]
pub struct Place {
    /// Where candidates are built and run.
    pub workshop: Arc<dyn Workshop>,
    /// Its device's name in leases: `cuda:0`, `cpu`.
    pub device: String,
    /// How many candidates may be under way at once, from the build on until the device gives them back.
    pub builds: usize,
}

impl Place {
    /// That of a workshop where one task at a time is worked on.
    #[must_use]
    pub fn of_one(workshop: Arc<dyn Workshop>) -> Self {
        let device = match workshop.machine().kind {
            MachineKind::Cpu => "cpu",
            MachineKind::Gpu => "gpu",
            MachineKind::Simulated => "simulated",
        };
        Self { workshop, device: device.to_owned(), builds: Semaphore::MAX_PERMITS }
    }

    /// The same by the name of its device.
    #[must_use]
    pub fn named(self, device: String) -> Self {
        Self { device, ..self }
    }
}

impl Crew {
    /// Hires everyone for this workshop, where one task at a time is worked on.
    pub async fn spawn(workshop: Arc<dyn Workshop>, llm: Arc<dyn Llm>, prompts: Arc<Prompts>) -> Self {
        Self::at(Place::of_one(workshop), llm, prompts).await
    }

    /// Hires everyone for this place.
    pub async fn at(place: Place, llm: Arc<dyn Llm>, prompts: Arc<Prompts>) -> Self {
        let boss = Supervisor::spawn(Supervisor);
        let hiring = Hiring { boss: &boss, llm: &llm, prompts: &prompts, clock: Clock::set() };
        let (workshop, builds) = (place.workshop.clone(), Arc::new(Semaphore::new(place.builds.max(1))));
        let name = place.device.clone();
        let (device, tester) = hiring.tester(place, &builds).await;
        let coder = hire(&boss, {
            let coder = Coder { llm: llm.clone(), prompts: prompts.clone() };
            move || coder.clone()
        })
        .await;
        let judge = hire(&boss, {
            let judge = Judge { llm: llm.clone(), prompts: prompts.clone() };
            move || judge.clone()
        })
        .await;
        let profiler = hire(&boss, {
            let (workshop, clock) = (workshop.clone(), hiring.clock);
            move || Profiler { workshop: workshop.clone(), device: device.clone(), builds: builds.clone(), clock }
        })
        .await;
        Self {
            coder: coder.clone().reply_recipient(),
            rewriter: coder.clone().reply_recipient(),
            generator: coder.reply_recipient(),
            judge: judge.reply_recipient(),
            profiler: profiler.reply_recipient(),
            searchers: Arc::new([Searcher { device: name, examine: tester.clone().reply_recipient() }]),
            tester: Testing {
                shapes: tester.clone().reply_recipient(),
                suite: tester.clone().reply_recipient(),
                prepare: tester.clone().reply_recipient(),
                examine: tester.clone().reply_recipient(),
                build_ahead: tester.clone().reply_recipient(),
                check: tester.clone().reply_recipient(),
                validate: tester.clone().reply_recipient(),
                print: tester.clone().reply_recipient(),
                tune: tester.clone().reply_recipient(),
                certify: tester.reply_recipient(),
            },
            machine: workshop.machine().clone(),
            validators: Arc::default(),
            llm,
            prompts,
            supervisor: boss,
        }
    }

    /// The same with more devices for the configurations of a search. They are to be of the same kind as the first: what is faster
    /// on one is taken to be so on the others.
    pub async fn searching_on(mut self, more: Vec<Place>) -> Self {
        let hiring = Hiring { boss: &self.supervisor, llm: &self.llm, prompts: &self.prompts, clock: Clock::set() };
        let mut searchers = self.searchers.to_vec();
        for place in more {
            let builds = Arc::new(Semaphore::new(place.builds.max(1)));
            let (device, (_, tester)) = (place.device.clone(), hiring.tester(place, &builds).await);
            searchers.push(Searcher { device, examine: tester.reply_recipient() });
        }
        self.searchers = searchers.into();
        self
    }

    /// The same with validators of the user's.
    #[must_use]
    pub fn with_validators(self, validators: Arc<[Validator]>) -> Self {
        Self { validators, ..self }
    }

    /// Sends everyone home.
    pub async fn stop(self) {
        // An actor that is gone already needs no stopping.
        let _ = self.supervisor.stop_gracefully().await;
    }
}

/// With what Testers are hired.
struct Hiring<'a> {
    boss: &'a ActorRef<Supervisor>,
    llm: &'a Arc<dyn Llm>,
    prompts: &'a Arc<Prompts>,
    clock: Clock,
}

impl Hiring<'_> {
    /// A place's device, and the Tester who works on it.
    async fn tester(&self, place: Place, builds: &Arc<Semaphore>) -> (ActorRef<Device>, ActorRef<Tester>) {
        let (Place { workshop, device: name, .. }, clock) = (place, self.clock);
        let device = hire(self.boss, {
            let workshop = workshop.clone();
            move || Device::new(workshop.clone(), name.clone(), clock)
        })
        .await;
        let tester = hire(self.boss, {
            let (device, builds) = (device.clone(), builds.clone());
            let (llm, prompts) = (self.llm.clone(), self.prompts.clone());
            move || Tester {
                workshop: workshop.clone(),
                device: device.clone(),
                llm: llm.clone(),
                prompts: prompts.clone(),
                builds: builds.clone(),
                clock,
            }
        })
        .await;
        (device, tester)
    }
}

/// Hires one actor, to be built anew from `make` when it panics.
async fn hire<A>(boss: &ActorRef<Supervisor>, make: impl Fn() -> A + Send + Sync + 'static) -> ActorRef<A>
where
    A: Actor<Args = A>,
{
    A::supervise_with(boss, make)
        .restart_policy(RestartPolicy::Permanent)
        .restart_limit(RESTARTS, Duration::from_mins(1))
        .spawn()
        .await
}

/// Has no work but to have the others built anew.
#[derive(Actor)]
struct Supervisor;
