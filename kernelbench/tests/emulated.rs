//! What becomes of candidates on processors that are emulated.
use std::{fs, path::PathBuf, sync::OnceLock, time::Duration};
use warpsmith_kernelbench::{
    Candidate, Counts, Emulated, EmulatedOptions, Evaluation, Failure, Fault, Outcome, Processor, Suite, Task,
    TimingPlan, Workshop, load,
};

const PLAN: TimingPlan = TimingPlan::median_of(1, 1);

/// `y = x * by + y`, of a length that no vector divides.
const TASK: &str = r#"
schema = 1
name = "axpy"
summary = "y = x * by + y"
processor = "PROCESSOR"
language = "c++17"
entry = "axpy"
reference = "reference.cpp"
argument = [
    { name = "y", dtype = "f32", size = "n", transfer = "in-out", fill = "ones" },
    { name = "x", dtype = "f32", size = "n", transfer = "in", fill = { uniform = { low = -1, high = 1 } } },
    { name = "by", dtype = "f32" },
    { name = "n", dtype = "i64" },
]
tolerance = { atol = 1e-5, rtol = 1e-5 }
timing = { cases = "long" }
case = [{ name = "long", n = 4099, by = 1.5 }, { name = "short", n = 3, by = -2.0 }]
"#;

/// One element after the other, whatever a compiler knows of vectors.
const REFERENCE: &str = r#"
extern "C" __attribute__((optimize("no-tree-vectorize"))) void axpy(float *y, const float *x, float by, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += x[i] * by;
}
"#;

/// Four elements at a time, in assembly.
const NEON: &str = r#"
extern "C" void axpy(float *y, const float *x, float by, int64_t n) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        __asm__ volatile("ldr q1, [%1]\n ldr q2, [%0]\n fmla v2.4s, v1.4s, %2.s[0]\n str q2, [%0]"
                         :: "r"(y + i), "r"(x + i), "w"(by) : "v1", "v2", "memory");
    for (; i < n; ++i) y[i] += x[i] * by;
}
"#;

/// As many elements at a time as eight vector registers hold, in assembly.
const RVV: &str = r#"
extern "C" void axpy(float *y, const float *x, float by, int64_t n) {
    while (n > 0) {
        int64_t taken;
        __asm__ volatile(".option push\n .option arch, +v\n vsetvli %0, %1, e32, m8, ta, ma\n vle32.v v8, (%3)\n vle32.v v16, (%2)\n"
                         "vfmacc.vf v16, %4, v8\n vse32.v v16, (%2)\n .option pop"
                         : "=&r"(taken) : "r"(n), "r"(y), "r"(x), "f"(by) : "memory");
        n -= taken, x += taken, y += taken;
    }
}
"#;

fn task(processor: Processor) -> Task {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("reference.cpp"), REFERENCE).unwrap();
    fs::write(folder.path().join("task.toml"), TASK.replace("PROCESSOR", processor.name())).unwrap();
    load::task(folder.path()).unwrap()
}

fn cache() -> PathBuf {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    CACHE.get_or_init(|| tempfile::tempdir().unwrap()).path().to_owned()
}

fn workshop(processor: Processor, deadline: Duration) -> Emulated {
    let program = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    let options = EmulatedOptions { deadline, ..EmulatedOptions::new(program, vec![], cache()) };
    Emulated::new(processor, options).unwrap()
}

fn evaluated(processor: Processor, source: &str) -> Outcome<Counts> {
    let (workshop, task) = (workshop(processor, Duration::from_secs(20)), task(processor));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let suite = Suite::of_task(&task);
    let found = runtime.block_on(workshop.evaluate(&task, &Candidate::new(source), &suite, &PLAN))?;
    Ok(match found {
        Evaluation::Counted(counts) => Ok(counts),
        Evaluation::Failed(failure) => Err(failure),
        other => panic!("an emulator has no times: {other:?}"),
    })
}

/// What the lines of a kernel's body come to on one processor.
fn failure(body: &str) -> Failure {
    let source = format!(
        "#include <cstdlib>\n#include <fcntl.h>\n#include <unistd.h>\nextern \"C\" void axpy(float *y, const float *x, float by, int64_t n) {{\n\
         static int calls = 0; ++calls; (void)calls;\nfor (int64_t i = 0; i < n; ++i) y[i] += x[i] * by;\n{body}\n}}\n"
    );
    evaluated(Processor::K1, &source).unwrap().unwrap_err()
}

