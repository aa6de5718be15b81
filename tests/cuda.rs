//! Do kernels in CUDA go the whole way, where the processor pretends to be a GPU, and is what misbehaves named?
//!
//! `tests/pretend` holds a library with the names of CUDA's driver and a compiler with nvcc's name. Nothing here claims
//! anything about a GPU; that the trusted side's and the examples' sources are CUDA, a real nvcc says where there is one.

use crate::program::{self, Told, run};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

/// A folder with the pretended driver, a cache of builds, and settings for a small arena. It lies where a candidate's own
/// user can read it, which a checkout in somebody's home does not.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap().keep();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.join("warpsmith.toml"), "[workshop]\nlargest_case_mib = 2\n").unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pretend/driver.cpp");
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()));
    compiler.args(["-std=c++17", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"]);
    let built = compiler.arg(place.join("libcuda.so.1")).arg(source).args(["-ldl", "-lrt"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let capture = fs::read_to_string("kernelbench/tests/ncu/h200-silu-cudaforge24.csv").unwrap();
    tool(&place, "ncu", &capture);
    tool(&place, "compute-sanitizer", "========= ERROR SUMMARY: 0 errors\n");
    place
});

/// A profiler or sanitizer that runs what it is to look at, and then says this.
fn tool(place: &Path, name: &str, says: &str) {
    let text = "#!/bin/sh\nwhile [ $# -gt 0 ] && [ \"${1##*/}\" != warpsmith ]; do shift; done\n\"$@\" || exit\ncat \"$0.says\"\n";
    program::executable(&place.join(name), text);
    fs::write(place.join(format!("{name}.says")), says).unwrap();
}

fn warpsmith(arguments: &[&str]) -> Command {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pretend");
    let mut command = program::with_metrics(arguments);
    command.current_dir(&*PLACE).env("LD_LIBRARY_PATH", &*PLACE).env("NVCC", tests.join("nvcc"));
    command.env("XDG_CACHE_HOME", PLACE.join("cache"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [PLACE.clone()].into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).unwrap());
    command
}

fn task() -> String {
    format!("{}/tests/pretend/twice", env!("CARGO_MANIFEST_DIR"))
}

/// Evaluates a candidate of this text before its entry and in it.
fn evaluate(before: &str, body: &str, flags: &[&str]) -> (Told, Value) {
    let folder = tempfile::tempdir().unwrap();
    let candidate = folder.path().join("candidate.cu");
    let entry = "extern \"C\" void twice(float *y, const float *x, int64_t n, cudaStream_t stream)";
    fs::write(&candidate, format!("{before}\n{entry} {{\n{body}\n}}\n")).unwrap();
    let (task, candidate) = (task(), candidate.display().to_string());
    let arguments = ["evaluate", &task, &candidate, "--warmup", "1", "--repetitions", "3", "--json"];
    let told = warpsmith(&[&arguments[..], flags].concat()).output().map(Told::of).unwrap();
    let found = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    (told, found)
}

/// A batch of two that takes so long has come to a stand; it takes half a minute.
const STANDS_STILL: Duration = Duration::from_secs(400);
const RIGHT: &str = "for (int64_t i = 0; i < n; ++i) y[i] = x[i] + x[i];";

/// The kind of a candidate's failure, which comes up in its check, and all that is said of it.
fn failure(before: &str, body: &str) -> (String, String) {
    let (told, found) = evaluate(before, body, &[]);
    let failed = &found["evaluation"]["failed"];
    assert_eq!(told.code, Some(1), "{body}: {found}");
    (failed["kind"].as_str().unwrap().to_owned(), failed.to_string())
}

#[test]
fn a_right_candidate_is_timed_profiled_and_certified() {
    let (_, found) = evaluate("", RIGHT, &["--profile", "--certify"]);
    let passed = &found["evaluation"]["passed"];
    assert_eq!(passed["cases"].as_array().map(Vec::len), Some(2), "{found}");
    assert_eq!(found["machine"]["kind"], "gpu");
    assert_eq!(found["profile"]["rung"], "ncu", "{}", found["profile"]);
    let checked = found["certificate"]["checked"].as_array().unwrap();
    let done =
        |what: &str| checked.iter().any(|one| one["done"] == true && one["what"].as_str().unwrap().contains(what));
    let tools = ["memcheck", "racecheck", "initcheck", "synccheck"];
    assert!(done("outputs on 3 shapes") && done("system call filter"), "{}", found["certificate"]);
    assert!(tools.iter().all(|tool| done(tool)), "{}", found["certificate"]);
}

#[test]
fn what_is_wrong_is_named() {
    let spoiled = format!("{RIGHT} if (n > 2000) y[77] += 1;");
    let (kind, all) = failure("", &spoiled);
    assert!(kind == "mismatch" && all.contains("\"worst_at\":77") && all.contains("large"), "{all}");
    for (kind, body) in [
        ("out-of-bounds", "for (int64_t i = 0; i <= n; ++i) y[i] = 2 * x[i % n];"),
        ("input-changed", "for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i]; ((float *)x)[3] = 1;"),
        ("crash", "*(volatile int *)16 = 1;"),
        ("exit", "exit(0);"),
        ("memory", "void *p; cudaMalloc(&p, 1ull << 42);"),
        ("build", "y[0] = nothing;"),
    ] {
        let (found, all) = failure("#include <stdlib.h>", body);
        assert_eq!(found, kind, "{all}");
    }
}

#[test]
fn what_is_never_written_is_not_taken_from_an_earlier_call() {
    let (kind, all) =
        failure("static int calls;", "if (calls++ > 0) return; for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];");
    assert!(kind == "mismatch" && all.contains("\"unwritten\":1003"), "{all}");
}

#[test]
fn another_entry_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let candidate = folder.path().join("candidate.cu");
    fs::write(&candidate, "extern \"C\" void thrice(float *y) { y[0] = 3; }\n").unwrap();
    let told = warpsmith(&["evaluate", &task(), &candidate.display().to_string(), "--json"]).output().map(Told::of);
    assert!(told.unwrap().ended(1).out.contains("\"kind\": \"interface\""));
}

/// The task with its entry in a binding, and a header that the binding and candidates include; and what comes of a
/// candidate of this text.
fn bound(candidate: &str) -> (Told, Value) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("task/include/deep")).unwrap();
    let own = "reference = \"reference.cu\"\nbinding = \"binding.cu\"\ninclude = \"include\"";
    let text = fs::read_to_string(Path::new(&task()).join("task.toml")).unwrap();
    let text = text.replace("reference = \"reference.cu\"", own) + ORIGIN;
    fs::write(at("task/task.toml"), text).unwrap();
    fs::write(at("task/include/deep/view.h"), "#pragma once\nstruct View { float *data; int64_t size; };\n").unwrap();
    fs::write(at("task/reference.cu"), OFFERS).unwrap();
    let entry = "extern \"C\" void twice(float *y, const float *x, int64_t n, cudaStream_t)";
    fs::write(at("task/binding.cu"), format!("{entry} {{ Twice::run({{y, n}}, x); }}\n")).unwrap();
    fs::write(at("candidate.cu"), candidate).unwrap();
    let [task, candidate] = ["task", "candidate.cu"].map(|name| at(name).display().to_string());
    let arguments = ["evaluate", &task, &candidate, "--warmup", "1", "--repetitions", "3", "--json"];
    let told = warpsmith(&arguments).output().map(Told::of).unwrap();
    let found = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    (told, found)
}

