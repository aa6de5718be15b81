//! Is an extract still the framework's operator: the same bits, in the same time?

use crate::{
    extract::Order,
    operator::{Argument, Operator, Precision},
    render, speedups,
};
use metrics::Speedup;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// The script that compares, in the Python that has the framework.
pub const SCRIPT: &str = include_str!("../python/gate.py");
/// How many shapes are drawn beside those of the task.
const DRAWN: u32 = 6;
/// By which share of its time an extract may differ from the framework's operator.
pub const SHARE: f64 = 0.03;

/// What the script found.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// Why nothing could be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The shapes.
    #[serde(default)]
    pub cases: Vec<Case>,
    /// The device, versions, the seed and what else the script says.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

/// One shape.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// How many bytes differ, by argument.
    #[serde(default)]
    pub differ: serde_json::Map<String, Value>,
    /// Inputs that somebody changed.
    #[serde(default)]
    pub changed: Vec<String>,
    /// Outputs that nobody wrote.
    #[serde(default)]
    pub unwritten: Vec<String>,
    /// The times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// What broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The sizes, and whether they were drawn.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

/// How long both took, a call.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(try_from = "Told")]
pub struct Time {
    /// The framework's operator, in microseconds.
    pub framework_us: f64,
    /// The extract, in microseconds.
    pub extract_us: f64,
    /// The extract's over the framework's, of their medians.
    pub ratio: f64,
    /// Its interval of 95 %, from here.
    pub low: f64,
    /// To here.
    pub high: f64,
    /// How it was measured, with the samples.
    #[serde(flatten)]
    pub more: serde_json::Map<String, Value>,
}

/// A time as it is written down, or as the script tells it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    /// With what its samples come to.
    Reckoned {
        framework_us: f64,
        extract_us: f64,
        ratio: f64,
        low: f64,
        high: f64,
        #[serde(flatten)]
        more: serde_json::Map<String, Value>,
    },
    /// The samples alone, in microseconds: those of one place were taken next to each other.
    Samples {
        samples_us: Samples,
        #[serde(flatten)]
        more: serde_json::Map<String, Value>,
    },
}

#[derive(Deserialize, Serialize)]
struct Samples {
    framework: Vec<f64>,
    extract: Vec<f64>,
}

impl TryFrom<Told> for Time {
    type Error = &'static str;

    fn try_from(told: Told) -> Result<Self, &'static str> {
        match told {
            Told::Reckoned { framework_us, extract_us, ratio, low, high, more } => {
                Ok(Self { framework_us, extract_us, ratio, low, high, more })
            }
            Told::Samples { samples_us, mut more } => {
                let [framework, extract] =
                    [&samples_us.framework, &samples_us.extract].map(|us| speedups::timing(us.iter().copied()));
                let speedup = Speedup::over(&[(&extract, &framework)], speedups::STATISTIC)
                    .ok_or("a shape was timed without a sample")?;
                more.insert("samples_us".into(), json!(samples_us));
                let [framework_us, extract_us] =
                    [framework, extract].map(|timing| timing.typical_ns(speedups::STATISTIC) / 1e3);
                let (ratio, interval) = (speedup.ratio, speedup.interval);
                Ok(Self { framework_us, extract_us, ratio, low: interval.low, high: interval.high, more })
            }
        }
    }
}

impl Report {
    /// Why the extract is refused, in a sentence; nothing where it passed.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(error.clone());
        }
        if self.cases.is_empty() {
            return Some("no shape was compared".into());
        }
        self.cases.iter().find_map(Case::refusal).or_else(|| {
            let mean = self.mean()?;
            let far = (mean - 1.0).abs() > SHARE;
            far.then(|| format!("over all shapes it takes {mean:.3} of the framework's time, and 3 % are allowed"))
        })
    }

    /// The geometric mean of the ratios.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let logarithms: Vec<f64> = self.cases.iter().filter_map(|case| Some(case.time.as_ref()?.ratio.ln())).collect();
        (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
    }
}

