//! Are the examples' references right?

use std::{path::Path, process::Command};

/// Compiles the references beside a program that knows the formulas, and runs it.
#[test]
fn the_references_agree_with_the_formulas_in_double_precision() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("references");
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()));
    compiler.args(["-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    compiler.arg(package.join("tests/references.cpp"));
    for example in ["silu_and_mul", "fused_add_rmsnorm", "merge_attn_states"] {
        compiler.arg(package.join("../examples").join(example).join("reference.cpp"));
    }
    let built = compiler.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(&program).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
