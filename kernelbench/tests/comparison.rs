//! Does every implementation of the rule of comparison pass the one table of cases? Rust here, CUDA's with the host's
//! compiler and nvcc's, and Python's; that of validation inside SGLang in its own crate.

use half::{bf16, f16};
use serde::Deserialize;
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use warpsmith_kernelbench::{Dtype, Tolerance, compare, e4m3};

/// An output, and what is right.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    what: String,
    dtype: Dtype,
    atol: Value,
    rtol: Value,
    #[serde(default = "all")]
    share: f64,
    #[serde(default = "once")]
    repeat: usize,
    expected: Vec<Value>,
    got: Vec<Value>,
    wrong: u64,
    passes: bool,
}

/// A number: whole, or floating point, or in quotation marks what JSON has no number for or not every reader rounds well.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Value {
    Whole(i64),
    Float(f64),
    Named(String),
}

fn all() -> f64 {
    1.0
}

fn once() -> usize {
    1
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/comparison")
}

fn cases() -> Vec<Case> {
    #[derive(Deserialize)]
    struct Table {
        cases: Vec<Case>,
    }
    let table: Table = serde_json::from_str(&fs::read_to_string(folder().join("cases.json")).unwrap()).unwrap();
    assert!(table.cases.len() > 80);
    table.cases
}

impl Value {
    fn float(&self) -> f64 {
        match self {
            Self::Whole(whole) => *whole as f64,
            Self::Float(float) => *float,
            Self::Named(name) => name.parse().unwrap(),
        }
    }

    /// Its bytes, of which a number is one that the type holds.
    fn bytes(&self, dtype: Dtype) -> Vec<u8> {
        let float = self.float();
        let held = |back: f64| assert!(back.to_bits() == float.to_bits() || float.is_nan(), "{self:?} in {dtype:?}");
        match (dtype, self) {
            (Dtype::I32, Self::Whole(whole)) => i32::try_from(*whole).unwrap().to_ne_bytes().to_vec(),
            (Dtype::I64, Self::Whole(whole)) => whole.to_ne_bytes().to_vec(),
            (Dtype::F64, _) => float.to_ne_bytes().to_vec(),
            (Dtype::F32, _) => {
                held(f64::from(float as f32));
                (float as f32).to_ne_bytes().to_vec()
            }
            (Dtype::F16, _) => {
                held(f16::from_f64(float).to_f64());
                f16::from_f64(float).to_ne_bytes().to_vec()
            }
            (Dtype::Bf16, _) => {
                held(bf16::from_f64(float).to_f64());
                bf16::from_f64(float).to_ne_bytes().to_vec()
            }
            (Dtype::E4m3, _) => {
                let bits = (0..=u8::MAX).find(|bits| e4m3::to_f64(*bits).to_bits() == float.to_bits());
                vec![if float.is_nan() { e4m3::NAN } else { bits.unwrap() }]
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Case {
    /// Each element's bytes, of what is expected and of what was put out.
    fn elements(&self) -> [Vec<Vec<u8>>; 2] {
        [&self.expected, &self.got].map(|side| {
            let one: Vec<_> = side.iter().map(|value| value.bytes(self.dtype)).collect();
            vec![one; self.repeat].concat()
        })
    }
}

#[test]
fn the_engine_passes_every_case() {
    for case in cases() {
        let [right, got] = case.elements().map(|elements| elements.concat());
        let tolerance = Tolerance { atol: case.atol.float(), rtol: case.rtol.float(), share: case.share };
        let found = compare(case.dtype, &right, &got, &tolerance, None);
        assert_eq!((found.wrong, found.passes(case.share)), (case.wrong, case.passes), "{}: {case:?}", case.what);
    }
}

/// The cases as `check.cpp` reads them.
fn lines() -> String {
    let word = |bytes: &Vec<u8>| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(whole)
    };
    let mut text = String::new();
    for case in cases() {
        let dtype = match case.dtype {
            Dtype::F32 => 0,
            Dtype::F64 => 1,
            Dtype::F16 => 2,
            Dtype::Bf16 => 3,
            Dtype::I32 => 4,
            Dtype::I64 => 5,
            Dtype::E4m3 => 6,
        };
        let [right, got] = case.elements();
        write!(text, "{dtype:x} {:x} {:x} {:x}", case.atol.float().to_bits(), case.rtol.float().to_bits(), right.len())
            .unwrap();
        for element in right.iter().chain(&got) {
            write!(text, " {:x}", word(element)).unwrap();
        }
        text.push('\n');
    }
    text
}

/// What the verifier's rule counts, as this compiler makes it.
fn counted(compiler: &Path, flags: &[&str], arguments: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("check");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/backend/cuda");
    let built = Command::new(compiler)
        .args(["-std=c++17", "-O2"])
        .args(flags)
        .arg("-I")
        .arg(header)
        .arg("-L")
        .arg(compiler.parent().unwrap().join("../lib"))
        .arg("-o")
        .args([&program, &folder().join("check.cpp")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(&program);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(lines().as_bytes()).unwrap());
    let told = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let counts: Vec<u64> = told.lines().map(|line| line.parse().unwrap()).collect();
    let cases = cases();
    assert_eq!(counts.len(), cases.len());
    for (case, count) in cases.iter().zip(counts) {
        assert_eq!(count, case.wrong, "{}: {case:?}", case.what);
    }
}

#[test]
fn the_gpu_verifiers_rule_passes_every_case_on_the_host() {
    let flags = ["-x", "c++", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"];
    counted(Path::new("g++"), &flags, &[]);
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn the_gpu_verifiers_rule_passes_every_case_as_nvcc_compiles_it() {
    let nvcc = warpsmith_kernelbench::cuda::find_nvcc().unwrap();
    counted(&nvcc, &["-x", "cu", "-arch=sm_90a", "-Werror=all-warnings"], &[]);
}

#[test]
#[cfg_attr(not(all(has_nvcc, has_gpu)), ignore = "needs nvcc and a GPU")]
fn the_gpu_verifiers_rule_passes_every_case_on_the_gpu() {
    let nvcc = warpsmith_kernelbench::cuda::find_nvcc().unwrap();
    counted(&nvcc, &["-x", "cu", "-arch=native", "-Werror=all-warnings"], &["--device"]);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs torch")]
fn the_harness_passes_every_case() {
    for (file, tests) in [("check.py", 6), ("drawing.py", 4)] {
        let mut python = Command::new(env!("PYTHON_WITH_TORCH"));
        let told = python.arg(folder().join(file)).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&told.stderr);
        // unittest ends well where it found no test, too.
        assert!(
            told.status.success() && said.contains(&format!("Ran {tests} tests")) && said.contains("\nOK"),
            "{said}"
        );
    }
}