impl Case {
    /// A time counts as other where its whole interval lies outside of what is allowed.
    fn refusal(&self) -> Option<String> {
        let shape = &self.name;
        if let Some(error) = &self.error {
            return Some(format!("on {shape} it broke: {error}"));
        }
        if let Some((name, count)) = self.differ.iter().next() {
            return Some(format!("on {shape} {count} bytes of {name} differ from the framework's"));
        }
        if let Some(changed) = self.changed.first() {
            return Some(format!("on {shape} the input {changed} was changed"));
        }
        if let Some(unwritten) = self.unwritten.first() {
            return Some(format!("on {shape} nobody wrote {unwritten}, so nothing was compared"));
        }
        let Some(time) = &self.time else { return Some(format!("on {shape} it was not timed")) };
        let other = time.low > 1.0 + SHARE || time.high < 1.0 - SHARE;
        other.then(|| {
            format!(
                "on {shape} it takes {:.3} of the framework's time (95 %: {:.3} to {:.3}), and 3 % are allowed",
                time.ratio, time.low, time.high
            )
        })
    }
}

/// What the script is to compare.
#[must_use]
pub fn specification(operator: &Operator, precision: Precision, library: &Path) -> Value {
    let argument = |one: &Argument| {
        let mut value = json!(one);
        value["dtype"] = one.dtype(precision).into();
        value
    };
    let case = |one| json!({"name": render::case_name(operator, one), "scalars": one});
    json!({
        "library": library,
        "entry": operator.entry(),
        "arguments": operator.argument.iter().map(argument).collect::<Vec<_>>(),
        "between": operator.between.iter().map(argument).collect::<Vec<_>>(),
        "call": operator.call,
        "cases": operator.case.iter().map(case).collect::<Vec<_>>(),
        "draw": operator.draw,
        "constraints": operator.constraints,
        "drawn": DRAWN,
    })
}

/// Compares a built extract with the framework's operator, on this machine's GPU.
///
/// # Errors
/// Where the script cannot be run, or says nothing.
pub fn run(order: &Order<'_>, library: &Path, folder: &Path) -> Result<Report, String> {
    ask(order.python, &specification(order.operator, order.precision, library), folder, &[])
}

