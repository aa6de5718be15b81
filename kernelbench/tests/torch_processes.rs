//! What processes of a candidate find of those before them, and how long each has, on the processor.

use crate::python::{self, PLAN, evaluate, problem, workshop, workshop_with};
use metrics::MachineKind;
use std::time::Duration;
use warpsmith_kernelbench::{Candidate, CertificateVerdict, Failure, Suite, Workshop, torch::Torch};

const RIGHT: &str = "
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)
";

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_was_built_for_the_check_serves_the_profile_and_a_certificate_builds_anew() {
    let workshop = workshop();
    let (task, suite) = (problem("1_Softplus"), Suite::of_task(&problem("1_Softplus")));
    let counting = "import os\nopen(os.path.join(os.path.dirname(__file__), 'imports'), 'a').write('x')\n";
    let candidate = Candidate::new(format!("{counting}{RIGHT}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let built = workshop.build(&task, &candidate).await.unwrap().unwrap();
        let folder = built.artifact().parent().unwrap().to_owned();
        let verified = workshop.check(&task, built, &suite).await.unwrap().unwrap();
        let again = workshop.build(&task, &candidate).await.unwrap().unwrap();
        assert_eq!(again.artifact().parent(), Some(folder.as_path()));
        workshop.profile(&task, &verified, &suite).await.unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("imports")).unwrap(), "x", "it was imported more than once");
        workshop.rebuild(&task, &candidate).await.unwrap();
        let folders = std::fs::read_dir(folder.parent().unwrap()).unwrap().flatten();
        let imported = folders.filter(|one| one.path().join("imports").exists()).count();
        assert_eq!(imported, 2, "a certificate is of a build of its own");
    });
}

/// A candidate that sleeps for two seconds in one call of each model.
fn slow(when: &str) -> String {
    format!(
        "import time, torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        \
         self.calls = getattr(self, 'calls', 0) + 1\n        if self.calls {when}: time.sleep(2)\n        \
         return nn.functional.softplus(x)\n"
    )
}

/// A workshop that is patient with first calls alone.
fn impatient() -> Torch {
    workshop_with(|options| {
        (options.deadline_floor, options.first_call) = (Duration::from_secs(1), Duration::from_secs(30));
    })
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_first_call_has_time_to_compile_and_a_later_one_has_not() {
    let (workshop, task) = (impatient(), problem("1_Softplus"));
    // A model is made anew for each timing, and may compile for each model that is made.
    let at_first = python::evaluate(&workshop, &task, &slow("== 1"), &PLAN).unwrap();
    assert!(!matches!(at_first, Err(Failure::Hang { .. })), "{at_first:?}");
    let later = python::evaluate(&workshop, &task, &slow("== 2"), &PLAN).unwrap().unwrap_err();
    assert!(matches!(later, Failure::Hang { deadline_ms, .. } if deadline_ms < 2000), "{later:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn each_process_that_a_certificate_times_has_time_to_compile_in_its_first_call() {
    let (workshop, task) = (impatient(), problem("1_Softplus"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let certificate = runtime.block_on(async {
        let rebuilt = workshop.rebuild(&task, &Candidate::new(slow("== 1"))).await.unwrap();
        workshop.certify(&task, rebuilt, &PLAN).await.unwrap()
    });
    let hangs = matches!(certificate.verdict, CertificateVerdict::Refused(Failure::Hang { .. }));
    assert!(!hangs, "{:?}", certificate.verdict);
    let several = |how: &str| how.contains("pairs of processes") && !how.contains(" 1 pairs of processes");
    assert!(certificate.checked.iter().any(|check| several(&check.how)), "{:?}", certificate.checked);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn every_pair_of_processes_of_a_certificate_has_inputs_that_no_process_before_it_had_open() {
    // Where inputs lie is the file that they are mapped from, by its number; noted once a process, and told at the third.
    let source = "
import os, torch, torch.nn as nn
NOTES = os.path.join(os.path.dirname(__file__), 'tmp', 'files')
seen = set()

class ModelNew(nn.Module):
    def forward(self, x):
        if not seen:
            for line in open('/proc/self/maps'):
                first, last = (int(end, 16) for end in line.split()[0].split('-'))
                if first <= x.data_ptr() < last:
                    seen.add(line.split()[4])
            open(NOTES, 'a').write(' '.join(seen) + ' ')
            files = open(NOTES).read().split()
            if len(files) == 3:
                raise RuntimeError('files ' + ' '.join(files) + ' end')
        return nn.functional.softplus(x)
";
    let (workshop, task) = (workshop(), problem("1_Softplus"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let certificate = runtime.block_on(async {
        let rebuilt = workshop.rebuild(&task, &Candidate::new(source)).await.unwrap();
        workshop.certify(&task, rebuilt, &PLAN).await.unwrap()
    });
    let said = format!("{:?}", certificate.verdict);
    let files: Vec<&str> = said.split("files ").last().unwrap().split(" end").next().unwrap().split(' ').collect();
    let all_differ = (1..files.len()).all(|at| !files[..at].contains(&files[at]));
    assert!(files.len() == 3 && all_differ, "{said}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_triton_compiled_is_there_when_a_candidate_goes_on_that_gave_way_to_many() {
    // It stands in for Triton, and notes once a process what it finds.
    let source = "
import os, torch, torch.nn as nn
CACHE = os.environ['TRITON_CACHE_DIR']
noted = []

class ModelNew(nn.Module):
    def forward(self, x):
        if not noted:
            noted.append(1)
            with open(os.path.join(os.path.dirname(__file__), 'tmp', 'notes'), 'a') as notes:
                notes.write(f'{len(os.listdir(CACHE))} ')
            open(os.path.join(CACHE, 'kernel'), 'w').write('compiled')
        return nn.functional.softplus(x)
";
    let (workshop, task) = (workshop(), problem("1_Softplus"));
    let suite = Suite::of_task(&task);
    let candidate = Candidate::new(source);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let notes = runtime.block_on(async {
        let built = workshop.build(&task, &candidate).await.unwrap().unwrap();
        let notes = built.artifact().parent().unwrap().join("tmp/notes");
        let verified = workshop.check(&task, built, &suite).await.unwrap().unwrap();
        for other in 0..24 {
            let other = Candidate::new(format!("{RIGHT}# {other}\n"));
            workshop.build(&task, &other).await.unwrap().unwrap();
        }
        workshop.time(&task, &verified, &suite, &PLAN, 0.0).await.unwrap().ok();
        std::fs::read_to_string(notes).unwrap()
    });
    assert_eq!(notes, "0 1 ", "the second process of the two finds what the first one left");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_sees_no_gpu_but_the_one_that_it_is_timed_on() {
    let source = |gpus: usize| {
        format!(
            "import torch, torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        \
             assert torch.cuda.device_count() == {gpus} == len(SHOWN.split(',')) * bool(SHOWN)\n        \
             return nn.functional.softplus(x)\n\nimport os\nSHOWN = os.environ['CUDA_VISIBLE_DEVICES']\n"
        )
    };
    let workshop = workshop();
    let own = usize::from(workshop.machine().kind == MachineKind::Gpu);
    let failure = |gpus| evaluate(&workshop, &problem("1_Softplus"), &source(gpus), &PLAN).unwrap().err();
    assert!(failure(own).is_none(), "{:?}", failure(own));
    assert!(failure(own + 1).is_some());
}
