//! Does a batch do all its tasks, within its limits, after anything that can happen to it?

use crate::endpoint::{Act, Endpoint, Request};
use crate::program::{self, KEY, Told, run, warpsmith};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Rounds of each task.
const ROUNDS: usize = 3;

/// A folder of so many tasks that are alike but for their names.
fn tasks(folder: &Path, count: usize) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/silu_and_mul");
    let all = folder.join("tasks");
    for number in 0..count {
        let (own, name) = (all.join(format!("t{number:02}")), format!("task-{number:02}"));
        fs::create_dir_all(&own).unwrap();
        fs::copy(from.join("reference.cpp"), own.join("reference.cpp")).unwrap();
        let text = fs::read_to_string(from.join("task.toml")).unwrap();
        let text = text.replacen("name = \"silu_and_mul\"", &format!("name = \"{name}\""), 1);
        fs::write(
            own.join("task.toml"),
            text.replacen("summary = \"\"\"\n", &format!("summary = \"\"\"\n{name}: "), 1),
        )
        .unwrap();
    }
    all
}

/// Answers by what it is shown: the candidate of a task's round N leads to its round N + 1. Some are wrong.
fn reply(request: &Request) -> String {
    let (task, round) = question(request);
    let number: usize = task.trim_start_matches("task-").parse().unwrap_or(0);
    if request.body["model"] == "judge" {
        let fails = does(number, round - 1) == "wrong";
        return if fails {
            json!({"critical_issue": "a fault", "why_it_matters": "it is wrong", "minimal_fix_hint": "mend it"})
        } else {
            json!({"bottleneck": "work", "optimization method": "less work", "modification plan": "do less"})
        }
        .to_string();
    }
    candidate(&task, number, round)
}

fn candidate(task: &str, number: usize, round: usize) -> String {
    let does = does(number, round);
    format!(
        "```cpp\n// {task} candidate of round {round}, simulate: {does} build_ms=4 run_ms=3\nvoid silu_and_mul() {{}}\n```"
    )
}

fn does(task: usize, round: usize) -> String {
    if (task + round).is_multiple_of(3) { "wrong".to_owned() } else { format!("us={}", 90 - 7 * round - task) }
}

/// The task and the round that a question is about.
fn question(request: &Request) -> (String, usize) {
    let said = request.said();
    let at = said.rfind("task-").unwrap();
    let task = said[at..at + 7].to_owned();
    let shown = (1..=ROUNDS).rev().find(|n| said.contains(&format!("candidate of round {n},")));
    (task, shown.unwrap_or(0) + 1)
}

fn answering() -> Endpoint {
    Endpoint::start(|_, request| {
        std::thread::sleep(Duration::from_millis(10));
        Act::Say(reply(request))
    })
}

/// How often each question was asked: by task, model and round.
fn asked(endpoint: &Endpoint) -> BTreeMap<(String, String, u64), usize> {
    let mut counts = BTreeMap::new();
    for request in endpoint.requests() {
        let ((task, round), model) = (question(&request), request.body["model"].as_str().unwrap().to_owned());
        *counts.entry((task, model, round as u64)).or_default() += 1;
    }
    counts
}

/// A batch on the simulated machine with this endpoint as its model.
fn start(endpoint: &Endpoint, folder: &Path, count: usize, more: &[&str]) -> Command {
    let settings = folder.join("settings.toml");
    fs::write(&settings, "[model.roles.judge]\nmodel = 'judge'\n").unwrap();
    let all = tasks(folder, count).display().to_string();
    let (settings, out) = (settings.display().to_string(), folder.join("run").display().to_string());
    let arguments = ["--config", &settings, "batch", &all, "--model", "openai:coder", "--simulate", "--shapes", "task"];
    let rounds = if more.contains(&"--rounds") { vec![] } else { vec!["--rounds".to_owned(), ROUNDS.to_string()] };
    let rest = ["--repetitions", "5", "--out", &out].map(str::to_owned).into_iter().chain(rounds).collect::<Vec<_>>();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    with_key(warpsmith(&[&arguments[..], &rest, more].concat()), endpoint)
}

fn resume(endpoint: &Endpoint, run: &Path, more: &[&str]) -> Command {
    with_key(warpsmith(&[&["resume", &run.display().to_string()][..], more].concat()), endpoint)
}

fn with_key(mut command: Command, endpoint: &Endpoint) -> Command {
    command.env("OPENAI_BASE_URL", endpoint.url()).env("OPENAI_API_KEY", KEY);
    command
}

fn told(mut command: Command) -> Told {
    Told::of(command.output().unwrap())
}