const ORIGIN: &str = "[origin]\nframework = \"sglang\"\nversion = \"1\"\noperator = \"twice\"\nlevel = \"J\"\n\
                      file = \"twice.cuh\"\nsha256 = \"0\"\ndtype = \"f32\"\n";
const OFFERS: &str = "#include <deep/view.h>\nstruct Twice {\n    static void run(View y, const float *x) {\n        \
                      for (int64_t i = 0; i < y.size; ++i) y.data[i] = 2 * x[i];\n    }\n};\n";

#[test]
fn a_binding_defines_the_entry_with_what_the_candidate_offers() {
    let (told, found) = bound(&OFFERS.replace("2 * x[i]", "x[i] + x[i]"));
    assert_eq!(told.code, Some(0), "{found}");
    assert!(found["evaluation"]["passed"].is_object(), "{found}");
    for (candidate, kind) in [
        (OFFERS.replace("struct Twice", "struct Thrice"), "interface"),
        (OFFERS.replace("2 * x[i];", "2 * x[i]"), "build"),
        (OFFERS.replace("deep/view.h", "deep/other.h"), "build"),
        (OFFERS.replace("2 * x", "3 * x"), "mismatch"),
    ] {
        let (told, found) = bound(&candidate);
        assert_eq!((told.code, &found["evaluation"]["failed"]["kind"]), (Some(1), &kind.into()), "{found}");
    }
}

