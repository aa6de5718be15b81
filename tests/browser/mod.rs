//! A browser without a window, told what to do over a pipe, where one is installed.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// Names under which one may be found.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// How long a page may take to come to something.
const PATIENCE: Duration = Duration::from_secs(20);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    asked: u64,
    complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one; none where none is installed, and then says so.
    pub(crate) fn start() -> Option<Self> {
        let is_there =
            |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|told| told.status.success());
        let Some(name) = NAMES.iter().find(|name| is_there(name)) else {
            let _ = std::io::stderr().write_all(b"passed over: what a browser shows, for none is installed\n");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let at = format!("--user-data-dir={}", profile.path().display());
        // It listens on its third descriptor and answers on the fourth.
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "exec \"$0\" \"$@\" 3<&0 4>&1 1>/dev/null",
            name,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
        ]);
        command.args(["--remote-debugging-pipe", "--no-first-run", &at]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Self { child, to, from, session: String::new(), asked: 0, complaints: vec![], _profile: profile };
        let page = browser.ask("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.ask("Target.attachToTarget", &json!({"targetId": page, "flatten": true}));
        session["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for part in ["Runtime", "Log", "Page"] {
            browser.ask(&format!("{part}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Opens a page in a window so wide.
    pub(crate) fn open(&mut self, address: &str, width: u32) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", &size);
        self.ask("Page.navigate", &json!({"url": "about:blank"}));
        self.ask("Page.navigate", &json!({"url": address}));
    }

    /// Waits until this is so in the page.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str) {
        let began = Instant::now();
        let is_so = json!({"expression": what, "returnByValue": true});
        while self.ask("Runtime.evaluate", &is_so)["result"]["value"] != true {
            if began.elapsed() > PATIENCE {
                let text = json!({"expression": "document.body.innerText", "returnByValue": true});
                let shown = self.ask("Runtime.evaluate", &text)["result"]["value"].clone();
                panic!("{what}: not so; complaints: {:?}; the page: {shown}", self.complaints);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the browser refused to load, and what went wrong in a script.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.complaints.clone()
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let mut request = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.clone().into();
        }
        self.to.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = vec![];
            self.from.read_until(0, &mut bytes).unwrap();
            bytes.pop();
            let told: Value = serde_json::from_slice(&bytes).unwrap();
            if told["id"] == self.asked {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].clone();
            }
            let method = told["method"].as_str().unwrap_or_default();
            let is_bad = method == "Runtime.exceptionThrown"
                || method == "Log.entryAdded" && told["params"]["entry"]["level"] == "error";
            if is_bad && !told.to_string().contains("favicon") {
                self.complaints.push(told["params"].to_string());
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
