//! Is a kernel admitted exactly where it is faster than what is there, found by what it has in common, and refused where a
//! file was changed?

use super::*;
use crate::task::load;
use metrics::Interval;

const KERNEL: &str = "__global__ void k() { asm(\"mma.sync.aligned;\"); cp_async(\"cp.async.cg\"); }";

fn task(name: &str, summary: &str) -> Task {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("features/hopper/01_wgmma");
    let mut task = Task { name: name.into(), summary: summary.into(), ..load::task(&folder).unwrap() };
    if let Source::Context(context) = &mut task.source {
        context.entry = "kernel".into();
    }
    task
}

fn kernel(task: &Task, ratio: f64, source: &str) -> Pooled {
    let speedup = Speedup { ratio, interval: Interval { low: ratio - 0.05, high: ratio + 0.05 } };
    let definition = Hash::of(task.summary.as_bytes());
    let about = About::of(task, definition, &Features::embedded(), source, &speedup);
    Pooled { about, arch: "sm_90".parse().unwrap(), language: Language::Cuda, source: source.into() }
}

#[test]
fn only_what_is_faster_than_its_reference_and_than_the_last_of_the_same_task_comes_in() {
    let folder = tempfile::tempdir().unwrap();
    let admit = |kernel: &Pooled| Pool::admit(folder.path(), kernel).map_err(|error| error.to_string());
    let gemm = task("gemm", "A matrix product.");
    assert!(
        admit(&kernel(&gemm, 1.04, KERNEL)).unwrap_err().contains("not faster than the reference: 1.04x [0.99, 1.09]")
    );
    let file = admit(&kernel(&gemm, 2.0, KERNEL)).unwrap();
    assert!(file.ends_with("sm_90/gemm_bf16.cu"), "{}", file.display());
    assert!(admit(&kernel(&gemm, 2.0, "// the same\n")).unwrap_err().contains("2.00x is not faster than the 2.00x"));
    let other = kernel(&task("gemm", "Another product."), 9.0, KERNEL);
    assert!(admit(&other).unwrap_err().contains("certified on another task"));
    admit(&kernel(&gemm, 2.5, "// faster\n")).unwrap();
    let pool = Pool::read(folder.path()).unwrap();
    assert_eq!(pool.kernels().iter().map(|kernel| kernel.source.as_str()).collect::<Vec<_>>(), ["// faster\n"]);
    assert!(admit(&kernel(&task("../up", "x"), 2.0, KERNEL)).unwrap_err().contains("is no name for a file"));
}

#[test]
fn what_a_run_taught_stays_with_the_kernel_that_it_brought_in_and_comes_to_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let gemm = task("gemm", "A matrix product.");
    let slow = kernel(&gemm, 2.0, KERNEL);
    Pool::admit(folder.path(), &slow).unwrap();
    let taught = |insight: &str| {
        vec![Reflection { insight: insight.into(), evidence: "Round 2.".into(), applies: "Always.".into() }]
    };
    let hostile = "b \"\"\" ''' [c]\n= ```";
    for insight in ["a", hostile] {
        Pool::reflect(folder.path(), &slow, taught(insight)).unwrap();
    }
    let read = || Pool::read(folder.path()).unwrap().kernels()[0].about.clone();
    assert_eq!(read().reflections, taught(hostile));
    let same_text = kernel(&task("gemm", "Another product."), 2.0, KERNEL);
    assert!(Pool::read(folder.path()).unwrap().brought_in(&same_text.arch, &same_text.about).is_none());
    // A faster one came while a model was asked.
    Pool::admit(folder.path(), &kernel(&gemm, 2.5, "// faster\n")).unwrap();
    let late = Pool::reflect(folder.path(), &slow, taught("d")).unwrap_err().to_string();
    assert!(late.contains("gemm_bf16 of sm_90 is another kernel by now"), "{late}");
    assert!(read().reflections.is_empty());
}

#[test]
fn a_task_finds_the_kernels_that_share_its_operators_and_rows_and_never_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for (name, summary) in [("gemm", "A matrix product."), ("norm", "The mean of rows."), ("noise", "Random numbers.")]
    {
        Pool::admit(folder.path(), &kernel(&task(name, summary), 2.0, KERNEL)).unwrap();
    }
    let pool = Pool::read(folder.path()).unwrap();
    let features = Features::embedded();
    let near = |name: &str, summary: &str, arch: &str| -> Vec<String> {
        let near = pool.near(&features, &task(name, summary), &arch.parse().unwrap());
        near.iter().map(|kernel| kernel.about.workload.clone()).collect()
    };
    assert_eq!(pool.kernels()[0].about.rows, [1, 5]);
    assert_eq!(
        near("linear", "A matrix product with bias.", "sm_90"),
        ["gemm", "noise", "norm"],
        "rows are shared by all"
    );
    assert_eq!(near("softmax", "A softmax over rows: max, sum.", "sm_90"), ["norm"]);
    assert_eq!(near("gemm", "A matrix product.", "sm_90"), ["noise", "norm"]);
    assert!(
        near("linear", "A matrix product.", "sm_80").is_empty() && near("t", "A transposition.", "sm_90").is_empty()
    );
}

#[test]
fn a_file_that_was_changed_or_belongs_to_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = Pool::admit(folder.path(), &kernel(&task("gemm", "A product."), 2.0, KERNEL)).unwrap();
    let said = || Pool::read(folder.path()).unwrap_err().to_string();
    fs::write(&file, "another").unwrap();
    assert!(said().contains("it is not the kernel that was certified"), "{}", said());
    fs::remove_file(&file).unwrap();
    assert!(said().contains("no kernel of this name beside it"), "{}", said());
    assert_eq!(Pool::read(&folder.path().join("none")).unwrap(), Pool::default());
}

#[test]
fn a_problem_that_draws_eight_bits_is_of_that_precision() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("1_One.py");
    fs::write(&file, "class Model(): pass\ndef get_inputs(): pass\ndef get_init_inputs(): pass\n").unwrap();
    let mut task = load::task(&file).unwrap().in_precision(Precision::Bf16);
    assert_eq!(precision(&task), "bf16");
    let Source::Problem(problem) = &mut task.source else { panic!("a problem") };
    for dtype in ["bfloat16", "float8_e4m3fn"] {
        let layout = crate::TensorLayout { dtype: dtype.into(), shape: vec![8], stride: vec![1] };
        problem.signature.inputs.push(crate::ModuleValue {
            name: "x".into(),
            tensor: Some(layout),
            value: String::new(),
        });
    }
    assert_eq!(precision(&task), "e4m3");
}
