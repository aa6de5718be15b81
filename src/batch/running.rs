//! How is every task's turn brought about?
//!
//! So many tasks are under way at once as keep the model and the devices busy. Each has a device for life; the other
//! tasks are names in a queue.

use super::{extension::More, limits::Meter, standing::Standing, watching::BatchProgress};
use crate::{
    best,
    exit::{Exit, Trouble},
    recall,
    store::{BatchList, Listed, Lock, RunFolder, StoreError},
};
use agents::{
    crew::{Crew, Place},
    event::{End, Event},
    llm::{AskError, Llm, remembering::Remembering},
    log::Log,
    planner::{BrokeOff, Job, work},
    policy::Policy,
    trajectory::Trajectory,
    validator::Validator,
};
use kernelbench::{Fault, Task};
use prompts::Prompts;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::task::JoinSet;

/// A device on which so many tasks broke off by the machine's doing, with nothing done there in between, is given up.
const FAULTS: u32 = 3;

/// All that a batch is worked on with.
pub struct Batch {
    /// Its folder.
    pub folder: RunFolder,
    /// The right to write there.
    pub lock: Lock,
    /// Its tasks.
    pub list: BatchList,
    /// How each is worked on.
    pub policy: Policy,
    /// What answers.
    pub llm: Arc<dyn Llm>,
    /// What is said to it.
    pub prompts: Arc<Prompts>,
    /// The user's own validators.
    pub validators: Arc<[Validator]>,
    /// What is used up, and the limits.
    pub meter: Arc<Meter>,
    /// Where it is shown.
    pub board: Arc<BatchProgress>,
    /// Tasks under way at the same time.
    pub at_once: usize,
    /// What it is given beside what it began with.
    pub more: More,
}

/// What came of working on a batch.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The tasks that wait, and what for: a reply, or a device.
    pub waiting: Vec<(String, String)>,
    /// The tasks that broke off, and why.
    pub broke_off: Vec<(String, String)>,
    /// Why no further task was begun, if any is left.
    pub halted: Option<Trouble>,
    /// The limit of the whole run that was reached.
    pub limit: Option<End>,
    /// How many tasks have not begun.
    pub left: usize,
}

/// What every task's work shares.
struct Shared {
    folder: RunFolder,
    lock: Lock,
    policy: Policy,
    remembering: Arc<Remembering>,
    meter: Arc<Meter>,
    board: Arc<BatchProgress>,
    more: More,
}

/// A device, its crew, and how it fares.
struct Bench {
    device: String,
    crew: Crew,
    running: usize,
    faults: u32,
    /// How often it had been held at the last fault.
    leases: u64,
}

/// How a task's turn ended, and on which device.
struct Turn {
    task: String,
    bench: usize,
    ended: Result<(), BrokeOff>,
}

impl Batch {
    /// Works until every task has ended, waits for a reply, or broke off, or until a limit is reached.
    pub async fn run(self, places: Vec<Place>) -> Outcome {
        let remembering = Arc::new(Remembering::new(self.llm, HashMap::new()));
        let mut benches = vec![];
        for place in places {
            let device = place.device.clone();
            let crew = Crew::at(place, remembering.clone(), self.prompts.clone()).await;
            let crew = crew.with_validators(self.validators.clone());
            benches.push(Bench { device, crew, running: 0, faults: 0, leases: 0 });
        }
        let Self { folder, lock, policy, meter, board, more, .. } = self;
        let shared = Arc::new(Shared { folder, lock, policy, remembering, meter, board, more });
        let mut floor = Floor { shared, benches, turns: JoinSet::new(), outcome: Outcome::default() };
        let mut queue: VecDeque<Listed> = self.list.tasks.into();
        loop {
            floor.fill(&mut queue, self.at_once);
            let Some(turn) = floor.turns.join_next().await else { break };
            floor.settle(turn);
        }
        floor.outcome.left = queue.len();
        for bench in floor.benches {
            bench.crew.stop().await;
        }
        floor.outcome
    }
}

/// Where the tasks under way are.
struct Floor {
    shared: Arc<Shared>,
    benches: Vec<Bench>,
    turns: JoinSet<Turn>,
    outcome: Outcome,
}

impl Floor {
    /// Begins the next tasks' turns, while there is room and nothing speaks against it.
    fn fill(&mut self, queue: &mut VecDeque<Listed>, at_once: usize) {
        while self.turns.len() < at_once && self.outcome.halted.is_none() && !queue.is_empty() {
            let finishes = self.shared.meter.finishes();
            self.outcome.limit = self.shared.meter.run_limit().filter(|_| !finishes);
            if self.outcome.limit.is_some() {
                return;
            }
            let Some(listed) = queue.pop_front() else { return };
            match Standing::read(&self.shared.folder, &listed.name) {
                Ok(Some(standing)) if standing.end.is_some() && !self.shared.goes_on(&listed) => {}
                Ok(None) if finishes => {}
                Ok(standing) => self.begin(listed, standing.unwrap_or_default()),
                Err(trouble) => self.outcome.broke_off.push((listed.name, trouble.message)),
            }
        }
    }

    fn begin(&mut self, listed: Listed, so_far: Standing) {
        let Some(bench) = self.bench(so_far.device.as_deref()) else {
            self.outcome.broke_off.push((listed.name, "no device is left to work on it".to_owned()));
            return;
        };
        self.benches[bench].running += 1;
        let (shared, crew) = (self.shared.clone(), self.benches[bench].crew.clone());
        self.turns.spawn(async move {
            let ended = shared.turn(&listed, so_far, &crew).await;
            shared.remembering.forget(&listed.name);
            Turn { task: listed.name, bench, ended }
        });
    }

