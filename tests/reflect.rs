//! What rounds taught, as a user meets it: told, shown, in the report, made again from the record, and taken along into a pool.

use crate::program::{TASK, events, place, run};
use serde_json::json;
use std::{fs, path::Path};

const INSIGHT: &str = "Load <whole> vectors.";

#[test]
fn what_a_round_taught_is_told_and_shown_and_goes_into_a_pool_with_the_kernel() {
    let (folder, out) = place();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let policy = fs::read_to_string("agents/policies/self-refine.toml").unwrap();
    fs::write(path("policy.toml"), format!("reflect = \"lessons\"\n{policy}")).unwrap();
    let kernel = |us: u32| format!("```cpp\n// simulate: us={us}\nvoid silu_and_mul() {{}}\n```");
    let lesson = json!({"reflections": [{"insight": INSIGHT, "evidence": "Round 1: 1.1x.", "applies": "Always."}]});
    let script = [
        json!({"role": "coder", "round": 1, "reply": kernel(90)}),
        json!({"role": "planner", "round": 1, "reply": lesson.to_string()}),
        json!({"role": "coder", "round": 2, "reply": kernel(50)}),
        json!({"role": "planner", "round": 2, "reply": lesson.to_string()}),
    ];
    fs::write(path("script.jsonl"), script.map(|line| line.to_string() + "\n").concat()).unwrap();
    let (policy, model, pool) = (path("policy.toml"), format!("scripted:{}", path("script.jsonl")), path("pool"));
    let asked =
        ["run", TASK, "--policy", &policy, "--rounds", "2", "--model", &model, "--simulate", "--shapes", "task"];
    let told = run(&[&asked[..], &["--repetitions", "5", "--out", &out]].concat()).ended(0).out;
    assert_eq!(told.matches(&format!("learned: {INSIGHT}")).count(), 2, "{told}");
    assert_eq!(events(&out).iter().filter(|event| event["event"] == "reflected").count(), 2);
    assert!(run(&["show", &out, "2"]).ended(0).out.contains(&format!("learned: {INSIGHT}")));
    let report = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(report.contains("learned: Load &lt;whole&gt; vectors.") && !report.contains("<whole>"));
    run(&["replay", &out]).ended(0);
    run(&["verify", &out]).ended(0);
    run(&["pool", "add", &out, "--pool", &pool, "--simulated"]).ended(0);
    let listed = run(&["pool", "list", "--pool", &pool, "--json"]).ended(0).out;
    assert_eq!(listed.matches(INSIGHT).count(), 2, "{listed}");
}