fn events(run: &Path, task: &str) -> Vec<Value> {
    let text = fs::read_to_string(run.join("tasks").join(task).join("events.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn begun(run: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(run.join("tasks")) else { return vec![] };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// How many lines the records of a batch have together.
fn recorded(run: &Path) -> usize {
    let lines = |task: String| {
        let record = run.join("tasks").join(task).join("events.jsonl");
        fs::read_to_string(record).map_or(0, |record| record.lines().count())
    };
    begun(run).into_iter().map(lines).sum()
}

/// What each task came to: its certificate and its end.
fn scores(run: &Path) -> BTreeMap<String, Vec<Value>> {
    let kept = |event: &Value| ["certified", "ended"].contains(&event["event"].as_str().unwrap());
    let of = |event: Value| json!([event["certificate"], event["end"]]);
    begun(run)
        .into_iter()
        .map(|task| {
            let events = events(run, &task).into_iter().filter(kept).map(of).collect();
            (task, events)
        })
        .collect()
}

/// The questions of a run that were answered.
fn answered(run: &Path) -> Vec<(String, String, u64)> {
    let mut all = vec![];
    for task in begun(run) {
        for event in events(run, &task).iter().filter(|event| event["event"] == "answered") {
            let role = event["call"]["role"].as_str().unwrap().to_owned();
            all.push((task.clone(), role, event["call"]["round"].as_u64().unwrap()));
        }
    }
    all
}

#[test]
fn killed_twenty_times_a_batch_of_twenty_comes_to_the_same_scores_and_asks_nothing_twice() {
    let (endpoint, whole) = (answering(), tempfile::tempdir().unwrap());
    told(start(&endpoint, whole.path(), 20, &[])).ended(0);
    let whole = whole.path().join("run");
    let (clock, lines, expected) = (Instant::now(), recorded(&whole), scores(&whole));
    assert_eq!(expected.len(), 20);
    assert!(expected.values().all(|score| score.len() == 2), "{expected:#?}");

    let (endpoint, folder) = (answering(), tempfile::tempdir().unwrap());
    let run = folder.path().join("run");
    let mut kills = 0;
    let mut looks = vec![];
    for kill in 0..20 {
        let mut command =
            if run.exists() { resume(&endpoint, &run, &[]) } else { start(&endpoint, folder.path(), 20, &[]) };
        let before = recorded(&run);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while recorded(&run) < before + lines / 25 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_nanos(u64::from(clock.elapsed().subsec_nanos()) % 20_000_000));
        kills += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        let known = answered(&run);
        assert_eq!(known.iter().collect::<BTreeSet<_>>().len(), known.len(), "noted twice before kill {kill}");
        looks.push((known, asked(&endpoint)));
    }
    told(resume(&endpoint, &run, &[])).ended(0);
    // Whatever was answered at a kill was never asked again.
    let after = asked(&endpoint);
    for (kill, (known, before)) in looks.iter().enumerate() {
        assert!(
            known.iter().all(|question| before.get(question) == after.get(question)),
            "asked again after kill {kill}"
        );
    }
    let answers_at_kills: BTreeSet<usize> = looks.iter().map(|(known, _)| known.len()).collect();
    assert!(
        kills >= 10 && answers_at_kills.len() >= 5,
        "{kills} kills at {answers_at_kills:?} answers: the test says nothing"
    );
    assert_eq!(scores(&run), expected);
    let answered = answered(&run);
    assert_eq!(answered.iter().collect::<BTreeSet<_>>().len(), answered.len());
}

#[test]
fn a_task_that_cannot_be_read_is_named_and_the_others_are_done() {
    let (endpoint, folder) = (answering(), tempfile::tempdir().unwrap());
    let mut command = start(&endpoint, folder.path(), 3, &["--json"]);
    fs::write(folder.path().join("tasks/t01/task.toml"), "schema = 1\nnam = 'x'\n").unwrap();
    let told = told_of(&mut command).ended(0);
    assert!(told.err.contains("t01/task.toml") && told.err.contains("`nam`"), "{told:?}");
    let outcome: Value = serde_json::from_str(told.out.lines().last().unwrap()).unwrap();
    assert_eq!((&outcome["finished"], &outcome["correct"]), (&json!(2), &json!(2)), "{outcome}");
    let list = fs::read_to_string(folder.path().join("run/batch.toml")).unwrap();
    assert!(list.contains("[[unreadable]]") && list.contains("t01"), "{list}");
    // Which of several tasks a checkpoint would be of, nobody says.
    let told = run(&["checkpoint", &folder.path().join("run").display().to_string(), "name"]).ended(2);
    assert!(told.err.contains("this run has 2 tasks: expected a run of one task"), "{told:?}");
}

fn told_of(command: &mut Command) -> Told {
    Told::of(command.output().unwrap())
}

#[test]
fn a_limit_in_dollars_ends_the_run_by_name_and_more_money_goes_on() {
    let (endpoint, folder) = (answering(), tempfile::tempdir().unwrap());
    let run = folder.path().join("run");
    let prices = folder.path().join("prices.toml");
    let price = "{ input = 2.5, cached = 1.25, output = 10.0 }";
    fs::write(&prices, format!("as_of = 'now'\nsource = 'a test'\n[models]\ncoder = {price}\njudge = {price}\n"))
        .unwrap();
    // Each answer costs 0.003 dollars; a task asks five questions.
    let more = ["--usd", "0.02", "--at-once", "2"];
    let mut command = start(&endpoint, folder.path(), 6, &more);
    assert!(told_of(&mut command).ended(2).err.contains("the price of coder, judge is not known"));
    let settings = folder.path().join("settings.toml");
    let known = fs::read_to_string(&settings).unwrap() + &format!("[model]\nprices = '{}'\n", prices.display());
    fs::write(&settings, known).unwrap();
    let told = told_of(&mut command).ended(0);
    assert!(told.out.contains("limit      usd is reached") && told.out.contains("warpsmith resume"), "{told:?}");
    let ends: Vec<Value> = scores(&run).values().map(|score| score.last().unwrap()[1].clone()).collect();
    assert!(ends.contains(&json!("usd")) && ends.len() < 6, "{ends:?}");
    let (paid, noted) = (endpoint.requests().len(), answered(&run).len());
    assert_eq!(paid, noted, "a call was paid for and is not in the record");
    told_of(&mut resume(&endpoint, &run, &["--usd", "1"])).ended(0);
    assert_eq!(scores(&run).len(), 6);
    // Those that had ended for want of money go on, too.
    assert!(scores(&run).values().all(|score| score.last().unwrap()[1] == "out-of-rounds"));
}

#[test]
fn with_letters_missing_every_task_advances_and_the_run_goes_on_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let all = tasks(folder.path(), 4).display().to_string();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let (out, letters) = (here.join("run").display().to_string(), here.join("letters"));
    fs::create_dir(&here).unwrap();
    let model = format!("mailbox:{}", letters.display());
    let more = ["--simulate", "--shapes", "task", "--rounds", "2", "--repetitions", "5", "--exit-when-waiting"];
    let told = run(&[&["batch", &all, "--model", &model, "--out", &out][..], &more].concat()).ended(10);
    assert!(told.out.contains("waiting    for a reply to"), "{told:?}");
    assert_eq!(open_letters(&letters).len(), 4);
    answer(&letters);
    // The run and its letters go elsewhere, and the tasks they were read from are gone.
    fs::rename(&here, &there).unwrap();
    fs::remove_dir_all(folder.path().join("tasks")).unwrap();
    let (out, letters) = (there.join("moved"), there.join("letters"));
    fs::rename(there.join("run"), &out).unwrap();
    let (out, model) = (out.display().to_string(), format!("mailbox:{}", letters.display()));
    let resumed =
        |more: &[&str]| run(&[&["resume", &out, "--model", &model, "--exit-when-waiting"][..], more].concat());
    let told = resumed(&["--without-device"]).ended(10);
    assert!(told.out.contains("waiting    for a device") && !told.err.contains("trying once more"), "{told:?}");
    // From the Judge's reply to the Coder's question no device is needed.
    for (code, more) in [(10, &[][..]), (10, &["--without-device"]), (0, &[])] {
        resumed(more).ended(code);
        assert!(code == 0 || open_letters(&letters).len() == 4, "not every task has advanced");
        answer(&letters);
    }
    let stale = fs::read_dir(&letters).unwrap().flatten().filter(|e| e.path().to_string_lossy().contains(".stale-"));
    assert_eq!(stale.count(), 0, "a question was not the same when it was asked again");
    assert_eq!(scores(Path::new(&out)).len(), 4);
}

/// The requests without an answer.
fn open_letters(letters: &Path) -> Vec<String> {
    let names = program::files(letters).into_iter().map(|file| file.display().to_string());
    let stems: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".request.json")?.to_owned())).collect();
    stems.into_iter().filter(|stem| !Path::new(&format!("{stem}.reply.txt")).exists()).collect()
}

