//! What does the user see while it happens?
//!
//! A [`Telling`] stands in front of the record: it writes each event down, and then says it. On a terminal a line at the
//! bottom shows what is going on; elsewhere there are only plain lines.

mod lines;
mod screen;
mod search;
mod summary;
mod weighed;
mod words;
mod workflow;

pub use kernelbench::plain;
pub(crate) use lines::fitted;
pub use screen::{Screen, be_quiet, is_quiet};
pub(crate) use screen::{lost, out};
pub use search::pace;
pub use summary::Outcome;
pub use weighed::lines as weighed;
pub use words::{correct, evaluated, labels, learned, reference, tuned};
pub(crate) use workflow::name_of;

use agents::{
    event::Event,
    log::{Log, LogError},
    search::Pace,
    trajectory::Trajectory,
};
use kernelbench::{Hash, Hashing};

/// How events are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// As lines for people.
    Words,
    /// Each as a line of JSON.
    Json,
}

/// A record that says what it writes.
pub struct Telling<L> {
    log: L,
    voice: Voice,
    screen: Screen,
    so_far: Trajectory,
    rounds: u32,
    pace: Option<Pace>,
}

impl<L: Log> Telling<L> {
    /// Tells what is noted from here on, after what happened so far, in a run of this many rounds.
    pub fn new(log: L, voice: Voice, screen: Screen, so_far: Trajectory, rounds: u32) -> Self {
        Self { log, voice, screen, so_far, rounds, pace: None }
    }

    /// The lines for an event: of a search and of a turn with their rates, for which the task is read once.
    fn lines(&mut self, event: &Event) -> Vec<String> {
        if !matches!(event, Event::Simulated { .. } | Event::Weighed(_)) {
            return words::of(event, &self.so_far, self.rounds);
        }
        if self.pace.is_none() {
            let task = self.so_far.task.as_ref().and_then(|task| self.log.fetch(task).ok());
            let task = task.and_then(|text| serde_json::from_str(&text).ok());
            self.pace = task.and_then(|task| pace(&self.so_far, &task));
        }
        let pace = self.pace.as_ref();
        match event {
            Event::Simulated { node, found, .. } => {
                pace.map_or(vec![], |pace| search::simulated(*node, found, &self.so_far, pace))
            }
            Event::Weighed(weighed) => {
                let told = pace.and_then(|pace| search::rate_of(&weighed.candidate, &self.so_far, pace));
                told.into_iter().chain(weighed::lines(weighed)).collect()
            }
            _ => words::of(event, &self.so_far, self.rounds),
        }
    }

    fn tell(&mut self, event: &Event) {
        let round = self.so_far.open().map(|round| round.number);
        let lines = self.lines(event);
        for line in lines.iter().filter(|line| !line.is_empty()) {
            tracing::info!(task = self.so_far.name, round, "{}", line.trim());
        }
        match self.voice {
            Voice::Json => self.screen.say(&serde_json::to_string(event).unwrap_or_default()),
            Voice::Words => {
                for line in &lines {
                    self.screen.say(line);
                }
                self.screen.show(&words::doing(event, &self.so_far, self.rounds));
            }
        }
        self.so_far.apply(event.clone());
    }
}

impl<L: Log> Log for Telling<L> {
    fn note(&mut self, event: &Event) -> Result<(), LogError> {
        self.log.note(event)?;
        self.tell(event);
        Ok(())
    }

    fn keep(&mut self, text: &str) -> Result<Hash, LogError> {
        self.log.keep(text)
    }

    fn fetch(&self, hash: &Hash) -> Result<String, LogError> {
        self.log.fetch(hash)
    }

    fn digest(&self) -> Hashing {
        self.log.digest()
    }
}
