//! Kernels in HLSL as a user meets them: PEAK's sequence for the X1-85 from a record, by a Vulkan driver on the processor.

use super::program::run;
use serde_json::{Value, json};
use std::{fs, path::Path};

const EXAMPLE: &str = "examples/hlsl/matmul_fp32";
const HALF: &str = "examples/hlsl/matmul_fp16";

/// The policy, with as few configurations as show that they are tuned, timed by a few calls.
fn policy() -> String {
    let text = fs::read_to_string("agents/policies/peak-x1-85.toml").unwrap();
    let changes = [
        ("samples = 16", "samples = 2"),
        ("configurations = 2000", "configurations = 2"),
        ("retime = 8", "retime = 2"),
        ("warmup = 10, repetitions = 30", "warmup = 1, repetitions = 4"),
    ];
    changes.into_iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

#[test]
#[cfg_attr(not(has_vulkan), ignore = "needs glslangValidator and a Vulkan driver for this processor")]
fn the_sequence_goes_from_a_record_to_a_certificate() {
    let place = tempfile::tempdir().unwrap();
    let (file, out) = (place.path().join("policy.toml"), place.path().join("W").display().to_string());
    fs::write(&file, policy()).unwrap();
    let (file, model) = (file.display().to_string(), format!("replay:{EXAMPLE}/recorded"));
    let told = run(&["run", EXAMPLE, "--policy", &file, "--model", &model, "--out", &out]);
    assert!(told.out.contains("certified"), "{told:?}");
    let tree = run(&["tree", &out, "--json"]).ended(0).out;
    for name in ["Refactor", "TB-Tiling", "Thread-Tiling"] {
        assert!(tree.contains(name), "{tree}");
    }
    let events = fs::read_to_string(place.path().join("W/tasks/matmul_fp32/events.jsonl")).unwrap();
    let certificate = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let said = certificate.map(|event| event.to_string()).find(|text| text.contains("\"verdict\"")).unwrap();
    assert!(said.contains("llvmpipe") && said.contains("no sanitizer here looks into a Vulkan driver"), "{said}");
}

/// What the record of single precision answers, with matrices and tiles of halves and sums in single precision.
fn in_half_precision() -> String {
    let events = fs::read_to_string(format!("{EXAMPLE}/recorded/tasks/matmul_fp32/events.jsonl")).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answered = events.filter(|event| event["event"] == "answered").map(|event| {
        let hash = event["reply"].as_str().unwrap();
        let mut reply = fs::read_to_string(format!("{EXAMPLE}/recorded/blobs/{}/{hash}", &hash[..2])).unwrap();
        if event["call"]["part"].as_str().unwrap().ends_with("device") {
            for name in ["A(", "B(", "TILE_A(", "TILE_B("].map(|name| format!("ELEMENT_{name}")) {
                reply = reply.replace(&name, &format!("(float){name}"));
            }
            reply = reply.replace("Buffer<float>", "Buffer<half>").replace("groupshared float", "groupshared half");
            reply = reply.replace(" = sum", " = (half)sum");
        }
        json!({"role": "coder", "round": event["call"]["round"], "part": event["call"]["part"], "reply": reply})
    });
    answered.map(|entry| entry.to_string()).collect::<Vec<_>>().join("\n")
}

/// The example in half precision with its small cases alone: 64, and 128 for the certificate.
fn small(folder: &Path) {
    let text = fs::read_to_string(format!("{HALF}/task.toml")).unwrap();
    let without = |text: String, block: &str| {
        assert!(text.contains(block), "{block}");
        text.replace(block, "")
    };
    let text = without(text, "[[case]]\nname = \"192\"\nn = 192\n");
    let text = without(text, "[[final_case]]\nname = \"320\"\nn = 320\n");
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("task.toml"), text).unwrap();
    fs::copy(format!("{HALF}/reference.hlsl"), folder.join("reference.hlsl")).unwrap();
}

#[test]
#[ignore = "a minute of llvmpipe: needs glslangValidator and a Vulkan driver for this processor"]
fn the_sequence_goes_its_way_in_half_precision_too() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    small(&place.path().join("matmul_fp16"));
    fs::write(at("policy.toml"), policy()).unwrap();
    fs::write(at("script.jsonl"), in_half_precision()).unwrap();
    let model = format!("scripted:{}", at("script.jsonl"));
    let told = run(&["run", &at("matmul_fp16"), "--policy", &at("policy.toml"), "--model", &model, "--out", &at("W")]);
    assert!(told.out.contains("certified"), "{told:?}");
    let tree: Value = serde_json::from_str(&run(&["tree", &at("W"), "--json"]).ended(0).out).unwrap();
    assert_eq!(tree["checkpoints"].as_array().unwrap().len(), 4, "{tree}");
}

#[test]
#[cfg_attr(not(has_vulkan), ignore = "needs glslangValidator and a Vulkan driver for this processor")]
fn halves_are_timed_and_sums_of_halves_are_not_right() {
    let place = tempfile::tempdir().unwrap();
    let reference = fs::read_to_string(format!("{HALF}/reference.hlsl")).unwrap();
    let found = |changes: &[[&str; 2]]| {
        let file = place.path().join("candidate.hlsl");
        let text = changes.iter().fold(reference.clone(), |text, [from, to]| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        fs::write(&file, text).unwrap();
        let bound = ["--bind", "BLOCK_X=32", "--bind", "BLOCK_Y=8", "--warmup", "1", "--repetitions", "3", "--json"];
        let told = run(&[&["evaluate", HALF, &file.display().to_string()], &bound[..]].concat());
        serde_json::from_str::<Value>(&told.out).unwrap_or_else(|_| panic!("{told:?}"))["evaluation"].clone()
    };
    // In another order.
    let passed = found(&[["k = 0; k < n; ++k", "k = n - 1; k >= 0; --k"]]);
    assert!(passed["passed"]["cases"][0]["candidate"]["samples_ns"].is_array(), "{passed}");
    let failed = found(&[["float sum = 0.0", "half sum = (half)0.0"], ["(float)", ""], ["(half)sum", "sum"]]);
    assert_eq!(failed["failed"]["kind"], "mismatch", "{failed}");
}
