//! Features as a user meets them: listed, read, proved as far as this machine can, and refused in clear words

use crate::program::{Told, run, warpsmith};
use std::{fs, path::Path};

#[test]
fn the_features_of_an_architecture_are_listed_with_counter_and_state_for_people_and_for_scripts() {
    let listed = run(&["features", "list", "--arch", "sm_90"]).ended(0).out;
    assert_eq!(listed.lines().count(), 11, "{listed}");
    assert!(listed.contains("wgmma        measured     sm__inst_executed_pipe_tensor_op_gmma.sum"), "{listed}");
    let all: serde_json::Value = serde_json::from_str(&run(&["features", "list", "--json"]).ended(0).out).unwrap();
    let all = all.as_array().unwrap();
    assert!(all.iter().any(|cell| cell["cell"] == "roles" && cell["paper"] == 823.28));
    let states = |row: u8| {
        let of = |cell: &&serde_json::Value| cell["arch"] == "ampere" && cell["row"] == row;
        all.iter().find(of).map(|cell| cell["state"].as_str().unwrap())
    };
    assert_eq!([states(1), states(2), states(10)], [Some("compiled"), Some("unsupported"), Some("compiled")]);
}

#[test]
fn a_feature_is_shown_with_its_evidence_and_its_guide_and_its_kernel_compiles_as_it_is_printed() {
    let shown = run(&["features", "show", "wgmma"]).ended(0).out;
    for part in ["target sm__inst_executed_pipe_tensor_op_gmma.sum: 0 -> 262144", "NVIDIA H200", "## Protocol"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(run(&["features", "show", "5", "--kernel"]).ended(0).out.contains("extern \"C\" void"));
}

#[test]
fn what_is_unknown_or_wrong_is_said_with_what_there_is() {
    let said = |arguments: &[&str]| run(arguments).ended(2).err;
    assert!(said(&["features", "verify", "--arch", "hoper"]).contains("there is no architecture \"hoper\""));
    assert!(said(&["features", "show", "wgma"]).contains("it has wgmma, fp8"));
    let folder = tempfile::tempdir().unwrap();
    let own = |file: &str, text: &str| {
        let path = folder.path().join("features").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        warpsmith(&["features", "list"]).current_dir(folder.path()).output().map(Told::of).unwrap()
    };
    assert!(
        own("notes.md", "Something else.").ended(0).out.contains("wgmma"),
        "a folder of this name may be another's"
    );
    let said = own("mine/column.toml", "schema = 1\ntitle = 'Mine'\narchs = ['sm_121']\n").ended(0).out;
    assert!(said.contains("mine: Mine (sm_121a)"), "{said}");
    let said = own("mine/01_mma/guide.md", "").ended(2).err;
    assert!(said.contains("features/mine/01_mma/config.toml: this file is missing"), "{said}");
}

#[cfg_attr(any(has_gpu, not(has_nvcc)), ignore = "needs nvcc, and no GPU")]
#[test]
fn without_a_gpu_it_is_said_what_compiles_and_that_nothing_was_measured() {
    let out = tempfile::tempdir().unwrap();
    let told =
        run(&["features", "verify", "--arch", "hopper", "--cell", "vector", "-o", &out.path().display().to_string()]);
    let told = told.ended(3);
    assert!(told.out.contains("there is no GPU here") && told.out.contains("nothing is measured"), "{told:?}");
    assert!(told.out.contains("vector      compiles; "), "{told:?}");
    assert!(out.path().join("hopper/04_vector/task.toml").is_file());
}

#[cfg_attr(any(has_gpu, not(has_nvcc)), ignore = "needs nvcc, and no GPU")]
#[test]
fn a_kernel_may_include_cute_where_cutlass_is_named_and_a_folder_without_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let cell = folder.path().join("features/hopper/04_vector");
    fs::create_dir_all(&cell).unwrap();
    fs::copy("kernelbench/features/hopper/column.toml", folder.path().join("features/hopper/column.toml")).unwrap();
    for entry in fs::read_dir("kernelbench/features/hopper/04_vector").unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, cell.join(from.file_name().unwrap())).unwrap();
    }
    let kernel = cell.join("optimized.cu");
    let text = fs::read_to_string(&kernel).unwrap();
    fs::write(&kernel, format!("#include <cute/tensor.hpp>\nstatic_assert(cute::stands_in == 7);\n{text}")).unwrap();
    // Whoever compiles has no privileges, though this test may have some.
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let headers = folder.path().join("cutlass/include");
    for (path, text) in [
        ("cute/tensor.hpp", "#pragma once\nnamespace cute { constexpr int stands_in = 7; }\n"),
        ("cutlass/version.h", "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 3\n#define CUTLASS_PATCH 0\n"),
    ] {
        fs::create_dir_all(headers.join(path).parent().unwrap()).unwrap();
        fs::write(headers.join(path), text).unwrap();
    }
    let verify = |cutlass: &str| {
        let arguments = ["features", "verify", "--arch", "hopper", "--cell", "vector", "-o", "out"];
        let mut command = warpsmith(&arguments);
        command.current_dir(folder.path()).env("CUTLASS_PATH", cutlass).output().map(Told::of).unwrap()
    };
    let told = verify(headers.parent().unwrap().to_str().unwrap());
    assert!(told.out.contains("vector      compiles; "), "{told:?}");
    let told = verify("");
    assert!(told.out.contains("cute/tensor.hpp: No such file"), "{told:?}");
    let told = verify(folder.path().to_str().unwrap());
    assert!(told.err.contains("expected the absolute path of a folder that has include/cute/tensor.hpp"), "{told:?}");
}

