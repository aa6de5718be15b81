//! A person beside a whole sequence: at a terminal before each call, and in an editor after it.

use super::{
    program::{Told, run, warpsmith},
    workflow::{Bench, events, of, refactor, tree},
};
use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

/// A bench whose policy is the first step alone, answered in its first round and once more in the second.
fn of_one_step() -> Bench {
    let bench = Bench::new();
    let policy = fs::read_to_string(bench.at("policy.toml")).unwrap().replace(", \"TB-Tiling\", \"Unroll\"]", "]");
    fs::write(bench.at("policy.toml"), policy).unwrap();
    bench.script(&[refactor(1), refactor(2)].concat());
    bench
}

/// A command at a terminal of its own, where somebody types these lines.
fn at_a_terminal(arguments: &[&str], typed: &str) -> Told {
    let line: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("'{}' {}", env!("CARGO_BIN_EXE_warpsmith"), line.join(" "));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).unwrap();
    let told = Told::of(child.wait_with_output().unwrap());
    drop(stdin);
    told
}

fn arguments(bench: &Bench, out: &str) -> Vec<String> {
    let (task, model, policy) = (bench.at("task"), bench.model(), bench.at("policy.toml"));
    ["run", &task, "--model", &model, "--policy", &policy, "--out", out].map(str::to_owned).into()
}

#[test]
fn a_sequence_can_be_steered_before_each_call_and_its_replies_finished_by_hand() {
    let bench = of_one_step();
    let out = bench.at("W");
    let words = arguments(&bench, &out);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--pause"]).collect();
    let told = at_a_terminal(&words, "r\nshort names\ny\ny\ny\n").ended(0);
    assert!(told.out.contains("is about to be asked") && told.out.contains("[r]ephrase"), "{told:?}");
    let all = events(&out);
    let orders: Vec<_> =
        of(&all, "ordered").iter().map(|order| (order["say"].clone(), order["by_hand"].clone())).collect();
    assert_eq!(orders.len(), 2, "{orders:?}");
    assert_eq!(orders[1], ("short names".into(), true.into()), "{orders:?}");
    assert_eq!((of(&all, "answered").len(), tree(&out)["head"].as_str()), (3, Some("c1")), "{told:?}");
    assert!(run(&["replay", &out]).ended(2).err.contains("steered by hand"));
    // Left out: the sequence ends where it began.
    let out = bench.at("skipped");
    let words = arguments(&bench, &out);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--pause"]).collect();
    at_a_terminal(&words, "s\n").ended(0);
    assert_eq!((of(&events(&out), "answered").len(), tree(&out)["head"].as_str()), (0, Some("c0")));
    let (shown, failed) = (run(&["show", &out]).ended(0).out, run(&["tree", &out]).ended(0).out);
    assert!(shown.contains("steered by hand") && !shown.contains("unreadable"), "{shown}");
    assert!(!failed.contains("failed"), "{failed}");
    assert!(run(&["replay", &out]).ended(2).err.contains("steered by hand"));
    let out = bench.at("edited");
    let words = arguments(&bench, &out);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--edit"]).collect();
    let mut command = warpsmith(&words);
    Told::of(command.env("EDITOR", "sed -i s/sum/total/g").env_remove("VISUAL").output().unwrap()).ended(0);
    let edited = run(&["show", &format!("{out}@c1")]).ended(0).out;
    assert!(edited.contains("float total = 0.0f;"), "{edited}");
}

#[test]
fn where_nothing_can_be_steered_that_is_said_before_anything_is_made() {
    let bench = of_one_step();
    let (task, model, out) = (bench.at("task"), bench.model(), bench.at("no"));
    let refused = |arguments: &[&str], why: &str| {
        let mut command = warpsmith(arguments);
        let told = Told::of(command.env("EDITOR", "true").output().unwrap()).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    };
    let run = ["run", &task, "--model", &model, "--out", &out];
    refused(&[&run[..], &["--policy", "cudaforge", "--edit"]].concat(), "the policy cudaforge applies none");
    refused(&[&run[..], &["--policy", &bench.at("policy.toml"), "--pause"]].concat(), "--pause asks at a terminal");
    assert!(!fs::exists(&out).unwrap());
}

#[test]
fn a_program_that_a_runs_folder_names_is_not_started() {
    let bench = of_one_step();
    let out = bench.at("W");
    let words = arguments(&bench, &out);
    run(&words.iter().map(String::as_str).collect::<Vec<_>>()).ended(0);
    let (header, marker) = (format!("{out}/run.toml"), bench.at("started"));
    let text = fs::read_to_string(&header).unwrap();
    let validator = format!("\n[configuration.validators.theirs]\ncommand = [\"touch\", \"{marker}\"]\n");
    fs::write(&header, text + &validator).unwrap();
    bench.transform(&out, "Refactor", &[]).ended(0);
    assert_eq!(tree(&out)["head"], "c2", "the transformation was applied, and would have been validated");
    assert!(!fs::exists(&marker).unwrap() && of(&events(&out), "validated").is_empty());
}
