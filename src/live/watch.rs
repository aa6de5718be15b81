//! Which tasks are there, and what has changed with them since the last look?

use super::{
    device::{self, Device, DeviceRow},
    row::{Place, Row, Turn},
    task::Seen,
};
use crate::{
    ablation::AblationFolder,
    batch::{limits::Used, standing::Standing, watching::spent},
    exit::Trouble,
    hosts::Roll,
    plan,
    progress::plain,
    report::so_far::SoFar,
    store::{self, Follow, Grown, RunFolder, StoreError},
};
use agents::event::{Event, Line};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Rounds that are told as they come.
const NEWS: usize = 40;
/// Looks between two at who works on the run.
const LOOKS: u32 = 4;
/// The part of a device's time that was held is told anew after so long, in microseconds.
const STEADY_US: i64 = 5_000_000;

/// A run, or the runs of an ablation, as far as they were read.
pub(super) struct Watch {
    path: PathBuf,
    is_ablation: bool,
    runs: Vec<Run>,
    tasks: Vec<Task>,
    devices: BTreeMap<String, Device>,
    news: Vec<News>,
    looks: u32,
    rows: Vec<Row>,
    /// What was told last, besides the tasks.
    summary: Value,
    device_rows: Vec<DeviceRow>,
}

/// One run.
struct Run {
    folder: RunFolder,
    name: String,
    rounds: u32,
    /// Whether its tasks were listed when it was made.
    is_listed: bool,
    facts: Vec<(String, String)>,
    unreadable: Vec<(String, String)>,
    writer: Option<String>,
    /// Since when somebody works on it, in milliseconds since 1970-01-01 UTC.
    writes_since_ms: Option<i64>,
    roll: Option<Roll>,
}

/// One task of a run.
struct Task {
    run: usize,
    name: String,
    follow: Follow,
    seen: Seen,
    damaged: Option<String>,
    /// Whether its row must be made anew.
    is_new: bool,
}

/// A round that is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct News {
    task: usize,
    #[serde(flatten)]
    turn: Turn,
}

impl Watch {
    /// The runs in this folder.
    pub(super) fn of(path: &Path) -> Result<Self, Trouble> {
        let is_ablation = AblationFolder::at(path).is_some();
        let mut watch = Self::empty(path, is_ablation);
        watch.find()?;
        Ok(watch)
    }

    fn empty(path: &Path, is_ablation: bool) -> Self {
        Self {
            path: path.to_owned(),
            is_ablation,
            runs: vec![],
            tasks: vec![],
            devices: BTreeMap::new(),
            news: vec![],
            looks: 0,
            rows: vec![],
            summary: Value::Null,
            device_rows: vec![],
        }
    }

    /// The folder of a run.
    pub(super) fn run(&self, number: usize) -> Option<RunFolder> {
        self.runs.get(number).map(|run| run.folder.clone())
    }

    /// The folder of a task's run, and its name there.
    pub(super) fn task(&self, number: usize) -> Option<(RunFolder, String)> {
        let task = self.tasks.get(number)?;
        Some((self.run(task.run)?, task.name.clone()))
    }

    /// How things stand, as they were told last.
    pub(super) fn state(&self) -> Value {
        json!({
            "now_ms": now_us() / 1000, "summary": self.summary, "devices": self.device_rows, "tasks": self.rows,
            "news": self.news,
        })
    }

    /// Reads what has come, and says what has changed; nothing, if nothing has.
    pub(super) fn look(&mut self) -> Option<Value> {
        // What cannot be found now, such as a folder in the making, may be there at the next look.
        let _ = self.find();
        let mut news = vec![];
        for number in 0..self.tasks.len() {
            if !self.read(number, &mut news) {
                return self.anew();
            }
        }
        if self.looks.is_multiple_of(LOOKS) {
            self.runs.iter_mut().for_each(Run::ask_who_writes);
        }
        self.looks += 1;
        self.told(news)
    }

