//! What becomes of candidates, honest and not, in the native workshop.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#[path = "native/baselines.rs"]
mod baselines;
#[path = "native/confined.rs"]
mod confined;
#[path = "native/glance.rs"]
mod glance;
#[path = "native/held_out.rs"]
mod held_out;
#[path = "native/profiled.rs"]
mod profiled;

use baselines::certify_for;
use metrics::{Arch, Machine, MachineKind};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, OnceLock},
};
use warpsmith_kernelbench::{
    Argument, ArgumentKind, Candidate, Case, Certificate, CertificateVerdict, Dtype, Failure, Fill, KernelContext,
    Language, Number, Outcome, Provenance, Returns, Size, Source, Space, Suite, Task, Timed, TimedCases, TimingPlan,
    Tolerance, Transfer, Verified, Workshop,
    native::{Native, NativeOptions},
};

const PLAN: TimingPlan = TimingPlan::median_of(2, 9);

/// One at a time: a deadline is no fun beside a memory hog.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn cache() -> PathBuf {
    static CACHE: OnceLock<tempfile::TempDir> = OnceLock::new();
    CACHE.get_or_init(|| tempfile::tempdir().unwrap()).path().to_owned()
}

/// A workshop on a machine of which nothing is known: no time is below its floor.
fn workshop() -> Native {
    let machine = Machine {
        kind: MachineKind::Cpu,
        name: "test".into(),
        arch: Arch::host(),
        facts: vec![],
        bandwidths: vec![],
        peak_flops: None,
    };
    workshop_on(machine)
}

fn workshop_on(machine: Machine) -> Native {
    let program = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    Native::new(NativeOptions::new(program, vec![], cache(), machine))
}

fn array(name: &str, transfer: Transfer) -> Argument {
    let fill = Fill::Normal { mean: 0.0, std: 1.0, minus_infinity: 0.0 };
    Argument {
        name: name.into(),
        dtype: Dtype::F32,
        kind: ArgumentKind::Array { size: Size("n".into()), transfer, fill },
    }
}

/// `out = x * by + 1`, and a residual that is changed in place.
fn task() -> Task {
    let scalar = |name: &str, dtype| Argument { name: name.into(), dtype, kind: ArgumentKind::Scalar };
    let context = KernelContext {
        language: Language::Cpp,
        entry: "scale".into(),
        arguments: vec![
            array("x", Transfer::In),
            array("out", Transfer::Out),
            array("sum", Transfer::InOut),
            scalar("n", Dtype::I64),
            scalar("by", Dtype::F32),
        ],
        flags: vec!["-O3".into(), "-march=native".into()],
        reference: kernel("for (int64_t i = 0; i < n; ++i) { out[i] = x[i] * by + 1; sum[i] += x[i]; }"),
        initial: None,
        tuning: Space::default(),
        returns: Returns::Nothing,
        binding: None,
        include: BTreeMap::new(),
        operations: None,
        origin: None,
        baselines: warpsmith_kernelbench::Baselines::default(),
        processor: None,
        arch: None,
    };
    Task {
        name: "scale".into(),
        summary: String::new(),
        source: Source::Context(context),
        tolerance: Tolerance { atol: 1e-5, rtol: 1e-5, share: 1.0 },
        tolerance_why: String::new(),
        cases: vec![case("small", 1000), case("large", 20_001)],
        final_cases: vec![case("odd", 777)],
        sanitizer_cases: vec![],
        valid_args: None,
        timed: TimedCases::Largest,
    }
}

fn case(name: &str, n: i64) -> Case {
    let scalars = [("n".to_owned(), Number::Integer(n)), ("by".to_owned(), Number::Float(2.5))];
    Case { name: name.into(), scalars: scalars.into() }
}

fn suite(task: &Task) -> Suite {
    Suite { provenance: Provenance::Task, cases: task.cases.clone(), timed: vec!["large".into()] }
}

fn kernel(body: &str) -> String {
    program("", body)
}

