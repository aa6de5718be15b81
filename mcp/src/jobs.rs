//! Jobs: what takes long is begun, has an id, and is asked about.
//!
//! One is worked on at a time, in the order in which they came: timing must be alone.

use crate::program::{Program, text};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Child,
    sync::{Notify, Semaphore},
};

/// Jobs that are remembered.
const REMEMBERED: usize = 256;
/// The most bytes of an answer that are kept.
const LONGEST: usize = 4 << 20;

/// The jobs of a server.
#[derive(Clone)]
pub(crate) struct Jobs {
    program: Program,
    known: Arc<Mutex<BTreeMap<u64, Job>>>,
    turn: Arc<Semaphore>,
}

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Waiting,
    Running,
    Cancelled,
    Done,
}

/// One job, as a client sees it.
#[derive(Clone, Serialize)]
pub(crate) struct Job {
    #[serde(rename = "job")]
    id: String,
    /// The command line.
    command: String,
    state: State,
    /// Since it was begun, or what it took.
    seconds: f64,
    /// Lines that it has printed.
    lines: usize,
    /// What happened last, where it prints events.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    /// The number that it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<i32>,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<serde_json::Value>,
    /// What it complained of.
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip)]
    began: Option<Instant>,
    #[serde(skip)]
    cancel: Arc<Notify>,
}

impl Jobs {
    pub(crate) fn new(program: Program) -> Self {
        Self { program, known: Arc::default(), turn: Arc::new(Semaphore::new(1)) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Job>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one, and gives it as it stands.
    pub(crate) fn begin(&self, words: Vec<String>) -> Job {
        let mut known = self.lock();
        let number = known.last_key_value().map_or(1, |(number, _)| number + 1);
        let job = Job {
            id: format!("job-{number}"),
            command: format!("warpsmith {}", words.join(" ")),
            state: State::Waiting,
            seconds: 0.0,
            lines: 0,
            last: None,
            exit: None,
            outcome: None,
            error: String::new(),
            began: None,
            cancel: Arc::default(),
        };
        known.insert(number, job.clone());
        let old = known.iter().find(|(_, job)| job.is_over()).map(|(number, _)| *number);
        if let Some(old) = old.filter(|_| known.len() > REMEMBERED) {
            known.remove(&old);
        }
        drop(known);
        let (jobs, cancel) = (self.clone(), job.cancel.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = jobs.work(number, words) => {}
                () = cancel.notified() => jobs.change(number, |job| job.end(State::Cancelled)),
            }
        });
        job
    }

    /// One as it stands now.
    pub(crate) fn of(&self, id: &str) -> Result<Job, String> {
        let known = self.lock();
        let found = known.values().find(|job| job.id == id).cloned();
        let all = || known.values().rev().take(8).map(|job| job.id.as_str()).collect::<Vec<_>>().join(", ");
        let mut job = found.ok_or_else(|| match known.len() {
            0 => format!("there is no job {id:?}: none was begun"),
            _ => format!("there is no job {id:?}; the latest are {}", all()),
        })?;
        if let (Some(began), State::Running) = (job.began, job.state) {
            job.seconds = began.elapsed().as_secs_f64();
        }
        Ok(job)
    }

    /// Ends one; what it has recorded stays, and its run can be resumed.
    pub(crate) fn cancel(&self, id: &str) -> Result<Job, String> {
        let job = self.of(id)?;
        if job.is_over() {
            return Err(format!("{id} is over already"));
        }
        job.cancel.notify_one();
        Ok(job)
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Job)) {
        if let Some(job) = self.lock().get_mut(&number) {
            change(job);
        }
    }

    /// Works on one when its turn has come.
    async fn work(&self, number: u64, words: Vec<String>) {
        let _turn = self.turn.acquire().await;
        self.change(number, |job| (job.state, job.began) = (State::Running, Some(Instant::now())));
        match self.program.with(&words).spawn() {
            Ok(child) => self.watch(number, child).await,
            Err(e) => self.change(number, |job| {
                job.error = format!("it could not be started: {e}");
                job.end(State::Done);
            }),
        }
    }

    /// Reads what one prints until it ends.
    async fn watch(&self, number: u64, mut child: Child) {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let complaints = tokio::spawn(async move {
            let mut bytes = vec![];
            if let Some(err) = err {
                // What cannot be read was not said.
                let _ = err.take(LONGEST as u64).read_to_end(&mut bytes).await;
            }
            text(&bytes)
        });
        let (mut whole, mut last) = (String::new(), String::new());
        if let Some(out) = out {
            let mut lines = BufReader::new(out).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                self.change(number, |job| job.printed(&line));
                if whole.len() + line.len() < LONGEST {
                    whole.push_str(&line);
                    whole.push('\n');
                }
                last = line;
            }
        }
        let exit = child.wait().await.ok().and_then(|status| status.code());
        let error = complaints.await.unwrap_or_default();
        // An answer in one document, or events of which the last line is the outcome.
        let outcome = serde_json::from_str(&whole).or_else(|_| serde_json::from_str(&last)).ok();
        self.change(number, |job| {
            (job.exit, job.outcome, job.error) = (exit, outcome, error.trim().to_owned());
            job.end(State::Done);
        });
    }
}

impl Job {
    fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Cancelled)
    }

    fn end(&mut self, state: State) {
        self.state = state;
        self.seconds = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    }

    fn printed(&mut self, line: &str) {
        self.lines += 1;
        let event = serde_json::from_str::<serde_json::Value>(line).ok();
        let name = event.and_then(|event| event.get("event")?.as_str().map(ToOwned::to_owned));
        self.last = name.or(self.last.take());
    }
}
