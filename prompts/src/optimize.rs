//! How is one optimization asked for? (CudaForge, Appendix D.3.)

use crate::{Optimization, Prompt, Prompts, features::guided, words};
use kernelbench::{Candidate, Task};
use metrics::Machine;
use minijinja::{Value, context};

impl Prompts {
    /// Coder: carry out the Judge's one optimization; `None` where there is no readable one. Neither a metric nor a time
    /// is shown (CudaForge §2.1). The examples of the features that it names come along.
    #[must_use]
    pub fn optimize(
        &self,
        task: &Task,
        machine: &Machine,
        candidate: &Candidate,
        optimization: Option<&Optimization>,
    ) -> Prompt {
        let guides = self.guides(machine, optimization.map_or(&[], |optimization| &optimization.features));
        self.page("optimize", &guided(guides, &values(task, machine, candidate, optimization)))
    }
}

pub(crate) fn values(
    task: &Task,
    machine: &Machine,
    candidate: &Candidate,
    optimization: Option<&Optimization>,
) -> Value {
    let optimization = optimization.map(|optimization| {
        context! {
            bottleneck => words::one_line(&optimization.bottleneck),
            method => words::one_line(&optimization.method),
            plan => words::one_line(&optimization.plan),
        }
    });
    context! {
        task => words::task(task),
        machine => words::machine(machine),
        candidate => words::candidate(candidate),
        optimization => optimization,
        guides => Vec::<Value>::new(),
    }
}
