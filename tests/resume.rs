//! Does a run go on after anything that can happen to it?
#[path = "resume/hanging.rs"]
mod hanging;
#[path = "resume/power.rs"]
mod power;

use crate::endpoint::{self, Act, Endpoint, Request};
use crate::program::{self, KEY, TASK, Told, events, place, run, simulated, warpsmith};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

/// What each round's candidate does on the simulated machine, and what is asked of the Judge before it.
const ROUNDS: [(&str, Option<Asked>); 10] = [
    ("us=90", None),
    ("us=70", Some(Asked::Optimization)),
    ("wrong", Some(Asked::Optimization)),
    ("us=60", Some(Asked::Fix)),
    ("build-error", Some(Asked::Optimization)),
    ("us=50", Some(Asked::Fix)),
    ("crash", Some(Asked::Optimization)),
    ("us=45", Some(Asked::Fix)),
    ("us=80", Some(Asked::Optimization)),
    ("us=30", Some(Asked::Optimization)),
];

#[derive(Clone, Copy)]
enum Asked {
    Fix,
    Optimization,
}

/// An endpoint that answers by what it is shown: the candidate of round N in the prompt leads to round N + 1.
fn answering() -> Endpoint {
    Endpoint::start(|_, request| {
        std::thread::sleep(Duration::from_millis(15));
        let round = round_of(request);
        let text = if request.body["model"] == "judge" { verdict(round) } else { candidate(round) };
        Act::Say(text)
    })
}

fn round_of(request: &Request) -> usize {
    let said = request.said();
    let shown = (1..=ROUNDS.len()).rev().find(|n| said.contains(&format!("candidate of round {n},")));
    shown.unwrap_or(0) + 1
}

fn candidate(round: usize) -> String {
    let does = ROUNDS[round - 1].0;
    format!(
        "```cpp\n// candidate of round {round}, simulate: {does} build_ms=4 run_ms=3\nvoid silu_and_mul() {{}}\n```"
    )
}

fn verdict(round: usize) -> String {
    let words = |what: &str| format!("{what} before round {round}");
    match ROUNDS[round - 1].1 {
        Some(Asked::Fix) => json!({"critical_issue": words("fault"), "why_it_matters": "it is wrong", "minimal_fix_hint": "mend it"}),
        _ => json!({"bottleneck": words("bottleneck"), "optimization method": "less work", "modification plan": "do less"}),
    }
    .to_string()
}

/// How often each question was asked: by model and round.
fn asked(endpoint: &Endpoint) -> BTreeMap<(String, u64), usize> {
    let mut counts = BTreeMap::new();
    for request in endpoint.requests() {
        let model = request.body["model"].as_str().unwrap_or_default().to_owned();
        *counts.entry((model, round_of(&request) as u64)).or_default() += 1;
    }
    counts
}

/// A run on the simulated machine with this endpoint as its model.
fn start(endpoint: &Endpoint, folder: &Path) -> std::process::Command {
    let settings = folder.join("settings.toml");
    std::fs::write(&settings, "[model.roles.judge]\nmodel = 'judge'\n").unwrap();
    let (settings, out) = (settings.display().to_string(), folder.join("run").display().to_string());
    let arguments = ["--config", &settings, "run", TASK, "--model", "openai:coder", "--simulate", "--shapes", "task"];
    let mut command = warpsmith(&[&arguments[..], &["--repetitions", "5", "--out", &out]].concat());
    command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY);
    command
}

fn resume(endpoint: &Endpoint, run: &Path) -> Told {
    let mut command = warpsmith(&["resume", &run.display().to_string()]);
    command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY);
    Told::of(command.output().unwrap())
}

/// What two runs of the same script have in common: candidates, verdicts, outcomes, certificate, end.
fn story(run: &Path) -> Vec<Value> {
    let kept = ["began", "judged", "wrote", "evaluated", "certified", "ended"];
    let of = |mut event: Value| {
        for key in ["seq", "at_ms", "evidence"] {
            event.as_object_mut().unwrap().remove(key);
        }
        event
    };
    let events = events(&run.display().to_string()).into_iter();
    events.filter(|event| kept.iter().any(|name| event["event"] == *name)).map(of).collect()
}

