//! Are candidates with C++ and CUDA in them built with the slim headers, and with torch's own where those do not do?

use crate::python::{PLAN, evaluate, problem, workshop};
use std::{fs, path::Path, process::Command};
use warpsmith_kernelbench::{Candidate, CertificateVerdict, Failure, Workshop};

fn candidate(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/extensions").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn an_extension_is_built_with_the_slim_headers_and_is_right() {
    let workshop = workshop();
    for name in ["softplus_cpu.py", "softplus_functions.py", "softplus_class.py", "softplus_eight_bits.py"] {
        let source = candidate(name);
        evaluate(&workshop, &problem("1_Softplus"), &source, &PLAN).unwrap().unwrap();
        let labels = workshop.labels(&Candidate::new(source).id());
        assert!(
            labels.iter().any(|label| label.text.contains("was built with the slim headers")),
            "{name}: {labels:?}"
        );
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_the_slim_headers_lack_is_built_with_torchs_own() {
    let workshop = workshop();
    for name in ["softplus_stock.py", "softplus_overloads.py", "softplus_limits.py"] {
        let source = candidate(name);
        match evaluate(&workshop, &problem("1_Softplus"), &source, &PLAN).unwrap() {
            Ok(_) => {
                let labels = workshop.labels(&Candidate::new(source).id());
                let told = labels.iter().any(|label| label.text.contains("the slim ones did not do: "));
                assert!(told, "{name}: {labels:?}");
            }
            // A torch without its headers can build no extension itself.
            Err(Failure::Build { log }) => assert!(log.contains("torch/extension.h: No such file"), "{name}: {log}"),
            Err(other) => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_torchs_own_headers_refuse_the_slim_ones_refuse() {
    let refused = evaluate(&workshop(), &problem("1_Softplus"), &candidate("softplus_names.py"), &PLAN).unwrap();
    assert!(matches!(refused, Err(Failure::Build { .. })), "{refused:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_raises_with_the_slim_headers_is_judged_by_torchs_own() {
    let workshop = workshop();
    let source = candidate("softplus_meta.py");
    match evaluate(&workshop, &problem("1_Softplus"), &source, &PLAN).unwrap() {
        Ok(_) => {
            let labels = workshop.labels(&Candidate::new(source).id());
            assert!(
                labels.iter().any(|label| label.text.contains("with the slim ones it raised RuntimeError")),
                "{labels:?}"
            );
        }
        Err(Failure::Build { log }) => assert!(log.contains("torch/extension.h: No such file"), "{log}"),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_is_certified_is_torchs_own_build() {
    let workshop = workshop();
    let (task, source) = (problem("1_Softplus"), candidate("softplus_two_faced.py"));
    evaluate(&workshop, &task, &source, &PLAN).unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let certificate = runtime.block_on(async {
        let rebuilt = workshop.rebuild(&task, &Candidate::new(source)).await.unwrap();
        workshop.certify(&task, rebuilt, &PLAN).await.unwrap()
    });
    match certificate.verdict {
        CertificateVerdict::Refused(Failure::Mismatch { .. }) => {}
        CertificateVerdict::Refused(Failure::Build { log }) => {
            assert!(log.contains("torch/extension.h: No such file"), "{log}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn only_the_errors_of_torchs_own_build_are_shown() {
    let workshop = workshop();
    match evaluate(&workshop, &problem("1_Softplus"), &candidate("broken.py"), &PLAN).unwrap().unwrap_err() {
        Failure::Build { log } => assert!(!log.contains("slim"), "{log}"),
        other => panic!("{other:?}"),
    }
}

#[test]
#[cfg_attr(not(all(has_torch, has_nvcc)), ignore = "needs a Python with torch, and nvcc")]
fn cuda_is_compiled_linked_and_loaded_with_the_slim_headers() {
    the_toolkit_is_named();
    let workshop = workshop();
    for name in ["softplus", "matmul", "layernorm", "reduction", "cumsum", "batchnorm"] {
        // Built as it is; called is what needs no GPU.
        let source = candidate(&format!("{name}_cuda.py"))
            + "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return nn.functional.softplus(x)\n";
        evaluate(&workshop, &problem("1_Softplus"), &source, &PLAN).unwrap().unwrap();
        let labels = workshop.labels(&Candidate::new(source).id());
        assert!(
            labels.iter().any(|label| label.text.contains("was built with the slim headers")),
            "{name}: {labels:?}"
        );
    }
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn nvccs_halves_are_compiled_side_by_side_and_agree_on_what_is_local() {
    let nvcc = warpsmith_kernelbench::cuda::find_nvcc().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source =
        "namespace { __global__ void hidden(float *x) { *x = 1; } }\nvoid go(float *x) { hidden<<<1, 1>>>(x); }\n";
    fs::write(folder.path().join("a.cu"), source).unwrap();
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    let script = "import sys, nvcc\nline = [sys.argv[1], '-gencode=arch=compute_90,code=sm_90', '-c', sys.argv[2], '-o', 'a.o']\n\
                  assert nvcc.compile_in_halves(line, sys.argv[3], 60), 'nvcc did it alone'\n";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(nvcc).arg(folder.path().join("a.cu")).arg(folder.path());
    let done = python.env("PYTHONPATH", harness).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let object = fs::read(folder.path().join("a.o")).unwrap();
    let text = String::from_utf8_lossy(&object);
    let (_, stub) = text.split_once("__device_stub_").unwrap();
    let (local, _) = stub.split_once("hiddenEPf").unwrap();
    assert!(
        text.contains(&format!(".text.{local}hiddenEPf")),
        "the device's half calls it something else than {local}"
    );
}

/// What an nvcc says of its steps that are known.
const STEPS: &str = "#$ true -E -o \"candidate.cpp4.ii\"
#$ true cudafe++ --gen_module_id_file --module_id_file_name \"id\"
#$ true -E -o \"candidate.cpp1.ii\"
#$ true \"/cuda/cicc\" x
#$ true ptxas -o x > /no/such/folder/out 2>/no/such/folder/err
#$ true fatbinary x
#$ true -c -x c++ x
";

/// Has the harness compile with an nvcc that says these steps; whether it took them side by side.
fn in_halves(steps: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let nvcc = folder.path().join("nvcc");
    fs::write(&nvcc, format!("#!/bin/sh\ncat >&2 <<'END'\n{steps}END\n")).unwrap();
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    let script = "import sys, nvcc; print(nvcc.compile_in_halves(['/bin/sh', sys.argv[1], 'a.o'], '.', 60))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&nvcc).current_dir(folder.path()).env("PYTHONPATH", harness);
    let done = python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim() == "True"
}

#[test]
fn what_nvcc_writes_into_files_of_its_own_is_not_and_where_a_step_fails_nvcc_does_it_alone() {
    assert!(in_halves(STEPS));
    assert!(!in_halves(&STEPS.replace("true fatbinary", "false fatbinary")));
    assert!(!in_halves(STEPS.split_once('\n').unwrap().1));
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn of_sources_that_fail_the_first_in_order_is_told_whichever_failed_first() {
    let workshop = workshop();
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    let script = "import extension\nslow = ['sh', '-c', 'sleep 0.5; echo error: one; exit 1']\n\
                  fast = ['sh', '-c', 'echo error: two; exit 1']\n\
                  try:\n    extension.run([slow, fast], '.')\nexcept extension.Fails as fails:\n    print(fails)\n";
    let mut python = Command::new(workshop.python());
    let done =
        python.args(["-c", script]).env("PYTHONPATH", harness).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "error: one", "{}", String::from_utf8_lossy(&done.stderr));
}

/// Candidates find the toolkit by these.
fn the_toolkit_is_named() {
    for (name, value) in [("CUDA_HOME", "the folder of nvcc's toolkit"), ("TORCH_CUDA_ARCH_LIST", "9.0")] {
        assert!(std::env::var_os(name).is_some(), "there is an nvcc: set {name}, to {value}");
    }
}
