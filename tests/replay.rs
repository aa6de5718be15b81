//! Does a record make its run again, and is a record that was changed found out?

use crate::program::{SCRIPT, TASK, Told, events, files, only_events, place, run, simulated, warpsmith};
use std::{fs, path::Path, process::Command};

#[test]
fn a_run_is_made_again_from_its_record_without_a_compiler_and_a_model() {
    let (folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let mut command = warpsmith(&["replay", &recorded]);
    let told = Told::of(command.env("PATH", "").current_dir(folder.path()).output().unwrap()).ended(0);
    // What a device was held for is another time every time.
    let compared = events(&recorded).iter().filter(|event| event["event"] != "spent").count();
    assert!(told.out.contains(&format!("agrees with the record in all {compared} events")), "{told:?}");
}

#[test]
fn a_run_with_templates_of_its_own_is_made_again_but_for_its_prompts() {
    let (folder, recorded) = place();
    let templates = folder.path().join("templates/context");
    fs::create_dir_all(&templates).unwrap();
    let rules = fs::read_to_string("prompts/templates/context/rules.md").unwrap();
    fs::write(templates.join("rules.md"), format!("{rules}\nBe brief.\n")).unwrap();
    let settings = folder.path().join("settings.toml");
    fs::write(&settings, format!("[prompts]\nfolder = '{}'\n", folder.path().join("templates").display())).unwrap();
    let settings = settings.display().to_string();
    let arguments = ["--config", &settings, "run", TASK, "--model", SCRIPT, "--simulate", "--shapes", "task"];
    run(&[&arguments[..], &["--rounds", "3", "--repetitions", "5", "--out", &recorded]].concat()).ended(0);
    assert!(
        files(&Path::new(&recorded).join("blobs")).iter().any(|b| fs::read_to_string(b).unwrap().contains("Be brief."))
    );
    let told = run(&["replay", &recorded]).ended(0);
    assert!(told.out.contains("its prompts are not compared") && told.out.contains("agrees"), "{told:?}");
}

#[test]
fn a_verdict_that_was_changed_in_the_record_is_where_the_replay_differs() {
    let (_folder, recorded) = place();
    simulated(&recorded, &["--rounds", "4"]).ended(0);
    let file = only_events(Path::new(&recorded));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("Go on to the end.", "Stop before the end.", 1)).unwrap();
    let told = run(&["replay", &recorded]).ended(1);
    assert!(told.out.contains("Stop before the end.") && told.out.contains("Go on to the end."), "{told:?}");
}

#[test]
fn a_text_that_was_changed_is_found_before_it_is_believed() {
    let (_folder, recorded) = place();
    simulated(&recorded, &["--rounds", "2"]).ended(0);
    let blobs = files(&Path::new(&recorded).join("blobs"));
    let reply = blobs.iter().find(|blob| fs::read_to_string(blob).unwrap().starts_with("Here it is.")).unwrap();
    fs::write(reply, "Here it is.\n```cpp\nvoid evil() {}\n```\n").unwrap();
    let told = run(&["replay", &recorded]).ended(5);
    assert!(told.err.contains(reply.file_name().unwrap().to_str().unwrap()), "{told:?}");
    assert!(told.err.contains("not what its name says"), "{told:?}");
}

#[test]
fn a_record_of_another_format_is_refused_with_a_word() {
    let (_folder, recorded) = place();
    simulated(&recorded, &["--rounds", "1"]).ended(0);
    let header = Path::new(&recorded).join("run.toml");
    fs::write(&header, fs::read_to_string(&header).unwrap().replacen("format = 1", "format = 2", 1)).unwrap();
    let told = run(&["resume", &recorded]).ended(5);
    assert!(told.err.contains("format 2") && told.err.contains("run.toml"), "{told:?}");
}

/// A task whose folder holds a recorded run: what `run` takes when nobody names a model.
fn task_with_a_recording(folder: &Path) -> String {
    let task = folder.join("task");
    fs::create_dir(&task).unwrap();
    for file in ["task.toml", "reference.cpp"] {
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join(TASK).join(file), task.join(file)).unwrap();
    }
    simulated(&task.join("recorded").display().to_string(), &["--rounds", "6"]).ended(0);
    task.display().to_string()
}

