//! Kernels in HIP as a user meets them: compiled for AMD GPUs that are not here, and never timed.

use crate::program::{self, Told, run, warpsmith};
use agents::policy::Policy;
use kernelbench::Gfx;
use serde_json::{Value, json};
use std::{fs, path::Path};

const EXAMPLE: &str = "examples/hip/matmul_fp32";
const HALF: &str = "examples/hip/matmul_fp16";
const SAID: &str = "compiled, not run, for gfx";

const SIZES: &str = "#define TILE_K {{TILE_K_SIZE}}\n";
const WARPS: &str = "#define TILE_K {{TILE_K_SIZE}}\n#define WARPS {{WARP_X_DIM}}\n";
/// One wavefront a fragment of c, through tiles in fast memory, with what two transformations bring along.
const MATRIX: &str = "
__global__ static void product(float *c, const float *a, const float *b, int n) {
    __shared__ float a_tile[16 * TILE_K], b_tile[TILE_K * 16];
    FragmentC sum;
    fragment_clear(sum);
    for (int k = 0; k < n; k += TILE_K) {
        copy_tile<16, TILE_K>(a_tile, a + blockIdx.y * 16 * n + k, n);
        copy_tile<TILE_K, 16>(b_tile, b + k * n + blockIdx.x * 16, n);
        __syncthreads();
        for (int at = 0; at < TILE_K; at += 16) {
            Fragment<float> one, other;
            fragment_load_a(one, a_tile + at, TILE_K);
            fragment_load_b(other, b_tile + at * 16, 16);
            fragment_multiply(sum, one, other);
        }
        __syncthreads();
    }
    fragment_store(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n);
}
";
const HALVES: &str = "
__global__ static void halves(float *c, const _Float16 *a) {
    FragmentC sum;
    Fragment<_Float16> one, other;
    fragment_clear(sum);
    fragment_load_a(one, a, 16);
    fragment_load_b(other, a, 16);
    fragment_multiply(sum, one, other);
    fragment_store(c, sum, 16);
}
";

/// Halves by the names that CUDA has for them, too: each once.
const PAIRS: &str = "
__global__ static void pairs(__half2 *c, const __half2 *a, const float *f) {
    __half2 x = a[threadIdx.x], y = __floats2half2_rn(f[0], f[1]), z = __float2half2_rn(f[2]);
    x = __hfma2(__hadd2(x, y), __hsub2(x, z), __hmul2(y, z));
    __half s = __hfma(__low2half(x), __high2half(y), __hadd(__float2half_rn(f[3]), __hsub(z.x, __hmul(x.x, y.y))));
    float2 w = __half22float2(__half2half2(s));
    c[threadIdx.x] = __halves2half2(__float2half(w.x + __low2float(x)), __float2half(w.y + __high2float(y)));
}
";

/// What every compiler here knows; gfx950 has tests of its own.
const OLDER: [Gfx; 2] = [Gfx::Gfx90a, Gfx::Gfx942];

/// A copy of an example for an architecture.
fn task(place: &Path, example: &str, arch: Gfx) -> String {
    let folder = place.join(arch.name());
    fs::create_dir(&folder).unwrap();
    let text = fs::read_to_string(format!("{example}/task.toml")).unwrap();
    fs::write(folder.join("task.toml"), text.replace("\"gfx90a\"", &format!("\"{arch}\""))).unwrap();
    fs::copy(format!("{example}/reference.hip"), folder.join("reference.hip")).unwrap();
    folder.display().to_string()
}