#[test]
fn a_launcher_that_starts_processes_or_opens_connections_is_stopped() {
    for (before, body, what) in [
        ("#include <unistd.h>", "if (fork() == 0) for (;;) sleep(1000);", "start a thread or a process"),
        ("#include <sys/socket.h>", "socket(AF_INET, SOCK_STREAM, 0);", "open a network connection"),
        ("#include <stdlib.h>", "system(\"true\");", "make a forbidden system call"),
    ] {
        let (kind, all) = failure(before, body);
        assert!(kind == "forbidden" && all.contains(what), "{all}");
    }
}

#[test]
fn an_endless_call_is_ended_at_its_deadline() {
    let (kind, all) = failure("", "for (volatile int i = 0;;) i = 0;");
    assert_eq!(kind, "hang", "{all}");
}

#[test]
fn a_family_is_sampled_and_what_ncu_reads_is_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let (task, out) = (folder.path().join("family"), folder.path().join("profiles.parquet"));
    fs::create_dir(&task).unwrap();
    for name in ["task.toml", "reference.cu"] {
        fs::copy(Path::new(&self::task()).join(name), task.join(name)).unwrap();
    }
    let family =
        "schema = 1\n[[design]]\nname = \"times\"\ntemplate = \"times.cu\"\ngrid = { by = [2, 3], step = [1, 2, 4] }\n";
    fs::write(task.join("family.toml"), family).unwrap();
    let entry = "extern \"C\" void twice(float *y, const float *x, int64_t n, cudaStream_t stream)";
    let body =
        "for (int64_t s = 0; s < {{ step }}; ++s) for (int64_t i = s; i < n; i += {{ step }}) y[i] = {{ by }} * x[i];";
    fs::write(task.join("times.cu"), format!("{entry} {{\n{body}\n}}\n")).unwrap();
    let [task, table] = [&task, &out].map(|path| path.display().to_string());
    let arguments = ["metrics", "sample", &task, "--keep", "1", "--warmup", "1", "--repetitions", "3", "--out", &table];
    let told = warpsmith(&arguments).output().map(Told::of).unwrap().ended(0);
    let profiles = selection::table::read(&out).unwrap();
    assert!(told.out.contains("3 of 6 correct") && told.out.matches("wrong: ").count() == 3, "{told:?}");
    assert_eq!(profiles.len(), 2, "{told:?}");
    let read = |name: &str| profiles[0].measured.iter().find(|measured| measured.metric == name).unwrap();
    assert_eq!(read("sm__inst_executed.sum").value, Some(79_692_161.0));
    assert_eq!((profiles[0].kernel_name.as_str(), profiles[0].setup.architecture.as_str()), ("silu_k", "sm_90"));
    assert!(profiles[0].measured.iter().all(|measured| !measured.metric.contains("Kernel Name")));
}

