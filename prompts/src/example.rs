//! On what is a template tried before a run? One small task, and each situation that a page must cope with.

#[cfg(test)]
mod faces;

#[cfg(test)]
pub(crate) use faces::{as_kernelbench, h200, more_faces, profile_on_a_gpu};

use crate::{
    Approaches, Choosing, Fix, Learned, Looking, Lookup, Offered, Offering, OpenTransformation, Optimization, Passage,
    Past, PlanLine, Proposing, Rewriting, Shelf, Suggestions, Taken, Unreadable, action, advise, again, apply,
    approaches::{to_carry_out, with_approaches},
    diagnose, extract, features, fix,
    hints::Hints,
    learned, lookup, optimize, plan, pooled, primitives, propose, refine, reflect, retry, seed, sentence, shapes,
    sketch, space, transform,
};
use kernelbench::{
    Argument, ArgumentKind, Baselines, Beyond, Candidate, Case, CaseTiming, Dtype, Evaluation, Failure, Fill, Hash,
    KernelContext, Language, ModuleValue, Number, Operator, Precision, Primitives, Problem, ReferenceMode, Signature,
    Size, Source, Spread, Task, TensorLayout, Timed, TimedCases, Tolerance, Transfer,
    pool::{About, Pooled, Reflection},
};
use metrics::{
    Arch, Bandwidth, Fact, Interval, Kernel, Machine, MachineKind, Profile, Reading, Rung, Speedup, Statistic, Timing,
};
use minijinja::{Value, context};

const REFERENCE: &str = r#"#include <cstdint>

extern "C" void scale(float* out, const float* input, int64_t rows, int64_t columns, float factor) {
    for (int64_t i = 0; i < rows * columns; ++i) {
        out[i] = factor * input[i];
    }
}
"#;

const CANDIDATE: &str = r#"#include <cstdint>

using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));

extern "C" void scale(float* out, const float* input, int64_t rows, int64_t columns, float factor) {
    const int64_t whole = rows * columns / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8) {
        *reinterpret_cast<Vector*>(out + i) = factor * *reinterpret_cast<const Vector*>(input + i);
    }
}
"#;

