//! Who may what, and what is believed: forged and doubled answers, blobs, accounts; and what is said where it cannot begin.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

use async_nats::{Client, ConnectOptions, jetstream};
use bed::{Bed, ended, root, started, told};
use futures::StreamExt;
use kernelbench::{Asked, Hash, Job, TimingPlan};
use std::{
    io::Write,
    net::TcpListener,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const QUICK: [&str; 2] = ["us=90 run_ms=50", "us=60 run_ms=50"];

fn runtime() -> Runtime {
    Runtime::new().unwrap()
}

async fn connected(bed: &Bed) -> Client {
    // Where a worker may listen.
    ConnectOptions::new()
        .custom_inbox_prefix("_INBOX.worker")
        .user_and_password("worker".to_owned(), "change-me-too".to_owned())
        .connect(bed.url())
        .await
        .unwrap()
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn an_answer_that_comes_twice_counts_once_and_one_that_is_forged_does_not_count() {
    let mut bed = Bed::begin();
    bed.tasks(2, &QUICK);
    told(bed.batch("here", 2, false), 0);
    bed.worker("a", 1);
    let runtime = runtime();
    let client = runtime.block_on(connected(&bed));
    let mut answers = runtime.block_on(client.subscribe("runs.*.told.*")).unwrap();
    runtime.block_on(client.flush()).unwrap();
    let batch = started(bed.batch("there", 2, true));
    let meddler = runtime.spawn(async move {
        let mut seen = std::collections::HashSet::new();
        while let Some(answer) = answers.next().await {
            let headers = answer.headers.clone().unwrap();
            if !seen.insert(headers.get("Warpsmith-Signature").unwrap().to_string()) {
                continue;
            }
            // The same again, and a faster one under the same signature.
            let payload = String::from_utf8(answer.payload.to_vec()).unwrap();
            let forged = payload.replace("\"ratio\":", "\"ratio\":9");
            client.publish_with_headers(answer.subject.clone(), headers.clone(), payload.into()).await.unwrap();
            client.publish_with_headers(answer.subject, headers, forged.into()).await.unwrap();
        }
    });
    ended(&batch.wait_with_output().unwrap(), 0);
    meddler.abort();
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
    bed.roll("there", "forged answers were seen and refused", |roll| {
        (roll["refused"].as_u64()? > 0).then(|| roll["twice"].to_string())
    });
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn only_keys_that_are_trusted_are_believed_where_some_are_named() {
    let mut bed = Bed::begin();
    bed.tasks(1, &QUICK);
    bed.worker("a", 1);
    let settings = bed.path().join("settings.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, format!("{text}trusted = ['UOTHER']\n")).unwrap();
    let mut batch = started(bed.batch("there", 2, true));
    bed.roll("there", "an answer was refused", |roll| (roll["refused"].as_u64()? > 0).then(String::new));
    batch.kill().unwrap();
    batch.wait().unwrap();
    assert!(bed.verdicts("there").values().all(Vec::is_empty));
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_blob_that_does_not_have_its_hash_is_used_by_nobody() {
    let mut bed = Bed::begin();
    bed.tasks(1, &QUICK);
    bed.worker("a", 1);
    let task = Arc::new(kernelbench::load::task(&bed.path().join("tasks/t0")).unwrap());
    let (cases, plan) = (task.cases.clone(), TimingPlan::median_of(1, 1));
    assert!(plan.warmup == 1 && !cases.is_empty());
    let text = Job { task, asked: Asked::Fit { cases } }.task_text();
    let other: Vec<u8> = String::from_utf8(text.clone()).unwrap().replace("element", "ELEMENT").into_bytes();
    assert!(text != other && text.len() == other.len());
    runtime().block_on(async {
        let store = jetstream::new(connected(&bed).await).get_object_store("warpsmith-blobs").await.unwrap();
        store.put(Hash::of(&text).as_str(), &mut &other[..]).await.unwrap();
    });
    told(bed.batch("there", 2, true), 3);
    let broke: Vec<_> = bed.events("there", "broke-off").into_values().flatten().collect();
    assert!(broke[0]["why"].as_str().unwrap().contains("does not have its hash"), "{broke:?}");
}

/// The server's settings as docs/HOSTS.md has them.
fn documented() -> String {
    let page = std::fs::read_to_string(root().join("docs/HOSTS.md")).unwrap();
    let block = page.split("```nats\n").nth(1).unwrap();
    block.split("```").next().unwrap().to_owned()
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_workers_account_takes_jobs_and_gives_answers_and_can_do_nothing_else() {
    let mut bed = Bed::with_config(Some(&documented()));
    bed.tasks(2, &QUICK);
    told(bed.batch("here", 2, false), 0);
    bed.who = "orchestrator:change-me@".into();
    told(bed.program(&["doctor", "--hosts", &bed.url()]), 3);
    bed.who = "worker:change-me-too@".into();
    bed.worker("a", 1);
    let refused = runtime().block_on(async {
        let client = connected(&bed).await;
        let publish = jetstream::new(client.clone()).publish("jobs.c.simulated.any.r.id", "{}".into()).await.unwrap();
        let job = tokio::time::timeout(Duration::from_secs(3), publish).await.map_or(true, |told| told.is_err());
        let purge = client.request("$JS.API.STREAM.PURGE.warpsmith-jobs", "".into());
        let purged = tokio::time::timeout(Duration::from_secs(3), purge).await.map_or(true, |told| told.is_err());
        let blob = jetstream::new(client).publish("$O.warpsmith-blobs.M.x", "{}".into()).await.unwrap();
        let blob = tokio::time::timeout(Duration::from_secs(3), blob).await.map_or(true, |told| told.is_err());
        [job, purged, blob]
    });
    assert_eq!(refused, [true; 3], "a job, a purge, a blob");
    bed.who = "orchestrator:change-me@".into();
    told(bed.batch("there", 2, true), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
    let record = std::fs::read_to_string(bed.path().join("there/run.toml")).unwrap();
    assert!(record.contains("nats://127.0.0.1") && !record.contains("change-me"), "{record}");
}

/// A server that says that it is Debian 12's, to one that asks.
fn too_old() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let info = r#"INFO {"server_id":"S","version":"2.9.10","max_payload":1048576,"jetstream":true,"headers":true}"#;
        stream.write_all(format!("{info}\r\nPONG\r\n").as_bytes()).unwrap();
        // Until the other end hangs up.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    url
}

/// What is said instead of beginning, within ten seconds, as one sentence.
#[track_caller]
fn said(command: Command, code: i32) -> String {
    let began = Instant::now();
    let said = told(command, code);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}: {said}", began.elapsed());
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("warpsmith: ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    lines[0].to_owned()
}

#[test]
#[cfg_attr(not(has_nats), ignore = "needs a nats-server, which WARPSMITH_NATS names")]
fn a_batch_that_cannot_begin_says_why_in_a_sentence_within_ten_seconds() {
    let mut bed = Bed::with_config(Some(&documented()));
    bed.tasks(1, &QUICK);
    let nobody = said(bed.batch("there", 2, true), 3);
    assert!(nobody.contains("does not let this account in") && nobody.contains("--hosts-credentials"), "{nobody}");
    bed.who = "orchestrator:wrong@".into();
    let wrong = said(bed.batch("there", 2, true), 3);
    assert!(wrong.contains("does not let this account in") && !wrong.contains("wrong@"), "{wrong}");
    bed.who = "orchestrator:change-me@".into();
    let empty = said(bed.batch("there", 2, true), 3);
    assert!(empty.contains("no worker is there; start one on each host"), "{empty}");
    bed.who = "worker:change-me-too@".into();
    bed.worker("a", 1);
    bed.who = "orchestrator:change-me@".into();
    let mut native = bed.program(&["batch", &bed.path().join("tasks").display().to_string(), "--hosts", &bed.url()]);
    native.args(["--model", &format!("scripted:{}", bed.path().join("script.jsonl").display())]);
    let lane = said(native, 3);
    assert!(lane.contains("none of the 1 workers that are there works on native"), "{lane}");
    let mut classless = bed.batch("there", 2, true);
    classless.args(["--hosts-class", "sm_100"]);
    let class = said(classless, 3);
    assert!(class.contains("no worker of class sm_100") && class.contains("simulated-simulated-machine"), "{class}");
    let mut unreachable = bed.program(&["doctor", "--hosts", "nats://127.0.0.1:1"]);
    unreachable.env_remove("HOME");
    let away = said(unreachable, 3);
    assert!(away.contains("no message server can be reached there"), "{away}");
    let old = said(bed.program(&["doctor", "--hosts", &too_old()]), 3);
    assert!(old.ends_with("nats-server 2.9.10 is too old: 2.10 or newer is needed"), "{old}");
    assert!(!bed.path().join("there").exists(), "what could not begin left a folder");
}

#[test]
#[ignore = "as root: cargo test -p warpsmith-hosts --test trust full -- --ignored"]
fn a_server_whose_disk_is_full_loses_no_job_and_says_so_in_a_sentence_within_ten_seconds() {
    let mut bed = Bed::on_a_small_disk();
    bed.tasks(4, &["us=90 run_ms=5", "us=60 build_ms=3000"]);
    told(bed.batch("here", 2, false), 0);
    bed.worker("a", 2);
    let mut batch = bed.batch("there", 2, true);
    let log = std::fs::File::create(bed.path().join("there.log")).unwrap();
    let mut batch = batch.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    bed.at_it("there", &[]);
    bed.fill_disk();
    let full = Instant::now();
    bed.said("there", "the message server stores nothing");
    assert!(full.elapsed() < Duration::from_secs(10), "{:?}", full.elapsed());
    for begins in [bed.batch("else", 2, true), bed.program(&["doctor", "--hosts", &bed.url()])] {
        let said = said(begins, 3);
        assert!(said.contains("stores nothing") && said.contains("where its disk is full"), "{said}");
    }
    batch.kill().unwrap();
    batch.wait().unwrap();
    bed.mend_disk();
    told(bed.program(&["resume", &bed.path().join("there").display().to_string()]), 0);
    assert_eq!(bed.verdicts("there"), bed.verdicts("here"));
}

#[test]
#[ignore = "needs faketime: cargo test -p warpsmith-hosts --test trust clock -- --ignored"]
fn clocks_that_are_an_hour_wrong_change_nothing() {
    let mut bed = Bed::begin();
    bed.tasks(3, &QUICK);
    told(bed.batch("here", 2, false), 0);
    for (name, skew) in [("fast", 3600), ("slow", -3600)] {
        bed.skew = skew;
        bed.worker(name, 1);
    }
    for (out, skew) in [("on-time", 0), ("early", 3600), ("late", -3600)] {
        bed.skew = skew;
        told(bed.batch(out, 2, true), 0);
        assert_eq!(bed.verdicts(out), bed.verdicts("here"), "{out}");
        assert_eq!(bed.devices(out), ["fast/simulated:0", "slow/simulated:0"], "{out}");
        let lost = bed.roll(out, "the roll", |roll| Some(format!("{} {}", roll["redelivered"], roll["moved"])));
        assert_eq!(lost, "0 0", "{out}");
        let doctor = told(bed.program(&["doctor", "--hosts", &bed.url()]), 0);
        assert!(doctor.contains("2 for simulated"), "{doctor}");
    }
}
