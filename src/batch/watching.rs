//! What does one see of many tasks at once?
//!
//! On a terminal: one line in all at the bottom, and above it a line for each task under way. Elsewhere: a dated line for
//! whatever a task comes to.

use super::{
    limits::{Meter, Used},
    standing::Standing,
};
use crate::{
    progress::{Screen, correct, evaluated, plain},
    quantity,
};
use agents::{
    event::Event,
    log::{Log, LogError},
};
use indicatif::ProgressBar;
use kernelbench::{Hash, Hashing};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The most tasks that have a line of their own.
const LINES: usize = 20;

/// What is shown of a batch.
pub struct BatchProgress {
    screen: Screen,
    meter: Arc<Meter>,
    rounds: u32,
    state: Mutex<State>,
    silent: AtomicBool,
}

#[derive(Default)]
struct State {
    all: usize,
    finished: usize,
    correct: usize,
    only_as_drawn: usize,
    faster: usize,
    speechless: usize,
    running: usize,
    /// Leases that were given back, by device.
    leases: HashMap<String, u64>,
    /// Rounds that are over, and those of them that were when the program was started.
    done: u64,
    done_before: u64,
    lines: usize,
}

impl BatchProgress {
    /// A board for tasks of this many rounds, of which these have begun, and so many are there in all.
    #[must_use]
    pub fn new(screen: Screen, meter: Arc<Meter>, rounds: u32, all: usize, begun: &[Standing]) -> Arc<Self> {
        let mut state = State { all, ..State::default() };
        for standing in begun {
            state.done += u64::from(standing.rounds);
            if standing.end.is_some() {
                state.count(standing, rounds);
            }
        }
        state.done_before = state.done;
        Arc::new(Self { screen, meter, rounds, state: Mutex::new(state), silent: AtomicBool::new(false) })
    }

    /// Says nothing from here on.
    pub fn be_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    /// A record that is shown on this board while it is written.
    pub fn watch<L: Log>(self: &Arc<Self>, name: &str, log: L, so_far: Standing) -> Watched<L> {
        let mut state = self.lock();
        state.running += 1;
        let line = (state.lines < LINES).then(|| self.screen.line());
        state.lines += usize::from(line.is_some());
        drop(state);
        Watched { log, board: self.clone(), name: plain(name), standing: so_far, line }
    }