fn answered(run: &Path) -> Vec<(String, u64)> {
    let events = events(&run.display().to_string());
    let answered = events.iter().filter(|event| event["event"] == "answered");
    answered.map(|e| (e["call"]["role"].as_str().unwrap().to_owned(), e["call"]["round"].as_u64().unwrap())).collect()
}

/// How often the same run is killed.
const KILLS: usize = 20;

#[test]
fn killed_at_any_moment_it_resumes_to_the_same_end_and_asks_nothing_twice() {
    let endpoint = answering();
    let whole = tempfile::tempdir().unwrap();
    Told::of(start(&endpoint, whole.path()).output().unwrap()).ended(0);
    let (run, clock) = (whole.path().join("run"), Instant::now());
    let (expected, lines) = (story(&run), recorded(&run));
    assert_eq!(expected.iter().filter(|event| event["event"] == "evaluated").count(), 10);
    let mut cut_short = 0;
    for kill in 0..KILLS {
        let jitter = Duration::from_nanos(u64::from(clock.elapsed().subsec_nanos()) % 20_000_000);
        cut_short += usize::from(kill_and_resume((lines * kill / KILLS, jitter), &expected));
    }
    assert!(cut_short >= 10, "only {cut_short} of {KILLS} runs were killed before their end: the test says nothing");
}

/// How many lines the record of a run has.
fn recorded(run: &Path) -> usize {
    std::fs::read_to_string(program::only_events(run)).map_or(0, |record| record.lines().count())
}