/// A batch of the task, once under each name, each with one candidate that is right; `edit` changes its description.
fn batch(tasks: &[&str], edit: impl Fn(&str) -> String) -> Told {
    let (folder, twice) = (tempfile::tempdir().unwrap(), PathBuf::from(task()));
    let at = |name: &str| folder.path().join(name);
    let text = fs::read_to_string(twice.join("task.toml")).unwrap();
    for task in tasks {
        let place = at("tasks").join(task);
        fs::create_dir_all(&place).unwrap();
        fs::copy(twice.join("reference.cu"), place.join("reference.cu")).unwrap();
        let named = text.replace("name = \"twice\"\nsummary", &format!("name = \"{task}\"\nsummary"));
        fs::write(place.join("task.toml"), edit(&named)).unwrap();
    }
    let entry = "extern \"C\" void twice(float *y, const float *x, int64_t n, cudaStream_t stream)";
    let reply = format!("```cuda\n{entry} {{\n{RIGHT}\n}}\n```\n");
    let line = |task: &&str| serde_json::json!({"task": task, "role": "coder", "round": 1, "reply": reply}).to_string();
    fs::write(at("script.jsonl"), tasks.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
    let [from, run] = ["tasks", "run"].map(|name| at(name).display().to_string());
    let model = format!("scripted:{}", at("script.jsonl").display());
    let arguments = ["batch", &from, "--model", &model, "--out", &run, "--policy", "single-shot", "--shapes", "task"];
    let more = ["--timed", "task", "--warmup", "1", "--repetitions", "3"];
    let mut child = warpsmith(&[&arguments[..], &more].concat());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + STANDS_STILL;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("it stands still: {:?}", child.wait_with_output().map(Told::of));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.wait_with_output().map(Told::of).unwrap()
}

#[test]
fn certificates_of_two_tasks_on_one_gpu_come_to_their_ends() {
    let told = batch(&["one", "two"], str::to_owned).ended(0);
    assert_eq!(told.out.matches(", certified").count(), 2, "{told:?}");
}

#[test]
fn a_timed_case_that_does_not_fit_is_not_replaced_by_another() {
    let told = batch(&["one"], |text| {
        let large = text.replace("n = 100000", "n = 100000000");
        large.replace("cases = \"all\"", "cases = \"large\"")
    });
    let all = format!("{}{}", told.out, told.err);
    assert!(
        all.contains("the case of one that is timed, `large`, does not fit this machine: large: case `large` takes"),
        "{all}"
    );
    assert!(all.contains("`largest_case_mib` under [workshop]"), "{all}");
}

#[test]
fn a_transformation_of_a_context_in_cuda_goes_the_whole_way() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(at("task")).unwrap();
    for file in fs::read_dir(task()).unwrap().map(|file| file.unwrap().path()) {
        fs::copy(&file, folder.path().join("task").join(file.file_name().unwrap())).unwrap();
    }
    let device = "static void each(float *y, const float *x, int64_t n) { for (int64_t i = 0; i < n; ++i) y[i] = x[i] + x[i]; }\n";
    let host = "extern \"C\" void twice(float *y, const float *x, int64_t n, cudaStream_t stream) { each(y, x, n); }\n";
    let source = format!("// region: macros\n// region: device\n{device}// region: host\n{host}");
    fs::write(at("task/reference.cu"), source).unwrap();
    let unrolled = device.replace("for (", "(void){{UNROLL_FACTOR}}; for (");
    let reply = format!("```cuda\n// region: device\n{unrolled}```\n");
    fs::write(at("script.jsonl"), serde_json::json!({"role": "coder", "part": "1.device", "reply": reply}).to_string())
        .unwrap();
    let (model, task, out) = (format!("scripted:{}", at("script.jsonl")), at("task"), at("W"));
    let arguments =
        ["transform", &task, "Unroll", "--model", &model, "--out", &out, "--warmup", "1", "--repetitions", "3"];
    let told = warpsmith(&arguments).output().map(Told::of).unwrap().ended(0);
    assert!(told.out.contains("4/4 valid") && told.out.contains("[main, head]"), "{told:?}");
}

/// A toolkit with a library in it: the pretended compiler, and `libvendor.so`, whose handle takes a
/// tenth of a second to make, and cannot be made while calls are recorded.
fn toolkit() -> PathBuf {
    let toolkit = PLACE.join("toolkit");
    for folder in ["bin", "lib"] {
        fs::create_dir_all(toolkit.join(folder)).unwrap();
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pretend");
    for file in ["nvcc", "cuda_runtime.h"] {
        program::install(&tests.join(file), &toolkit.join("bin").join(file));
    }
    let source = toolkit.join("vendor.cpp");
    let text = "#include <stdlib.h>\n#include <unistd.h>\n\
                extern \"C\" int vendor_create() { usleep(100000); return getenv(\"PRETEND_RECORDS\") == nullptr; }\n\
                extern \"C\" float vendor_twice(float x) { return x + x; }\n";
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or("g++".into()));
    compiler.args(["-O2", "-shared", "-fPIC", "-Wl,-soname,libvendor.so.1", "-o"]);
    assert!(compiler.arg(toolkit.join("lib/libvendor.so.1")).arg(source).status().unwrap().success());
    toolkit
}

