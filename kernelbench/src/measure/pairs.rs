//! Pairs of requests: both sides on the same fresh contents, in random order, outputs compared.

use super::{
    calibration,
    numbers::{Clock, Effort, Numbers, PATIENCE},
    reading::Reading,
};
use crate::{
    engine::{
        backend::{Inputs, Look, Looked, Pair, Side},
        check::REFERENCE_PATIENCE,
    },
    result::{error::Attempt, failure::Fault},
    stage::{self, Stage},
    task::{Case, Tolerance},
    workshop::TimingPlan,
};
use metrics::Statistic;
use rand::{Rng, rngs::StdRng};
use std::time::{Duration, Instant};

/// Requests in a row that cannot count before that is given up: outputs lie where none was looked for.
const MOST_LOST: u32 = 20;
/// Requests that warm up both sides, at most, where each holds several calls.
const MOST_WARM_UPS: usize = 5;
/// After so long in the loop, both sides are warm, however few their requests were: clocks have risen by then.
const WARM_AFTER: Duration = Duration::from_millis(100);

/// As many pairs are enough whatever they say, and fewer where they are alike by this part.
const ENOUGH_TO_DIFFER: usize = 3;
const ALIKE: f64 = 0.03;

/// Pairs of one case from one pair of processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Calls of a request.
    pub(crate) calls: usize,
    /// Whether launches were replayed as recorded.
    pub(crate) recorded: bool,
    /// What a request costs that calls nothing, in nanoseconds, where that was asked.
    pub(crate) empty_ns: Option<f64>,
    /// The reference's and the candidate's.
    pub(crate) pairs: Vec<[Reading; 2]>,
    /// Pairs that could not count.
    pub(crate) lost: u32,
}

/// How pairs are taken.
#[derive(Clone, Copy)]
pub(crate) struct Taking<'a> {
    pub(crate) plan: &'a TimingPlan,
    pub(crate) effort: Effort,
    pub(crate) numbers: &'a Numbers,
    pub(crate) tolerance: &'a Tolerance,
    /// Whether outputs are compared: not where the reference stands in for a candidate, and was checked already.
    pub(crate) verify: bool,
    /// What every deadline has beside twenty times the reference's time.
    pub(crate) slack: Duration,
    /// Pairs of processes that share the plan's samples, and which of them this is.
    pub(crate) share: (u32, u32),
    /// Calls of a request, where another pair of processes found out how many are enough.
    pub(crate) calls: Option<usize>,
    /// What this block may take for more than the fewest pairs.
    pub(crate) budget: Option<Duration>,
}

impl Taking<'_> {
    fn request_ns(&self) -> f64 {
        match self.effort {
            Effort::Loop => self.numbers.request_ns,
            Effort::Certificate => self.numbers.certificate_request_ns,
        }
    }

    /// This block's share of so many.
    fn share_of(&self, all: u32) -> u32 {
        let (blocks, at) = self.share;
        all / blocks + u32::from(at < all % blocks)
    }

    /// The fewest pairs, and the most.
    fn pairs(&self) -> (usize, usize) {
        let asked = self.share_of(self.plan.repetitions) as usize;
        match (self.effort, self.budget) {
            _ if self.plan.glance => (asked.min(self.numbers.glance.0), asked),
            (Effort::Loop, Some(_)) => (asked.min(self.share_of(self.numbers.fewest) as usize), asked),
            _ => (asked, asked),
        }
    }

    /// What the block may take for more than the fewest pairs.
    fn budget(&self) -> Option<Duration> {
        let glance = self.plan.glance.then_some(self.numbers.glance.1);
        self.budget.into_iter().chain(glance).min()
    }
}