fn program(before: &str, body: &str) -> String {
    format!(
        "{before}\nextern \"C\" void scale(const float *x, float *out, float *sum, int64_t n, float by) {{\n{body}\n}}\n"
    )
}

/// The right answer, to be put after mischief.
const RIGHT: &str = "for (int64_t i = 0; i < n; ++i) { out[i] = x[i] * by + 1; sum[i] += x[i]; }";

/// Everything that an evaluation does.
fn evaluate(source: &str) -> Outcome<Timed> {
    evaluate_for(&task(), source)
}

fn evaluate_for(task: &Task, source: &str) -> Outcome<Timed> {
    let (workshop, suite) = (workshop(), suite(task));
    on_this_thread(async {
        match check(&workshop, task, source).await? {
            Ok(verified) => workshop.time(task, &verified, &suite, &PLAN, 0.0).await,
            Err(failure) => Ok(Err(failure)),
        }
    })
}

async fn check(workshop: &Native, task: &Task, source: &str) -> Outcome<Verified> {
    match workshop.build(task, &Candidate::new(source)).await? {
        Ok(built) => workshop.check(task, built, &suite(task)).await,
        Err(failure) => Ok(Err(failure)),
    }
}

fn on_this_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// How a candidate fails; and nothing is left running, and the next one is none the worse.
fn failure(source: &str) -> Failure {
    let _alone = alone();
    let failed = evaluate(source).unwrap().expect_err("it was to fail");
    assert_eq!(children(), Vec::<String>::new(), "left running after: {failed}");
    let next = on_this_thread(check(&workshop(), &task(), &kernel(RIGHT))).unwrap();
    assert!(next.is_ok(), "the next candidate suffered: {:?}", next.err());
    failed
}

/// Command lines of processes that run the driver or a compiler.
fn children() -> Vec<String> {
    let mut found = vec![];
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path().join("cmdline");
        let Ok(line) = std::fs::read(&path) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(env!("CARGO_BIN_EXE_warpsmith-kernel")) {
            found.push(line);
        }
    }
    found
}

fn forbidden(source: &str) -> String {
    match failure(source) {
        Failure::Forbidden { what, .. } => what,
        other => panic!("not forbidden: {other:?}"),
    }
}

#[test]
fn a_right_candidate_passes_and_is_timed_beside_the_reference() {
    let _alone = alone();
    let timed = evaluate(&kernel(RIGHT)).unwrap().unwrap();
    assert_eq!(timed.cases.len(), 1);
    assert_eq!(timed.cases[0].case, "large");
    assert_eq!(timed.cases[0].candidate.samples_ns().len(), PLAN.repetitions as usize);
    assert_eq!(children(), Vec::<String>::new());
}

#[test]
fn a_reference_is_prepared_and_a_broken_one_is_a_fault_that_names_it() {
    let _alone = alone();
    let task = task();
    let baseline = on_this_thread(workshop().prepare(&task, &suite(&task), &PLAN)).unwrap();
    assert_eq!(baseline.timings[0].0, "large");
    assert!(baseline.build.contains("-std=c++17"), "{}", baseline.build);
    let context = task.context().unwrap().clone();
    let broken = KernelContext { reference: kernel("*(volatile int *)0 = 1;"), ..context };
    let task = Task { source: Source::Context(broken), ..task };
    let fault = on_this_thread(workshop().prepare(&task, &suite(&task), &PLAN)).unwrap_err().to_string();
    assert!(fault.contains("reference") && fault.contains("small") && fault.contains("SIGSEGV"), "{fault}");
}

#[test]
fn a_candidate_that_crashes_is_named_with_its_signal() {
    let Failure::Crash { case, signal, .. } = failure(&kernel("*(volatile int *)8 = 1;")) else { panic!() };
    assert_eq!((case.as_str(), &signal[..7]), ("small", "SIGSEGV"));
    let deep = program(
        "int f(volatile int *p) { volatile int a[1000]; a[0] = *p; return f(a) + a[0]; }",
        "volatile int a = 1; out[0] = f(&a);",
    );
    let failed = failure(&deep);
    assert!(matches!(failed, Failure::Crash { .. }), "{failed:?}");
    let thrown = failure(&program("#include <stdexcept>", "throw std::runtime_error(\"no way\");"));
    let Failure::Crash { signal, stderr, .. } = thrown else { panic!("{thrown:?}") };
    assert!(signal.starts_with("SIGABRT") && stderr.contains("no way"), "{signal} {stderr}");
}

