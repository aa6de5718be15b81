//! Tensor operators as a user meets them: a sentence becomes a task, an operator is generated, mended and searched.
#![cfg(target_arch = "x86_64")]

use crate::program::{Told, run, warpsmith};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

const SKETCH: &str = include_str!("../examples/operators/gemm_avx512/sketch.cpp");
const AVX2: &str = include_str!("../kernelbench/tests/primitives/avx2.py");
const TABLE: &str = "MR = [6, 4]\nNR = [16]\nPREFETCH = [8, 4, 16]\nBM = { values = [48, 24, 96], constraint = \"BM % MR == 0\" }\n\
                     BN = [64, 32]\nBK = [32, 64]\n";

fn entry(role: &str, purpose: &str, reply: &str) -> String {
    json!({"role": role, "purpose": purpose, "reply": reply}).to_string()
}

/// A sketch and a script whose first form forgets a register, then is mended; then actions.
fn generation() -> Vec<String> {
    let broken = AVX2.replace("vfmadd231ps", "vfmadd231pq");
    vec![
        entry("coder", "sketch", &format!("```cpp\n{SKETCH}```\n```toml\n{TABLE}```\n")),
        entry("coder", "primitives", &format!("```python\n{broken}```\n")),
        entry("coder", "primitives", &format!("```python\n{AVX2}```\n")),
    ]
}

fn guided() -> Vec<String> {
    let space = r#"{"candidates": ["BM+48", "MR-2", "BM+7", "swap load 0 1", "no action"]}"#;
    let later = r#"{"candidates": ["PREFETCH-4", "BN-32"]}"#;
    let action = |name: &str| entry("planner", "action", &json!({"action": name, "why": "Because."}).to_string());
    let offers = [space, later, later, later].map(|reply| entry("planner", "space", reply));
    let actions = ["BM+48", "BK+9", "BK+9", "swap load 0 1"].map(action);
    [generation(), offers.into(), actions.into()].concat()
}

struct Bench(tempfile::TempDir);

impl Bench {
    fn new(script: &[String]) -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        fs::write(bench.at("script.jsonl"), script.join("\n")).unwrap();
        let told = run(&["ask", "GEMM, m=72 n=96 k=80, on this CPU", "-o", &bench.at("task")]).ended(0);
        assert!(told.out.contains("agrees with itself") && told.out.contains("single precision"), "{told:?}");
        bench
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn run(&self, policy: &str, more: &[&str]) -> Told {
        let (task, model, out) = (self.at("task"), format!("scripted:{}", self.at("script.jsonl")), self.at("R"));
        let quick = ["--warmup", "1", "--repetitions", "3"];
        run(&[&["run", &task, "--model", &model, "--policy", policy, "--out", &out], &quick[..], more].concat())
    }
}

