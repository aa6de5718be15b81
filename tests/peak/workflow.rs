//! A small workflow on the processor, with every reply scripted: a matrix product under Refactor, TB-Tiling and Unroll.

use super::program::{Told, run};
use serde_json::{Value, json};
use std::{fs, path::Path};

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
pub(crate) const TILED: &str =
    "static void tile(float *c, const float *a, const float *b, int64_t n, int64_t y, int64_t x) {
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

pub(crate) fn entry(round: u32, part: &str, text: &str) -> String {
    let region = part.split_once('.').unwrap().1;
    let reply = format!("```cpp\n// region: {region}\n{text}```\n");
    json!({"role": "coder", "round": round, "purpose": "transform", "part": part, "reply": reply}).to_string()
}

/// The region device of the initial context, and its region host.
fn initial() -> (String, String) {
    let initial = fs::read_to_string("examples/matmul/reference.cpp").unwrap();
    let (_, rest) = initial.split_once("// region: device\n").unwrap();
    let (device, host) = rest.split_once("// region: host\n").unwrap();
    (device.to_owned(), host.to_owned())
}

/// The replies of Refactor in a round.
pub(crate) fn refactor(round: u32) -> Vec<String> {
    vec![
        entry(round, "1.macros", ACCESSES),
        entry(round, "1.device", &initial().0),
        entry(round, "2.device", REFACTORED),
    ]
}

/// The replies of TB-Tiling in a round, with this kernel in its last passes.
pub(crate) fn tiling(round: u32, kernel: &str) -> Vec<String> {
    let (sized, tiles) = (format!("{ACCESSES}{SIZES}"), format!("{ACCESSES}{SIZES}{TILES}"));
    vec![
        entry(round, "1.macros", &sized),
        entry(round, "2.device", "static void tile();\n"),
        entry(round, "2.host", &initial().1),
        entry(round, "3.macros", &tiles),
        entry(round, "3.device", "static void tile() { half a kernel }\n"),
        entry(round, "4.device", kernel),
        entry(round, "5.device", kernel),
        entry(round, "6.macros", &tiles),
        entry(round, "6.host", LAUNCH),
    ]
}

/// The reply of Unroll in a round: a line before the loop over k.
pub(crate) fn unroll(round: u32, line: &str) -> String {
    entry(
        round,
        "1.device",
        &TILED.replace("            for (int k = 0", &format!("{line}\n            for (int k = 0")),
    )
}

/// A reply of Unroll that changes the region host, too.
pub(crate) fn refused(round: u32) -> String {
    entry(round, "1.device", &format!("{TILED}// region: host\n{}", LAUNCH.replace("return 0", "return 1")))
}

/// Every reply: Refactor, TB-Tiling, and Unroll, which fails to compile, then touches the host region, then passes.
pub(crate) fn script() -> Vec<String> {
    [refactor(1), tiling(2, TILED)]
        .concat()
        .into_iter()
        .chain([
            unroll(3, "// {{UNROLL_FACTOR}}\nstage();"),
            refused(4),
            refused(4),
            unroll(5, "#pragma GCC unroll {{UNROLL_FACTOR}}"),
        ])
        .collect()
}

/// A copy of the example with few configurations, the policy, and the script.
pub(crate) struct Bench(tempfile::TempDir);

impl Bench {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    pub(crate) fn script(&self, entries: &[String]) {
        fs::write(self.at("script.jsonl"), entries.join("\n")).unwrap();
    }

    pub(crate) fn model(&self) -> String {
        format!("scripted:{}", self.at("script.jsonl"))
    }

    pub(crate) fn run(&self, more: &[&str]) -> Told {
        let (task, model, policy, out) = (self.at("task"), self.model(), self.at("policy.toml"), self.at("W"));
        run(&[&["run", &task, "--model", &model, "--policy", &policy, "--out", &out], more].concat())
    }

    pub(crate) fn transform(&self, what: &str, name: &str, more: &[&str]) -> Told {
        run(&[&["transform", what, name, "--model", &self.model()], more].concat())
    }
}

pub(crate) fn events(run: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(run).join("tasks/matmul/events.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn of<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

pub(crate) fn tree(run: &str) -> Value {
    serde_json::from_str(&self::run(&["tree", run, "--json"]).ended(0).out).unwrap()
}
