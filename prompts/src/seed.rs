//! How is the first candidate asked for? (CudaForge, Appendix D.1.)

use crate::{Prompt, Prompts, words};
use kernelbench::Task;
use metrics::Machine;
use minijinja::{Value, context};

impl Prompts {
    /// Coder: the first candidate, from the task and the machine alone.
    #[must_use]
    pub fn seed(&self, task: &Task, machine: &Machine) -> Prompt {
        self.page("seed", &values(task, machine))
    }
}

pub(crate) fn values(task: &Task, machine: &Machine) -> Value {
    context! { task => words::task(task), machine => words::machine(machine) }
}