/// The values of every page, several times where it has several faces.
pub(crate) fn pages() -> Vec<(&'static str, Value)> {
    let (task, machine, candidate, profile) = (task(), machine(), candidate(), profile());
    let (task, machine, candidate, profile) = (&task, &machine, &candidate, Some(&profile));
    let (timed, mismatch, build) = (timed(), mismatch(), build());
    let (passed, failed) = (Evaluation::Passed(timed.clone()), Evaluation::Failed(mismatch.clone()));
    let bare = Machine { facts: vec![], bandwidths: vec![], peak_flops: None, ..machine.clone() };
    vec![
        ("seed", seed::values(task, machine, false)),
        ("seed", seed::values(task, &bare, false)),
        ("vanilla", seed::values(task, machine, false)),
        ("chain-of-thought", seed::values(task, machine, false)),
        ("fix", fix::values(task, machine, candidate, &mismatch, Some(&one_fix()))),
        ("fix", fix::values(task, machine, candidate, &build, None)),
        ("optimize", optimize::values(task, machine, candidate, Some(&one_optimization()))),
        ("optimize", optimize::values(task, machine, candidate, None)),
        ("refine", refine::values(task, machine, candidate, &failed, None)),
        ("refine", refine::values(task, machine, candidate, &passed, profile)),
        ("retry", retry::values(task, machine, candidate, true)),
        ("retry", retry::values(task, machine, candidate, false)),
        ("apply", apply::values(task, machine, candidate, true, Some(&suggestions()))),
        ("apply", apply::values(task, machine, candidate, false, None)),
        ("diagnose", diagnose::values(task, machine, candidate, &mismatch)),
        ("diagnose", diagnose::values(task, machine, candidate, &build)),
        ("advise", advise::values(task, machine, candidate, &timed, profile)),
        ("advise", advise::values(task, machine, candidate, &timed, None)),
        ("suggest", refine::values(task, machine, candidate, &failed, None)),
        ("suggest", refine::values(task, machine, candidate, &passed, profile)),
        ("plan", plan::values(task, &history(), &["current".into(), "best".into(), "stop".into()])),
        ("plan", plan::values(task, &[], &["restart".into()])),
        ("shapes", shapes::values(task, 10, 1 << 30)),
        ("seed", seed::values(&problem(), machine, false)),
        ("seed", seed::values(&bound(), machine, false)),
        ("seed", seed::values(&problem(), machine, true)),
        ("seed", seed::values(task, machine, true)),
        ("optimize", optimize::values(&problem(), machine, candidate, Some(&one_optimization()))),
        ("optimize", optimize::values(&unopened(), machine, candidate, None)),
        ("fix", fix::values(&problem(), machine, candidate, &raised(), None)),
        ("sketch", sketch::values(task, machine, &Hints::embedded(), None)),
        ("sketch", sketch::values(task, machine, &Hints::embedded(), Some((&operator(), &build)))),
        ("sketch", sketch::values(&bound(), machine, &Hints::embedded(), None)),
        ("whole", sketch::values(task, machine, &Hints::embedded(), None)),
        ("whole", sketch::values(task, machine, &Hints::embedded(), Some((&operator(), &build)))),
        ("primitives", primitives::values(task, machine, &Hints::embedded(), &operator(), None)),
        ("primitives", primitives::values(task, machine, &Hints::embedded(), &operator(), Some(&mismatch))),
        ("primitives", primitives::values(&bound(), machine, &Hints::embedded(), &operator(), None)),
        ("extract", extract::values("C910", machine, &Hints::embedded(), &[passage()])),
        ("reflect", reflect::values(task, machine, past(&history(), candidate))),
        ("reflect", reflect::values(&problem(), machine, past(&[], candidate))),
        ("lesson", learned::values(task, machine, learned::after(&history(), candidate, &Learned::Lessons(vec![])))),
        ("lesson", learned::values(&problem(), machine, learned::after(&[], candidate, &learned::example(false)))),
        (
            "skill",
            learned::values(task, machine, learned::after(&history(), candidate, &Learned::Skill(String::new()))),
        ),
        ("skill", learned::values(&problem(), machine, learned::after(&[], candidate, &learned::example(true)))),
        ("sentence", sentence::values("multiply 1k by 1k matrices", &[("m".to_owned(), "rows".to_owned())])),
        ("action", action::values(task, &choosing())),
        ("action", action::values(task, &Choosing { path: None, ..choosing() })),
        ("space", space::values(task, machine, &offering())),
        ("space", space::values(task, machine, &Offering { history: None, blocks: vec![], ..offering() })),
        ("transform", transform::values(task, machine, &rewriting())),
        (
            "transform",
            transform::values(
                &bound(),
                machine,
                &Rewriting { last: Some((build, Some(String::new()))), ..rewriting() },
            ),
        ),
        (
            "transform",
            transform::values(
                task,
                machine,
                &Rewriting { say: Some("gently".into()), retired: vec!["WIDTH".into()], ..rewriting() },
            ),
        ),
        ("propose", propose::values(task, machine, &proposing())),
        ("propose", propose::values(&bound(), machine, &Proposing { history: vec![], may_stop: false, ..proposing() })),
        ("optimize", features::guided(guides(), &optimize::values(task, machine, candidate, None))),
        ("fix", features::guided(guides(), &fix::values(task, machine, candidate, &self::build(), None))),
        ("approaches", seed::values(task, machine, false)),
        ("approaches", seed::values(&problem(), machine, false)),
        ("seed", to_carry_out((&approaches(), 0), &seed::values(task, machine, false))),
        ("seed", to_carry_out((&approaches(), 2), &seed::values(&problem(), machine, true))),
        ("advise", with_approaches(Some(&approaches()), &advise::values(task, machine, candidate, &timed, profile))),
        ("advise", advise::offering(&offered(), &advise::values(task, machine, candidate, &timed, profile))),
        ("seed", pooled::pooled(&[&in_the_pool(), &that_taught()], &seed::values(task, machine, false))),
    ]
}

/// A run that is over.
fn past<'a>(history: &'a [PlanLine], kernel: &'a Candidate) -> Past<'a> {
    Past { history, kernel, claim: "1.43x [1.42, 1.43] over the reference" }
}

