//! Do variants share what they may and nothing else, and does an ablation go on after anything?

use crate::program::{self, place, run};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

const SPEC: &str = "
name = 'roles'
summary = 'With a Judge and without.'
tasks = 'examples/problems'

[settings.run]
rounds = 2

[[variant]]
name = 'judged'
policy = 'cudaforge'

[[variant]]
name = 'alone'
policy = 'self-refine'
";

/// Variants whose policy begins with a plan, but for one that leaves it out.
const PLANNED: &str = "
[[variant]]
name = 'planned'
policy = 'hawkeye'

[[variant]]
name = 'unplanned'
policy = 'hawkeye'
settings.run.no_approaches = true
";

/// A script for the examples' problems, and the variants.
fn written(folder: &Path) -> (String, String) {
    let names = fs::read_dir("examples/problems/level1").unwrap().map(|file| file.unwrap().path());
    let mut script: Vec<String> = vec![];
    for name in names.filter(|path| path.extension().is_some_and(|ending| ending == "py")) {
        let task = format!("level1-{}", name.file_stem().unwrap().display());
        for round in 1..=2 {
            let us = 40 + 10 * round + task.len();
            let code = format!("```python\n# {task} {round}\n# simulate: us={us}\nclass ModelNew: pass\n```");
            let advice = r#"{"bottleneck": "a", "optimization method": "b", "modification plan": "c"}"#;
            script.push(json!({ "role": "coder", "task": task, "round": round, "reply": code }).to_string());
            script.push(json!({ "role": "judge", "task": task, "round": round, "reply": advice }).to_string());
        }
    }
    let (script_at, spec_at) = (folder.join("script.jsonl"), folder.join("roles.toml"));
    fs::write(&script_at, script.join("\n")).unwrap();
    fs::write(&spec_at, SPEC).unwrap();
    (format!("scripted:{}", script_at.display()), spec_at.display().to_string())
}

fn ablate(out: &str, spec: &str, model: &str, more: &[&str]) -> program::Told {
    let batch = ["--", "--simulate", "--model", model, "--repetitions", "5"];
    run(&[&["ablate", spec, "--out", out][..], more, &batch].concat())
}

/// The records of all tasks of a run.
fn records(run: &Path) -> Vec<PathBuf> {
    let mut files = program::files(&run.join("tasks"));
    files.retain(|file| file.ends_with("events.jsonl"));
    files
}

