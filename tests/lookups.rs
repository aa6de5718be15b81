//! A run whose Coder looks things up, as a user meets it: what is said, that it is made again without the pool that it was looked
//! up in, and what goes on from it.

use crate::program::{self, run};
use agents::{event::Event, llm::Purpose};
use serde_json::json;
use std::fs;
use warpsmith::{recall, store::RunFolder};

const KERNEL: &str = r#"{"look_up": "browse_kernels", "name": "silu_and_mul_f32"}"#;
const ROUND: &str = r#"{"look_up": "query_replay", "name": "1"}"#;
const ADVICE: &str = r#"{"bottleneck": "a", "optimization method": "b", "modification plan": "c"}"#;

fn code(us: &str) -> String {
    format!("```cpp\n// simulate: us={us}\nextern \"C\" void a() {{}}\n```")
}

#[test]
fn what_was_looked_up_is_said_counted_and_made_again_without_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let model = |name: &str, replies: &[(&str, u32, &str)]| {
        let line = |(role, round, reply): &(&str, u32, &str)| {
            json!({ "role": role, "round": round, "reply": reply }).to_string()
        };
        fs::write(path(name), replies.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
        format!("scripted:{}", path(name))
    };
    let work = |task: &str, policy: &str, rounds: &str, model: &str, more: [&str; 2]| {
        let fixed = ["--simulate", "--policy", policy, "--rounds", rounds, "--shapes", "task", "--model", model];
        let [settings, out] = more;
        run(&[&["--config", settings, "run", task, "--out", out][..], &fixed].concat())
    };
    let settings = path("with_pool.toml");
    fs::write(&settings, format!("[prompts]\npool = \"{}\"\n", path("pool"))).unwrap();
    let earlier = model("a.jsonl", &[("coder", 1, &code("50"))]);
    work("examples/silu_and_mul", "hawkeye", "1", &earlier, [&settings, &path("earlier")]).ended(0);
    run(&["pool", "add", &path("earlier"), "--pool", &path("pool"), "--simulated"]).ended(0);

    let (first, second) = (code("40"), code("20"));
    let replies = [
        ("coder", 1, KERNEL),
        ("coder", 1, first.as_str()),
        ("judge", 2, ADVICE),
        ("coder", 2, ROUND),
        ("coder", 2, second.as_str()),
    ];
    let later = path("later");
    let said = work("examples/fused_add_rmsnorm", "hawkeye", "4", &model("b.jsonl", &replies), [&settings, &later]);
    let said = said.ended(0).out;
    for line in ["the Coder looks up browse_kernels silu_and_mul_f32: counts as a round", "query_replay 1: counts"] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    assert!(said.contains("turns left: 0") && said.contains("ended: no rounds left"), "{said}");
    assert!(run(&["show", &later, "2"]).ended(0).out.contains("looked up query_replay 1"));
    let report = fs::read_to_string(folder.path().join("later/report.html")).unwrap();
    assert!(report.contains("The Coder looked up browse_kernels silu_and_mul_f32"));
    let refused = run(&["resume", &later, "--rounds", "4"]).ended(2).err;
    assert!(refused.contains("4 rounds are done"), "{refused}");

    fs::remove_dir_all(folder.path().join("pool")).unwrap();
    let again = run(&["replay", &later]).ended(0).out;
    assert!(again.contains("agrees with the record"), "{again}");

    let seeds = recall::seeds(&RunFolder::open(later.as_ref()).unwrap()).unwrap();
    let given: Vec<_> =
        seeds.into_iter().map(|((task, purpose, attempt), (reply, _))| (task, purpose, attempt, reply)).collect();
    let only = ("fused_add_rmsnorm".to_owned(), Purpose::Seed, 1, first.clone());
    assert_eq!(given, [only], "whoever is given its first candidate is not given what was looked up before it");

    fs::write(path("none.toml"), "[run]\nno_lookups = true\n").unwrap();
    let without = [path("none.toml"), path("without")];
    let said =
        work("examples/fused_add_rmsnorm", "hawkeye", "2", &model("c.jsonl", &replies), [&without[0], &without[1]]);
    let said = said.ended(0).out;
    let first = said.lines().find(|line| line.contains("the coder's reply cannot be read"));
    assert!(first.is_some_and(|line| line.ends_with(": it holds no fenced code block")), "{said}");
}

/// A manual of more tokens than stand in prompts, and a model that looks two things up in it before it writes.
struct Documented(tempfile::TempDir);

