//! Are the numbers of four bits what their formats say, in the feature that quantises on the way? (Hawkeye, §3)
use std::{fs, path::Path, process::Command};

/// What a kernel in HIP converts by: its functions that stand before its kernels.
fn conversions(text: &str) -> &str {
    let (_, text) = text.split_once("namespace {").unwrap();
    text.split_once("__global__").unwrap().0
}

#[test]
fn what_is_quantised_to_four_bits_is_the_nearest_number_and_its_scale_a_power_of_two() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let [header, program] = ["conversions.h", "quantizers"].map(|name| folder.path().join(name));
    for kernel in ["reference.hip", "naive.hip"] {
        let text = fs::read_to_string(package.join("features/mi350/02_mxfp4").join(kernel)).unwrap();
        fs::write(&header, conversions(&text)).unwrap();
        let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()));
        compiler.args(["-std=c++17", "-O1", "-Wall", "-Werror", "-o"]).arg(&program);
        compiler.arg(format!("-DCONVERSIONS=\"{}\"", header.display())).arg(package.join("tests/quantizers.cpp"));
        let built = compiler.output().unwrap();
        assert!(built.status.success(), "{kernel}: {}", String::from_utf8_lossy(&built.stderr));
        let run = Command::new(&program).output().unwrap();
        assert!(run.status.success(), "{kernel}: {}", String::from_utf8_lossy(&run.stdout));
    }
}
