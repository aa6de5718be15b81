//! What is there of a run that has not ended?
//!
//! A task that has ended counts by its certificate, one that has not by its rounds: 25 right candidates of which none is
//! certified yet are not "0 of 25 correct".

use crate::progress::correct;
use metrics::{Claim, Speedup};

/// How many tasks have come how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SoFar {
    /// In all.
    pub(crate) all: usize,
    /// Those that have ended.
    pub(crate) ended: usize,
    /// Those with a certified candidate.
    pub(crate) certified: usize,
    /// Those whose certified candidate is right only as the task draws its inputs.
    pub(crate) only_as_drawn: usize,
    /// Those of which it is faster.
    pub(crate) wins: usize,
    /// Those with a right candidate, certified or, where the task has not ended, in a round.
    pub(crate) right: usize,
    /// Those of which it is faster.
    pub(crate) faster: usize,
}

impl SoFar {
    /// Takes in a task: whether it has ended, what is certified of it (and whether that is right only as the task draws its
    /// inputs), and the best of its rounds.
    pub(crate) fn count(
        &mut self,
        ended: bool,
        (certified, only_as_drawn): (Option<&Speedup>, bool),
        best: Option<&Speedup>,
    ) {
        let counts = certified.or(best.filter(|_| !ended));
        let is_faster = |speedup: Option<&Speedup>| speedup.is_some_and(|s| s.claim() == Claim::Faster);
        self.all += 1;
        self.ended += usize::from(ended);
        self.certified += usize::from(certified.is_some());
        self.only_as_drawn += usize::from(only_as_drawn);
        self.wins += usize::from(is_faster(certified));
        self.right += usize::from(counts.is_some());
        self.faster += usize::from(is_faster(counts));
    }

    /// Whether every task has ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.ended == self.all
    }

    /// It in a line.
    pub(crate) fn words(&self) -> String {
        if self.is_whole() {
            let correct = correct(format_args!("{} of {}", self.certified, self.all), self.only_as_drawn);
            return format!("{correct}, {} faster", self.wins);
        }
        let Self { all, ended, right, faster, .. } = self;
        format!("{ended} of {all} ended; {right} right so far, {faster} faster")
    }

    /// What these words mean.
    pub(crate) fn detail(&self) -> String {
        let rule = "Faster is a speedup whose whole 95 % interval lies above 1";
        if self.is_whole() {
            let beyond = match self.only_as_drawn {
                0 => String::new(),
                some => format!(
                    " {some} of the correct are wrong on inputs of both signs, which their tasks do not draw, as the labels of their certificates say."
                ),
            };
            return format!("Correct is what a certificate confirmed. {rule}, certified too.{beyond}");
        }
        let certified = match self.certified {
            0 => "None is certified yet".to_owned(),
            some => format!("{some} certified, {} of these faster", self.wins),
        };
        format!(
            "{certified}; what is right and faster of tasks that have not ended is as measured in their rounds. {rule}."
        )
    }
}
