//! What does the user see while it happens?
//!
//! A [`Telling`] stands in front of the record: it writes each event down, and then says it. On a terminal a line at the
//! bottom shows what is going on; elsewhere there are only plain lines.

mod screen;
mod summary;
mod weighed;
mod words;
mod workflow;

pub use kernelbench::plain;
pub use screen::Screen;
pub use summary::Outcome;
pub use weighed::lines as weighed;
pub use words::{evaluated, labels, reference, tuned};

use agents::{
    event::Event,
    log::{Log, LogError},
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
}

impl<L: Log> Telling<L> {
    /// Tells what is noted from here on, after what happened so far, in a run of this many rounds.
    pub fn new(log: L, voice: Voice, screen: Screen, so_far: Trajectory, rounds: u32) -> Self {
        Self { log, voice, screen, so_far, rounds }
    }

    fn tell(&mut self, event: &Event) {
        let round = self.so_far.open().map(|round| round.number);
        for line in words::of(event, &self.so_far, self.rounds).iter().filter(|line| !line.is_empty()) {
            tracing::info!(task = self.so_far.name, round, "{}", line.trim());
        }
        match self.voice {
            Voice::Json => self.screen.say(&serde_json::to_string(event).unwrap_or_default()),
            Voice::Words => {
                for line in words::of(event, &self.so_far, self.rounds) {
                    self.screen.say(&line);
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