/// An example's reference's regions, device and host.
fn regions(example: &str) -> [String; 2] {
    let text = fs::read_to_string(format!("{example}/reference.hip")).unwrap();
    let (_, rest) = text.split_once("// region: device\n").unwrap();
    let (device, host) = rest.split_once("// region: host\n").unwrap();
    [device, host].map(str::to_owned)
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn the_examples_are_compiled_for_each_architecture_and_no_time_is_told() {
    no_time_is_told(EXAMPLE, &OLDER);
    no_time_is_told(HALF, &OLDER);
}

#[test]
#[cfg_attr(not(has_gfx950), ignore = "needs clang 20 or newer and lld, for gfx950")]
fn the_examples_are_compiled_for_gfx950_as_well() {
    no_time_is_told(EXAMPLE, &[Gfx::Gfx950]);
    no_time_is_told(HALF, &[Gfx::Gfx950]);
}

fn no_time_is_told(example: &str, archs: &[Gfx]) {
    let place = tempfile::tempdir().unwrap();
    for arch in archs {
        let task = task(place.path(), example, *arch);
        let reference = format!("{task}/reference.hip");
        let told = run(&["evaluate", &task, &reference]).ended(0).out;
        assert!(told.contains(&format!("compiled, not run, for {arch}: product with")), "{told}");
        assert!(told.contains("the first that compiles") && !told.contains("correct"), "{told}");
        assert!(!told.contains("nothing is certified"), "nobody asked: {told}");
        let told = run(&["evaluate", &task, &reference, "--certify"]).ended(0).out;
        let said = "nothing is certified: the kernels were compiled, and not run";
        assert_eq!(told.matches(said).count(), 1, "{told}");
        let told = run(&["evaluate", &task, &reference, "--certify", "--json"]).ended(0).out;
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told["uncertified"], &told["certificate"]), (&json!(said), &Value::Null));
        let kernels = &told["evaluation"]["compiled"]["kernels"];
        assert!(kernels[0]["vgprs"].as_u64().unwrap() > 0 && kernels[0]["mfma"] == 0, "{told}");
        assert!(told["baseline"]["timings"].as_array().unwrap().is_empty() && told["roofline"] == json!([]), "{told}");
    }
}

/// Every text that a transformation brings along is used, in both types.
#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn every_snippet_for_hip_compiles_for_each_architecture() {
    every_snippet_compiles(&OLDER);
}

#[test]
#[cfg_attr(not(has_gfx950), ignore = "needs clang 20 or newer and lld, for gfx950")]
fn every_snippet_for_hip_compiles_for_gfx950_as_well() {
    every_snippet_compiles(&[Gfx::Gfx950]);
}

fn every_snippet_compiles(archs: &[Gfx]) {
    let place = tempfile::tempdir().unwrap();
    let snippets = fs::read_dir("prompts/transformations/snippets").unwrap().map(|file| file.unwrap().path());
    let mut texts: Vec<String> = vec!["#define TILE_K 32\n".into()];
    texts.extend(
        snippets
            .filter(|path| path.extension().is_some_and(|ending| ending == "hip"))
            .map(|path| fs::read_to_string(path).unwrap()),
    );
    assert_eq!(texts.len(), 3);
    let [_, host] = regions(EXAMPLE);
    texts.extend([MATRIX.to_owned(), HALVES.to_owned(), PAIRS.to_owned(), host]);
    let candidate = place.path().join("candidate.hip");
    fs::write(&candidate, texts.concat()).unwrap();
    for arch in archs {
        let told = run(&["evaluate", &task(place.path(), EXAMPLE, *arch), &candidate.display().to_string(), "--json"])
            .ended(0);
        let told: Value = serde_json::from_str(&told.out).unwrap();
        let kernels = told["evaluation"]["compiled"]["kernels"].as_array().unwrap().clone();
        let mfma = |name: &str| {
            kernels.iter().find(|one| one["name"].as_str().unwrap().contains(name)).unwrap()["mfma"].clone()
        };
        assert!(mfma("product").as_u64().unwrap() >= 4, "{arch}: {kernels:?}");
        assert_eq!(mfma("halves"), 1, "{arch}: {kernels:?}");
    }
}

fn entry(round: u32, part: &str, text: &str) -> String {
    let region = part.split_once('.').unwrap().1;
    let reply = format!("```hip\n// region: {region}\n{text}```\n");
    json!({"role": "coder", "round": round, "purpose": "transform", "part": part, "reply": reply}).to_string()
}

