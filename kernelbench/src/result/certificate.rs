//! Certificates: what exactly is claimed of the best candidate, and what could not be checked.

use super::{candidate::CandidateId, evaluation::Timed, failure::Failure, label::Label};
use crate::sandbox::layer::Layer;
use serde::{Deserialize, Serialize};

/// How a certification ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The candidate is right and this fast: this is the number to report.
    Certified(Timed),
    /// It passed in the loop and not here.
    Refused(Failure),
}

/// One thing that a certificate looks at. A check that was done and failed makes it `Refused`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "kebab-case")]
pub enum Check {
    /// It was built from its source alone, by the stock toolchain, in an empty folder.
    Rebuilt,
    /// Its outputs were compared with the reference's.
    Outputs {
        /// Shapes.
        shapes: usize,
        /// Those of them that the loop never saw.
        new: usize,
        /// Draws of each.
        draws: u32,
        /// Whether inputs of both signs were tried too.
        signed: bool,
    },
    /// It was called again and again on each shape that is timed, and each time its outputs were compared.
    Endured {
        /// How often in a row, for nothing else, on the shape with the fewest of these; others may have had the device between
        /// two stretches of a second.
        in_a_row: u64,
        /// How often while it was timed, on the shape with the fewest of those.
        while_timed: u64,
    },
    /// Its inputs were looked at, and what lies around its arguments.
    Surroundings,
    /// It was timed beside the reference.
    Timed {
        /// Shapes.
        shapes: usize,
        /// Pairs of requests of each.
        pairs: usize,
        /// Pairs of processes that they are spread over.
        processes: usize,
        /// Stretches of time that those are spread over, with other work between them.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        sittings: usize,
        /// The baseline, where it is one that was beside it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        against: Option<String>,
    },
    /// A baseline stood for the reference on some shapes.
    Oracle {
        /// Which.
        baseline: String,
        /// On which shapes.
        cases: Vec<String>,
        /// On how many others it was seen to agree with the reference.
        agreed: usize,
    },
    /// No use was seen of the libraries that the task forbids.
    Libraries {
        /// Which.
        libraries: Vec<String>,
    },
    /// The clock in its process and the one outside were compared.
    Clocks,
    /// Its time was compared with the roofline.
    Floor {
        /// Whether a bandwidth is known here.
        known: bool,
    },
    /// Whether the GPU was left alone at its full clocks.
    Undisturbed {
        /// Whether it could be asked.
        watched: bool,
        /// What disturbed it.
        disturbed: Vec<String>,
    },
    /// Whether all times stood as they were taken first.
    AtOnce {
        /// Why some were taken again.
        again: Vec<String>,
    },
    /// Whether launches were replayed as recorded.
    Recorded {
        /// The shapes whose launches were not.
        issued: Vec<String>,
    },
    /// One layer of its confinement.
    Confined {
        /// How it came out.
        layer: Layer,
    },
    /// A sanitizer looked at it, or could not.
    Sanitizer {
        /// Which.
        tool: String,
        /// What it looked at, or why it could not.
        outcome: Result<String, String>,
    },
    /// What part of a call's time on the GPU goes to kernels that its source names, or why that is not known.
    OwnKernels {
        /// In percent.
        share: Result<f64, String>,
    },
    /// KernelBench's own evaluation of it, out of a checkout.
    KernelBench {
        /// What names the text of its evaluation and its clock.
        version: String,
        /// The speedup here.
        ours: f64,
        /// What it said, or why there is nothing.
        outcome: Result<OwnEvaluation, String>,
    },
    /// It carries a label.
    Labelled {
        /// Which.
        label: Label,
    },
    /// What cannot be excluded on any machine.
    NotExcluded {
        /// What.
        what: String,
        /// Why not.
        why: String,
    },
}

/// What KernelBench's own evaluation says of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnEvaluation {
    /// Whether it calls it right.
    pub correct: bool,
    /// The mean time of a call by its clock, in milliseconds.
    pub ms: Option<f64>,
    /// That of the reference.
    pub reference_ms: Option<f64>,
    /// What else it said.
    pub said: String,
}

impl OwnEvaluation {
    /// How many times as fast as the reference it is by that clock.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.reference_ms? / self.ms?)
    }

    fn words(&self, version: &str, ours: f64) -> String {
        let by = format!("by eval.py and timing.py {version}");
        match (self.correct, self.ratio(), self.ms, self.reference_ms) {
            (false, ..) => format!("wrong {by}: {}", self.said),
            (true, Some(ratio), Some(ms), Some(reference_ms)) => {
                let apart = (ratio / ours - 1.0) * 100.0;
                format!(
                    "right {by}, {ratio:.2} times as fast ({ms:.3} ms beside {reference_ms:.3}), {apart:+.1} % from ours"
                )
            }
            _ => format!("right {by}, and not timed: {}", self.said),
        }
    }
}