/// Whether there was something left to do after the kill, which comes so long after the record has so many lines.
fn kill_and_resume(after: (usize, Duration), expected: &[Value]) -> bool {
    let endpoint = answering();
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut child = start(&endpoint, folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while recorded(&run) < after.0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(after.1);
    child.kill().unwrap();
    child.wait().unwrap();
    if !run.exists() {
        Told::of(start(&endpoint, folder.path()).output().unwrap()).ended(0);
        return false;
    }
    let known = if program::only_events(&run).exists() { answered(&run) } else { vec![] };
    let before = asked(&endpoint);
    let told = resume(&endpoint, &run);
    assert_eq!(told.code, Some(0), "killed after {after:?}: {told:?}");
    assert_eq!(story(&run), expected, "killed after {after:?}");
    let now = asked(&endpoint);
    for question in &known {
        assert_eq!(
            before.get(question),
            now.get(question),
            "{question:?} was answered and asked again, killed after {after:?}"
        );
    }
    let replayed = program::run(&["replay", &run.display().to_string()]);
    assert_eq!(replayed.code, Some(0), "killed after {after:?}: {replayed:?}");
    known.len() < 18
}

#[test]
fn cut_after_any_event_it_resumes_to_the_same_end_and_asks_only_what_was_not_answered() {
    let endpoint = answering();
    let folder = tempfile::tempdir().unwrap();
    Told::of(start(&endpoint, folder.path()).args(["--rounds", "4"]).output().unwrap()).ended(0);
    let (run, questions) = (folder.path().join("run"), asked(&endpoint).len());
    let (expected, whole) = (story(&run), std::fs::read_to_string(program::only_events(&run)).unwrap());
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for cut in 1..lines.len() {
        let torn = &lines[cut][..lines[cut].len() / 2];
        std::fs::write(program::only_events(&run), lines[..cut].concat() + torn).unwrap();
        let (known, endpoint) = (answered(&run), answering());
        let told = resume(&endpoint, &run).ended(0);
        assert!(told.err.contains("the last line was torn"), "{told:?}");
        assert_eq!(story(&run), expected, "cut after {}", lines[cut - 1]);
        let again = asked(&endpoint);
        assert!(known.iter().all(|question| !again.contains_key(question)), "cut after {}", lines[cut - 1]);
        assert_eq!(again.len() + known.len(), questions, "cut after {}", lines[cut - 1]);
    }
}

#[test]
fn the_key_turns_up_neither_in_the_run_nor_in_what_is_printed() {
    let endpoint = answering();
    let folder = tempfile::tempdir().unwrap();
    let told = Told::of(start(&endpoint, folder.path()).env("RUST_LOG", "trace").output().unwrap()).ended(0);
    assert!(endpoint.requests().iter().all(|r| r.authorization.as_ref().is_some_and(|a| a.contains(KEY))));
    assert!(!told.out.contains(KEY) && !told.err.contains(KEY));
    for file in program::files(folder.path()) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes()), "{}", file.display());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_key_is_not_in_the_environment_that_the_system_shows_of_the_program() {
    let endpoint = Endpoint::acting([Act::Hang]);
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(&endpoint, folder.path()).stdout(Stdio::null()).spawn().unwrap();
    while endpoint.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!environment.windows(KEY.len()).any(|window| window == KEY.as_bytes()));
    assert!(environment.windows(16).any(|window| window == b"OPENAI_API_KEY=*"));
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_does() {
    let endpoint = Endpoint::start(|n, request| match n {
        0..3 => Act::Say(if request.body["model"] == "judge" {
            verdict(round_of(request))
        } else {
            candidate(round_of(request))
        }),
        _ => Act::Hang,
    });
    let folder = tempfile::tempdir().unwrap();
    let child = start(&endpoint, folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while endpoint.requests().len() < 4 {
        std::thread::sleep(Duration::from_millis(10));
    }
    // The shell's own `kill`: the program of that name is not on every machine.
    let interrupt = format!("kill -INT {}", child.id());
    std::process::Command::new("sh").args(["-c", &interrupt]).status().unwrap();
    let told = Told::of(child.wait_with_output().unwrap()).ended(130);
    assert!(told.err.contains("warpsmith resume"), "{told:?}");
    resume(&answering(), &folder.path().join("run")).ended(0);
}

#[test]
fn with_letters_missing_it_ends_with_10_and_goes_on_when_they_are_there() {
    let (folder, run) = place();
    let letters = folder.path().join("letters");
    let model = format!("mailbox:{}", letters.display());
    let more =
        ["--simulate", "--shapes", "task", "--rounds", "2", "--repetitions", "5", "--exit-when-waiting", "--out", &run];
    let told = program::run(&[&["run", TASK, "--model", &model][..], &more].concat()).ended(10);
    assert!(told.err.contains("waiting for a reply") && told.err.contains("warpsmith resume"), "{told:?}");
    for reply in [candidate(1), verdict(2), candidate(2)] {
        answer_the_open_letter(&letters, &reply);
        if reply == candidate(1) {
            let told = program::run(&["resume", &run, "--exit-when-waiting", "--without-device"]).ended(10).err;
            assert!(told.contains("a device is needed next") && !told.contains("trying once more"), "{told}");
        }
        let code = if reply == candidate(2) { 0 } else { 10 };
        program::run(&["resume", &run, "--exit-when-waiting"]).ended(code);
    }
    assert_eq!(events(&run).iter().filter(|event| event["event"] == "evaluated").count(), 2);
}

fn answer_the_open_letter(letters: &Path, reply: &str) {
    for file in program::files(letters) {
        let name = file.display().to_string();
        if let Some(stem) = name.strip_suffix(".request.json") {
            let text = format!("{stem}.reply.txt");
            if !Path::new(&text).exists() {
                std::fs::write(format!("{text}.part"), reply).unwrap();
                std::fs::rename(format!("{text}.part"), &text).unwrap();
            }
        }
    }
}

#[test]
fn the_key_is_not_sent_to_an_address_that_only_the_run_s_folder_names() {
    let endpoint = Endpoint::acting([Act::Hang]);
    let folder = tempfile::tempdir().unwrap();
    let mut first = start(&endpoint, folder.path()).stdout(Stdio::null()).spawn().unwrap();
    while endpoint.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let run = folder.path().join("run").display().to_string();
    let told = Told::of(warpsmith(&["resume", &run]).env("OPENAI_API_KEY", KEY).output().unwrap()).ended(2);
    assert!(told.err.contains(&endpoint.url()) && told.err.contains("set OPENAI_BASE_URL"), "{told:?}");
    assert_eq!(endpoint.requests().len(), 1);
}

#[cfg(unix)]
#[test]
fn a_record_that_cannot_grow_ends_the_run_with_5_and_stays_whole() {
    let endpoint = answering();
    let folder = tempfile::tempdir().unwrap();
    let whole = start(&endpoint, folder.path());
    let words: Vec<_> = whole.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    // No file may grow beyond 16 KiB: what a full disk does, without filling one.
    let mut limited = std::process::Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "-"]).arg(whole.get_program()).args(words);
    limited.current_dir(env!("CARGO_MANIFEST_DIR"));
    limited.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY);
    let told = Told::of(limited.output().unwrap()).ended(5);
    assert!(told.err.contains("events.jsonl: cannot append to the record"), "{told:?}");
    let resumed = resume(&endpoint, &folder.path().join("run")).ended(0);
    assert!(!resumed.err.contains("torn"), "what was half written was not taken back: {resumed:?}");
}

