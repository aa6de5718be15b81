//! PEAK's research questions as a user asks them: of a saved workflow, of models on scripted replies, of a search's depth.

use super::endpoint::{Act, Endpoint};
use super::program::{self, KEY, Told, run, warpsmith};
use super::workflow::{Bench, TILED, events, of, refactor, refused, tiling, tree, unroll};
use serde_json::{Value, json};
use std::{fs, path::Path};

const UNROLLED: &str = "#pragma GCC unroll {{UNROLL_FACTOR}}";

/// A workflow of three steps that is over.
fn saved() -> Bench {
    let bench = Bench::new();
    bench.run(&[]).ended(0);
    bench
}

fn parsed(told: Told) -> Value {
    serde_json::from_str(&told.ended(0).out).unwrap()
}

/// The replies to two tries of each of three steps, in rounds 6 to 11.
fn replies(tilings: [&str; 2], unrolls: [String; 2]) -> Vec<String> {
    let [first, second] = unrolls;
    [refactor(6), tiling(7, tilings[0]), vec![first], refactor(9), tiling(10, tilings[1]), vec![second]].concat()
}

/// A model that writes what does not compile, what is wrong, and what changes another region, each once.
fn faulty() -> Vec<String> {
    let wrong = unroll(8, UNROLLED).replace("+= A_TILE", "-= A_TILE");
    replies([TILED, "static void tile() { half a kernel }\n"], [wrong, refused(11)])
}

#[test]
fn the_two_series_of_a_saved_run_multiply_to_what_was_measured() {
    let bench = saved();
    let out = bench.at("W");
    let told = parsed(run(&["study", "trajectory", &out, "--json"]));
    let stages = told["stages"].as_array().unwrap();
    let names: Vec<_> = stages.iter().map(|stage| stage["transformation"].as_str()).collect();
    assert_eq!(names, [None, Some("Refactor"), Some("TB-Tiling"), Some("Unroll")], "{told}");
    let ratio = |stage: &Value, series: &str| stage[series]["ratio"].as_f64().unwrap();
    let measured: Vec<f64> =
        tree(&out)["checkpoints"].as_array().unwrap().iter().map(|at| ratio(at, "speedup")).collect();
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}: {told}");
    let mut product = 1.0;
    for (at, stage) in stages.iter().enumerate() {
        near(ratio(stage, "cumulative"), measured[at] / measured[0]);
        near(ratio(stage, "step"), measured[at] / measured[at.saturating_sub(1)]);
        product *= ratio(stage, "step");
        near(product, ratio(stage, "cumulative"));
        let interval = &stage["cumulative"]["interval"];
        assert!(interval["low"].as_f64().unwrap() <= product && product <= interval["high"].as_f64().unwrap());
    }
    let text = run(&["study", "rq1", &format!("{out}@c2")]).ended(0).out;
    assert!(text.contains("TB-Tiling") && !text.contains("Unroll"), "up to the checkpoint that is named: {text}");
}

/// A study of two models, and its table as JSON.
fn study(bench: &Bench, name: &str, more: &[&str]) -> Told {
    let (faulty, right, out) = (bench.at("faulty.jsonl"), bench.at("right.jsonl"), bench.at(name));
    let (faulty, right) = (format!("scripted:{faulty}"), format!("scripted:{right}"));
    let models = ["--model", &faulty, "--model", &right, "--repeats", "2", "--out", &out];
    run(&[&["study", "success-rate", &bench.at("W")], &models[..], more].concat())
}

fn write(bench: &Bench, name: &str, replies: &[String]) {
    fs::write(bench.at(name), replies.join("\n")).unwrap();
}

