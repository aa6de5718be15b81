//! What if the replies are written down beforehand? For tests of the machinery, and for nothing else.

use super::{Answer, AskError, Call, Llm, Purpose, Reply, Role};
use serde::Deserialize;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One reply, and the calls that it may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    role: Role,
    task: Option<String>,
    round: Option<u32>,
    purpose: Option<Purpose>,
    part: Option<String>,
    outcome: Result<String, AskError>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    role: Role,
    task: Option<String>,
    round: Option<u32>,
    purpose: Option<Purpose>,
    part: Option<String>,
    reply: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    #[serde(default)]
    entry: Vec<Written>,
}

impl From<Written> for Entry {
    fn from(w: Written) -> Self {
        Self { role: w.role, task: w.task, round: w.round, purpose: w.purpose, part: w.part, outcome: Ok(w.reply) }
    }
}

impl Entry {
    /// Answers any call of this role.
    #[must_use]
    pub fn new(role: Role, reply: impl Into<String>) -> Self {
        Self { role, task: None, round: None, purpose: None, part: None, outcome: Ok(reply.into()) }
    }

    /// Fails any call of this role.
    #[must_use]
    pub fn failing(role: Role, error: AskError) -> Self {
        Self { role, task: None, round: None, purpose: None, part: None, outcome: Err(error) }
    }

    /// The same, for this task alone.
    #[must_use]
    pub fn task(mut self, task: impl Into<String>) -> Self {
        self.task = Some(task.into());
        self
    }

    /// The same, in this round alone.
    #[must_use]
    pub fn round(mut self, round: u32) -> Self {
        self.round = Some(round);
        self
    }

    /// The same, for this purpose alone.
    #[must_use]
    pub fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = Some(purpose);
        self
    }

    /// The same, for this part of a transformation alone: `2.device`.
    #[must_use]
    pub fn part(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }

    fn fits(&self, call: &Call) -> bool {
        self.role == call.id.role
            && self.task.as_ref().is_none_or(|task| *task == call.id.task)
            && self.round.is_none_or(|round| round == call.id.round)
            && self.purpose.is_none_or(|purpose| purpose == call.id.purpose)
            && self.part.as_ref().is_none_or(|part| *part == call.id.part)
    }
}

/// Replies in order: the first unused one that fits a call answers it.
///
/// What is used is forgotten when the program ends: a script for a run that is to be resumed names the round of each reply.
pub struct Scripted {
    source: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<(Entry, bool)>,
    asked: Vec<Call>,
}

impl Scripted {
    /// A script made in code.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self::from_entries("in code".into(), entries.into_iter().collect())
    }

    /// A script from a file: `.jsonl` with an entry per line, anything else TOML with an `[[entry]]` each.
    /// An entry has `role` and `reply`, and may have `task`, `round`, `purpose` and `part`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read: which file, where in it, and what was expected.
    pub fn read(path: &Path) -> Result<Self, AskError> {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|e| AskError::Refused(format!("the script {name} cannot be read: {e}")))?;
        let jsonl = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl"));
        let entries = if jsonl { parse_jsonl(&text) } else { parse_toml(&text) };
        let entries = entries.map_err(|why| {
            AskError::Refused(format!(
                "the script {name} is wrong: {why} (each entry: role and reply, and perhaps task, round, purpose, part)"
            ))
        })?;
        Ok(Self::from_entries(name.to_string(), entries))
    }

    fn from_entries(source: String, entries: Vec<Entry>) -> Self {
        let entries = entries.into_iter().map(|entry| (entry, false)).collect();
        Self { source, state: Mutex::new(State { entries, asked: Vec::new() }) }
    }

    /// How many calls came, answered or not.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.lock().asked.len()
    }

    /// The calls that came, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<Call> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, call: Call) -> Result<Reply, AskError> {
        let mut state = self.lock();
        let outcome = state.entries.iter_mut().find(|(entry, used)| !used && entry.fits(&call)).map(|(entry, used)| {
            *used = true;
            entry.outcome.clone()
        });
        let outcome = outcome.unwrap_or_else(|| Err(self.nothing_left(&state, &call)));
        state.asked.push(call);
        outcome.map(|text| Reply { text, model: "scripted".into(), usage: None, usd: None, latency_ms: 0, requests: 1 })
    }

    fn nothing_left(&self, state: &State, call: &Call) -> AskError {
        let used = state.entries.iter().filter(|(_, used)| *used).count();
        AskError::RecordEnds(format!(
            "the script ({}) has no unused reply for the {} ({}) in round {}: {used} of its {} replies are used",
            self.source,
            call.id.role.name(),
            call.id.purpose.name(),
            call.id.round,
            state.entries.len(),
        ))
    }
}

fn parse_toml(text: &str) -> Result<Vec<Entry>, String> {
    let script: Script = toml::from_str(text).map_err(|e| e.to_string())?;
    Ok(script.entry.into_iter().map(Entry::from).collect())
}

fn parse_jsonl(text: &str) -> Result<Vec<Entry>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let written: Written = serde_json::from_str(line).map_err(|e| format!("line {}: {e}", i + 1))?;
            Ok(written.into())
        })
        .collect()
}

impl Llm for Scripted {
    fn describe(&self) -> String {
        format!("scripted ({})", self.source)
    }

    fn ask(&self, call: Call) -> Answer<'_> {
        Box::pin(std::future::ready(self.answer(call)))
    }
}