fn answer(letters: &Path) {
    for stem in open_letters(letters) {
        let text = fs::read_to_string(format!("{stem}.request.json")).unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        let mut body = line["body"].clone();
        if stem.contains(".judge.") {
            body["model"] = json!("judge");
        }
        let request = Request { path: String::new(), authorization: None, text: body.to_string(), body };
        fs::write(format!("{stem}.reply.txt.part"), reply(&request)).unwrap();
        fs::rename(format!("{stem}.reply.txt.part"), format!("{stem}.reply.txt")).unwrap();
    }
}

#[test]
fn an_endpoint_that_refuses_stops_the_batch_with_4_and_resume_goes_on() {
    let refusing = Endpoint::start(|n, request| match n {
        0..3 => Act::Say(reply(request)),
        _ => Act::error(401, "invalid_api_key", "no such key"),
    });
    let folder = tempfile::tempdir().unwrap();
    let told = told(start(&refusing, folder.path(), 6, &["--at-once", "2"])).ended(4);
    assert!(told.out.contains("no further task is begun") && told.err.contains("warpsmith resume"), "{told:?}");
    let run = folder.path().join("run");
    assert!(begun(&run).len() < 6);
    told_of(&mut resume(&answering(), &run, &[])).ended(0);
    assert_eq!(scores(&run).len(), 6);
}