fn ask(python: &str, specification: &Value, folder: &Path, flags: &[&str]) -> Result<Report, String> {
    let texts = [("gate-spec.json", specification.to_string()), ("gate.py", SCRIPT.to_owned())];
    for (name, text) in &texts {
        fs::write(folder.join(name), text).map_err(|e| format!("cannot write {name} in {}: {e}", folder.display()))?;
    }
    let told = Command::new(python)
        .arg(folder.join("gate.py"))
        .arg(folder.join("gate-spec.json"))
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{python} cannot be started: {e}"))?;
    for (name, _) in &texts {
        let _ = fs::remove_file(folder.join(name));
    }
    let said = String::from_utf8_lossy(&told.stdout);
    let last = said.lines().rfind(|line| line.starts_with('{'));
    last.and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&told.stderr);
        let tail: Vec<&str> = errors.lines().rev().take(12).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        format!("the comparison with the framework ended with {} and said nothing:\n{tail}", told.status)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(case: &Value) -> Report {
        serde_json::from_value(json!({"device": "x", "cases": [case]})).expect("a report")
    }

    fn timed(ratio: f64, low: f64, high: f64) -> Value {
        json!({"name": "1x8", "time": {"framework_us": 1.0, "extract_us": ratio, "ratio": ratio, "low": low, "high": high}})
    }

    #[test]
    fn only_the_same_bits_in_the_same_time_pass() {
        assert_eq!(report(&timed(1.01, 0.99, 1.02)).refusal(), None);
        assert!(report(&timed(1.2, 1.1, 1.3)).refusal().is_some_and(|why| why.contains("1.200 of the framework's")));
        assert!(report(&timed(1.04, 1.02, 1.05)).refusal().is_some_and(|why| why.contains("over all shapes")));
        let mut other = timed(1.0, 1.0, 1.0);
        other["differ"] = json!({"out": 3});
        assert!(report(&other).refusal().is_some_and(|why| why.contains("3 bytes of out")));
        let mut changed = timed(1.0, 1.0, 1.0);
        changed["changed"] = json!(["input by the extract"]);
        assert!(report(&changed).refusal().is_some());
        assert!(report(&json!({"name": "1x8"})).refusal().is_some_and(|why| why.contains("not timed")));
    }

    #[test]
    fn samples_come_to_a_ratio_with_its_interval_and_are_kept() {
        let near = |around: f64| (0..41).map(|at| around + 0.01 * f64::from(at % 5)).collect::<Vec<_>>();
        let slower = json!({"name": "1x8", "time": {"samples_us": {"framework": near(2.0), "extract": near(3.0)}, "calls": 100}});
        let told = report(&slower);
        let time = told.cases[0].time.as_ref().expect("a time");
        assert!((time.framework_us - 2.02).abs() < 1e-9 && (time.extract_us - 3.02).abs() < 1e-9, "{time:?}");
        assert!(time.low <= time.ratio && time.ratio <= time.high && (time.ratio - 1.5).abs() < 0.02, "{time:?}");
        assert!(told.refusal().is_some_and(|why| why.contains("of the framework's time")));
        // What is written down is read again as it is.
        let written = serde_json::to_value(&told).expect("a report");
        assert_eq!(written["cases"][0]["time"]["samples_us"]["extract"][1], 3.01);
        let again: Report = serde_json::from_value(written.clone()).expect("a report");
        assert_eq!(serde_json::to_value(&again).expect("a report"), written);
        let none = json!({"cases": [{"name": "1", "time": {"samples_us": {"framework": [], "extract": []}}}]});
        assert!(serde_json::from_value::<Report>(none).is_err());
    }

    /// Functions of a framework, in a module that lies beside the script.
    const FRAMEWORK: &str = "def first_half(input, out):\n    out.copy_(input[:, :out.shape[1]])\n\n\n\
                             def clears(input, out):\n    first_half(input, out)\n    input[0, 0] = 0\n\n\n\
                             def copies(middle, out):\n    out.copy_(middle)\n\n\n\
                             def nothing(input, out):\n    pass\n\n\n\
                             def breaks(input, out):\n    raise ValueError('no')\n";

    const COPY: &str =
        "for (int64_t row = 0; row < tokens; row++) memcpy(out + row * hidden, input + row * 2 * hidden, hidden * 2);";

    /// An extract that does this.
    fn extract(folder: &Path, body: &str) -> std::path::PathBuf {
        let text = format!(
            "#include <cstdint>\n#include <cstring>\nextern \"C\" void run_silu_and_mul(uint16_t *out, uint16_t *input, int64_t tokens, int64_t hidden, void *) {{\n{body}\n}}\n"
        );
        let (source, library) = (folder.join("extract.cpp"), folder.join("extract.so"));
        fs::write(&source, text).expect("a source");
        let built = Command::new("g++").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.expect("g++").success());
        library
    }

    /// What the comparison says on small shapes, without a GPU.
    fn rehearsed(function: &str, body: &str) -> Report {
        rehearsed_with(body, |asked| asked["call"]["function"] = function.into())
    }

    /// The same of a specification that is changed.
    fn rehearsed_with(body: &str, change: impl Fn(&mut Value)) -> Report {
        let python = env!("PYTHON_WITH_TORCH");
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("framework_of_ours.py"), FRAMEWORK).expect("a module");
        let operator = crate::operator::named("silu_and_mul").expect("an operator");
        let library = extract(folder.path(), body);
        let mut asked = specification(&operator, Precision::Bf16, &library);
        asked["call"]["modules"] = json!(["framework_of_ours"]);
        asked["cases"] = json!([{"name": "3x16", "scalars": {"tokens": 3, "hidden": 16}}]);
        asked["draw"] = json!({"tokens": [2, 21, 3], "hidden": [8, 64, 4]});
        change(&mut asked);
        ask(python, &asked, folder.path(), &["--rehearse"]).expect("a report")
    }

    #[test]
    #[cfg_attr(not(has_torch), ignore = "needs torch")]
    fn the_comparison_sees_on_a_cpu_what_it_must_see_on_a_gpu() {
        let and = |more: &str| format!("{COPY} {more}");
        for (function, body, says) in [
            // Without a GPU nothing is timed, so what is the same does not pass either.
            ("first_half", and(""), "on 3x16 it was not timed"),
            (
                "first_half",
                and("if (tokens == 3 && hidden == 16) out[17] ^= 1;"),
                "on 3x16 1 bytes of out differ from the framework's",
            ),
            ("first_half", and("if (tokens == 3 && hidden == 16) input[95] ^= 1;"), "on 3x16 1 bytes of input differ"),
            ("clears", and("input[0] = 0;"), "on 3x16 the input input by the framework was changed"),
            ("nothing", String::new(), "on 3x16 nobody wrote out"),
            ("breaks", and(""), "on 3x16 it broke: ValueError: no"),
            ("absent", and(""), "the framework cannot be called here: framework_of_ours: AttributeError"),
        ] {
            let report = rehearsed(function, &body);
            assert!(report.refusal().is_some_and(|why| why.contains(says)), "{says}: {report:?}");
        }
    }

    #[test]
    #[cfg_attr(not(has_torch), ignore = "needs torch")]
    fn a_chains_calls_hand_over_an_array_that_the_extract_does_not_have() {
        let chain = |asked: &mut Value| {
            let (here, middle) = (json!(["framework_of_ours"]), json!(["tokens", "hidden"]));
            let second = json!({"modules": here, "function": "copies", "positional": ["middle", "out"]});
            asked["call"] = json!({"modules": here, "function": "first_half", "positional": ["input", "middle"]});
            asked["call"]["then"] = json!([second]);
            asked["between"] = json!([{"name": "middle", "dtype": "bf16", "shape": middle}]);
        };
        let refusal = |body: &str| rehearsed_with(body, chain).refusal().unwrap_or_default();
        assert!(refusal(COPY).contains("was not timed"), "{}", refusal(COPY));
        let wrong = refusal(&format!("{COPY} out[0] ^= 1;"));
        assert!(wrong.contains("bytes of out differ from the framework's"), "{wrong}");
    }

    #[test]
    #[cfg_attr(not(has_torch), ignore = "needs torch")]
    fn what_a_chains_calls_hand_over_is_one_array_for_all_buffers() {
        let script = r#"
import sys, torch
names = {}
exec(open(sys.argv[1]).read().rsplit("main()", 1)[0], names)
array = lambda name: {"name": name, "dtype": "bf16", "shape": ["n"]}
spec = {"arguments": [array("input")], "between": [array("middle")]}
sets = names["buffers"](torch, spec, {"scalars": {"n": 4}}, torch.Generator(), 3)
for name in "input", "middle":
    print(len({one[name].data_ptr() for one in sets}))
"#;
        let gate = concat!(env!("CARGO_MANIFEST_DIR"), "/python/gate.py");
        let told = Command::new(env!("PYTHON_WITH_TORCH")).args(["-c", script, gate]).output().expect("Python");
        let said = String::from_utf8_lossy(&told.stderr);
        assert_eq!(String::from_utf8_lossy(&told.stdout), "3\n1\n", "{said}");
    }

    #[test]
    #[cfg_attr(not(has_torch), ignore = "needs torch")]
    fn shapes_are_drawn_within_their_ranges_and_the_least_is_among_them() {
        let report = rehearsed("first_half", COPY);
        let scalar = |case: &Case, name: &str| case.more["scalars"][name].as_i64().unwrap_or_default();
        let drawn: Vec<&Case> = report.cases.iter().filter(|case| case.more["drawn"] == true).collect();
        assert_eq!((report.cases.len(), drawn.len()), (1 + DRAWN as usize, DRAWN as usize));
        assert_eq!((scalar(drawn[0], "tokens"), scalar(drawn[0], "hidden")), (2, 8));
        for case in drawn {
            let (tokens, hidden) = (scalar(case, "tokens"), scalar(case, "hidden"));
            assert!(tokens == 2 || (3..=21).contains(&tokens) && tokens % 3 == 0, "{case:?}");
            // That it is a multiple of 8 is a constraint of the operator's.
            assert!((8..=64).contains(&hidden) && hidden % 8 == 0, "{case:?}");
        }
    }
}