#[test]
fn a_candidate_that_hangs_is_ended_within_its_deadline() {
    let failed = failure(&kernel("for (volatile int i = 0;; ) { (void)i; }"));
    assert!(
        matches!(&failed, Failure::Hang { case, deadline_ms } if case == "small" && *deadline_ms < 5000),
        "{failed:?}"
    );
}

#[test]
fn a_candidate_that_hangs_before_it_is_called_is_ended_too() {
    let source =
        program("#include <unistd.h>\n__attribute__((constructor)) static void first() { for (;;) sleep(1); }", RIGHT);
    let failed = failure(&source);
    assert!(matches!(failed, Failure::Hang { .. }), "{failed:?}");
}

#[test]
fn a_candidate_that_exits_is_named_with_its_status() {
    let failed = failure(&program("#include <stdlib.h>\n#include <stdio.h>", "fprintf(stderr, \"bye\\n\"); exit(0);"));
    assert!(matches!(&failed, Failure::Exit { status: 0, stderr, .. } if stderr == "bye"), "{failed:?}");
}

#[test]
fn a_candidate_that_forks_or_starts_a_program_is_refused() {
    assert_eq!(forbidden(&program("#include <unistd.h>", &format!("{RIGHT} fork();"))), "start a thread or a process");
    assert_eq!(forbidden(&program("#include <unistd.h>", "for (;;) fork();")), "start a thread or a process");
    let shell = program("#include <stdlib.h>", &format!("system(\"sleep 60 &\"); {RIGHT}"));
    let what = forbidden(&shell);
    assert!(what == "start a thread or a process" || what == "change how its signals are handled", "{what}");
}

#[test]
fn a_candidate_that_leaves_a_thread_at_work_is_refused() {
    let body = "std::thread([=] { std::this_thread::sleep_for(std::chrono::seconds(60)); }).detach();";
    let source = program("#include <thread>\n#include <chrono>", &format!("{RIGHT} {body}"));
    assert_eq!(forbidden(&source), "start a thread or a process");
}

#[test]
fn a_candidate_that_allocates_without_end_is_named() {
    let c = program("#include <stdlib.h>\n#include <string.h>", "for (;;) memset(malloc(1 << 20), 1, 1 << 20);");
    let failed = failure(&c);
    assert!(matches!(failed, Failure::Memory { limit_mib: 512, .. }), "{failed:?}");
    let cpp = program("#include <vector>", "std::vector<float *> v; for (;;) v.push_back(new float[1 << 20]{});");
    let failed = failure(&cpp);
    assert!(matches!(failed, Failure::Memory { .. }), "{failed:?}");
    let at_once = program("#include <stdlib.h>", "float *volatile p = (float *)malloc(1ull << 40); p[1] = 1;");
    let failed = failure(&at_once);
    assert!(matches!(failed, Failure::Memory { .. }), "{failed:?}");
}

#[test]
fn a_candidate_that_prints_without_end_is_named() {
    let source = program("#include <stdio.h>", "for (;;) puts(\"warpsmith, speed of light\");");
    let failed = failure(&source);
    assert!(matches!(failed, Failure::Flood { limit_kib: 64, .. }), "{failed:?}");
}