/// The kernel in the pool, with what its run taught.
pub(crate) fn that_taught() -> Pooled {
    let mut kernel = in_the_pool();
    kernel.about.reflections = vec![Reflection {
        insight: "Load each row once, in whole vectors.".into(),
        evidence: "Round 2: 1.73x where round 1 had 1.10x.".into(),
        applies: "Where memory bounds the kernel.".into(),
    }];
    kernel
}

/// A generated operator.
pub(crate) fn operator() -> Operator {
    let table = "BM = { values = [64, 32], constraint = \"BM % MR == 0\" }\nMR = [4, 2]".parse().unwrap_or_default();
    Operator {
        sketch: "extern \"C\" void COMPUTE(float *out);\nextern \"C\" void scale(float *out) {\n    COMPUTE(out + {{BM}});\n}\n"
            .into(),
        tuning: kernelbench::load::parameters(&table).unwrap_or_default(),
        primitives: Primitives::Script("print(\"COMPUTE:\")\nprint(\"    ret\")\n".into()),
    }
}

fn taken(action: &str, came: &str) -> Taken {
    Taken { action: action.into(), came: came.into() }
}

/// A node at which an action is chosen.
pub(crate) fn choosing() -> Choosing {
    Choosing {
        point: "BM=64 MR=4; compute in another order".into(),
        path: Some(vec![taken("first values", "10.0 GFLOPS"), taken("swap compute 0 1", "10.5 GFLOPS")]),
        candidates: vec!["BM-32".into(), "swap load 0 1".into()],
    }
}

/// A passage of a manual.
fn passage() -> Passage {
    Passage { source: "c910.txt, line 1".into(), text: "The L1 data cache has 64KB.".into() }
}

/// A node whose actions are found.
pub(crate) fn offering() -> Offering {
    Offering {
        point: "BM=64 MR=4".into(),
        came: "10.0 GFLOPS".into(),
        tuning: operator().tuning,
        blocks: vec![("load".into(), vec!["vmovups ymm0, [rsi]".into(), "vmovups ymm1, [rsi+32]".into()])],
        swaps: vec!["swap load 0 1".into()],
        history: Some(vec![
            (taken("BM-32", "12.5 GFLOPS"), Some(1.25)),
            (taken("MR-2", "failed: it does not build"), None),
        ]),
        most: 8,
    }
}

/// A call of a transformation on a small context.
pub(crate) fn rewriting() -> Rewriting {
    let source = "// region: macros\n#define STEP {{STEP}}\n// region: device\nstatic void part() {}\n// region: host\n\
                  extern \"C\" void scale() {}\n";
    let table = "STEP = [1, 2]".parse().unwrap_or_default();
    Rewriting {
        context: Candidate::of_parts(kernelbench::region::regions(source).unwrap_or_default()),
        transformation: "Unroll".into(),
        summary: "Unrolls the loop over columns.".into(),
        passes: (1, 2),
        aim: "Give the step a name.".into(),
        region: "macros".into(),
        text: "Define a macro for the step, as {{STEP}}.".into(),
        tuning: kernelbench::load::parameters(&table).unwrap_or_default(),
        retired: vec![],
        say: None,
        last: None,
    }
}

/// A workflow whose next transformation is chosen.
pub(crate) fn proposing() -> Proposing {
    let Rewriting { context, tuning, .. } = rewriting();
    let applied = |step: &str, outcome: &str| PlanLine {
        round: 1,
        step: step.into(),
        candidate: String::new(),
        outcome: outcome.into(),
    };
    Proposing {
        head: "c1".into(),
        context,
        tuning,
        speedup: "1.42x [1.40, 1.44] the reference's speed".into(),
        history: vec![
            applied("Refactor of c0", "0.98x [0.97, 0.99] the reference's speed"),
            applied("Split-K of c1", "failed: it does not build"),
        ],
        open: vec![
            OpenTransformation {
                name: "Unroll".into(),
                summary: "Unrolls the loop over columns.".into(),
                adds: vec!["UNROLL_FACTOR".into()],
                kernels: vec!["matmul".into()],
            },
            OpenTransformation {
                name: "Transpose".into(),
                summary: "Turns a tile.".into(),
                adds: vec![],
                kernels: vec![],
            },
        ],
        may_stop: true,
    }
}