/// Of so many calls, none wrong, a fault is expected in at most one, with 95 % confidence: the rule of three.
const CALLS_OF_A_FAULT: u64 = 3;

/// Records made before there were several sittings say nothing of them.
const fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_one(sittings: &usize) -> bool {
    *sittings == 1
}

/// A row of a certificate: what was looked at, or could not be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// What: "outputs on 3 further shapes, fresh seeds".
    pub what: String,
    /// Whether it was done.
    pub done: bool,
    /// How, or why not.
    pub how: String,
    /// The same as data; none in records made before rows were data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

impl From<Check> for Checked {
    fn from(check: Check) -> Self {
        let (what, done, how) = check.words();
        Self { what, done, how, check: Some(check) }
    }
}

impl Check {
    /// What was looked at, whether it was done, and how or why not.
    fn words(&self) -> (String, bool, String) {
        let row = |what: &str, done: bool, how: &str| (what.to_owned(), done, how.to_owned());
        match self {
            Self::Rebuilt => row(
                "rebuilt from its source alone",
                true,
                "in an empty folder, by the stock toolchain, without a cache",
            ),
            Self::Outputs { shapes, new, draws, signed } => {
                let what = format!("outputs on {shapes} shapes, {new} of them new to it");
                let signed = if *signed { ", and once on inputs of both signs" } else { "" };
                let how = format!(
                    "fresh processes and fresh inputs, {draws} draws each{signed}; every element beside the reference's"
                );
                (what, true, how)
            }
            Self::Endured { in_a_row, while_timed } => {
                let calls = in_a_row + while_timed;
                let missed = match calls / CALLS_OF_A_FAULT {
                    0 | 1 => "now and then".to_owned(),
                    one => format!("in fewer than one call of {one}, by chance and not by its inputs or its process,"),
                };
                let how = format!(
                    "{in_a_row} in a row, the others while it was timed; what goes wrong {missed} may be missed, with 95 % \
                     confidence"
                );
                (format!("right in each of {calls} calls of each timed shape"), *in_a_row > 0, how)
            }
            Self::Surroundings => {
                row("its surroundings", true, "inputs unchanged, nothing written outside an argument")
            }
            Self::Oracle { baseline, cases, agreed } => {
                let how = format!("it agreed with the reference on {agreed} others, built anew and on fresh inputs");
                (format!("{baseline} in the reference's place on {}", cases.join(", ")), true, how)
            }
            Self::Libraries { libraries } => {
                let how = "its includes, its object's symbols and its process's mappings were looked at; a library's code that was \
                           copied into it was not looked for";
                (format!("no use of {}", libraries.join(", ")), true, how.to_owned())
            }
            Self::Timed { shapes, pairs, processes, sittings, against } => {
                let beside = against.as_deref().unwrap_or("the reference");
                let what = format!("times beside {beside}'s, on {shapes} of the task's own shapes");
                let spread = if *sittings > 1 { format!(" in {sittings} sittings") } else { String::new() };
                let how = format!(
                    "{pairs} pairs of requests a shape from {processes} pairs of processes{spread}, in random order, new \
                     inputs each; outputs compared too"
                );
                (what, true, how)
            }
            Self::Clocks => {
                row("two clocks agree", true, "the one in its process, and the one outside, which bounds it")
            }
            Self::Floor { known } => {
                let how = if *known { "the best bandwidth measured here" } else { "no bandwidth was measured here" };
                row("no faster than the machine moves the data", *known, how)
            }
            Self::Undisturbed { watched, disturbed } => {
                let what = "a GPU left alone at its full clocks";
                match (watched, disturbed.as_slice()) {
                    (false, []) => row(what, false, "NVML could not be asked"),
                    (true, []) => row(what, true, "NVML was asked before and after each timing"),
                    (_, disturbed) => row(what, false, &disturbed.join("; ")),
                }
            }
            Self::AtOnce { again } => {
                let what = "no times taken again on suspicion";
                match again.as_slice() {
                    [] => row(what, true, "the clocks agreed at once, and the time was possible"),
                    again => row(what, false, &again.join("; ")),
                }
            }
            Self::Recorded { issued } => {
                let what = "launches back to back, from a graph";
                match issued.as_slice() {
                    [] => row(what, true, "recorded once, and replayed"),
                    issued => row(what, false, &format!("issued by the host on {}", issued.join(", "))),
                }
            }
            Self::Confined { layer } => (format!("confined: {}", layer.name), layer.in_force, layer.why.clone()),
            Self::Sanitizer { tool, outcome } => {
                let (done, how) = told(outcome, Clone::clone);
                row(tool, done, &how)
            }
            Self::OwnKernels { share } => {
                let (done, how) = told(share, |share| {
                    format!(
                        "{share:.0} % to kernels whose names stand in its source, the rest to torch's and libraries', as torch's \
                         profiler saw one call in its process"
                    )
                });
                row("whose kernels its time goes to", done, &how)
            }
            Self::KernelBench { version, ours, outcome } => {
                let (done, how) = told(outcome, |theirs| theirs.words(version, *ours));
                row("KernelBench's own evaluation", done, &how)
            }
            Self::Labelled { label } => row("no label", false, &label.text),
            Self::NotExcluded { what, why } => row(what, false, why),
        }
    }
}