    /// A record is no longer what was read: everything is read again.
    fn anew(&mut self) -> Option<Value> {
        *self = Self::empty(&self.path, self.is_ablation);
        self.look()
    }

    /// Runs that have been begun and tasks that have, since the last look.
    fn find(&mut self) -> Result<(), Trouble> {
        if self.is_ablation {
            for path in store::runs(&self.path.join("runs"))? {
                if !self.runs.iter().any(|run| run.folder.path() == path) {
                    self.open(&path)?;
                }
            }
        } else if self.runs.is_empty() {
            self.open(&self.path.clone())?;
        }
        for number in 0..self.runs.len() {
            if !self.runs[number].is_listed {
                let names = self.runs[number].folder.tasks()?;
                self.add(number, names)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, path: &Path) -> Result<(), Trouble> {
        let (run, names) = Run::open(path)?;
        self.runs.push(run);
        self.add(self.runs.len() - 1, names)
    }

    fn add(&mut self, run: usize, names: Vec<String>) -> Result<(), Trouble> {
        for name in names {
            if self.tasks.iter().any(|task| task.run == run && task.name == name) {
                continue;
            }
            let follow = self.runs[run].folder.follow(&name)?;
            self.tasks.push(Task { run, name, follow, seen: Seen::default(), damaged: None, is_new: true });
        }
        Ok(())
    }

    /// Reads on in a task's record; false where it has to be read anew.
    fn read(&mut self, number: usize, news: &mut Vec<News>) -> bool {
        loop {
            let task = &mut self.tasks[number];
            let (lines, more) = match task.follow.look() {
                Ok(Grown::By(lines, more)) => (lines, more),
                Ok(Grown::Anew) => return false,
                Err(why) => {
                    task.is_damaged(&why);
                    return true;
                }
            };
            task.is_new |= task.damaged.take().is_some() || !lines.is_empty();
            for line in &lines {
                news.extend(task.seen.take_in(line).map(|turn| News { task: number, turn }));
                lease(&mut self.devices, number, line);
            }
            if !more {
                return true;
            }
        }
    }

    /// Makes the rows that are new, and what is to be told of them and of the rest.
    fn told(&mut self, mut news: Vec<News>) -> Option<Value> {
        let mut changed = vec![];
        for (id, task) in self.tasks.iter_mut().enumerate().filter(|(_, task)| task.is_new) {
            task.is_new = false;
            let row = task.row(id, self.runs[task.run].rounds);
            changed.push(row.clone());
            if id < self.rows.len() { self.rows[id] = row } else { self.rows.push(row) }
        }
        news.sort_by_key(|news| news.turn.at_ms);
        news.drain(..news.len().saturating_sub(NEWS));
        self.news.extend(news.iter().cloned());
        self.news.drain(..self.news.len().saturating_sub(NEWS));
        let mut told = serde_json::Map::new();
        let (summary, devices) = (self.summarize(), self.devices());
        if summary != self.summary {
            told.insert("summary".into(), summary.clone());
            self.summary = summary;
        }
        if devices != self.device_rows {
            told.insert("devices".into(), json!(devices));
            self.device_rows = devices;
        }
        if !changed.is_empty() {
            told.insert("tasks".into(), json!(changed));
        }
        if !news.is_empty() {
            told.insert("news".into(), json!(news));
        }
        if told.is_empty() {
            return None;
        }
        told.insert("now_ms".into(), json!(now_us() / 1000));
        Some(told.into())
    }

    fn devices(&self) -> Vec<DeviceRow> {
        let rolls: Vec<Roll> = self.runs.iter().filter_map(|run| run.roll.clone()).collect();
        let now = now_us();
        device::rows(&self.devices, &self.rows, &rolls, now - now % STEADY_US)
    }

    fn summarize(&self) -> Value {
        let (mut so_far, mut used) = (SoFar::default(), Used::default());
        for Task { seen, .. } in &self.tasks {
            let Standing { end, certified, only_as_drawn, .. } = &seen.standing;
            so_far.count(end.is_some(), (certified.as_ref(), *only_as_drawn), seen.best());
            used.add(&seen.standing.used);
        }
        let mut doing: BTreeMap<&str, usize> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.state == "works") {
            *doing.entry(&row.doing).or_default() += 1;
        }
        json!({
            "title": title(&self.path), "words": so_far.words(), "detail": so_far.detail(), "is_whole": so_far.is_whole(),
            "all": so_far.all, "ended": so_far.ended, "doing": doing, "spent": spent(&used), "held_us": used.leased_us,
            "rounds": self.rows.iter().map(|row| row.turns.iter().filter(|turn| turn.kind != "open").count()).sum::<usize>(),
            "runs": self.runs.iter().map(Run::told).collect::<Vec<_>>(),
        })
    }
}

impl Run {
    /// The run in this folder, and its tasks as far as they are known.
    fn open(path: &Path) -> Result<(Self, Vec<String>), Trouble> {
        let folder = RunFolder::open(path)?;
        let (header, list) = (folder.header()?, folder.batch()?);
        let fact = |name: &str, value: &str| (name.to_owned(), plain(value));
        let mut run = Self {
            name: title(path),
            rounds: header.configuration.run.rounds,
            is_listed: list.is_some(),
            facts: vec![
                fact("Answered by", &header.model),
                fact("Machine", &header.machine.name),
                fact("Policy", &header.policy),
                fact("Began", &to_the_minute(&header.began)),
            ],
            unreadable: vec![],
            writer: None,
            writes_since_ms: None,
            roll: None,
            folder,
        };
        if header.simulated {
            run.facts.insert(0, fact("Simulated", "no kernel runs, and the numbers say nothing about any machine"));
        }
        let Some(list) = list else { return Ok((run, vec![])) };
        run.rounds = plan::parse("the batch's policy", &run.folder.blobs().fetch(&list.policy)?)?.rounds;
        run.unreadable = list.unreadable.iter().map(|file| (plain(&file.path), plain(&file.why))).collect();
        Ok((run, list.tasks.into_iter().map(|listed| listed.name).collect()))
    }

