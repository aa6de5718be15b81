//! Does one get at what a run made, by whatever name one has for it?

use crate::browser::Browser;
use crate::program::{self, Told, only_events, place, run, simulated, warpsmith};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

#[test]
fn the_winning_kernel_is_a_file_and_what_show_prints_as_the_source() {
    let (_folder, recorded) = place();
    let told = simulated(&recorded, &[]).ended(0);
    let kernel = fs::read_to_string(Path::new(&recorded).join("best.cpp")).unwrap();
    assert!(kernel.contains("void silu_and_mul") && told.out.contains("best.cpp"), "{told:?}");
    assert_eq!(run(&["show", &recorded, "--source"]).ended(0).out, kernel);
    let first = run(&["show", &recorded, "--source", "1"]).ended(0).out;
    assert!(first.starts_with("// round 1,"), "{first}");
    assert!(run(&["show", &recorded, "--source", "99"]).ended(2).err.contains("is called \"99\""));
}

#[test]
fn patch_takes_a_difference_and_makes_the_other_candidate() {
    let (folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let source = |name: &str| run(&["show", &recorded, "--source", name]).ended(0).out;
    let (file, diff) = (folder.path().join("mine.cpp"), folder.path().join("diff"));
    fs::write(&file, source("1")).unwrap();
    let told = run(&["show", &recorded, "--diff", "1", "2"]).ended(0);
    fs::write(&diff, &told.out).unwrap();
    let json = run(&["show", &recorded, "--diff", "1", "2", "--json"]).ended(0).out;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["diff"], told.out);
    // Not on every machine there is a `patch`; git is another reader of the format.
    let applied =
        Command::new("git").current_dir(folder.path()).args(["apply", "--check", "--numstat"]).arg(&diff).output();
    assert!(applied.is_err() || told.out.starts_with("--- "), "{told:?}");
    let Ok(patched) = Command::new("patch").arg("-s").arg(&file).arg(&diff).status() else { return };
    assert!(patched.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), source("2"));
}

#[test]
fn a_run_is_named_by_a_part_of_its_name_or_as_the_latest_and_runs_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings.toml");
    fs::write(&settings, format!("[run]\nfolder = '{}'\n", folder.path().join("runs").display())).unwrap();
    let settings = settings.display().to_string();
    let ask = |words: &[&str]| Told::of(warpsmith(&[&["--config", &settings][..], words].concat()).output().unwrap());
    assert!(ask(&["show", "latest"]).ended(5).err.contains("no run here"));
    for name in ["first-silu", "second-silu"] {
        simulated(&folder.path().join("runs").join(name).display().to_string(), &["--rounds", "1"]).ended(0);
    }
    let listed = ask(&["runs"]).ended(0).out;
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 2 && lines[1].contains("second-silu") && lines[1].contains("certified"), "{listed}");
    assert!(ask(&["status", "first"]).ended(0).out.contains("silu_and_mul"));
    ask(&["show", "latest"]).ended(0);
    assert!(ask(&["show", "silu"]).ended(5).err.contains("several runs are called so"));
    assert!(ask(&["show", "third"]).ended(5).err.contains("there is no such folder"));
}

#[test]
fn of_a_batch_show_lists_the_tasks_and_each_has_its_kernel() {
    let (folder, out) = place();
    for name in ["one", "two"] {
        let own = folder.path().join("tasks").join(name);
        fs::create_dir_all(&own).unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(program::TASK);
        fs::copy(from.join("reference.cpp"), own.join("reference.cpp")).unwrap();
        let text = fs::read_to_string(from.join("task.toml")).unwrap();
        fs::write(own.join("task.toml"), text.replacen("\"silu_and_mul\"", &format!("\"{name}\""), 1)).unwrap();
    }
    let script = folder.path().join("script.jsonl");
    let line = r#"{"role": "coder", "reply": "```cpp\n// simulate: us=50\nvoid silu_and_mul() {}\n```"}"#;
    fs::write(&script, format!("{line}\n{line}\n")).unwrap();
    let (tasks, model) = (folder.path().join("tasks").display().to_string(), format!("scripted:{}", script.display()));
    let batch = ["batch", &tasks, "--model", &model, "--simulate", "--shapes", "task", "--rounds", "1", "--out", &out];
    run(&batch).ended(0);
    let told = run(&["show", &out]).ended(0);
    assert!(told.out.contains("one  1 rounds: ") && told.out.contains("two  1 rounds: "), "{told:?}");
    assert!(run(&["show", &out, "--task", "one"]).ended(0).out.contains("certified: "));
    assert!(Path::new(&out).join("tasks/one/best.cpp").is_file());
}

/// The page of a run that is served, and where; ended with this.
struct Served(Child, String);

impl Served {
    fn of(run: &str) -> Self {
        let mut child = warpsmith(&["report", run, "--serve"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().to_owned())
    }

    fn get(&self, path: &str) -> String {
        let host = self.1.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Ends it as a person does; gives the exit code.
    fn interrupt(mut self) -> Option<i32> {
        assert!(Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().unwrap().success());
        self.0.wait().unwrap().code()
    }
}

#[test]
fn a_run_that_goes_on_is_shown_on_a_page_until_ctrl_c_and_a_browser_opens_its_verdicts_and_diffs() {
    let (_folder, recorded) = place();
    simulated(&recorded, &[]).ended(0);
    let record = only_events(Path::new(&recorded));
    let whole = fs::read_to_string(&record).unwrap();
    let cut = whole.lines().position(|line| line.contains("\"event\":\"began\",\"round\":5")).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let (before, rest) = lines.split_at(cut);
    fs::write(&record, before.concat()).unwrap();
    let page = Served::of(&recorded);
    let state = page.get("/state");
    assert!(state.contains("0 of 1 ended; 1 right so far, 1 faster"), "{state}");
    assert!(page.get("/task/0/round/2").contains("Load once, in step 2."), "the verdict of round 2");
    if let Some(mut browser) = Browser::start() {
        browser.open(&format!("{}#task-0-round-2", page.1), 1300);
        browser.wait_for("document.querySelectorAll('#tasks .diff .added').length > 0");
        browser.wait_for("document.querySelector('#tasks').textContent.includes('Load once, in step 2.')");
        browser.wait_for("document.querySelector('#words').textContent.startsWith('0 of 1 ended')");
        fs::OpenOptions::new().append(true).open(&record).unwrap().write_all(rest.concat().as_bytes()).unwrap();
        browser.wait_for("document.querySelector('#words').textContent.startsWith('1 of 1 correct')");
        browser.wait_for("document.querySelectorAll('#tasks details details').length == 10");
        for (page, width) in
            [(page.1.as_str(), 390), (&format!("{}run/0", page.1), 390), (&format!("{}run/0", page.1), 1300)]
        {
            browser.open(page, width);
            browser.wait_for("document.body.textContent.includes('silu_and_mul')");
            browser.wait_for("document.documentElement.scrollWidth <= document.documentElement.clientWidth");
            browser.wait_for("[...document.querySelectorAll('.wide')].every(t => t.scrollWidth <= t.clientWidth)");
        }
        assert_eq!(browser.complaints(), [""; 0], "what it may not load, and what is wrong in the page's script");
    }
    assert_eq!(page.interrupt(), Some(0));
}
