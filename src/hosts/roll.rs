//! The roll of a run's hosts: what its orchestrator last wrote of them, as `warpsmith status` shows it.

use crate::progress::plain;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Which workers there are and what each does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roll {
    /// The message server.
    pub server: String,
    /// The class of workers that the run has.
    pub class: String,
    /// When this was written.
    pub written: String,
    /// Jobs that came back.
    pub jobs: u64,
    /// The same for each minute.
    pub jobs_a_minute: f64,
    /// Jobs that were taken again because a worker was lost.
    pub redelivered: u64,
    /// Answers that came a second time, and did not count.
    pub twice: u64,
    /// Answers that were not believed.
    pub refused: u64,
    /// Tasks that had to move to another device.
    pub moved: u64,
    /// The workers.
    pub workers: Vec<RollWorker>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollWorker {
    /// What it is called.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its public key.
    pub key: String,
    /// For how many seconds it has said nothing.
    pub silent_s: u64,
    /// Whether it counts as gone.
    pub lost: bool,
    /// Its devices of the run's class.
    pub devices: Vec<RollDevice>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollDevice {
    /// `cuda:0`.
    pub device: String,
    /// What it does.
    pub doing: Vec<String>,
}

impl Roll {
    /// Its file in the run's folder.
    pub const FILE: &'static str = "hosts.json";

    /// The one of a run; none where it has no hosts.
    #[must_use]
    pub fn of(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(Self::FILE)).ok()?).ok()
    }

    /// A line for each device, and one in all.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let device = |worker: &RollWorker, one: &RollDevice| {
            let doing = match (worker.lost, one.doing.as_slice()) {
                (true, _) => format!("lost, silent for {} s", worker.silent_s),
                (false, []) => "idle".to_owned(),
                (false, doing) => doing.join("; "),
            };
            format!("{} on {}  {}: {}", plain(&worker.name), plain(&worker.host), plain(&one.device), plain(&doing))
        };
        let devices = self.workers.iter().flat_map(|worker| worker.devices.iter().map(move |one| device(worker, one)));
        let mut lines: Vec<String> = devices.collect();
        let lost = self.workers.iter().filter(|worker| worker.lost).count();
        lines.push(format!(
            "hosts: {} workers, {lost} lost, {} devices of {}; {} jobs, {:.1} a minute; {} redelivered, {} moved, {} came \
             twice, {} not believed (at {})",
            self.workers.len(),
            lines.len(),
            plain(&self.class),
            self.jobs,
            self.jobs_a_minute,
            self.redelivered,
            self.moved,
            self.twice,
            self.refused,
            plain(&self.written),
        ));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_device_does_and_which_worker_is_lost_is_said() {
        let worker = |name: &str, lost, doing: &[&str]| RollWorker {
            name: name.into(),
            host: "h".into(),
            key: String::new(),
            silent_s: 40,
            lost,
            devices: vec![RollDevice {
                device: "cuda:0".into(),
                doing: doing.iter().map(ToString::to_string).collect(),
            }],
        };
        let workers =
            vec![worker("a", false, &["evaluate softmax 3 s"]), worker("b", true, &[]), worker("c", false, &[])];
        let roll = Roll {
            server: "nats://h".into(),
            class: "sm_90".into(),
            written: "now".into(),
            jobs: 7,
            jobs_a_minute: 3.5,
            redelivered: 1,
            twice: 0,
            refused: 0,
            moved: 2,
            workers,
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(Roll::FILE), serde_json::to_vec(&roll).unwrap()).unwrap();
        let lines = Roll::of(folder.path()).unwrap().lines();
        assert_eq!(lines[0], "a on h  cuda:0: evaluate softmax 3 s");
        assert_eq!(lines[1], "b on h  cuda:0: lost, silent for 40 s");
        assert!(lines[2].ends_with(": idle") && lines[3].contains("3 workers, 1 lost, 3 devices"), "{lines:?}");
        assert!(lines[3].contains("7 jobs, 3.5 a minute; 1 redelivered, 2 moved"), "{lines:?}");
    }
}