#[test]
fn while_an_endpoint_is_down_a_batch_goes_on_with_what_needs_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let (run, began) = (folder.path().join("run"), Instant::now());
    let certified = move || events(&run, "task-00").iter().any(|event| event["event"] == "certified");
    let looked = certified.clone();
    // The second task's question meets a gateway that restarts, until the first is certified or ten seconds are over.
    let endpoint = Endpoint::start(move |_, request| {
        let down = question(request).0 == "task-01" && !looked() && began.elapsed() < Duration::from_secs(10);
        if down { Act::error(503, "unavailable", "restarting") } else { Act::Say(reply(request)) }
    });
    told(start(&endpoint, folder.path(), 2, &["--rounds", "1"])).ended(0);
    assert!(endpoint.requests().len() > 2, "it was never down");
    assert!(certified() && began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn while_one_process_works_on_a_batch_another_may_look_and_not_write() {
    let endpoint = Endpoint::start(|n, request| if n < 8 { Act::Say(reply(request)) } else { Act::Hang });
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut first = start(&endpoint, folder.path(), 4, &[]).stdout(Stdio::null()).spawn().unwrap();
    while endpoint.requests().len() < 10 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let path = run.display().to_string();
    let (second, status) = (told_of(&mut resume(&endpoint, &run, &[])), program::run(&["status", &path]));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.ended(5).err.contains("is writing to this run"));
    let status = status.ended(0);
    assert!(status.out.contains("of 4 finished") && status.out.contains("works on it"), "{status:?}");
    assert!(status.out.contains("waiting for the"), "{status:?}");
    let later = program::run(&["status", &path]).ended(0);
    assert!(later.out.contains("nobody works on it"), "{later:?}");
}

#[test]
fn a_task_whose_model_says_nothing_readable_is_named_with_the_reason_wherever_it_is_told() {
    let endpoint = Endpoint::start(|_, request| {
        let nothing = question(request).0 == "task-01";
        Act::Say(if nothing { "I would rather not.".to_owned() } else { reply(request) })
    });
    let folder = tempfile::tempdir().unwrap();
    let told = told(start(&endpoint, folder.path(), 2, &[])).ended(4);
    let line = told.out.lines().find(|line| line.contains("task-01: ended")).unwrap();
    assert!(line.contains("gave no readable reply") && told.out.contains("1 task ended without a reply"), "{told:?}");
    let run = folder.path().join("run").display().to_string();
    let status = run_status(&run);
    let line = status.lines().find(|line| line.starts_with("task-01")).unwrap();
    assert!(line.contains("gave no readable reply"), "{status}");
}

fn run_status(path: &str) -> String {
    run(&["status", path]).ended(0).out
}

#[test]
fn a_batch_that_has_ended_goes_on_with_more_rounds() {
    let endpoint = answering();
    let folder = tempfile::tempdir().unwrap();
    told(start(&endpoint, folder.path(), 2, &["--rounds", "1"])).ended(0);
    let path = folder.path().join("run");
    told(resume(&endpoint, &path, &["--rounds", "3"])).ended(0);
    for task in ["task-00", "task-01"] {
        assert_eq!(events(&path, task).iter().filter(|event| event["event"] == "evaluated").count(), 3);
    }
    let replayed = run(&["replay", &path.display().to_string()]).ended(0).out;
    assert_eq!(replayed.matches("the replay agrees with the record").count(), 2, "{replayed}");
    let refused = told(resume(&endpoint, &path, &["--rounds", "2"])).ended(2);
    assert!(refused.err.contains("3 rounds are done"), "{refused:?}");
}