#[test]
fn a_candidate_that_writes_or_reads_files_or_opens_a_connection_is_refused() {
    let home = std::env::var("HOME").unwrap_or("/tmp".into());
    let path = format!("{home}/.warpsmith-was-here");
    let write = format!("fclose(fopen(\"{path}\", \"w\"));");
    assert_eq!(forbidden(&program("#include <stdio.h>", &write)), "open a file for writing");
    assert_eq!(forbidden(&program("#include <stdio.h>", "fopen(\"/etc/passwd\", \"r\");")), "open a file");
    assert!(!std::path::Path::new(&path).exists());
    let early =
        format!("#include <stdio.h>\n__attribute__((constructor)) static void first() {{ fopen(\"{path}\", \"a\"); }}");
    assert_eq!(forbidden(&program(&early, RIGHT)), "open a file for writing");
    let socket = program("#include <sys/socket.h>", "socket(AF_INET, SOCK_STREAM, 0);");
    assert_eq!(forbidden(&socket), "open a network connection");
}

#[test]
fn a_candidate_that_turns_on_its_parent_is_refused() {
    let kill = program("#include <signal.h>\n#include <unistd.h>", "kill(getppid(), SIGKILL);");
    assert_eq!(forbidden(&kill), "send a signal");
    let handler = program("#include <signal.h>", "signal(SIGSYS, SIG_IGN);");
    assert_eq!(forbidden(&handler), "change how its signals are handled");
}

#[test]
fn a_candidate_that_returns_its_input_is_wrong() {
    let failed = failure(&kernel("for (int64_t i = 0; i < n; ++i) { out[i] = x[i]; sum[i] += x[i]; }"));
    let Failure::Mismatch { argument, wrong, total, unwritten, while_timed, .. } = failed else { panic!("{failed:?}") };
    assert_eq!((argument.as_str(), total, unwritten, while_timed), ("out", 1000, 0, false));
    assert!(wrong > 990, "{wrong}");
}

#[test]
fn a_candidate_that_leaves_half_of_its_output_unwritten_is_told_so() {
    let failed =
        failure(&kernel("for (int64_t i = 0; i < n; ++i) { if (i % 2) out[i] = x[i] * by + 1; sum[i] += x[i]; }"));
    assert!(matches!(&failed, Failure::Mismatch { wrong: 500, unwritten: 500, nan: 500, .. }), "{failed:?}");
}

#[test]
fn a_candidate_that_returns_nan_is_wrong() {
    let failed = failure(&kernel("for (int64_t i = 0; i < n; ++i) { out[i] = __builtin_nanf(\"\"); sum[i] += x[i]; }"));
    assert!(matches!(&failed, Failure::Mismatch { wrong: 1000, nan: 1000, unwritten: 0, .. }), "{failed:?}");
}

#[test]
fn a_candidate_that_forgets_what_it_was_to_change_in_place_is_wrong() {
    let failed = failure(&kernel("for (int64_t i = 0; i < n; ++i) out[i] = x[i] * by + 1;"));
    assert!(matches!(&failed, Failure::Mismatch { argument, .. } if argument == "sum"), "{failed:?}");
}

#[test]
fn a_candidate_that_changes_an_input_or_writes_beside_an_output_is_named() {
    let changed = failure(&kernel(&format!("{RIGHT} ((float *)x)[n / 2] += 1;")));
    assert!(matches!(&changed, Failure::InputChanged { argument, .. } if argument == "x"), "{changed:?}");
    let beyond = failure(&kernel(&format!("{RIGHT} out[n] = 0;")));
    assert!(matches!(&beyond, Failure::OutOfBounds { argument, .. } if argument == "out"), "{beyond:?}");
    let before = failure(&kernel(&format!("{RIGHT} sum[-1] = 0;")));
    assert!(matches!(&before, Failure::OutOfBounds { argument, .. } if argument == "sum"), "{before:?}");
}

#[test]
fn a_candidate_that_keeps_its_answers_by_pointer_is_wrong() {
    let keep = "#include <map>\n#include <vector>\nstatic std::map<const float *, std::vector<float>> kept;";
    let body = format!(
        "auto &k = kept[x]; if (k.size() != (size_t)n) {{ {RIGHT} k.assign(out, out + n); }}
         else for (int64_t i = 0; i < n; ++i) {{ out[i] = k[i]; sum[i] += x[i]; }}"
    );
    let failed = failure(&program(keep, &body));
    assert!(matches!(&failed, Failure::Mismatch { argument, .. } if argument == "out"), "{failed:?}");
}