#[test]
fn single_tries_from_the_run_s_checkpoints_give_the_matrix_and_the_split_and_none_is_made_twice() {
    let bench = saved();
    let before = fs::read(bench.at("W/tasks/matmul/events.jsonl")).unwrap();
    let recorded = format!("replay:{}", bench.at("W"));
    let told = run(&["study", "success-rate", &bench.at("W"), "--model", &recorded, "--out", &bench.at("S")]).ended(2);
    assert!(told.err.contains("answers what it was asked"), "{told:?}");
    write(&bench, "faulty.jsonl", &faulty());
    let right = replies([TILED; 2], [unroll(8, UNROLLED), unroll(11, UNROLLED)]);
    // The second model falls silent at its third try.
    let known = right.iter().take(12).cloned().collect::<Vec<_>>();
    write(&bench, "right.jsonl", &known);
    let told = study(&bench, "S", &["--json"]).ended(4);
    assert!(told.err.contains("to go on: warpsmith study success-rate "), "{told:?}");
    // What it has answered is not asked again: the script no longer holds it.
    write(&bench, "right.jsonl", &right[12..]);
    let table = parsed(study(&bench, "S", &["--json"]));
    assert_eq!(fs::read(bench.at("W/tasks/matmul/events.jsonl")).unwrap(), before, "the run itself stays as it is");
    let (right, wrong) = (json!(["right", "right"]), json!(["reference", "unreadable"]));
    assert_eq!(table["models"][0]["outcomes"], json!([right, ["right", "compile"], wrong]), "{table}");
    assert_eq!(table["models"][1]["outcomes"], json!([right, right, right]));
    assert_eq!((&table["by_model"], &table["by_step"]), (&json!([0.5, 1.0]), &json!([1.0, 0.75, 0.5])));
    assert_eq!(table["steps"][1], json!({"from": "c1", "to": "c2", "transformation": "TB-Tiling"}));
    let faulty = bench.at("S/runs/faulty.jsonl");
    let tried = each_try_starts_from_the_checkpoint_and_is_single(&faulty);
    run(&["verify", &faulty]).ended(0);
    assert!(!run(&["tree", &faulty]).ended(0).out.contains("a trial is"), "a try is no step that failed");
    assert_eq!(table, parsed(study(&bench, "S", &["--json"])), "nothing is left to do");
    killed_within_a_try_it_goes_on(&bench, &table, &tried);
    let text = study(&bench, "S", &[]).ended(0).out;
    for line in ["c1 -> c2  TB-Tiling       1/2", "2/2", "all", "50.0 %", "100.0 %"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let split = parsed(run(&["study", "errors", &bench.at("S"), "--json"]));
    let sixth = 1.0 / 6.0;
    let parts = |at: usize| ["compile", "reference", "sanitizer", "unreadable"].map(|kind| split[at][kind].as_f64());
    assert_eq!(parts(0), [sixth, sixth, 0.0, sixth].map(Some), "{split}");
    assert_eq!((parts(1), &split[1]["tries"]), ([Some(0.0); 4], &json!(6)));
    let text = run(&["study", "rq3", &bench.at("S")]).ended(0).out;
    assert!(text.contains("6      50.0 %  16.7 %   16.7 %     0.0 %      16.7 %"), "{text}");
}

/// Six tries, no reply asked for twice, all drawn configurations compared and none timed; their events.
fn each_try_starts_from_the_checkpoint_and_is_single(study: &str) -> Vec<Value> {
    let all = events(study);
    let begun = all.iter().rposition(|event| event["event"] == "checkpointed").unwrap() + 1;
    let tries = all[begun..].to_vec();
    let made = of(&all[..begun], "checkpointed");
    let from: Vec<&Value> = of(&tries, "ordered").iter().map(|order| &order["from"]).collect();
    let starts: Vec<&Value> = [0, 1, 2, 0, 1, 2].iter().map(|at| &made[*at]["id"]).collect();
    assert_eq!(from, starts);
    let counts = ["began", "asked", "answered", "checkpointed", "tried", "ended"].map(|name| of(&tries, name).len());
    assert_eq!(counts, [6, 26, 26, 0, 0, 0], "each call once, whatever came of it");
    // Refactor has 2 configurations, TB-Tiling 8: all of fewer than sixteen; the first that is wrong ends a try.
    assert_eq!(of(&tries, "checked").len(), 2 + 8 + 1 + 2 + 1);
    tries
}

/// A copy of the study, whose log ends within the second try: the script holds what was not answered by then.
fn killed_within_a_try_it_goes_on(bench: &Bench, table: &Value, tries: &[Value]) {
    let copied = std::process::Command::new("cp").args(["-r", &bench.at("S"), &bench.at("cut")]).status();
    assert!(copied.unwrap().success());
    let file = Path::new(&bench.at("cut/runs/faulty.jsonl")).join("tasks/matmul/events.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let tiling = tries.iter().rposition(|event| event["event"] == "checked" && event["failure"].is_null()).unwrap();
    let second = tries.iter().position(|event| event["event"] == "began" && event["round"] == 7).unwrap();
    let checked = second + tries[second..].iter().position(|event| event["event"] == "checked").unwrap();
    assert!(checked < tiling, "there is more to check in that try");
    let before = text.lines().count() - tries.len();
    let kept: Vec<&str> = text.lines().take(before + checked + 1).chain([""]).collect();
    fs::write(&file, kept.join("\n")).unwrap();
    let known = of(&tries[..=checked], "answered").len();
    write(bench, "faulty.jsonl", &faulty()[known..]);
    assert_eq!(*table, parsed(study(bench, "cut", &["--json"])));
    let again = events(&bench.at("cut/runs/faulty.jsonl"));
    let again = &again[before..];
    for name in ["ordered", "began", "asked", "answered", "checked", "wrote", "spent"] {
        assert_eq!(of(again, name).len(), of(tries, name).len(), "{name}: nothing is done twice");
    }
}

#[test]
fn a_model_s_tries_end_at_its_limit_and_go_on_with_a_higher_one_without_what_the_run_itself_used() {
    let endpoint = Endpoint::start(|_, _| Act::Say("I would rather not.".to_owned()));
    let (bench, folder) = (saved(), tempfile::tempdir().unwrap());
    let out = folder.path().join("S").display().to_string();
    // The run's own replies used tokens, too.
    let file = Path::new(&bench.at("W")).join("tasks/matmul/events.jsonl");
    let used =
        json!({"input_tokens": 5000, "cached_tokens": 0, "output_tokens": 5000, "reasoning_tokens": 0}).to_string();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"usage\":null"), "{text}");
    fs::write(&file, text.replace("\"usage\":null", &format!("\"usage\":{used}"))).unwrap();
    let study = |tokens: &[&str]| {
        let study = ["study", "success-rate", &bench.at("W"), "--model", "openai:m", "--repeats", "2", "--out", &out];
        let mut command = warpsmith(&[&study[..], tokens].concat());
        Told::of(command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY).output().unwrap()).ended(0)
    };
    let asked = || endpoint.requests().len();
    let one = |told: &Told| told.err.contains("openai:m reached its limit of tokens: it goes on with a higher one");
    let first = study(&["--tokens", "1"]);
    assert!(one(&first) && asked() == 1, "{first:?}");
    assert!(one(&study(&["--tokens", "1"])) && asked() == 1, "nothing more is asked");
    let more = study(&["--tokens", "2000"]);
    assert!(one(&more) && asked() == 2, "1,100 each: {more:?}");
    let all = study(&["--tokens", "6600"]);
    assert!(!one(&all) && asked() == 6, "it is through, though its limit is reached: {all:?}");
    for (flag, value) in [("--tokens", "0"), ("--usd", "0"), ("--usd", "-1"), ("--usd", "NaN")] {
        let given = format!("{flag}={value}");
        let told = run(&["study", "success-rate", &bench.at("W"), "--model", "openai:m", &given]).ended(2);
        assert!(told.err.contains(flag), "{told:?}");
    }
}

