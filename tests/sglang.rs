//! Do operators come out of SGLang whole, and is what cannot come out named with what to do?
//!
//! `tests/sglang` is a tree of ours with SGLang's structure. What needs a compiler of CUDA runs where `NVCC` names one, and
//! what needs SGLang itself where `WARPSMITH_SGLANG` names a folder of site packages that holds it.

use crate::program::{self, Told};
use kernelbench::{Dtype, Gate, Hash, load};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sglang");

fn told(arguments: &[&str]) -> Told {
    program::warpsmith(arguments).output().map(Told::of).unwrap()
}

/// A copy of our tree, changed. There are blanks in its path.
fn copy(change: impl FnOnce(&Path)) -> tempfile::TempDir {
    fn all(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                all(&path, &target);
            } else {
                fs::copy(&path, target).unwrap();
            }
        }
    }
    let folder = tempfile::Builder::new().prefix("a tree of sglang ").tempdir().unwrap();
    all(Path::new(TREE), folder.path());
    change(folder.path());
    folder
}

/// Takes an operator out of a tree, without the gate.
fn extract(operator: &str, dtype: &str, tree: &Path) -> (Told, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (out, tree) = (folder.path().join("task").display().to_string(), tree.display().to_string());
    let arguments =
        ["sglang", "extract", operator, "-o", &out, "--dtype", dtype, "--sglang", &tree, "--no-gate", "--json"];
    (told(&arguments), folder)
}

#[test]
fn the_list_says_what_can_be_taken_out_and_why_the_rest_cannot() {
    let found: Value =
        serde_json::from_str(&told(&["sglang", "list", "--sglang", TREE, "--json"]).ended(0).out).unwrap();
    assert_eq!(found["version"], "0.0.1");
    let operators = found["operators"].as_array().unwrap();
    let why = |name: &str| operators.iter().find(|one| one["name"] == name).unwrap()["why_not"].clone();
    assert_eq!((why("silu_and_mul"), why("merge_attn_states")), (Value::Null, Value::Null));
    assert_eq!((why("qknorm"), why("qknorm_rope")), (Value::Null, Value::Null));
    assert!(why("topk_sum").as_str().unwrap().contains("moe/topk_sum.cuh is not there"), "{found}");
    let others = found["others"].as_array().unwrap();
    let other =
        |name: &str| others.iter().find(|one| one["name"] == name).unwrap()["why_not"].as_str().unwrap().to_owned();
    let short = told(&["sglang", "list", "--sglang", TREE]).ended(0).out;
    assert!(short.lines().count() < 20 && short.contains("(--all says why)"), "{short}");
    assert!(told(&["sglang", "list", "--sglang", TREE, "--all"]).ended(0).out.contains("nobody has described"));
    assert!(other("other").contains("nobody has described") && other("moe_sum").contains("nobody has described"));
    assert!(other("gemm").contains("headers of other projects"), "{found}");
    assert!(!others.iter().any(|one| one["name"] == "gates" || one["name"] == "merge_state_v2"), "{found}");
}

