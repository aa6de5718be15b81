//! A made-up run of six rounds for tests to render: every kind of round, and every field with something in it.

use agents::{
    event::{End, Event, FORMAT, Line, Step},
    llm::{CallId, Purpose, Role, Usage},
    policy::Policy,
};
use kernelbench::{
    Baseline, Baselines, Case, CaseTiming, Certificate, CertificateVerdict, Checked, Evaluation, Failure, Hash,
    KernelContext, Label, LabelKind, Language, Provenance, Returns, Source, Space, Suite, Task, Timed, TimedCases,
    Tolerance,
};
use metrics::{
    Bandwidth, Fact, Interval, Kernel, Machine, MachineKind, Profile, Reading, Rung, Speedup, Statistic, Timing,
};
use prompts::{Fix, Optimization, Verdict};
use std::collections::{BTreeMap, HashMap};

/// Events with their times, and the texts that they name.
#[derive(Default)]
pub(crate) struct Sample {
    pub(crate) lines: Vec<Line>,
    pub(crate) blobs: HashMap<Hash, String>,
    /// Put into every text field, to see what becomes of it.
    taint: &'static str,
    clock: i64,
}

/// A run that ends certified.
pub(crate) fn certified() -> Sample {
    Sample::default().opened().rounds().ended()
}

/// The same with a certificate on other shapes than those of the rounds.
pub(crate) fn certified_elsewhere() -> Sample {
    let mut sample = certified();
    for line in &mut sample.lines {
        if let Event::Certified { certificate, .. } = &mut line.event
            && let CertificateVerdict::Certified(timed) = &mut certificate.verdict
        {
            timed.cases.iter_mut().for_each(|case| case.case.insert_str(0, "final-"));
        }
    }
    sample
}

/// The same with a certificate that says that it is wrong on inputs that the task does not draw.
pub(crate) fn certified_as_drawn() -> Sample {
    let mut sample = certified();
    for line in &mut sample.lines {
        if let Event::Certified { certificate, .. } = &mut line.event
            && let CertificateVerdict::Certified(timed) = &mut certificate.verdict
        {
            timed.labels.push(Label::new(LabelKind::BeyondDrawn, "beyond what the task draws: 3 of 9 are wrong"));
        }
    }
    sample
}

/// The same on a machine that is none.
pub(crate) fn simulated() -> Sample {
    let mut sample = certified();
    if let Some(Event::Opened { machine, .. }) = sample.lines.first_mut().map(|line| &mut line.event) {
        machine.kind = MachineKind::Simulated;
    }
    sample
}

/// The same with this in every field that comes from outside.
pub(crate) fn tainted(taint: &'static str) -> Sample {
    Sample { taint, ..Sample::default() }.opened().rounds().ended()
}

/// A run in which nothing was right.
pub(crate) fn hopeless() -> Sample {
    Sample::default().opened().failing_round(1, &Step::Seed)
}

/// A run that got through its rounds and no further.
pub(crate) fn unfinished() -> Sample {
    Sample::default().opened().rounds()
}

impl Sample {
    fn opened(mut self) -> Self {
        let task = self.keep(&serde_json::to_string(&self.task()).unwrap());
        let policy = self.keep(Policy::embedded("cudaforge").unwrap());
        let (name, model) = (self.dirty("silu_and_mul"), self.dirty("replay of recorded (answered by some-model)"));
        self.note(0, Event::Opened { format: FORMAT, task, name, policy, model, machine: self.machine() });
        let cases = vec![self.case("prefill"), self.case("decode")];
        let timed = cases.iter().map(|case| case.name.clone()).collect();
        let notes = vec![self.dirty("left out 1 proposed shape: 3.1 GiB is more than fits")];
        self.note(30, Event::SuiteFrozen { suite: Suite { provenance: Provenance::Task, cases, timed }, notes });
        let timings = vec![("prefill".into(), samples(1_900_000.0, 1)), ("decode".into(), samples(240_000.0, 2))];
        self.note(5_200, Event::Prepared { baseline: Baseline::new(timings, self.dirty("c++ -O3 -march=native")) });
        self
    }

    fn rounds(self) -> Self {
        let (first, second, third) = (source(1), source(2), source(3));
        let of = |source: &str| Hash::of(source.as_bytes());
        let dirty = |sample: &Self, text: &str| of(&sample.dirty(text));
        let (first, second, third) = (dirty(&self, &first), dirty(&self, &second), dirty(&self, &third));
        self.passing_round(1, &Step::Seed, 1.42)
            .passing_round(2, &Step::Optimize { base: first }, 2.31)
            .failing_round(3, &Step::Optimize { base: second })
            .passing_round(4, &Step::Fix { base: third.clone() }, 3.18)
            .unreadable_round(5, &Step::Optimize { base: third.clone() })
            .passing_round(6, &Step::Optimize { base: third }, 0.97)
    }

