//! Is a GPU held by nobody else while something is timed on it, and do checks share it, however many tasks there are?

use crate::crowd::{Crowd, Slow, on_a_jumping_clock, work};
use agents::event::Event;
use kernelbench::stage::Hold;
use std::{collections::BTreeMap, sync::Arc};
use warpsmith::store::RunFolder;

/// When somebody held a device, and how: from, until.
type Holds = Vec<(i64, i64, Hold)>;

/// Who held what in a run's log, by device, in order of time; and how many leases there were.
fn holds(folder: &RunFolder) -> (BTreeMap<String, Holds>, usize) {
    let (mut all, mut leases): (BTreeMap<String, Holds>, usize) = (BTreeMap::new(), 0);
    for task in folder.tasks().unwrap() {
        for event in folder.record(&task).unwrap().events() {
            let Event::Spent { lease: Some(lease), stages, .. } = event else { continue };
            let of_device = all.entry(lease.device.clone()).or_default();
            let held = stages.iter().filter_map(|one| Some((one.from_us, one.until_us(), one.held?)));
            let before = of_device.len();
            of_device.extend(held);
            let us: i64 = of_device[before..].iter().map(|(from, until, _)| until - from).sum();
            assert_eq!(u64::try_from(us).unwrap(), lease.us(), "the lease and its stages: {lease:?}");
            leases += 1;
        }
    }
    for holds in all.values_mut() {
        holds.sort_unstable();
    }
    (all, leases)
}

fn under(crowd: Crowd) -> (BTreeMap<String, Holds>, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (outcome, _, machines) = on_a_jumping_clock(work(crowd, Arc::new(Slow::new(crowd.calls)), &path));
    assert!(outcome.broke_off.is_empty() && outcome.left == 0, "{outcome:?}");
    for machine in machines {
        assert_eq!((machine.most_running(), machine.disturbed()), (1, 0), "a timing was not alone");
        assert!(machine.most_checking() <= 4);
    }
    holds(&RunFolder::open(&path).unwrap())
}

#[test]
fn under_a_thousand_tasks_the_log_shows_nobody_else_on_a_gpu_while_something_is_timed() {
    for (tasks, gpus) in [(1000, 1), (64, 8)] {
        let crowd = Crowd { tasks, rounds: 1, gpus, calls: 40, at_once: 144, repetitions: 2 };
        let (devices, leases) = under(crowd);
        assert_eq!(devices.len(), gpus);
        // The candidate and the certificate of each; the reference takes no time here, and holds nothing.
        assert_eq!(leases, 3 * tasks);
        for (device, holds) in devices {
            let mut until = BTreeMap::from([(Hold::Shared, i64::MIN), (Hold::Exclusive, i64::MIN)]);
            for (from, to, how) in holds {
                assert!(until[&Hold::Exclusive] <= from, "{device}: at {from} somebody was alone");
                assert!(how == Hold::Shared || until[&Hold::Shared] <= from, "{device}: at {from} somebody checked");
                until.entry(how).and_modify(|until| *until = to.max(*until));
            }
        }
    }
}

#[test]
fn checks_share_a_gpu() {
    let crowd = Crowd { tasks: 64, rounds: 1, gpus: 1, calls: 40, at_once: 40, repetitions: 2 };
    let (devices, _) = under(crowd);
    let holds = devices.into_values().next().unwrap();
    let overlap = holds.windows(2).filter(|pair| pair[1].0 < pair[0].1).count();
    assert!(overlap > 10, "{overlap} checks began beside another");
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