/// A kernel in CUDA whose entry is defined by a binding.
pub(crate) fn bound() -> Task {
    let Source::Context(kernel) = task().source else { return task() };
    let kernel = KernelContext {
        language: Language::Cuda,
        flags: vec!["-std=c++20".into(), "-O3".into()],
        reference: "#include <pack.h>\n\nstruct Scale {\n    static void run(pack::View out, pack::View input, float factor);\n};\n".into(),
        binding: Some("extern \"C\" void scale(float* out, const float* input, int64_t rows, int64_t columns, float factor, \
                       cudaStream_t stream) {\n    Scale::run({out, rows, columns}, {input, rows, columns}, factor);\n}\n".into()),
        include: [
            ("pack.h".into(), "namespace pack { struct View { const void* data; int64_t rows, columns; }; }\n".into()),
            ("pack/inside.h".into(), "// not for others\n".into()),
        ]
        .into(),
        ..kernel
    };
    Task { source: Source::Context(kernel), ..task() }
}

/// A problem in KernelBench's format.
pub(crate) fn problem() -> Task {
    let source = "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self, factor):\n        \
                  super().__init__()\n        self.factor = factor\n\n    def forward(self, x, dim):\n        \
                  return torch.cumsum(self.factor * x, dim)\n\n\ndef get_inputs():\n    \
                  return [torch.rand(16, 4096), 1]\n\n\ndef get_init_inputs():\n    return [2.0]\n";
    let (level, number, precision) = (Some(1), Some(7), Precision::Fp32);
    Task {
        name: "level1-7_Twice".into(),
        summary: "The forward pass of the PyTorch module `Model` of 7 Twice.".into(),
        source: Source::Problem(Problem {
            source: source.into(),
            file: "7_Twice.py".into(),
            level,
            number,
            precision,
            tolerance: None,
            labels: vec![],
            reference: ReferenceMode::default(),
            beyond: Beyond::default(),
            signature: signature(),
        }),
        tolerance: Tolerance { atol: 1e-4, rtol: 1e-4, share: 1.0 },
        ..task()
    }
}

/// A problem whose reference has not been opened.
fn unopened() -> Task {
    let mut task = problem();
    if let Source::Problem(problem) = &mut task.source {
        problem.signature = Signature::default();
    }
    task
}

/// What opening the reference finds out of the problem.
fn signature() -> Signature {
    let tensor = |name: &str| ModuleValue {
        name: name.into(),
        tensor: Some(TensorLayout { dtype: "float32".into(), shape: vec![16, 4096], stride: vec![4096, 1] }),
        value: String::new(),
    };
    let value = |name: &str, value: &str| ModuleValue { name: name.into(), tensor: None, value: value.into() };
    Signature {
        init: vec![value("factor", "2.0")],
        inputs: vec![tensor("x"), value("dim", "1")],
        outputs: vec![tensor("output")],
        flops: None,
        stated: None,
    }
}

fn raised() -> Failure {
    Failure::Raised {
        case: "default".into(),
        stage: "constructor".into(),
        error: "TypeError: ModelNew() takes no arguments".into(),
        traceback: "Traceback (most recent call last):\nTypeError: ModelNew() takes no arguments".into(),
    }
}

