//! What KernelBench's own evaluation says stands in a certificate, and decides nothing: by a checkout that stands in for it, on
//! the processor.

use crate::python::{PLAN, problem, workshop_with};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use warpsmith_kernelbench::{Candidate, Certificate, CertificateVerdict, Checked, Workshop, torch::KernelBench};

const RIGHT: &str = r"
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
";

/// A checkout whose evaluation calls the candidate itself, on the problem's own inputs.
const EVALUATES: &str = r"
import torch

class Result:
    def __init__(self, correctness):
        self.compiled, self.correctness = True, correctness
        self.runtime, self.ref_runtime = 2.0, 3.0
        self.metadata = {'hardware': 'none', 'trials': 'one'}

def eval_kernel_against_ref(original, custom, *, device, precision, num_correct_trials, num_perf_trials, **_):
    print('this is printed, and is no verdict')
    assert (device.type, precision, num_correct_trials, num_perf_trials) == ('cpu', torch.float32, 5, 100)
    theirs, ours = {}, {}
    exec(original, theirs)
    exec(custom, ours)
    inputs = theirs['get_inputs']()
    right = theirs['Model'](*theirs['get_init_inputs']())(*inputs)
    return Result(torch.allclose(right, ours['ModelNew'](*theirs['get_init_inputs']())(*inputs), atol=1e-4))
";

fn checkout(evaluation: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("src/kernelbench");
    fs::create_dir_all(&package).unwrap();
    for (name, text) in [("__init__.py", ""), ("eval.py", evaluation), ("timing.py", "")] {
        fs::write(package.join(name), text).unwrap();
    }
    // Who evaluates is somebody else, where a candidate has a user of its own.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn certified(checkout: &Path, source: &str) -> (Certificate, Option<Checked>) {
    let theirs = KernelBench::at(checkout).unwrap();
    let workshop = workshop_with(|options| options.kernelbench = Some(theirs.clone()));
    let (task, runtime) = (problem("1_Softplus"), tokio::runtime::Builder::new_current_thread().build().unwrap());
    let certificate = runtime.block_on(async {
        let rebuilt = workshop.rebuild(&task, &Candidate::new(source)).await.unwrap();
        workshop.certify(&task, rebuilt, &PLAN).await.unwrap()
    });
    let row = certificate.checked.iter().find(|row| row.what == "KernelBench's own evaluation").cloned();
    (certificate, row)
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_kernelbench_says_of_a_certified_candidate_stands_in_its_certificate() {
    let folder = checkout(EVALUATES);
    let (certificate, row) = certified(folder.path(), RIGHT);
    assert!(matches!(certificate.verdict, CertificateVerdict::Certified(_)), "{certificate:#?}");
    let row = row.unwrap();
    assert!(row.done && row.how.starts_with("right by eval.py and timing.py "), "{row:?}");
    assert!(row.how.contains("1.50 times as fast (2.000 ms beside 3.000), "), "{row:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn an_evaluation_that_fails_is_told_and_costs_no_certificate() {
    let folder = checkout("import a_module_that_nobody_has\n");
    let (certificate, row) = certified(folder.path(), RIGHT);
    assert!(matches!(certificate.verdict, CertificateVerdict::Certified(_)), "{certificate:#?}");
    let row = row.unwrap();
    assert!(!row.done && row.how.contains("No module named 'a_module_that_nobody_has'"), "{row:?}");
}

/// What a candidate may do in the folder of the evaluation, which is its user's: to begin before it is let, through a link that
/// our hand would follow.
#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_that_lays_a_link_where_the_evaluation_is_let_go_is_told_and_nothing_is_written_through_it() {
    let (folder, elsewhere) = (checkout(EVALUATES), tempfile::tempdir().unwrap());
    let target = elsewhere.path().join("target");
    fs::write(&target, "as it was").unwrap();
    let lays = format!(
        "\nimport os, sys\nif sys.argv[2:] == ['build']:\n    os.symlink({:?}, os.path.join(sys.argv[1], 'go'))\n",
        target.display().to_string()
    );
    let (certificate, row) = certified(folder.path(), &format!("{RIGHT}{lays}"));
    assert!(matches!(certificate.verdict, CertificateVerdict::Certified(_)), "{certificate:#?}");
    let row = row.unwrap();
    assert!(!row.done && row.how.starts_with("the candidate made a file \"go\""), "{row:?}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "as it was");
}

/// Its verdict is read although something that it started lives on.
#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn an_evaluation_that_leaves_a_process_behind_ends_with_its_verdict() {
    let folder = checkout(&format!("import subprocess\nsubprocess.Popen(['sleep', '600'])\n{EVALUATES}"));
    let (start, (_, row)) = (std::time::Instant::now(), certified(folder.path(), RIGHT));
    assert!(row.unwrap().how.contains("1.50 times as fast") && start.elapsed().as_secs() < 120);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_is_refused_is_not_shown_to_kernelbench() {
    let folder = checkout(EVALUATES);
    let (certificate, row) = certified(folder.path(), &RIGHT.replace("min=0)", "min=0) + 1"));
    assert!(matches!(certificate.verdict, CertificateVerdict::Refused(_)) && row.is_none(), "{certificate:#?}");
}