    fn ended(mut self) -> Self {
        let check =
            |what: &str, done, how: &str| Checked { what: self.dirty(what), done, how: self.dirty(how), check: None };
        let certificate = Certificate {
            candidate: Hash::of(self.dirty(&source(4)).as_bytes()),
            verdict: CertificateVerdict::Certified(self.timed(3.11, 90)),
            checked: vec![
                check("rebuilt from its source alone", true, "c++ 12.2.0, empty build folder"),
                check("outputs on 3 further shapes, fresh seeds", true, "every element compared"),
                check("address sanitizer", true, "no finding on 3 shapes"),
                check("hardware counters agree with the clock", false, "perf is not permitted on this machine"),
            ],
            build: self.dirty("c++ -std=c++17 -O3 -march=native -shared -fPIC"),
            machine: self.dirty("A CPU of no make"),
        };
        self.note(14_000, Event::Certified { certificate, evidence: None });
        self.note(1, Event::Ended { end: End::OutOfRounds });
        self
    }

    fn passing_round(mut self, round: u32, step: &Step, ratio: f64) -> Self {
        self.begin(round, step);
        let candidate = self.write(round);
        let evaluation = Evaluation::Passed(self.timed(ratio, u64::from(round) * 10));
        self.note(6_800, Event::Evaluated { candidate, evaluation });
        self
    }

    fn failing_round(mut self, round: u32, step: &Step) -> Self {
        self.begin(round, step);
        let candidate = self.write(round);
        let log = self.dirty("candidate.cpp:7:3: error: 'expf8' was not declared in this scope\n    7 |   expf8(x);\n");
        self.note(900, Event::Evaluated { candidate, evaluation: Evaluation::Failed(Failure::Build { log }) });
        self
    }

    fn unreadable_round(mut self, round: u32, step: &Step) -> Self {
        self.begin(round, step);
        let why = self.dirty("no code block in the reply");
        let call = self.call(round, Role::Coder, Purpose::Optimize);
        self.note(0, Event::Misread { call, why: why.clone() });
        self.note(2, Event::Unreadable { role: Role::Coder, why });
        self
    }

    /// The round's beginning: the Profiler's look and the Judge's verdict where the step has them.
    fn begin(&mut self, round: u32, step: &Step) {
        self.note(3, Event::Began { round, step: step.clone() });
        let Some(base) = step.base().cloned() else { return };
        if matches!(step, Step::Optimize { .. }) {
            self.note(1_500, Event::Profiled { candidate: base.clone(), profile: Ok(self.profile()) });
        }
        self.ask(
            round,
            Role::Judge,
            if matches!(step, Step::Fix { .. }) { Purpose::Diagnose } else { Purpose::Advise },
        );
        self.note(1, Event::Judged { candidate: base, verdict: self.verdict(step) });
    }

    fn write(&mut self, round: u32) -> Hash {
        self.ask(round, Role::Coder, Purpose::Optimize);
        let candidate = self.keep(&self.dirty(&source(round)));
        self.note(1, Event::Wrote { candidate: candidate.clone() });
        candidate
    }

    fn ask(&mut self, round: u32, role: Role, purpose: Purpose) {
        let call = self.call(round, role, purpose);
        let (prompt, reply) = (self.keep("a prompt"), self.keep("a reply"));
        self.note(2, Event::Asked { call: call.clone() });
        let usage = Usage { input_tokens: 2_314, cached_tokens: 1_024, output_tokens: 1_871, reasoning_tokens: 903 };
        let model = self.dirty("some-model-2026");
        let usd = (role == Role::Judge).then_some(0.0123);
        self.note(
            9_400,
            Event::Answered { call, prompt, reply, model, usage: Some(usage), usd, latency_ms: 9_400, requests: 1 },
        );
    }

    fn note(&mut self, after_ms: i64, event: Event) {
        self.clock += after_ms;
        self.lines.push(Line { seq: self.lines.len() as u64, at_ms: 1_790_000_000_000 + self.clock, event });
    }

    fn keep(&mut self, text: &str) -> Hash {
        let hash = Hash::of(text.as_bytes());
        self.blobs.insert(hash.clone(), text.to_owned());
        hash
    }

    fn dirty(&self, text: &str) -> String {
        format!("{text}{}", self.taint)
    }

    fn call(&self, round: u32, role: Role, purpose: Purpose) -> CallId {
        CallId { task: self.dirty("silu_and_mul"), round, role, purpose, part: String::new(), attempt: 1 }
    }

    fn case(&self, name: &str) -> Case {
        Case { name: self.dirty(name), scalars: BTreeMap::new() }
    }

