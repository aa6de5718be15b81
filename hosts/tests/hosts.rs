//! Do jobs come to the same through a message server as in process, whatever dies on the way?

mod bed;
mod slurm;

use bed::{Bed, ended, started, told};

const QUICK: [&str; 4] = ["us=90 run_ms=5", "wrong", "us=60 build_ms=5", "us=40 run_ms=5"];
/// One candidate that is at work for three seconds: it is built at once, and run when checked, timed and certified.
const SLOW: [&str; 2] = ["us=90 run_ms=5", "us=60 build_ms=3000"];

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_batch_comes_to_the_same_on_hosts_as_in_process() {
    let mut bed = Bed::begin();
    bed.tasks(6, &QUICK);
    told(bed.batch("here", 4, false), 0);
    bed.worker("a", 2);
    bed.worker("b", 2);
    told(bed.batch("there", 4, true), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
    assert!(bed.verdicts("there").values().all(|of_task| of_task.len() == 5), "four rounds and a certificate");
    let signed = bed.events("there", "spent").into_values().flatten().filter(|event| !event["lease"].is_null());
    for event in signed {
        let lease = &event["lease"];
        assert!(lease["signed_by"].as_str().is_some_and(|key| key.starts_with('U')), "{lease}");
        assert!(lease["device"].as_str().unwrap().contains("/simulated:"), "{lease}");
    }
    let devices = bed.devices("there");
    assert!(devices.len() > 1, "all tasks were worked on by one device: {devices:?}");
    let run = bed.path().join("there").display().to_string();
    let status = told(bed.program(&["status", &run]), 0);
    assert!(status.contains("hosts: 2 workers, 0 lost") && status.contains("a on "), "{status}");
    let doctor = told(bed.program(&["doctor", "--hosts", &bed.url()]), 0);
    assert!(doctor.contains("4 for simulated") && doctor.contains("worker     b on "), "{doctor}");
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_run_of_one_task_goes_to_hosts_too_and_keeps_its_device() {
    let mut bed = Bed::begin();
    bed.tasks(1, &QUICK);
    bed.worker("a", 3);
    bed.worker("b", 3);
    let task = bed.path().join("tasks/t0").display().to_string();
    let (model, out) = (format!("scripted:{}", bed.path().join("script.jsonl").display()), bed.path().join("run"));
    let mut command = bed.program(&["run", &task, "--model", &model, "--simulate", "--shapes", "task"]);
    command.args(["--rounds", "4", "--repetitions", "5", "--hosts", &bed.url(), "--out"]).arg(&out);
    told(command, 0);
    assert_eq!(bed.devices("run").len(), 1, "a task keeps its device");
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn problems_keep_their_devices_though_more_is_known_of_them_once_they_were_opened() {
    let mut bed = Bed::begin();
    bed.problems(6);
    bed.worker_with("a", &["--simulate", "2", "--lanes", "problem"]);
    bed.worker_with("b", &["--simulate", "2", "--lanes", "problem"]);
    told(bed.batch("run", 1, true), 0);
    let spent = bed.events("run", "spent");
    assert_eq!(spent.len(), 6);
    for (task, spent) in spent {
        let at =
            |work: &str| spent.iter().find(|event| event["work"] == work).map(|one| one["lease"]["device"].clone());
        assert!(at("prepare").is_some() && at("prepare") == at("examine"), "{task}: {spent:?}");
    }
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_worker_that_is_killed_in_the_middle_of_a_job_costs_time_and_nothing_else() {
    let mut bed = Bed::begin();
    bed.tasks(1, &SLOW);
    told(bed.batch("here", 2, false), 0);
    bed.worker("a", 1);
    bed.worker("b", 1);
    let batch = started(bed.batch("there", 2, true));
    let victim = bed.at_it("there", &[]);
    bed.kill_worker(&victim);
    ended(&batch.wait_with_output().unwrap(), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"), "one result counted");
    let spent = bed.events("there", "spent").into_values().flatten();
    let moved: Vec<String> = spent.filter_map(|e| e["lease"]["moved_from"].as_str().map(str::to_owned)).collect();
    assert_eq!(moved, [format!("{victim}/simulated:0")], "the record says that the task moved");
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_worker_that_stops_answering_and_comes_back_is_not_counted_twice() {
    let mut bed = Bed::begin();
    bed.tasks(1, &SLOW);
    told(bed.batch("here", 2, false), 0);
    bed.worker("a", 1);
    bed.worker("b", 1);
    let batch = started(bed.batch("there", 2, true));
    let victim = bed.at_it("there", &[]);
    bed.signal(&victim, "STOP");
    let other = bed.at_it("there", std::slice::from_ref(&victim));
    assert_ne!(other, victim);
    bed.signal(&victim, "CONT");
    ended(&batch.wait_with_output().unwrap(), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_job_that_no_worker_comes_back_from_ends_its_task_and_names_them_all() {
    let mut bed = Bed::begin();
    bed.tasks(1, &["us=90 build_ms=60000"]);
    let mut killed = vec![];
    for name in ["a", "b", "c", "d"] {
        bed.worker(name, 1);
    }
    let batch = started(bed.batch("there", 1, true));
    for _ in 0..3 {
        let victim = bed.at_it("there", &killed);
        bed.kill_worker(&victim);
        killed.push(victim);
    }
    ended(&batch.wait_with_output().unwrap(), 3);
    let broke: Vec<_> = bed.events("there", "broke-off").into_values().flatten().collect();
    let why = broke[0]["why"].as_str().unwrap();
    assert!(why.contains("3 workers took this job"), "{why}");
    assert!(killed.iter().all(|name| why.contains(&format!("{name}-0 ("))), "{why} does not name {killed:?}");
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_server_that_is_killed_and_comes_back_loses_no_job() {
    let mut bed = Bed::begin();
    bed.tasks(4, &SLOW);
    told(bed.batch("here", 2, false), 0);
    bed.worker("a", 2);
    bed.worker("b", 2);
    let batch = started(bed.batch("there", 2, true));
    bed.at_it("there", &[]);
    bed.kill_server();
    std::thread::sleep(std::time::Duration::from_secs(1));
    bed.start_server();
    ended(&batch.wait_with_output().unwrap(), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn an_orchestrator_that_is_killed_goes_on_and_asks_no_model_twice() {
    let mut bed = Bed::begin();
    bed.tasks(4, &SLOW);
    told(bed.batch("here", 2, false), 0);
    bed.worker("a", 2);
    bed.worker("b", 2);
    let mut batch = started(bed.batch("there", 2, true));
    bed.at_it("there", &[]);
    batch.kill().unwrap();
    batch.wait().unwrap();
    let run = bed.path().join("there").display().to_string();
    // The record says which server; what says who asks it never does.
    let went_on = told(bed.program(&["resume", &run]), 0);
    assert!(went_on.contains("4 finished"), "{went_on}");
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
    for (task, answered) in bed.events("there", "answered") {
        let mut calls: Vec<String> = answered.iter().map(|event| event["call"].to_string()).collect();
        calls.sort();
        let all = calls.len();
        calls.dedup();
        assert_eq!(calls.len(), all, "{task}: a call was answered twice");
    }
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn two_workers_cannot_have_one_name_until_one_is_gone() {
    let mut bed = Bed::begin();
    bed.worker("a", 1);
    let arguments = ["worker", "--hosts", &bed.url(), "--name", "a", "--simulate", "1", "--identity"];
    let mut second = bed.program(&arguments);
    second.arg(bed.path().join("other.seed"));
    let said = told(second, 2);
    assert!(said.contains("a worker called a is at work already") && said.contains("--name"), "{said}");
    bed.kill_worker("a");
    bed.worker("a", 1);
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_worker_that_is_told_to_end_gives_back_what_it_is_at() {
    let mut bed = Bed::begin();
    bed.tasks(1, &SLOW);
    told(bed.batch("here", 2, false), 0);
    bed.worker("a", 1);
    bed.worker("b", 1);
    let batch = started(bed.batch("there", 2, true));
    let leaving = bed.at_it("there", &[]);
    bed.signal(&leaving, "TERM");
    ended(&batch.wait_with_output().unwrap(), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
    assert_eq!(bed.left(&leaving), Some(0));
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_worker_that_is_interrupted_while_it_ends_or_has_lost_its_server_ends_at_once() {
    let mut bed = Bed::begin();
    bed.tasks(1, &["us=90 build_ms=30000"]);
    bed.grace = 600;
    bed.worker("a", 1);
    let mut batch = started(bed.batch("there", 1, true));
    bed.at_it("there", &[]);
    bed.signal("a", "TERM");
    bed.said("a", "the rest is given back");
    bed.signal("a", "INT");
    assert_eq!(bed.left("a"), Some(0));
    batch.kill().unwrap();
    batch.wait().unwrap();
    bed.worker("b", 1);
    bed.kill_server();
    bed.signal("b", "TERM");
    assert_eq!(bed.left("b"), Some(0));
}
