//! What a Coder is told of an architecture in every prompt: instructions and patterns, or texts of one's own (Hawkeye, G.1).
//!
//! It stands in the system part, behind what stands there anyway, so that prompts with other contexts differ in these two
//! blocks alone.

use crate::{Prompts, words::tokens};
use kernelbench::feature::{Column, Module};
use minijinja::{Value, context};
use std::collections::BTreeSet;

/// The pages that ask for a candidate.
const CODERS: [&str; 6] = ["seed", "fix", "optimize", "refine", "retry", "apply"];
/// Texts that retrieval by words takes, at most.
const RETRIEVED: usize = 3;

/// The two blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// How instructions are written.
    pub api: Vec<Module>,
    /// What was seen to work.
    pub validation: Vec<Module>,
    /// Whether only those are shown whose words the task shares.
    pub retrieve: bool,
}

impl Context {
    /// A column's instructions, and so many of its patterns.
    #[must_use]
    pub fn modules(column: &Column, patterns: usize) -> Self {
        let validation = column.patterns.iter().take(patterns).cloned().collect();
        Self { api: column.api.clone(), validation, retrieve: false }
    }

    /// Of a column's instructions, patterns and guides those that share most words with a task.
    #[must_use]
    pub fn lexical(column: &Column) -> Self {
        let guides = column.cells.iter().filter(|cell| !cell.guide.is_empty());
        let guide = |cell: &kernelbench::feature::Cell| Module { name: cell.name.clone(), text: cell.guide.clone() };
        Self {
            api: column.api.clone(),
            validation: column.patterns.iter().cloned().chain(guides.map(guide)).collect(),
            retrieve: true,
        }
    }

    /// How many tokens both blocks are taken for, where all of them is shown.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.api.iter().chain(&self.validation).map(|module| tokens(module.text.len())).sum()
    }

    fn shown(&self, values: &Value) -> Value {
        if !self.retrieve {
            return told(&self.api.iter().collect::<Vec<_>>(), &self.validation.iter().collect::<Vec<_>>());
        }
        let about = |key: &str| values.get_attr("task").and_then(|task| task.get_attr(key)).map(|v| v.to_string());
        let task = words(&["name", "summary"].map(|key| about(key).unwrap_or_default()).join(" "));
        let shared = |module: &Module| words(&module.text).intersection(&task).count();
        let mut all: Vec<(usize, bool, &Module)> =
            self.api.iter().map(|module| (shared(module), true, module)).collect();
        all.extend(self.validation.iter().map(|module| (shared(module), false, module)));
        all.retain(|(shared, ..)| *shared > 0);
        all.sort_by_key(|(shared, ..)| std::cmp::Reverse(*shared));
        all.truncate(RETRIEVED);
        let of = |api: bool| all.iter().filter(|one| one.1 == api).map(|one| one.2).collect::<Vec<_>>();
        told(&of(true), &of(false))
    }
}

/// The words of a text that can tell one from another.
fn words(text: &str) -> BTreeSet<String> {
    let plain = text.to_lowercase();
    plain.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3).map(str::to_owned).collect()
}

/// The values of the blocks.
pub(crate) fn told(api: &[&Module], validation: &[&Module]) -> Value {
    let all = |modules: &[&Module]| modules.iter().map(|module| below(&module.text)).collect::<Vec<_>>();
    context! { api => all(api), validation => all(validation) }
}

/// Values on which the block is tried before a run.
pub(crate) fn example() -> Value {
    let module = Module { name: "wgmma".to_owned(), text: "# wgmma: a product\nIts fence comes first.".to_owned() };
    told(&[&module], &[&module])
}

/// A text whose headings are below those of the block.
fn below(text: &str) -> String {
    let mut fenced = false;
    let line = |line: &str| {
        fenced ^= line.starts_with("```");
        if line.starts_with('#') && !fenced { format!("#{line}") } else { line.to_owned() }
    };
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

impl Prompts {
    /// The same with this context.
    #[must_use]
    pub fn in_context(mut self, context: Context) -> Self {
        self.context = Some(context);
        self
    }

    /// A page's system part with the context behind it, where the page asks for a candidate.
    pub(crate) fn contextual(&self, page: &str, system: String, values: &Value) -> String {
        let Some(context) = self.context.as_ref().filter(|_| CODERS.contains(&page)) else { return system };
        let block = self.text("feature/context", &context.shown(values));
        if block.is_empty() { system } else { format!("{system}\n\n{block}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use kernelbench::feature::Features;

    fn hopper() -> Column {
        Features::embedded().column("hopper").unwrap().clone()
    }

    fn prompts(context: Context) -> Prompts {
        Prompts::embedded().in_context(context)
    }

    #[test]
    fn prompts_of_other_contexts_differ_in_the_two_blocks_alone_and_the_judges_in_nothing() {
        let column = hopper();
        let own = Module { name: "notes".into(), text: "# Triton\nA text of one's own.".into() };
        let foreign = Context { api: vec![own], ..Context::default() };
        let plain = Prompts::embedded();
        for context in [Context::modules(&column, 0), Context::modules(&column, 6), foreign, Context::default()] {
            let with = prompts(context.clone());
            for (page, values) in example::pages() {
                let (before, after) = (plain.page(page, &values), with.page(page, &values));
                assert_eq!(before.turns, after.turns, "{page}");
                let more = after.system.strip_prefix(&before.system).unwrap();
                let told = CODERS.contains(&page) && context != Context::default();
                assert_eq!(more.starts_with("\n\n# Instructions of this architecture"), told, "{page}: {more}");
                assert!(told || more.is_empty(), "{page}: {more}");
            }
        }
    }

    #[test]
    fn a_budget_of_patterns_adds_one_after_the_other_and_is_counted_in_tokens() {
        let column = hopper();
        let counted: Vec<usize> = [0, 1, 2, 4, 6].map(|k| Context::modules(&column, k).tokens()).into();
        assert!(counted.windows(2).all(|pair| pair[0] < pair[1]), "{counted:?}");
        assert_eq!(Context::modules(&column, 2).validation[1].name, "roles");
        assert!(counted[4] < 4_000, "{counted:?}");
        let (page, values) = example::pages().swap_remove(0);
        let (all, none) = (prompts(Context::modules(&column, 6)), Prompts::embedded());
        let more = all.page(page, &values).system.len() - none.page(page, &values).system.len();
        assert!(tokens(more).abs_diff(counted[4]) < 200, "{more} bytes, {} tokens", counted[4]);
    }

    #[test]
    fn retrieval_takes_the_texts_that_share_most_words_with_the_task() {
        let module = |name: &str, text: &str| Module { name: name.into(), text: format!("# {name}\n{text}") };
        let api = vec![module("scale", "scale the input by a factor, rows and columns"), module("other", "nothing")];
        let context = Context { api, validation: vec![module("none", "unlike")], retrieve: true };
        let task =
            minijinja::context! { task => minijinja::context! { name => "scale", summary => "Rows times a factor." } };
        let system = prompts(context).contextual("seed", String::new(), &task);
        assert!(system.contains("## scale") && !system.contains("## other") && !system.contains("unlike"), "{system}");
    }
}