/// Replies to PEAK's sequence for an MI200; the first try at TB-Tiling does not compile.
fn script() -> String {
    let [device, host] = regions(EXAMPLE);
    let tiled = |round: u32, kernel: &str| {
        let part = |part: &str| match part.split_once('.').unwrap().1 {
            "macros" => entry(round, part, SIZES),
            "device" => entry(round, part, kernel),
            _ => entry(round, part, &host),
        };
        ["1.macros", "2.device", "2.host", "3.macros", "3.device", "4.device", "5.device", "6.macros", "6.host"]
            .map(part)
    };
    let refactored =
        [entry(1, "1.macros", "#define ONE 1\n"), entry(1, "1.device", &device), entry(1, "2.device", &device)];
    let broken = device.replace("float sum = 0.0f", "float sum = nothing");
    let wide = format!("// {{{{TENSOR_X}}}} by {{{{TENSOR_Y}}}}{MATRIX}");
    let matrix = [
        entry(4, "1.macros", WARPS),
        entry(5, "1.device", MATRIX),
        entry(6, "1.device", &wide),
        entry(6, "1.host", &host),
    ];
    let all = refactored.into_iter().chain(tiled(2, &broken)).chain(tiled(3, &device)).chain(matrix);
    all.collect::<Vec<_>>().join("\n")
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn a_sequence_of_peak_s_goes_its_way_and_where_a_time_would_stand_it_says_that_nothing_was_run() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    fs::write(at("script.jsonl"), script()).unwrap();
    let (model, out) = (format!("scripted:{}", at("script.jsonl")), at("W"));
    let told = run(&["run", EXAMPLE, "--policy", "peak-mi200-fp32", "--model", &model, "--out", &out]).ended(0);
    assert!(told.out.contains("use of undeclared identifier 'nothing'"), "{told:?}");
    assert!(told.out.contains("ended: every transformation of the sequence was applied"), "{told:?}");
    assert!(told.out.contains(" compiled  ") && !told.out.contains(" valid  "), "nobody found one valid: {told:?}");
    assert!(told.out.contains(&format!("result     {SAID}")) && !told.out.contains(" certified,"), "{told:?}");
    let tree: Value = serde_json::from_str(&run(&["tree", &out, "--json"]).ended(0).out).unwrap();
    let checkpoints = tree["checkpoints"].as_array().unwrap();
    assert_eq!((checkpoints.len(), tree["head"].as_str()), (6, Some("c5")), "{tree}");
    // The first configuration of the space stays, and is what the next step extends.
    assert_eq!((&checkpoints[5]["kept"], &checkpoints[5]["speedup"]), (&json!(1), &Value::Null), "{tree}");
    let first = &checkpoints[5]["bindings"];
    assert_eq!(
        (&first["BLOCK_X"], &first["BLOCK_Y"], &first["TENSOR_X"]),
        (&json!(16), &json!(16), &json!(2)),
        "{tree}"
    );
    let says = |arguments: &[&str]| {
        let told = run(arguments).ended(0).out;
        assert!(told.contains("compiled, not run"), "{arguments:?}: {told}");
    };
    says(&["tree", &out]);
    says(&["show", &out]);
    says(&["show", &out, "6"]);
    says(&["status", &out]);
    says(&["compare", &format!("{out}@c1"), &format!("{out}@c5")]);
    assert!(run(&["replay", &out]).ended(0).out.contains("agrees with the record"));
    run(&["verify", &out]).ended(0);
    let report = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(report.contains("Compiled, not run, for gfx90a") && !report.contains("Speedup by round"));
    assert!(fs::read_to_string(Path::new(&out).join("best.hip")).unwrap().contains("fragment_multiply"));
    assert!(run(&["scores", &out]).ended(2).err.contains("compiled, not run, and there is no speed to score"));
}

/// Replies to PEAK's sequence for an MI200 in half precision: a kernel on the matrix cores once there are fragments, and the names
/// of all parameters that there are by then.
fn script_in_half(sequence: &[String]) -> String {
    let ([device, host], catalogue) = (regions(HALF), prompts::Catalogue::embedded());
    let matrix =
        MATRIX.replace("float *c, const float *a, const float *b", "__half *c, const __half *a, const __half *b");
    let matrix =
        matrix.replace("__shared__ float", "__shared__ __half").replace("Fragment<float>", "Fragment<_Float16>");
    let (mut parameters, mut kernel, mut entries) = (String::new(), device, vec![]);
    for (round, name) in (1..).zip(sequence) {
        let step = &catalogue.named(name).unwrap().transformation;
        parameters.extend(step.parameters.grid.keys().map(|name| format!("// {{{{{name}}}}}\n")));
        if name == "Tensor-Core-HIP" {
            kernel.clone_from(&matrix);
        }
        for (pass, calls) in (1..).zip(&step.passes) {
            for call in &calls.calls {
                let text = match call.region.as_str() {
                    "macros" if round > 1 => format!("{parameters}{SIZES}"),
                    "macros" => "#define ONE 1\n".to_owned(),
                    "device" => format!("{parameters}{kernel}"),
                    _ => host.clone(),
                };
                entries.push(entry(round, &format!("{pass}.{}", call.region), &text));
            }
        }
    }
    entries.join("\n")
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn the_sequence_in_half_precision_takes_each_of_its_eight_transformations() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let policy = fs::read_to_string("agents/policies/peak-mi200-fp16.toml").unwrap();
    let sequence = Policy::parse(&policy).unwrap().sequence.unwrap();
    assert!(policy.contains("samples = 16"));
    fs::write(at("policy.toml"), policy.replace("samples = 16", "samples = 2")).unwrap();
    fs::write(at("script.jsonl"), script_in_half(&sequence)).unwrap();
    let model = format!("scripted:{}", at("script.jsonl"));
    let told = run(&["run", HALF, "--policy", &at("policy.toml"), "--model", &model, "--out", &at("W")]).ended(0);
    assert!(told.out.contains("ended: every transformation of the sequence was applied"), "{told:?}");
    let tree: Value = serde_json::from_str(&run(&["tree", &at("W"), "--json"]).ended(0).out).unwrap();
    let applied: Vec<&str> =
        tree["checkpoints"].as_array().unwrap().iter().filter_map(|one| one["transformation"].as_str()).collect();
    assert_eq!(applied, sequence, "{tree}");
    assert!(fs::read_to_string(at("W/best.hip")).unwrap().contains("Fragment<_Float16>"));
}