#[test]
fn a_candidate_that_is_right_only_at_first_is_caught_while_it_is_timed() {
    let body =
        "static int calls = 0; if (n != 20001 || calls++ < 40) { RIGHT } else sum[0] += x[0];".replace("RIGHT", RIGHT);
    let failed = failure(&kernel(&body));
    assert!(matches!(&failed, Failure::Mismatch { while_timed: true, .. }), "{failed:?}");
}

/// Finds the line to its parent and the number of the request on the stack of who calls it, says that it is done, and only
/// then begins.
#[test]
fn a_candidate_that_claims_to_be_done_early_gains_nothing() {
    let body = format!(
        "int line = 3; while (line < 64 && !(lseek(line, 0, SEEK_CUR) < 0 && errno == ESPIPE)) ++line;
         volatile uint64_t *at = (volatile uint64_t *)(((uintptr_t)__builtin_frame_address(0) + 7) & ~7ull);
         for (int i = 0; i < 300; ++i) if (at[i] >> 47 && !(at[i] >> 52)) {{
            char claim[17] = {{0}};
            uint64_t nonce = at[i];
            memcpy(claim + 1, &nonce, 8);
            if (write(line, claim, 17) == 17) usleep(100000);
            break;
         }} {RIGHT}"
    );
    let before = "#include <errno.h>\n#include <string.h>\n#include <unistd.h>";
    let failed = failure(&program(before, &body));
    let caught = match &failed {
        Failure::Mismatch { unwritten, total, .. } => unwritten == total,
        Failure::Forbidden { what, .. } => what.contains("tamper"),
        _ => false,
    };
    assert!(caught, "{failed:?}");
}

#[test]
fn a_right_candidate_is_certified_and_the_certificate_says_what_was_looked_at() {
    let _alone = alone();
    let certificate = certify(&kernel(RIGHT));
    let CertificateVerdict::Certified(timed) = &certificate.verdict else { panic!("{certificate:#?}") };
    let sittings: Vec<usize> = timed.cases[0].candidate.sittings().map(|processes| processes.len()).collect();
    assert_eq!(sittings, [2, 2, 2, 3], "nine processes, after each part of the check and after the sanitizers");
    assert_eq!(timed.recompute(), Ok(()));
    let said: Vec<&str> = certificate.checked.iter().filter(|c| c.done).map(|c| c.what.as_str()).collect();
    for what in ["rebuilt from its source alone", "outputs on 3 shapes, 1 of them new to it", "two clocks agree"] {
        assert!(said.contains(&what), "{what}: {said:?}");
    }
    assert!(said.iter().any(|what| what.starts_with("right in each of ")), "{said:?}");
    assert!(certificate.checked.iter().any(|c| !c.done), "no certificate excludes everything");
    assert_eq!(children(), Vec::<String>::new());
}

#[test]
fn a_candidate_that_is_right_in_the_loop_and_wrong_on_a_new_shape_is_refused() {
    let _alone = alone();
    let source = kernel(&format!("if (n == 777) return; {RIGHT}"));
    assert!(evaluate(&source).unwrap().is_ok());
    let verdict = certify(&source).verdict;
    let refused = matches!(&verdict, CertificateVerdict::Refused(Failure::Mismatch { case, .. }) if case == "odd");
    assert!(refused, "{verdict:?}");
}

#[test]
fn a_candidate_that_reads_beside_an_argument_is_caught_without_a_sanitizer() {
    for (beside, of) in [("x[n]", "x"), ("x[n + 7]", "x"), ("x[-1]", "x"), ("sum[n]", "sum")] {
        let failed = failure(&kernel(&format!("volatile float beside = {beside}; (void)beside; {RIGHT}")));
        assert!(matches!(&failed, Failure::OutOfBounds { argument, .. } if argument == of), "{beside}: {failed:?}");
    }
}

