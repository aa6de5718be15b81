//! Are candidates with C++ and CUDA in them built with the slim headers, and with torch's own where those do not do?
#![expect(clippy::unwrap_used, reason = "a test may")]

mod python;

use python::{PLAN, evaluate, problem, workshop};
use std::{fs, path::Path, process::Command};
use warpsmith_kernelbench::{Candidate, CertificateVerdict, Failure, Workshop, torch::Torch};

fn candidate(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/extensions").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn an_extension_is_built_with_the_slim_headers_and_is_right() {
    let Some(workshop) = workshop() else { return };
    for name in ["softplus_cpu.py", "softplus_functions.py"] {
        let source = candidate(name);
        evaluate(&workshop, &problem("1_Softplus"), &source).unwrap().unwrap();
        let labels = workshop.labels(&Candidate::new(source).id());
        assert!(labels.iter().any(|label| label.contains("was built with the slim headers")), "{name}: {labels:?}");
    }
}

#[test]
fn what_the_slim_headers_lack_is_built_with_torchs_own() {
    let Some(workshop) = workshop() else { return };
    let source = candidate("softplus_stock.py");
    match evaluate(&workshop, &problem("1_Softplus"), &source).unwrap() {
        Ok(_) => {
            let labels = workshop.labels(&Candidate::new(source).id());
            assert!(labels.iter().any(|label| label.contains("the slim ones did not do: ")), "{labels:?}");
        }
        // A torch without its headers can build no extension itself.
        Err(Failure::Build { log }) => assert!(log.contains("torch/extension.h: No such file"), "{log}"),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn what_raises_with_the_slim_headers_is_judged_by_torchs_own() {
    let Some(workshop) = workshop() else { return };
    let source = candidate("softplus_meta.py");
    match evaluate(&workshop, &problem("1_Softplus"), &source).unwrap() {
        Ok(_) => {
            let labels = workshop.labels(&Candidate::new(source).id());
            assert!(
                labels.iter().any(|label| label.contains("with the slim ones it raised RuntimeError")),
                "{labels:?}"
            );
        }
        Err(Failure::Build { log }) => assert!(log.contains("torch/extension.h: No such file"), "{log}"),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn what_is_certified_is_torchs_own_build() {
    let Some(workshop) = workshop() else { return };
    let (task, source) = (problem("1_Softplus"), candidate("softplus_two_faced.py"));
    evaluate(&workshop, &task, &source).unwrap().unwrap();
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
fn only_the_errors_of_torchs_own_build_are_shown() {
    let Some(workshop) = workshop() else { return };
    match evaluate(&workshop, &problem("1_Softplus"), &candidate("broken.py")).unwrap().unwrap_err() {
        Failure::Build { log } => assert!(!log.contains("slim"), "{log}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cuda_is_compiled_linked_and_loaded_with_the_slim_headers() {
    let Some(workshop) = workshop_with_nvcc() else { return };
    for name in ["softplus", "matmul", "layernorm", "reduction", "cumsum", "batchnorm"] {
        // Built as it is; called is what needs no GPU.
        let source = candidate(&format!("{name}_cuda.py"))
            + "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return nn.functional.softplus(x)\n";
        evaluate(&workshop, &problem("1_Softplus"), &source).unwrap().unwrap();
        let labels = workshop.labels(&Candidate::new(source).id());
        assert!(labels.iter().any(|label| label.contains("was built with the slim headers")), "{name}: {labels:?}");
    }
}

#[test]
fn nvccs_halves_are_compiled_side_by_side_and_agree_on_what_is_local() {
    let Some(nvcc) = std::env::var_os("NVCC") else { return };
    let folder = tempfile::tempdir().unwrap();
    let source =
        "namespace { __global__ void hidden(float *x) { *x = 1; } }\nvoid go(float *x) { hidden<<<1, 1>>>(x); }\n";
    fs::write(folder.path().join("a.cu"), source).unwrap();
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    let script = "import sys, nvcc\nline = [sys.argv[1], '-gencode=arch=compute_90,code=sm_90', '-c', 'a.cu', '-o', 'a.o']\n\
                  assert nvcc.compile_apart(line, '.', 60), 'nvcc did it alone'\n";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(nvcc).current_dir(folder.path()).env("PYTHONPATH", harness);
    let done = python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
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

/// Has the harness compile with an nvcc that tells these steps; whether it took them side by side.
fn taken_apart(steps: &[&str]) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let nvcc = folder.path().join("nvcc");
    let told = format!("#$ {}\n", steps.join("\n#$ "));
    fs::write(&nvcc, format!("#!/bin/sh\ncat >&2 <<'END'\n{told}END\n")).unwrap();
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    let script = "import sys, nvcc; print(nvcc.compile_apart(['/bin/sh', sys.argv[1]], '.', 60))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&nvcc).current_dir(folder.path()).env("PYTHONPATH", harness);
    let done = python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim() == "True"
}

#[test]
fn what_nvcc_writes_into_files_of_its_own_is_not_and_where_a_step_fails_nvcc_does_it_alone() {
    let mut steps = [
        "true -E x",
        "true cudafe++ --gen_module_id_file --module_id_file_name \"id\"",
        "true -E x",
        "true \"/cuda/cicc\" x",
        "true ptxas -o x > /no/such/folder/out 2>/no/such/folder/err",
        "true fatbinary x",
        "true -c -x c++ x",
    ];
    assert!(taken_apart(&steps));
    steps[5] = "false fatbinary x";
    assert!(!taken_apart(&steps));
    assert!(!taken_apart(&steps[1..]));
}

#[test]
fn of_sources_that_fail_the_first_in_order_is_told_whichever_failed_first() {
    let Some(workshop) = workshop() else { return };
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    let script = "import extension\nslow = ['sh', '-c', 'sleep 0.5; echo error: one; exit 1']\n\
                  fast = ['sh', '-c', 'echo error: two; exit 1']\n\
                  try:\n    extension.run([slow, fast], '.')\nexcept extension.Fails as fails:\n    print(fails)\n";
    let mut python = Command::new(workshop.python());
    let done =
        python.args(["-c", script]).env("PYTHONPATH", harness).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "error: one", "{}", String::from_utf8_lossy(&done.stderr));
}

/// The workshop, where `NVCC` names a compiler of CUDA, whose toolkit candidates then find.
fn workshop_with_nvcc() -> Option<Torch> {
    if std::env::var_os("NVCC").is_none() {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: NVCC names no compiler of CUDA\n");
        return None;
    }
    for (name, value) in [("CUDA_HOME", "the folder of that toolkit"), ("TORCH_CUDA_ARCH_LIST", "9.0")] {
        assert!(std::env::var_os(name).is_some(), "NVCC is set: set {name} too, to {value}");
    }
    workshop()
}