/// Takes pairs of one case.
pub(crate) fn take(pair: &mut impl Pair, case: &Case, how: &Taking<'_>, rng: &mut StdRng) -> Attempt<Block> {
    let calibrate = stage::begin(Stage::Calibrate);
    let most = pair.enter(case)?.min(how.numbers.most_calls).max(1);
    let call_ns = calibration::call_ns(pair, how.numbers, most, rng)?;
    let request_ns = how.request_ns();
    let mut calls =
        how.calls.map_or_else(|| calibration::calls(request_ns, call_ns, most), |known| known.clamp(1, most));
    let mut sampler = Sampler { pair, case, how, call_ns, lost: 0, last: None };
    let glance = how.plan.glance && how.calls.is_none();
    let mut warm = false;
    if glance && calls > 1 {
        sampler.pair.prepare(1, true)?;
        let [_, mut ran] = sampler.sample(1, rng)?;
        if ran.inside_ns < how.numbers.long_ns {
            [_, ran] = sampler.sample(1, rng)?;
        }
        calls = calibration::few_enough(calls, &ran, request_ns);
        // One of which a call lasts as long as a request needs no more of them.
        warm = calls == 1 && ran.inside_ns > request_ns;
    }
    let mut recorded = sampler.pair.prepare(calls, true)?;
    if !warm {
        let mut first = sampler.sample(calls, rng)?;
        if !recorded {
            // What is done once, such as to load a kernel's code, can keep the first call alone from being recorded.
            recorded = sampler.pair.prepare(calls, true)?;
        }
        if how.calls.is_none() {
            let few = calibration::not_endless(calls, &first, request_ns);
            if how.effort == Effort::Loop && few < calls {
                calls = few;
                recorded = sampler.pair.prepare(calls, true)?;
                first = sampler.sample(calls, rng)?;
            } else if !glance {
                first = sampler.sample(calls, rng)?;
            }
            let enough = calibration::enough(calls, &first, request_ns, how.numbers.longest_request_ns, most);
            if enough > calls {
                calls = enough;
                recorded = sampler.pair.prepare(calls, true)?;
            }
        }
    }
    let warm_up = (how.share_of(how.plan.warmup) as usize).div_ceil(calls).clamp(1, MOST_WARM_UPS);
    let start = Instant::now();
    for done in 0..if glance { 0 } else { warm_up } {
        if done > 0 && how.effort == Effort::Loop && start.elapsed() > WARM_AFTER {
            break;
        }
        sampler.sample(calls, rng)?;
    }
    drop(calibrate);
    let _stage = stage::begin(Stage::Time);
    let (fewest, asked) = how.pairs();
    let (start, mut pairs, mut empties) = (Instant::now(), Vec::<[Reading; 2]>::new(), vec![]);
    let between = match how.numbers.empty_requests {
        0 => usize::MAX,
        wanted => fewest.div_ceil(wanted as usize).max(1),
    };
    let (budget, before) = (how.budget(), sampler.last);
    let in_budget = || budget.is_none_or(|budget| start.elapsed() <= budget);
    while pairs.len() < fewest || (pairs.len() < asked && (in_budget() || !agree(before, &pairs))) {
        if between < usize::MAX && pairs.len() % between == 0 {
            empties.push(sampler.pair.empty(rng)?);
        }
        pairs.push(sampler.sample(calls, rng)?);
    }
    if how.plan.glance && how.numbers.clock == Clock::Inside {
        pairs = fastest(&pairs);
    }
    let empty_ns = (!empties.is_empty()).then(|| Statistic::Median.of(&empties));
    Ok(Block { calls, recorded, empty_ns, pairs, lost: sampler.lost })
}

/// Of each side the fastest request by our clock, for what disturbs one makes it slower by that: enough to rank by.
fn fastest(pairs: &[[Reading; 2]]) -> Vec<[Reading; 2]> {
    let of = |side: usize| pairs.iter().map(|pair| pair[side]).min_by(|a, b| a.outside_ns.total_cmp(&b.outside_ns));
    of(0).zip(of(1)).map(|(reference, candidate)| [reference, candidate]).into_iter().collect()
}

/// Whether pairs are enough to rank by: so many, or fewer that all say what the pair before them said.
fn agree(before: Option<[Reading; 2]>, pairs: &[[Reading; 2]]) -> bool {
    let ratio = |[reference, candidate]: &[Reading; 2]| candidate.inside_ns / reference.inside_ns.max(1.0);
    let alike = |said: f64| pairs.iter().all(|pair| (ratio(pair) - said).abs() <= ALIKE * said);
    pairs.len() >= ENOUGH_TO_DIFFER || before.is_some_and(|before| alike(ratio(&before)))
}