#[test]
fn two_processes_cannot_work_on_one_run() {
    let endpoint = Endpoint::acting([Act::Hang]);
    let folder = tempfile::tempdir().unwrap();
    let mut first = start(&endpoint, folder.path()).stdout(Stdio::null()).spawn().unwrap();
    while endpoint.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let second = resume(&endpoint, &folder.path().join("run"));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.ended(5).err.contains("is writing to this run"));
}

#[test]
fn a_run_that_has_ended_is_told_again_and_not_made_again() {
    let (_folder, run) = place();
    simulated(&run, &[]).ended(0);
    let before = events(&run);
    let told = self::run(&["resume", &run]).ended(0);
    assert!(told.out.contains("certified: "), "{told:?}");
    assert_eq!(events(&run), before);
}

/// Every text of a run that begins so, cut short in this way.
fn damage(run: &Path, begins: &str, to: &str) -> usize {
    let texts = program::files(&run.join("blobs"));
    let hit: Vec<_> = texts.iter().filter(|t| std::fs::read_to_string(t).unwrap().starts_with(begins)).collect();
    for text in &hit {
        std::fs::write(text, to).unwrap();
    }
    hit.len()
}

/// A run of four rounds that was killed before its certificate.
fn broken_off(endpoint: &Endpoint, folder: &Path) -> std::path::PathBuf {
    Told::of(start(endpoint, folder).args(["--rounds", "4"]).output().unwrap()).ended(0);
    let run = folder.join("run");
    let events = program::only_events(&run);
    let text = std::fs::read_to_string(&events).unwrap();
    let last = text.rfind("\"event\":\"evaluated\"").unwrap();
    std::fs::write(&events, &text[..=text[..last].rfind('\n').unwrap()]).unwrap();
    run
}

#[test]
fn a_run_whose_replies_are_empty_asks_these_again_says_so_and_comes_to_the_same_end() {
    let (first, folder) = (answering(), tempfile::tempdir().unwrap());
    let run = broken_off(&first, folder.path());
    let whole = story(&run);
    let hit = damage(&run, "```cpp\n// candidate of round 2,", "");
    assert_eq!(hit, 1, "the reply of round 2");
    let endpoint = answering();
    let told = resume(&endpoint, &run).ended(0);
    assert!(told.err.contains("asked again") && told.err.contains("damaged-1"), "{told:?}");
    assert_eq!(story(&run)[..whole.len()], whole);
    // What was whole and is asked in the same words again is not asked again.
    assert_eq!(asked(&endpoint).into_iter().collect::<Vec<_>>(), [(("coder".to_owned(), 2), 1)]);
    program::run(&["verify", &run.display().to_string()]).ended(0);
}

