//! What do the devices do: who is at each, how much of the last minutes it was held, and what it did last?
//!
//! A record says who held a device once the work is done. Who is at it now follows from what each task does and from the
//! device that it had before; where other hosts work, their roll says it.

use super::row::{CERTIFIES, Row};
use crate::{hosts::Roll, progress::plain};
use agents::{lease::Lease, lease::Work};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// The time that "lately" means, in microseconds.
const LATELY_US: i64 = 300_000_000;
/// What a task does that it needs a device for.
const AT_A_DEVICE: [&str; 4] = ["examining the reference", "examining the candidate", "profiling", CERTIFIES];

/// One device, over the whole run.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    held_us: u64,
    alone_us: u64,
    jobs: u64,
    /// From when to when it was held lately, and how long of that.
    lately: VecDeque<(i64, i64, u64)>,
    last: Option<Last>,
}

/// What a device did last.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Last {
    task: usize,
    what: &'static str,
    held_us: u64,
    until_ms: i64,
}

/// A device as the page is sent it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct DeviceRow {
    name: String,
    /// The tasks that are at it, by number, and what for.
    now: Vec<(usize, String, Option<i64>)>,
    /// What a worker on another host says that it does.
    says: Vec<String>,
    held_us: u64,
    alone_us: u64,
    jobs: u64,
    /// Of the last minutes, the part that it was held, from 0 to 1; none where it was not lately.
    lately: Option<f64>,
    last: Option<Last>,
}

impl Device {
    /// Takes in a lease for a task's work.
    pub(super) fn take_in(&mut self, task: usize, work: Work, lease: &Lease) {
        self.held_us += lease.us();
        self.alone_us += lease.exclusive_us();
        self.jobs += 1;
        self.lately.push_back((lease.from_us, lease.until_us, lease.us()));
        let newest = self.lately.iter().map(|(_, until, _)| *until).max().unwrap_or(0);
        self.lately.retain(|(_, until, _)| *until > newest - LATELY_US);
        let until_ms = lease.until_us / 1000;
        if self.last.as_ref().is_none_or(|last| last.until_ms <= until_ms) {
            self.last = Some(Last { task, what: words(work), held_us: lease.us(), until_ms });
        }
    }

    /// Of the minutes before this, the part that it was held.
    fn lately(&self, now_us: i64) -> Option<f64> {
        let from = now_us - LATELY_US;
        let within = |(began, ended, held): &(i64, i64, u64)| {
            let part = (ended - (*began).max(from)) as f64 / (ended - began).max(1) as f64;
            part.clamp(0.0, 1.0) * *held as f64
        };
        let held: f64 = self.lately.iter().map(within).sum();
        (held > 0.0).then(|| (held / LATELY_US as f64).min(1.0))
    }
}

fn words(work: Work) -> &'static str {
    match work {
        Work::Prepare => "the reference",
        Work::Build => "configurations",
        Work::Examine => "a candidate",
        Work::Check => "a configuration",
        Work::Profile => "a profile",
        Work::Certify => "the certificate",
    }
}

/// All devices as the page is sent them; those that nobody has held yet are not known.
pub(super) fn rows(devices: &BTreeMap<String, Device>, tasks: &[Row], roll: &[Roll], now_us: i64) -> Vec<DeviceRow> {
    let at = |name: &str| {
        let here = tasks.iter().filter(|task| task.device == name && is_at_a_device(task));
        here.map(|task| (task.id, task.doing.clone(), task.at_ms)).collect::<Vec<_>>()
    };
    let says = |name: &str| {
        let workers = roll.iter().flat_map(|roll| &roll.workers);
        let devices = workers.flat_map(|worker| worker.devices.iter().map(move |one| (worker, one)));
        let this = devices.filter(|(worker, one)| format!("{}/{}", worker.name, one.device) == name);
        this.flat_map(|(worker, one)| {
            if worker.lost { vec![format!("lost, silent for {} s", worker.silent_s)] } else { one.doing.clone() }
        })
        .map(|text| plain(&text))
        .collect::<Vec<_>>()
    };
    let row = |(name, device): (&String, &Device)| DeviceRow {
        name: plain(name),
        now: at(&plain(name)),
        says: says(name),
        held_us: device.held_us,
        alone_us: device.alone_us,
        jobs: device.jobs,
        lately: device.lately(now_us),
        last: device.last.clone(),
    };
    devices.iter().map(row).collect()
}

/// Whether a task does what a device is needed for.
pub(super) fn is_at_a_device(task: &Row) -> bool {
    task.state == "works" && AT_A_DEVICE.contains(&task.doing.as_str())
}
