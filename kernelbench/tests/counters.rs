//! Does a process wait under the profiler before it is needed, and is each candidate read in one of its own?
//!
//! `tests/ncu/ncu` pretends to be Nsight Compute: it runs what it is given, and then prints a real capture. It says nothing
//! of a GPU.
#![expect(clippy::unwrap_used, reason = "a test may")]

#[expect(dead_code, reason = "other tests evaluate")]
mod python;

use metrics::{Profile, Rung};
use python::{problem, workshop_with};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Barrier, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};
use warpsmith_kernelbench::{
    Candidate, Suite, Workshop,
    torch::{Options, Torch},
};

const RIGHT: &str = r"
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
";

/// One test at a time: they look at what is alive.
static ONE: Mutex<()> = Mutex::new(());

/// The pretended profilers, where a candidate's own user can read them.
static TOOLS: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap().keep();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let capture = fs::read_to_string("tests/ncu/h200-softplus-softmax.csv").unwrap();
    fs::write(folder.join("capture.csv"), capture).unwrap();
    let others = [("ncu-that-waits", "#!/bin/sh\nexec sleep 600\n"), ("ncu-that-ends", "#!/bin/sh\nexit 1\n")];
    for (name, text) in [("ncu", include_str!("ncu/ncu"))].into_iter().chain(others) {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
});

fn with(tool: &str, ahead: bool) -> Torch {
    workshop_with(|options: &mut Options| {
        options.ncu = Some(TOOLS.join(tool));
        options.profile_ahead = ahead;
        options.profile_patience = Duration::from_secs(if tool == "ncu-that-waits" { 2 } else { 60 });
    })
}

/// The processes of this workshop that were started as this tool.
fn under(workshop: &Torch, tool: &str) -> Vec<i32> {
    let tool = TOOLS.join(tool).display().to_string();
    let is_it = |id: &i32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == tool.as_bytes())
    };
    workshop.processes().into_iter().filter(is_it).collect()
}

fn wait_for(what: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !what() && start.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(20));
    }
    what()
}

fn profiled(workshop: &Torch, source: &str) -> Profile {
    profiled_after(workshop, source, || ())
}

/// The profile of a candidate that was checked before this came to pass.
fn profiled_after(workshop: &Torch, source: &str, before: impl FnOnce()) -> Profile {
    let task = problem("1_Softplus");
    let suite = Suite::of_task(&task);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let verified = runtime.block_on(async {
        let built = workshop.build(&task, &Candidate::new(source)).await.unwrap().unwrap();
        workshop.check(&task, built, &suite).await.unwrap().unwrap()
    });
    before();
    runtime.block_on(workshop.profile(&task, &verified, &suite)).unwrap()
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn each_candidate_is_read_in_a_process_of_its_own_that_waited_for_it_alone() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let workshop = with("ncu", true);
    let mut seen = vec![];
    for turn in 0..2 {
        assert!(wait_for(|| under(&workshop, "ncu").len() == 1), "nothing waits before candidate {turn}");
        seen.extend(under(&workshop, "ncu"));
        let profile = profiled(&workshop, &format!("{RIGHT}\n# {turn}\n"));
        assert_eq!(profile.rung, Rung::Ncu, "{:?}", profile.notes);
        assert!(
            profile.kernels[0].name.contains("SoftMax"),
            "the first launch is the process's own: {:?}",
            profile.notes
        );
        assert!(under(&workshop, "ncu").len() <= 1);
    }
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn a_process_that_waits_keeps_no_other_workshop_from_the_counters() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (idle, busy) = (with("ncu", true), with("ncu", false));
    assert!(wait_for(|| under(&idle, "ncu").len() == 1));
    let waiting = under(&idle, "ncu");
    let profile = profiled(&busy, RIGHT);
    assert_eq!(profile.rung, Rung::Ncu, "{:?}", profile.notes);
    assert_eq!(under(&idle, "ncu"), waiting);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_profiler_that_waits_for_counters_costs_its_patience_once_and_the_next_rung_says_so() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let workshop = with("ncu-that-waits", true);
    let first = profiled(&workshop, RIGHT);
    assert_eq!(first.rung, Rung::TorchProfiler, "{:?}", first.notes);
    assert!(first.notes[0].contains("was not ready after"), "{:?}", first.notes);
    assert!(under(&workshop, "ncu-that-waits").is_empty());
    let (start, second) = (Instant::now(), profiled(&workshop, &format!("{RIGHT}\n# again\n")));
    assert!(second.notes[0].contains("was not ready after"), "{:?} after {:?}", second.notes, start.elapsed());
    assert!(under(&workshop, "ncu-that-waits").is_empty(), "it was tried again");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_profiler_that_ends_before_it_is_ready_is_not_waited_for() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for ahead in [false, true] {
        let workshop = with("ncu-that-ends", ahead);
        let start = Instant::now();
        let profile = profiled(&workshop, RIGHT);
        assert_eq!(profile.rung, Rung::TorchProfiler, "{:?}", profile.notes);
        assert!(start.elapsed() < Duration::from_secs(50), "its patience is a minute: {:?}", start.elapsed());
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_that_ends_its_process_under_the_profiler_is_no_word_against_the_counters() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let workshop = with("ncu", true);
    let shy = RIGHT.replace("import torch\n", "import os, sys, torch\nif 'profiled' in sys.argv[0]: os._exit(3)\n");
    let profile = profiled(&workshop, &shy);
    assert_eq!(profile.rung, Rung::TorchProfiler, "{:?}", profile.notes);
    let profile = profiled(&workshop, RIGHT);
    assert_eq!(profile.rung, Rung::Ncu, "{:?}", profile.notes);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn all_that_are_profiled_side_by_side_are_read_each_in_a_process_of_its_own() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let workshop = with("ncu", true);
    let together = Barrier::new(3);
    // The one that was at hand is not done before the others have begun.
    let slow =
        RIGHT.replace("import torch\n", "import sys, time, torch\nif 'profiled' in sys.argv[0]: time.sleep(3)\n");
    let slow = &slow;
    let most = std::thread::scope(|scope| {
        let one =
            |turn: usize| profiled_after(&workshop, &format!("{slow}\n# beside {turn}\n"), || _ = together.wait());
        let all: Vec<_> = (0..3).map(|turn| scope.spawn(move || one(turn))).collect();
        let mut most = 0;
        while all.iter().any(|one| !one.is_finished()) {
            most = most.max(under(&workshop, "ncu").len());
            std::thread::sleep(Duration::from_millis(5));
        }
        for one in all {
            let profile = one.join().unwrap();
            assert_eq!(profile.rung, Rung::Ncu, "{:?}", profile.notes);
            assert!(profile.kernels[0].name.contains("SoftMax"), "{:?}", profile.notes);
        }
        most
    });
    assert!(most >= 3, "{most} at a time");
}