    /// The device that a task has had before, else the one with the fewest tasks, of those that are not given up.
    fn bench(&self, before: Option<&str>) -> Option<usize> {
        let sound = || self.benches.iter().enumerate().filter(|(_, bench)| bench.faults < FAULTS);
        let same = sound().find(|(_, bench)| before == Some(bench.device.as_str()));
        same.or_else(|| sound().min_by_key(|(_, bench)| bench.running)).map(|(at, _)| at)
    }

    /// Takes in how a task's turn ended, and what that means for the others.
    fn settle(&mut self, turn: Result<Turn, tokio::task::JoinError>) {
        let Turn { task, bench, ended } = match turn {
            Ok(turn) => turn,
            Err(panic) => {
                let why = format!("a mistake in this program: {panic}");
                self.outcome.broke_off.push(("a task".to_owned(), why));
                return;
            }
        };
        let bench = &mut self.benches[bench];
        bench.running -= 1;
        let why = match ended {
            Ok(()) => return,
            Err(BrokeOff::Waiting(request)) => {
                self.outcome.waiting.push((task, format!("a reply to {request}")));
                return;
            }
            Err(BrokeOff::Fault(Fault::Absent(_))) => {
                self.outcome.waiting.push((task, "a device".to_owned()));
                return;
            }
            Err(why) => why,
        };
        let halt = match &why {
            BrokeOff::Model(AskError::NoFit(_) | AskError::Differs(_)) => None,
            BrokeOff::Model(_) => Some(Exit::Model),
            BrokeOff::Log(_) => Some(Exit::Record),
            BrokeOff::Fault(_) => {
                let leases = self.shared.board.leases(&bench.device);
                bench.faults = if leases > bench.leases { 1 } else { bench.faults + 1 };
                bench.leases = leases;
                if bench.faults == FAULTS {
                    self.shared
                        .board
                        .say(&format!("{}: {FAULTS} tasks in a row broke off; it is given up", bench.device));
                }
                self.benches.iter().all(|bench| bench.faults >= FAULTS).then_some(Exit::Machine)
            }
            _ => None,
        };
        if let (Some(exit), None) = (halt, &self.outcome.halted) {
            self.shared.board.say(&format!("no further task is begun: {why}"));
            self.outcome.halted = Some(Trouble { exit, message: why.to_string() });
        }
        self.outcome.broke_off.push((task, why.to_string()));
    }
}

impl Shared {
    /// One task's turn, from where its record ends.
    async fn turn(&self, listed: &Listed, so_far: Standing, crew: &Crew) -> Result<(), BrokeOff> {
        let mended = self.folder.mend(&listed.name, &self.lock).map_err(|error| BrokeOff::Log(error.into()))?;
        mended.words.iter().for_each(|word| self.board.say(word));
        let aside = recall::known_of(&mended.aside, &self.folder.blobs());
        self.remembering.learn_where_the_prompt_is_the_same(aside);
        let (task, mut story) = self.take_up(listed).map_err(|error| BrokeOff::Log(error.into()))?;
        let opened = self.folder.append(&listed.name, &self.lock).map_err(|error| BrokeOff::Log(error.into()))?;
        let (log, torn) = opened;
        if let Some(word) = torn {
            self.board.say(&word);
        }
        let mut policy = self.policy_of(&story);
        let mut log = self.board.watch(&listed.name, log, so_far);
        if let Ok(Some(extended)) = self.extension(&story) {
            log.note(&extended)?;
            story.apply(extended);
        }
        policy.rounds = story.extended_to.unwrap_or(policy.rounds);
        let job = Job { task, policy, so_far: story, log: Box::new(log), limit: self.meter.for_task() };
        let story = work(job, crew).await?;
        best::write(&self.folder, &listed.name, &story).map_err(|error| BrokeOff::Log(error.into()))?;
        Ok(())
    }

    /// How a task is worked on: as its record opened, for the batch may have been given more rounds since.
    fn policy_of(&self, story: &Trajectory) -> Policy {
        let recorded = story.policy.as_ref().and_then(|hash| self.folder.blobs().fetch(hash).ok());
        recorded.and_then(|text| Policy::parse(&text).ok()).unwrap_or_else(|| self.policy.clone())
    }

    fn extension(&self, story: &Trajectory) -> Result<Option<Event>, String> {
        if story.task.is_none() {
            return Ok(None);
        }
        let rounds = story.extended_to.unwrap_or_else(|| self.policy_of(story).rounds);
        self.more.for_task(story, rounds, &self.meter.for_task())
    }

    /// Whether a task that has ended is given what it lacked.
    fn goes_on(&self, listed: &Listed) -> bool {
        let extended = || self.extension(&self.folder.record(&listed.name).ok()?.events().collect()).ok()?;
        self.more.is_some() && extended().is_some()
    }

    /// The task and what happened to it, with what was answered in the round that is open.
    fn take_up(&self, listed: &Listed) -> Result<(Task, Trajectory), StoreError> {
        let blobs = self.folder.blobs();
        let text = blobs.fetch(&listed.task)?;
        let task = serde_json::from_str(&text).map_err(|e| StoreError::Damaged {
            path: self.folder.path().to_owned(),
            line: None,
            why: format!("the task {} cannot be read: {e}", listed.name),
        })?;
        if !self.folder.has_record(&listed.name) {
            return Ok((task, Trajectory::default()));
        }
        let mut record = self.folder.record(&listed.name)?;
        let story = record.events().collect();
        let last = record.lines.iter().rposition(|line| matches!(line.event, Event::Began { .. }));
        record.lines.drain(..last.unwrap_or(0));
        self.remembering.learn(recall::known(&record)?);
        Ok((task, story))
    }
}
