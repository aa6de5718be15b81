//! Transformations as a user meets them: a small matrix product on the processor, from its naive form to a tiled one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "peak/hlsl.rs"]
mod hlsl;
mod program;

use program::{Told, run, warpsmith};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

const POLICY: &str = r#"name = "three"
summary = "Refactor, TB-Tiling, Unroll."
start = "baseline"
rounds = 10
advance = "if-correct"
on-failure = "retry"
on-pass = "retry"
profile = "never"
memory = "none"
planner = "rule"
shapes = "task"
keep = 2
sequence = ["Refactor", "TB-Tiling", "Unroll"]
timing = { warmup = 1, repetitions = 3, statistic = "median" }
"#;

const ACCESSES: &str = "#define A_AT(a, row, k, n) ((a)[(row) * (n) + (k)])\n#define B_AT(b, k, column, n) ((b)[(k) * (n) + (column)])\n\
                        #define C_AT(c, row, column, n) ((c)[(row) * (n) + (column)])\n";
const SIZES: &str = "#define TILE_K {{TILE_K_SIZE}}\n#define TILE_M {{BLOCK_Y}}\n#define TILE_N {{BLOCK_X}}\n";
const TILES: &str = "#define A_TILE(t, row, k) ((t)[(row) * TILE_K + (k)])\n#define B_TILE(t, k, column) ((t)[(k) * TILE_N + (column)])\n";
const REFACTORED: &str =
    "static void element(float *c, const float *a, const float *b, int64_t n, int64_t row, int64_t column) {
    float sum = 0.0f;
    for (int64_t k = 0; k < n; ++k) sum += A_AT(a, row, k, n) * B_AT(b, k, column, n);
    C_AT(c, row, column, n) = sum;
}
";
/// The kernel of the last pass of TB-Tiling; its innermost loop stands on a line of its own.
const TILED: &str = "static void tile(float *c, const float *a, const float *b, int64_t n, int64_t y, int64_t x) {
    float sums[TILE_M * TILE_N] = {}, a_tile[TILE_M * TILE_K], b_tile[TILE_K * TILE_N];
    for (int64_t at = 0; at < n; at += TILE_K) {
        copy_tile<TILE_M, TILE_K>(a_tile, &A_AT(a, y, at, n), n);
        copy_tile<TILE_K, TILE_N>(b_tile, &B_AT(b, at, x, n), n);
        for (int row = 0; row < TILE_M; ++row)
            for (int k = 0; k < TILE_K; ++k)
                for (int column = 0; column < TILE_N; ++column)
                    sums[row * TILE_N + column] += A_TILE(a_tile, row, k) * B_TILE(b_tile, k, column);
    }
    for (int row = 0; row < TILE_M; ++row)
        for (int column = 0; column < TILE_N; ++column) C_AT(c, y + row, x + column, n) = sums[row * TILE_N + column];
}
";
const LAUNCH: &str = "extern \"C\" int matmul(float *c, const float *a, const float *b, int64_t n) {
    if (n % TILE_N != 0 || n % TILE_M != 0 || n % TILE_K != 0) return WS_INVALID;
    for (int64_t y = 0; y < n; y += TILE_M)
        for (int64_t x = 0; x < n; x += TILE_N) tile(c, a, b, n, y, x);
    return 0;
}
";

fn entry(round: u32, part: &str, text: &str) -> String {
    let region = part.split_once('.').unwrap().1;
    let reply = format!("```cpp\n// region: {region}\n{text}```\n");
    json!({"role": "coder", "round": round, "purpose": "transform", "part": part, "reply": reply}).to_string()
}

/// The region `device` of the initial context.
fn initial_device() -> String {
    let initial = fs::read_to_string("examples/matmul/reference.cpp").unwrap();
    let (_, rest) = initial.split_once("// region: device\n").unwrap();
    rest.split_once("// region: host\n").unwrap().0.to_owned()
}