#[test]
fn without_a_model_the_recorded_run_answers_and_the_first_lines_say_so() {
    let (folder, again) = place();
    let task = task_with_a_recording(folder.path());
    let told = run(&["run", &task, "--simulate", "--out", &again]).ended(0);
    let head: String = told.out.lines().take(8).collect::<Vec<_>>().join("\n");
    for word in ["a recording made by scripted", "here and now", "--model openai:NAME", "6 rounds"] {
        assert!(head.contains(word), "{word} is not in {head}");
    }
    let wrote = |run: &str| {
        events(run).into_iter().filter(|e| e["event"] == "wrote").map(|e| e["candidate"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(wrote(&again), wrote(&Path::new(&task).join("recorded").display().to_string()));
}

#[test]
fn a_recording_that_is_shorter_than_the_run_ends_it_with_its_best() {
    let (folder, again) = place();
    let task = task_with_a_recording(folder.path());
    let told = run(&["run", &task, "--simulate", "--rounds", "9", "--out", &again]).ended(0);
    assert!(told.out.contains("holds no further reply") && told.out.contains("certified: "), "{told:?}");
}

#[test]
fn in_strict_mode_a_prompt_that_differs_ends_the_run_and_is_shown() {
    let (folder, again) = place();
    let task = task_with_a_recording(folder.path());
    let definition = Path::new(&task).join("task.toml");
    let text = fs::read_to_string(&definition).unwrap();
    fs::write(&definition, text.replacen("The gated activation", "The gated ACTIVATION", 1)).unwrap();
    let told = run(&["run", &task, "--simulate", "--strict-replay", "--out", &again]).ended(4);
    assert!(told.err.contains("ACTIVATION"), "{told:?}");
}

#[test]
fn a_run_that_ended_in_the_midst_of_a_round_for_want_of_replies_is_made_again_to_the_same_end() {
    let (folder, recorded) = place();
    let script = folder.path().join("script.jsonl").display().to_string();
    fs::write(&script, r#"{"role": "coder", "reply": "I would rather not."}"#).unwrap();
    let model = format!("scripted:{script}");
    run(&["run", TASK, "--model", &model, "--simulate", "--shapes", "task", "--out", &recorded]).ended(1);
    run(&["replay", &recorded]).ended(0);
}

#[test]
fn the_runs_that_are_kept_agree_with_their_records_whatever_transformations_and_their_texts_are_now() {
    let mut agreed = 0;
    for file in files(Path::new("examples/h100")).iter().filter(|file| file.ends_with("run.toml")) {
        let told = run(&["replay", &file.parent().unwrap().display().to_string()]);
        let by_hand = told.code == Some(2) && told.err.contains("was steered by hand");
        assert!(by_hand || told.code == Some(0), "{}: {told:?}", file.display());
        agreed += usize::from(!by_hand);
    }
    assert!(agreed >= 5, "{agreed}");
}

#[test]
fn configurations_that_were_timed_on_several_devices_as_each_was_free_are_made_again_on_one() {
    let (folder, recorded) = place();
    let policy = fs::read_to_string("agents/policies/peak-a6000-fp32.toml").unwrap();
    let (head, _) = policy.split_once("sequence = ").unwrap();
    let file = folder.path().join("short.toml").display().to_string();
    let head = head.replace("configurations = 2000", "configurations = 24");
    let timing = policy.lines().last().unwrap();
    fs::write(&file, format!("{head}sequence = [\"Refactor\"]\n{timing}\n")).unwrap();
    let arguments = ["run", "examples/cuda/matmul_fp32", "--policy", &file, "--simulate", "--gpus", "0,1"];
    run(&[&arguments[..], &["--model", "replay:examples/h100/peak-a6000-fp32", "--out", &recorded]].concat()).ended(0);
    let all = events(&recorded);
    for device in ["cuda:0", "cuda:1"] {
        assert!(all.iter().any(|event| event["work"] == "examine" && event["lease"]["device"] == device), "{device}");
    }
    assert!(all.iter().all(|event| event["work"] != "certify" || event["lease"]["device"] == "cuda:0"));
    run(&["replay", &recorded]).ended(0);
    run(&["verify", &recorded]).ended(0);
    run(&["tune", &recorded, "--tests", "8", "--gpus", "1"]).ended(0);
    let tuned = events(&recorded).split_off(all.len());
    assert!(tuned.iter().any(|event| event["event"] == "tried"));
    assert!(tuned.iter().all(|event| event["lease"]["device"].as_str().is_none_or(|device| device == "cuda:1")));
}

#[test]
fn a_step_that_was_under_way_is_finished_before_the_one_that_is_asked_for_and_both_are_told() {
    let (_folder, recorded) = place();
    let model = "replay:examples/h100/peak-a6000-fp32";
    let begun = ["transform", "examples/cuda/matmul_fp32", "Refactor", "--simulate", "--tests", "6", "--model", model];
    run(&[&begun[..], &["--out", &recorded]].concat()).ended(0);
    let file = only_events(Path::new(&recorded));
    let text = fs::read_to_string(&file).unwrap();
    let tried = text.lines().collect::<Vec<_>>();
    let last = tried.iter().rposition(|line| line.contains("\"event\":\"tried\"")).unwrap();
    fs::write(&file, tried[..=last].join("\n") + "\n").unwrap();
    let copy = format!("{recorded}-copy");
    assert!(Command::new("cp").args(["-r", &recorded, &copy]).status().unwrap().success());
    let told = run(&["tune", &format!("{recorded}@c0"), "--tests", "3"]).ended(0);
    assert!(told.err.contains("Refactor of c0 was under way, try 1 of 3: it is finished first"), "{told:?}");
    assert!(told.out.contains("c1") && told.out.contains("c2") && told.out.contains("tune"), "{told:?}");
    assert!(!run(&["tune", &recorded, "--tests", "2"]).ended(0).err.contains("was under way"));
    // Whoever goes back drops it.
    let told = run(&["restore", &format!("{copy}@c0")]).ended(0);
    assert!(told.out.contains("Refactor of c0 was under way, try 1 of 3: it is dropped"), "{told:?}");
    let told = run(&["tune", &copy, "--tests", "3"]).ended(0);
    assert!(!told.err.contains("was under way") && !told.out.contains("Refactor"), "{told:?}");
    assert!(!run(&["branch", &format!("{copy}@c0"), "other"]).ended(0).out.contains("dropped"));
}
