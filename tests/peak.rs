//! Transformations as a user meets them: a small matrix product on the processor, from its naive form to a tiled one.
use crate::endpoint;
#[path = "peak/hlsl.rs"]
mod hlsl;
#[path = "peak/person.rs"]
mod person;
#[path = "peak/study.rs"]
mod study;
#[path = "peak/workflow.rs"]
mod workflow;

use crate::program::{self, Told, run, warpsmith};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};
use workflow::{Bench, events, of, refactor, script, tree};

#[test]
fn a_sequence_of_three_steps_makes_three_checkpoints_and_a_killed_run_resumes_to_the_same() {
    let bench = Bench::new();
    let told = bench.run(&[]).ended(0);
    let out = bench.at("W");
    for line in ["2/2 valid", "ended: every transformation of the sequence was applied"] {
        assert!(told.out.contains(line), "{line}: {told:?}");
    }
    assert!(!told.out.contains("the context stays at"), "the third try passed: {told:?}");
    let verified = run(&["verify", &out]);
    assert!(verified.out.contains("agrees: "), "with the texts of the configurations that failed: {verified:?}");
    assert!(told.out.contains("it changes the region host, and only device was asked for"), "{told:?}");
    let tree = self::tree(&out);
    let names: Vec<&str> =
        tree["checkpoints"].as_array().unwrap().iter().map(|at| at["name"].as_str().unwrap()).collect();
    assert_eq!((names, tree["head"].as_str()), (vec!["c0", "c1", "c2", "c3"], Some("c3")));
    assert_eq!(tree["checkpoints"][2]["tuning"]["grid"]["TILE_K_SIZE"], json!([16, 8, 32, 64]));
    assert_eq!(tree["checkpoints"][2]["failed"].as_array().unwrap().len(), 2, "{tree}");
    let shown = run(&["tree", &out]).ended(0).out;
    assert!(shown.contains("x Unroll, try 1: failed: ") && shown.contains("device.cpp"), "{shown}");
    assert!(shown.contains("TB-Tiling") && shown.contains("[main, head]"), "{shown}");
    let all = events(&out);
    assert_eq!((of(&all, "answered").len(), of(&all, "certified").len()), (16, 1));
    let told = Told::of(warpsmith(&["replay", &out]).output().unwrap()).ended(0);
    assert!(told.out.contains("agrees with the record"), "{told:?}");
    // Killed in the middle of tuning; agents/tests/workflow.rs kills a simulated one after every event.
    let place = |name: &str, nth: usize| all.iter().enumerate().filter(|(_, e)| e["event"] == name).nth(nth).unwrap().0;
    let (cut, copy) = (place("tried", 4), bench.at("cut"));
    assert!(Command::new("cp").args(["-r", &out, &copy]).status().unwrap().success());
    let file = Path::new(&copy).join("tasks/matmul/events.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.lines().take(cut + 1).chain([""]).collect();
    fs::write(&file, kept.join("\n")).unwrap();
    let known = of(&events(&copy), "answered").len();
    bench.script(&script()[known..]);
    run(&["resume", &copy]).ended(0);
    let ids =
        |tree: &Value| tree["checkpoints"].as_array().unwrap().iter().map(|at| at["id"].clone()).collect::<Vec<_>>();
    run(&["verify", &copy]).ended(0);
    assert_eq!(ids(&self::tree(&copy)), ids(&tree));
    let counts = |events: &[Value]| ["tried", "checked", "answered", "began"].map(|name| of(events, name).len());
    assert_eq!(counts(&events(&copy)), counts(&all), "nothing is done twice");
}

#[test]
fn steps_by_hand_are_named_branched_and_restored() {
    let bench = Bench::new();
    let (task, out) = (bench.at("task"), bench.at("W"));
    let quick = ["--warmup", "1", "--repetitions", "3"];
    bench.transform(&task, "Refactor", &[&["--out", &out], &quick[..]].concat()).ended(0);
    assert!(of(&events(&out), "ended").is_empty(), "a workflow by hand stays open");
    run(&["checkpoint", &out, "named"]).ended(0);
    run(&["branch", &format!("{out}@c0"), "other"]).ended(0);
    assert_eq!(tree(&out)["head"], "c0");
    // The script's next replies answer TB-Tiling in round 2, here on the branch's own c0.
    let told = bench.transform(&format!("{out}@c1"), "tb-tiling", &["--say", "keep the order"]).ended(0);
    assert!(told.out.contains("c2") && told.out.contains("[other, head]"), "{told:?}");
    let ordered = of(&events(&out), "ordered").last().unwrap().to_string();
    assert!(ordered.contains("keep the order") && ordered.contains("TB-Tiling"), "{ordered}");
    let tuned = ["tune", &format!("{out}@c2"), "--tuner", "tpe", "--tests", "3", "--keep", "2"];
    let told = warpsmith(&tuned).output().map(Told::of).unwrap().ended(0);
    assert!(told.out.contains("3 timed, 2 kept") && told.out.contains("tune"), "{told:?}");
    let ordered = of(&events(&out), "ordered").last().unwrap()["tuning"].clone();
    assert_eq!(ordered, json!({"tuner": "tpe", "tests": 3, "keep": 2}));
    run(&["restore", &format!("{out}@main")]).ended(0);
    assert_eq!((tree(&out)["head"].as_str(), tree(&out)["branch"].as_str()), (Some("c1"), Some("main")));
    a_checkpoint_stands_wherever_a_candidate_may(&bench, &out);
    let nowhere = bench.at("nowhere");
    for (arguments, why) in [
        (vec!["checkpoint", &out, "named"], "the name \"named\" is taken"),
        (vec!["checkpoint", &out, "c9"], "\"c9\" cannot be a name"),
        (vec!["checkpoint", &out, "45dfc8e2"], "\"45dfc8e2\" cannot be a name"),
        (vec!["checkpoint", &out, "HEAD"], "\"HEAD\" cannot be a name"),
        (vec!["checkpoint", &out, ".."], "\"..\" cannot be a name"),
        (
            vec!["restore", &format!("{out}@nowhere")],
            "there is no checkpoint \"nowhere\"; there are c0, c1, c2, c3, named, main, other",
        ),
        (vec!["restore", &out], "to which checkpoint or branch?"),
        (vec!["tree", &task], "expected the folder of a run"),
        (vec!["replay", &out], "steered by hand"),
        (vec!["transform", &out, "Offse"], "there is no transformation \"Offse\"; the nearest are Offset"),
        (vec!["transform", &out, "Refactor", "--simulate"], "for a workflow that begins"),
        (vec!["transform", &out, "Refactor", "--out", &nowhere], "for a workflow that begins"),
        (vec!["transform", &task, "Split-K", "--out", &nowhere], "this context is for cpu"),
        (vec!["transform", &out, "Split-K"], "Split-K is for cuda, hip, hlsl; this context is for cpu"),
        (
            vec!["transform", &format!("{out}@c2"), "TB-Tiling"],
            "the context has the tuning parameter `TILE_K_SIZE` already",
        ),
    ] {
        let told = run(&arguments).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
    assert!(!Path::new(&nowhere).exists());
}

/// Shown, evaluated, compared, and the beginning of another workflow.
fn a_checkpoint_stands_wherever_a_candidate_may(bench: &Bench, out: &str) {
    let at = |name: &str| format!("{out}@{name}");
    let shown = run(&["show", &at("c2")]).ended(0).out;
    for part in ["checkpoint c2", "bindings   BLOCK_X=16", "// region: device", "copy_tile<TILE_M, TILE_K>"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    run(&["show", out, "--source", "named"]).ended(0);
    let quick = ["--warmup", "1", "--repetitions", "3"];
    let told = run(&[&["evaluate", &at("c2"), &at("named")], &quick[..]].concat()).ended(0).out;
    assert!(told.contains("W@c2") && told.contains("W@named"), "{told}");
    let told: Value = serde_json::from_str(&run(&["compare", &at("named"), &at("c2"), "--json"]).ended(0).out).unwrap();
    let regions: Vec<&str> = told["regions"].as_array().unwrap().iter().map(|pair| pair[0].as_str().unwrap()).collect();
    assert_eq!(regions, ["macros", "device", "host", "imports"], "{told}");
    let tile = told["bindings"].as_array().unwrap().iter().find(|differing| differing["name"] == "TILE_K_SIZE");
    assert_eq!(tile.unwrap()["values"][0], Value::Null, "{told}");
    assert!(told["times"]["passed"]["speedup"]["ratio"].as_f64().unwrap() > 0.0, "{told}");
    let same = run(&["compare", &at("named"), &at("1"), "--recorded"]).ended(0).out;
    assert!(same.contains("no region differs") && same.contains("no binding differs"), "{same}");
    let other = bench.at("other");
    let model = bench.model();
    let begin =
        ["transform", &bench.at("task"), "Refactor", "--model", &model, "--from", &at("named"), "--out", &other];
    let told = warpsmith(&[&begin[..], &quick, &["--edit"]].concat())
        .env("EDITOR", "sed -i s/sum/total/g")
        .env_remove("VISUAL")
        .output();
    Told::of(told.unwrap()).ended(0);
    let edited = run(&["show", &format!("{other}@c1")]).ended(0).out;
    assert!(edited.contains("float total = 0.0f;"), "what the person left is what was checked and kept: {edited}");
    let lines = events(&other);
    assert!(of(&lines, "answered").iter().any(|one| one["model"].as_str().unwrap().ends_with("finished by hand")));
    let (own, seed) = (tree(&other), run(&["show", &format!("{other}@c0"), "--json"]).ended(0).out);
    assert_eq!(own["head"], "c1");
    assert!(seed.contains("static void element"), "the seed's text and not the reference's: {seed}");
    for (arguments, why) in [
        (
            vec!["show", &at("naned")],
            "no candidate, round or checkpoint is called \"naned\"; the nearest names are named",
        ),
        (vec!["evaluate", "nowhere@c1"], "nowhere@c1: nowhere is not the folder of a run"),
        (vec!["evaluate", &at("c1"), "--bind", "BLOCK_X=8"], "W@c1 has its bindings already"),
        (vec!["compare", &at("c1"), out], "write each as RUN@NAME"),
        (vec!["transform", out, "Unroll", "--from", &at("c1")], "--from seeds a workflow that begins"),
        (
            vec!["transform", "examples/silu_and_mul", "Refactor", "--from", &at("c1")],
            "whose entry or arguments are not",
        ),
        (vec!["evaluate", out], "which candidate?"),
        (vec!["tune", out, "--tuner", "tpee"], "there is no tuner \"tpee\"; there are exhaustive, sampled, tpe"),
        (vec!["transform", out, "Unroll", "--pause"], "--pause asks at a terminal, and there is none here"),
    ] {
        let told = run(&arguments).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
}

#[test]
fn a_step_whose_outputs_are_right_fails_for_what_a_sanitizer_finds_and_its_next_try_sees_it() {
    let bench = Bench::new();
    let policy = fs::read_to_string(bench.at("policy.toml")).unwrap().replace(", \"TB-Tiling\", \"Unroll\"]", "]");
    fs::write(bench.at("policy.toml"), policy.replace("keep", "sanitize = 2\nkeep")).unwrap();
    let overflows = "    volatile int32_t large = 2147483647;\\n    large = large + 1;\\n    float sum";
    let mut replies = refactor(1);
    replies[2] = replies[2].replacen("    float sum", overflows, 1);
    bench.script(&[replies, refactor(2)].concat());
    let told = bench.run(&[]).ended(0);
    assert!(told.out.contains("signed integer overflow"), "{told:?}");
    let all = events(&bench.at("W"));
    let sanitized: Vec<bool> = of(&all, "checked")
        .into_iter()
        .filter(|event| event["sanitized"] == json!(true))
        .map(|event| event["failure"].is_null())
        .collect();
    assert_eq!(sanitized, [false, true, true], "the first try ends with its first, the second passes both");
    assert_eq!(tree(&bench.at("W"))["checkpoints"].as_array().unwrap().len(), 2);
    let blobs =
        fs::read_dir(bench.at("W/blobs")).unwrap().flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let mut texts = blobs.map(|blob| fs::read_to_string(blob.unwrap().path()).unwrap_or_default());
    assert!(texts.any(|text| text.contains("# The last try") && text.contains("signed integer overflow")));
    let verified = run(&["verify", &bench.at("W")]);
    assert!(verified.out.contains("agrees: "), "{verified:?}");
}

#[test]
fn a_user_s_validator_fails_a_step_by_its_word_and_one_that_does_not_apply_or_is_missing_is_noted() {
    let bench = Bench::new();
    let policy = fs::read_to_string(bench.at("policy.toml")).unwrap().replace(", \"TB-Tiling\", \"Unroll\"]", "]");
    fs::write(bench.at("policy.toml"), policy).unwrap();
    let mut replies = refactor(1);
    replies[2] = replies[2].replacen("    float sum", "    // racy\\n    float sum", 1);
    bench.script(&[replies, refactor(2)].concat());
    let validators = "[validators.mine]\ncommand = [\"sh\", \"-c\", \"grep -q extern $0 || exit 9; if grep -q racy $0; then \
                      echo a race in element; exit 1; fi\", \"{file}\"]\nsamples = 2\n\
                      [validators.none]\ncommand = [\"no-such-program\"]\n\
                      [validators.picky]\ncommand = [\"sh\", \"-c\", \"echo only tensor cores; exit 77\"]\n";
    fs::write(bench.at("warpsmith.toml"), validators).unwrap();
    let told = bench.run(&["--config", &bench.at("warpsmith.toml")]).ended(0);
    for line in [
        "mine found: a race in element",
        "picky does not apply: only tensor cores",
        "none does not apply: not run: there",
    ] {
        assert!(told.out.contains(line), "{line}: {told:?}");
    }
    let all = events(&bench.at("W"));
    let by: Vec<&str> = of(&all, "validated").iter().map(|event| event["validator"].as_str().unwrap()).collect();
    assert_eq!(by, ["mine", "mine", "mine", "none", "picky"], "the first try ends with the first, the second has all");
    assert_eq!(of(&all, "evaluated")[1]["evaluation"]["failed"]["tool"], json!("mine"));
    assert_eq!(tree(&bench.at("W"))["checkpoints"].as_array().unwrap().len(), 2);
    let verified = run(&["verify", &bench.at("W")]);
    assert!(verified.out.contains("agrees: "), "by what they said, and not by what they are: {verified:?}");
}

#[test]
fn the_list_has_sixteen_and_a_dropped_in_file_and_what_is_wrong_is_told_in_a_sentence() {
    let list = |folder: &Path, more: &[&str]| {
        let mut command = warpsmith(&[&["transform", "--list"], more].concat());
        Told::of(command.current_dir(folder).output().unwrap())
    };
    let folder = tempfile::tempdir().unwrap();
    assert!(list(folder.path(), &[]).ended(0).out.contains("16 transformations, 37 calls; 7 of ours, 22 calls"));
    let cpu = list(folder.path(), &["--backend", "cpu"]).ended(0).out;
    assert!(cpu.contains("Transpose") && !cpu.contains("Split-K"), "{cpu}");
    assert!(list(folder.path(), &["--backend", "gpu"]).ended(2).err.contains("there are cuda, hip, hlsl, cpu"));
    let own = folder.path().join("transformations");
    fs::create_dir(&own).unwrap();
    let call = |region: &str| format!("[[pass.call]]\nregion = \"{region}\"\ntext = \"Do it.\"\n");
    let file = |head: &str, calls: &str| {
        let text =
            format!("name = \"Mine\"\nsummary = \"s\"\nbackends = [\"cpu\"]\n{head}\n[[pass]]\naim = \"a\"\n{calls}");
        fs::write(own.join("mine.toml"), text).unwrap();
        list(folder.path(), &["--json"])
    };
    let listed: Value = serde_json::from_str(&file("", &call("host")).ended(0).out).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), listed[23]["name"].as_str()), (24, Some("Mine")));
    let four = ["macros", "device", "host", "host"].map(call).concat();
    for (head, calls, why) in [
        ("", four.as_str(), "mine.toml: pass 1 has 4 calls; a pass has one to three, one a region"),
        ("imports = [\"fast\"]", &call("host"), "mine.toml: it imports \"fast\", and there is no such snippet"),
        ("", &call("host").replace("Do it", "{{SIZE}}"), "pass 1 (host) names {{SIZE}}, which is neither a parameter"),
    ] {
        assert!(file(head, calls).ended(2).err.contains(why), "{why}");
    }
}

#[test]
fn a_task_without_regions_and_a_sequence_for_another_backend_are_refused_before_anything_runs() {
    let bench = Bench::new();
    let model = bench.model();
    for (task, policy, why) in [
        ("examples/silu_and_mul", "peak-x1-85", "its reference has no regions: begin each of macros, device and host"),
        ("examples/matmul", "peak-a6000-fp32", "Thread-Chunk is for cuda, hip, hlsl; this context is for cpu"),
    ] {
        let told = run(&["run", task, "--model", &model, "--policy", policy, "--out", &bench.at("no")]).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
    assert!(!Path::new(&bench.at("no")).exists());
}