#[test]
fn a_library_of_the_toolkit_is_a_baseline_that_no_candidate_may_call_and_its_first_call_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = fs::read_to_string(Path::new(&task()).join("task.toml")).unwrap();
    let own = "[[baseline]]\nname = \"vendor\"\nsource = \"vendor.cu\"\nlink = [\"vendor\"]\n\
               environment = { CUBLAS_GREETING = \"hello\" }\nforbid = { symbols = [\"vendor_*\"] }\n\
               [oracle]\nbaseline = \"vendor\"\ncases = [\"large\"]\n";
    fs::write(at("task.toml"), text.replace("cases = \"all\"", "cases = \"all\"\nagainst = \"vendor\"") + own).unwrap();
    fs::copy(Path::new(&task()).join("reference.cu"), at("reference.cu")).unwrap();
    let declared = "extern \"C\" float vendor_twice(float);";
    let entry = "extern \"C\" void twice(float *y, const float *x, int64_t n, cudaStream_t)";
    let calls = "for (int64_t i = 0; i < n; ++i) y[i] = vendor_twice(x[i]);";
    let vendor = format!(
        "#include <stdlib.h>\n{declared}\nextern \"C\" int vendor_create();\n{entry} {{\n    \
         static int handle = getenv(\"CUBLAS_GREETING\") ? vendor_create() : 0;\n    if (handle) {calls}\n}}\n"
    );
    fs::write(at("vendor.cu"), vendor).unwrap();
    fs::write(at("right.cu"), format!("{entry} {{ {RIGHT} }}\n")).unwrap();
    fs::write(at("caller.cu"), format!("{declared}\n{entry} {{\n{calls}\n}}\n")).unwrap();
    let [task, right, caller] = [".", "right.cu", "caller.cu"].map(|name| at(name).display().to_string());
    let arguments = ["evaluate", &task, &right, &caller, "--warmup", "1", "--repetitions", "3", "--json", "--certify"];
    let told = warpsmith(&arguments).env("NVCC", toolkit().join("bin/nvcc")).output().map(Told::of).unwrap();
    let found: Value = serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    let (right, refused) = (&found[0], &found[1]["evaluation"]["failed"]);
    assert!(refused["kind"] == "library" && refused.to_string().contains("calls vendor_twice"), "{found}");
    assert_eq!(right["evaluation"]["passed"]["against"], "vendor", "{right}");
    let certificate = &right["certificate"];
    let rows: Vec<&str> =
        certificate["checked"].as_array().unwrap().iter().filter_map(|row| row["what"].as_str()).collect();
    assert!(rows.contains(&"vendor in the reference's place on large"), "{rows:?}");
    assert!(rows.iter().any(|row| row.starts_with("times beside vendor's")), "{rows:?}");
    for passed in [&right["evaluation"]["passed"], &certificate["verdict"]["certified"]] {
        for case in passed["cases"].as_array().unwrap_or_else(|| panic!("{certificate}")) {
            let samples = case["reference"]["samples_ns"].as_array().unwrap_or_else(|| panic!("{case}"));
            assert!(samples.iter().all(|ns| ns.as_f64().unwrap() < 5e7), "{case}");
        }
    }
}

/// What a sequence imports, in order, each once: what stands before the kernel in the end.
fn imports(policy: &str) -> String {
    let policy = agents::policy::Policy::parse(agents::policy::Policy::embedded(policy).unwrap()).unwrap();
    let catalogue = prompts::Catalogue::embedded();
    let mut texts: Vec<&str> = vec![];
    for step in policy.sequence.unwrap() {
        let new = catalogue.imported(&catalogue.named(&step).unwrap().transformation, "cuda");
        let unknown: Vec<&str> = new.into_iter().filter(|text| !texts.contains(text)).collect();
        texts.extend(unknown);
    }
    assert!(!texts.is_empty());
    texts.concat()
}

/// A product by hand from what the sequence for a Hopper imports, with one, two and four chunks a row of a tile, stored by one
/// call a tile and by two.
fn hopper() -> [String; 3] {
    let by_hand = fs::read_to_string("tests/peak/hopper.cu").unwrap();
    [(64, 256), (128, 128), (128, 64)].map(|(rows, columns)| {
        let sizes = format!("#define GROUP_ROWS {rows}\n#define TILE_COLUMNS {columns}\n");
        format!("{}{sizes}{by_hand}", imports("peak-h200-fp16"))
    })
}

/// A product in single precision by hand from what the sequence of parts in bfloat16 imports.
fn parts() -> String {
    format!("{}{}", imports("peak-h200-bf16x6"), fs::read_to_string("tests/peak/bf16.cu").unwrap())
}

#[test]
#[cfg_attr(not(all(has_gpu, has_nvcc)), ignore = "needs a Hopper GPU and nvcc")]
fn the_texts_for_a_hopper_make_a_right_product() {
    let folder = tempfile::tempdir().unwrap();
    let halves = hopper().map(|text| ("examples/cuda/matmul_fp16", text));
    for (at, (task, text)) in halves.into_iter().chain([("examples/cuda/matmul_fp32", parts())]).enumerate() {
        let file = folder.path().join(format!("{at}.cu"));
        fs::write(&file, text).unwrap();
        let told = run(&["evaluate", task, &file.display().to_string(), "--json"]).ended(0);
        let found: Value = serde_json::from_str(&told.out).unwrap();
        assert!(found["evaluation"]["passed"].is_object(), "{found}");
    }
}

