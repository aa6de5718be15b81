//! Kernels in HLSL as a user meets them: PEAK's sequence for the X1-85 from a record, by a Vulkan driver on the processor.

use super::program::run;
use serde_json::Value;
use std::fs;

const EXAMPLE: &str = "examples/hlsl/matmul_fp32";

/// The policy, with as few configurations as show that they are tuned.
fn policy() -> String {
    let text = fs::read_to_string("agents/policies/peak-x1-85.toml").unwrap();
    let changes = [
        ("samples = 16", "samples = 2"),
        ("configurations = 2000", "configurations = 2"),
        ("retime = 8", "retime = 2"),
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
