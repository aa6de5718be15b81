//! Rendered prompts: what `warpsmith prompts render` prints is what a role is sent.

use crate::program::{TASK, files, place, run, simulated};
use std::{fs, path::Path};

const PROBLEM: &str = "examples/problems/level1/2_Matmul.py";

#[test]
fn a_task_alone_is_rendered_in_the_precision_of_the_settings_and_a_runs_stays_as_it_is() {
    let (folder, run_folder) = place();
    let config = folder.path().join("half.toml").display().to_string();
    fs::write(&config, "[workshop]\nprecision = 'bf16'\n").unwrap();
    let told = run(&["--config", &config, "prompts", "render", PROBLEM, "--role", "coder", "--step", "seed"]).ended(0);
    assert!(told.out.contains("<= 1e-2 + 1e-2 * |expected|") && told.out.contains("torch.bfloat16"), "{told:?}");
    let letters = format!("mailbox:{}", folder.path().join("letters").display());
    let wait = ["--model", &letters, "--exit-when-waiting"];
    run(&[&["run", PROBLEM, "--simulate", "--precision", "fp16", "--out", &run_folder][..], &wait].concat()).ended(10);
    let at = format!("{run_folder}@reference");
    let refused = run(&["evaluate", &at, "--precision", "bf16"]).ended(2);
    assert!(refused.err.contains("is of a task in another precision"), "{refused:?}");
    let refused = run(&["evaluate", &at, "--reference", "ieee"]).ended(2);
    assert!(refused.err.contains("is of a task whose reference runs in another arithmetic"), "{refused:?}");
    let letter =
        files(&folder.path().join("letters")).into_iter().find(|path| path.to_string_lossy().contains("request"));
    assert!(fs::read_to_string(letter.unwrap()).unwrap().contains("torch.float16"), "the run's own");
}

#[test]
fn a_task_alone_is_rendered_for_every_role_and_says_what_is_simulated() {
    for task in [TASK, PROBLEM] {
        for (role, step, words) in [
            ("coder", "seed", "# Output rules"),
            ("coder", "fix", "# Error log"),
            ("coder", "optimize", "# Reference"),
            ("coder", "refine", "# Evidence"),
            ("coder", "retry", "# Code"),
            ("coder", "suggest", "# Suggestions"),
            ("judge", "fix", "critical_issue"),
            ("judge", "optimize", "modification plan"),
            ("planner", "suggest", "suggestions"),
            ("planner", "seed", "Rank three approaches"),
        ] {
            let told = run(&["prompts", "render", task, "--role", role, "--step", step]).ended(0);
            assert!(
                told.out.contains(words) && told.out.contains("simulated machine"),
                "{task} {role} {step}: {told:?}"
            );
            assert!(told.err.contains("note: no run was named"), "{told:?}");
        }
    }
}

#[test]
fn a_round_of_a_run_is_rendered_as_it_was_sent() {
    let (_folder, recorded) = place();
    simulated(&recorded, &["--rounds", "3"]).ended(0);
    let sent: Vec<String> = files(&Path::new(&recorded).join("blobs"))
        .iter()
        .map(|blob| fs::read_to_string(blob).unwrap())
        .filter(|text| text.starts_with("{\"system\""))
        .collect();
    assert!(sent.len() >= 3, "{} prompts", sent.len());
    for round in ["1", "2", "3"] {
        let told = run(&["prompts", "render", "--run", &recorded, "--round", round, "--json"]).ended(0);
        let prompt: serde_json::Value = serde_json::from_str(&told.out).unwrap();
        let was_sent = sent.iter().any(|text| serde_json::from_str::<serde_json::Value>(text).unwrap() == prompt);
        assert!(was_sent, "round {round}: {}", told.out);
    }
}

#[test]
fn what_cannot_be_rendered_says_what_can() {
    for (arguments, word) in [
        (&["prompts", "render"][..], "expected a task's folder or file, or --run RUN"),
        (&["prompts", "render", TASK, "--round", "2"], "expected --run RUN too"),
        (
            &["prompts", "render", TASK, "--role", "judge", "--step", "seed"],
            "the judge is not asked in the step \"seed\"",
        ),
        (&["prompts", "render", "nowhere"], "no such file or folder"),
    ] {
        let told = run(arguments).ended(2);
        assert!(told.err.contains(word), "{arguments:?} said {told:?}");
    }
}

#[test]
fn the_first_page_is_the_one_that_the_settings_name_and_an_unknown_one_is_told_with_those_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let page = |name: &str| {
        let config = folder.path().join(format!("{name}.toml"));
        std::fs::write(&config, format!("[prompts]\nfirst = '{name}'\n")).unwrap();
        run(&[
            "--config",
            &config.display().to_string(),
            "prompts",
            "render",
            "examples/silu_and_mul",
            "--role",
            "coder",
        ])
    };
    let [vanilla, thought, seed] = ["vanilla", "chain-of-thought", "seed"].map(|name| page(name).ended(0).out);
    assert!(seed.contains("# Reference") && !vanilla.contains("# Reference") && !thought.contains("# Reference"));
    assert!(thought.contains("Think step by step") && !vanilla.contains("Think step by step"));
    assert!(vanilla.contains("silu_and_mul(") && thought.contains("silu_and_mul("), "both show the prototype");
    let told = page("plain").ended(2).err;
    assert!(told.contains("prompts.first = \"plain\"") && told.contains("seed, vanilla, chain-of-thought"), "{told}");
}