#[test]
fn what_cannot_be_is_said_in_a_sentence_with_what_to_do() {
    let (near, _folder) = extract("silu_mul", "bf16", Path::new(TREE));
    assert!(near.ended(2).err.contains("the nearest are silu_and_mul"));
    let (refused, _folder) = extract("moe_align_block_size", "bf16", Path::new(TREE));
    assert!(refused.ended(2).err.contains("moe/moe_align_kernel.cu) cannot be taken out: within an expert its tokens"));
    let (dtype, _folder) = extract("silu_and_mul", "fp64", Path::new(TREE));
    assert!(dtype.ended(2).err.contains("expected --dtype bf16 or fp16"));
    let (nowhere, _folder) = extract("silu_and_mul", "bf16", Path::new("/nowhere"));
    assert!(nowhere.ended(2).err.contains("there is no SGLang in /nowhere"));
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn what_a_tree_lacks_is_said_in_a_sentence_with_what_to_do() {
    let moved = copy(|at| fs::remove_dir_all(at.join("python/sglang/kernels/jit/csrc/elementwise")).unwrap());
    let (moved, _folder) = extract("silu_and_mul", "bf16", moved.path());
    assert!(moved.ended(2).err.contains("SGLang 0.0.1 keeps elementwise/activation.cuh elsewhere"));
    let wheel = copy(|at| fs::remove_dir_all(at.join("sgl-kernel")).unwrap());
    let (wheel, _folder) = extract("merge_attn_states", "bf16", wheel.path());
    assert!(wheel.ended(2).err.contains("give a source tree of the same version with --sglang"));
    let header = copy(|at| fs::remove_file(at.join("python/tvm_ffi/include/dlpack/dlpack.h")).unwrap());
    let (header, folder) = extract("silu_and_mul", "bf16", header.path());
    assert!(header.ended(2).err.contains("the header dlpack/dlpack.h is missing; it is of tvm-ffi"));
    assert!(!folder.path().join("task").exists());
}

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sglang/traces/hand-made.json");

#[test]
fn a_survey_says_where_a_step_spends_its_time_and_what_of_that_can_be_taken_out() {
    let stages: Value =
        serde_json::from_str(&told(&["sglang", "survey", "--trace", TRACE, "--json"]).ended(0).out).unwrap();
    assert_eq!((&stages[0]["stage"], &stages[1]["stage"]), (&Value::from("prefill"), &Value::from("decode")));
    let row = |operator: &str| {
        let rows = stages[0]["kernels"].as_array().unwrap();
        rows.iter().find(|row| row["operator"] == operator).unwrap().clone()
    };
    let (act, norm) = (row("sgl_kernel::silu_and_mul"), row("sgl_kernel::fused_add_rmsnorm"));
    assert_eq!((&act["operators"][0], &act["calls"], &act["us"]), (&"silu_and_mul".into(), &2.0.into(), &4.0.into()));
    assert!((act["bytes"].as_f64().unwrap() - 2.0 * 2.0 * 3.0 * 128.0 * 14336.0).abs() < 1.0, "{act}");
    // 4 arrays of 128 rows and the weights, at 4.8 TB/s, in 3 us.
    let floor = 2.0 * (4.0 * 128.0 * 4096.0 + 4096.0) / 4.8e6;
    assert!((norm["of_roofline"].as_f64().unwrap() - floor / 3.0).abs() < 1e-9, "{norm}");
    // The product's work is that of both its kernels, and so is its time.
    let (moved, both) = (2.0 * (128.0 * 4096.0 + 4096.0 * 6144.0 + 128.0 * 6144.0) / 4.8e6, 16.0);
    assert!((row("aten::mm")["of_roofline"].as_f64().unwrap() - moved / both).abs() < 1e-9);
    assert!(row("flashinfer::batch_decode")["of_roofline"].is_null());
    assert!(row("flashinfer::batch_decode")["unknown"].as_str().unwrap().contains("do not say its work"));
    assert!(row("sgl_kernel::moe_align_block_size")["why_not"].as_str().unwrap().contains("atomic additions"));
    let pairs = stages[0]["pairs"].as_array().unwrap();
    let second = "per_token_quant_fp8";
    let firsts: Vec<&Value> =
        pairs.iter().inspect(|pair| assert_eq!(pair["second"], second)).map(|p| &p["first"]).collect();
    assert_eq!(firsts, ["fused_add_rmsnorm", "silu_and_mul"]);
    assert_eq!((&pairs[0]["chain"], &pairs[1]["chain"]), (&Value::Null, &"silu_and_mul_quant_fp8".into()));
    assert_eq!(pairs[1]["handed_over"], 2.0 * 2.0 * 128.0 * 14336.0);
}

#[test]
fn a_trace_that_is_none_is_a_sentence_and_a_packed_one_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(TRACE).unwrap();
    let survey = |name: &str, more: &[&str]| {
        let file = folder.path().join(name).display().to_string();
        told(&[&["sglang", "survey", "--trace", &file], more].concat())
    };
    fs::write(folder.path().join("eager-DECODE.json"), text.replace("user_annotation", "other")).unwrap();
    assert!(Command::new("gzip").arg(folder.path().join("eager-DECODE.json")).status().unwrap().success());
    let packed = survey("eager-DECODE.json.gz", &["--steps", "2"]).ended(0).out;
    assert!(packed.contains("eager-DECODE.json.gz: decode (NVIDIA H200): 118.0 us of kernels a step"), "{packed}");
    let whole = fs::read(folder.path().join("eager-DECODE.json.gz")).unwrap();
    fs::write(folder.path().join("cut.gz"), &whole[..whole.len() / 2]).unwrap();
    assert!(survey("cut.gz", &[]).ended(2).err.contains("damaged, or not whole"));
    fs::write(
        folder.path().join("cpu"),
        text.replace("\"cat\":\"kernel\"", "\"cat\":\"none\"").replace("gpu_memcpy", "none"),
    )
    .unwrap();
    assert!(survey("cpu", &[]).ended(2).err.contains("no kernel of a GPU is in it: record it with the activities"));
    fs::write(folder.path().join("other"), "[1]").unwrap();
    assert!(survey("other", &[]).ended(2).err.contains("this is no trace of PyTorch's profiler"));
    let graph = text.replace("cudaLaunchKernel", "cudaGraphLaunch").replace("\"cpu_op\"", "\"none\"");
    fs::write(folder.path().join("graph"), graph.replace("NVIDIA H200", "NVIDIA Unheard")).unwrap();
    let graph = survey("graph", &["--all"]).ended(0).out;
    assert!(
        graph.contains("NVIDIA Unheard is not in the table of GPUs") && !graph.contains("need not be moved"),
        "{graph}"
    );
}

