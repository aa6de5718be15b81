//! How often do models get transformations right, and which errors are the rest (PEAK §5.2, §5.3)?

use crate::scores::text::columns;
use agents::{
    trajectory::{Round, Trajectory},
    workflow::{Checkpoint, Order, Workflow},
};
use kernelbench::{Evaluation, Failure, Hash};
use serde::Serialize;

/// What came of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It compiles and agrees with the reference in every drawn configuration.
    Right,
    /// It does not compile.
    Compile,
    /// It compiles and does not do what the reference does: it is wrong, crashes, hangs, or has another entry.
    Reference,
    /// A sanitizer found an error, where a step runs one.
    Sanitizer,
    /// A reply is not in the form that was asked for: nothing was compiled.
    Unreadable,
}

/// A transformation between two checkpoints of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepName {
    /// The checkpoint that each try starts from.
    pub from: String,
    /// The checkpoint that it led to in the run.
    pub to: String,
    /// The transformation.
    pub transformation: String,
    /// The id of the checkpoint that each try starts from.
    #[serde(skip)]
    pub start: Hash,
}

impl StepName {
    /// The transformations on the way to a checkpoint; a search without a call is none.
    #[must_use]
    pub fn on_the_way(workflow: &Workflow, to: &Checkpoint) -> Vec<Self> {
        let way = workflow.way(to);
        let pairs = way.iter().zip(way.iter().skip(1));
        let step = |(from, to): (&&Checkpoint, &&Checkpoint)| {
            let transformation = to.transformation.clone().filter(|name| name != agents::workflow::TUNE)?;
            Some(Self { from: from.name.clone(), to: to.name.clone(), transformation, start: from.id.clone() })
        };
        pairs.filter_map(step).collect()
    }

    /// How often it was begun to be tried in a record.
    #[must_use]
    pub fn begun(&self, workflow: &Workflow) -> usize {
        workflow
            .orders
            .iter()
            .filter(|ordered| self.is_of(&ordered.order) && ordered.fate != agents::workflow::Fate::Dropped)
            .count()
    }

    fn is_of(&self, order: &Order) -> bool {
        order.trial && order.from == self.start && order.transformation == self.transformation
    }
}

/// What came of a record's tries that are over and are wanted, in order.
fn outcomes(story: &Trajectory, wanted: impl Fn(&Order) -> bool) -> Vec<Outcome> {
    let orders = story.workflow.orders.iter().enumerate().filter(|(_, ordered)| wanted(&ordered.order));
    orders.filter_map(|(nth, _)| outcome(story.workflow.rounds_of(nth, &story.rounds).last()?)).collect()
}

/// What came of a try; none where it is not over.
fn outcome(round: &Round) -> Option<Outcome> {
    if round.unreadable.is_some() {
        return Some(Outcome::Unreadable);
    }
    match &round.evaluation {
        Some(Evaluation::Failed(Failure::Build { .. })) => Some(Outcome::Compile),
        Some(Evaluation::Failed(Failure::Sanitizer { .. })) => Some(Outcome::Sanitizer),
        Some(Evaluation::Failed(_)) => Some(Outcome::Reference),
        Some(_) => Some(Outcome::Right),
        None => round.not_timed.as_ref().map(|_| Outcome::Right),
    }
}

/// A model's tries, step by step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelTries {
    /// What answered, as it was named.
    pub model: String,
    /// What came of the tries of each step.
    pub outcomes: Vec<Vec<Outcome>>,
}

impl ModelTries {
    /// The tries in a model's record.
    #[must_use]
    pub fn of(model: &str, steps: &[StepName], story: &Trajectory) -> Self {
        let outcomes = steps.iter().map(|step| outcomes(story, |order| step.is_of(order))).collect();
        Self { model: model.to_owned(), outcomes }
    }
}

