//! Arrays of eight bits (OCP's E4M3), as a task's file gives them and a candidate in C++ fills them.
use metrics::{Arch, Machine, MachineKind};
use std::{fs, path::Path};
use warpsmith_kernelbench::{
    Candidate, Evaluation, Failure, Suite, Task, TimingPlan, Workshop, load,
    native::{Native, NativeOptions},
};

const TASK: &str = r#"
schema = 1
name = "halved"
summary = "Half of each element, rounded to E4M3."
backend = "cpu"
language = "c++17"
entry = "halved"
reference = "reference.cpp"

[[argument]]
name = "out"
dtype = "e4m3"
size = "n"
transfer = "out"

[[argument]]
name = "x"
dtype = "e4m3"
size = "n"
transfer = "in"
fill = { normal = { mean = 0, std = 30 } }

[[argument]]
name = "n"
dtype = "i64"

[tolerance]
atol = 0
rtol = 0

[[case]]
name = "some"
n = 5000

[[final_case]]
name = "odd"
n = 4099
"#;

/// Halving takes one from the exponent; below the normal numbers it shifts, and rounds to the even one.
const RIGHT: &str = "\
#include <cstdint>
extern \"C\" void halved(uint8_t *out, const uint8_t *x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const uint8_t sign = x[i] & 0x80, size = x[i] & 0x7f;
        const uint8_t low = (size & 7) | (size >= 8 ? 8 : 0);
        const uint8_t small = (low >> 1) + (low & 1 & (low >> 1));
        out[i] = sign | (size >= 16 ? size - 8 : small);
    }
}
";

fn task(change: impl Fn(&str) -> String) -> Result<Task, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("task.toml"), change(TASK)).unwrap();
    fs::write(folder.path().join("reference.cpp"), RIGHT).unwrap();
    load::task(folder.path()).map_err(|error| error.to_string())
}

fn evaluate(cache: &Path, task: &Task, source: &str) -> Evaluation {
    let (name, arch) = ("test".to_owned(), Arch::host());
    let machine = Machine { kind: MachineKind::Cpu, name, arch, facts: vec![], bandwidths: vec![], peak_flops: None };
    let program = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    let workshop = Native::new(NativeOptions::new(program, vec![], cache.to_owned(), machine));
    let (suite, plan) = (Suite::of_task(task), TimingPlan::median_of(1, 3));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(workshop.evaluate(task, &Candidate::new(source), &suite, &plan)).unwrap()
}

#[test]
fn eight_bits_are_drawn_and_compared_by_their_value() {
    let (cache, task) = (tempfile::tempdir().unwrap(), task(str::to_owned).unwrap());
    let of = |source: &str| evaluate(cache.path(), &task, source);
    assert!(matches!(of(RIGHT), Evaluation::Passed(_)), "{:?}", of(RIGHT));
    // Without the rounding below the normal numbers; nothing written; what was NaN before stays so.
    for (old, new, most) in [(" + (low & 1 & (low >> 1))", "", 500), ("out[i] =", "uint8_t unused =", 5000)] {
        let wrong = RIGHT.replace(old, new).replace("    }\n}", "(void)out; }\n}");
        let Evaluation::Failed(failure) = of(&wrong) else { panic!("{wrong} passed") };
        let Failure::Mismatch { wrong: count, .. } = failure else { panic!("{failure}") };
        assert!((1..=most).contains(&count), "{count}");
    }
}

#[test]
fn what_eight_bits_cannot_hold_is_refused_where_it_stands() {
    let refused = |old: &str, new: &str| task(|text| text.replacen(old, new, 1)).unwrap_err();
    let normal = "normal = { mean = 0, std = 30 }";
    for fill in [
        "normal = { mean = 0, std = 30, minus_infinity = 0.1 }",
        "normal = { mean = 449, std = 1 }",
        "normal = { mean = 0, std = 1e30 }",
        "normal = { mean = 0, std = 0.001 }",
        "uniform = { low = -500, high = 1 }",
        "uniform = { low = 1e-6, high = 2e-6 }",
        "integers = { low = 0, high = 449 }",
        "integers = { low = 17, high = 17 }",
    ] {
        let told = refused(normal, fill);
        assert!(told.contains("task.toml:") && told.contains("values from -448 to 448"), "{fill}: {told}");
    }
    for fill in [
        "normal = { mean = 448, std = 1 }",
        "uniform = { low = 0, high = 0.01 }",
        "integers = { low = -16, high = 18 }",
    ] {
        assert!(task(|text| text.replacen(normal, fill, 1)).is_ok(), "{fill}");
    }
    let unknown = refused("dtype = \"e4m3\"", "dtype = \"e5m2\"");
    assert!(unknown.contains("e5m2") && unknown.contains("`e4m3`"), "{unknown}");
}