#[test]
fn a_survey_of_a_model_says_what_the_machine_lacks() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("torch.py"), "class cuda:\n    is_available = staticmethod(lambda: False)\n").unwrap();
    let out = folder.path().join("out").display().to_string();
    let mut survey =
        program::warpsmith(&["sglang", "survey", "--model", "llama-3.1-8b", "-o", &out, "--python", "python3"]);
    let lacking = survey.env("PYTHONPATH", folder.path()).output().map(Told::of).unwrap();
    assert!(lacking.err.contains("torch sees no GPU here") && lacking.code != Some(0), "{lacking:?}");
    let again = told(&["sglang", "survey", "--model", "llama-3.1-8b", "-o", &out, "--python", "python3"]).ended(2);
    assert!(again.err.contains("is not empty: name another folder with -o"), "{again:?}");
}

/// A task's folder, checked: the source as it was, the manifest's hashes those of the files, a task that loads.
fn check(folder: &Path, original: &Path, expected: &[&str]) -> Value {
    let task = load::task(folder).unwrap_or_else(|error| panic!("{error}"));
    let context = task.context().unwrap();
    let source = fs::read_to_string(original).unwrap();
    assert_eq!(context.reference, source);
    assert_eq!(context.origin.as_ref().unwrap().sha256, Hash::of(source.as_bytes()).as_str());
    let manifest: Value = serde_json::from_str(&fs::read_to_string(folder.join("manifest.json")).unwrap()).unwrap();
    let include = manifest["include"].as_object().unwrap();
    assert_eq!(include.len(), context.include.len());
    for (path, text) in &context.include {
        assert_eq!(include[path]["sha256"], Hash::of(text.as_bytes()).as_str(), "{path}");
    }
    for path in expected {
        assert!(include.contains_key(*path), "{path}: {include:?}");
    }
    manifest
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn two_operators_become_one_task_whose_reference_is_the_frameworks_own_sequence() {
    let without = copy(|at| fs::remove_file(at.join("python/sglang/kernels/jit/csrc/elementwise/rope.cuh")).unwrap());
    let (lacking, _folder) = extract("qknorm_rope", "bf16", without.path());
    assert!(lacking.ended(2).err.contains("keeps elementwise/rope.cuh elsewhere"));
    let (told, folder) = extract("qknorm_rope", "bf16", Path::new(TREE));
    told.ended(0);
    let folder = folder.path().join("task");
    let (needed, csrc) = (["elementwise/sizes.h", "sgl_kernel/half.cuh"], "python/sglang/kernels/jit/csrc");
    let manifest = check(&folder, &folder.join("qknorm_rope.cuh"), &needed);
    for part in ["elementwise/qknorm.cuh", "elementwise/rope.cuh"] {
        let original = fs::read(Path::new(TREE).join(csrc).join(part)).unwrap();
        assert_eq!(manifest["include"][part]["sha256"], Hash::of(&original).as_str(), "{part}");
    }
    assert_eq!(manifest["parts"], serde_json::json!(["qknorm", "rope"]));
    assert_eq!(manifest["mutates"], serde_json::json!(["q", "k"]));
    assert_eq!(manifest["call"]["then"][0]["function"], "apply_rope_inplace");
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn an_operator_that_is_compiled_at_run_time_becomes_a_task_that_builds() {
    for dtype in ["bf16", "fp16"] {
        let (told, folder) = extract("silu_and_mul", dtype, Path::new(TREE));
        let said: Value = serde_json::from_str(&told.ended(0).out).unwrap();
        assert_eq!(said["gate"]["ran"], false);
        let task = load::task(&folder.path().join("task")).unwrap();
        assert_eq!(task.context().unwrap().origin.as_ref().unwrap().gate, Some(Gate::NotRun));
        let original = Path::new(TREE).join("python/sglang/kernels/jit/csrc/elementwise/activation.cuh");
        let needed = ["sizes.h", "sgl_kernel/half.cuh", "tvm/ffi/container/tensor.h", "dlpack/dlpack.h"];
        let manifest = check(&folder.path().join("task"), &original, &needed);
        assert!(manifest["include"].get("sgl_kernel/unused.cuh").is_none());
        assert_eq!(manifest["include"]["dlpack/dlpack.h"]["from"], "tvm-ffi");
        assert_eq!(manifest["mutates"], serde_json::json!(["out"]));
    }
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn a_chain_has_no_argument_for_the_array_that_its_parts_hand_over() {
    for (chain, second, scalar) in [
        ("silu_and_mul_quant_fp8", "gemm/per_token_quant_fp8.cuh", "hidden"),
        ("silu_and_mul_group_quant_fp8", "gemm/per_token_group_quant.cuh", "groups"),
    ] {
        let (told, folder) = extract(chain, "fp16", Path::new(TREE));
        told.ended(0);
        let folder = folder.path().join("task");
        let task = load::task(&folder).unwrap();
        let names: Vec<_> = task.context().unwrap().arguments.iter().map(|argument| argument.name.as_str()).collect();
        assert_eq!(names, ["output_q", "output_s", "input", "tokens", scalar]);
        let needed = ["elementwise/sizes.h", "elementwise/activation.cuh", second];
        check(&folder, &folder.join(format!("{chain}.cuh")), &needed);
    }
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn a_chain_whose_first_part_changes_its_arrays_in_place_has_them_as_arguments() {
    let chain = "fused_add_rmsnorm_group_quant_fp8";
    let (told, folder) = extract(chain, "bf16", Path::new(TREE));
    told.ended(0);
    let folder = folder.path().join("task");
    let needed = ["elementwise/sizes.h", "elementwise/fused_add_rmsnorm.cuh", "gemm/per_token_group_quant.cuh"];
    let manifest = check(&folder, &folder.join(format!("{chain}.cuh")), &needed);
    assert_eq!(manifest["mutates"], serde_json::json!(["input", "residual", "output_q", "output_s"]));
    assert_eq!(manifest["call"]["then"][0]["positional"], serde_json::json!(["input", "output_q", "output_s"]));
    let task = load::task(&folder).unwrap();
    let names: Vec<_> = task.context().unwrap().arguments.iter().map(|argument| argument.name.as_str()).collect();
    assert_eq!(names, ["input", "residual", "output_q", "output_s", "weight", "tokens", "groups", "eps"]);
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn an_operator_that_puts_out_eight_bits_becomes_a_task_that_builds() {
    let (told, folder) = extract("per_token_quant_fp8", "bf16", Path::new(TREE));
    told.ended(0);
    let folder = folder.path().join("task");
    let arguments = &load::task(&folder).unwrap().context().unwrap().arguments.clone();
    let dtypes: Vec<_> = arguments.iter().map(|argument| argument.dtype).collect();
    assert_eq!(dtypes[..3], [Dtype::E4m3, Dtype::F32, Dtype::Bf16]);
    let original = Path::new(TREE).join("python/sglang/kernels/jit/csrc/gemm/per_token_quant_fp8.cuh");
    let manifest = check(&folder, &original, &["sgl_kernel/half.cuh", "tvm/ffi/container/tensor.h"]);
    assert_eq!(manifest["mutates"], serde_json::json!(["output_q", "output_s"]));
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn an_operator_that_is_compiled_ahead_of_time_builds_without_torch() {
    let (told, folder) = extract("merge_attn_states", "bf16", Path::new(TREE));
    told.ended(0);
    let original = Path::new(TREE).join("sgl-kernel/csrc/attention/merge_attn_states.cu");
    let manifest = check(&folder.path().join("task"), &original, &["checks.h", "ATen/cuda/CUDAContext.h"]);
    assert_eq!(manifest["include"]["warpsmith/tensor.h"]["from"], "stand-in");
    assert_eq!(manifest["mutates"], serde_json::json!(["v_merged", "s_merged"]));
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn headers_come_along_from_a_path_with_blanks() {
    let tree = copy(|_| {});
    let (told, folder) = extract("silu_and_mul", "bf16", tree.path());
    told.ended(0);
    let original = tree.path().join("python/sglang/kernels/jit/csrc/elementwise/activation.cuh");
    let needed = ["sizes.h", "sgl_kernel/half.cuh", "tvm/ffi/container/tensor.h", "dlpack/dlpack.h"];
    check(&folder.path().join("task"), &original, &needed);
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn a_header_that_no_folder_of_headers_holds_is_named() {
    let elsewhere = tempfile::tempdir().unwrap();
    let header = elsewhere.path().join("elsewhere.h");
    fs::write(&header, "#pragma once\n").unwrap();
    let tree = copy(|at| {
        let file = at.join("python/sglang/kernels/jit/csrc/elementwise/activation.cuh");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, format!("#include \"{}\"\n{text}", header.display())).unwrap();
    });
    let (told, folder) = extract("silu_and_mul", "bf16", tree.path());
    assert!(told.clone().ended(2).err.contains("elsewhere.h is needed, and lies neither in a folder"), "{told:?}");
    assert!(!folder.path().join("task").exists());
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn a_tree_may_be_named_from_where_one_stands() {
    let (tree, folder) = (copy(|_| {}), tempfile::tempdir().unwrap());
    let out = folder.path().join("task").display().to_string();
    let mut command =
        program::warpsmith(&["sglang", "extract", "silu_and_mul", "-o", &out, "--sglang", ".", "--no-gate"]);
    command.current_dir(tree.path()).output().map(Told::of).unwrap().ended(0);
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn what_does_not_build_is_kept_to_look_at_and_is_no_task() {
    let tree = copy(|at| {
        let file = at.join("python/sglang/kernels/jit/csrc/elementwise/activation.cuh");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, format!("{text}\nint broken = ;\n")).unwrap();
    });
    let (told, folder) = extract("silu_and_mul", "bf16", tree.path());
    assert!(told.clone().ended(2).err.contains("does not build for sm_90a"), "{told:?}");
    let has = |name: &str| folder.path().join("task").join(name).exists();
    assert!(has("task.refused.toml") && !has("task.toml"));
}

fn git(at: &Path, arguments: &[&str]) {
    let mut command = std::process::Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b"]).arg("-C").arg(at).args(arguments);
    assert!(command.output().unwrap().status.success(), "{arguments:?}");
}

fn committed(tree: &Path) {
    git(tree, &["init", "-q"]);
    git(tree, &["add", "-A"]);
    git(tree, &["commit", "-q", "-m", "x"]);
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn a_dirty_tree_is_recorded() {
    let tree = copy(|at| {
        committed(at);
        fs::write(at.join("python/sglang/version.py"), "__version__ = \"0.0.2\"\n").unwrap();
    });
    let (told, _folder) = extract("silu_and_mul", "bf16", tree.path());
    let said: Value = serde_json::from_str(&told.ended(0).out).unwrap();
    let dirty = said["manifest"]["origin"]["checkout"]["dirty"].as_array().unwrap();
    assert!(dirty.len() == 1 && dirty[0].as_str().unwrap().contains("version.py"), "{said}");
}

#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn a_kernel_that_commits_changed_since_the_release_is_said() {
    let kernel = "python/sglang/kernels/jit/csrc/elementwise/activation.cuh";
    let noted = |tags: &[&str], change: bool| {
        let tree = copy(|at| {
            committed(at);
            for tag in tags {
                git(at, &["tag", tag]);
            }
            if change {
                let text = fs::read_to_string(at.join(kernel)).unwrap();
                fs::write(at.join(kernel), text + "// tuned\n").unwrap();
                git(at, &["commit", "-qam", "y"]);
            }
        });
        let (told, _folder) = extract("silu_and_mul", "bf16", tree.path());
        let said: Value = serde_json::from_str(&told.ended(0).out).unwrap();
        assert_eq!(said["manifest"]["origin"]["checkout"]["dirty"].as_array().unwrap().len(), 0, "{said}");
        said["manifest"]["origin"]["since_release"].to_string()
    };
    assert_eq!(noted(&["v0.0.1"], false), "[]");
    let changed = noted(&["v0.0.1"], true);
    assert!(changed.contains(kernel) && changed.contains("commits of this tree changed it"), "{changed}");
    assert!(noted(&[], true).contains("has no such tag"));
}

#[test]
fn nothing_that_a_tree_names_is_started_while_it_is_looked_at() {
    let trace = tempfile::tempdir().unwrap();
    let trace = trace.path().join("trace");
    let leave = format!("touch '{}'", trace.display());
    let tree = copy(|at| {
        committed(at);
        fs::write(at.join(".gitattributes"), "*.py filter=a.b=c\n*.cuh filter=process\n").unwrap();
        git(at, &["config", "filter.a.b=c.clean", &format!("{leave}; cat")]);
        git(at, &["config", "filter.a.b=c.required", "true"]);
        git(at, &["config", "filter.process.process", &leave]);
        git(at, &["config", "core.fsmonitor", &leave]);
        for changed in ["python/sglang/version.py", "python/sglang/kernels/jit/csrc/elementwise/activation.cuh"] {
            let text = fs::read_to_string(at.join(changed)).unwrap();
            fs::write(at.join(changed), text + "\n").unwrap();
        }
    });
    told(&["sglang", "list", "--sglang", &tree.path().display().to_string()]).ended(0);
    if cfg!(has_nvcc) {
        let (told, _folder) = extract("silu_and_mul", "bf16", tree.path());
        let said: Value = serde_json::from_str(&told.ended(0).out).unwrap();
        assert_eq!(said["manifest"]["origin"]["checkout"]["dirty"].as_array().unwrap().len(), 3, "{said}");
    }
    assert!(!trace.exists());
    // The trap is one.
    let _ = std::process::Command::new("git").arg("-C").arg(tree.path()).arg("status").output().unwrap();
    assert!(trace.exists());
}

/// The real SGLang.
#[test]
#[ignore = "needs nvcc, and WARPSMITH_SGLANG with the folder of site packages that holds sglang"]
fn operators_come_out_of_sglang_itself() {
    let site = PathBuf::from(std::env::var_os("WARPSMITH_SGLANG").unwrap());
    let (told, folder) = extract("silu_and_mul", "bf16", &site);
    told.ended(0);
    let original = site.join("sglang/kernels/jit/csrc/elementwise/activation.cuh");
    let needed = ["sgl_kernel/tensor.h", "sgl_kernel/utils.cuh", "tvm/ffi/container/tensor.h"];
    check(&folder.path().join("task"), &original, &needed);
}