#[test]
fn searches_of_two_depths_are_repeated_with_other_draws_and_give_least_mean_and_greatest() {
    let bench = saved();
    let (at, out) = (format!("{}@c2", bench.at("W")), bench.at("D"));
    let depth = |repeats: &str| {
        let told =
            run(&["study", "tuning-depth", &at, "--tests", "2,4", "--repeats", repeats, "--out", &out, "--json"]);
        parsed(told)
    };
    depth("1");
    let table = depth("2");
    for (at, tests) in [(0, 2), (1, 4)] {
        let depth = &table[at];
        let found: Vec<f64> =
            depth["found"].as_array().unwrap().iter().map(|one| one["ns"].as_f64().unwrap()).collect();
        assert_eq!((depth["tests"].as_u64(), found.len()), (Some(tests), 2), "{table}");
        assert!(depth["found"].as_array().unwrap().iter().all(|one| one["timed"] == tests), "{table}");
        let [min, mean, max] = ["min_ns", "mean_ns", "max_ns"].map(|name| depth[name].as_f64().unwrap());
        assert_eq!((min, max), (found[0].min(found[1]), found[0].max(found[1])));
        assert!((mean - f64::midpoint(found[0], found[1])).abs() < 1e-6 * mean, "{table}");
    }
    let all = events(&out);
    let evaluated = of(&all, "evaluated").split_off(of(&all, "evaluated").len() - 4);
    assert!(evaluated.iter().all(|one| !one.to_string().contains("same code")), "each rests on its own samples");
    let searches: Vec<&Value> =
        of(&all, "ordered").into_iter().filter(|order| order["transformation"] == "tune").collect();
    let seeds: std::collections::BTreeSet<_> =
        searches.iter().map(|order| order["tuning"]["seed"].as_u64().unwrap()).collect();
    assert_eq!((searches.len(), seeds.len()), (4, 4), "those of before are not made again");
    let text = run(&["study", "rq3-depth", &at, "--tests", "2,4", "--repeats", "2", "--out", &out]).ended(0).out;
    assert!(text.contains("tests  searches  timed  min"), "{text}");
    assert_eq!(events(&out).len(), all.len(), "nothing is left to do");
    run(&["verify", &out]).ended(0);
}

