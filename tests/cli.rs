//! Does the program say what a stranger and a script need?

use crate::program::{self, SCRIPT, TASK, Told, place, run, simulated, warpsmith};
use serde_json::Value;

const COMMANDS: [&str; 18] = [
    "run", "batch", "status", "resume", "replay", "show", "report", "scores", "compare", "ablate", "export",
    "evaluate", "doctor", "policies", "prompts", "metrics", "config", "worker",
];

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let help = run(&["--help"]).ended(0).out;
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in {help}");
        let own = run(&[command, "--help"]).ended(0).out;
        assert!(own.contains("Example") && own.contains(&format!("warpsmith {command}")), "{own}");
    }
    assert!(!help.contains("__kernel"));
}

#[test]
fn wherever_something_is_written_o_says_where() {
    fn look(command: &clap::Command, found: &mut usize) {
        for out in command.get_arguments().filter(|argument| argument.get_id() == "out") {
            assert_eq!(out.get_short(), Some('o'), "{} --out", command.get_name());
            *found += 1;
        }
        command.get_subcommands().for_each(|command| look(command, found));
    }
    let mut found = 0;
    look(&<warpsmith::cli::Cli as clap::CommandFactory>::command(), &mut found);
    assert!(found > 10, "{found} commands write something");
}

#[test]
fn quietly_only_what_came_of_a_run_is_said() {
    let (_folder, run_path) = place();
    let told = simulated(&run_path, &["--quiet"]).ended(0);
    let heads: Vec<&str> = told.out.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(heads, ["result", "kernel", "report", "run"], "{told:?}");
    let (_folder, run_path) = place();
    let told = simulated(&run_path, &["-q", "--json"]).ended(0);
    assert!(json(&told.out)["outcome"].is_object(), "{told:?}");
}

#[test]
fn every_exit_code_is_explained_in_the_help() {
    let help = run(&["--help"]).ended(0).out;
    for exit in warpsmith::exit::Exit::ALL {
        assert!(help.contains(&format!("{:>3}  {}", exit.code(), exit.meaning().split(' ').next().unwrap())), "{help}");
    }
}

#[test]
fn what_the_user_gets_wrong_ends_with_2_and_says_what_to_do() {
    let (folder, _) = place();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("settings.toml"), "[run]\nrouns = 3\n").unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["fly"], "unrecognized subcommand"),
        (&["run", TASK, "--rounds", "0"], "--rounds"),
        (&["run", &at("nowhere")], "no such file or folder"),
        (&["run", &at("empty")], "no task.toml"),
        (&["run", TASK, "--model", "gpt", "--simulate"], "expected openai:NAME"),
        (&["run", TASK, "--model", "openai:x", "--simulate"], "OPENAI_API_KEY"),
        (
            &["run", TASK, "--model", "openai:unheard-of", "--usd", "1", "--simulate"],
            "the price of unheard-of is not known",
        ),
        (
            &["batch", "examples", "--model", "openai:unheard-of", "--task-usd", "1", "--simulate"],
            "the price of unheard",
        ),
        (&["run", TASK, "--model", SCRIPT, "--policy", "luck", "--simulate"], "no policy \"luck\""),
        (&["--config", &at("settings.toml"), "config"], "settings.toml:2: unknown field `rouns`"),
        (&["evaluate", TASK, &at("nothing.cpp"), "--simulate"], "nothing.cpp"),
        (&["policies", "luck"], "cudaforge"),
        (&["prompts", "luck"], "seed"),
    ];
    for (arguments, word) in cases {
        let told = run(arguments).ended(2);
        assert!(told.err.contains(word), "{arguments:?} said {told:?}");
    }
}