    /// How many tasks are finished, correct and faster.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let state = self.lock();
        (state.finished, state.correct, state.faster)
    }

    /// How many of the correct ones are so only as their tasks draw their inputs.
    #[must_use]
    pub fn only_as_drawn(&self) -> usize {
        self.lock().only_as_drawn
    }

    /// How many ended without a reply that could be read as a candidate.
    #[must_use]
    pub fn speechless(&self) -> usize {
        self.lock().speechless
    }

    /// How often a device was held and given back.
    #[must_use]
    pub fn leases(&self, device: &str) -> u64 {
        self.lock().leases.get(device).copied().unwrap_or(0)
    }

    /// Says a line with the time of day.
    pub fn say(&self, line: &str) {
        if self.silent.load(Ordering::Relaxed) {
            return;
        }
        self.screen.say(&format!("{}  {line}", jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S")));
    }

    /// The line in all.
    #[must_use]
    pub fn summary(&self) -> String {
        let state = self.lock();
        let spent = spent(&self.meter.used());
        let left = state.left(self.rounds, self.meter.elapsed()).map(|ms| format!(", {} left", quantity::wait(ms)));
        format!(
            "{} of {} finished, {}, {} faster; {} running; {spent}{}",
            state.finished,
            state.all,
            correct(state.correct, state.only_as_drawn),
            state.faster,
            state.running,
            left.unwrap_or_default()
        )
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, ended: &Standing, rounds: u32) {
        self.finished += 1;
        self.correct += usize::from(ended.certified.is_some());
        self.only_as_drawn += usize::from(ended.only_as_drawn);
        self.faster += usize::from(ended.is_faster());
        self.speechless += usize::from(ended.is_speechless());
        // Rounds that a task does not need count as done.
        self.done += u64::from(rounds.saturating_sub(ended.rounds));
    }

    /// How long the rounds that are left will take if they go like those before, in milliseconds.
    fn left(&self, rounds: u32, elapsed: Duration) -> Option<u64> {
        let all = self.all as u64 * u64::from(rounds);
        let (done, left) = (self.done - self.done_before, all.saturating_sub(self.done));
        (done > 0 && left > 0).then(|| (elapsed.as_millis() as f64 * left as f64 / done as f64) as u64)
    }
}

/// What models cost, in words.
#[must_use]
pub fn spent(used: &Used) -> String {
    match (used.usd > 0.0, used.unpriced) {
        (_, 0) => format!("{} spent", quantity::usd(used.usd)),
        (true, unknown) => format!("{} spent, and {unknown} answers of unknown price", quantity::usd(used.usd)),
        (false, unknown) => format!("{unknown} answers of unknown price"),
    }
}

/// A record that is shown while it is written.
pub struct Watched<L> {
    log: L,
    board: Arc<BatchProgress>,
    name: String,
    standing: Standing,
    line: Option<ProgressBar>,
}

impl<L> Watched<L> {
    fn show(&mut self, event: &Event) {
        let before = self.standing.rounds;
        self.standing.take_in(event);
        self.board.meter.add(&Used::in_event(event));
        let mut state = self.board.lock();
        state.done += u64::from(self.standing.rounds - before);
        if let Event::Spent { lease: Some(lease), .. } = event {
            *state.leases.entry(lease.device.clone()).or_default() += 1;
        }
        if matches!(event, Event::Ended { .. }) {
            state.running -= 1;
            state.count(&self.standing, self.board.rounds);
        }
        drop(state);
        if let Some(told) = self.tell(event) {
            tracing::info!(task = self.name, "{told}");
            if !self.board.screen.is_moving() {
                self.board.say(&format!("{}: {told}", self.name));
            }
        }
        if let Some(line) = &self.line {
            line.set_message(describe(&self.name, &self.standing, self.board.rounds));
            self.board.screen.show(&self.board.summary());
        }
    }

    /// What is worth a line.
    fn tell(&self, event: &Event) -> Option<String> {
        let round = || format!("round {} of {}", self.standing.rounds, self.board.rounds);
        Some(match event {
            Event::Opened { .. } => "began".to_owned(),
            Event::Evaluated { evaluation, .. } => format!("{}: {}", round(), evaluated(evaluation)),
            Event::NotTimed { .. } => format!("{}: right, but it could not be timed", round()),
            Event::Unreadable { role, .. } => format!("{}: the {} gave no readable reply", round(), role.name()),
            Event::BrokeOff { why } => format!("broke off: {}", plain(why)),
            Event::Ended { end } => {
                let limit = end.limit().map(|limit| format!(" at the limit {limit}")).unwrap_or_default();
                let came_to = self.standing.came_to();
                format!("ended{limit}: {came_to} ({})", self.board.summary())
            }
            _ => return None,
        })
    }
}

/// A task's line.
#[must_use]
pub fn describe(name: &str, standing: &Standing, rounds: u32) -> String {
    let round = standing.open.map_or(standing.rounds, |open| open);
    let best = standing.best.map(|best| format!(", best {best:.2}×")).unwrap_or_default();
    format!("{name}  round {round} of {rounds}: {}{best}", standing.doing)
}

impl<L> Drop for Watched<L> {
    fn drop(&mut self) {
        let mut state = self.board.lock();
        state.running -= usize::from(self.standing.end.is_none());
        if let Some(line) = &self.line {
            state.lines -= 1;
            line.finish_and_clear();
        }
    }
}

impl<L: Log> Log for Watched<L> {
    fn note(&mut self, event: &Event) -> Result<(), LogError> {
        self.log.note(event)?;
        self.show(event);
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