impl Documented {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let lines = (0..40_000).map(|at| format!("Line {at} of a long manual."));
        let lines: Vec<_> = lines.chain(["setmaxnreg takes registers from a warpgroup.".into()]).collect();
        made.text("manual/ptx/isa.md", &lines.join("\n"));
        made.text("manual/host.txt", "Tensor maps are made on the host.\n");
        let words = r#"{"look_up": "read_context", "name": "setmaxnreg registers"}"#;
        let page = r#"{"look_up": "read_context", "name": "host.txt"}"#;
        let reply = |reply: &str| json!({ "role": "coder", "round": 1, "reply": reply }).to_string();
        made.text("script.jsonl", &[words, page, &code("40")].map(reply).join("\n"));
        made
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn text(&self, name: &str, text: &str) {
        let file = self.0.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// Settings that name this folder so.
    fn names(&self, kind: &str, folder: &str) {
        self.text("s.toml", &format!("[prompts]\ncontext = \"{kind}:{}\"\n", self.at(folder)));
    }

    fn work(&self, policy: &str, out: &str) -> program::Told {
        let model = format!("scripted:{}", self.at("script.jsonl"));
        let fixed = ["--simulate", "--rounds", "3", "--shapes", "task", "--model", &model, "--policy", policy];
        let (settings, out) = (self.at("s.toml"), self.at(out));
        run(&[&["--config", &settings, "run", "examples/silu_and_mul", "--out", &out][..], &fixed].concat())
    }

    /// The run as it was before anything was looked up.
    fn cut(&self, name: &str) -> String {
        let copied = std::process::Command::new("cp").args(["-r", &self.at("run"), &self.at(name)]).status();
        assert!(copied.unwrap().success());
        let events = self.at(&format!("{name}/tasks/silu_and_mul/events.jsonl"));
        let text = fs::read_to_string(&events).unwrap();
        let kept: Vec<&str> = text.lines().take_while(|line| !line.contains("\"event\":\"looked-up\"")).collect();
        fs::write(&events, kept.join("\n") + "\n").unwrap();
        self.at(name)
    }

    /// What the model of this run was asked first, and what it was shown.
    fn asked(&self, run: &str) -> (String, Vec<String>) {
        let record = RunFolder::open(self.at(run).as_ref()).unwrap().only_record().unwrap();
        let first = record.events().find_map(|event| match event {
            Event::Answered { prompt, .. } => Some(record.blobs.fetch(&prompt).unwrap()),
            _ => None,
        });
        (first.unwrap(), recall::looked_up(&record).unwrap().into_values().collect())
    }
}

#[test]
fn of_documentation_that_is_too_long_for_a_prompt_pages_are_read_and_a_replay_needs_none_of_it() {
    let made = Documented::new();
    made.names("library", "manual");
    let said = made.work("hawkeye", "run").ended(0).out;
    assert!(said.contains("the Coder looks up read_context setmaxnreg registers: counts as a round"), "{said}");
    let (first, shown) = made.asked("run");
    assert!(shown.iter().any(|text| text.starts_with("host.txt, page 1 of 1\n\nTensor maps")), "{shown:?}");
    let of_words = shown.iter().find(|text| text.starts_with("ptx.isa.md, page ")).unwrap();
    assert!(of_words.ends_with("setmaxnreg takes registers from a warpgroup."), "{}", &of_words[..60]);
    assert!(first.contains("read_context") && first.contains("`ptx.isa.md`: "), "{first}");
    assert!(!first.contains("Line 7 of"), "{first}");
    let refused = made.work("cudaforge", "no").ended(2).err;
    assert!(refused.contains("the policy cudaforge looks nothing up"), "{refused}");
    made.names("folder", "manual/ptx");
    assert!(made.work("hawkeye", "no").ended(2).err.contains("by library:"), "too long for a prompt");
    made.names("library", "nowhere");
    assert!(made.work("hawkeye", "no").ended(2).err.contains("cannot look into"));
    fs::remove_dir_all(made.at("manual")).unwrap();
    let again = run(&["replay", &made.at("run")]).ended(0).out;
    assert!(again.contains("agrees with the record"), "{again}");
}

#[test]
fn where_documentation_lies_now_can_be_said_where_it_is_gone_and_to_end_a_run_none_is_needed() {
    let made = Documented::new();
    made.names("library", "manual");
    made.work("hawkeye", "run").ended(0);
    // What is where the run found it is not replaced.
    made.names("library", "nowhere");
    let settings = made.at("s.toml");
    run(&["--config", &settings, "resume", &made.cut("still")]).ended(0);
    fs::remove_dir_all(made.at("manual")).unwrap();
    assert!(run(&["resume", &made.cut("gone")]).ended(2).err.contains("cannot look into"));
    let ended = run(&["finish", &made.cut("ended")]);
    assert!(ended.out.contains("ended: ") && !ended.err.contains("cannot look into"), "{ended:?}");
    let texts = [
        ("CUDA C++ Guide.md", "Of threads."),
        ("a/b.md", "Setmaxnreg, again."),
        ("a.b.md", "Another."),
        ("host.txt", "Moved."),
    ];
    for (name, text) in texts {
        made.text(&format!("moved/{name}"), text);
    }
    made.names("library", "moved");
    run(&["--config", &settings, "resume", &made.cut("moved-run")]).ended(0);
    let (_, shown) = made.asked("moved-run");
    assert!(shown.iter().any(|text| text.ends_with("Setmaxnreg, again.")), "{shown:?}");
    made.work("hawkeye", "last").ended(0);
    let (asked, _) = made.asked("last");
    for name in ["`CUDA_C___Guide.md`", "`a.b.md`", "`a.b.md-2`"] {
        assert!(asked.contains(name), "{name}: {asked}");
    }
}