#[test]
#[cfg_attr(not(has_emulators), ignore = "needs QEMU and cross compilers for AArch64 and RISC-V")]
fn vector_kernels_are_right_on_all_four_and_take_the_same_fewer_instructions_each_time() {
    let counts = |processor: Processor| {
        let source = if processor.arch() == "aarch64" { NEON } else { RVV };
        let [one, other] = [0, 1].map(|_| evaluated(processor, source).unwrap().unwrap());
        assert_eq!(one, other, "{processor}");
        assert_eq!((one.processor, one.cases.len(), one.cases[0].case.as_str()), (processor, 1, "long"));
        one.cases[0].candidate as f64 / one.cases[0].reference as f64
    };
    let [a72, a76, c908, k1] = Processor::ALL.map(counts);
    assert!(a72 < 0.5 && a76 < 0.5 && c908 < 0.1, "{a72} {a76} {c908}");
    // Its vectors are twice as long.
    assert!(k1 < 0.6 * c908, "{k1} {c908}");
}

#[test]
#[cfg_attr(not(has_emulators), ignore = "needs QEMU and cross compilers for AArch64 and RISC-V")]
fn whatever_a_candidate_does_on_an_emulated_processor_is_called_by_its_name() {
    assert!(matches!(failure("if (n > 2) y[2] += 1;"), Failure::Mismatch { worst_at: 2, .. }));
    // What is right once and not again: nothing is kept from call to call.
    assert!(matches!(failure("if (calls == 2) y[0] = 7e7f;"), Failure::Mismatch { worst_at: 0, .. }));
    assert!(matches!(failure("y[n] = 1;"), Failure::OutOfBounds { .. }));
    assert!(matches!(failure("const_cast<float *>(x)[0] = 1;"), Failure::InputChanged { .. }));
    assert!(matches!(failure("*(volatile int *)8 = 1;"), Failure::Crash { .. }));
    assert!(matches!(failure("exit(0);"), Failure::Exit { status: 0, .. }));
    assert!(matches!(failure("if (fork() == 0) _exit(0);"), Failure::Forbidden { .. }));
    // QEMU would pass it on: it would be a program of this machine.
    assert!(matches!(failure("execl(\"/bin/true\", \"true\", nullptr);"), Failure::Forbidden { .. }));
    // What it leaves under the names of its files is not looked for under them.
    let told =
        failure("unlink(\"messages\"); symlink(\"/etc/hostname\", \"messages\"); write(2, \"mine\", 4); exit(3);");
    assert!(matches!(&told, Failure::Exit { status: 3, stderr, .. } if stderr == "mine"), "{told:?}");
    // It writes no file of its own.
    assert!(matches!(
        failure("exit(open(\"more\", O_CREAT | O_WRONLY, 0600) < 0 ? 5 : 6);"),
        Failure::Exit { status: 5, .. }
    ));
    let told = failure("no such thing;");
    assert!(matches!(&told, Failure::Build { log } if log.contains("candidate.cpp:7")), "{told:?}");
    assert!(matches!(
        evaluated(Processor::A72, "extern \"C\" int axpy(int n) { return n; }").unwrap().unwrap_err(),
        Failure::Interface { .. }
    ));
}

#[test]
#[cfg_attr(not(has_emulators), ignore = "needs QEMU and cross compilers for AArch64 and RISC-V")]
fn a_candidate_without_end_is_ended_and_nothing_is_timed_or_certified() {
    let (workshop, task) = (workshop(Processor::A76, Duration::from_secs(2)), task(Processor::A76));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let suite = Suite::of_task(&task);
    let endless = Candidate::new(
        "extern \"C\" void axpy(float *y, const float *, float, int64_t) { for (;;) *(volatile float *)y = 1; }",
    );
    let found = runtime.block_on(workshop.evaluate(&task, &endless, &suite, &PLAN)).unwrap();
    assert!(matches!(&found, Evaluation::Failed(Failure::Hang { deadline_ms: 2000, .. })), "{found:?}");
    let told = runtime.block_on(workshop.rebuild(&task, &endless)).unwrap_err();
    assert!(matches!(&told, Fault::Absent(why) if why.contains("nothing is timed, profiled or certified")), "{told}");
}

#[test]
fn a_processor_is_for_tasks_in_c_and_has_no_parameters_to_search() {
    let load = |change: &dyn Fn(String) -> String| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("reference.cpp"), REFERENCE).unwrap();
        fs::write(folder.path().join("reference.cu"), REFERENCE).unwrap();
        fs::write(folder.path().join("task.toml"), change(TASK.replace("PROCESSOR", "K1"))).unwrap();
        load::task(folder.path()).unwrap_err().to_string()
    };
    let told = load(&|text| text.replace("K1", "C910"));
    assert!(told.contains("RVV 0.7.1") && told.contains("A72, A76, C908, K1"), "{told}");
    let told = load(&|text| text.replace("c++17", "cuda").replace("reference.cpp", "reference.cu"));
    assert!(told.contains("only kernels in"), "{told}");
    let told = load(&|text| text.replace("entry =", "returns = \"status\"\nentry ="));
    assert!(told.contains("returns nothing"), "{told}");
    let told = load(&|text| format!("{text}\n[tuning]\nTILE = [4, 8]\n"));
    assert!(told.contains("ranks no configurations"), "{told}");
}
