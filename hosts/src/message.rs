//! Messages: what travels between an orchestrator and its workers, and by which subjects.

use kernelbench::{Asked, Done, Hash};
use metrics::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The stream that jobs wait in.
pub const JOBS: &str = "warpsmith-jobs";
/// The bucket of workers, and of which task is at home where.
pub const WORKERS: &str = "warpsmith-workers";
/// The bucket of blobs that orchestrators write and workers read.
pub const BLOBS: &str = "warpsmith-blobs";
/// The bucket of what workers found, where it is too large for a message.
pub const FOUND: &str = "warpsmith-found";
/// In the place of a device's name: whichever takes it first.
pub const ANY: &str = "any";
/// How often a job is given to a worker before it is held against the job.
pub const DELIVERIES: usize = 3;
/// The header with the worker's public key.
pub const KEY: &str = "Warpsmith-Key";
/// The header with its signature.
pub const SIGNATURE: &str = "Warpsmith-Signature";

/// A job on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// What it is called.
    pub id: Hash,
    /// The run that asks.
    pub run: String,
    /// The class of workers that it is for.
    pub class: String,
    /// The blob of its task.
    pub task: Hash,
    /// The task's name, for people.
    pub name: String,
    /// What is asked, or the blob of it.
    pub asked: Stowed<Asked>,
    /// By what part the reference may differ from itself, as it was seen to.
    #[serde(default)]
    pub self_difference: f64,
}

/// Something that travels in a message where it is small, and as a blob where it is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stowed<T> {
    /// Here it is.
    Here(T),
    /// The blob of this hash.
    Blob(Hash),
}

/// A worker took a job, or gave it back undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Its device.
    pub slot: String,
    /// Which process of that name.
    pub process: String,
    /// Which delivery of the job it was.
    pub delivery: i64,
    /// Whether it was given back.
    pub returned: bool,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// The device that did it.
    pub slot: String,
    /// What it came to.
    pub done: Done,
}

/// What is known of a worker, told anew with every beat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// What it is called.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Which process of that name: no two ever have the same.
    pub process: String,
    /// Its public key.
    pub key: String,
    /// The program's version.
    pub version: String,
    /// Its devices, by the name of their subject.
    pub slots: BTreeMap<String, Place>,
    /// The machines of its classes.
    pub machines: BTreeMap<String, Machine>,
}

/// A device of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// `cuda:0`.
    pub device: String,
    /// What it can do, each with the class that its numbers are of.
    pub lanes: BTreeMap<String, String>,
    /// What it does now, by the jobs' ids.
    pub doing: BTreeMap<Hash, Doing>,
}

/// A job that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doing {
    /// The run.
    pub run: String,
    /// The task.
    pub task: String,
    /// The step.
    pub step: String,
    /// For how many seconds.
    pub seconds: u64,
}

/// Which task of a run is at home on which device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The device's subject.
    pub slot: String,
    /// The device as the record calls it.
    pub device: String,
}

/// The class of a machine with this toolchain: results of two classes are never mixed.
#[must_use]
pub fn class(machine: &Machine, lane: &str, toolchain: &str) -> String {
    let compiler = machine.facts.iter().find(|fact| fact.name == "compiler").map_or("", |fact| &fact.value);
    let rest = Hash::of(format!("{}\n{lane}\n{compiler}\n{toolchain}", machine.name).as_bytes());
    format!("{}-{}-{}", token(&machine.arch.to_string()), token(&machine.name), rest.short())
}

/// A name as one token of a subject, such as `nvidia-h200`.
#[must_use]
pub fn token(name: &str) -> String {
    let plain = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "-");
    let parts: Vec<&str> = plain.split('-').filter(|part| !part.is_empty()).take(8).collect();
    if parts.is_empty() { "unnamed".to_owned() } else { parts.join("-") }
}

/// Where a job for this device, or for any, is published.
#[must_use]
pub fn job_subject(class: &str, lane: &str, to: &str, run: &str, id: &Hash) -> String {
    format!("jobs.{class}.{lane}.{to}.{run}.{id}")
}

/// The stream of what came of a run's jobs.
#[must_use]
pub fn run_stream(run: &str) -> String {
    format!("warpsmith-run-{run}")
}

/// Where it is told that a job was taken.
#[must_use]
pub fn taken_subject(run: &str, id: &Hash) -> String {
    format!("runs.{run}.taken.{id}")
}

/// Where it is told what came of a job.
#[must_use]
pub fn told_subject(run: &str, id: &Hash) -> String {
    format!("runs.{run}.told.{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_one_token() {
        assert_eq!(token("NVIDIA H200 (141 GB)"), "nvidia-h200-141-gb");
        assert_eq!(token("a.b>*"), "a-b");
        assert_eq!(token("..."), "unnamed");
    }
}
