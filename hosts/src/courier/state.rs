//! What an orchestrator knows of its jobs and their workers: no clock but its own is asked.

use crate::message::{DELIVERIES, Facts, Home, Taken, Told};
use kernelbench::Hash;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

/// Answers to nobody that are kept: those of a run that was broken off, until it asks again.
const EARLY: usize = 10_000;

/// A worker, and when it was heard of last.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) facts: Facts,
    pub(super) at: Instant,
}

/// A job that a worker took.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) taken: Taken,
    pub(super) at: Instant,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Jobs that came back.
    pub(super) done: u64,
    /// Jobs that were taken again because a worker was lost.
    pub(super) redelivered: u64,
    /// Answers that came a second time.
    pub(super) twice: u64,
    /// Answers that were not believed.
    pub(super) refused: u64,
    /// Tasks that had to move.
    pub(super) moved: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) workers: BTreeMap<String, Seen>,
    /// Where each task is at home, by its blob.
    pub(super) homes: HashMap<Hash, Home>,
    /// Blobs that are on the server.
    pub(super) kept: std::collections::HashSet<Hash>,
    pub(super) tally: Tally,
    /// Jobs that no worker comes back from, and what is said of them: they are given to no further one.
    pub(super) fatal: HashMap<Hash, String>,
    /// When it was last said that the server stores nothing.
    complained: Option<Instant>,
    waiting: HashMap<Hash, VecDeque<oneshot::Sender<Told>>>,
    early: HashMap<Hash, Told>,
    begun: HashMap<Hash, Vec<Begun>>,
    settled: std::collections::HashSet<Hash>,
}

/// How a job is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is not: somebody is at it, or it has not been waited for long.
    No,
    /// Nobody can be seen to be at it.
    Untaken,
    /// So many workers took it, and none is at it any more.
    Fatal(Vec<String>),
}

impl State {
    /// A worker was heard of.
    pub(super) fn heard(&mut self, facts: Facts) {
        self.workers.insert(facts.name.clone(), Seen { facts, at: Instant::now() });
    }

    /// A worker left.
    pub(super) fn left(&mut self, name: &str) {
        self.workers.remove(name);
    }

    /// A worker took a job, or gave it back.
    pub(super) fn taken(&mut self, id: &Hash, taken: Taken) {
        let begun = self.begun.entry(id.clone()).or_default();
        let same = |one: &Begun| one.taken.process == taken.process && one.taken.delivery == taken.delivery;
        if taken.returned {
            begun.retain(|one| one.taken.process != taken.process);
        } else if !begun.iter().any(same) {
            self.tally.redelivered += u64::from(!begun.is_empty());
            begun.push(Begun { taken, at: Instant::now() });
        }
    }

    /// A job came back. Whether it has counted, so that nothing of it has to be kept any longer.
    pub(super) fn told(&mut self, id: &Hash, told: Told) -> bool {
        let waits = self.waiting.get_mut(id).and_then(VecDeque::pop_front);
        if let Some(waits) = waits {
            self.settle(id);
            if waits.send(told).is_ok() {
                self.tally.done += 1;
            }
            return true;
        }
        if self.settled.contains(id) {
            self.tally.twice += 1;
            return true;
        }
        if self.early.len() < EARLY {
            self.early.insert(id.clone(), told);
        }
        false
    }

    /// Whether it is time to say that the server stores nothing: however many jobs wait for it, once a minute.
    pub(super) fn complains(&mut self) -> bool {
        let due = self.complained.is_none_or(|at| at.elapsed() >= Duration::from_mins(1));
        if due {
            self.complained = Some(Instant::now());
        }
        due
    }