/// The events of all tasks of a variant.
fn events(out: &str, variant: &str) -> Vec<Value> {
    let files = records(&Path::new(out).join("runs").join(variant));
    let lines = |file: PathBuf| fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let mut all: Vec<String> = files.into_iter().flat_map(lines).collect();
    all.sort();
    all.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

#[test]
fn no_reply_is_shared_unless_it_is_asked_for_and_then_only_first_candidates() {
    let (folder, out) = place();
    let (model, spec) = written(folder.path());
    ablate(&out, &spec, &model, &[]).ended(0);
    let requests = |variant: &str| {
        of(&events(&out, variant), "answered").iter().map(|e| e["requests"].as_u64().unwrap()).sum::<u64>()
    };
    // Two candidates of eight problems, and a verdict on the first of each where there is a Judge.
    assert_eq!((requests("judged"), requests("alone")), (24, 16));
    let shared = folder.path().join("shared").display().to_string();
    fs::write(&spec, [SPEC, PLANNED].concat()).unwrap();
    ablate(&shared, &spec, &model, &["--share-seed-candidate"]).ended(0);
    let alone = events(&shared, "alone");
    for answered in of(&alone, "answered") {
        let free = answered["requests"] == 0 && answered["usd"] == 0.0;
        assert_eq!(free, answered["call"]["purpose"] == "seed", "{answered}");
    }
    assert!(of(&events(&shared, "judged"), "answered").iter().all(|answered| answered["requests"] == 1));
    let planned = events(&shared, "planned");
    assert_eq!(
        (of(&planned, "ranked").len(), of(&planned, "passed-over").len()),
        (0, 8),
        "nothing was ranked for these"
    );
    assert!(of(&planned, "answered").iter().all(|answered| answered["call"]["role"] != "planner"), "nobody was asked");
    run(&["replay", &format!("{shared}/runs/planned")]).ended(0);
    assert!(of(&events(&shared, "unplanned"), "passed-over").is_empty(), "no_approaches: none are asked for");
    assert!(of(&alone, "asked").iter().all(|asked| asked["call"]["role"] == "coder"), "its Judge is off");
}

#[test]
fn an_ablation_goes_on_where_it_was_broken_off_and_comes_to_the_same_table() {
    let (folder, out) = place();
    let (model, spec) = written(folder.path());
    let paper = "\n[[paper]]\nvariant = 'judged'\nof = 'D*, RTX 6000'\ncorrect = 1.0\nperf = 1.767\n";
    fs::write(&spec, [SPEC, paper].concat()).unwrap();
    ablate(&out, &spec, &model, &[]).ended(0);
    let text = fs::read_to_string(Path::new(&out).join("comparison.txt")).unwrap();
    let line = text.lines().find(|line| line.starts_with("paper: judged")).unwrap();
    let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[1..7], ["D*, RTX 6000", "100.0 %", "-", "-", "1.767", "-"], "{text}");
    assert!(text.contains("they do not compare"), "{text}");
    let table = || -> Value {
        let table: Value =
            serde_json::from_str(&fs::read_to_string(Path::new(&out).join("comparison.json")).unwrap()).unwrap();
        json!([table["comparison"]["tasks"], table["comparison"]["measures"]])
    };
    let before = table();
    let status = run(&["status", &out]).ended(0).out;
    assert!(status.contains("variant judged") && status.contains("8 of 8 finished"), "{status}");
    assert_eq!(run(&["report", &out]).ended(0).out.lines().count(), 2, "a report for each variant");
    assert_eq!(before[0].as_array().unwrap().len(), 8);
    // As if it had been killed in the first variant: one task short of its end, and the second variant not there.
    fs::remove_dir_all(Path::new(&out).join("runs/alone")).unwrap();
    let log = records(&Path::new(&out).join("runs/judged")).remove(0);
    let text = fs::read_to_string(&log).unwrap();
    let kept: Vec<&str> = text.lines().collect();
    fs::write(&log, kept[..kept.len() - 3].join("\n") + "\n").unwrap();
    let asked = of(&events(&out, "judged"), "asked").len();
    let told = run(&["resume", &out]).ended(0);
    assert!(told.out.contains("variant judged goes on") && told.out.contains("variant alone of roles"), "{told:?}");
    assert_eq!(table(), before);
    assert_eq!(of(&events(&out, "judged"), "asked").len(), asked, "nothing is asked again");
}

/// Answers every open letter, and says whose they were.
fn answered(letters: &Path) -> Vec<String> {
    let mut whose = vec![];
    for file in program::files(letters).iter().map(|file| file.display().to_string()) {
        let Some(stem) = file.strip_suffix(".request.json") else { continue };
        let reply = format!("{stem}.reply.txt");
        if !Path::new(&reply).exists() {
            let advice = r#"{"bottleneck": "a", "optimization method": "b", "modification plan": "c"}"#;
            let code = format!("```python\n# {stem}\n# simulate: us=40\nclass ModelNew: pass\n```");
            fs::write(&reply, if stem.contains(".judge.") { advice } else { &code }).unwrap();
            let name = Path::new(stem).file_name().unwrap().display().to_string();
            whose.push(
                name.split('.').next().unwrap().to_owned() + if stem.contains(".judge.") { " judge" } else { "" },
            );
        }
    }
    whose.sort();
    whose.dedup();
    whose
}