#[test]
fn a_candidate_that_takes_the_guards_away_is_refused() {
    let lift = "mprotect((void *)(((uintptr_t)(x + n) + 4095) & ~4095ull), 4096, PROT_READ);";
    let what = forbidden(&program("#include <sys/mman.h>", &format!("{lift} {RIGHT}")));
    assert_eq!(what, "change the memory that its arguments lie in");
}

#[test]
fn a_candidate_that_takes_an_alignment_for_granted_is_caught() {
    let body = "if (((uintptr_t)x | (uintptr_t)out) % 64) return; RIGHT".replace("RIGHT", RIGHT);
    let failed = failure(&kernel(&body));
    assert!(matches!(&failed, Failure::Mismatch { while_timed: false, .. }), "{failed:?}");
}

#[test]
fn a_candidate_that_keeps_the_size_of_its_first_call_is_caught() {
    let body = "static int64_t first = n; n = first; RIGHT".replace("RIGHT", RIGHT);
    let failed = failure(&kernel(&body));
    let caught = matches!(&failed, Failure::Mismatch { while_timed: false, .. } | Failure::OutOfBounds { .. });
    assert!(caught, "{failed:?}");
}

#[test]
fn a_scratch_of_the_first_calls_size_is_found_by_the_sanitizer() {
    let _alone = alone();
    let body = "static float *kept = (float *)malloc(n * 4); for (int64_t i = 0; i < n; ++i) kept[i] = x[i];
        volatile float last = kept[n - 1]; (void)last; RIGHT"
        .replace("RIGHT", RIGHT);
    let certificate = certify(&program("#include <stdlib.h>", &body));
    let caught = matches!(
        &certificate.verdict,
        CertificateVerdict::Refused(Failure::Sanitizer { .. } | Failure::Crash { .. } | Failure::Mismatch { .. })
    );
    assert!(caught, "{certificate:#?}");
}

#[test]
fn memory_that_grows_from_call_to_call_is_named() {
    let _alone = alone();
    let leak = program(
        "#include <stdlib.h>\n#include <string.h>",
        &format!("char *volatile p = (char *)malloc(n * 4); memset(p, 1, n * 4); {RIGHT}"),
    );
    let timed = evaluate(&leak).unwrap().unwrap();
    assert!(timed.labels.iter().any(|label| label.text.contains("its memory grows")), "{:?}", timed.labels);
    let honest = evaluate(&kernel(RIGHT)).unwrap().unwrap();
    assert!(honest.labels.iter().all(|label| !label.text.contains("its memory grows")), "{:?}", honest.labels);
}

/// Looks for a kept input turned by some number of elements, and copies the kept output turned likewise.
#[test]
fn answers_turned_like_the_inputs_help_no_timed_call() {
    let _alone = alone();
    let before = "#include <math.h>\n#include <string.h>\n#include <stdlib.h>
        static float *in[4], *put[4]; static int64_t has[4]; static int held;
        static float slow(float v) { double s = v; for (int k = 0; k < 30; ++k) s += sin(s) * 1e-9; return (float)(s * 2.5 + 1); }";
    let turn = "if (n == 20001) for (int h = 0; h < held; ++h) { const float *p = (const float *)memchr(in[h], 0, 0);
            for (int64_t t = 0; t < n; ++t) if (in[h][t] == x[0] && in[h][(t + 1) % n] == x[1]) { p = in[h] + t; break; }
            if (p) { int64_t t = p - in[h]; memcpy(out, put[h] + t, (n - t) * 4); memcpy(out + n - t, put[h], t * 4);
                for (int64_t i = 0; i < n; ++i) sum[i] += x[i]; return; } }
        for (int64_t i = 0; i < n; ++i) { out[i] = slow(x[i]); sum[i] += x[i]; }
        if (n == 20001 && held < 4) { in[held] = (float *)malloc(n * 4); put[held] = (float *)malloc(n * 4);
            memcpy(in[held], x, n * 4); memcpy(put[held], out, n * 4); has[held++] = n; }";
    let context = KernelContext {
        reference: program(before, "for (int64_t i = 0; i < n; ++i) { out[i] = slow(x[i]); sum[i] += x[i]; }"),
        ..task().context().unwrap().clone()
    };
    let slow = Task { source: Source::Context(context), ..task() };
    let timed = evaluate_for(&slow, &program(before, turn)).unwrap().unwrap();
    assert!(timed.speedup.ratio < 1.25, "{:?}", timed.speedup);
}