#[test]
fn what_no_study_can_be_made_of_is_told_in_a_sentence() {
    let bench = saved();
    let (plain, bare, w) = (bench.at("plain"), bench.at("bare"), bench.at("W"));
    let simulated = ["run", program::TASK, "--simulate", "--model", program::SCRIPT, "--out", &plain];
    run(&simulated);
    assert!(std::process::Command::new("cp").args(["-r", &w, &bare]).status().unwrap().success());
    let file = Path::new(&bare).join("tasks/matmul/events.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let first = text.lines().position(|line| line.contains("\"event\":\"checkpointed\"")).unwrap();
    fs::write(&file, text.lines().take(first).chain([""]).collect::<Vec<_>>().join("\n")).unwrap();
    let (initial, model) = (format!("{w}@c0"), bench.model());
    for (arguments, why) in [
        (vec!["trajectory", &plain], "which makes no checkpoints: a study is of a workflow"),
        (vec!["trajectory", &bare], "there is no checkpoint in this run yet"),
        (vec!["trajectory", "nowhere"], "nowhere: expected the folder of a run, or RUN@NAME"),
        (vec!["success-rate", &w], "no model is named: give --model SPEC, once for each"),
        (vec!["success-rate", &w, "--model", "ollama:x"], "\"ollama\" is nothing that answers: expected openai:NAME"),
        (vec!["success-rate", &w, "--model", &model, "--model", "openai:m"], "there is no key"),
        (vec!["success-rate", &initial, "--model", &model], "no transformation led to this checkpoint"),
        (vec!["errors", &w], "this is not the folder of a success-rate study"),
        (vec!["tuning-depth", &w, "--tests", "2", "--out", &w], "a study has a folder of its own"),
        (vec!["tuning-depth", &w, "--tests", ""], "cannot parse integer from empty string"),
    ] {
        let told = run(&[vec!["study"], arguments].concat()).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
}
