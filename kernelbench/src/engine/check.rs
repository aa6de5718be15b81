//! Checking: is a candidate right on every case?

use super::backend::{Found, Inputs, Look, Looked, Pair, Side};
use crate::{
    lease::Lease,
    measure::numbers::PATIENCE,
    result::{
        error::{Attempt, EvalError},
        failure::Failure,
        label::{Kind, Label},
    },
    stage::{self, Stage},
    task::{Beyond, Case, Tolerance},
};
use rand::{Rng, rngs::StdRng};
use std::time::{Duration, Instant};

/// The reference's own deadline.
pub(crate) const REFERENCE_PATIENCE: Duration = Duration::from_mins(5);
/// How many times the reference's own error a candidate's may be before it is labelled.
const FAR_ABOVE: f64 = 16.0;
/// Below this an error is that of single precision, whatever the reference's.
const NEGLIGIBLE: f64 = 3e-6;
/// Outputs that differ from the reference's by no more (root mean square, relative) earn no label of a lower precision, whatever
/// either's error is: for one, the candidate's error has to be `FAR_ABOVE` times the reference's, and this apart from it.
pub(crate) const CLOSE: f64 = 0.99 * NEGLIGIBLE * (1.0 - 1.0 / FAR_ABOVE);
/// By how much wider inputs of both signs widen the tolerance: their reference is less exact.
const WIDER: f64 = 10.0;

/// How long calls in a row go on before others may go between them.
const STRETCH: Duration = Duration::from_secs(1);

/// One more call of a check.
const AGAIN: Looked = Looked::Checked { oracle: false, twice: false };

/// How a candidate is called, by what its deadline has beside twenty times the reference's time.
enum Call<'a, 'gate> {
    /// For the first time: it may compile, and steps aside from the device meanwhile.
    First(Duration, &'a mut Lease<'gate>),
    Again(Duration),
}

/// What a check needs beside the pair.
pub(crate) struct Checking<'a> {
    pub(crate) tolerance: &'a Tolerance,
    /// Draws of each case.
    pub(crate) draws: u32,
    /// Whether each case is tried once on inputs of both signs too.
    pub(crate) signed: bool,
    /// What comes of a candidate that is wrong on those.
    pub(crate) beyond: Beyond,
    /// Whether errors against double precision are measured, where there is such an oracle.
    pub(crate) oracle: bool,
    /// What every deadline has beside twenty times the reference's time.
    pub(crate) slack: Duration,
    /// What that of the first call has in its place.
    pub(crate) first_slack: Duration,
}

/// Compares with the reference on every case; what is worth a label. The process may have ended over the last.
pub(crate) fn check(
    pair: &mut impl Pair,
    cases: &[Case],
    (how, lease): (&Checking<'_>, &mut Lease<'_>),
    rng: &mut StdRng,
) -> Attempt<Vec<Label>> {
    let mut labels = one_by_one(pair, cases, (how, lease), rng)?;
    labels.extend(in_turn(pair, cases, how, rng)?);
    Ok(labels)
}

/// The first part of a check: each case by itself.
pub(crate) fn one_by_one(
    pair: &mut impl Pair,
    cases: &[Case],
    (how, lease): (&Checking<'_>, &mut Lease<'_>),
    rng: &mut StdRng,
) -> Attempt<Vec<Label>> {
    let _stage = stage::begin(Stage::Check);
    let mut labels = vec![];
    let mut first = Some(Call::First(how.first_slack, lease));
    for case in cases {
        pair.enter(case)?;
        pair.prepare(1, false)?;
        labels.extend(drawn(pair, case, how, &mut first, rng)?);
        if how.signed {
            labels.extend(signed(pair, case, how, rng)?);
        }
        pair.look_around()?;
    }
    Ok(labels)
}

/// The second part: all cases by the same processes, up in size, down and up again: what a first call leaves behind is not
/// what the next one needs. Then the smallest again and again.
pub(crate) fn in_turn(
    pair: &mut impl Pair,
    cases: &[Case],
    how: &Checking<'_>,
    rng: &mut StdRng,
) -> Attempt<Option<Label>> {
    let _stage = stage::begin(Stage::Check);
    let entered = pair.enter_all(cases)?;
    if entered.is_empty() {
        return Ok(None);
    }
    let last = entered.len() - 1;
    for at in (0..last).chain((1..=last).rev()).chain(0..=last).chain([0]) {
        pair.turn_to(at)?;
        let look = Look { tolerance: how.tolerance, case: &cases[entered[at]].name, calls: AGAIN };
        trial(pair, Inputs::Drawn, &look, Call::Again(how.slack), rng)?;
    }
    pair.wear(how.slack)
}

