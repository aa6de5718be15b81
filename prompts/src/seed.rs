//! How is the first candidate asked for? (CudaForge, Appendix D.1.)

use crate::{Approaches, Prompt, Prompts, approaches::to_carry_out, words};
use kernelbench::{Candidate, Task};
use metrics::Machine;
use minijinja::{Value, context};

/// The page that asks the Coder for a first candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstPage {
    /// The task, its reference, the machine and the rules.
    #[default]
    Seed,
    /// The task in a few lines: QiMeng-TensorOp's vanilla prompt (Table 2).
    Vanilla,
    /// The same, and to think step by step before (Table 2).
    ChainOfThought,
}

impl FirstPage {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Seed, Self::Vanilla, Self::ChainOfThought];

    /// The page's name, as settings have it.
    #[must_use]
    pub fn page(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Vanilla => "vanilla",
            Self::ChainOfThought => "chain-of-thought",
        }
    }

    /// The page of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|page| page.page() == name)
    }
}

impl Prompts {
    /// The same, with this page to ask for first candidates.
    #[must_use]
    pub fn beginning_with(mut self, first: FirstPage) -> Self {
        self.first = first;
        self
    }

    /// Coder: the first candidate, from the task and the machine alone.
    #[must_use]
    pub fn seed(&self, task: &Task, machine: &Machine) -> Prompt {
        self.first(task, machine, &values(task, machine, false))
    }

    /// The same, where the Planner ranked approaches before: one of them is to be carried out, counted from 0, those before it
    /// having come to nothing (Hawkeye, Figs. 47-48).
    #[must_use]
    pub fn seed_planned(
        &self,
        task: &Task,
        machine: &Machine,
        example: bool,
        (approaches, at): (&Approaches, usize),
    ) -> Prompt {
        let values = values(task, machine, example && !is_bound(task));
        self.first(task, machine, &to_carry_out((approaches, at), &values))
    }

    /// Whether the page that asks for a first candidate shows approaches.
    #[must_use]
    pub fn shows_approaches(&self) -> bool {
        self.first == FirstPage::Seed
    }

    /// The same, after other beginnings: the fastest candidate so far and its speedup are shown, to go another way.
    #[must_use]
    pub fn seed_anew(&self, task: &Task, machine: &Machine, fastest: &Candidate, speedup: f64) -> Prompt {
        self.first(task, machine, &anew(task, machine, fastest, speedup))
    }

    /// The same, with a worked example of another task in the same language (CudaForge, Appendix D.1: one shot). A task whose
    /// entry a binding defines has none.
    #[must_use]
    pub fn seed_with_example(&self, task: &Task, machine: &Machine) -> Prompt {
        self.first(task, machine, &values(task, machine, !is_bound(task)))
    }

    fn first(&self, task: &Task, machine: &Machine, values: &Value) -> Prompt {
        self.page(self.first.page(), &self.with_pool(task, machine, values))
    }
}

fn is_bound(task: &Task) -> bool {
    task.context().is_some_and(|context| context.binding.is_some())
}

pub(crate) fn values(task: &Task, machine: &Machine, example: bool) -> Value {
    let (pool, approaches) = (Vec::<Value>::new(), Vec::<Value>::new());
    let (task, machine) = (words::task(task), words::machine(machine));
    context! { task, machine, example, fastest => (), speedup => (), pool, approaches, approach => (), given_up => () }
}

pub(crate) fn anew(task: &Task, machine: &Machine, fastest: &Candidate, speedup: f64) -> Value {
    let source = words::candidate(fastest).get_attr("source").unwrap_or_default();
    context! { fastest => source, speedup => format!("{speedup:.2}"), ..values(task, machine, false) }
}
