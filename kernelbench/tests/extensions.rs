//! Are candidates with C++ and CUDA in them built with the slim headers, and with torch's own where those do not do?
#![expect(clippy::unwrap_used, reason = "a test may")]

mod python;

use python::{evaluate, problem, workshop};
use std::{fs, path::Path};
use warpsmith_kernelbench::{Candidate, Failure};

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
fn only_the_errors_of_torchs_own_build_are_shown() {
    let Some(workshop) = workshop() else { return };
    match evaluate(&workshop, &problem("1_Softplus"), &candidate("broken.py")).unwrap().unwrap_err() {
        Failure::Build { log } => assert!(!log.contains("slim"), "{log}"),
        other => panic!("{other:?}"),
    }
}