    fn task(&self) -> Task {
        let context = KernelContext {
            language: Language::Cpp,
            entry: "silu_and_mul".into(),
            arguments: vec![],
            flags: vec!["-O3".into()],
            reference: self.dirty(&source(0)),
            initial: None,
            tuning: Space::default(),
            returns: Returns::Nothing,
            binding: None,
            include: BTreeMap::new(),
            operations: None,
            origin: None,
            baselines: Baselines::default(),
            processor: None,
            arch: None,
        };
        Task {
            name: self.dirty("silu_and_mul"),
            summary: self.dirty("SiLU of the first half of each row times the second half."),
            source: Source::Context(context),
            tolerance: Tolerance { atol: 1e-5, rtol: 1e-5, share: 1.0 },
            tolerance_why: String::new(),
            cases: vec![self.case("prefill"), self.case("decode")],
            final_cases: vec![],
            sanitizer_cases: vec![],
            valid_args: None,
            timed: TimedCases::All,
        }
    }

    fn machine(&self) -> Machine {
        let fact = |name: &str, value: &str| Fact { name: self.dirty(name), value: self.dirty(value) };
        Machine {
            kind: MachineKind::Cpu,
            name: self.dirty("A CPU of no make"),
            arch: metrics::Arch::Cpu("x86_64".into()),
            facts: vec![fact("cores", "2"), fact("vector extensions", "AVX2, FMA"), fact("L2 cache", "1 MiB")],
            bandwidths: vec![Bandwidth { working_set_bytes: 1 << 20, bytes_per_second: 61e9 }],
            peak_flops: Some(9.6e10),
        }
    }

    fn profile(&self) -> Profile {
        let reading = |name: &str, value, unit: &str, meaning: &str| {
            Reading::new(&self.dirty(name), value, &self.dirty(unit), &self.dirty(meaning))
        };
        Profile {
            rung: Rung::Cachegrind,
            case: self.dirty("prefill"),
            readings: vec![
                reading("Ir", Some(184_203_112.0), "", "instructions executed"),
                reading("D1mr", Some(0.0312), "%", "reads that missed the first-level cache"),
                reading("bandwidth", Some(14.27), "GB/s", "bytes moved over time"),
                reading("branch-misses", None, "", "not counted at this rung"),
            ],
            kernels: vec![Kernel {
                name: self.dirty("softmax_kernel"),
                launches: Some(2),
                share: Some(0.93),
                readings: vec![
                    reading("stalls", None, "", "warps that wait"),
                    Reading { stands_for: Some(self.dirty("stalls")), ..reading("waits", Some(41.5), "%", "warps") },
                ],
            }],
            notes: vec![self.dirty("perf: not permitted (perf_event_paranoid is 3)")],
        }
    }

    fn verdict(&self, step: &Step) -> Verdict {
        match step {
            Step::Fix { .. } => Verdict::Fix(Fix {
                critical_issue: self.dirty("expf8 is not a function of this compiler."),
                why_it_matters: self.dirty("The candidate does not build, so nothing else can be judged."),
                minimal_fix_hint: self.dirty("Write the exponential as a polynomial over a vector type."),
                features: vec![],
            }),
            _ => Verdict::Optimization(Optimization {
                metrics: vec![self.dirty("ipc"), "l1d-miss-rate".into(), "branch-misses".into()],
                features: vec![self.dirty("wgmma")],
                bottleneck: self.dirty("The scalar exponential dominates: 61 % of the instructions."),
                method: self.dirty("Evaluate eight exponentials at once with a polynomial."),
                plan: self
                    .dirty("Range-reduce by ln 2, degree-6 polynomial, scale by exponent bits; keep the tail scalar."),
            }),
        }
    }

    fn timed(&self, ratio: f64, seed: u64) -> Timed {
        let speedup = Speedup { ratio, interval: Interval { low: ratio * 0.97, high: ratio * 1.02 } };
        let case = |name: &str, ns: f64, seed| {
            let (reference, candidate) = (samples(ns, seed), samples(ns / ratio, seed));
            CaseTiming {
                case: self.dirty(name),
                reference,
                candidate,
                speedup,
                floor_ns: Some(ns / 6.0),
                uncounted: 0.0,
            }
        };
        let cases = vec![case("prefill", 1_900_000.0, seed), case("decode", 240_000.0, seed + 2)];
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
}

/// Skewed samples around a time, always the same for the same seed, with one far out.
fn samples(around_ns: f64, seed: u64) -> Timing {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    Timing::of((0..100).map(|n| around_ns * (1.0 + 0.12 * random().powi(3) + if n == 40 { 0.9 } else { 0.0 })))
}

/// The source of one round's candidate; round 0 is the reference.
fn source(round: u32) -> String {
    let unroll = "        acc[round % 8] = silu(x[i]) * y[i];\n".repeat(round as usize);
    format!(
        "#include <cmath>\n#include <cstdint>\n\nstatic inline float silu(float x) {{\n    return x / (1.0f + std::exp(-x));\n}}\n\n\
         extern \"C\" void silu_and_mul(const float* in, float* out, int64_t rows, int64_t d) {{\n    \
         for (int64_t r = 0; r < rows; ++r) {{\n{unroll}        for (int64_t i = 0; i < d; ++i)\n            \
         out[r * d + i] = silu(in[2 * r * d + i]) * in[2 * r * d + d + i];\n    }}\n}}\n"
    )
}