#[test]
fn a_task_without_a_recorded_run_asks_for_a_model() {
    let (folder, _) = place();
    for file in ["task.toml", "reference.cpp"] {
        let from = format!("{}/{TASK}/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::copy(from, folder.path().join(file)).unwrap();
    }
    let told = run(&["run", &folder.path().display().to_string(), "--simulate"]).ended(2);
    for way in ["--model openai:NAME", "--model mailbox:DIR", "no recorded run"] {
        assert!(told.err.contains(way), "{told:?}");
    }
}

#[test]
fn what_is_no_run_ends_with_5() {
    let (folder, run_path) = place();
    std::fs::write(folder.path().join("notes.txt"), "x").unwrap();
    let here = folder.path().display().to_string();
    for arguments in [["show", &run_path], ["resume", &here], ["replay", &here], ["report", &here]] {
        let told = run(&arguments).ended(5);
        assert!(told.err.contains("expected the folder of a run") || told.err.contains("no run.toml"), "{told:?}");
    }
}

#[test]
fn what_scripts_read_is_json() {
    let (_folder, run_path) = place();
    let told = simulated(&run_path, &["--json", "--rounds", "2"]).ended(0);
    let lines: Vec<Value> = told.out.lines().map(json).collect();
    assert_eq!(lines[0]["event"], "opened");
    let outcome = &lines.last().unwrap()["outcome"];
    assert!(outcome["speedup"].as_f64().unwrap() > 1.0 && outcome["claim"] == "faster", "{outcome}");
    assert_eq!(json(&run(&["replay", &run_path, "--json"]).ended(0).out)["agrees"], true);
    assert!(json(&run(&["show", &run_path, "--json"]).ended(0).out).as_array().unwrap().len() > 10);
    let policies = json(&run(&["policies", "--json"]).ended(0).out);
    assert_eq!(policies.as_array().unwrap().len(), agents::policy::Policy::names().count());
    assert!(json(&run(&["prompts", "--json"]).ended(0).out)["seed"].is_string());
    let doctor = run(&["doctor", "--json"]);
    let findings = json(&doctor.out);
    assert_eq!(doctor.code, Some(if findings["compilers"][0]["found"] == true { 0 } else { 3 }), "{findings}");
    assert!(findings["confinement"].as_array().is_some_and(|layers| !layers.is_empty()), "{findings}");
}

#[test]
fn evaluate_tells_a_right_candidate_from_a_wrong_one() {
    let (folder, _) = place();
    for (does, code, word) in [("us=50", 0, "correct, "), ("wrong", 1, "failed: "), ("build-error", 1, "told to fail")]
    {
        let file = folder.path().join("candidate.cpp").display().to_string();
        std::fs::write(&file, format!("// simulate: {does}\nvoid silu_and_mul() {{}}\n")).unwrap();
        let told = run(&["evaluate", TASK, &file, "--simulate", "--profile", "--certify"]).ended(code);
        assert!(told.out.contains(word), "{told:?}");
        let found = json(&run(&["evaluate", TASK, &file, "--simulate", "--json"]).ended(code).out);
        assert_eq!(found["evaluation"]["passed"].is_object(), code == 0, "{found}");
    }
}

#[test]
fn evaluate_takes_several_candidates_and_standard_input() {
    let (folder, _) = place();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("right.cpp"), "// simulate: us=50\nvoid silu_and_mul() {}\n").unwrap();
    std::fs::write(at("wrong.cpp"), "// simulate: wrong\nvoid silu_and_mul() {}\n").unwrap();
    let (right, wrong) = (at("right.cpp"), at("wrong.cpp"));
    let told = run(&["evaluate", TASK, &right, &wrong, "--simulate"]).ended(1);
    let at_right = told.out.find("right.cpp").expect("the first is named");
    assert!(told.out[at_right..].find("correct, ") < told.out[at_right..].find("wrong.cpp"), "{told:?}");
    let found = json(&run(&["evaluate", TASK, &right, &right, "--simulate", "--json"]).ended(0).out);
    assert_eq!(found.as_array().map(Vec::len), Some(2), "{found}");
    assert_eq!(found[1]["file"], right.as_str());
    let mut piped = warpsmith(&["evaluate", TASK, "-", "--simulate", "--json"]);
    let told = Told::of(piped.stdin(std::fs::File::open(&wrong).unwrap()).output().unwrap()).ended(1);
    assert_eq!(json(&told.out)["file"], "-");
}

#[test]
fn a_run_says_what_answers_on_what_and_how_it_ended() {
    let (_folder, run_path) = place();
    let told = simulated(&run_path, &[]).ended(0);
    let (head, _) = told.out.split_once("round 1 of 10").unwrap();
    for line in [
        "model      scripted",
        "machine    simulated",
        "task       silu_and_mul",
        "policy     cudaforge, 10 rounds",
        "reference  ",
    ] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
    for line in [
        "judge, fault: ",
        "judge, bottleneck: ",
        "failed: it does not build",
        "certified: ",
        "not checked: ",
        "report.html",
    ] {
        assert!(told.out.contains(line), "{line} is not in {}", told.out);
    }
    assert!(!told.out.contains('\u{1b}') && !told.err.contains('\u{1b}'), "escape codes in a pipe");
    let report = std::fs::read_to_string(std::path::Path::new(&run_path).join("report.html")).unwrap();
    assert!(report.contains("silu_and_mul") && !report.contains("src=\"http"));
}