#[test]
#[cfg_attr(not(has_hip), ignore = "needs clang 19 or newer and lld, for AMD GPUs")]
fn a_loop_ends_with_the_first_candidate_that_compiles_and_a_batch_and_a_search_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let [device, host] = regions(EXAMPLE);
    let reply = format!("```hip\n{device}{host}```\n").replace("{{BLOCK_X}}", "16").replace("{{BLOCK_Y}}", "16");
    fs::write(at("script.jsonl"), json!({"role": "coder", "round": 1, "purpose": "seed", "reply": reply}).to_string())
        .unwrap();
    let (model, out) = (format!("scripted:{}", at("script.jsonl")), at("W"));
    let told = run(&["run", EXAMPLE, "--policy", "single-shot", "--model", &model, "--out", &out]).ended(0);
    assert!(told.out.contains("ended: a candidate compiles") && told.out.contains(SAID), "{told:?}");
    let broken = format!("```hip\n{host}```\n");
    fs::write(at("broken.jsonl"), json!({"role": "coder", "round": 1, "purpose": "seed", "reply": broken}).to_string())
        .unwrap();
    let nothing = format!("scripted:{}", at("broken.jsonl"));
    let told = run(&["run", EXAMPLE, "--policy", "single-shot", "--model", &nothing, "--out", &at("N")]).ended(1);
    assert!(told.out.contains("result     no candidate compiles") && !told.out.contains("correct and"), "{told:?}");
    let told = run(&["batch", EXAMPLE, "--model", &model, "--out", &at("B")]).ended(2);
    assert!(told.err.contains("is compiled, not run, and has no times to score"), "{told:?}");
    let told = run(&["run", EXAMPLE, "--policy", "qimeng", "--model", &model, "--out", &at("Q")]).ended(2);
    assert!(told.err.contains("is compiled, not run: a search ranks operators by their times"), "{told:?}");
}

#[test]
fn a_compiler_that_is_missing_is_told_in_one_sentence_with_the_packages_that_bring_it() {
    let with = |arguments: &[&str]| {
        let mut command = warpsmith(arguments);
        Told::of(command.env("WARPSMITH_HIPCC", "/nowhere/clang++").output().unwrap())
    };
    let told = with(&["evaluate", EXAMPLE, &format!("{EXAMPLE}/reference.hip")]);
    let packages = "install clang-19 and lld-19 (Debian: apt) for gfx90a and gfx942, clang 20 or newer for gfx950";
    assert!(told.code != Some(0) && told.err.contains("WARPSMITH_HIPCC names /nowhere/clang++"), "{told:?}");
    assert!(told.err.contains(packages), "{told:?}");
    let told = with(&["doctor"]).out;
    assert!(told.contains("no  HIP for gfx950") && told.contains(packages), "{told}");
    let place = tempfile::tempdir().unwrap();
    let old = place.path().join("clang++");
    program::executable(&old, "#!/bin/sh\necho clang version 14.0.6\n");
    let told = |program: &Path| {
        let mut command = warpsmith(&["doctor"]);
        Told::of(command.env("WARPSMITH_HIPCC", program).output().unwrap()).out
    };
    let said = told(&old);
    assert!(said.contains("no  HIP for gfx90a (AMD MI200): clang version 14.0.6 is older than 19: install"), "{said}");
    // Whatever it knows, it needs its linker.
    fs::write(&old, "#!/bin/sh\necho clang version 22.1.0\n").unwrap();
    let mut alone = warpsmith(&["doctor"]);
    let said = Told::of(alone.env("WARPSMITH_HIPCC", &old).env("PATH", "/nowhere").output().unwrap()).out;
    assert!(said.contains("clang version 22.1.0 is here without its lld: install"), "{said}");
}