struct Sampler<'a, P> {
    pair: &'a mut P,
    case: &'a Case,
    how: &'a Taking<'a>,
    /// What a call of the reference takes.
    call_ns: f64,
    lost: u32,
    /// The pair that was taken last.
    last: Option<[Reading; 2]>,
}

impl<P: Pair> Sampler<'_, P> {
    /// One pair of requests; drawn anew where one of them cannot count.
    fn sample(&mut self, calls: usize, rng: &mut StdRng) -> Attempt<[Reading; 2]> {
        let typical = Duration::from_nanos((self.call_ns * calls as f64) as u64);
        let deadline = self.how.slack + typical * PATIENCE;
        for _ in 0..MOST_LOST {
            self.pair.draw(Inputs::Drawn, rng)?;
            let (reference, candidate) = if rng.random() {
                let reference = self.pair.call(Side::Reference, REFERENCE_PATIENCE, rng)?;
                (reference, self.pair.call(Side::Candidate, deadline, rng)?)
            } else {
                let candidate = self.pair.call(Side::Candidate, deadline, rng)?;
                (self.pair.call(Side::Reference, REFERENCE_PATIENCE, rng)?, candidate)
            };
            if let (Some(reference), Some(candidate)) = (reference, candidate) {
                if self.how.verify {
                    let (tolerance, case) = (self.how.tolerance, &self.case.name);
                    self.pair.verify(&Look { tolerance, case, calls: Looked::Timed })?;
                }
                self.last = Some([reference, candidate]);
                return Ok([reference, candidate]);
            }
            self.lost += 1;
        }
        Err(Fault::Machine(format!("case {}: no request could be timed", self.case.name)).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::backend::Found, measure::floor::Traffic, sandbox::layer::Layer};
    use rand::SeedableRng;

    fn taking(effort: Effort, share: (u32, u32)) -> (usize, usize) {
        taking_by(&TimingPlan::median_of(20, 100), effort, share)
    }

    fn taking_by(plan: &TimingPlan, effort: Effort, share: (u32, u32)) -> (usize, usize) {
        let numbers = Numbers { fewest: 12, glance: (2, Duration::ZERO), ..crate::backend::native::NUMBERS };
        let tolerance = Tolerance { atol: 0.0, rtol: 0.0, share: 1.0 };
        let (verify, slack, budget) = (true, Duration::ZERO, Some(Duration::from_secs(1)));
        let (numbers, tolerance) = (&numbers, &tolerance);
        Taking { plan, effort, numbers, tolerance, verify, slack, share, calls: None, budget }.pairs()
    }

    #[test]
    fn pairs_beyond_the_fewest_may_be_left_out_but_for_a_certificate() {
        assert_eq!(taking(Effort::Loop, (1, 0)), (12, 100));
        assert_eq!(taking(Effort::Certificate, (1, 0)), (100, 100));
        let glance = TimingPlan::median_of(20, 100).glance();
        assert_eq!(taking_by(&glance, Effort::Loop, (1, 0)), (2, glance.repetitions as usize));
    }

    #[test]
    fn fewer_than_three_pairs_are_enough_where_they_say_what_the_one_before_said() {
        let ran = |ns| Reading { outside_ns: ns, inside_ns: ns };
        let pair = |candidate| [ran(1e6), ran(candidate)];
        assert!(agree(Some(pair(2e6)), &[pair(2.05e6)]) && agree(Some(pair(2e6)), &[pair(2.05e6), pair(1.95e6)]));
        assert!(!agree(Some(pair(2e6)), &[pair(2.1e6)]) && !agree(Some(pair(2.1e6)), &[pair(2.1e6), pair(2e6)]));
        assert_eq!(fastest(&[pair(3e6), [ran(2e6), ran(2e6)], pair(4e6)]), [pair(2e6)]);
        assert!(!agree(None, &[pair(2e6)]) && agree(None, &[pair(2e6), pair(3e6), pair(4e6)]));
    }

    #[test]
    fn a_glance_at_what_differs_from_call_to_call_takes_three_pairs() {
        let glance = TimingPlan::median_of(1, 10).glance();
        let pairs =
            |slows| taken(&mut OnceLoaded { slows, ..OnceLoaded::default() }, Effort::Loop, &glance).pairs.len();
        assert_eq!([pairs(false), pairs(true)], [1, 3]);
    }

    #[test]
    fn pairs_of_processes_share_the_samples() {
        let each: Vec<usize> = (0..3).map(|at| taking(Effort::Certificate, (3, at)).0).collect();
        assert_eq!(each, [34, 33, 33]);
        let fewest: Vec<(usize, usize)> = (0..3).map(|at| taking(Effort::Loop, (3, at))).collect();
        assert_eq!(fewest, [(4, 34), (4, 33), (4, 33)]);
    }

    /// A candidate whose launches can be recorded once it was called.
    #[derive(Default)]
    struct OnceLoaded {
        is_loaded: bool,
        asked: Vec<bool>,
        called: usize,
        lasts: Duration,
        /// Whether each call of the candidate takes longer than the one before.
        slows: bool,
    }

    impl Pair for OnceLoaded {
        fn enter(&mut self, _: &Case) -> Attempt<usize> {
            Ok(1)
        }
        fn prepare(&mut self, _: usize, timed: bool) -> Attempt<bool> {
            self.asked.extend(timed.then_some(self.is_loaded));
            Ok(self.is_loaded || !timed)
        }
        fn draw(&mut self, _: Inputs, _: &mut StdRng) -> Attempt<()> {
            Ok(())
        }
        fn call(&mut self, side: Side, _: Duration, _: &mut StdRng) -> Attempt<Option<Reading>> {
            self.is_loaded |= side == Side::Candidate;
            self.called += 1;
            std::thread::sleep(self.lasts);
            let ns = if self.slows && side == Side::Candidate { 1e4 * self.called as f64 } else { 1e4 };
            Ok(Some(Reading { outside_ns: ns, inside_ns: ns }))
        }
        fn verify(&mut self, _: &Look<'_>) -> Attempt<Found> {
            Ok(Found::default())
        }
        fn traffic(&self) -> Traffic {
            Traffic { inputs: 0, outputs: 0, parameters: 0, reads_all: false }
        }
        fn known_call_ns(&self) -> Option<f64> {
            Some(1e4)
        }
        fn note_call_ns(&mut self, _: f64) {}
        fn look_around(&mut self) -> Attempt<()> {
            Ok(())
        }
        fn layers(&self) -> Vec<Layer> {
            vec![]
        }
    }

    fn taken(pair: &mut OnceLoaded, effort: Effort, plan: &TimingPlan) -> Block {
        let numbers = Numbers { glance: (1, Duration::ZERO), ..crate::backend::native::NUMBERS };
        let tolerance = Tolerance { atol: 0.0, rtol: 0.0, share: 1.0 };
        let how = Taking {
            plan,
            effort,
            numbers: &numbers,
            tolerance: &tolerance,
            verify: true,
            slack: Duration::ZERO,
            share: (1, 0),
            calls: Some(1),
            budget: None,
        };
        let case = Case { name: "a".to_owned(), scalars: std::collections::BTreeMap::default() };
        take(pair, &case, &how, &mut StdRng::seed_from_u64(1)).unwrap()
    }

    #[test]
    fn launches_that_the_first_call_alone_keeps_from_being_recorded_are_recorded_after_it() {
        let mut pair = OnceLoaded::default();
        let block = taken(&mut pair, Effort::Certificate, &TimingPlan::median_of(1, 10));
        assert!(block.recorded, "{:?}", pair.asked);
        assert_eq!((pair.asked, block.pairs.len()), (vec![false, true], 10));
    }

    #[test]
    fn what_is_warm_after_one_long_request_is_warmed_up_by_no_more_but_for_a_certificate() {
        let called = |effort, lasts| {
            let mut pair = OnceLoaded { lasts, ..OnceLoaded::default() };
            taken(&mut pair, effort, &TimingPlan::median_of(20, 1));
            pair.called / 2
        };
        // A first pair, those that warm up, and one that counts.
        assert_eq!(called(Effort::Loop, WARM_AFTER / 2), 1 + 1 + 1);
        assert_eq!(called(Effort::Certificate, WARM_AFTER / 2), 1 + MOST_WARM_UPS + 1);
        assert_eq!(called(Effort::Loop, Duration::ZERO), 1 + MOST_WARM_UPS + 1);
    }
}
