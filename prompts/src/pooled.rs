//! Kernels that were certified earlier, in the first prompt of a task: which are near enough, and what fits.

use crate::{Prompts, words, words::tokens};
use kernelbench::{
    Task,
    pool::{Pool, Pooled, Reflection},
};
use metrics::Machine;
use minijinja::{Value, context};
use std::sync::Arc;

/// Kernels that are shown, at most.
const SHOWN: usize = 2;
/// Tokens of them all, at most.
const MOST_TOKENS: usize = 4_000;

impl Prompts {
    /// The same with this pool.
    #[must_use]
    pub fn pooling(mut self, pool: Pool) -> Self {
        self.pool = Some(Arc::new(pool));
        self
    }

    /// The values of a first prompt with the kernels that are nearest to its task.
    pub(crate) fn with_pool(&self, task: &Task, machine: &Machine, values: &Value) -> Value {
        let Some(pool) = &self.pool else { return values.clone() };
        let mut room = MOST_TOKENS;
        let fits = |kernel: &&Pooled| {
            let taught: usize = kernel.about.reflections.iter().map(|one| reflection(one).len()).sum();
            let needed = tokens(kernel.source.len() + taught);
            let fits = needed <= room;
            room -= if fits { needed } else { 0 };
            fits
        };
        let near = pool.near(self.features(), task, &machine.arch);
        pooled(&near.into_iter().filter(fits).take(SHOWN).collect::<Vec<_>>(), values)
    }
}

/// One of what a run taught, on one line.
fn reflection(Reflection { insight, evidence, applies }: &Reflection) -> String {
    words::one_line(&format!("{insight} Seen: {evidence} Of use: {applies}"))
}

/// The values with these kernels.
pub(crate) fn pooled(kernels: &[&Pooled], values: &Value) -> Value {
    let kernel = |kernel: &&Pooled| {
        let [ratio, low, high] = kernel.about.speedup;
        context! {
            name => words::one_line(&kernel.about.name()),
            ratio => format!("{ratio:.2}x [{low:.2}, {high:.2}]"),
            over => words::one_line(&kernel.about.over),
            source => kernel.source.trim_end(),
            reflections => kernel.about.reflections.iter().map(reflection).collect::<Vec<_>>().join("\n"),
        }
    };
    context! { pool => kernels.iter().map(kernel).collect::<Vec<_>>(), ..values.clone() }
}
