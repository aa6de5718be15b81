//! The numbers that a backend is checked and timed by, each with its unit: one table a backend (docs/METHODOLOGY.md).

use std::time::Duration;

/// How much trouble is taken over a timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// In the loop: pairs may be left out where a request holds many calls or lasts long.
    Loop,
    /// For a certificate: several pairs of processes, and all samples of the plan.
    Certificate,
}

/// Where a reference was seen to differ from itself by more than this part, a timing in the loop is spread over so many pairs of
/// processes at least: one pair would be one draw of what it differs by.
pub(crate) const UNSTEADY: f64 = 0.02;
pub(crate) const PAIRS_OF_UNSTEADY: u32 = 3;

/// Which clock counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Clock {
    /// Ours, outside the process: nothing that is said inside counts.
    Outside,
    /// The one inside, bounded by ours (`overhead`).
    Inside,
}

/// What one backend is checked and timed by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// Draws that each case is checked on: the second lies at the same addresses as the first.
    pub(crate) draws: u32,
    /// Whether a case is tried once on inputs of both signs too, which earns a label, or is a failure where the task
    /// says so.
    pub(crate) signed: bool,
    /// Which clock counts.
    pub(crate) clock: Clock,
    /// What the reference's calls of a request last, in nanoseconds, where memory holds so many.
    pub(crate) request_ns: f64,
    /// The same for a certificate.
    pub(crate) certificate_request_ns: f64,
    /// What the reference's calls of a request may last where a faster candidate's are to last half of the above.
    pub(crate) longest_request_ns: f64,
    /// The most calls of a request.
    pub(crate) most_calls: usize,
    /// Calls of a request that tells how long one call takes, and how many such requests there are.
    pub(crate) calibration: (usize, u32),
    /// Requests that call nothing, spread over a block: they tell what a request costs. 0 where that is not asked.
    pub(crate) empty_requests: u32,
    /// Pairs of processes that a timing is spread over, in the loop and for a certificate: what is settled when a process
    /// starts, such as where its memory lies, is one draw for each.
    pub(crate) processes: (u32, u32),
    /// Whether a certificate's pairs of processes are spread over its other work, a sitting after each part: where others use
    /// the machine, what holds for one stretch of time does not for the next.
    pub(crate) spread: bool,
    /// For how long a certificate calls a candidate again and again before it believes that it is always right.
    pub(crate) endurance: Duration,
    /// The fewest pairs of requests of a case in the loop.
    pub(crate) fewest: u32,
    /// What all pairs of all cases beyond the fewest may take in the loop; as long as the plan's samples take where it is none.
    pub(crate) budget: Option<Duration>,
    /// What two clocks may disagree by beside what reaching the reference's process costs: in nanoseconds, and as a part of
    /// the request.
    pub(crate) disagreement: (f64, f64),
    /// How far above the best bandwidth measured here the physical limit may lie: a time below the roofline over this is a
    /// finding.
    pub(crate) floor_margin: f64,
    /// The fewest pairs of a case where configurations of a search are only ranked, and what more of them may take.
    pub(crate) glance: (usize, Duration),
    /// A configuration of which a call lasts so long is ranked by its first call, in nanoseconds: what is done once is little
    /// beside that. Infinity where code may be compiled by then.
    pub(crate) long_ns: f64,
    /// Configurations of one text that a process is given one after the other to be ranked; 1 where each has one of its own.
    pub(crate) ranked_in_one: u32,
    /// By what part two processes of one text differ beyond what their samples show, at least: every interval of a candidate is
    /// that much wider at both ends (docs/results/aa.md).
    pub(crate) between_processes: f64,
    /// Tasks that are kept open at once, with their reference's process.
    pub(crate) open_tasks: usize,
    /// Candidates' processes that are kept between two steps.
    pub(crate) kept_candidates: usize,
}

/// How many times as long as its reference a candidate may take, beside the slack of the settings.
pub(crate) const PATIENCE: u32 = 20;
/// How often a timing is taken that was disturbed, or that no honest candidate would explain.
pub(crate) const TRIES: usize = 3;