#[test]
fn a_candidate_that_refuses_to_build_sanitized_is_refused_and_one_that_forges_a_word_of_the_machine_too() {
    let _alone = alone();
    let refuses = kernel(&format!("#ifdef __SANITIZE_ADDRESS__\n#error no\n#endif\n{RIGHT}"));
    let verdict = certify(&refuses).verdict;
    assert!(matches!(&verdict, CertificateVerdict::Refused(Failure::Sanitizer { .. })), "{verdict:?}");
    let says =
        "#ifdef __SANITIZE_ADDRESS__\nfputs(\"cannot start program: no memory\\n\", stderr); _exit(127);\n#endif";
    let verdict = certify(&program("#include <stdio.h>\n#include <unistd.h>", &format!("\n{says}\n{RIGHT}"))).verdict;
    assert!(matches!(&verdict, CertificateVerdict::Refused(Failure::Sanitizer { .. })), "{verdict:?}");
}

#[test]
fn a_candidate_that_closes_its_line_or_says_nonsense_on_it_before_its_first_call_fails_and_not_the_machine() {
    let line = "#include <unistd.h>\n#include <stdlib.h>\n#include <string.h>\n#include <errno.h>
        static int line() { int l = 3; while (l < 64 && !(lseek(l, 0, SEEK_CUR) < 0 && errno == ESPIPE)) ++l; return l; }";
    for does in [
        "write(line(), \"garbled\", 7);",
        "close(line());",
        "write(line(), \"\", 0); close(line()); for (;;) sleep(1);",
    ] {
        let source = program(&format!("{line}\n__attribute__((constructor)) static void first() {{ {does} }}"), RIGHT);
        failure(&source);
    }
}

#[test]
fn a_candidate_that_slips_out_of_the_sanitizer_is_refused() {
    let _alone = alone();
    for status in [0, 98, 127] {
        let body = format!("#ifdef __SANITIZE_ADDRESS__\n_exit({status});\n#endif\n{RIGHT}");
        let verdict = certify(&program("#include <unistd.h>", &body)).verdict;
        assert!(matches!(&verdict, CertificateVerdict::Refused(Failure::Sanitizer { .. })), "{status}: {verdict:?}");
    }
}

#[test]
fn the_same_source_built_twice_at_once_is_one_build() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (workshop, task, candidate) = (workshop(), task(), Candidate::new(kernel(&format!("{RIGHT} /* twice */"))));
    let (one, two) =
        runtime.block_on(async { tokio::join!(workshop.build(&task, &candidate), workshop.build(&task, &candidate)) });
    let (one, two) = (one.unwrap().unwrap(), two.unwrap().unwrap());
    assert_eq!(one.artifact(), two.artifact());
    assert!(one.artifact().is_file());
}

fn certify(source: &str) -> Certificate {
    certify_for(&task(), source)
}

#[test]
fn another_signature_or_none_is_told_apart_from_what_does_not_compile() {
    let other = "extern \"C\" void scale(float *x, float *out, int64_t n) { out[0] = x[n - 1]; }";
    let failed = failure(other);
    assert!(matches!(failed, Failure::Interface { .. }), "{failed:?}");
    let overload = "void scale(float *x, float *out, int64_t n) { out[0] = x[n - 1]; }";
    let failed = failure(overload);
    assert!(matches!(failed, Failure::Interface { .. }), "{failed:?}");
    assert!(matches!(failure("int answer = 42;"), Failure::Interface { .. }));
    let Failure::Build { log } = failure(&kernel("out[0] = y[0];")) else { panic!() };
    assert!(log.contains("candidate.cpp:3") && log.contains("'y' was not declared"), "{log}");
    assert!(matches!(failure(&kernel("elsewhere(x);")), Failure::Build { .. }));
}