    fn ask_who_writes(&mut self) {
        self.writer = self.folder.writer();
        self.writes_since_ms = self.writer.as_ref().and(self.folder.written_since());
        self.roll = Roll::of(self.folder.path());
    }

    fn told(&self) -> Value {
        json!({
            "name": self.name, "facts": self.facts, "writer": self.writer.as_deref().map(plain),
            "writes_since_ms": self.writes_since_ms,
            "path": plain(&self.folder.path().display().to_string()), "unreadable": self.unreadable,
            "hosts": self.roll.as_ref().and_then(|roll| roll.lines().pop()),
        })
    }
}

impl Task {
    fn row(&self, id: usize, rounds: u32) -> Row {
        let place = Place { id, run: self.run, name: &self.name, rounds, damaged: self.damaged.as_deref() };
        Row::of(&place, &self.seen)
    }

    fn is_damaged(&mut self, why: &StoreError) {
        let why = Some(why.to_string());
        self.is_new |= self.damaged != why;
        self.damaged = why;
    }
}

/// Takes in that a device was held, where the event says so.
fn lease(devices: &mut BTreeMap<String, Device>, task: usize, line: &Line) {
    if let Event::Spent { work, lease: Some(lease), .. } = &line.event {
        devices.entry(lease.device.clone()).or_default().take_in(task, *work, lease);
    }
}

/// A moment of a header as a person reads it; as it stands where it is none.
fn to_the_minute(moment: &str) -> String {
    moment
        .parse()
        .map_or_else(|_| moment.to_owned(), |at: jiff::Timestamp| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// What a folder is called.
fn title(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    plain(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// Microseconds since 1970-01-01 UTC.
fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}
