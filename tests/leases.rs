//! Is a GPU leased to one holder at a time, and never idle for want of order, however many tasks there are?
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod crowd;

use agents::{event::Event, lease::Lease};
use crowd::{Crowd, Slow, on_a_jumping_clock, work};
use std::{collections::BTreeMap, sync::Arc};
use warpsmith::store::RunFolder;

/// The leases in a run's log, by device, in order of time.
fn leases(folder: &RunFolder) -> BTreeMap<String, Vec<Lease>> {
    let mut all: BTreeMap<String, Vec<Lease>> = BTreeMap::new();
    for task in folder.tasks().unwrap() {
        for event in folder.record(&task).unwrap().events() {
            if let Event::Spent { lease: Some(lease), .. } = event {
                all.entry(lease.device.clone()).or_default().push(lease);
            }
        }
    }
    for leases in all.values_mut() {
        leases.sort_by_key(|lease| (lease.from_us, lease.until_us));
    }
    all
}

fn most_at_once(crowd: Crowd) -> BTreeMap<String, Vec<Lease>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (outcome, _, machines) = on_a_jumping_clock(work(crowd, Arc::new(Slow::new(crowd.calls)), &path));
    assert!(outcome.broke_off.is_empty() && outcome.left == 0, "{outcome:?}");
    assert!(machines.iter().all(|machine| machine.most_running() == 1), "two ran on one simulated GPU");
    leases(&RunFolder::open(&path).unwrap())
}

#[test]
fn under_a_thousand_tasks_the_log_shows_one_holder_of_each_gpu_at_a_time() {
    for (tasks, gpus) in [(1000, 1), (64, 8)] {
        let crowd = Crowd { tasks, rounds: 1, gpus, calls: 40, at_once: 144, repetitions: 2 };
        let leases = most_at_once(crowd);
        assert_eq!(leases.len(), gpus);
        // The reference, the candidate and the certificate of each.
        assert_eq!(leases.values().map(Vec::len).sum::<usize>(), 3 * tasks);
        for (device, leases) in leases {
            for pair in leases.windows(2) {
                assert!(pair[0].until_us <= pair[1].from_us, "{device} has two holders: {pair:?}");
            }
            assert!(leases.iter().all(|lease| lease.until_us >= lease.from_us));
        }
    }
}

#[test]
fn a_task_keeps_its_gpu() {
    let crowd = Crowd { tasks: 24, rounds: 2, gpus: 4, calls: 8, at_once: 12, repetitions: 2 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    on_a_jumping_clock(work(crowd, Arc::new(Slow::new(crowd.calls)), &path));
    let run = RunFolder::open(&path).unwrap();
    for task in run.tasks().unwrap() {
        let devices: Vec<String> = run
            .record(&task)
            .unwrap()
            .events()
            .filter_map(|event| match event {
                Event::Spent { lease: Some(lease), .. } => Some(lease.device),
                _ => None,
            })
            .collect();
        assert!(devices.iter().all(|device| *device == devices[0]), "{task}: {devices:?}");
    }
}
