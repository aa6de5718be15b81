//! What was learned of candidates, whether or not their processes are still there.

use crate::{
    measure::{floor::Floors, pairs::Block, reading::Reading},
    result::{
        evaluation::CaseTiming,
        label::{Kind, Label},
    },
    task::Case,
};
use metrics::Statistic;
use serde::Serialize;

/// How a case was timed last, and by which statistic.
pub(crate) type LastTiming = (CaseTiming, Statistic);

/// How the times of a candidate came about.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Remarks {
    /// Whether the GPU was asked, before and after, how it is doing.
    pub watched: bool,
    /// What disturbed the machine meanwhile, in words.
    pub disturbed: Vec<String>,
    /// Why something was timed again.
    pub again: Vec<String>,
    /// Cases whose launches were timed as the host issues them, for they cannot be recorded.
    pub issued: Vec<String>,
    /// Every block of pairs by both clocks, by case.
    pub blocks: Vec<Clocks>,
}

/// One block of pairs, as two clocks saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clocks {
    /// The case.
    pub case: String,
    /// Calls in a request.
    pub calls: usize,
    /// What a request costs that calls nothing, in nanoseconds.
    pub empty_ns: Option<f64>,
    /// Requests that could not count, because outputs lay where none had lain.
    pub lost: u32,
    /// Every pair of requests, the reference's first.
    pub readings: Vec<[Reading; 2]>,
}

impl Remarks {
    /// Takes in what was read.
    pub(crate) fn take(&mut self, read: &[(&Case, Floors, Vec<Block>)], disturbed: Vec<String>, watched: bool) {
        (self.disturbed, self.watched) = (disturbed, watched);
        for (case, _, blocks) in read {
            if blocks.iter().any(|block| !block.recorded) {
                self.issued.push(case.name.clone());
            }
            self.blocks.extend(blocks.iter().map(|block| Clocks {
                case: case.name.clone(),
                calls: block.calls,
                empty_ns: block.empty_ns,
                lost: block.lost,
                readings: block.pairs.clone(),
            }));
        }
    }

    /// What a reader of the times is to know.
    pub(crate) fn labels(&self) -> Vec<Label> {
        let of = |kind: Kind| move |text: &String| Label::new(kind, text.clone());
        let issued = |case: &String| {
            let text = format!("case {case}: timed as the host issues the launches, for they cannot be recorded");
            Label::new(Kind::NotRecorded, text)
        };
        let disturbed = self.disturbed.iter().map(of(Kind::Disturbed));
        disturbed.chain(self.again.iter().map(of(Kind::TimedAgain))).chain(self.issued.iter().map(issued)).collect()
    }
}

/// What was learned of one candidate.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Whether only the stock toolchain's build of it is right.
    pub(crate) needs_stock: bool,
    /// Of its build and its check.
    pub(crate) labels: Vec<Label>,
    /// Of its machine code.
    pub(crate) of_code: Vec<Label>,
    /// Of its times.
    pub(crate) remarks: Option<Remarks>,
    /// Its times, case by case.
    pub(crate) timings: Vec<LastTiming>,
}

impl Notes {
    /// All that is worth a label.
    pub(crate) fn all_labels(&self) -> Vec<Label> {
        self.labels.iter().chain(&self.of_code).cloned().chain(self.remarks.iter().flat_map(Remarks::labels)).collect()
    }
}