#[cfg_attr(not(has_gfx950), ignore = "needs clang 20 or newer and lld, for gfx950")]
#[test]
fn all_cells_of_an_amd_gpu_compile_and_their_instructions_are_in_one_kernel_alone_and_nothing_is_scored() {
    let listed = run(&["features", "list", "--arch", "mi350"]).ended(0).out;
    assert_eq!(listed.matches("  compiled  ").count(), 10, "{listed}");
    let out = tempfile::tempdir().unwrap();
    let at = out.path().display().to_string();
    let told = run(&["features", "verify", "--arch", "mi350", "-o", &at]).ended(0).out;
    assert!(told.contains("AMD MI350 (CDNA 4) needs gfx950: nothing is measured"), "{told}");
    assert_eq!(told.matches("compiles; ").count(), 10, "{told}");
    for line in [
        "mfma        compiles; v_mfma_f32_32x32x16_bf16, v_accvgpr_read in the optimized kernel alone",
        "mxfp4       compiles; v_mfma_scale_f32_32x32x64_f8f6f4, v_cvt_scalef32_pk_fp4_bf16 in the optimized",
        "xcd         compiles; no instruction shows this feature: the same instructions",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    let model = ["features", "score", "--arch", "mi350", "--model", "openai:any", "-o", &at];
    assert!(run(&model).ended(2).err.contains("no kernel of this column is run"));
}

#[cfg_attr(not(has_gfx950), ignore = "needs clang 20 or newer and lld, for gfx950")]
#[test]
fn an_instruction_of_inline_assembly_or_of_both_kernels_shows_no_feature() {
    let folder = tempfile::tempdir().unwrap();
    let cell = folder.path().join("features/mi350/04_vector");
    fs::create_dir_all(&cell).unwrap();
    fs::copy("kernelbench/features/mi350/column.toml", folder.path().join("features/mi350/column.toml")).unwrap();
    let kept = fs::read_to_string("kernelbench/features/mi350/04_vector/naive.hip").unwrap();
    let wide = fs::read_to_string("kernelbench/features/mi350/04_vector/optimized.hip").unwrap();
    let inline = kept.replace(
        "    const int64_t threads",
        "    asm volatile(\"global_load_dwordx4 v[0:3], v[4:5], off\");\n    const int64_t threads",
    );
    assert_ne!(inline, kept);
    let verify = |name: &str, text: &str| {
        fs::write(cell.join(name), text).unwrap();
        let arguments = ["features", "verify", "--arch", "mi350", "--cell", "vector", "-o", "out"];
        warpsmith(&arguments).current_dir(folder.path()).output().map(Told::of).unwrap().ended(1).out
    };
    let told = verify("optimized.hip", &inline);
    assert!(told.contains("global_load_dwordx4 is not in the optimized kernel"), "{told}");
    let told = verify("naive.hip", &wide);
    assert!(told.contains("global_load_dwordx4 is in the naive kernel"), "{told}");
    let told = verify("naive.hip", &kept.replace("fmaf(scale", "fmaf(none"));
    assert!(told.contains("the naive kernel does not build for gfx950"), "{told}");
}

#[cfg_attr(has_gpu, ignore = "needs a machine without a GPU")]
#[test]
fn without_a_gpu_and_without_nvcc_one_sentence_says_so() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().display().to_string();
    let mut command = warpsmith(&["features", "verify", "--arch", "hopper", "-o", &out]);
    for name in ["NVCC", "CUDA_HOME", "CUDA_PATH"] {
        command.env_remove(name);
    }
    let told = command.env("PATH", "/nowhere").output().map(Told::of).unwrap();
    if !std::path::Path::new("/usr/local/cuda/bin/nvcc").is_file() {
        let said = told.ended(3).err;
        assert!(said.contains("there is no GPU here") && said.contains("there is no nvcc"), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}

/// A script in which the Judge asks for a feature and the Coder's candidates do what they do.
fn script() -> String {
    let advice = |feature: &str| {
        format!(
            r#"{{"features": ["{feature}"], "bottleneck": "narrow loads", "optimization method": "wide loads", "modification plan": "uint4"}}"#
        )
    };
    let code = |does: &str| format!("```cpp\n// simulate: {does}\nvoid silu_and_mul() {{}}\n```");
    let reads = |sectors: u32, loads: u32| {
        format!(
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio={sectors} \
             smsp__sass_inst_executed_op_global_ld.sum={loads}"
        )
    };
    let mut script = String::new();
    let mut entry = |role: &str, round: u32, reply: &str| {
        let lines = ["[[entry]]".to_owned(), format!("role = \"{role}\""), format!("round = {round}")];
        script += &[&lines.join("\n"), "\nreply = '''\n", reply, "\n'''\n"].concat();
    };
    entry("planner", 1, r#"{"approaches": ["Whole vectors.", "Two rows at once.", "A table."]}"#);
    entry("coder", 1, &code(&format!("us=90 {}", reads(2, 80))));
    entry("judge", 2, &advice("vector"));
    entry("coder", 2, &code(&format!("us=120 {}", reads(2, 80))));
    entry("judge", 3, &advice("vector"));
    entry("coder", 3, &code(&format!("us=60 {}", reads(16, 10))));
    script
}

#[test]
fn a_turn_says_bottleneck_feature_counter_ratio_and_what_goes_on_and_a_record_that_was_changed_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(folder.path().join("script.toml"), script()).unwrap();
    let model = format!("scripted:{}", path("script.toml"));
    let (task, run_folder) = ("examples/silu_and_mul", path("run"));
    let hawkeye = ["run", task, "--simulate", "--policy", "hawkeye", "--rounds", "3", "--repetitions", "20"];
    let said = run(&[&hawkeye[..], &["--model", &model, "--out", &run_folder]].concat()).ended(0).out;
    for line in [
        "features   guides of NVIDIA Hopper (H100, H200)",
        "plan A: Whole vectors.",
        "judge, bottleneck: narrow loads",
        "feature vector: fired (l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio 2 -> 16, 8.00x)",
        "over the head; accepted: faster, and the feature fired; turns left: 0",
        "feature vector: not fired",
        "taken back: not faster, feature not fired; turns left: 1",
    ] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    assert!(run(&["show", &run_folder, "1"]).ended(0).out.contains("approach C: A table."));
    let report = fs::read_to_string(folder.path().join("run/report.html")).unwrap();
    assert!(report.contains("<li>Two rows at once.</li>"), "the report has what was ranked");
    let seed = ["prompts", "render", "--run", &run_folder, "--round", "1"];
    assert!(run(&seed).ended(0).out.contains("- B: Two rows at once."), "as it was sent");
    assert!(run(&["show", &run_folder, "3"]).ended(0).out.contains("feature vector: fired"));
    assert!(run(&["prompts", "render", "--run", &run_folder, "--round", "2"]).ended(0).out.contains("## vector"));
    let judge = ["prompts", "render", "--run", &run_folder, "--round", "3", "--role", "judge"];
    assert!(run(&judge).ended(0).out.contains("ratio = 2)"), "a round's profile is what its base was weighed by");
    run(&["verify", &run_folder]).ended(0);
    run(&["replay", &run_folder]).ended(0);
    let told: serde_json::Value =
        serde_json::from_str(&run(&["features", "report", &run_folder, "--json"]).ended(0).out).unwrap();
    let (stacking, number) = (&told["tasks"][0]["stacking"], |value: &serde_json::Value| value.as_f64().unwrap());
    let credits = stacking["credits"].as_array().unwrap();
    let sum: f64 = credits.iter().map(|credit| number(&credit["delta"])).sum();
    assert!((sum - number(&stacking["turns"][2]["speed"])).abs() < 1e-9, "the credits add up to the head: {stacking}");
    assert_eq!((credits.len(), &credits[0]["counter"]), (2, &"time alone".into()));
    assert!(credits[1]["counter"].as_str().unwrap().starts_with("l1tex__average_t_sectors_per_request"), "{credits:?}");
    let told = run(&["features", "report", &run_folder, "--expert", "1000"]).ended(0).out;
    assert!(told.contains(", a collapse") && told.contains("strategies in 1 final kernels"), "{told}");
    a_later_run_is_shown_what_was_admitted(folder.path(), &run_folder, &model);
    let events = folder.path().join("run/tasks/silu_and_mul/events.jsonl");
    let text = fs::read_to_string(&events).unwrap();
    fs::write(&events, text.replacen("\"accepted\":false", "\"accepted\":true", 1)).unwrap();
    assert!(run(&["verify", &run_folder]).ended(1).out.contains("was weighed as"));
    let refused = run(&["pool", "add", &run_folder, "--pool", &path("pool")]).ended(1).out;
    assert!(refused.contains("not admitted: the record does not agree with itself: event"), "{refused}");
}

/// Admits what a run certified, once, and looks at the first prompt of another task's run.
fn a_later_run_is_shown_what_was_admitted(folder: &Path, earlier: &str, model: &str) {
    let path = |name: &str| folder.join(name).display().to_string();
    let add = ["pool", "add", earlier, "--as", "gate", "--pool", &path("pool"), "--simulated"];
    assert!(run(&add[..7]).ended(1).out.contains("not admitted: the run was simulated"));
    let said = run(&add).ended(0).out;
    assert!(said.contains("admitted: ") && said.contains("gate_f32"), "{said}");
    let again = run(&add).ended(1).out;
    assert!(again.contains("is not faster than the") && again.contains("that is there"), "{again}");
    assert!(run(&["pool", "list", "--pool", &path("pool")]).ended(0).out.contains("gate_f32"));
    what_it_taught_is_kept_beside_it(folder, earlier);
    fs::write(folder.join("with_pool.toml"), format!("[prompts]\npool = \"{}\"\n", path("pool")))
        .expect("a folder of this test's");
    let (settings, later) = (path("with_pool.toml"), path("later"));
    let counted = folder.join("counted");
    fs::create_dir(&counted).expect("a folder of this test's");
    for file in ["task.toml", "reference.cpp"] {
        let text = fs::read_to_string(Path::new("examples/fused_add_rmsnorm").join(file)).expect("an example");
        let text = text.replace("reference = ", "operations = \"6 * tokens * hidden\"\nreference = ");
        fs::write(counted.join(file), text).expect("a folder of this test's");
    }
    let counted = path("counted");
    let task = ["run", &counted, "--simulate", "--policy", "hawkeye", "--rounds", "1", "--repetitions", "20"];
    let said = run(&[&["--config", &settings][..], &task, &["--model", model, "--out", &later]].concat()).out;
    let turn: Vec<&str> = said.lines().skip_while(|line| !line.contains("GFLOPS")).take(2).collect();
    assert!(turn.get(1).is_some_and(|line| line.contains("accepted: the first that is right")), "{said}");
    assert!(run(&["features", "report", &later]).ended(0).out.contains("GFLOPS in 1 turns"), "in the same unit");
    let render = ["prompts", "render", "--run", &later, "--round", "1"];
    let with = run(&[&["--config", &settings][..], &render].concat()).ended(0).out;
    assert!(with.contains("# Kernels from here") && with.contains("## gate_f32, "), "{with}");
    assert!(with.contains("// simulate: us=60"), "the certified one is shown: {with}");
    assert!(with.contains("```text\nRead whole vectors. Seen: Round 3 after round 1. Of use: Where loads"), "{with}");
    assert_eq!(run(&render).ended(0).out.matches("Kernels from here").count(), 0, "none without a pool");
    let asked = texts(&folder.join("later/blobs")).into_iter().any(|text| text.contains("## gate_f32, "));
    assert!(asked, "the model was asked with it");
}

/// Asks what a run taught, whose kernel is in the pool, and one whose kernel is not.
fn what_it_taught_is_kept_beside_it(folder: &Path, run_folder: &str) {
    let path = |name: &str| folder.join(name).display().to_string();
    let reflection = |insight: &str| {
        let one = format!(
            r#"{{"insight": "{insight}", "evidence": "Round 3 after round 1.", "applies": "Where loads\nbound it."}}"#
        );
        let reply = format!(r#"{{"reflections": [{one}]}}"#);
        let line = serde_json::json!({"role": "planner", "purpose": "reflect", "reply": reply});
        fs::write(folder.join("reflects.jsonl"), line.to_string()).expect("a folder of this test's");
        format!("scripted:{}", path("reflects.jsonl"))
    };
    let ask = |model: &str, pool: &str| run(&["pool", "reflect", run_folder, "--model", model, "--pool", &path(pool)]);
    let elsewhere = ask(&reflection("Read."), "nothing").ended(1).out;
    assert!(elsewhere.contains("nobody was asked: its kernel is not in"), "{elsewhere}");
    let letters = format!("mailbox:{}", path("reflects"));
    let waits = ["pool", "reflect", run_folder, "--model", &letters, "--pool", &path("pool"), "--exit-when-waiting"];
    run(&waits).ended(10);
    let asked = texts(&folder.join("reflects")).into_iter().find(|text| text.contains("The kernel that was certified"));
    let asked = asked.expect("a letter");
    for told in ["round 1, seed", "round 3, optimize", "; the advice was: ", "// simulate: us=60"] {
        assert!(asked.contains(told), "{told}: {asked}");
    }
    let prose = ask(&reflection(""), "pool").ended(4).err;
    assert!(prose.contains("`reflection 1: insight` is empty"), "{prose}");
    let said = ask(&reflection("Read whole vectors."), "pool").ended(0).out;
    assert!(said.contains("gate_f32 taught, as ") && said.contains("  Read whole vectors.\n"), "{said}");
    let listed = run(&["pool", "list", "--pool", &path("pool"), "--json"]).ended(0).out;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed[0]["reflections"][0]["applies"], "Where loads bound it.");
}

#[test]
fn what_is_wrong_or_takes_its_work_from_a_library_does_not_come_into_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, code, why) in [
        ("wrong", "// simulate: wrong", "nothing in this run is certified"),
        ("slow", "// simulate: us=150", "it is not faster than the reference"),
        (
            "library",
            "// simulate: us=50\n#include <cublas_v2.h>",
            "takes its work from a library: it includes cublas_v2.h",
        ),
    ] {
        let reply = format!("```cpp\n{code}\nvoid silu_and_mul() {{}}\n```");
        fs::write(
            folder.path().join("script.toml"),
            format!("[[entry]]\nrole = \"coder\"\nreply = '''\n{reply}\n'''\n"),
        )
        .unwrap();
        let (model, out) = (format!("scripted:{}", path("script.toml")), path(name));
        let task = ["run", "examples/silu_and_mul", "--simulate", "--policy", "single-shot", "--repetitions", "20"];
        run(&[&task[..], &["--model", &model, "--out", &out]].concat());
        let said = run(&["pool", "add", &out, "--pool", &path("pool"), "--simulated"]).ended(1).out;
        assert!(said.contains("not admitted: ") && said.contains(why), "{said}");
    }
    assert!(!folder.path().join("pool").exists());
    assert!(run(&["pool", "list", "--pool", &path("pool")]).ended(0).out.contains("no kernel yet"));
}