#[test]
fn a_run_whose_texts_are_all_empty_begins_anew_from_its_task() {
    let (first, folder) = (answering(), tempfile::tempdir().unwrap());
    let run = broken_off(&first, folder.path());
    assert!(damage(&run, "", "") > 10);
    let told = resume(&answering(), &run).ended(0);
    assert!(told.err.contains("texts that it names are missing, empty or changed"), "{told:?}");
    assert_eq!(story(&run).iter().filter(|event| event["event"] == "evaluated").count(), 4);
}

#[test]
fn zeros_at_the_end_of_a_record_are_what_a_cut_of_power_left() {
    let (first, folder) = (answering(), tempfile::tempdir().unwrap());
    let run = broken_off(&first, folder.path());
    let events = program::only_events(&run);
    let mut bytes = std::fs::read(&events).unwrap();
    bytes.extend(vec![0; 700]);
    bytes.push(b'\n');
    std::fs::write(&events, bytes).unwrap();
    assert!(resume(&answering(), &run).ended(0).err.contains("torn"));
}

#[test]
fn a_run_that_has_ended_goes_on_with_more_rounds_and_is_certified_anew() {
    let (endpoint, folder) = (answering(), tempfile::tempdir().unwrap());
    Told::of(start(&endpoint, folder.path()).args(["--rounds", "2"]).output().unwrap()).ended(0);
    let run = folder.path().join("run");
    let name = run.display().to_string();
    let refused = program::run(&["resume", &name, "--rounds", "2"]).ended(2);
    assert!(refused.err.contains("2 rounds are done"), "{refused:?}");
    let refused = program::run(&["resume", &name, "--usd", "5"]).ended(2);
    assert!(refused.err.contains("--rounds N gives it more"), "{refused:?}");
    let mut more = warpsmith(&["resume", &name, "--rounds", "4"]);
    more.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY);
    let told = Told::of(more.output().unwrap()).ended(0);
    assert!(told.out.contains("of 4"), "{told:?}");
    let count = |name: &str| events(&run.display().to_string()).iter().filter(|e| e["event"] == name).count();
    assert_eq!((count("evaluated"), count("certified"), count("ended"), count("extended")), (4, 2, 2, 1));
    program::run(&["replay", &name]).ended(0);
    program::run(&["verify", &name]).ended(0);
    assert!(program::run(&["resume", &name]).ended(0).out.contains("certified: "));
}

#[test]
fn a_run_that_ended_at_a_limit_goes_on_with_a_larger_one_and_not_with_the_same() {
    let (endpoint, folder) = (answering(), tempfile::tempdir().unwrap());
    Told::of(start(&endpoint, folder.path()).args(["--rounds", "3", "--tokens", "1"]).output().unwrap()).ended(0);
    let run = folder.path().join("run");
    let given = |limits: &[&str]| {
        let mut command = warpsmith(&[&["resume", &run.display().to_string()], limits].concat());
        Told::of(command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY).output().unwrap())
    };
    let resumed = |tokens: &str| given(&["--tokens", tokens]);
    let dollars = given(&["--tokens", "1000000", "--usd", "5"]).ended(2).err;
    assert!(dollars.contains("is not known, so a limit in dollars could not be kept"), "{dollars}");
    assert!(resumed("1").ended(2).err.contains("allows already"));
    resumed("1000000").ended(0);
    assert_eq!(events(&run.display().to_string()).iter().filter(|e| e["event"] == "evaluated").count(), 3);
    program::run(&["replay", &run.display().to_string()]).ended(0);
}

#[test]
fn of_a_run_that_was_killed_the_status_says_that_nobody_works_on_it() {
    let endpoint = Endpoint::acting([Act::Hang]);
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(&endpoint, folder.path()).stdout(Stdio::null()).spawn().unwrap();
    while endpoint.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let run = folder.path().join("run").display().to_string();
    assert!(program::run(&["status", &run]).ended(0).out.contains(" works on it"));
    child.kill().unwrap();
    child.wait().unwrap();
    let told = program::run(&["status", &run]).ended(0);
    assert!(told.out.contains("nobody works on it") && told.out.contains("warpsmith resume"), "{told:?}");
}
