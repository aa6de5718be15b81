//! Does a process wait under the profiler before it is needed, and is each candidate read in one of its own?
//!
//! `tests/ncu/ncu` pretends to be Nsight Compute: it runs what it is given, and then prints a real capture. It says nothing
//! of a GPU.

use crate::python::{problem, workshop_with};
use metrics::{Profile, Rung};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::Command,
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
        // Another process writes what is to be started: what this one has open, one that another test starts holds open too.
        let draft = folder.join("draft");
        fs::write(&draft, text).unwrap();
        let installed = Command::new("install").args(["-m", "755"]).arg(&draft).arg(folder.join(name)).status();
        assert!(installed.unwrap().success());
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

/// Prints what it was told of two launches, as if a GPU had said it.
const TOLD: &str = "
import ctypes, counters, torch
torch.cuda.get_device_capability = lambda device: (9, 0)
ours = object.__new__(counters.Counters)
ours.device, ours.names = None, ['gpu__time_duration.sum', 'dram__bytes.sum.per_second']
ours.of_launch = ['launch__registers_per_thread', 'launch__shared_mem_per_block', 'launch__waves_per_multiprocessor',
                  *('launch__occupancy_limit_' + by for by in ('registers', 'warps', 'blocks')), 'launch__stack_size']
ours.attribute = {16: 132, 39: 2048, 81: 233472, 82: 65536, 106: 32, 111: 1024}.get
ours.of_function = lambda launch, which: launch.function[which]
def launch(symbol, grid, block, shared, registers):
    return counters.Launch(symbol, {1: 0, 4: registers}, counters.Shape((grid, 1, 1), (block, 1, 1), shared))
ours.rows = [(launch(b'_Z6silu_kPf', 262144, 256, 0, 17), [213696.0, 2.4e12]),
             (launch(b'say \"k\"', 4096, 1024, 128, 32), [1043264.0, float('nan')])]
print(ours.table())
print([[name, kind.size] for name, kind in counters.FUNCTIONS.items() if kind.size != SIZES[name]])
";

/// The sizes of the structures in the headers of CUPTI 13.0, as its macros say them.
const SIZES: &str = "SIZES = {'cuptiProfilerInitialize': 16, 'cuptiDeviceGetChipName': 32, 'cuptiProfilerHostInitialize': 48, \
                     'cuptiProfilerHostDeinitialize': 24, 'cuptiProfilerHostConfigAddMetrics': 40, \
                     'cuptiProfilerHostGetConfigImageSize': 32, 'cuptiProfilerHostGetConfigImage': 40, \
                     'cuptiProfilerHostGetNumOfPasses': 40, 'cuptiProfilerHostEvaluateToGpuValues': 72, \
                     'cuptiRangeProfilerEnable': 32, 'cuptiRangeProfilerDisable': 24, \
                     'cuptiRangeProfilerGetCounterDataSize': 64, 'cuptiRangeProfilerCounterDataImageInitialize': 40, \
                     'cuptiRangeProfilerSetConfig': 90, 'cuptiRangeProfilerStart': 24, 'cuptiRangeProfilerStop': 41, \
                     'cuptiRangeProfilerDecodeData': 32, 'cuptiRangeProfilerGetCounterDataInfo': 40}";

/// What this prints with the harness's modules at hand.
fn python(text: &str) -> String {
    let harness = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    let mut python = std::process::Command::new(env!("PYTHON_WITH_TORCH"));
    python.args(["-c", text]).env("PYTHONPATH", harness).env("PYTHONDONTWRITEBYTECODE", "1");
    let done = python.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_a_process_reads_itself_is_printed_as_nsight_compute_prints_it_and_follows_from_the_launch_as_it_says() {
    let printed = python(&format!("{SIZES}\n{TOLD}"));
    let [silu, softmax] = &warpsmith_kernelbench::ncu::read(&printed).unwrap()[..] else { panic!("{printed}") };
    // As Nsight Compute read these launches on an H200.
    let captured = |text: &str, at: usize| warpsmith_kernelbench::ncu::read(text).unwrap().remove(at);
    let real = [
        captured(include_str!("ncu/h200-silu-cudaforge24.csv"), 0),
        captured(include_str!("ncu/h200-softplus-softmax.csv"), 1),
    ];
    for (ours, real) in [silu, softmax].into_iter().zip(&real) {
        assert_eq!((ours.shape, &ours.capability), (real.shape, &real.capability));
        for name in ["registers_per_thread", "shared_mem_per_block", "waves_per_multiprocessor"]
            .map(str::to_owned)
            .into_iter()
            .chain(["registers", "warps", "blocks"].map(|by| format!("occupancy_limit_{by}")))
        {
            let name = format!("launch__{name}");
            let of = |launch: &warpsmith_kernelbench::ncu::Launched| {
                launch.column(&name).map(|column| (column.value.number(), column.unit.to_owned()))
            };
            let ((ours, unit), (real, units)) = (of(ours).unwrap(), of(real).unwrap());
            assert!((ours.unwrap() - real.unwrap()).abs() < 0.01, "{name}: {ours:?}, not {real:?}");
            assert_eq!(unit, units, "{name}");
        }
        assert!(ours.value("launch__stack_size").is_none(), "what is not known is not told");
    }
    assert_eq!((silu.kernel.as_str(), softmax.kernel.as_str()), ("silu_k(float*)", "say \"k\""));
    assert!((silu.duration_ns() - 213_696.0).abs() < 1e-9);
    let rate = silu.column("dram__bytes.sum.per_second").unwrap();
    assert_eq!((rate.unit, rate.value.number()), ("byte/s", Some(2.4e12)));
    assert_eq!(softmax.value("dram__bytes.sum.per_second"), None);
    assert!(printed.ends_with("[]\n"), "structures are as long as CUPTI's own: {printed}");
}

/// A table as long as that of hundreds of launches, in parts; what a part takes at most as JSON, and whether all come together.
const IN_PARTS: &str = r#"
import candidate, json
ours = object.__new__(candidate.Runner)
ours.table = whole = '"sm__cycles_elapsed.avg","\u4e2d"\n' * 20000
parts = [ours.part_of_table()["table"]]
while parts[-1]:
    parts.append(ours.part_of_table()["table"])
print(json.dumps([max(len(json.dumps(part)) for part in parts), "".join(parts) == whole, len(parts) > 2]))
"#;

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_table_that_no_message_holds_comes_in_parts_that_each_holds() {
    let (longest, same, several): (usize, bool, bool) = serde_json::from_str(&python(IN_PARTS)).unwrap();
    assert!(longest < 160 << 10 && same && several, "{longest} bytes, {same}, {several}");
}