/// Whether something could be looked at, and what came of it, or why not.
fn told<T>(outcome: &Result<T, String>, words: impl FnOnce(&T) -> String) -> (bool, String) {
    outcome.as_ref().map_or_else(|why| (false, why.clone()), |found| (true, words(found)))
}

/// The claim about the best candidate: rebuilt from its source alone, in a fresh process, with fresh seeds and further shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Which candidate.
    pub candidate: CandidateId,
    /// How it ended.
    pub verdict: Verdict,
    /// What was checked, and what could not be.
    pub checked: Vec<Checked>,
    /// The compiler and its flags, as a command line.
    pub build: String,
    /// The machine's name.
    pub machine: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(check: Check) -> bool {
        Checked::from(check).done
    }

    #[test]
    fn a_disturbance_is_said_whether_or_not_the_gpu_could_be_asked() {
        let row = |watched, disturbed: &[&str]| {
            done(Check::Undisturbed { watched, disturbed: disturbed.iter().map(ToString::to_string).collect() })
        };
        assert!(row(true, &[]) && !row(false, &[]) && !row(true, &["heat"]) && !row(false, &["others"]));
        assert!(done(Check::AtOnce { again: vec![] }) && !done(Check::AtOnce { again: vec!["clocks".into()] }));
    }

    #[test]
    fn calls_that_were_compared_say_how_rare_a_fault_may_be() {
        let row = |in_a_row, while_timed| Checked::from(Check::Endured { in_a_row, while_timed });
        let (many, none) = (row(600, 300), row(0, 2));
        assert!(many.done && many.what == "right in each of 900 calls of each timed shape", "{many:?}");
        assert!(many.how.contains("fewer than one call of 300, by chance"), "{many:?}");
        assert!(!none.done && none.how.contains("now and then"), "{none:?}");
    }

    #[test]
    fn what_kernelbench_says_stands_beside_our_speedup() {
        let said =
            |correct, ms| OwnEvaluation { correct, ms, reference_ms: Some(3.0), said: "max_difference: 2".into() };
        let row = |outcome| Checked::from(Check::KernelBench { version: "abcd".into(), ours: 1.6, outcome });
        let right = row(Ok(said(true, Some(2.0))));
        assert!(right.done && right.how.contains("1.50 times") && right.how.ends_with("-6.2 % from ours"), "{right:?}");
        let wrong = row(Ok(said(false, None)));
        assert!(wrong.done && wrong.how == "wrong by eval.py and timing.py abcd: max_difference: 2", "{wrong:?}");
        assert!(!row(Err("no GPU".into())).done);
    }

    #[test]
    fn a_row_of_an_old_record_is_read_and_a_new_one_keeps_its_data() {
        let old: Checked = serde_json::from_str(r#"{"what": "a", "done": true, "how": "b"}"#).unwrap();
        assert!(old.check.is_none() && old.done);
        let new = Checked::from(Check::Outputs { shapes: 7, new: 3, draws: 2, signed: false });
        assert_eq!(serde_json::from_str::<Checked>(&serde_json::to_string(&new).unwrap()).unwrap(), new);
        assert!(new.what.starts_with("outputs on 7 shapes, 3 of them new"));
        let before: Check =
            serde_json::from_str(r#"{"check": "timed", "shapes": 4, "pairs": 100, "processes": 10}"#).unwrap();
        assert_eq!(before, Check::Timed { shapes: 4, pairs: 100, processes: 10, sittings: 1, against: None });
    }
}