/// The third part, of a certificate: calls on each case, each on inputs of its own, one after another for an equal part of so
/// long, all outputs compared; how many calls each case had at least. A race that goes wrong once in hundreds of calls is not
/// seen in a handful. What is done `between` two stretches of them is not counted in.
pub(crate) fn again_and_again(
    pair: &mut impl Pair,
    cases: &[&Case],
    (how, lasting): (&Checking<'_>, Duration),
    rng: &mut StdRng,
    mut between: impl FnMut(),
) -> Attempt<u64> {
    let _stage = stage::begin(Stage::Check);
    let each = lasting / u32::try_from(cases.len()).unwrap_or(u32::MAX).max(1);
    let mut fewest = None;
    for case in cases {
        pair.enter(case)?;
        pair.prepare(1, false)?;
        let (mut took, mut stretch, mut calls) = (Duration::ZERO, Duration::ZERO, 0);
        while calls == 0 || took < each {
            let start = Instant::now();
            let name = format!("{}, after {calls} calls in a row", case.name);
            let look = Look { tolerance: how.tolerance, case: &name, calls: AGAIN };
            trial(pair, Inputs::Drawn, &look, Call::Again(how.slack), rng)?;
            calls += 1;
            took += start.elapsed();
            stretch += start.elapsed();
            if stretch >= STRETCH {
                stretch = Duration::ZERO;
                between();
            }
        }
        pair.look_around()?;
        fewest = Some(fewest.map_or(calls, |fewest: u64| fewest.min(calls)));
    }
    Ok(fewest.unwrap_or(0))
}

/// The first call of a model that is to be timed, in which its kernels may have to be compiled: it has the time for that, and
/// others work beside it.
pub(crate) fn first_call(
    pair: &mut impl Pair,
    case: &Case,
    tolerance: &Tolerance,
    (slack, lease): (Duration, &mut Lease<'_>),
    rng: &mut StdRng,
) -> Attempt<()> {
    pair.enter(case)?;
    pair.prepare(1, false)?;
    let look = Look { tolerance, case: &case.name, calls: AGAIN };
    trial(pair, Inputs::Drawn, &look, Call::First(slack, lease), rng).map(|_| ())
}

/// On inputs as the task draws them. The first of all calls has the slack of `first`.
fn drawn(
    pair: &mut impl Pair,
    case: &Case,
    how: &Checking<'_>,
    first: &mut Option<Call<'_, '_>>,
    rng: &mut StdRng,
) -> Attempt<Vec<Label>> {
    let Checking { tolerance, draws, .. } = *how;
    let mut found = Found::default();
    // Double precision takes longer than all else, and says the same of each draw: which one is asked, nobody knows.
    let asked = rng.random_range(0..draws.max(1));
    for at in 0..draws.max(1) {
        let calls = Looked::Checked { oracle: how.oracle && at == asked, twice: at == 0 };
        let look = Look { tolerance, case: &case.name, calls };
        let call = first.take().unwrap_or(Call::Again(how.slack));
        let one = trial(pair, Inputs::Drawn, &look, call, rng)?;
        found.errors.extend(one.errors);
        found.no_oracle = one.no_oracle;
    }
    for at in 1..pair.placements() {
        pair.place(at)?;
        let look = Look { tolerance, case: &case.name, calls: AGAIN };
        trial(pair, Inputs::Drawn, &look, Call::Again(how.slack), rng)?;
    }
    Ok(precision(&found))
}

/// One request of one call of each, compared.
fn trial(
    pair: &mut impl Pair,
    inputs: Inputs,
    look: &Look<'_>,
    call: Call<'_, '_>,
    rng: &mut StdRng,
) -> Attempt<Found> {
    pair.draw(inputs, rng)?;
    let reference = pair.call(Side::Reference, REFERENCE_PATIENCE, rng)?;
    let took = Duration::from_nanos(reference.map_or(0.0, |ran| ran.outside_ns) as u64);
    let patience = took * PATIENCE;
    match call {
        Call::First(slack, lease) => {
            stage::during(Stage::FirstCall, || pair.first_call(slack + patience, lease, rng))?;
        }
        Call::Again(slack) => {
            stage::during(Stage::Check, || pair.call(Side::Candidate, slack + patience, rng))?;
        }
    }
    pair.verify(look)
}

/// A trial on inputs that the task does not draw. Its rule does not ask for it, so what differs there is shown and no
/// failure, unless that is asked for; but an output that is its own input, bit by bit, is one, and so is a break-out.
fn signed(pair: &mut impl Pair, case: &Case, how: &Checking<'_>, rng: &mut StdRng) -> Attempt<Option<Label>> {
    let Tolerance { atol, rtol, .. } = *how.tolerance;
    let wider = Tolerance { atol: atol * WIDER, rtol: rtol * WIDER, ..*how.tolerance };
    let name = format!("{}, with inputs of both signs", case.name);
    let look = Look { tolerance: &wider, case: &name, calls: Looked::Beyond };
    let not_tried = || Label::new(Kind::NotTried, format!("not tried: {name}"));
    let differs = |failure: Failure| {
        let label = Label::new(Kind::BeyondDrawn, format!("beyond what the task draws: {failure}"));
        let fails = how.beyond == Beyond::Failure && !label.is_of_memory();
        if fails { Err(failure.into()) } else { Ok(Some(label)) }
    };
    match trial(pair, Inputs::Signed, &look, Call::Again(how.slack), rng) {
        Ok(Found { differs: Some(failure), .. }) if has_no_answer(&failure) => Ok(Some(not_tried())),
        Ok(Found { differs: Some(failure), .. }) => differs(failure),
        Ok(_) => Ok(None),
        // The reference itself cannot take such inputs: then no candidate has to.
        Err(EvalError::Infra(fault)) if fault.is_of_reference() => Ok(Some(not_tried())),
        Err(EvalError::Candidate(failure)) if decides(&failure) => Err(EvalError::Candidate(failure)),
        Err(EvalError::Candidate(failure)) => differs(*failure),
        Err(fault) => Err(fault),
    }
}

fn decides(failure: &Failure) -> bool {
    matches!(failure, Failure::Mismatch { .. } | Failure::Forbidden { .. })
}

fn has_no_answer(failure: &Failure) -> bool {
    matches!(failure, Failure::Mismatch { expected, .. } if ["nan", "inf", "-inf"].contains(&expected.as_str()))
}

/// A candidate whose error is far above the reference's own works in a lower precision than it was asked to.
fn precision(found: &Found) -> Vec<Label> {
    let worst = |of: fn(&(f64, f64)) -> f64| found.errors.iter().map(of).fold(0.0, f64::max);
    let (reference, candidate) = (worst(|e| e.0), worst(|e| e.1));
    if let Some(why) = &found.no_oracle {
        let text = format!("its error could not be measured in double precision: {why}");
        return vec![Label::new(Kind::NoOracle, text)];
    }
    if candidate > NEGLIGIBLE && candidate > FAR_ABOVE * reference {
        let text = format!(
            "lower precision: its error against double precision is {candidate:.1e}, the reference's {reference:.1e}"
        );
        return vec![Label::new(Kind::LowerPrecision, text)];
    }
    vec![]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{measure::floor::Traffic, measure::reading::Reading, sandbox::layer::Layer};
    use rand::SeedableRng;

    /// A candidate whose outputs are wrong in one call of its life; what a call takes by the case's name.
    #[derive(Default)]
    struct OnceWrong {
        wrong_in: u32,
        calls: u32,
        draws: u32,
        takes: Duration,
    }

    impl Pair for OnceWrong {
        fn enter(&mut self, case: &Case) -> Attempt<usize> {
            self.takes = Duration::from_millis(if case.name == "slow" { 110 } else { 0 });
            Ok(1)
        }
        fn prepare(&mut self, _: usize, _: bool) -> Attempt<bool> {
            Ok(true)
        }
        fn draw(&mut self, _: Inputs, _: &mut StdRng) -> Attempt<()> {
            self.draws += 1;
            Ok(())
        }
        fn call(&mut self, side: Side, _: Duration, _: &mut StdRng) -> Attempt<Option<Reading>> {
            self.calls += u32::from(side == Side::Candidate);
            std::thread::sleep(self.takes);
            Ok(None)
        }
        fn verify(&mut self, look: &Look<'_>) -> Attempt<Found> {
            let wrong = Failure::OutOfBounds { case: look.case.to_owned(), argument: "output".to_owned() };
            if self.calls == self.wrong_in { Err(wrong.into()) } else { Ok(Found::default()) }
        }
        fn traffic(&self) -> Traffic {
            Traffic { inputs: 0, outputs: 0, parameters: 0, reads_all: false }
        }
        fn known_call_ns(&self) -> Option<f64> {
            None
        }
        fn note_call_ns(&mut self, _: f64) {}
        fn look_around(&mut self) -> Attempt<()> {
            Ok(())
        }
        fn layers(&self) -> Vec<Layer> {
            vec![]
        }
    }

    fn calls(pair: &mut OnceWrong, cases: &[&str], lasting: Duration) -> Attempt<u64> {
        calls_with(pair, cases, lasting, || ())
    }

    fn calls_with(pair: &mut OnceWrong, cases: &[&str], lasting: Duration, between: impl FnMut()) -> Attempt<u64> {
        let case = |name: &&str| Case { name: (*name).to_owned(), scalars: std::collections::BTreeMap::default() };
        let cases: Vec<Case> = cases.iter().map(case).collect();
        let tolerance = Tolerance { atol: 0.0, rtol: 0.0, share: 1.0 };
        let (slack, first_slack) = (Duration::ZERO, Duration::ZERO);
        let how = Checking {
            tolerance: &tolerance,
            draws: 1,
            signed: false,
            beyond: Beyond::Label,
            oracle: false,
            slack,
            first_slack,
        };
        let rng = &mut StdRng::seed_from_u64(1);
        again_and_again(pair, &cases.iter().collect::<Vec<_>>(), (&how, lasting), rng, between)
    }

    #[test]
    fn what_is_close_to_the_reference_earns_no_label_whatever_the_error_of_either() {
        let labelled = |reference: f64, apart: f64| {
            let errors = vec![(reference, reference + apart)];
            !precision(&Found { errors, ..Found::default() }).is_empty()
        };
        for reference in [0.0, 1e-9, 1e-7, CLOSE / 15.0, 1e-6, 1e-4, 1e-2] {
            assert!(!labelled(reference, CLOSE), "{reference:e}");
        }
        assert!(labelled(CLOSE / 15.0, 1.1 * CLOSE), "closer than that would ask in vain");
    }

    #[test]
    fn what_is_wrong_in_one_call_of_many_fails_and_says_after_how_many() {
        let mut pair = OnceWrong { wrong_in: 213, ..OnceWrong::default() };
        let Err(EvalError::Candidate(failure)) = calls(&mut pair, &["default"], REFERENCE_PATIENCE) else {
            panic!("it passed")
        };
        assert!(failure.to_string().contains("default, after 212 calls in a row"), "{failure}");
    }

    #[test]
    fn others_go_between_stretches_of_calls_and_take_nothing_of_their_time() {
        // With the rest after the first second, the two seconds would be over.
        let (pair, mut rests, start) = (&mut OnceWrong::default(), 0, Instant::now());
        let between = || {
            rests += 1;
            std::thread::sleep(Duration::from_millis(if rests == 1 { 1500 } else { 0 }));
        };
        let calls = calls_with(pair, &["slow"], Duration::from_secs(2), between).ok();
        assert!(start.elapsed() >= Duration::from_millis(3500), "{:?}", start.elapsed());
        assert!(rests > 0 && calls.is_some_and(|calls| calls > rests), "{calls:?}, {rests}");
    }

    #[test]
    fn each_call_has_inputs_of_its_own_and_the_shape_with_the_fewest_counts() {
        let mut pair = OnceWrong::default();
        let fewest = calls(&mut pair, &["quick", "slow"], Duration::from_millis(200));
        assert_eq!(fewest.ok(), Some(1), "one call takes longer than its part of the time");
        assert!(pair.calls > 8 && pair.draws == pair.calls, "{} calls, {} draws", pair.calls, pair.draws);
    }
}