#[test]
fn with_letters_missing_every_variant_advances_and_an_ablation_goes_on_with_the_flags_given_then() {
    let (folder, out) = place();
    let (_, spec) = written(folder.path());
    let letters = folder.path().join("letters");
    let model = format!("mailbox:{}", letters.display());
    let begun = ["--", "--simulate", "--model", &model, "--repetitions", "5", "--exit-when-waiting", "--match", "ReLU"];
    run(&[&["ablate", &spec, "--out", &out][..], &begun].concat()).ended(10);
    assert_eq!(answered(&letters), ["alone", "judged"], "both variants ask for a first candidate");
    // As if the second had not begun: without a device it waits, and the first goes on as far as it can.
    let second = Path::new(&out).join("runs/alone");
    fs::rename(&second, folder.path().join("aside")).unwrap();
    let resumed = |code: i32, more: &[&str]| run(&[&["resume", &out][..], more].concat()).ended(code).out;
    let told = resumed(10, &["--without-device"]);
    assert!(told.contains("alone has not begun") && told.contains("waiting    for a device"), "{told}");
    fs::rename(folder.path().join("aside"), &second).unwrap();
    resumed(10, &[]);
    assert_eq!(answered(&letters), ["alone", "judged judge"]);
    resumed(10, &["--without-device"]);
    assert_eq!(answered(&letters), ["judged"], "from the Judge's reply to the Coder's question no device is needed");
    // What is given now holds: letters elsewhere have no answers.
    let elsewhere = format!("mailbox:{}", folder.path().join("elsewhere").display());
    resumed(10, &["--model", &elsewhere]);
    assert!(resumed(0, &[]).contains("variant"), "the table");
    assert!(run(&["resume", &out, "--rounds", "3"]).ended(2).err.contains("what variants differ in"));
}

#[test]
fn what_is_wrong_is_told_before_anything_is_made() {
    let (folder, out) = place();
    let (model, spec) = written(folder.path());
    let cases: [(&[&str], &str); 6] = [
        (&["ablate", "luck"], "no ablation \"luck\""),
        (&["ablate", &spec, "--out", &out, "--", "--rounds", "3"], "what variants differ in"),
        (&["ablate", &spec, "--out", &out, "--", "--fly"], "are for `warpsmith batch`"),
        (&["ablate", &spec, "--out", &out, "--", "--model", "openai:unheard-of", "--usd", "1"], "price of unheard-of"),
        (&["ablate", &spec, "--out", &out, "--", "--simulate"], "nothing says what answers"),
        (&["ablate"], "required"),
    ];
    for (arguments, word) in cases {
        let told = run(arguments).ended(2);
        assert!(told.err.contains(word), "{arguments:?} said {told:?}");
        assert!(!Path::new(&out).exists());
    }
    let list = run(&["ablate", "--list"]).ended(0).out;
    assert!(list.contains("cudaforge-table1") && list.contains("astra-table3"), "{list}");
    drop(model);
}

#[test]
fn what_any_variant_lacks_is_said_before_the_first_begins() {
    let (folder, out) = place();
    let (model, spec) = written(folder.path());
    for (variant, why) in [
        ("settings.workshop.metrics = 'top5.toml'", "variant last: metrics \"top5.toml\""),
        ("settings.prompts.context = 'folder:contexts/triton'", "variant last: prompts.context"),
        ("settings.prompts.folder = 'nowhere'", "variant last: nowhere (prompts.folder)"),
        ("policy = 'nowhere.toml'", "variant last: "),
    ] {
        fs::write(&spec, format!("{SPEC}\n[[variant]]\nname = 'last'\n{variant}\n")).unwrap();
        let told = ablate(&out, &spec, &model, &[]).ended(2);
        assert!(told.err.contains(why), "{variant}: {told:?}");
        assert!(!fs::exists(&out).unwrap(), "{variant}");
    }
    let told = ablate(&out, "cudaforge-table3", &model, &[]).ended(2);
    assert!(told.err.contains("variant random-24: metrics \"random24.toml\""), "{told:?}");
}

#[test]
fn an_ablation_without_its_tasks_leaves_no_folder() {
    let (folder, out) = place();
    let missing = folder.path().join("missing").display().to_string();
    let more = [
        "--out",
        &out,
        "--",
        "--simulate",
        "--model",
        "scripted:tests/scripts/ten-rounds.jsonl",
        "--problems",
        &missing,
    ];
    let told = run(&[&["ablate", "cudaforge-table1"], &more[..]].concat()).ended(2);
    assert!(told.err.contains(&missing) && !Path::new(&out).exists(), "{told:?}");
}