/// The share of tries that came to this; none where there is no try.
fn share<'a>(tries: impl IntoIterator<Item = &'a Outcome>, is: Outcome) -> Option<f64> {
    let (mut all, mut count) = (0_u32, 0_u32);
    for outcome in tries {
        (all, count) = (all + 1, count + u32::from(*outcome == is));
    }
    (all > 0).then(|| f64::from(count) / f64::from(all))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Success by step and model (PEAK §5.2, Fig. 4).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuccessRates {
    /// The steps.
    pub steps: Vec<StepName>,
    /// The models.
    pub models: Vec<ModelTries>,
    /// The share of right tries by model, over all steps; none where there is no try.
    pub by_model: Vec<Option<f64>>,
    /// The share of right tries by step, over all models; none where there is no try.
    pub by_step: Vec<Option<f64>>,
}

impl SuccessRates {
    /// The matrix.
    #[must_use]
    pub fn of(steps: Vec<StepName>, models: Vec<ModelTries>) -> Self {
        let by_model = models.iter().map(|tries| share(tries.outcomes.iter().flatten(), Outcome::Right)).collect();
        let of_step = |at: usize| share(models.iter().flat_map(|tries| &tries.outcomes[at]), Outcome::Right);
        let by_step = (0..steps.len()).map(of_step).collect();
        Self { steps, models, by_model, by_step }
    }

    /// As text for a terminal: right tries of all by step and model.
    #[must_use]
    pub fn text(&self) -> String {
        let head = ["step".to_owned(), "transformation".to_owned()].into_iter();
        let head = head.chain(self.models.iter().map(|tries| tries.model.clone())).chain(["all".to_owned()]).collect();
        let row = |(at, step): (usize, &StepName)| {
            let cell = |tries: &ModelTries| {
                let right = tries.outcomes[at].iter().filter(|outcome| **outcome == Outcome::Right).count();
                format!("{right}/{}", tries.outcomes[at].len())
            };
            let name = [format!("{} -> {}", step.from, step.to), step.transformation.clone()].into_iter();
            name.chain(self.models.iter().map(cell)).chain([percent(self.by_step[at])]).collect()
        };
        let all = share(self.models.iter().flat_map(|tries| tries.outcomes.iter().flatten()), Outcome::Right);
        let last = ["all".to_owned(), String::new()].into_iter();
        let last = last.chain(self.by_model.iter().map(|rate| percent(*rate))).chain([percent(all)]).collect();
        let rows: Vec<Vec<String>> =
            [head].into_iter().chain(self.steps.iter().enumerate().map(row)).chain([last]).collect();
        columns(&rows)
    }
}

/// The split of errors by model, as shares of all its tries (PEAK §5.3, Fig. 5, left).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// What answered, as it was named.
    pub model: String,
    /// How many tries there were.
    pub tries: usize,
    /// Does not compile.
    pub compile: Option<f64>,
    /// Compiles and does not agree with the reference.
    pub reference: Option<f64>,
    /// A sanitizer found an error.
    pub sanitizer: Option<f64>,
    /// No reply in the form asked for.
    pub unreadable: Option<f64>,
}

impl Errors {
    /// The split of all tries in a model's record.
    #[must_use]
    pub fn of(model: &str, story: &Trajectory) -> Self {
        let all = outcomes(story, |order| order.trial);
        let [compile, reference, sanitizer, unreadable] =
            [Outcome::Compile, Outcome::Reference, Outcome::Sanitizer, Outcome::Unreadable].map(|is| share(&all, is));
        Self { model: model.to_owned(), tries: all.len(), compile, reference, sanitizer, unreadable }
    }

    /// As text for a terminal.
    #[must_use]
    pub fn text(models: &[Self]) -> String {
        let head = ["model", "tries", "failed", "compile", "reference", "sanitizer", "unreadable"];
        let row = |errors: &Self| {
            let parts = [errors.compile, errors.reference, errors.sanitizer, errors.unreadable];
            let failed = parts.iter().copied().sum::<Option<f64>>();
            let shares = [failed].into_iter().chain(parts).map(percent);
            [errors.model.clone(), errors.tries.to_string()].into_iter().chain(shares).collect()
        };
        let rows: Vec<Vec<String>> =
            [head.map(str::to_owned).to_vec()].into_iter().chain(models.iter().map(row)).collect();
        columns(&rows)
    }
}