/// All texts below a folder.
fn texts(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder)
        .expect("a folder of this test's")
        .map(|entry| entry.expect("a folder of this test's").path());
    paths
        .flat_map(|path| if path.is_dir() { texts(&path) } else { fs::read_to_string(path).into_iter().collect() })
        .collect()
}

#[cfg_attr(any(has_gpu, not(has_nvcc)), ignore = "needs nvcc, and no GPU")]
#[test]
fn without_a_gpu_a_models_first_replies_are_sorted_by_whether_they_compile_and_are_not_asked_for_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let right = run(&["features", "show", "vector", "--kernel"]).ended(0).out;
    let wrong = "#include <cuda.h>\nextern \"C\" void row_sums() { __pack_half2(1); }";
    let entry = |task: &str, code: &str| {
        format!("[[entry]]\nrole = \"coder\"\ntask = \"{task}\"\nreply = '''\n```cuda\n{code}\n```\n'''\n")
    };
    let foreign = "#include <cuda.h>\n__global__ void k() { asm(\"tcgen05.alloc;\"); }";
    let script =
        [entry("hopper_04_vector", &right), entry("hopper_08_shuffle", wrong), entry("hopper_01_wgmma", foreign)];
    fs::write(folder.path().join("script.toml"), script.concat()).unwrap();
    let (model, out) = (format!("scripted:{}", path("script.toml")), path("out"));
    let score = ["features", "score", "--arch", "hopper", "--cell", "vector", "--cell", "shuffle", "--cell", "wgmma"];
    let told = run(&[&score[..], &["--model", &model, "-o", &out]].concat()).ended(0).out;
    for line in [
        "there is no GPU here",
        "vector      compiles",
        "shuffle     invalid syntax (invented: __pack_half2)",
        "wgmma       wrong architecture",
        "Pass@1 on NVIDIA Hopper (H100, H200): 0 of 3 (1 compiles, 1 invalid syntax, 1 wrong architecture)",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    fs::write(folder.path().join("empty.toml"), "").unwrap();
    let nobody = format!("scripted:{}", path("empty.toml"));
    let again = run(&[&score[..], &["--model", &nobody, "-o", &out, "--json"]].concat()).ended(0).out;
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["passed"], &again["cells"][0]["bucket"]), (&0.into(), &"compiles".into()));
}