/// The values of the blocks that no page includes.
pub(crate) fn blocks() -> [(&'static str, Value); 6] {
    let looking = looking();
    let (lookup, text) = &looking.seen[0];
    [
        ("again", again::values(&Unreadable("it holds no JSON object".into()), "One JSON object.")),
        ("feature/context", crate::context::example()),
        ("learned", learned::shown(&learned::example(false))),
        ("learned", learned::shown(&learned::example(true))),
        (
            "lookups",
            lookup::offered(
                &looking,
                |shelf, _| if shelf == Shelf::ReadHeader { "a product".into() } else { String::new() },
            ),
        ),
        ("looked", lookup::seen(lookup, text, 3)),
    ]
}

/// What a Coder may look up, and one thing that it did.
pub(crate) fn looking() -> Looking {
    let shelves =
        vec![(Shelf::ReadHeader, vec!["wgmma".to_owned()]), (Shelf::QueryReplay, vec!["1".into(), "2".into()])];
    let lookup = Lookup { look_up: Shelf::ReadHeader, name: "wgmma".into() };
    Looking { shelves, most: 4, rounds: 9, seen: vec![(lookup, "# wgmma: a product\nIts fence comes first.".into())] }
}

pub(crate) fn candidate() -> Candidate {
    Candidate::new(CANDIDATE)
}

pub(crate) fn task() -> Task {
    let kernel = KernelContext {
        language: Language::Cpp,
        entry: "scale".into(),
        arguments: arguments(),
        flags: vec!["-O3".into(), "-march=native".into()],
        reference: REFERENCE.into(),
        initial: None,
        tuning: kernelbench::Space::default(),
        returns: kernelbench::Returns::Nothing,
        binding: None,
        include: [].into(),
        operations: None,
        origin: None,
        baselines: Baselines::default(),
        processor: None,
        arch: None,
    };
    Task {
        name: "scale".into(),
        summary: "Multiplies a matrix by a number: out = factor * input, row by row.".into(),
        source: Source::Context(kernel),
        tolerance: Tolerance { atol: 1e-6, rtol: 1e-5, share: 1.0 },
        tolerance_why: String::new(),
        cases: vec![case(16, 4096), case(63, 1003)],
        final_cases: vec![case(7, 1003)],
        sanitizer_cases: vec![],
        valid_args: None,
        timed: TimedCases::All,
    }
}

fn arguments() -> Vec<Argument> {
    let array = |transfer| {
        let fill = if transfer == Transfer::In {
            Fill::Normal { mean: 0.0, std: 1.0, minus_infinity: 0.0 }
        } else {
            Fill::Zeros
        };
        ArgumentKind::Array { size: Size("rows * columns".into()), transfer, fill }
    };
    let argument = |name: &str, dtype, kind| Argument { name: name.into(), dtype, kind };
    vec![
        argument("out", Dtype::F32, array(Transfer::Out)),
        argument("input", Dtype::F32, array(Transfer::In)),
        argument("rows", Dtype::I64, ArgumentKind::Scalar),
        argument("columns", Dtype::I64, ArgumentKind::Scalar),
        argument("factor", Dtype::F32, ArgumentKind::Scalar),
    ]
}

fn case(rows: i64, columns: i64) -> Case {
    let scalars = [
        ("rows".into(), Number::Integer(rows)),
        ("columns".into(), Number::Integer(columns)),
        ("factor".into(), Number::Float(0.5)),
    ];
    Case { name: format!("{rows}x{columns}"), scalars: scalars.into() }
}

pub(crate) fn machine() -> Machine {
    let fact = |name: &str, value: &str| Fact { name: name.into(), value: value.into() };
    let bandwidth = |kib: u64, gb: f64| Bandwidth { working_set_bytes: kib << 10, bytes_per_second: gb * 1e9 };
    Machine {
        kind: MachineKind::Cpu,
        name: "Example CPU @ 2.40GHz".into(),
        arch: Arch::Cpu("x86_64".into()),
        facts: vec![fact("cores", "2"), fact("L1d cache", "32 KiB"), fact("vector extensions", "avx avx2 fma")],
        bandwidths: vec![bandwidth(16, 110.4), bandwidth(65536, 11.9)],
        peak_flops: Some(73.6e9),
    }
}

pub(crate) fn timed() -> Timed {
    let speedup = Speedup { ratio: 1.42, interval: Interval { low: 1.38, high: 1.47 } };
    let case = |name: &str, reference, candidate| CaseTiming {
        case: name.into(),
        reference: Timing::of([reference]),
        candidate: Timing::of([candidate]),
        speedup,
        floor_ns: Some(4_750.0),
        uncounted: 0.0,
    };
    let cases = vec![case("16x4096", 61_250.0, 43_130.0), case("63x1003", 59_800.0, 42_115.0)];
    Timed {
        cases,
        speedup,
        statistic: Statistic::Median,
        labels: vec![],
        widened_by: None,
        object: None,
        against: None,
    }
}

pub(crate) fn profile() -> Profile {
    Profile {
        rung: Rung::Perf,
        case: "16x4096".into(),
        readings: vec![
            Reading::new("instructions", Some(181_403.0), "", "instructions that retired"),
            Reading::new("ipc", Some(1.823_456_7), "", "instructions per cycle"),
            Reading::new("l1d-miss-rate", Some(12.5), "%", "loads that miss the first cache"),
            Reading::new("llc-misses", None, "", "loads that go to memory"),
        ],
        kernels: vec![Kernel {
            name: "scale".into(),
            launches: Some(2),
            share: Some(0.925),
            readings: vec![
                Reading::new("pipe_fp32", None, "", "use of the single-precision pipe"),
                Reading {
                    stands_for: Some("pipe_fp32".into()),
                    ..Reading::new("pipe_fma", Some(41.5), "%", "use of the single-precision pipe")
                },
            ],
        }],
        notes: vec!["llc-misses cannot be counted on this machine".into()],
    }
}

pub(crate) fn mismatch() -> Failure {
    Failure::Mismatch {
        case: "63x1003".into(),
        argument: "out".into(),
        wrong: 5,
        total: 63_189,
        worst_at: 63_184,
        expected: "0.25".into(),
        got: "NaN".into(),
        unwritten: 5,
        nan: 5,
        while_timed: false,
        spread: Box::new(Spread {
            shape: vec![63, 1003],
            ranges: vec![[62, 62], [998, 1002]],
            max_absolute: Some(0.25),
            max_relative: Some(1.0),
        }),
    }
}

pub(crate) fn build() -> Failure {
    Failure::Build { log: "candidate.cpp:4:5: error: 'width' was not declared in this scope".into() }
}

pub(crate) fn one_fix() -> Fix {
    Fix {
        critical_issue: "The loop stops at the last whole vector and leaves the remainder unwritten.".into(),
        why_it_matters: "Shapes whose size is no multiple of the vector width keep garbage in their last elements."
            .into(),
        minimal_fix_hint: "Add a scalar loop from the last whole vector to the end.".into(),
        features: vec![],
    }
}

pub(crate) fn one_optimization() -> Optimization {
    Optimization {
        metrics: vec![],
        features: vec![],
        bottleneck: "Each step depends on one load and one store; the loop's own overhead takes a third of the cycles."
            .into(),
        method: "Unroll the vector loop four times.".into(),
        plan: "Load four vectors, scale them, store all four; finish the rest with single vectors, then single floats."
            .into(),
    }
}

/// A kernel that was certified earlier.
pub(crate) fn in_the_pool() -> Pooled {
    let about = About {
        schema: 1,
        workload: "gemm".into(),
        precision: "bf16".into(),
        task: "matmul".into(),
        definition: Hash::of(b"task"),
        operators: vec!["product".into()],
        rows: vec![1, 5],
        speedup: [3.2, 3.1, 3.3],
        over: "the reference".into(),
        machine: "NVIDIA H200".into(),
        kernel: Hash::of(CANDIDATE.as_bytes()),
        evidence: Hash::of(b"evidence"),
        reflections: vec![],
    };
    Pooled { about, arch: Arch::host(), language: Language::Cpp, source: CANDIDATE.into() }
}

/// The example of a feature, as a page names its parts.
fn guides() -> Vec<Value> {
    let kernel = |kernel: Option<&str>| context! { name => "swizzle", text => "### Traps\n- XOR.", kernel };
    vec![kernel(Some(CANDIDATE)), kernel(None)]
}

/// A feature with companions, and one without.
pub(crate) fn offered() -> Vec<Offered> {
    let offered = |name: &str, coupled: &[&str]| Offered {
        name: name.into(),
        summary: "Tiles in the order that the banks like.".into(),
        why: vec!["many bank conflicts in shared memory (conflicts = 14749700)".into()],
        coupled: coupled.iter().map(|name| (*name).into()).collect(),
    };
    vec![offered("swizzle", &["wgmma", "tma"]), offered("vector", &[])]
}

pub(crate) fn approaches() -> Approaches {
    let items =
        ["One pass over whole vectors.", "Two passes, with blocks that stay in the cache.", "A table of results."];
    Approaches { items: items.map(String::from).into() }
}

pub(crate) fn suggestions() -> Suggestions {
    let items = ["Unroll the vector loop four times.", "Handle the elements behind the last whole vector one by one."];
    Suggestions { items: items.map(String::from).into() }
}

pub(crate) fn history() -> Vec<PlanLine> {
    let line = |round, step: &str, candidate: &str, outcome: &str| PlanLine {
        round,
        step: step.into(),
        candidate: candidate.into(),
        outcome: outcome.into(),
    };
    vec![line(1, "seed", "5d41402a", "failed: wrong results"), line(2, "fix", "7b52009b", "passed, speedup 1.42x")]
}