fn events(run: &str) -> Vec<Value> {
    let tasks = fs::read_dir(Path::new(run).join("tasks")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(tasks.join("events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

/// A sketch and primitives for a K1: as many columns of a row at a time as eight vector registers hold.
fn for_a_k1() -> Vec<String> {
    let sketch = "extern \"C\" void COMPUTE(float *c, const float *a, const float *b, int64_t n, int64_t k);\n\
                  extern \"C\" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {\n\
                  for (int64_t i = 0; i < m; i += {{STEP}}) COMPUTE(c + i * n, a + i * k, b, n, k);\n}\n";
    let script = "print('''.text\n.globl COMPUTE\nCOMPUTE:\n\
                  slli t6, a3, 2\n1:\nvsetvli t0, a3, e32, m8, ta, ma\nvmv.v.i v8, 0\nmv t1, a4\nmv t2, a1\nmv t3, a2\n\
                  2:\nflw ft0, 0(t2)\nvle32.v v16, (t3)\nvfmacc.vf v8, ft0, v16\naddi t2, t2, 4\nadd t3, t3, t6\naddi t1, t1, -1\n\
                  bnez t1, 2b\nvse32.v v8, (a0)\nsub a3, a3, t0\nslli t0, t0, 2\nadd a0, a0, t0\nadd a2, a2, t0\nbnez a3, 1b\nret''')\n";
    vec![
        entry("coder", "sketch", &format!("```cpp\n{sketch}```\n```toml\nSTEP = [1]\n```\n")),
        entry("coder", "primitives", &format!("```python\n{}```\n", script.replace("vfmacc", "vfmsac"))),
        entry("coder", "primitives", &format!("```python\n{script}```\n")),
    ]
}

#[test]
#[cfg_attr(not(has_emulators), ignore = "needs QEMU and cross compilers for AArch64 and RISC-V")]
fn an_operator_for_a_processor_that_is_emulated_is_mended_and_counted_and_its_record_is_made_again() {
    let bench = Bench(tempfile::tempdir().unwrap());
    fs::write(bench.at("script.jsonl"), for_a_k1().join("\n")).unwrap();
    let told = run(&["ask", "GEMM, m=24 n=40 k=16, on a K1", "-o", &bench.at("task")]).ended(0);
    assert!(told.out.contains("SpacemiT K1, emulated") && told.out.contains("agrees with itself"), "{told:?}");
    let told = bench.run("qimeng", &[]).ended(0);
    for line in
        ["SpacemiT K1 (emulated)", "elements of c are wrong", "correct: ", "of the reference's", "result     right: "]
    {
        assert!(told.out.contains(line), "{line}: {told:?}");
    }
    let out = bench.at("R");
    let ended = of(&events(&out), "ended")[0].clone();
    assert_eq!(ended["end"], "counted");
    let best = Path::new(&out).join("best.cpp");
    assert!(fs::read_to_string(&best).unwrap().contains("vfmacc"));
    let report = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(report.contains("Right on an emulated SpacemiT K1") && !report.contains("Speedup by round"));
    for again in [&["verify", out.as_str()][..], &["replay", &out], &["resume", &out]] {
        run(again).ended(0);
    }
    let told = run(&["resume", &out, "--rounds", "9"]).ended(2);
    assert!(told.err.contains("nothing says which of two is faster"), "{told:?}");
    assert!(run(&["status", &out]).ended(0).out.contains("right: "));
    assert!(run(&["scores", &out]).ended(2).err.contains("there is no speed to score"));
    let told = run(&["evaluate", &bench.at("task"), &best.display().to_string(), "--json"]).ended(0);
    let found: Value = serde_json::from_str(&told.out).unwrap();
    let case = &found["evaluation"]["counted"]["cases"][0];
    assert!(case["candidate"].as_u64() < case["reference"].as_u64(), "{found}");
}

#[test]
fn a_guided_search_mends_its_primitives_keeps_what_is_legal_and_its_record_is_made_again() {
    let bench = Bench::new(&guided());
    let told = bench.run("qimeng", &["--evaluations", "4"]).ended(0);
    let out = bench.at("R");
    for line in [
        "a search of 4 evaluations",
        "the Coder mends",
        "node 0  first values",
        "node 3 of",
        "GFLOPS",
        "best",
        "ended: the search is over",
    ] {
        assert!(told.out.contains(line), "{line}: {told:?}");
    }
    let all = events(&out);
    assert_eq!((of(&all, "simulated").len(), of(&all, "certified").len()), (4, 1));
    assert!(of(&all, "evaluated")[0].to_string().contains("no such instruction"), "the first script does not assemble");
    let offered = of(&all, "offered")[0];
    assert_eq!((&offered["candidates"], &offered["dropped"]), (&json!(["BM+48", "MR-2", "swap load 0 1"]), &json!(2)));
    let actions: Vec<&Value> = of(&all, "expanded").iter().map(|event| &event["action"]).collect();
    assert_eq!(actions[1], "BM+48");
    assert_eq!(actions[2], "MR-2", "what is off the list is asked for again, then the first is taken");
    assert!(
        actions[3].as_str().is_some_and(|action| action.starts_with("swap") || action.contains("PREFETCH")),
        "{actions:?}"
    );
    assert!(of(&all, "simulated").iter().all(|event| event["found"]["Ok"]["ratio"].is_number()), "all are right");
    let told = Told::of(warpsmith(&["replay", &out]).output().unwrap()).ended(0);
    assert!(told.out.contains("agrees with the record"), "{told:?}");
    let verified = run(&["verify", &out]).ended(0);
    assert!(verified.out.contains("agrees: "), "{verified:?}");
    let tree = run(&["tree", &out]).ended(0).out;
    assert!(tree.contains("BM+48") && tree.contains("GFLOPS") && tree.contains("best"), "{tree}");
    let json: Value = serde_json::from_str(&run(&["tree", &out, "--json"]).ended(0).out).unwrap();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 4);
    assert!(json["nodes"][1]["visits"].is_number() && json["best"].is_number(), "{json}");
    let page = fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(page.contains("Best against evaluations"), "the report draws the search");
}

#[test]
fn a_naive_search_of_an_operator_from_elsewhere_asks_no_model_and_goes_on_after_a_kill() {
    let bench = Bench::new(&[]);
    let start = bench.0.path().join("start");
    fs::create_dir(&start).unwrap();
    for (name, text) in [("sketch.cpp", SKETCH), ("primitives.py", AVX2), ("parameters.toml", TABLE)] {
        fs::write(start.join(name), text).unwrap();
    }
    let start = start.display().to_string();
    bench.run("qimeng-naive", &["--evaluations", "7", "--open-nodes", "2", "--start", &start]).ended(0);
    let (out, copy) = (bench.at("R"), bench.at("cut"));
    let all = events(&out);
    assert_eq!((of(&all, "answered").len(), of(&all, "simulated").len()), (0, 7));
    assert!(Command::new("cp").args(["-r", &out, &copy]).status().unwrap().success());
    let file =
        fs::read_dir(Path::new(&copy).join("tasks")).unwrap().next().unwrap().unwrap().path().join("events.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let cut = all.iter().position(|event| event["event"] == "expanded" && event["node"] == 4).unwrap();
    fs::write(&file, text.lines().take(cut + 1).chain([""]).collect::<Vec<_>>().join("\n")).unwrap();
    run(&["resume", &copy]).ended(0);
    let again = events(&copy);
    let count = |events: &[Value]| ["expanded", "simulated", "offered", "printed"].map(|name| of(events, name).len());
    assert_eq!(count(&again)[..2], count(&all)[..2], "nothing is evaluated twice");
    let told = Told::of(warpsmith(&["replay", &copy]).output().unwrap()).ended(0);
    assert!(told.out.contains("agrees with the record"), "{told:?}");
}

#[test]
fn a_batch_searches_as_far_as_it_is_told_and_tunes_one_operator_for_all_of_its_tasks() {
    let bench = Bench::new(&generation());
    let (tasks, model) = (bench.at("tasks"), format!("scripted:{}", bench.at("script.jsonl")));
    fs::create_dir(&tasks).unwrap();
    fs::rename(bench.at("task"), Path::new(&tasks).join("gemm")).unwrap();
    let batch = |policy: &str, more: &[&str]| {
        let quick = ["--warmup", "1", "--repetitions", "3", "--evaluations", "3"];
        run(&[&["batch", &tasks, "--policy", policy, "--model", &model], &quick[..], more].concat())
    };
    let out = bench.at("B");
    batch("qimeng-naive", &["--out", &out]).ended(0);
    assert_eq!(of(&events(&out), "simulated").len(), 3, "and not the policy's 128");
    let told = batch("astra", &["--out", &bench.at("C")]).ended(2);
    assert!(told.err.contains("the policy astra searches nothing"), "{told:?}");
    let told = batch("qimeng-naive", &["--out", &bench.at("D"), "--start", &tasks]).ended(2);
    assert!(told.err.contains("sketch.cpp") && told.err.contains("expected sketch.cpp (or sketch.c"), "{told:?}");
    let (own, given) = (bench.at("own"), bench.at("E"));
    fs::create_dir(&own).unwrap();
    fs::write(Path::new(&own).join("sketch.cpp"), WHOLE).unwrap();
    fs::write(Path::new(&own).join("parameters.toml"), "BK = [8, 16, 32]\n").unwrap();
    let second = Path::new(&tasks).join("second").display().to_string();
    run(&["ask", "GEMM, m=40 n=24 k=56, on this CPU", "-o", &second]).ended(0);
    batch("qimeng-naive", &["--out", &given, "--start", &own]).ended(0);
    let kernels: Vec<_> = fs::read_dir(Path::new(&given).join("tasks")).unwrap().collect();
    assert_eq!(kernels.len(), 2);
    // One task's tree of the two, and what is said where none or another is named.
    let tree = run(&["tree", &given, "--task", "gemm-40x24x56"]).ended(0);
    assert!(tree.out.contains("first values"), "{tree:?}");
    assert!(run(&["tree", &given]).ended(2).err.contains("take one with --task"));
    assert!(run(&["tree", &given, "--task", "third"]).ended(2).err.contains("expected one of gemm-40x24x56, gemm-72"));
    for (file, text, why) in [
        ("parameters.toml", "", "the sketch writes {{BK}}, and parameters.toml has no values for BK"),
        ("parameters.toml", "BK = [8]\nBQ = [1, 2]\n", "the sketch never writes {{BQ}}"),
    ] {
        fs::write(Path::new(&own).join(file), text).unwrap();
        let told = batch("qimeng-naive", &["--out", &bench.at("F"), "--start", &own]).ended(2);
        assert!(told.err.contains(why), "{told:?}");
    }
}

/// An operator without primitives.
const WHOLE: &str = "#include <cstdint>\nextern \"C\" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {\n\
                     for (int64_t i = 0; i < m * n; ++i) c[i] = 0;\n\
                     for (int64_t p = 0; p < k; p += {{BK}})\nfor (int64_t i = 0; i < m; ++i)\n\
                     for (int64_t q = p; q < k && q < p + {{BK}}; ++q)\nfor (int64_t j = 0; j < n; ++j)\n\
                     c[i * n + j] += a[i * k + q] * b[q * n + j];\n}\n";

#[test]
fn c_code_of_a_model_is_mended_and_tuned_without_primitives() {
    let reply = |code: &str| format!("```cpp\n{code}```\n```toml\nBK = [8, 16, 32]\n```\n");
    let wrong = WHOLE.replace("+= a[", "-= a[");
    let space = json!({"candidates": ["BK+8", "BK+24"]}).to_string();
    let mut script = vec![
        entry("coder", "sketch", &reply(&wrong)),
        entry("coder", "sketch", &reply(WHOLE)),
        entry("planner", "space", &space),
    ];
    script.push(entry("planner", "action", &json!({"action": "BK+8", "why": "Because."}).to_string()));
    script.push(entry("planner", "space", r#"{"candidates": ["BK+16"]}"#));
    let bench = Bench::new(&script);
    let told = bench.run("qimeng-c", &["--evaluations", "2"]).ended(0);
    assert!(told.out.contains("elements of c are wrong") && told.out.contains("BK+8"), "{told:?}");
    let events = events(&bench.at("R"));
    assert!(of(&events, "printed").is_empty(), "it has no script");
    assert_eq!(of(&events, "simulated").len(), 2);
    let asked = fs::read_to_string(prompt_of(&bench.at("R"), &of(&events, "answered")[1]["prompt"])).unwrap();
    assert!(asked.contains("Mend the C++") && asked.contains("-= a[") && !asked.contains("COMPUTE"), "{asked}");
}

#[test]
fn a_reply_in_a_wrong_form_is_noted_once_and_asked_for_in_the_right_one() {
    let bench = Bench::new(&[]);
    let (task, out, letters) = (bench.at("task"), bench.at("R"), bench.at("letters"));
    let model = format!("mailbox:{letters}");
    let waits = |arguments: &[&str]| run(&[arguments, &["--exit-when-waiting"]].concat()).ended(10);
    waits(&["run", &task, "--policy", "qimeng-c", "--model", &model, "--out", &out, "--warmup", "1"]);
    let letter = |attempt: u32| {
        let files = fs::read_dir(&letters).unwrap().map(|file| file.unwrap().path().display().to_string());
        files.filter(|file| file.ends_with(&format!("sketch.{attempt}.request.json"))).collect::<Vec<_>>().concat()
    };
    fs::write(letter(1).replace("request.json", "reply.txt"), format!("```cpp\n{WHOLE}```\n")).unwrap();
    waits(&["resume", &out]);
    waits(&["resume", &out]);
    assert_eq!(of(&events(&out), "misread").len(), 1);
    let asked = fs::read_to_string(letter(2)).unwrap();
    assert!(asked.contains("its table has no values for BK") && asked.contains("then a TOML table"), "{asked}");
}

/// Where a record keeps a prompt.
fn prompt_of(run: &str, hash: &Value) -> std::path::PathBuf {
    let hash = hash.as_str().unwrap();
    Path::new(run).join("blobs").join(&hash[..2]).join(hash)
}

#[test]
fn a_convolution_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("conv").display().to_string();
    let sentence = "conv2d of a 20x18 image, 3 channels, 4 filters of 3x3, stride 2, padding 1, on this CPU";
    assert!(run(&["ask", sentence, "-o", &at]).ended(0).out.contains("agrees with itself"));
}

#[test]
#[cfg_attr(not(has_avx512), ignore = "needs a processor with AVX-512")]
fn an_operator_in_avx512_is_generated_and_certified() {
    let script = include_str!("../examples/operators/gemm_avx512/primitives.py");
    let replies = [
        entry("coder", "sketch", &format!("```cpp\n{SKETCH}```\n```toml\n{TABLE}```\n")),
        entry("coder", "primitives", &format!("```python\n{script}```\n")),
    ];
    let bench = Bench::new(&replies);
    let told = bench.run("qimeng-naive", &["--evaluations", "2"]).ended(0);
    assert!(told.out.contains("certified:"), "{told:?}");
    let best = fs::read_to_string(Path::new(&bench.at("R")).join("best.cpp")).unwrap();
    assert!(best.contains("zmm0") && !best.contains("{{MR}}"), "what is kept is compiled as it stands");
}

#[test]
fn an_operator_that_is_larger_than_what_is_run_says_what_to_set() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (sizes, hardware, what) in [
        ("m=n=k=16384, fp32", "an NVIDIA H200", Some("`largest_case_mib = 564`")),
        ("m=n=k=8192, fp32", "an NVIDIA H200", None),
        ("m=n=k=2048", "this CPU", None),
        ("m=n=k=8192", "this CPU", Some("`largest_case_mib = 768`")),
        ("m=n=k=2048", "a K1", None),
        ("m=n=k=4096", "a K1", Some("it may take 64: ask for smaller sizes")),
    ] {
        let sentence = format!("GEMM {sizes}, on {hardware}");
        let told = run(&["ask", &sentence, "--untried", "-o", &at(&format!("{sizes}{hardware}"))]).ended(0);
        match what {
            Some(what) => assert!(told.out.contains(what), "{sentence}: {told:?}"),
            None => assert!(!told.out.contains("note: "), "{sentence}: {told:?}"),
        }
    }
}

#[test]
fn what_cannot_be_is_told_in_a_sentence() {
    let bench = Bench::new(&[]);
    let (task, model) = (bench.at("task"), format!("scripted:{}", bench.at("script.jsonl")));
    let empty = bench.at("empty");
    fs::create_dir(&empty).unwrap();
    for (arguments, code, why) in [
        (vec!["ask", "GEMM on this CPU"], 2, "Which sizes? There is none for m, n, k"),
        (vec!["ask", "GEMM m=0 n=1 k=1 on this CPU"], 2, "m is 0: expected 1 or more"),
        (vec!["ask", "GEMM m=n=k=900000 on this CPU"], 2, "this machine has"),
        (vec!["ask", "GEMM m=8 n=8 k=8 on this CPU", "-o", &task], 2, "this folder is not empty"),
        (vec!["hardware", "C911"], 2, "there is no record of \"C911\": there are C906, C908"),
        (
            vec!["run", &task, "--model", &model, "--policy", "astra", "--evaluations", "3"],
            2,
            "the policy astra searches nothing",
        ),
        (vec!["run", &task, "--model", &model, "--policy", "qimeng", "--start", &empty], 2, "expected sketch.cpp"),
    ] {
        let told = run(&arguments).ended(code);
        assert!(told.err.contains(why), "{told:?}");
    }
}

#[test]
fn a_sentence_beyond_the_grammar_is_read_by_a_model_once_and_what_it_does_not_say_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let sentence = "Multiply two square 1k matrices on the processor of my laptop";
    let fact = |name: &str, value: &str, quote: &str| {
        format!(r#"{{"name": "{name}", "value": "{value}", "quote": "{quote}"}}"#)
    };
    let size = |name: &str| fact(name, "1024", "square 1k");
    let place = fact("hardware", "this cpu", "the processor of my laptop");
    let facts = [fact("operator", "gemm", "Multiply two"), size("m"), size("n"), size("k"), place];
    let scripted = |facts: &[String]| {
        fs::write(at("script.jsonl"), entry("planner", "sentence", &format!(r#"{{"facts": [{}]}}"#, facts.join(", "))))
            .unwrap();
        format!("scripted:{}", at("script.jsonl"))
    };
    let ask =
        |sentence: &str, model: &str, out: &str| run(&["ask", sentence, "--model", model, "-o", &at(out), "--untried"]);
    let forged = fact("precision", "fp16", "in half precision");
    let told = ask(sentence, &scripted(&[&facts[..], &[forged]].concat()), "a").ended(0).out;
    assert!(told.contains("as: gemm m=1024 n=1024 k=1024 on this cpu\n"), "{told}");
    assert!(told.contains("dropped: precision = fp16: its words do not stand in the sentence"), "{told}");
    let task = fs::read_to_string(folder.path().join("a/task.toml")).unwrap();
    let made_of = format!("{sentence} (read as: gemm m=1024 n=1024 k=1024 on this cpu)");
    assert!(task.contains("name = \"gemm-1024x1024x1024\"") && task.contains(&made_of), "{task}");
    let lacking = ask(sentence, &scripted(&facts[..4]), "b").ended(2);
    assert!(lacking.err.contains("On which hardware?"), "{lacking:?}");
    assert!(!lacking.err.contains("--model"), "one has just read it: {lacking:?}");
    fs::write(at("prose.jsonl"), entry("planner", "sentence", "A product, I think.")).unwrap();
    let prose = ask(sentence, &format!("scripted:{}", at("prose.jsonl")), "b").ended(4);
    assert!(prose.err.contains("the model's reply cannot be read"), "{prose:?}");
    let letters = format!("mailbox:{}", at("letters"));
    let waits = ["ask", sentence, "--model", &letters, "--exit-when-waiting", "-o", &at("b"), "--untried"];
    assert!(run(&waits).ended(10).err.contains("waiting for a reply to "));
    let none = run(&["ask", sentence, "-o", &at("b"), "--untried"]).ended(2);
    assert!(none.err.contains("--model openai:NAME has a model read it") && !Path::new(&at("b")).exists(), "{none:?}");
    // What the grammar reads is not asked: this model would have no reply.
    fs::write(at("empty.jsonl"), "").unwrap();
    ask("GEMM m=n=k=64 on this CPU", &format!("scripted:{}", at("empty.jsonl")), "c").ended(0);
}

/// Its library is not needed for that: what CI has of cuDNN is the name.
#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn what_a_convolution_on_a_gpu_is_measured_against_is_found_and_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir_all(at("cudnn/lib")).unwrap();
    fs::write(at("cudnn/lib/libcudnn.so.9"), "").unwrap();
    let nvcc = kernelbench::cuda::find_nvcc().unwrap();
    for precision in ["fp16", "fp32"] {
        let (sentence, task) = (format!("{precision} ResNet-50 conv3-3x3 on an H200"), at(precision));
        let asked = warpsmith(&["ask", &sentence, "-o", &task, "--untried"]).env("CUDNN_PATH", at("cudnn")).output();
        let told = asked.map(Told::of).unwrap().ended(0);
        assert!(told.out.contains("speedups are over cudnn"), "{told:?}");
        let mut compile = Command::new(&nvcc);
        compile.args(["-arch=sm_90", "-std=c++17", "-include", "cstdint", "-include", "cuda_fp16.h", "-c", "-o"]);
        let built = compile.args([at("out.o"), format!("{task}/cudnn.cu")]).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
}

#[test]
fn hardware_says_its_factors_with_sources_and_a_forged_quote_of_a_manual_is_dropped() {
    let shown = run(&["hardware", "C910"]).ended(0).out;
    assert!(shown.contains("64 KiB") && shown.contains("OpenC910 datasheet") && shown.contains("RVV 0.7.1"), "{shown}");
    let here: Value = serde_json::from_str(&run(&["hardware", "--json"]).ended(0).out).unwrap();
    let own =
        |name: &str| here["factors"].as_array().unwrap().iter().find(|f| f["name"] == name).unwrap()["value"].clone();
    let lscpu = fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index0/size").unwrap();
    assert!(own("l1d").as_str().unwrap().starts_with(lscpu.trim().trim_end_matches('K')), "{here}");
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("manual.txt"), "C910 data sheet\nThe L2 cache of a cluster has 2 MiB.\n").unwrap();
    let reply = r#"{"factors": [{"name": "l2", "value": "2 MiB", "quote": "The L2 cache of a cluster has 2 MiB."},
                                {"name": "l1d", "value": "128 KiB", "quote": "The L1 data cache has 128 KiB."}]}"#;
    fs::write(at("script.jsonl"), entry("planner", "extract", reply)).unwrap();
    let model = format!("scripted:{}", at("script.jsonl"));
    let told = run(&["hardware", "C910", "--manual", &at("manual.txt"), "--model", &model]).ended(0).out;
    assert!(told.contains("2 MiB") && told.contains("conflict: second-level cache: 1 MiB"), "{told}");
    assert!(
        told.contains("dropped: l1d = 128 KiB: the quote does not stand in any manual") && told.contains("64 KiB"),
        "{told}"
    );
    fs::write(at("empty.txt"), "").unwrap();
    let told = run(&["hardware", "C910", "--manual", &at("empty.txt"), "--model", &model]).ended(2);
    assert!(told.err.contains("empty.txt: this manual is empty"), "{told:?}");
}