/// Every reply: Refactor, TB-Tiling, and Unroll, which fails to compile, then touches the host region, then passes.
fn script() -> Vec<String> {
    let initial = fs::read_to_string("examples/matmul/reference.cpp").unwrap();
    let (_, rest) = initial.split_once("// region: device\n").unwrap();
    let (device, host) = rest.split_once("// region: host\n").unwrap();
    let (sized, tiles) = (format!("{ACCESSES}{SIZES}"), format!("{ACCESSES}{SIZES}{TILES}"));
    let unrolled =
        |pragma: &str| TILED.replace("            for (int k = 0", &format!("{pragma}\n            for (int k = 0"));
    let refused = format!("{TILED}// region: host\n{}", LAUNCH.replace("return 0", "return 1"));
    vec![
        entry(1, "1.macros", ACCESSES),
        entry(1, "1.device", device),
        entry(1, "2.device", REFACTORED),
        entry(2, "1.macros", &sized),
        entry(2, "2.device", "static void tile();\n"),
        entry(2, "2.host", host),
        entry(2, "3.macros", &tiles),
        entry(2, "3.device", "static void tile() { half a kernel }\n"),
        entry(2, "4.device", TILED),
        entry(2, "5.device", TILED),
        entry(2, "6.macros", &tiles),
        entry(2, "6.host", LAUNCH),
        entry(3, "1.device", &unrolled("// {{UNROLL_FACTOR}}\nstage();")),
        entry(4, "1.device", &refused),
        entry(4, "1.device", &refused),
        entry(5, "1.device", &unrolled("#pragma GCC unroll {{UNROLL_FACTOR}}")),
    ]
}

/// A copy of the example with few configurations, the policy, and the script.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        let task = fs::read_to_string("examples/matmul/task.toml").unwrap();
        let few = task.replace("BLOCK_X = [16, 8, 32, 64]", "BLOCK_X = [16]");
        let few = few.replace("values = [16, 8, 32, 64]", "values = [16, 8]");
        fs::create_dir(bench.0.path().join("task")).unwrap();
        fs::write(bench.at("task/task.toml"), few).unwrap();
        fs::copy("examples/matmul/reference.cpp", bench.at("task/reference.cpp")).unwrap();
        fs::write(bench.at("policy.toml"), POLICY).unwrap();
        bench.script(&script());
        bench
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn script(&self, entries: &[String]) {
        fs::write(self.at("script.jsonl"), entries.join("\n")).unwrap();
    }

    fn model(&self) -> String {
        format!("scripted:{}", self.at("script.jsonl"))
    }

    fn run(&self, more: &[&str]) -> Told {
        let (task, model, policy, out) = (self.at("task"), self.model(), self.at("policy.toml"), self.at("W"));
        run(&[&["run", &task, "--model", &model, "--policy", &policy, "--out", &out], more].concat())
    }

    fn transform(&self, what: &str, name: &str, more: &[&str]) -> Told {
        run(&[&["transform", what, name, "--model", &self.model()], more].concat())
    }
}

