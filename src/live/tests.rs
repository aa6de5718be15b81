//! Is the live page told what stands in the records, and does it answer nobody else?

use super::{Live, serve};
use crate::{
    config::Config,
    report::sample::{self, Sample},
    store::{RunFolder, RunHeader},
};
use agents::event::{Event, FORMAT, Line};
use serde_json::Value;
use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A run of one task that has no event yet, and what its record will hold.
struct Story {
    folder: tempfile::TempDir,
    lines: Vec<String>,
}

impl Story {
    fn of(sample: &Sample) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = sample.lines.iter().find_map(|line| match &line.event {
            Event::Opened { machine, .. } => Some(machine.clone()),
            _ => None,
        });
        let header = RunHeader {
            format: FORMAT,
            warpsmith: "0".into(),
            began: String::new(),
            task: "t".into(),
            model: "m".into(),
            policy: "p".into(),
            simulated: true,
            compilers: [].into(),
            templates: [].into(),
            machine: machine.unwrap(),
            configuration: Config::default(),
        };
        let run = RunFolder::create(&folder.path().join("run"), &header).unwrap();
        sample.blobs.values().for_each(|text| drop(run.blobs().keep(text).unwrap()));
        fs::create_dir_all(folder.path().join("run/tasks/silu")).unwrap();
        let numbered = |(seq, line): (usize, &Line)| Line { seq: seq as u64, ..line.clone() };
        let lines = sample.lines.iter().enumerate().map(numbered);
        Self { folder, lines: lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect() }
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn append(&self, text: &str) {
        let path = self.run().join("tasks/silu/events.jsonl");
        OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn whole(sample: &Sample) -> Self {
        let story = Self::of(sample);
        story.append(&story.lines.concat());
        story
    }
}

fn live(run: &Path) -> Arc<Live> {
    Live::of(run).unwrap()
}

#[test]
fn the_page_is_told_what_changed_and_nothing_where_nothing_has() {
    let story = Story::of(&sample::certified());
    let live = live(&story.run());
    let (state, mut changes) = live.follow();
    assert_eq!((&state["tasks"][0]["state"], &state["summary"]["ended"]), (&"waits".into(), &0.into()), "{state}");
    let half = story.lines.len() / 2;
    story.append(&story.lines[..half].concat());
    live.look();
    let change = String::from_utf8(changes.try_recv().unwrap().to_vec()).unwrap();
    let told: Value = serde_json::from_str(change.strip_prefix("event: change\ndata: ").unwrap().trim_end()).unwrap();
    assert_eq!(told["tasks"][0]["state"], "works", "{told}");
    assert!(!told["news"].as_array().unwrap().is_empty(), "{told}");
    live.look();
    assert!(changes.try_recv().is_err(), "nothing has changed");
    story.append(&story.lines[half..].concat());
    let state = live.state();
    assert_eq!(state["summary"]["words"], "1 of 1 correct, 1 faster");
    let row = &state["tasks"][0];
    assert!(row["certified"] == true && row["kind"] == "faster" && row["result"].as_str().unwrap().contains("3.11×"));
    assert_eq!(row["turns"].as_array().unwrap().len(), 6, "{row}");
    assert!(changes.try_recv().is_ok(), "who follows hears of it, whoever looked");
}

#[test]
fn a_record_that_cannot_be_read_is_trouble_of_that_task_and_goes_when_it_is_mended() {
    let story = Story::of(&sample::unfinished());
    let live = live(&story.run());
    story.append(&(story.lines[0].clone() + "no event\n"));
    let state = live.state();
    let row = &state["tasks"][0];
    assert_eq!(row["state"], "trouble");
    assert!(row["doing"].as_str().unwrap().contains("events.jsonl:2: this is not an event"), "{row}");
    fs::write(story.run().join("tasks/silu/events.jsonl"), story.lines.concat()).unwrap();
    assert_eq!(live.state()["tasks"][0]["state"], "works");
}

#[test]
fn a_task_that_is_a_link_out_of_the_run_is_not_read() {
    let (story, other) = (Story::whole(&sample::certified()), Story::whole(&sample::certified()));
    fs::remove_dir_all(story.run().join("tasks/silu")).unwrap();
    std::os::unix::fs::symlink(other.run().join("tasks/silu"), story.run().join("tasks/silu")).unwrap();
    assert!(live_error(&story.run()).contains("silu"), "{}", live_error(&story.run()));
}

fn live_error(run: &Path) -> String {
    Live::of(run).err().unwrap().to_string()
}

/// Asks in raw HTTP, and gives the head and the body of the answer.
fn ask(port: u16, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = vec![];
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn get(port: u16, path: &str) -> (String, String) {
    ask(port, &format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"))
}

/// Serves this run while `with` is done with its port.
fn served(run: &Path, with: impl FnOnce(u16)) {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let served = threads.block_on(serve(live(run), 0)).ok().unwrap();
    let port = served.address().trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    with(port);
    drop(served);
    std::thread::sleep(Duration::from_millis(50));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it ends with what holds it");
    threads.shutdown_timeout(Duration::from_secs(1));
}

#[test]
fn only_a_get_by_a_name_of_this_machine_is_answered_and_no_address_is_a_path() {
    let story = Story::whole(&sample::certified());
    served(&story.run(), |port| {
        let status = |request: String| ask(port, &request).0.lines().next().unwrap()[9..12].to_owned();
        let of_host = |host: &str| status(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        for ours in ["localhost", "127.0.0.1:80", "LOCALHOST:4720"] {
            assert_eq!(of_host(ours), "200", "{ours}");
        }
        for other in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "a@127.0.0.1", "", "[::1]"]
        {
            assert_eq!(of_host(other), "403", "{other}");
        }
        let end = "Connection: close\r\n\r\n";
        assert_eq!(status(format!("GET / HTTP/1.1\r\n{end}")), "403", "no name at all");
        assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n{end}")), "403");
        assert_eq!(status(format!("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n{end}")), "403");
        for method in ["POST", "HEAD", "OPTIONS", "DELETE"] {
            assert_eq!(status(format!("{method} / HTTP/1.1\r\nHost: localhost\r\n{end}")), "405", "{method}");
        }
        for path in
            ["/run.toml", "/../run.toml", "/task/../0", "/task/%2e%2e", "/task/1", "/task/0/round/99", "/run/1", "//"]
        {
            assert_eq!(get(port, path).0.lines().next().unwrap(), "HTTP/1.1 404 Not Found", "{path}");
        }
    });
}

#[test]
fn every_page_says_what_it_may_load_and_nothing_from_outside_becomes_markup_in_one() {
    const ATTACK: &str = "\n</script></pre></style><img src=x onerror=alert(1)>\"' onload=alert(2) {{ page.title }}";
    let story = Story::whole(&sample::tainted(ATTACK));
    served(&story.run(), |port| {
        for (path, allowed) in [
            ("/", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"),
            ("/run/0", "default-src 'none'; style-src 'unsafe-inline';"),
            ("/task/0", "default-src 'none'; style-src 'unsafe-inline';"),
            ("/task/0/round/1", "default-src 'none'; style-src 'unsafe-inline';"),
        ] {
            let (head, body) = get(port, path);
            assert!(head.starts_with("HTTP/1.1 200") && head.contains(allowed), "{path}: {head}");
            assert!(head.contains("x-content-type-options: nosniff") && !head.contains("access-control"), "{head}");
            assert!(
                !body.contains("<img") && !body.contains("onload=alert(2)\"") && !body.contains(" style="),
                "{path}"
            );
            assert!(!body.contains("<script>") && !body.contains(" onclick"), "{path}: a script of the page's own");
        }
        assert!(get(port, "/task/0/round/1").1.contains("&lt;img src=x onerror=alert(1)&gt;"), "it is shown, as text");
        let (_, script) = get(port, "/live.js");
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!script.contains(way), "what is sent would become markup by {way}");
        }
    });
}

#[test]
fn a_browser_hears_first_how_things_stand_and_then_each_change() {
    let story = Story::of(&sample::unfinished());
    served(&story.run(), |port| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
        let mut heard = String::new();
        let mut hear = |what: &str| {
            let mut bytes = [0; 4096];
            while !heard.contains(what) {
                let read = stream.read(&mut bytes).unwrap();
                assert!(read > 0, "{heard}");
                heard += &String::from_utf8_lossy(&bytes[..read]);
            }
        };
        hear("content-type: text/event-stream");
        hear("event: state\ndata: {");
        story.append(&story.lines[..3].concat());
        hear("event: change\ndata: {");
        hear("\"state\":\"works\"");
    });
}