    fn settle(&mut self, id: &Hash) {
        self.begun.remove(id);
        self.settled.insert(id.clone());
        if self.waiting.get(id).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(id);
        }
    }

    /// Waits for a job; what came back before anybody waited is taken at once, and once.
    pub(super) fn wait(&mut self, id: &Hash) -> Result<Told, oneshot::Receiver<Told>> {
        if let Some(told) = self.early.remove(id) {
            self.settle(id);
            self.tally.done += 1;
            return Ok(told);
        }
        let (sender, receiver) = oneshot::channel();
        self.settled.remove(id);
        self.waiting.entry(id.clone()).or_default().push_back(sender);
        Err(receiver)
    }

    /// Nobody waits for a job for now.
    pub(super) fn wait_no_more(&mut self, id: &Hash) {
        self.waiting.remove(id);
    }

    /// Nobody waits for a job any more.
    pub(super) fn give_up(&mut self, id: &Hash) {
        self.wait_no_more(id);
        self.settle(id);
    }

    /// Whether a device is there and was heard of lately.
    pub(super) fn lives(&self, slot: &str, silence: Duration) -> bool {
        self.seen(slot).is_some_and(|seen| seen.at.elapsed() < silence)
    }

    fn seen(&self, slot: &str) -> Option<&Seen> {
        self.workers.values().find(|seen| seen.facts.slots.contains_key(slot))
    }

    /// Whether the worker that took a job can be seen to be at it.
    fn is_at_it(&self, id: &Hash, begun: &Begun, silence: Duration) -> bool {
        let Some(seen) = self.seen(&begun.taken.slot) else { return begun.at.elapsed() < silence / 3 };
        if seen.facts.process != begun.taken.process || seen.at.elapsed() >= silence {
            return false;
        }
        // What it does, it says with its next beat.
        let lists = seen.facts.slots.get(&begun.taken.slot).is_some_and(|place| place.doing.contains_key(id));
        lists || seen.at < begun.at || begun.at.elapsed() < silence
    }

    /// Whether a job that was published so long ago is missing.
    pub(super) fn missing(&self, id: &Hash, published: Instant, silence: Duration) -> Missing {
        let none = vec![];
        let begun = self.begun.get(id).unwrap_or(&none);
        if begun.iter().any(|one| self.is_at_it(id, one, silence)) {
            return Missing::No;
        }
        if begun.len() >= DELIVERIES {
            let who = |one: &Begun| format!("{} ({} s ago)", one.taken.slot, one.at.elapsed().as_secs());
            return Missing::Fatal(begun.iter().map(who).collect());
        }
        if published.elapsed() > silence { Missing::Untaken } else { Missing::No }
    }

    /// How long no worker of a class has been heard of; none where one is there.
    pub(super) fn deserted(&self, class: &str, silence: Duration) -> bool {
        let of_class =
            |seen: &&Seen| seen.facts.slots.values().any(|place| place.lanes.values().any(|own| own == class));
        !self.workers.values().filter(of_class).any(|seen| seen.at.elapsed() < silence)
    }

    /// A device on another host than this one's, of a class, which has the least to do.
    pub(super) fn elsewhere(&self, slot: &str, class: &str, silence: Duration) -> Option<String> {
        let host = &self.seen(slot)?.facts.host;
        let others = self.workers.values().filter(|seen| seen.facts.host != *host && seen.at.elapsed() < silence);
        let slots = others.flat_map(|seen| &seen.facts.slots);
        let able = slots.filter(|(_, place)| place.lanes.values().any(|own| own == class));
        able.min_by_key(|(_, place)| place.doing.len()).map(|(slot, _)| slot.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Place;
    use kernelbench::{Done, JobFound, stage::Hand};

    const SILENCE: Duration = Duration::from_secs(30);

    fn told(slot: &str) -> Told {
        let done = Done { found: Ok(JobFound::Checked(None)), hand: Hand::named(slot), stages: vec![] };
        Told { slot: slot.into(), done }
    }

    fn taken(slot: &str, delivery: i64) -> Taken {
        Taken { slot: slot.into(), process: format!("p-{slot}"), delivery, returned: false }
    }

    fn worker(name: &str) -> Facts {
        let lanes = [("problem".to_owned(), "h200".to_owned())].into();
        let place = Place { device: "cuda:0".into(), lanes, doing: BTreeMap::new() };
        Facts {
            name: name.into(),
            host: format!("host-{name}"),
            process: format!("p-{name}-0"),
            key: String::new(),
            version: String::new(),
            slots: [(format!("{name}-0"), place)].into(),
            machines: BTreeMap::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_once_whether_it_came_early_late_or_twice() {
        let (mut state, id) = (State::default(), Hash::of(b"job"));
        let Err(waits) = state.wait(&id) else { panic!("nothing has come yet") };
        assert!(state.told(&id, told("a-0")));
        assert_eq!(waits.await.ok(), Some(told("a-0")));
        assert!(state.told(&id, told("b-0")), "a second answer is to be wiped");
        assert_eq!((state.tally.done, state.tally.twice), (1, 1));
        assert!(state.wait(&id).is_err(), "asked for again, it is done again");
        let early = Hash::of(b"early");
        assert!(!state.told(&early, told("a-0")));
        assert_eq!(state.wait(&early).ok(), Some(told("a-0")));
        assert!(state.wait(&early).is_err(), "what came early counts once too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_is_missing_once_nobody_is_at_it_and_fatal_after_three() {
        let (mut state, id) = (State::default(), Hash::of(b"job"));
        let published = Instant::now();
        assert_eq!(state.missing(&id, published, SILENCE), Missing::No);
        for (delivery, name) in (0..).zip(["a", "b", "c"]) {
            state.heard(worker(name));
            let slot = format!("{name}-0");
            state.taken(&id, taken(&slot, delivery + 1));
            state.taken(&id, taken(&slot, delivery + 1));
            assert_eq!(state.missing(&id, published, SILENCE), Missing::No);
            tokio::time::advance(SILENCE * 2).await;
            assert!(!state.lives(&slot, SILENCE));
            if delivery < 2 {
                assert_eq!(state.missing(&id, published, SILENCE), Missing::Untaken);
            }
        }
        assert_eq!(state.tally.redelivered, 2);
        let Missing::Fatal(who) = state.missing(&id, published, SILENCE) else { panic!("three took it") };
        assert_eq!(who, ["a-0 (180 s ago)", "b-0 (120 s ago)", "c-0 (60 s ago)"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_back_is_held_against_nobody() {
        let (mut state, id) = (State::default(), Hash::of(b"job"));
        for delivery in 1..=5 {
            state.taken(&id, taken("a-0", delivery));
            state.taken(&id, Taken { returned: true, ..taken("a-0", delivery) });
        }
        tokio::time::advance(SILENCE * 2).await;
        assert_eq!(state.missing(&id, Instant::now() - SILENCE * 2, SILENCE), Missing::Untaken);
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_taken_on_another_host_where_there_is_one() {
        let mut state = State::default();
        state.heard(worker("a"));
        assert_eq!(state.elsewhere("a-0", "h200", SILENCE), None);
        state.heard(worker("b"));
        assert_eq!(state.elsewhere("a-0", "h200", SILENCE), Some("b-0".to_owned()));
        assert_eq!(state.elsewhere("a-0", "h100", SILENCE), None);
    }
}