#[test]
fn a_run_without_a_right_candidate_ends_with_1() {
    let (folder, run_path) = place();
    let script = folder.path().join("script.jsonl").display().to_string();
    let reply = "```cpp\\n// simulate: wrong\\nvoid f() {}\\n```";
    std::fs::write(&script, format!("{{\"role\": \"coder\", \"reply\": \"{reply}\"}}\n")).unwrap();
    let model = format!("scripted:{script}");
    let arguments =
        ["run", TASK, "--model", &model, "--simulate", "--shapes", "task", "--rounds", "1", "--out", &run_path];
    assert!(run(&arguments).ended(1).out.contains("no candidate was both correct and certified"));
}

#[test]
fn who_chooses_shapes_is_told_their_limit_and_of_a_problem_nobody_chooses() {
    let limit = |task: &str| {
        let prompt = run(&["prompts", "render", "--role", "tester", "--step", "shapes", task]).ended(0).out;
        prompt.split("add up to at most ").nth(1).unwrap().split(" a shape").next().unwrap().to_owned()
    };
    assert_eq!([limit(TASK), limit("examples/cuda/matmul_fp32")], ["32 MiB", "256 MiB"]);
    let (folder, run_path) = place();
    let letters = format!("mailbox:{}", folder.path().join("letters").display());
    let simulated = ["--simulate", "--rounds", "1", "--model", &letters, "--exit-when-waiting", "--out", &run_path];
    let problem = "examples/problems/level1/1_Softplus.py";
    let told = run(&[&["run", problem, "--shapes", "model"], &simulated[..]].concat());
    assert!(told.err.contains("--shapes model changes nothing: level1-1_Softplus is a problem"), "{told:?}");
    assert!(told.out.contains("chosen by the task"), "{told:?}");
}

#[test]
fn where_a_setting_comes_from_is_told() {
    let (folder, _) = place();
    let file = folder.path().join("settings.toml").display().to_string();
    std::fs::write(&file, "[model]\nspec = 'openai:x'\napi_key = 'sk-hidden'\n").unwrap();
    let told = run(&["--config", &file, "config"]).ended(0);
    assert!(told.out.contains(&format!("model.spec = \"openai:x\"   # {file}")), "{told:?}");
    assert!(!told.out.contains("sk-hidden"), "{told:?}");
    let defaults = run(&["config", "--defaults"]).ended(0).out;
    assert!(toml::from_str::<warpsmith::config::Config>(&defaults).is_ok(), "{defaults}");
}

#[test]
fn a_reader_that_goes_away_is_no_reason_to_fail() {
    let mut child = warpsmith(&["prompts", "seed"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_doctor_says_which_python_and_torch_it_would_use() {
    let folder = tempfile::tempdir().unwrap();
    let (python, settings) = (folder.path().join("my-python"), folder.path().join("settings.toml"));
    program::executable(&python, "#!/bin/sh\necho /opt/python 3.12.1 with torch 2.9.0 on the processor\n");
    let told = |python: &std::path::Path| {
        std::fs::write(&settings, format!("[workshop]\npython = '{}'\n", python.display())).unwrap();
        run(&["doctor", "--config", &settings.display().to_string()]).out
    };
    let found = told(&python);
    assert!(found.contains("my-python): /opt/python 3.12.1 with torch 2.9.0"), "{found}");
    let missing = told(&folder.path().join("none"));
    assert!(missing.contains("none): cannot be started") && missing.contains("workshop.python"), "{missing}");
}

#[test]
fn an_ablation_that_comes_along_can_be_printed_to_start_one_s_own_from() {
    let told = run(&["ablate", "--show", "cudaforge-table1"]).ended(0);
    assert!(told.out.contains("[[variant]]"), "{told:?}");
    assert!(run(&["ablate", "--show", "nothing"]).ended(2).err.contains("expected one of cudaforge-table1"));
}
