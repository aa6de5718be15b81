//! Kernels that were certified earlier, in the first prompt of a task: which are near enough, and what fits.

use crate::{Prompts, reflect::in_a_line, words, words::tokens};
use kernelbench::{
    Task,
    pool::{Pool, Pooled},
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
        let mut fits = |length: usize| {
            let fits = tokens(length) <= room;
            room -= if fits { tokens(length) } else { 0 };
            fits
        };
        let near = pool.near(self.features(), task, &machine.arch).into_iter();
        let mut near: Vec<Pooled> = near.filter(|kernel| fits(kernel.source.len())).take(SHOWN).cloned().collect();
        // Kernels first: what their runs taught takes what room they leave.
        for kernel in &mut near {
            kernel.about.reflections.retain(|one| fits(in_a_line(one).len()));
        }
        pooled(&near.iter().collect::<Vec<_>>(), values)
    }
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
            reflections => kernel.about.reflections.iter().map(in_a_line).collect::<Vec<_>>().join("\n"),
        }
    };
    context! { pool => kernels.iter().map(kernel).collect::<Vec<_>>(), ..values.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use kernelbench::{Hash, pool::Reflection};

    #[test]
    fn what_a_run_taught_takes_the_room_that_kernels_leave_and_never_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let (task, machine) = (example::task(), example::machine());
        let mut kernel = example::that_taught();
        kernel.arch = machine.arch.clone();
        kernel.about.operators =
            Prompts::embedded().features().operators_of(&task).into_iter().map(str::to_owned).collect();
        kernel.source = "// ".to_owned() + &"word ".repeat(2_000);
        kernel.about.kernel = Hash::of(kernel.source.as_bytes());
        let short = kernel.about.reflections[0].clone();
        let long = Reflection { insight: "much ".repeat(3_000), ..short.clone() };
        kernel.about.reflections = vec![long, short];
        Pool::admit(folder.path(), &kernel).unwrap();
        let prompts = Prompts::embedded().pooling(Pool::read(folder.path()).unwrap());
        let told = prompts.seed(&task, &machine).turns.remove(0).text;
        assert!(told.contains("word word") && told.contains("Load each row once"), "{told}");
        assert!(!told.contains("much much"), "{told}");
    }
}