fn events(run: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(run).join("tasks/matmul/events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

fn tree(run: &str) -> Value {
    serde_json::from_str(&self::run(&["tree", run, "--json"]).ended(0).out).unwrap()
}

#[test]
fn a_sequence_of_three_steps_makes_three_checkpoints_and_a_killed_run_resumes_to_the_same() {
    let bench = Bench::new();
    let told = bench.run(&[]).ended(0);
    let out = bench.at("W");
    for line in ["2/2 valid", "ended: every transformation of the sequence was applied"] {
        assert!(told.out.contains(line), "{line}: {told:?}");
    }
    assert!(!told.out.contains("the context stays at"), "the third try passed: {told:?}");
    let verified = run(&["verify", &out]);
    assert!(verified.out.contains("agrees: "), "with the texts of the configurations that failed: {verified:?}");
    assert!(told.out.contains("it changes the region host, and only device was asked for"), "{told:?}");
    let tree = self::tree(&out);
    let names: Vec<&str> =
        tree["checkpoints"].as_array().unwrap().iter().map(|at| at["name"].as_str().unwrap()).collect();
    assert_eq!((names, tree["head"].as_str()), (vec!["c0", "c1", "c2", "c3"], Some("c3")));
    assert_eq!(tree["checkpoints"][2]["tuning"]["grid"]["TILE_K_SIZE"], json!([16, 8, 32, 64]));
    assert_eq!(tree["checkpoints"][2]["failed"].as_array().unwrap().len(), 2, "{tree}");
    let shown = run(&["tree", &out]).ended(0).out;
    assert!(shown.contains("x Unroll, try 1: failed: ") && shown.contains("device.cpp"), "{shown}");
    assert!(shown.contains("TB-Tiling") && shown.contains("[main, head]"), "{shown}");
    let all = events(&out);
    assert_eq!((of(&all, "answered").len(), of(&all, "certified").len()), (16, 1));
    let told = Told::of(warpsmith(&["replay", &out]).output().unwrap()).ended(0);
    assert!(told.out.contains("agrees with the record"), "{told:?}");
    // Killed in the middle of tuning; agents/tests/workflow.rs kills a simulated one after every event.
    let place = |name: &str, nth: usize| all.iter().enumerate().filter(|(_, e)| e["event"] == name).nth(nth).unwrap().0;
    let (cut, copy) = (place("tried", 4), bench.at("cut"));
    assert!(Command::new("cp").args(["-r", &out, &copy]).status().unwrap().success());
    let file = Path::new(&copy).join("tasks/matmul/events.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = text.lines().take(cut + 1).chain([""]).collect();
    fs::write(&file, kept.join("\n")).unwrap();
    let known = of(&events(&copy), "answered").len();
    bench.script(&script()[known..]);
    run(&["resume", &copy]).ended(0);
    let ids =
        |tree: &Value| tree["checkpoints"].as_array().unwrap().iter().map(|at| at["id"].clone()).collect::<Vec<_>>();
    run(&["verify", &copy]).ended(0);
    assert_eq!(ids(&self::tree(&copy)), ids(&tree));
    let counts = |events: &[Value]| ["tried", "checked", "answered", "began"].map(|name| of(events, name).len());
    assert_eq!(counts(&events(&copy)), counts(&all), "nothing is done twice");
}

#[test]
fn steps_by_hand_are_named_branched_and_restored() {
    let bench = Bench::new();
    let (task, out) = (bench.at("task"), bench.at("W"));
    let quick = ["--warmup", "1", "--repetitions", "3"];
    bench.transform(&task, "Refactor", &[&["--out", &out], &quick[..]].concat()).ended(0);
    assert!(of(&events(&out), "ended").is_empty(), "a workflow by hand stays open");
    run(&["checkpoint", &out, "named"]).ended(0);
    run(&["branch", &format!("{out}@c0"), "other"]).ended(0);
    assert_eq!(tree(&out)["head"], "c0");
    // The script's next replies answer TB-Tiling in round 2, here on the branch's own c0.
    let told = bench.transform(&format!("{out}@c1"), "tb-tiling", &["--say", "keep the order"]).ended(0);
    assert!(told.out.contains("c2") && told.out.contains("[other, head]"), "{told:?}");
    let ordered = of(&events(&out), "ordered").last().unwrap().to_string();
    assert!(ordered.contains("keep the order") && ordered.contains("TB-Tiling"), "{ordered}");
    let tuned = ["tune", &format!("{out}@c2"), "--tuner", "tpe", "--tests", "3", "--keep", "2"];
    let told = warpsmith(&tuned).output().map(Told::of).unwrap().ended(0);
    assert!(told.out.contains("3 timed, 2 kept") && told.out.contains("tune"), "{told:?}");
    let ordered = of(&events(&out), "ordered").last().unwrap()["tuning"].clone();
    assert_eq!(ordered, json!({"tuner": "tpe", "tests": 3, "keep": 2}));
    run(&["restore", &format!("{out}@main")]).ended(0);
    assert_eq!((tree(&out)["head"].as_str(), tree(&out)["branch"].as_str()), (Some("c1"), Some("main")));
    a_checkpoint_stands_wherever_a_candidate_may(&bench, &out);
    for (arguments, why) in [
        (vec!["checkpoint", &out, "named"], "the name \"named\" is taken"),
        (vec!["checkpoint", &out, "c9"], "\"c9\" cannot be a name"),
        (
            vec!["restore", &format!("{out}@nowhere")],
            "there is no checkpoint \"nowhere\"; there are c0, c1, c2, c3, named, main, other",
        ),
        (vec!["restore", &out], "to which checkpoint or branch?"),
        (vec!["tree", &task], "expected the folder of a run"),
        (vec!["replay", &out], "steered by hand"),
        (vec!["transform", &out, "Offse"], "there is no transformation \"Offse\"; the nearest are Offset"),
        (vec!["transform", &out, "Split-K"], "Split-K is for cuda, hip, hlsl; this context is for cpu"),
        (
            vec!["transform", &format!("{out}@c2"), "TB-Tiling"],
            "the context has the tuning parameter `TILE_K_SIZE` already",
        ),
    ] {
        let told = run(&arguments).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
}

/// Shown, evaluated, compared, and the beginning of another workflow.
fn a_checkpoint_stands_wherever_a_candidate_may(bench: &Bench, out: &str) {
    let at = |name: &str| format!("{out}@{name}");
    let shown = run(&["show", &at("c2")]).ended(0).out;
    for part in ["checkpoint c2", "bindings   BLOCK_X=16", "// region: device", "copy_tile<TILE_M, TILE_K>"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    run(&["show", out, "--source", "named"]).ended(0);
    let quick = ["--warmup", "1", "--repetitions", "3"];
    let told = run(&[&["evaluate", &at("c2"), &at("named")], &quick[..]].concat()).ended(0).out;
    assert!(told.contains("W@c2") && told.contains("W@named"), "{told}");
    let told: Value = serde_json::from_str(&run(&["compare", &at("named"), &at("c2"), "--json"]).ended(0).out).unwrap();
    let regions: Vec<&str> = told["regions"].as_array().unwrap().iter().map(|pair| pair[0].as_str().unwrap()).collect();
    assert_eq!(regions, ["macros", "device", "host", "imports"], "{told}");
    let tile = told["bindings"].as_array().unwrap().iter().find(|differing| differing["name"] == "TILE_K_SIZE");
    assert_eq!(tile.unwrap()["values"][0], Value::Null, "{told}");
    assert!(told["times"]["passed"]["speedup"]["ratio"].as_f64().unwrap() > 0.0, "{told}");
    let same = run(&["compare", &at("named"), &at("1"), "--recorded"]).ended(0).out;
    assert!(same.contains("no region differs") && same.contains("no binding differs"), "{same}");
    let other = bench.at("other");
    let model = bench.model();
    let begin =
        ["transform", &bench.at("task"), "Refactor", "--model", &model, "--from", &at("named"), "--out", &other];
    let told = warpsmith(&[&begin[..], &quick, &["--edit"]].concat())
        .env("EDITOR", "sed -i s/sum/total/g")
        .env_remove("VISUAL")
        .output();
    Told::of(told.unwrap()).ended(0);
    let edited = run(&["show", &format!("{other}@c1")]).ended(0).out;
    assert!(edited.contains("float total = 0.0f;"), "what the person left is what was checked and kept: {edited}");
    let lines = events(&other);
    assert!(of(&lines, "answered").iter().any(|one| one["model"].as_str().unwrap().ends_with("finished by hand")));
    let (own, seed) = (tree(&other), run(&["show", &format!("{other}@c0"), "--json"]).ended(0).out);
    assert_eq!(own["head"], "c1");
    assert!(seed.contains("static void element"), "the seed's text and not the reference's: {seed}");
    for (arguments, why) in [
        (
            vec!["show", &at("naned")],
            "no candidate, round or checkpoint is called \"naned\"; the nearest names are named",
        ),
        (vec!["evaluate", "nowhere@c1"], "nowhere@c1: nowhere is not the folder of a run"),
        (vec!["evaluate", &at("c1"), "--bind", "BLOCK_X=8"], "W@c1 has its bindings already"),
        (vec!["compare", &at("c1"), out], "write each as RUN@NAME"),
        (vec!["transform", out, "Unroll", "--from", &at("c1")], "--from seeds a workflow that begins"),
        (
            vec!["transform", "examples/silu_and_mul", "Refactor", "--from", &at("c1")],
            "whose entry or arguments are not",
        ),
        (vec!["evaluate", out], "which candidate?"),
        (vec!["tune", out, "--tuner", "tpee"], "there is no tuner \"tpee\"; there are exhaustive, sampled, tpe"),
        (vec!["transform", out, "Unroll", "--pause"], "--pause asks at a terminal, and there is none here"),
    ] {
        let told = run(&arguments).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
}

#[test]
fn a_step_whose_outputs_are_right_fails_for_what_a_sanitizer_finds_and_its_next_try_sees_it() {
    let bench = Bench::new();
    let policy =
        POLICY.replace("\"Refactor\", \"TB-Tiling\", \"Unroll\"", "\"Refactor\"").replace("keep", "sanitize = 2\nkeep");
    fs::write(bench.at("policy.toml"), policy).unwrap();
    let overflows = "    volatile int32_t large = 2147483647;\n    large = large + 1;\n    float sum";
    let wrong = REFACTORED.replacen("    float sum", overflows, 1);
    let step = |round, kernel: &str| {
        [("1.macros", ACCESSES), ("1.device", &initial_device()), ("2.device", kernel)]
            .map(|(part, text)| entry(round, part, text))
    };
    bench.script(&[step(1, &wrong), step(2, REFACTORED)].concat());
    let told = bench.run(&[]).ended(0);
    assert!(told.out.contains("signed integer overflow"), "{told:?}");
    let all = events(&bench.at("W"));
    let sanitized: Vec<bool> = of(&all, "checked")
        .into_iter()
        .filter(|event| event["sanitized"] == json!(true))
        .map(|event| event["failure"].is_null())
        .collect();
    assert_eq!(sanitized, [false, true, true], "the first try ends with its first, the second passes both");
    assert_eq!(tree(&bench.at("W"))["checkpoints"].as_array().unwrap().len(), 2);
    let blobs =
        fs::read_dir(bench.at("W/blobs")).unwrap().flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let mut texts = blobs.map(|blob| fs::read_to_string(blob.unwrap().path()).unwrap_or_default());
    assert!(texts.any(|text| text.contains("# The last try") && text.contains("signed integer overflow")));
}

#[test]
fn the_list_has_sixteen_and_a_dropped_in_file_and_what_is_wrong_is_told_in_a_sentence() {
    let list = |folder: &Path, more: &[&str]| {
        let mut command = warpsmith(&[&["transform", "--list"], more].concat());
        Told::of(command.current_dir(folder).output().unwrap())
    };
    let folder = tempfile::tempdir().unwrap();
    assert!(list(folder.path(), &[]).ended(0).out.contains("16 transformations, 37 calls; 5 of ours, 17 calls"));
    let cpu = list(folder.path(), &["--backend", "cpu"]).ended(0).out;
    assert!(cpu.contains("Transpose") && !cpu.contains("Split-K"), "{cpu}");
    assert!(list(folder.path(), &["--backend", "gpu"]).ended(2).err.contains("there are cuda, hip, hlsl, cpu"));
    let own = folder.path().join("transformations");
    fs::create_dir(&own).unwrap();
    let call = |region: &str| format!("[[pass.call]]\nregion = \"{region}\"\ntext = \"Do it.\"\n");
    let file = |head: &str, calls: &str| {
        let text =
            format!("name = \"Mine\"\nsummary = \"s\"\nbackends = [\"cpu\"]\n{head}\n[[pass]]\naim = \"a\"\n{calls}");
        fs::write(own.join("mine.toml"), text).unwrap();
        list(folder.path(), &["--json"])
    };
    let listed: Value = serde_json::from_str(&file("", &call("host")).ended(0).out).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), listed[21]["name"].as_str()), (22, Some("Mine")));
    let four = ["macros", "device", "host", "host"].map(call).concat();
    for (head, calls, why) in [
        ("", four.as_str(), "mine.toml: pass 1 has 4 calls; a pass has one to three, one a region"),
        ("imports = [\"fast\"]", &call("host"), "mine.toml: it imports \"fast\", and there is no such snippet"),
        ("", &call("host").replace("Do it", "{{SIZE}}"), "pass 1 (host) names {{SIZE}}, which is neither a parameter"),
    ] {
        assert!(file(head, calls).ended(2).err.contains(why), "{why}");
    }
}

#[test]
fn a_task_without_regions_and_a_sequence_for_another_backend_are_refused_before_anything_runs() {
    let bench = Bench::new();
    let model = bench.model();
    for (task, policy, why) in [
        ("examples/silu_and_mul", "peak-x1-85", "its reference has no regions: begin each of macros, device and host"),
        ("examples/matmul", "peak-a6000-fp32", "Thread-Chunk is for cuda, hip, hlsl; this context is for cpu"),
    ] {
        let told = run(&["run", task, "--model", &model, "--policy", policy, "--out", &bench.at("no")]).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
    assert!(!Path::new(&bench.at("no")).exists());
}
