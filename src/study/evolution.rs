//! How does speed evolve along a workflow's transformations (PEAK §5.1)?

use crate::scores::text::columns;
use agents::{trajectory::Trajectory, workflow::Checkpoint};
use kernelbench::{Evaluation, Timed};
use metrics::{Interval, Speedup, quantity};
use serde::Serialize;

/// The two series along the way to a checkpoint, from the initial context on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evolution {
    /// The task's name.
    pub task: String,
    /// The machine's name.
    pub machine: String,
    /// The cases that were timed; each number is the geometric mean over them.
    pub cases: Vec<String>,
    /// The initial context, and what each transformation led to.
    pub stages: Vec<Stage>,
}

/// One checkpoint on the way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// Its name.
    pub checkpoint: String,
    /// What was applied; none for the initial context.
    pub transformation: Option<String>,
    /// As it was measured, in pairs: over the task's reference, or the baseline that the task names.
    pub measured: Speedup,
    /// Over the initial context, the naive kernel: the ratio of the two measured speedups (Fig. 2).
    pub cumulative: Speedup,
    /// Over the checkpoint before (Fig. 3).
    pub step: Speedup,
}

/// What anything is over itself.
const ITSELF: Speedup = Speedup { ratio: 1.0, interval: Interval { low: 1.0, high: 1.0 } };

impl Evolution {
    /// The series up to a checkpoint.
    ///
    /// # Errors
    ///
    /// In a sentence: a checkpoint on the way has no time.
    pub fn of(story: &Trajectory, to: &Checkpoint) -> Result<Self, String> {
        let way = story.workflow.way(to);
        let timed = way.iter().map(|at| timed(story, at)).collect::<Result<Vec<_>, _>>()?;
        let mut stages: Vec<Stage> = vec![];
        for (at, timed) in way.iter().zip(&timed) {
            let over = |other: Option<&Stage>| other.map_or(ITSELF, |other| timed.speedup.beside(&other.measured));
            stages.push(Stage {
                checkpoint: at.name.clone(),
                transformation: at.transformation.clone(),
                measured: timed.speedup,
                cumulative: over(stages.first()),
                step: over(stages.last()),
            });
        }
        let cases = timed.first().map(|timed| timed.cases.iter().map(|case| case.case.clone()).collect());
        let machine = story.machine.as_ref().map(|machine| machine.name.clone()).unwrap_or_default();
        Ok(Self { task: story.name.clone(), machine, cases: cases.unwrap_or_default(), stages })
    }

    /// As text for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let head = ["checkpoint", "transformation", "cumulative", "step", "measured over the reference"];
        let head = head.map(str::to_owned).to_vec();
        let row = |stage: &Stage| {
            let what = stage.transformation.as_deref().unwrap_or("initial context").to_owned();
            let told = |speedup: &Speedup| quantity::speedup(speedup);
            let first = stage.transformation.is_none();
            let [cumulative, step] =
                [stage.cumulative, stage.step].map(|it| if first { "1".to_owned() } else { told(&it) });
            vec![stage.checkpoint.clone(), what, cumulative, step, told(&stage.measured)]
        };
        let rows: Vec<_> = [head].into_iter().chain(self.stages.iter().map(row)).collect();
        let (task, machine, cases) = (&self.task, &self.machine, self.cases.join(", "));
        format!(
            "{task} on {machine}, timed at {cases}\n\n{}\nCumulative is over the initial context, step over the checkpoint \
             before. Both are ratios of speedups that were measured apart from one another: an interval holds both at their \
             worst.",
            columns(&rows)
        )
    }
}

fn timed<'a>(story: &'a Trajectory, at: &Checkpoint) -> Result<&'a Timed, String> {
    let found = story.evaluation(&at.bound).and_then(Evaluation::passed);
    found.ok_or_else(|| format!("the checkpoint {} has no time: it was not run", at.name))
}