/// Compiles a text to a GPU's own code by a real nvcc, where a warning is a fault.
fn compile(arch: &str, text: &str) {
    let nvcc = kernelbench::cuda::find_nvcc().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.cu");
    fs::write(&source, text).unwrap();
    let mut command = Command::new(&nvcc);
    command.args([&format!("-arch={arch}"), "-std=c++17", "-O1", "-Werror=all-warnings", "-cubin", "-I"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("kernelbench/src/backend/cuda")).arg("-o");
    let built = command.arg(folder.path().join("cubin")).arg(&source).output().unwrap();
    assert!(built.status.success(), "{arch}: {text}: {}", String::from_utf8_lossy(&built.stderr));
}

const BEFORE: &str = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <cuda_fp8.h>\n#include <stdint.h>\n#define WS_INVALID 1\n";

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn the_examples_and_the_verifier_are_cuda() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = fs::read_dir(root.join("examples/cuda")).unwrap().map(|folder| folder.unwrap().path());
    let reference = |task: PathBuf| format!("{BEFORE}{}", kernelbench::load::task(&task).unwrap().reference());
    let verifier = fs::read_to_string(root.join("kernelbench/src/backend/cuda/verifier.cu")).unwrap();
    let sequences = ["peak-a6000-fp32", "peak-a6000-fp16", "peak-h200-fp16", "peak-h200-fp32"];
    let imported = sequences.map(|name| format!("{BEFORE}{}", imports(name)));
    let by_hand = hopper().into_iter().chain([parts()]).map(|text| format!("{BEFORE}{text}"));
    let sources = examples.filter(|path| path.is_dir()).map(reference).chain([verifier]);
    let sources: Vec<String> = sources.chain(imported).chain(by_hand).collect();
    assert!(sources.len() >= 16, "{sources:?}");
    for text in sources {
        compile("sm_90a", &text);
    }
}

/// What all transformations for an architecture import, each text once.
fn imported_for(arch: &str) -> Vec<String> {
    let catalogue = prompts::Catalogue::embedded();
    let all = catalogue.all().iter().map(|listed| &listed.transformation);
    let here = all.filter(|one| one.arch.is_empty() || one.arch.iter().any(|known| known == arch));
    let mut texts = vec![];
    for text in here.flat_map(|one| catalogue.imported(one, "cuda")) {
        if !texts.iter().any(|known| known == text) {
            texts.push(text.to_owned());
        }
    }
    texts
}

/// The functions that a text defines on the GPU or on the host.
fn functions(text: &str) -> Vec<&str> {
    let begins = ["__device__ __forceinline__ ", "__host__ __device__ constexpr ", "inline bool "];
    let defining =
        text.lines().filter(|line| !line.starts_with("//") && begins.iter().any(|begin| line.contains(begin)));
    defining.map(|line| line.split_once('(').unwrap().0.rsplit([' ', '*']).next().unwrap()).collect()
}

/// ptxas reads the instructions of a function only where a kernel calls it.
#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn every_text_that_is_imported_assembles_for_the_gpus_that_it_is_for() {
    let calls = fs::read_to_string("tests/peak/snippets.cu").unwrap();
    let [ampere, hopper] = ["sm_80", "sm_90a"].map(imported_for);
    let snippets = fs::read_dir("prompts/transformations/snippets").unwrap().map(|file| file.unwrap().path());
    let texts = snippets.filter(|path| path.extension().is_some_and(|ending| ending == "cu"));
    for text in texts.map(|path| fs::read_to_string(path).unwrap()) {
        assert!(hopper.contains(&text), "nothing imports it: {text}");
        assert!(!functions(&text).is_empty(), "{text}");
        let own = text.lines().filter(|line| line.starts_with(' ')).chain(calls.lines());
        let called: Vec<&str> = own.flat_map(|line| line.split(|c: char| c != '_' && !c.is_alphanumeric())).collect();
        for name in functions(&text) {
            assert!(called.contains(&name), "tests/peak/snippets.cu does not call {name}");
        }
    }
    assert_eq!((ampere.len(), hopper.len()), (4, 9));
    compile("sm_80", &[BEFORE, &ampere.concat(), &calls].concat());
    compile("sm_90a", &[BEFORE, "#define HOPPER\n", &hopper.concat(), &calls].concat());
}
